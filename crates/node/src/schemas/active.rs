//! What a registry means for collections: a collection is held to the latest schema of the subject that has its
//! name. Knows nothing of versions.

use super::{book::Book, names::read_json};
use lockwood_engine::{Misfit, Refused};
use lockwood_model::{Budget, Document, DocumentKey, Exhausted, Json};
use lockwood_schema::{Policy, Schema};
use lockwood_wire::documents::Isolation;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The schemas that hold, and what else a registry says about collections.
#[derive(Debug, Default)]
pub struct Active {
    schemas: BTreeMap<Box<str>, Schema>,
    /// Collections that may be locked at fields their schemas do not know.
    lenient: BTreeSet<Box<str>>,
    /// How reads of collections stand to locks, where a collection itself says so.
    isolations: BTreeMap<Box<str>, Isolation>,
    /// The same for all other collections.
    isolation: Isolation,
}

impl Active {
    pub(super) fn of(book: &Book) -> Active {
        let latest = book.subjects.iter().filter_map(|(name, subject)| {
            let schema = &subject.latest()?.schema;
            // What is not about objects is somebody else's, and no document is held to it.
            schema.describes_objects().then(|| (name.clone(), schema.clone()))
        });
        let schemas: BTreeMap<Box<str>, Schema> = latest.collect();
        let lenient = schemas.keys().filter(|name| book.policy(name) == Policy::Lenient).cloned().collect();
        let isolations = book
            .subjects
            .iter()
            .filter_map(|(name, subject)| Some((name.clone(), subject.settings.isolation?)));
        Active {
            lenient,
            schemas,
            isolations: isolations.collect(),
            isolation: book.settings.isolation.unwrap_or_default(),
        }
    }

    /// Whether no collection has a schema.
    pub fn is_empty(&self) -> bool {
        self.schemas.is_empty()
    }

    /// Whether fields of a collection may be locked and indexed that its schema does not know.
    pub fn is_lenient(&self, collection: &str) -> bool {
        self.lenient.contains(collection)
    }

    /// How reads of a collection stand to locks that do not say so themselves.
    pub fn isolation(&self, collection: &str) -> Isolation {
        self.isolations.get(collection).copied().unwrap_or(self.isolation)
    }

    /// The schema of a collection; none if it is open.
    pub fn schema(&self, collection: &str) -> Option<&Schema> {
        self.schemas.get(collection)
    }
}

/// Whether a document fits a schema, if the budget suffices to find out.
pub(super) fn check_within(
    schema: &Schema,
    (at, document): (&DocumentKey, &Document),
    budget: &Budget,
) -> Result<Result<(), Refused>, Exhausted> {
    let bytes: usize = document.present().map(|(name, value)| name.len() + value.as_str().len() + 4).sum();
    let value = value_of(document, budget)?;
    let mut misfits: Vec<Misfit> = schema
        .unknown_fields(&value, budget)?
        .into_iter()
        .map(|unknown| Misfit { reason: unknown.to_string(), path: unknown.path })
        .collect();
    if misfits.is_empty()
        && let Err(failures) = schema.validate(&value, bytes, budget)?
    {
        let misfit =
            |failure: lockwood_schema::Failure| Misfit { path: failure.path, reason: failure.reason };
        misfits.extend(failures.into_iter().map(misfit));
    }
    Ok(if misfits.is_empty() { Ok(()) } else { Err(Refused::Misfit { at: at.clone(), misfits }) })
}

fn value_of(document: &Document, budget: &Budget) -> Result<Value, Exhausted> {
    let member = |(name, value): (&str, &Json)| Ok((name.to_owned(), read_json(value.as_str(), budget)?));
    Ok(Value::Object(document.present().map(member).collect::<Result<Map<_, _>, Exhausted>>()?))
}
