//! The Schema Registry: JSON Schemas by subject, with versions, ids and compatibility, and what they mean for
//! the collections they are named after. Knows nothing of protocols.
//!
//! A registry is a collection of ordinary documents in the namespace it is for, under a name nobody else may
//! write to. So it has a history, is dumped and loaded with the rest, and is durable in the same way. What is
//! in memory is made from those documents.

mod active;
mod book;
mod change;
mod names;

pub(crate) use active::Active;
pub(crate) use book::{Book, Mode, Subject, Version, policy_name, read_policy};
pub(crate) use change::{For, Registered, Removed, SchemaError, SubjectSettings, delete, register, set};

use crate::shared::Shared;
use lockwood_storage::StoreError;
use parking_lot::RwLock;
use std::{collections::HashMap, sync::Arc};

/// The collection a registry is kept in.
pub(crate) const COLLECTION: &str = "_schemas";

/// The registries of all namespaces, as far as they were asked for.
#[derive(Default)]
pub(crate) struct Schemas {
    known: RwLock<HashMap<Box<str>, Known>>,
    /// Held by whoever changes a registry.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Known {
    book: Arc<Book>,
    active: Arc<Active>,
}

impl Schemas {
    /// The registry of a namespace.
    pub(crate) fn book(&self, shared: &Shared, namespace: &str) -> Result<Arc<Book>, StoreError> {
        Ok(self.known(shared, namespace)?.book)
    }

    /// What the registry of a namespace means for its collections.
    pub(crate) fn active(&self, shared: &Shared, namespace: &str) -> Result<Arc<Active>, StoreError> {
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(Arc::clone(&known.active));
        }
        Ok(self.known(shared, namespace)?.active)
    }

    /// What is known of a namespace's registry may be out of date.
    pub(crate) fn forget(&self, namespace: &str) {
        self.known.write().remove(namespace);
    }

    fn known(&self, shared: &Shared, namespace: &str) -> Result<Known, StoreError> {
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(known.clone());
        }
        // Read while nobody can say that it has changed, so that what is kept is what is there.
        let mut all = self.known.write();
        let book = Arc::new(Book::read(&shared.shard.read(), namespace)?);
        let known = Known { active: Arc::new(Active::of(&book)), book };
        all.insert(namespace.into(), known.clone());
        Ok(known)
    }
}
