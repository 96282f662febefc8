//! The Schema Registry: JSON Schemas by subject, with versions, ids and compatibility, and what they mean for
//! the collections they are named after. Knows nothing of protocols.
//!
//! A registry is a collection of ordinary documents in the namespace it is for, under a name nobody else may
//! write to. So it has a history, is dumped and loaded with the rest, and is durable in the same way. What is
//! in memory is made from those documents, and from then on changed along with them.
//!
//! A schema holds from the moment its record is decided on: it is put into memory just before that, and documents
//! are held to what is in memory while they are decided on. So whatever comes after the record in the log fits.

mod active;
mod book;
mod change;
mod held;
mod names;

pub(crate) use active::Active;
pub(crate) use book::{Book, Mode, Settings, Subject, Version, policy_name, read_policy};
pub(crate) use change::{
    For, Registered, Removed, SchemaError, SubjectSettings, aside, check_sizes, delete, read_schema,
    register, set,
};
pub(crate) use held::{Held, Rechecks};
pub(crate) use names::{
    NameError, Named, check_fields, check_locked, check_locked_in_place, check_named, check_node,
    names_fields,
};

use crate::shared::Shared;
use lockwood_schema::Schema;
use lockwood_storage::StoreError;
use parking_lot::RwLock;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The collection a registry is kept in.
pub(crate) const COLLECTION: &str = "_schemas";

/// The registries of all namespaces, as far as they were asked for.
#[derive(Default)]
pub(crate) struct Schemas {
    /// Only namespaces that there are, so that asking for others takes no room. Changed by whoever holds
    /// `changing`, and by whoever finds nothing here and looks.
    known: RwLock<HashMap<Box<str>, Known>>,
    /// Held by whoever changes what is in a registry.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// How often a registry has changed, so that sessions need not look again before that.
    changes: AtomicU64,
}

#[derive(Clone)]
struct Known {
    book: Arc<Book>,
    active: Arc<Active>,
}

impl Known {
    fn new(book: Book) -> Known {
        Known { active: Arc::new(Active::of(&book)), book: Arc::new(book) }
    }
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

    /// What documents of a namespace are held to while they are decided on; [`Schemas::active`] must have been
    /// asked before, so that what is not known here is not there.
    pub(crate) fn held<'a>(&'a self, namespace: &'a str) -> Held<'a> {
        Held::new(self, namespace)
    }

    /// What is in the registry of a namespace has changed in another way than by [`register`] and the like.
    pub(crate) fn reread(&self, shared: &Shared, namespace: &str) {
        let mut all = self.known.write();
        self.changes.fetch_add(1, Ordering::Release);
        all.remove(namespace);
        if let Err(error) = Schemas::read(&mut all, shared, namespace) {
            tracing::error!(%error, namespace, "read the schemas of a namespace");
        }
    }

    /// The schema that a collection is held to now.
    fn schema(&self, namespace: &str, collection: &str) -> Option<Schema> {
        self.known.read().get(namespace)?.active.schema(collection).cloned()
    }

    fn install(&self, namespace: &str, book: Book) {
        let mut all = self.known.write();
        self.changes.fetch_add(1, Ordering::Release);
        all.insert(namespace.into(), Known::new(book));
    }

    /// How often a registry has changed. Whoever finds no schema after asking this need not look again while it is the
    /// same.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn known(&self, shared: &Shared, namespace: &str) -> Result<Known, StoreError> {
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(known.clone());
        }
        // Read while nobody can change what is known, so that nothing older takes the place of something newer.
        let mut all = self.known.write();
        if let Some(known) = all.get(namespace) {
            return Ok(known.clone());
        }
        Schemas::read(&mut all, shared, namespace)
    }

    fn read(
        all: &mut HashMap<Box<str>, Known>,
        shared: &Shared,
        namespace: &str,
    ) -> Result<Known, StoreError> {
        let reading = shared.shard.read();
        let Some((id, _)) = reading.namespace(namespace)? else { return Ok(Known::new(Book::default())) };
        let known = Known::new(Book::read(reading.state(), id)?);
        all.insert(namespace.into(), known.clone());
        Ok(known)
    }
}
