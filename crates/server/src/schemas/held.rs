//! Holding documents to the schemas of their namespace while a call is decided. Knows nothing of what the call does.
//!
//! All other writers wait while a call is decided, so only little validation is done meanwhile. What takes longer
//! is put off: the call is refused as not checked yet, the documents it would make are validated off the serving
//! threads, and the call is decided again. A document that is the same then, under the same schema, is not validated
//! once more.

use super::{Schemas, active::check_within};
use crate::{gate::GateError, shard::ShardError, shared::Shared, trouble::Trouble, work::Job};
use lockwood_engine::{Refused, Rules};
use lockwood_model::{Budget, Document, DocumentKey, Exhausted};
use lockwood_schema::Schema;
use lockwood_wire::Code;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Steps of validation while a call is decided: some ten milliseconds.
const STEPS_IN_PLACE: u64 = 4_000_000;
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

impl Held<'_> {
    pub(super) fn new<'a>(schemas: &'a Schemas, namespace: &'a str) -> Held<'a> {
        Held { schemas, namespace, state: Mutex::default() }
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
        let budget = state.in_place.get_or_insert_with(|| Budget::new(STEPS_IN_PLACE));
        match check_within(&schema, (at, document), budget) {
            Ok(checked) => checked,
            Err(_) => {
                state.put_off.push(Sheet { schema, at: at.clone(), document: document.clone() });
                Ok(())
            }
        }
    }

    fn finish(&self) -> Result<(), Refused> {
        let mut state = self.state.lock();
        state.in_place = None;
        if state.put_off.is_empty() { Ok(()) } else { Err(Refused::Unchecked) }
    }
}

impl Sheet {
    fn is_same(&self, schema: &Schema, document: &Document) -> bool {
        self.schema.is_same(schema) && self.document.present().eq(document.present())
    }
}

/// Validates what deciding a call put off, until it can be decided.
pub(crate) struct Rechecks<'a> {
    held: &'a Held<'a>,
    shared: &'a Shared,
    rounds: usize,
}

impl<'a> Rechecks<'a> {
    pub(crate) fn new(shared: &'a Shared, held: &'a Held<'a>) -> Rechecks<'a> {
        Rechecks { held, shared, rounds: 0 }
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
        let sheets = std::mem::take(&mut self.held.state.lock().put_off);
        let work = move |budget: &Budget| validate(&sheets, budget).map(|checked| checked.map(|()| sheets));
        let checked = Job::new(self.shared).run(work).await;
        let checked = checked.and_then(|checked| checked.map_err(Into::into)).map_err(Trouble::from)?;
        let mut state = self.held.state.lock();
        for sheet in checked.map_err(ShardError::from)? {
            state.fitting.entry(sheet.at.clone()).or_default().push(sheet);
        }
        Ok(())
    }
}

fn validate(sheets: &[Sheet], budget: &Budget) -> Result<Result<(), Refused>, Exhausted> {
    for Sheet { schema, at, document } in sheets {
        if let Err(refused) = check_within(schema, (at, document), budget)? {
            return Ok(Err(refused));
        }
    }
    Ok(Ok(()))
}
