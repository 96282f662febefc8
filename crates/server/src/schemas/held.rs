//! Holding documents to the schemas of their namespace while a call is decided. Knows nothing of what the call does.
//!
//! All other writers wait while a call is decided, so only little validation is done meanwhile. What takes longer
//! is put off: the call is refused as not checked yet, the documents it would make are validated off the serving
//! threads, and the call is decided again. A document that is the same then, under the same schema, is not validated
//! once more.

use super::{Active, NameError, Schemas, active::check_within};
use crate::{
    gate::GateError,
    shard::{Call, ShardError},
    trouble::Trouble,
    work::Job,
};
use lockwood_engine::{Refused, Request, Rules};
use lockwood_model::{Budget, Document, DocumentKey, Exhausted};
use lockwood_schema::Schema;
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

/// Steps of validation while a call is decided, when all others wait: about a millisecond.
const STEPS_IN_PLACE: u64 = 200_000;
/// A longer document is not even read then.
const BYTES_IN_PLACE: usize = 32 * 1024;
/// So often a call is decided anew because its documents had changed while they were validated.
const ROUNDS_MAX: usize = 16;

/// The schemas of a namespace as they are whenever a document is looked at.
pub(crate) struct Held<'a> {
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
        if let Some(checked) = active.check_in_place(&call.requests) {
            return checked;
        }
        let made = Made { active: Arc::clone(active), requests: call.requests.clone() };
        let mut state = self.state.lock();
        if !state.known.iter().any(|known| known.is_same(&made)) {
            state.calls_put_off.push(made);
        }
        Ok(())
    }
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
        let bytes = document.present().map(|(name, value)| name.len() + value.as_str().len()).sum::<usize>();
        if state.calls_put_off.is_empty() && bytes <= BYTES_IN_PLACE {
            let budget = state.in_place.get_or_insert_with(|| Budget::new(STEPS_IN_PLACE));
            if let Ok(checked) = check_within(&schema, (at, document), budget) {
                return checked;
            }
        }
        state.put_off.push(Sheet { schema, at: at.clone(), document: document.clone() });
        Ok(())
    }

    fn finish(&self) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.in_place = None;
        let is_checked = state.put_off.is_empty() && state.calls_put_off.is_empty();
        if is_checked { Ok(()) } else { Err(Refused::Unchecked) }
    }
}

impl Sheet {
    fn is_same(&self, schema: &Schema, document: &Document) -> bool {
        self.schema.is_same(schema) && self.document.present().eq(document.present())
    }
}

impl Made {
    fn is_same(&self, other: &Made) -> bool {
        Arc::ptr_eq(&self.active, &other.active) && self.requests == other.requests
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
        let PutOff { sheets, calls } = self.job.run(work).await.map_err(Trouble::from)??;
        let mut state = self.held.state.lock();
        state.known.extend(calls);
        for sheet in sheets {
            state.fitting.entry(sheet.at.clone()).or_default().push(sheet);
        }
        Ok(())
    }
}

/// What deciding a call put off.
struct PutOff {
    sheets: Vec<Sheet>,
    calls: Vec<Made>,
}

impl PutOff {
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
