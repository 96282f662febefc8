//! Whether the names in a request are known to the schemas of its collections. Asked before any lock is taken.

use super::Active;
use crate::{shard::Call, trouble::Trouble};
use lockwood_engine::Action;
use lockwood_model::Filter;
use lockwood_schema::{FieldKnown, UnknownField};
use lockwood_wire::Code;

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

    /// Whether a collection knows every field a filter names.
    pub(crate) fn check_filter(&self, collection: &str, filter: &Filter) -> Result<(), Trouble> {
        if self.schema(collection).is_none() {
            return Ok(());
        }
        filter.fields().into_iter().try_for_each(|field| self.check_field(collection, &[field]))
    }

    /// Whether the collections of a write call know every field it names.
    pub(crate) fn check_call(&self, call: &Call) -> Result<(), Trouble> {
        if self.is_empty() {
            return Ok(());
        }
        for intent in call.requests.iter().flat_map(|request| &request.intents) {
            if let Action::Set { path, value: Some(_) } = &intent.action {
                let segments: Vec<&str> = path.segments().collect();
                self.check_field(&intent.at.collection, &segments)?;
            }
            let names: Vec<&str> = match &intent.action {
                Action::Create { fields } | Action::Put { fields, .. } => {
                    fields.iter().map(|(name, _)| &**name).collect()
                }
                Action::Update { set, lists } => {
                    let set = set.iter().filter(|(_, value)| !value.is_null()).map(|(name, _)| &**name);
                    set.chain(lists.iter().map(|list| &*list.field)).collect()
                }
                Action::Set { .. } | Action::Delete | Action::Restore => Vec::new(),
            };
            names.into_iter().try_for_each(|name| self.check_field(&intent.at.collection, &[name]))?;
        }
        Ok(())
    }
}

fn unknown_field(collection: &str, unknown: &UnknownField) -> Trouble {
    let message = format!(
        "{unknown} (collection {collection:?}; only what its schema names can be read, searched or written, and \
         `lockwood schema show {collection}` prints that)"
    );
    Trouble::new(Code::UnknownField, message)
}
