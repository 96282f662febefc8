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

pub use active::Active;
pub use book::{Book, Mode, Settings, Subject, Version, policy_name, read_policy};
pub(crate) use change::unbind;
pub use change::{
    For, Registered, Removed, SchemaError, SubjectSettings, aside, check_sizes, delete, read_schema,
    register, set,
};
pub use held::Held;
pub(crate) use held::Rechecks;
pub(crate) use names::{NameError, check_named, names_fields};
pub use names::{Named, check_fields, check_locked, check_node};

use crate::kernel::Kernel;
use lockwood_schema::Schema;
use lockwood_storage::StoreError;
use parking_lot::{Mutex, RwLock};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// The collection a registry is kept in.
pub const COLLECTION: &str = "_schemas";

/// The registries of all namespaces, as far as they were asked for.
#[derive(Default)]
pub struct Schemas {
    /// Only namespaces that there are, so that asking for others takes no room. Deciding a write looks here, so it is
    /// only ever locked to look something up or to put something in, never while a registry is read. Changed by the one
    /// that holds `changing`, by a purge that holds the lock on the registry, and by those who find nothing here and look.
    known: RwLock<HashMap<Box<str>, Known>>,
    /// Held while a registry is read and put into `known`, so that none is read twice at the same time, and nothing
    /// older takes the place of something newer. Not held by [`Schemas::install`]: what that puts in meanwhile is newer
    /// than what was read.
    reading: Mutex<()>,
    /// Held by whoever changes what is in a registry.
    pub changing: tokio::sync::Mutex<()>,
    /// How often a registry has changed, so that sessions need not look again before that.
    changes: AtomicU64,
}

#[derive(Clone)]
struct Known {
    book: Arc<Book>,
    active: Arc<Active>,
}

impl Known {
    /// None if there is no such namespace.
    fn read(kernel: &Kernel, namespace: &str) -> Result<Option<Known>, StoreError> {
        let reading = kernel.shard.read();
        let Some((id, _)) = reading.namespace(namespace)? else { return Ok(None) };
        Ok(Some(Known::new(Book::read(reading.state(), id)?)))
    }

    fn new(book: Book) -> Known {
        Known { active: Arc::new(Active::of(&book)), book: Arc::new(book) }
    }
}

/// Whether nothing was put in between.
fn is_same(before: Option<&Known>, now: Option<&Known>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => Arc::ptr_eq(&before.book, &now.book),
        (before, now) => before.is_none() && now.is_none(),
    }
}

impl Schemas {
    /// The registry of a namespace.
    pub fn book(&self, kernel: &Kernel, namespace: &str) -> Result<Arc<Book>, StoreError> {
        Ok(self.known(kernel, namespace)?.book)
    }

    /// What the registry of a namespace means for its collections.
    pub fn active(&self, kernel: &Kernel, namespace: &str) -> Result<Arc<Active>, StoreError> {
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(Arc::clone(&known.active));
        }
        Ok(self.known(kernel, namespace)?.active)
    }

    /// What documents of a namespace are held to while they are decided on; [`Schemas::active`] must have been
    /// asked before, so that what is not known here is not there.
    pub fn held<'a>(&'a self, namespace: &'a str) -> Held<'a> {
        Held::new(self, namespace)
    }

    /// What is in the registry of a namespace has changed in another way than by [`register`] and the like.
    pub fn reread(&self, kernel: &Kernel, namespace: &str) {
        if let Err(error) = aside(|| self.replace(namespace, || Known::read(kernel, namespace))) {
            tracing::error!(%error, namespace, "read the schemas of a namespace");
        }
    }

    /// Puts what is read in the place of what is known, which holds until then.
    fn replace(
        &self,
        namespace: &str,
        read: impl Fn() -> Result<Option<Known>, StoreError>,
    ) -> Result<(), StoreError> {
        let _turn = self.reading.lock();
        loop {
            let before = self.known.read().get(namespace).cloned();
            let read = read();
            let mut all = self.known.write();
            if !is_same(before.as_ref(), all.get(namespace)) {
                continue;
            }
            self.changes.fetch_add(1, Ordering::Release);
            all.remove(namespace);
            if let Some(known) = read? {
                all.insert(namespace.into(), known);
            }
            return Ok(());
        }
    }

    /// The schema that a collection is held to now.
    fn schema(&self, namespace: &str, collection: &str) -> Option<Schema> {
        self.known.read().get(namespace)?.active.schema(collection).cloned()
    }

    /// Puts what a change made of `before` into memory. False if what is there is another one by now: a namespace that is
    /// purged or emptied does not wait for a change that waits for it.
    fn install(&self, namespace: &str, before: &Arc<Book>, after: &Known) -> bool {
        let mut all = self.known.write();
        // What is not there has nothing in it. A decision may be tried again.
        let is_current = match all.get(namespace) {
            None => **before == Book::default(),
            Some(Known { book, .. }) => Arc::ptr_eq(book, &after.book) || book == before,
        };
        if is_current {
            self.changes.fetch_add(1, Ordering::Release);
            all.insert(namespace.into(), after.clone());
        }
        is_current
    }

    /// How often a registry has changed. Whoever finds no schema after asking this need not look again while it is the
    /// same.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn known(&self, kernel: &Kernel, namespace: &str) -> Result<Known, StoreError> {
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(known.clone());
        }
        aside(|| self.look(namespace, || Known::read(kernel, namespace)))
    }

    /// Reads what is not known. If it is put in meanwhile, that is newer.
    fn look(
        &self,
        namespace: &str,
        read: impl FnOnce() -> Result<Option<Known>, StoreError>,
    ) -> Result<Known, StoreError> {
        let _turn = self.reading.lock();
        if let Some(known) = self.known.read().get(namespace) {
            return Ok(known.clone());
        }
        let Some(known) = read()? else { return Ok(Known::new(Book::default())) };
        Ok(self.known.write().entry(namespace.into()).or_insert(known).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(schemas: &Schemas, namespace: &str, book: Book) {
        let before = schemas.known.read().get(namespace).map(|known| Arc::clone(&known.book));
        assert!(schemas.install(namespace, &before.unwrap_or_default(), &Known::new(book)));
    }
    use std::cell::Cell;

    fn known(collection: &str) -> Known {
        Known::new(Book::of_one(collection, r#"{"type":"object"}"#))
    }

    #[test]
    fn deciding_does_not_wait_for_a_registry_that_is_read() {
        let schemas = Schemas::default();
        put(&schemas, "known", Book::of_one("c", r#"{"type":"object"}"#));
        let read = || {
            assert!(schemas.known.try_read().is_some(), "nobody is kept from looking");
            assert!(schemas.known.try_write().is_some(), "nor from registering");
            Ok(Some(known("c")))
        };
        schemas.look("new", read).unwrap();
        schemas.replace("known", read).unwrap();
        assert!(schemas.schema("new", "c").is_some() && schemas.schema("known", "c").is_some());
    }

    #[test]
    fn schema_that_is_registered_while_its_registry_is_read_holds() {
        let schemas = Schemas::default();
        let found = schemas.look("n", || {
            put(&schemas, "n", Book::of_one("newer", r#"{"type":"object"}"#));
            Ok(Some(known("older")))
        });
        assert!(found.unwrap().active.schema("newer").is_some());
        assert!(schemas.schema("n", "newer").is_some() && schemas.schema("n", "older").is_none());
        let again = schemas.look("n", || panic!("it is known"));
        assert!(again.unwrap().active.schema("newer").is_some());
        // What is read anew is read once more if something came in between.
        let reads = Cell::new(0);
        let read = || {
            reads.set(reads.get() + 1);
            if reads.get() == 1 {
                put(&schemas, "n", Book::of_one("newest", r#"{"type":"object"}"#));
            }
            Ok(Some(known(if reads.get() == 1 { "older" } else { "newest" })))
        };
        schemas.replace("n", read).unwrap();
        assert!(schemas.schema("n", "newest").is_some() && schemas.schema("n", "older").is_none());
    }

    #[test]
    fn registry_that_is_gone_is_forgotten_and_takes_no_room() {
        let schemas = Schemas::default();
        let before = schemas.changes();
        schemas.look("n", || Ok(Some(known("c")))).unwrap();
        schemas.replace("n", || Ok(None)).unwrap();
        assert!(schemas.known.read().is_empty() && schemas.changes() > before);
        assert!(schemas.look("n", || Ok(None)).unwrap().active.is_empty());
        assert!(schemas.known.read().is_empty());
    }
}
