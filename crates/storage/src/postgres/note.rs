//! What a cache notes of itself, in the same batch as what it folds: where in the log it is. Knows nothing of how that is
//! compared.

use crate::store::{Batch, Snapshot, Space, StoreError};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

const KEY: &str = "note";

/// Where a cache stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    /// The last record that PostgreSQL has acknowledged, as far as this cache knows.
    pub(super) last: u64,
    /// Epoch and digest of that record.
    pub(super) epoch: u64,
    pub(super) digest: u64,
    /// How often records had been written anew by then.
    pub(super) rewrites: u64,
    /// The snapshot of which a copy is here.
    pub(super) snapshot: Option<u64>,
}

impl Note {
    /// Nothing if there is none that can be read.
    pub(super) fn read(snapshot: &dyn Snapshot) -> Result<Option<Note>, StoreError> {
        let found = snapshot.get(Space::Cache, KEY.as_bytes())?;
        Ok(found.and_then(|bytes| postcard::from_bytes(&bytes).ok()))
    }

    pub(super) fn put(&self, batch: &mut Batch) {
        batch.put(Space::Cache, KEY, postcard::to_stdvec(self).expect("notes can be encoded"));
    }

    /// The record is the last one now.
    pub(super) fn advance(&mut self, index: u64, epoch: u64, record: &[u8]) {
        (self.last, self.epoch, self.digest) = (index, epoch, digest(record));
    }
}

/// The digest of a record.
pub(super) fn digest(record: &[u8]) -> u64 {
    xxh3_64(record)
}
