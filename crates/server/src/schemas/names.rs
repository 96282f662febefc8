//! Whether the names in a request are known to the schemas of its collections. Asked before any lock is taken.

use super::Active;
use crate::{
    shard::{Call, Keep},
    shared::Shared,
    trouble::Trouble,
};
use lockwood_engine::{Action, Intent, Target};
use lockwood_model::{FieldPath, FieldValue, Filter, Resource};
use lockwood_schema::{FieldKnown, UnknownField};
use lockwood_wire::Code;
use serde_json::{Map, Value};

impl Active {
    /// Whether a collection knows a field, given the names from the top.
    pub(crate) fn check_field(&self, collection: &str, path: &[&str]) -> Result<(), Trouble> {
        let Some(schema) = self.schema(collection) else { return Ok(()) };
        // What the store itself says about a document is there whatever the schema says.
        if path.first().is_some_and(|name| name.starts_with("meta_")) {
            return Ok(());
        }
        match schema.field(path) {
            FieldKnown::Known => Ok(()),
            FieldKnown::Unknown(unknown) => Err(unknown_field(collection, &unknown)),
        }
    }

    /// Whether the collections know the fields that are to be locked, unless their policy is lenient.
    pub(crate) fn check_locked(&self, resources: &[Resource]) -> Result<(), Trouble> {
        if self.is_empty() {
            return Ok(());
        }
        for resource in resources {
            let segments: Vec<&str> = resource.path.segments().collect();
            if let [collection, _, field @ ..] = &segments[..]
                && !field.is_empty()
                && !self.is_lenient(collection)
            {
                self.check_field(collection, field)?;
            }
        }
        Ok(())
    }

    /// Whether a collection knows what a path leads to.
    pub(crate) fn check_path(&self, collection: &str, path: &FieldPath) -> Result<(), Trouble> {
        self.check_field(collection, &path.names().collect::<Vec<_>>())
    }

    /// Whether a collection knows every field a filter names.
    pub(crate) fn check_filter(&self, collection: &str, filter: &Filter) -> Result<(), Trouble> {
        if self.schema(collection).is_none() {
            return Ok(());
        }
        filter.fields().into_iter().try_for_each(|field| self.check_path(collection, field))
    }

    /// Whether the collections of a write call know every field it names, in values and in position locks.
    pub(crate) fn check_call(&self, call: &Call) -> Result<(), Trouble> {
        if self.is_empty() {
            return Ok(());
        }
        for request in &call.requests {
            request.intents.iter().try_for_each(|intent| self.check_intent(intent))?;
            request.locks.iter().try_for_each(|lock| self.check_target(&lock.target))?;
        }
        Ok(())
    }

    fn check_intent(&self, Intent { at, action }: &Intent) -> Result<(), Trouble> {
        match action {
            Action::Create { fields } | Action::Put { fields, .. } => {
                self.check_values(&at.collection, fields)
            }
            Action::Update { set, lists } => {
                self.check_values(&at.collection, set)?;
                let mut lists = lists.iter();
                lists.try_for_each(|list| self.check_field(&at.collection, &[&list.field]))
            }
            Action::Set { path, value } => {
                let segments: Vec<&str> = path.segments().collect();
                if value.is_some() { self.check_field(&at.collection, &segments) } else { Ok(()) }
            }
            Action::Delete | Action::Restore => Ok(()),
        }
    }

    fn check_target(&self, target: &Target) -> Result<(), Trouble> {
        match target {
            Target::Document(_) => Ok(()),
            Target::Field(at, field) => self.check_path(&at.collection, field),
            Target::CollectionField { collection, field, filter } => {
                self.check_path(collection, field)?;
                filter.as_ref().map_or(Ok(()), |filter| self.check_filter(collection, filter))
            }
        }
    }

    /// Whether the collection of a document without positions knows every field that is written to it.
    pub(crate) fn check_keep(&self, keep: &Keep) -> Result<(), Trouble> {
        match keep {
            Keep::Merge(at, fields) => self.check_values(&at.collection, fields),
            Keep::Remove(_) => Ok(()),
        }
    }

    /// Whether a collection knows fields and all names in their values. What is taken away need not be known.
    fn check_values(&self, collection: &str, fields: &[FieldValue]) -> Result<(), Trouble> {
        let Some(schema) = self.schema(collection) else { return Ok(()) };
        for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            self.check_field(collection, &[name])?;
            if value.as_str().starts_with(['{', '[']) {
                let value: Value = serde_json::from_str(value.as_str()).expect("it was read as JSON before");
                let document = Value::Object(Map::from_iter([(String::from(&**name), value)]));
                if let Some(unknown) = schema.unknown_fields_of(&document).first() {
                    return Err(unknown_field(collection, unknown));
                }
            }
        }
        Ok(())
    }
}

/// Whether the schemas of collections know the fields that are to be locked. To be asked before a lock waits.
pub(crate) fn check_locked(shared: &Shared, namespace: &str, resources: &[Resource]) -> Result<(), Trouble> {
    if !names_fields(resources) {
        return Ok(());
    }
    shared.schemas.active(shared, namespace)?.check_locked(resources)
}

/// Whether a resource is a field, or something in one.
pub(crate) fn names_fields(resources: &[Resource]) -> bool {
    resources.iter().any(|resource| resource.path.len() > DOCUMENT_LEN)
}

/// The segments of a document's path: collection and key.
const DOCUMENT_LEN: usize = 2;

/// Whether the schema of a collection, if it has one, knows every field that a request names: those to be read,
/// sorted by or compared, and those of its filter. To be asked before any lock is taken.
pub(crate) fn check_names<'a>(
    shared: &Shared,
    namespace: &str,
    collection: &str,
    fields: impl IntoIterator<Item = &'a FieldPath>,
    filter: Option<&Filter>,
) -> Result<(), Trouble> {
    let active = shared.schemas.active(shared, namespace)?;
    fields.into_iter().try_for_each(|field| active.check_path(collection, field))?;
    filter.map_or(Ok(()), |filter| active.check_filter(collection, filter))
}

fn unknown_field(collection: &str, unknown: &UnknownField) -> Trouble {
    let message = format!(
        "{unknown} (collection {collection:?}; only what its schema names can be read, searched, written or locked, and \
         `lockwood schema show {collection}` prints that)"
    );
    Trouble::new(Code::UnknownField, message)
}
