//! Whether the names in a request are known to the schemas of its collections. Asked before any lock is taken.
//!
//! A few names are looked up where the request is read. What takes longer is done off the serving threads, within the
//! budget of the request; see [`Job`].

use super::Active;
use crate::{
    shard::{Call, Keep},
    trouble::Trouble,
    work::{Job, Unfinished},
};
use lockwood_engine::{Action, Intent, Request, Target};
use lockwood_model::{Budget, Exhausted, FieldPath, FieldValue, Filter, Path, Resource};
use lockwood_schema::{FieldKnown, Schema, UnknownField};
use lockwood_wire::Code;
use serde_json::{Map, Value};
use std::{borrow::Cow, sync::Arc};

/// Steps of looking names up where a request is read: a few milliseconds.
const STEPS_IN_PLACE: u64 = 400_000;
/// Reading so many bytes of JSON costs one step.
const JSON_BYTES_PER_STEP: usize = 2;

/// Why names cannot be used.
#[derive(Debug)]
pub enum NameError {
    /// A schema does not know one of them.
    Unknown(Box<Trouble>),
    /// It was not found out.
    Exhausted(Exhausted),
}

impl From<Exhausted> for NameError {
    fn from(exhausted: Exhausted) -> NameError {
        NameError::Exhausted(exhausted)
    }
}

impl From<NameError> for Trouble {
    fn from(error: NameError) -> Trouble {
        match error {
            NameError::Unknown(trouble) => *trouble,
            NameError::Exhausted(exhausted) => Unfinished::from(exhausted).into(),
        }
    }
}

/// What a request names.
pub enum Named<'a> {
    /// A write call.
    Call(Cow<'a, [Request]>),
    /// Documents without positions.
    Keep(Cow<'a, Keep>),
    /// To be locked.
    Resources(Cow<'a, [Resource]>),
    /// Collections, with the names from the top of a document.
    Fields(Vec<(Cow<'a, str>, Vec<Cow<'a, str>>)>),
}

impl<'a> Named<'a> {
    /// What a write call names.
    pub fn call(call: &'a Call) -> Named<'a> {
        Named::Call(Cow::Borrowed(&call.requests))
    }

    fn fields(mut fields: Vec<(&'a str, &'a FieldPath)>) -> Named<'a> {
        // Requests for many documents name the same fields of each.
        fields.sort_unstable();
        fields.dedup();
        let names = |path: &'a FieldPath| path.names().map(Cow::Borrowed).collect();
        Named::Fields(fields.into_iter().map(|(name, path)| (Cow::Borrowed(name), names(path))).collect())
    }

    fn into_owned(self) -> Named<'static> {
        let text = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Named::Call(requests) => Named::Call(Cow::Owned(requests.into_owned())),
            Named::Keep(keep) => Named::Keep(Cow::Owned(keep.into_owned())),
            Named::Resources(resources) => Named::Resources(Cow::Owned(resources.into_owned())),
            Named::Fields(fields) => {
                let field = |(name, path): (_, Vec<_>)| (text(name), path.into_iter().map(text).collect());
                Named::Fields(fields.into_iter().map(field).collect())
            }
        }
    }
}

/// Whether the schemas of collections know everything that a request names.
pub(crate) async fn check_named(
    job: &Job<'_>,
    active: &Arc<Active>,
    named: Named<'_>,
) -> Result<(), Trouble> {
    if active.is_empty() {
        return Ok(());
    }
    match active.check(&named, &Budget::new(STEPS_IN_PLACE)) {
        Err(NameError::Exhausted(_)) => {}
        checked => return Ok(checked?),
    }
    let (active, named) = (Arc::clone(active), named.into_owned());
    Ok(job.run(move |budget| active.check(&named, budget)).await??)
}

/// Whether the schemas of collections know the fields that are to be read, sorted by or compared.
pub async fn check_fields(
    job: &Job<'_>,
    namespace: &str,
    fields: Vec<(&str, &FieldPath)>,
) -> Result<(), Trouble> {
    let active = job.kernel().schemas.active(job.kernel(), namespace)?;
    if active.is_empty() {
        return Ok(());
    }
    check_named(job, &active, Named::fields(fields)).await
}

/// Whether the schema of a collection, if it has one, knows a node of its documents.
pub async fn check_node(
    job: &Job<'_>,
    namespace: &str,
    collection: &str,
    node: &Path,
) -> Result<(), Trouble> {
    let active = job.kernel().schemas.active(job.kernel(), namespace)?;
    let names = node.segments().map(Cow::Borrowed).collect();
    check_named(job, &active, Named::Fields(vec![(Cow::Borrowed(collection), names)])).await
}

/// Whether the schemas of collections know the fields that are to be locked. To be asked before a lock waits.
pub async fn check_locked(job: &Job<'_>, namespace: &str, resources: &[Resource]) -> Result<(), Trouble> {
    if !names_fields(resources) {
        return Ok(());
    }
    let active = job.kernel().schemas.active(job.kernel(), namespace)?;
    check_named(job, &active, Named::Resources(Cow::Borrowed(resources))).await
}

/// Whether a resource is a field, or something in one.
pub(crate) fn names_fields(resources: &[Resource]) -> bool {
    resources.iter().any(|resource| resource.path.len() > DOCUMENT_LEN)
}

/// The segments of a document's path: collection and key.
const DOCUMENT_LEN: usize = 2;

impl Active {
    /// The same for sessions, whose messages are answered one after the other where they are read: what would take long
    /// is refused.
    pub(crate) fn check_locked_in_place(&self, resources: &[Resource]) -> Result<(), Trouble> {
        if self.is_empty() {
            return Ok(());
        }
        let named = Named::Resources(Cow::Borrowed(resources));
        self.check(&named, &Budget::new(STEPS_IN_PLACE)).map_err(|error| match error {
            NameError::Unknown(trouble) => *trouble,
            NameError::Exhausted(_) => {
                let message = "looking up the fields to be locked in their schemas takes too much work for a session; \
                               lock fewer fields at once, or whole documents, or take a lease (POST …/locks)";
                Trouble::new(Code::BudgetExceeded, message)
            }
        })
    }

    /// Whether collections know what is named, as far as the budget goes.
    fn check(&self, named: &Named<'_>, budget: &Budget) -> Result<(), NameError> {
        let names = Names { active: self, budget };
        match named {
            Named::Call(requests) => names.requests(requests),
            Named::Keep(keep) => names.keep(keep),
            Named::Resources(resources) => names.resources(resources),
            Named::Fields(fields) => fields.iter().try_for_each(|(collection, path)| {
                names.field(collection, &path.iter().map(|name| &**name).collect::<Vec<_>>())
            }),
        }
    }

    /// Whether the collections of a call know what it names, as far as the budget goes.
    pub(super) fn check_requests(&self, requests: &[Request], budget: &Budget) -> Result<(), NameError> {
        self.check(&Named::Call(Cow::Borrowed(requests)), budget)
    }

    /// Whether a collection knows fields, and all that a filter names.
    pub fn check_names(
        &self,
        collection: &str,
        fields: &[&str],
        filter: Option<&Filter>,
        budget: &Budget,
    ) -> Result<(), NameError> {
        let names = Names { active: self, budget };
        fields.iter().try_for_each(|name| names.field(collection, &[name]))?;
        filter.map_or(Ok(()), |filter| names.filter(collection, filter))
    }
}

/// Names that are being looked up.
struct Names<'a> {
    active: &'a Active,
    budget: &'a Budget,
}

impl Names<'_> {
    /// Whether a collection knows a field, given the names from the top.
    fn field(&self, collection: &str, path: &[&str]) -> Result<(), NameError> {
        let Some(schema) = self.active.schema(collection) else { return Ok(()) };
        // What the store itself says about a document is there whatever the schema says.
        if path.first().is_some_and(|name| name.starts_with("meta_")) {
            return Ok(());
        }
        match schema.field(path, self.budget)? {
            FieldKnown::Known => Ok(()),
            FieldKnown::Unknown(unknown) => Err(unknown_field(collection, &unknown)),
        }
    }

    /// Whether the collections know the fields that are to be locked, unless their policy is lenient.
    fn resources(&self, resources: &[Resource]) -> Result<(), NameError> {
        for resource in resources {
            let segments: Vec<&str> = resource.path.segments().collect();
            if let [collection, _, field @ ..] = &segments[..]
                && !field.is_empty()
                && !self.active.is_lenient(collection)
            {
                self.field(collection, field)?;
            }
        }
        Ok(())
    }

    /// Whether a collection knows what a path leads to.
    fn path(&self, collection: &str, path: &FieldPath) -> Result<(), NameError> {
        self.field(collection, &path.names().collect::<Vec<_>>())
    }

    /// Whether a collection knows every field a filter names.
    fn filter(&self, collection: &str, filter: &Filter) -> Result<(), NameError> {
        if self.active.schema(collection).is_none() {
            return Ok(());
        }
        filter.fields().into_iter().try_for_each(|field| self.path(collection, field))
    }

    /// Whether the collections of a write call know every field it names, in values and in position locks.
    fn requests(&self, requests: &[Request]) -> Result<(), NameError> {
        for request in requests {
            request.intents.iter().try_for_each(|intent| self.intent(intent))?;
            request.locks.iter().try_for_each(|lock| self.target(&lock.target))?;
        }
        Ok(())
    }

    fn intent(&self, Intent { at, action }: &Intent) -> Result<(), NameError> {
        match action {
            Action::Create { fields } | Action::Put { fields, .. } => self.values(&at.collection, fields),
            Action::Update { set, lists } => {
                self.values(&at.collection, set)?;
                let mut lists = lists.iter();
                lists.try_for_each(|list| self.field(&at.collection, &[&list.field]))
            }
            Action::Set { path, value } => {
                let segments: Vec<&str> = path.segments().collect();
                if value.is_some() { self.field(&at.collection, &segments) } else { Ok(()) }
            }
            Action::Delete | Action::Restore => Ok(()),
        }
    }

    fn target(&self, target: &Target) -> Result<(), NameError> {
        match target {
            Target::Document(_) => Ok(()),
            Target::Field(at, field) => self.path(&at.collection, field),
            Target::CollectionField { collection, field, filter } => {
                self.path(collection, field)?;
                filter.as_ref().map_or(Ok(()), |filter| self.filter(collection, filter))
            }
        }
    }

    /// Whether the collection of a document without positions knows every field that is written to it.
    fn keep(&self, keep: &Keep) -> Result<(), NameError> {
        match keep {
            Keep::Merge(at, fields) => self.values(&at.collection, fields),
            Keep::Remove(_) => Ok(()),
        }
    }

    /// Whether a collection knows fields and all names in their values. What is taken away need not be known.
    fn values(&self, collection: &str, fields: &[FieldValue]) -> Result<(), NameError> {
        let Some(schema) = self.active.schema(collection) else { return Ok(()) };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            self.field(collection, &[name])?;
            if value.as_str().starts_with(['{', '[']) {
                self.value(collection, schema, (name, value.as_str()))?;
            }
        }
        Ok(())
    }

    fn value(&self, collection: &str, schema: &Schema, (name, text): (&str, &str)) -> Result<(), NameError> {
        let document = Value::Object(Map::from_iter([(name.to_owned(), read_json(text, self.budget)?)]));
        match schema.unknown_fields(&document, self.budget)?.first() {
            Some(unknown) => Err(unknown_field(collection, unknown)),
            None => Ok(()),
        }
    }
}

/// A value that was read as JSON before.
pub(super) fn read_json(text: &str, budget: &Budget) -> Result<Value, Exhausted> {
    budget.spend(1 + (text.len() / JSON_BYTES_PER_STEP) as u64)?;
    Ok(serde_json::from_str(text).expect("it was read as JSON before"))
}

fn unknown_field(collection: &str, unknown: &UnknownField) -> NameError {
    let message = format!(
        "{unknown} (collection {collection:?}; only what its schema names can be read, searched, written or locked, and \
         `lockwood schema show {collection}` prints that)"
    );
    NameError::Unknown(Box::new(Trouble::new(Code::UnknownField, message)))
}
