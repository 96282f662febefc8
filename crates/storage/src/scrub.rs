//! Getting what was removed out of the files too: the engine keeps it in its journals until they are full, and in its
//! tables until those are merged. Knows nothing of what was removed.
//!
//! | where | how it goes |
//! | --- | --- |
//! | views of the past | waited for: for as long as one is open, the engine keeps what it shows |
//! | the journal | filled up, so that the engine begins another; dropped once every space is flushed |
//! | the tables | all written anew, without what is removed |
//!
//! Nothing is compressed, so what is left could be found by looking for its bytes.

use super::Embedded;
use crate::{
    journal::{self, SEAL},
    seal::Seal,
    store::{Batch, Durability, Scrubbing, Space, StoreError},
};
use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

/// The engine begins another journal when one has more bytes than this, but only looks when it flushes something.
const JOURNAL_LEN: usize = 64_000_000;
/// Journals are filled up in pieces of this size, under this key beside the seal.
const PADDING_BYTES: usize = 1 << 20;
const PADDING: &str = "padding";
/// So many pieces are in memory at a time.
const PADDINGS_LEN: usize = 16;
/// A key whose value does not matter.
const MARK: &str = "scrubbed";
/// How long to wait before looking again whether something is over, at first and at most: every look is a small table.
const PATIENCE: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// Asks whether to go on, and tells what is done. Whoever is asked lets go of views that are not needed any more.
type GoOn<'a> = &'a dyn Fn(Scrubbing) -> bool;

impl Embedded {
    /// False if it was told to stop; then it has to be done again.
    pub(super) fn scrub_files(&self, go_on: GoOn<'_>) -> Result<bool, StoreError> {
        let done =
            self.wait_for_views(go_on)? && self.replace_journal(go_on)? && self.replace_tables(go_on)?;
        self.acknowledged.note_journals()?;
        Ok(done)
    }

    /// Waits until nobody looks at what was there before.
    fn wait_for_views(&self, go_on: GoOn<'_>) -> Result<bool, StoreError> {
        let present = self.database.snapshot().seqno();
        let mut patience = PATIENCE;
        while go_on(Scrubbing::Views) {
            self.collect()?;
            if self.database.supervisor.snapshot_tracker.get_seqno_safe_to_gc() + 1 >= present {
                return Ok(true);
            }
            pause(&mut patience);
        }
        Ok(false)
    }

    /// Has the engine look what it still needs, as it does whenever it flushes something.
    fn collect(&self) -> Result<(), StoreError> {
        let mut batch = Batch::default();
        batch.put(Space::Numbers, MARK, []);
        self.write_or_poison(&batch)?;
        Ok(self.seals.rotate_memtable_and_wait()?)
    }

    fn write_or_poison(&self, batch: &Batch) -> Result<(), StoreError> {
        self.write(batch, Durability::Buffered).inspect_err(|error| self.set_poison(error))
    }

    /// Waits until all journals that there are now are gone.
    fn replace_journal(&self, go_on: GoOn<'_>) -> Result<bool, StoreError> {
        let newest = |journals: Vec<(u64, PathBuf)>| journals.last().map_or(0, |(id, _)| *id);
        let written = newest(journal::list(self.directory())?);
        for _ in 0..=JOURNAL_LEN / (PADDING_BYTES * PADDINGS_LEN) {
            if !go_on(Scrubbing::Journal) {
                return Ok(false);
            }
            if newest(journal::list(self.directory())?) > written {
                break;
            }
            (0..PADDINGS_LEN).try_for_each(|_| self.pad(Some(PADDING_BYTES)))?;
            self.seals.rotate_memtable_and_wait()?;
        }
        self.pad(None)?;
        self.flush()?;
        let mut patience = PATIENCE;
        while go_on(Scrubbing::Journal) {
            if journal::list(self.directory())?.first().is_some_and(|(id, _)| *id > written) {
                return Ok(true);
            }
            self.collect()?;
            pause(&mut patience);
        }
        Ok(false)
    }

    /// A commit that says nothing, of so many bytes; the last one takes the bytes away again.
    fn pad(&self, len: Option<usize>) -> Result<(), StoreError> {
        let mut seal = self.seal.lock();
        let next = Seal { commits: seal.commits + 1, ..*seal };
        let mut writes = self.database.batch().durability(None);
        match len {
            Some(len) => writes.insert(&self.seals, PADDING, vec![0; len]),
            None => writes.remove(&self.seals, PADDING),
        }
        writes.insert(&self.seals, SEAL, next.to_bytes());
        let written = writes.commit().map_err(StoreError::from);
        written.inspect_err(|error| self.set_poison(error))?;
        *seal = next;
        Ok(())
    }

    /// Waits until all tables that there are now are gone.
    fn replace_tables(&self, go_on: GoOn<'_>) -> Result<bool, StoreError> {
        for space in self.spaces.iter().chain([&self.seals]) {
            if !go_on(Scrubbing::Tables) {
                return Ok(false);
            }
            let before = tables(space.path())?;
            space.major_compact()?;
            let mut patience = PATIENCE;
            while !tables(space.path())?.is_disjoint(&before) {
                if !go_on(Scrubbing::Tables) {
                    return Ok(false);
                }
                // Those who read may have some of them open.
                self.collect()?;
                pause(&mut patience);
            }
        }
        Ok(true)
    }

    fn directory(&self) -> &Path {
        self.acknowledged.directory()
    }
}

fn pause(patience: &mut Duration) {
    std::thread::sleep(*patience);
    *patience = (*patience * 2).min(PATIENCE_MAX);
}

/// The files of the tables of a space.
fn tables(space: &Path) -> Result<BTreeSet<PathBuf>, StoreError> {
    let list = || -> io::Result<BTreeSet<PathBuf>> {
        fs::read_dir(space.join("tables"))?.map(|entry| Ok(entry?.path())).collect()
    };
    list().map_err(|error| StoreError::Failed(format!("list the tables in {}: {error}", space.display())))
}
