//! Ordinary documents: reads them, and writes them through the gate, each time from the document as it was seen. Knows
//! nothing of locks' documents, nor of how requests and answers are written.

use super::{
    answer::Refusal,
    change::{Current, Order, Step, Write},
    name::At,
    outcome::{Done, Outcome},
    source::Source,
};
use crate::{native::Decoder, shared::Shared};
use lockwood_engine::{Action, Intent, PositionLock, PutIf, Refused, Request, Target};
use lockwood_model::{Document, FieldValue, Json, Position, Wait};
use lockwood_node::{
    gate::{self, GateError, Terms},
    shard::{Call, Reading, ShardError},
    trouble::Trouble,
};
use std::{collections::HashSet, sync::Arc};

/// Whoever is overtaken so often gives up, even if it wants to go on.
pub(super) const ATTEMPTS_MAX: u64 = 1000;

/// A document as it is.
pub(super) fn get(reading: &Reading, at: &At) -> Result<Option<Current>, Refusal> {
    let Some((namespace, _)) = reading.namespace(&at.index)? else { return Ok(None) };
    let document = reading.state().document(namespace, &at.key)?;
    Ok(document.filter(|document| !document.deleted).map(|document| current(&document)))
}

fn current(document: &Document) -> Current {
    let fields = document.present().map(|(name, value)| (name.into(), value.clone()));
    let (version, seq_no) = (document.version.max(1), document.position.0);
    Current { source: Source(fields.collect()), version, seq_no }
}

/// Writes a document, again from the beginning if somebody else was faster.
pub(super) async fn write(shared: &Arc<Shared>, at: &At, write: &Write) -> Result<Done, Refusal> {
    let attempts = write.retries.map_or(ATTEMPTS_MAX, |retries| retries + 1);
    for _ in 0..attempts {
        let seen = Seen::look(shared, at)?;
        let step = write.decide(at, seen.current.as_ref())?;
        if let Some(done) = seen.take(shared, at, write, step).await? {
            return Ok(done);
        }
    }
    let reason =
        "the document changed while it was being written; read it again, or let retry_on_conflict be higher";
    Err(at.conflict(reason))
}

/// A document with the position at which it was looked at.
struct Seen {
    position: Position,
    document: Option<Document>,
    current: Option<Current>,
}

impl Seen {
    fn look(shared: &Shared, at: &At) -> Result<Seen, Refusal> {
        let reading = shared.shard.read();
        let Some((namespace, position)) = reading.namespace(&at.index)? else {
            return Ok(Seen { position: reading.position(&at.index)?, document: None, current: None });
        };
        let document = reading.state().document(namespace, &at.key)?.filter(Document::is_born);
        let current = document.as_ref().filter(|document| !document.deleted).map(current);
        Ok(Seen { position, document, current })
    }

    fn version(&self) -> u64 {
        self.document.as_ref().map_or(0, |document| document.version)
    }

    /// Does what was decided; none if the document is not as it was.
    async fn take(
        &self,
        shared: &Arc<Shared>,
        at: &At,
        write: &Write,
        step: Step,
    ) -> Result<Option<Done>, Refusal> {
        let (outcome, actions) = match step {
            Step::Noop | Step::NotFound => {
                let outcome = if step == Step::Noop { Outcome::Noop } else { Outcome::NotFound };
                let seq_no = self.document.as_ref().map_or(0, |document| document.position.0);
                return Ok(Some(Done { outcome, version: self.version().max(1), seq_no }));
            }
            Step::Create(source) => {
                let put = Action::Put { fields: source.0, when: PutIf::Absent };
                (Outcome::Created, vec![put])
            }
            Step::Replace(source) => (Outcome::Updated, vec![self.replace(write, source.0)]),
            Step::Remove => (Outcome::Deleted, vec![Action::Delete]),
        };
        let call = self.call(shared, at, actions);
        let wait = if write.waits { Wait::Millis(shared.config.wait_ms) } else { Wait::Never };
        let terms = Terms::anonymous(wait);
        match gate::write(shared, &at.index, &call, &terms).await {
            Ok(written) => {
                let seq_no = written.positions.last().map_or(0, |position| position.0);
                Ok(Some(Done { outcome, version: self.version() + 1, seq_no }))
            }
            Err(GateError::Shard(ShardError::Refused(refused))) if is_overtaken(&refused) => Ok(None),
            Err(GateError::Refused(trouble)) => Err(blocked(at, *trouble)),
            Err(error) => Err(error.into()),
        }
    }

    /// An update writes what it changes and needs locks for no more; anything else writes everything.
    fn replace(&self, write: &Write, fields: Vec<FieldValue>) -> Action {
        let before = self.current.as_ref().map(|current| &current.source);
        if let (Order::Update(_), Some(before)) = (&write.order, before) {
            let kept: HashSet<&str> = fields.iter().map(|(name, _)| &**name).collect();
            let gone = before.0.iter().filter(|(name, _)| !kept.contains(&**name));
            let gone: Vec<FieldValue> = gone.map(|(name, _)| (name.clone(), Json::null())).collect();
            let changed = fields.iter().filter(|(name, value)| before.get(name) != Some(value)).cloned();
            let set: Vec<FieldValue> = changed.chain(gone).collect();
            if !set.is_empty() {
                return Action::Update { set, lists: Vec::new() };
            }
        }
        Action::Put { fields, when: PutIf::Present }
    }

    fn call(&self, shared: &Shared, at: &At, actions: Vec<Action>) -> Call {
        let intent = |action| Intent { at: at.key.clone(), action };
        let lock = PositionLock { target: Target::Document(at.key.clone()), position: self.position };
        let intents = actions.into_iter().map(intent).collect();
        let request = Request { intents, locks: vec![lock], ..Request::default() };
        let limits = Some(Decoder(&shared.config.limits).engine_limits());
        Call { requests: vec![request], limits, ..Call::default() }
    }
}

fn is_overtaken(refused: &Refused) -> bool {
    match refused {
        Refused::Locked(_)
        | Refused::NoDocument { .. }
        | Refused::Exists { .. }
        | Refused::NotDeleted { .. } => true,
        Refused::Unexpected { .. }
        | Refused::NotAList { .. }
        | Refused::OverLimit { .. }
        | Refused::Misfit { .. }
        | Refused::Unchecked
        | Refused::NoNode { .. }
        | Refused::NoContainer { .. } => false,
    }
}

/// A lock of others is in the way.
pub(super) fn blocked(at: &At, trouble: Trouble) -> Refusal {
    let code = trouble.code;
    let refusal = Refusal::from(trouble);
    if refusal.kind == super::answer::CONFLICT {
        at.conflict(&refusal.reason).known_as(code)
    } else {
        refusal
    }
}
