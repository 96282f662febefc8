//! Holding documents to the schemas of their namespace while a call is decided, and the names in a call that is only
//! made then. Knows nothing of how either is checked.
//!
//! All other writers wait while a call is decided, so only little is checked meanwhile. What takes longer is put off:
//! the call is refused as not checked yet, its names are looked up and the documents it would make are validated off
//! the serving threads, and the call is decided again. Names that are the same then, and a document that is the same,
//! both under the same schema, are not checked once more.

use super::{Active, NameError, Schemas, active::check_within};
use crate::{
    gate::GateError,
    shard::{Call, ShardError},
    trouble::Trouble,
    work::Job,
};
use lockwood_engine::{Refused, Request, Rules};
use lockwood_model::{Budget, Change, Document, DocumentKey, Exhausted, FieldValue, Path, Position};
use lockwood_schema::{FieldKnown, Schema};
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Steps of validation and of looking names up while a call is decided, when all others wait: about a millisecond.
const STEPS_IN_PLACE: u64 = 200_000;
/// A longer document is not even read then.
const BYTES_IN_PLACE: usize = 32 * 1024;
/// So often a call is decided anew because its documents had changed while they were validated.
const ROUNDS_MAX: usize = 16;

/// The schemas of a namespace as they are whenever a document is looked at.
pub struct Held<'a> {
    schemas: &'a Schemas,
    namespace: &'a str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What is left of the steps in place; none before the first of them.
    in_place: Option<Budget>,
    put_off: Vec<Sheet>,
    /// Calls that were made while they were decided, whose names take long to look up.
    calls_put_off: Vec<Made>,
    /// Whether there was one. What is made the next time takes as long, so it is put off at once.
    has_long_names: bool,
    /// Those of them whose names are known.
    known: Vec<Made>,
    /// Documents that were put off once, and fit. A call may make several of one key, one after the other.
    fitting: HashMap<DocumentKey, Vec<Sheet>>,
}

/// A document to be validated.
#[derive(Clone)]
struct Sheet {
    schema: Schema,
    at: DocumentKey,
    document: Document,
}

/// A call whose names are to be looked up.
#[derive(Clone)]
struct Made {
    active: Arc<Active>,
    requests: Vec<Request>,
}

impl Held<'_> {
    pub(super) fn new<'a>(schemas: &'a Schemas, namespace: &'a str) -> Held<'a> {
        Held { schemas, namespace, state: Mutex::default() }
    }

    /// Whether the schemas know what a call names that is made while it is decided. If that takes long it is put off,
    /// and the call is refused as not checked yet.
    pub(crate) fn check_call(&self, active: &Arc<Active>, call: &Call) -> Result<(), Trouble> {
        let mut state = self.state.lock();
        if active.is_empty() || state.known.iter().any(|known| known.is_same(active, &call.requests)) {
            return Ok(());
        }
        if !state.has_long_names {
            let checked = active.check_requests(&call.requests, state.in_place());
            match checked {
                Err(NameError::Exhausted(_)) => state.has_long_names = true,
                checked => return Ok(checked?),
            }
        }
        state.calls_put_off.push(Made { active: Arc::clone(active), requests: call.requests.clone() });
        Ok(())
    }
}

impl Held<'_> {
    /// Whether documents fit that a call makes whatever is there: those that do not are refused before the call waits for
    /// locks. Those that do are not validated again when the call is decided.
    pub(crate) async fn check_made(
        &self,
        job: &Job<'_>,
        made: impl Iterator<Item = (&DocumentKey, &[FieldValue])>,
    ) -> Result<(), GateError> {
        let mut sheets = Vec::new();
        for (at, fields) in made {
            let Some(schema) = self.schemas.schema(self.namespace, &at.collection) else { continue };
            let sheet = Sheet { schema, at: at.clone(), document: document_of(fields) };
            if !self.state.lock().fits(&sheet) {
                sheets.push(sheet);
            }
        }
        if sheets.is_empty() {
            return Ok(());
        }
        let put_off = PutOff { sheets, calls: Vec::new() };
        let put_off = match put_off.check_in_place() {
            Some(checked) => checked.map(|()| put_off)?,
            None => {
                let work = move |budget: &Budget| put_off.check(budget).map(|()| put_off);
                job.run(work).await.map_err(Trouble::from)??
            }
        };
        self.state.lock().keep(put_off);
        Ok(())
    }
}

/// A new document with these fields.
fn document_of(fields: &[FieldValue]) -> Document {
    let fields = fields.iter().filter(|(_, value)| !value.is_null()).cloned().collect();
    let mut document = Document::unborn();
    document.apply(&Change::Created { fields }, Position::START.next());
    document
}

impl Rules for Held<'_> {
    fn check(&self, at: &DocumentKey, document: &Document) -> Result<(), Refused> {
        let Some(schema) = self.schemas.schema(self.namespace, &at.collection) else { return Ok(()) };
        let mut state = self.state.lock();
        let mut fitting = state.fitting.get(at).into_iter().flatten();
        if fitting.any(|sheet| sheet.is_same(&schema, document)) {
            return Ok(());
        }
        // A call whose names are still to be looked up is decided again in any case, and a name that is not known is
        // said before anything else that is wrong.
        if state.calls_put_off.is_empty()
            && bytes_of(document) <= BYTES_IN_PLACE
            && let Ok(checked) = check_within(&schema, (at, document), state.in_place())
        {
            return checked;
        }
        state.put_off.push(Sheet { schema, at: at.clone(), document: document.clone() });
        Ok(())
    }

    /// Otherwise a document with several fields that a later schema does not know could not lose them one by one.
    fn may_lose(&self, at: &DocumentKey, removed: &[Path]) -> bool {
        let Some(schema) = self.schemas.schema(self.namespace, &at.collection) else { return true };
        let mut state = self.state.lock();
        let budget = state.in_place.get_or_insert_with(|| Budget::new(STEPS_IN_PLACE));
        let is_unknown = |path: &Path| {
            let known = schema.field(&path.segments().collect::<Vec<_>>(), budget);
            matches!(known, Ok(FieldKnown::Unknown(_)))
        };
        removed.iter().all(is_unknown)
    }

    fn finish(&self) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.in_place = None;
        let is_checked = state.put_off.is_empty() && state.calls_put_off.is_empty();
        if is_checked { Ok(()) } else { Err(Refused::Unchecked) }
    }
}

impl State {
    /// Whether a document is known to fit.
    fn fits(&self, Sheet { schema, at, document }: &Sheet) -> bool {
        let mut known = self.fitting.get(at).into_iter().flatten();
        known.any(|sheet| sheet.is_same(schema, document))
    }

    /// What was put off has been checked.
    fn keep(&mut self, PutOff { sheets, calls }: PutOff) {
        self.known.extend(calls);
        for sheet in sheets {
            self.fitting.entry(sheet.at.clone()).or_default().push(sheet);
        }
    }

    fn in_place(&mut self) -> &Budget {
        self.in_place.get_or_insert_with(|| Budget::new(STEPS_IN_PLACE))
    }
}

fn bytes_of(document: &Document) -> usize {
    document.present().map(|(name, value)| name.len() + value.as_str().len()).sum()
}

impl Sheet {
    fn is_same(&self, schema: &Schema, document: &Document) -> bool {
        self.schema.is_same(schema) && self.document.present().eq(document.present())
    }
}

impl Made {
    fn is_same(&self, active: &Arc<Active>, requests: &[Request]) -> bool {
        Arc::ptr_eq(&self.active, active) && self.requests == requests
    }
}

/// Validates what deciding a call put off, until it can be decided.
pub(crate) struct Rechecks<'a> {
    held: &'a Held<'a>,
    job: &'a Job<'a>,
    rounds: usize,
}

impl<'a> Rechecks<'a> {
    pub(crate) fn new(job: &'a Job<'a>, held: &'a Held<'a>) -> Rechecks<'a> {
        Rechecks { held, job, rounds: 0 }
    }

    /// What became of a call; none if it has to be decided again.
    pub(crate) async fn settled<T>(
        &mut self,
        outcome: Result<T, ShardError>,
    ) -> Result<Option<T>, GateError> {
        match outcome {
            Err(ShardError::Refused(refused)) if matches!(*refused, Refused::Unchecked) => {
                self.validate().await?;
                Ok(None)
            }
            outcome => Ok(outcome.map(Some)?),
        }
    }

    async fn validate(&mut self) -> Result<(), GateError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX {
            let message =
                "the documents changed each time they had been validated; try again, or lock them first";
            return Err(Trouble::new(Code::BudgetExceeded, message).into());
        }
        let put_off = {
            let mut state = self.held.state.lock();
            PutOff {
                sheets: std::mem::take(&mut state.put_off),
                calls: std::mem::take(&mut state.calls_put_off),
            }
        };
        let work = move |budget: &Budget| put_off.check(budget).map(|()| put_off);
        let checked = self.job.run(work).await.map_err(Trouble::from)??;
        self.held.state.lock().keep(checked);
        Ok(())
    }
}

/// What deciding a call put off.
struct PutOff {
    sheets: Vec<Sheet>,
    calls: Vec<Made>,
}

impl PutOff {
    /// The same if it takes little; otherwise none.
    fn check_in_place(&self) -> Option<Result<(), Misfitting>> {
        let bytes: usize = self.sheets.iter().map(|sheet| bytes_of(&sheet.document)).sum();
        if bytes > BYTES_IN_PLACE {
            return None;
        }
        match self.check(&Budget::new(STEPS_IN_PLACE)) {
            Err(Misfitting::Name(NameError::Exhausted(_))) => None,
            checked => Some(checked),
        }
    }

    fn check(&self, budget: &Budget) -> Result<(), Misfitting> {
        for Made { active, requests } in &self.calls {
            active.check_requests(requests, budget)?;
        }
        for Sheet { schema, at, document } in &self.sheets {
            check_within(schema, (at, document), budget)??;
        }
        Ok(())
    }
}

/// Why what was put off does not hold, or is not known to.
enum Misfitting {
    Name(NameError),
    Document(Refused),
}

impl From<NameError> for Misfitting {
    fn from(error: NameError) -> Misfitting {
        Misfitting::Name(error)
    }
}

impl From<Exhausted> for Misfitting {
    fn from(exhausted: Exhausted) -> Misfitting {
        Misfitting::Name(exhausted.into())
    }
}

impl From<Refused> for Misfitting {
    fn from(refused: Refused) -> Misfitting {
        Misfitting::Document(refused)
    }
}

impl From<Misfitting> for GateError {
    fn from(misfitting: Misfitting) -> GateError {
        match misfitting {
            Misfitting::Name(error) => Trouble::from(error).into(),
            Misfitting::Document(refused) => ShardError::from(refused).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Book, *};
    use lockwood_engine::{Action, Intent};
    use lockwood_model::Json;

    fn active() -> Arc<Active> {
        let text = r#"{"type":"object","properties":{"a":{}},"additionalProperties":false}"#;
        Arc::new(Active::of(&Book::of_one("c", text)))
    }

    /// One that names a field so often.
    fn call(len: usize, name: &str) -> Call {
        let fields = vec![(name.into(), Json::trusted("1"))];
        let at = |key: usize| DocumentKey { collection: "c".into(), key: key.to_string().parse().unwrap() };
        let intent = |key| Intent { at: at(key), action: Action::Create { fields: fields.clone() } };
        let request = Request { intents: (1..=len).map(intent).collect(), ..Request::default() };
        Call { requests: vec![request], ..Call::default() }
    }

    fn steps_spent(held: &Held<'_>) -> u64 {
        held.state.lock().in_place.as_ref().map_or(0, |budget| STEPS_IN_PLACE - budget.left())
    }

    #[test]
    fn names_that_are_known_are_not_looked_up_while_others_wait() {
        let (schemas, active, long) = (Schemas::default(), active(), call(STEPS_IN_PLACE as usize, "a"));
        let held = Held::new(&schemas, "n");
        assert!(held.check_call(&active, &long).is_ok());
        assert_eq!(steps_spent(&held), STEPS_IN_PLACE, "it takes longer than others are to wait");
        assert_eq!(held.finish(), Err(Refused::Unchecked));
        // As when it was done elsewhere.
        let put_off = std::mem::take(&mut held.state.lock().calls_put_off);
        held.state.lock().known.extend(put_off);
        assert!(held.check_call(&active, &long).is_ok());
        assert_eq!((steps_spent(&held), held.finish()), (0, Ok(())));
    }

    #[test]
    fn call_that_is_another_one_in_each_round_is_tried_in_place_once() {
        let (schemas, active) = (Schemas::default(), active());
        let held = Held::new(&schemas, "n");
        for (round, spent) in [STEPS_IN_PLACE, 0, 0].into_iter().enumerate() {
            assert!(held.check_call(&active, &call(STEPS_IN_PLACE as usize + round, "a")).is_ok());
            assert_eq!(steps_spent(&held), spent, "round {round}");
            assert_eq!(held.finish(), Err(Refused::Unchecked));
            held.state.lock().calls_put_off.clear();
        }
    }

    #[test]
    fn few_names_are_looked_up_at_once() {
        let (schemas, active) = (Schemas::default(), active());
        let held = Held::new(&schemas, "n");
        assert!(held.check_call(&active, &call(1, "a")).is_ok());
        assert!(held.check_call(&active, &call(1, "b")).is_err());
        assert_eq!(held.finish(), Ok(()));
    }
}
