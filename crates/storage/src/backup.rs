//! Everything in a store as one stream of bytes, of one moment, and a store made of it again. Knows nothing of files,
//! and of the keys only those that must not be copied as they are.
//!
//! ```text
//! backup = magic block { block }
//! magic  = "lockwood backup\n"
//! block  = length of the body (4), CRC-32 of the block's number (8) and its body (4), body
//! body   = postcard: the head, then pieces with pairs of all spaces, then the end
//! ```
//!
//! A block's number is in its checksum, so blocks that are missing, twice or in another order are noticed; the end has
//! the number of blocks and a digest of everything before it, so a backup that is cut off is noticed too.

use crate::{
    entry::Entry,
    log::last_index,
    state::{Fold, State},
    store::{Batch, Durability, Order, Snapshot, Space, Store, StoreError},
};
use lockwood_model::Timestamp;
use serde::{Deserialize, Serialize};
use std::{io, ops::Bound};
use xxhash_rust::xxh3::Xxh3Default;

const MAGIC: &[u8; 16] = b"lockwood backup\n";
const FORMAT: u32 = 1;
/// So many pairs at each end of a space tell about how long its pairs are.
const SAMPLE_LEN: usize = 100;
/// What a pair takes beside its key and its value: at most, when pieces are filled, and usually.
const PAIR_BYTES_MAX: usize = 16;
const PAIR_BYTES: usize = 3;
/// A piece ends when it has so many bytes.
const PIECE_BYTES: usize = 256 * 1024;
/// No block is longer: one value is at most as large as a record of the log.
const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Lock numbers and tokens of a restored store begin so far above those of the backup: more than were given out
/// between the backup and the loss of what it is of, so none is given out twice.
const NUMBERS_GAP: u64 = 1_000_000_000;
/// What each store has of its own among the numbers: how it is laid out, and the key session secrets are made with, which
/// nobody gets who may read a backup.
const OWN: [&[u8]; 3] = [b"format", b"spaces", b"secret_key"];
/// With that key no session comes back to a restored store, so it has to wait for none.
const OWN_PREFIX: &[u8] = b"grace";

#[derive(Debug, Serialize, Deserialize)]
enum Body<'a> {
    Head(Head),
    /// Space, key, value.
    Piece(#[serde(borrow)] Vec<(u8, &'a [u8], &'a [u8])>),
    End {
        blocks: u64,
        digest: u128,
    },
}

/// What a backup is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    format: u32,
    /// When it was taken.
    pub taken_at: u64,
    /// The last record of the log that is in it.
    pub last: u64,
}

/// Why a backup cannot be restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It does not begin as backups do.
    #[error("this is no backup of a server")]
    NotABackup,
    /// It was made by another version.
    #[error(
        "the backup has format {found}, this version reads format {FORMAT}; use the version that made it"
    )]
    Format {
        /// The format found.
        found: u32,
    },
    /// It ends too early.
    #[error("the backup is cut off at byte {at}, in block {block}; take another one")]
    CutOff {
        /// Where it ends.
        at: u64,
        /// In which block.
        block: u64,
    },
    /// Something in it is not what was written.
    #[error("the backup is damaged in block {block}, which begins at byte {at}; take another one")]
    Damaged {
        /// Where the block begins.
        at: u64,
        /// Which block.
        block: u64,
    },
    /// It cannot be read.
    #[error("cannot read the backup: {0}")]
    Read(io::Error),
    /// The store that it is restored into.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A backup that is being written.
pub struct BackupWriter {
    snapshot: Box<dyn Snapshot>,
    next: Next,
    blocks: u64,
    digest: Xxh3Default,
}

enum Next {
    Head(Timestamp),
    /// Which space, after which of its keys.
    Pieces(usize, Option<Vec<u8>>),
    Done,
}

impl BackupWriter {
    /// A backup of what a snapshot shows.
    pub fn new(snapshot: Box<dyn Snapshot>, now: Timestamp) -> BackupWriter {
        BackupWriter { snapshot, next: Next::Head(now), blocks: 0, digest: Xxh3Default::new() }
    }

    /// About how many bytes it will have, for who waits for it; none if the store cannot say without counting.
    pub fn about_bytes(&self) -> Result<Option<u64>, StoreError> {
        let mut bytes = MAGIC.len() as u64;
        for space in Space::ALL.iter().filter(|space| **space != Space::Cache) {
            let Some(len) = self.snapshot.about_len(*space) else { return Ok(None) };
            let mut sampled = 0;
            let mut sampled_bytes = 0;
            for order in [Order::Forward, Order::Backward] {
                let pairs = self.snapshot.scan(*space, (Bound::Unbounded, Bound::Unbounded), order);
                for pair in pairs.take(SAMPLE_LEN) {
                    let (key, value) = pair?;
                    sampled += 1;
                    sampled_bytes += (key.len() + value.len() + PAIR_BYTES) as u64;
                }
            }
            // A space with few keys was seen whole, once from each end.
            bytes += match sampled {
                0 => 0,
                few if few < 2 * SAMPLE_LEN as u64 => sampled_bytes / 2,
                many => len.saturating_mul(sampled_bytes) / many,
            };
        }
        Ok(Some(bytes))
    }

    /// The next bytes; none after the last.
    pub fn write(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match &self.next {
            Next::Head(now) => {
                let last = last_index(&*self.snapshot)?;
                let head = Body::Head(Head { format: FORMAT, taken_at: now.0, last });
                let block = block(self.blocks, &head);
                self.next = Next::Pieces(0, None);
                Ok(Some(self.count([&MAGIC[..], &block].concat())))
            }
            Next::Pieces(space, after) => {
                let (space, after) = (*space, after.clone());
                self.piece(space, after).map(Some)
            }
            Next::Done => Ok(None),
        }
    }

    /// A piece of the spaces from one of them on, or the end.
    fn piece(&mut self, mut space: usize, mut after: Option<Vec<u8>>) -> Result<Vec<u8>, StoreError> {
        let mut pairs = Vec::new();
        let mut bytes = 0;
        while let Some(found) = Space::ALL.get(space) {
            let start = after.take().map_or(Bound::Unbounded, Bound::Excluded);
            let mut full = false;
            for pair in self.snapshot.scan(*found, (start, Bound::Unbounded), Order::Forward) {
                let (key, value) = pair?;
                if is_own(*found, &key) {
                    continue;
                }
                bytes += key.len() + value.len() + PAIR_BYTES_MAX;
                pairs.push((space as u8, key, value));
                if bytes >= PIECE_BYTES {
                    full = true;
                    break;
                }
            }
            if full {
                after = pairs.last().map(|(_, key, _)| key.to_vec());
                break;
            }
            space += 1;
        }
        if pairs.is_empty() {
            self.next = Next::Done;
            let end = Body::End { blocks: self.blocks, digest: self.digest.digest128() };
            return Ok(block(self.blocks, &end));
        }
        self.next = Next::Pieces(space, after);
        let pairs = pairs.iter().map(|(space, key, value)| (*space, &key[..], &value[..])).collect();
        let block = block(self.blocks, &Body::Piece(pairs));
        Ok(self.count(block))
    }

    fn count(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        self.digest.update(&bytes);
        self.blocks += 1;
        bytes
    }
}

fn is_own(space: Space, key: &[u8]) -> bool {
    space == Space::Cache || space == Space::Numbers && (OWN.contains(&key) || key.starts_with(OWN_PREFIX))
}

fn block(number: u64, body: &Body<'_>) -> Vec<u8> {
    let mut bytes = postcard::to_extend(body, vec![0; 8]).expect("blocks can be encoded");
    let len = u32::try_from(bytes.len() - 8).expect("records are shorter than that");
    bytes[..4].copy_from_slice(&len.to_be_bytes());
    let sum = checksum(number, &bytes[8..]);
    bytes[4..8].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn checksum(number: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_be_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Goes through a backup from its begin to its end; whatever is wrong with it is an error. `progress` is told how many
/// bytes were read.
pub fn check_backup(source: &mut dyn io::Read, progress: &mut dyn FnMut(u64)) -> Result<Head, BackupError> {
    each_piece(source, progress, &mut |_| Ok(()))
}

/// Puts everything in a backup into `store`, which is empty, and makes it fit to be served at `now`: lock numbers and
/// tokens begin above all that were given out, and leases have the time left that they had when the backup was taken.
pub fn restore_backup(
    source: &mut dyn io::Read,
    store: &dyn Store,
    now: Timestamp,
    progress: &mut dyn FnMut(u64),
) -> Result<Head, BackupError> {
    let head = each_piece(source, progress, &mut |pairs| {
        let mut batch = Batch::default();
        for (space, key, value) in pairs {
            if !is_own(*space, key) {
                batch.put(*space, *key, *value);
            }
        }
        Ok(store.commit(&batch, Durability::Buffered)?)
    })?;
    let mut batch = raised_ceiling(&*store.snapshot())?;
    batch.absorb(shifted_leases(&*store.snapshot(), Timestamp(head.taken_at), now)?);
    store.commit(&batch, Durability::Synced)?;
    store.tend()?;
    Ok(head)
}

fn raised_ceiling(snapshot: &dyn Snapshot) -> Result<Batch, StoreError> {
    let mut batch = Batch::default();
    if let Some(ceiling) = snapshot.get(Space::Numbers, b"ceiling")? {
        let ceiling = ceiling[..].try_into().map(u64::from_be_bytes);
        let ceiling = ceiling.map_err(|_| StoreError::damaged("the ceiling of lock numbers"))?;
        batch.put(Space::Numbers, "ceiling", ceiling.saturating_add(NUMBERS_GAP).to_be_bytes());
    }
    Ok(batch)
}

/// Records by which every lease ends as long after `now` as it would have ended after `taken_at`.
fn shifted_leases(snapshot: &dyn Snapshot, taken_at: Timestamp, now: Timestamp) -> Result<Batch, StoreError> {
    let shift = now.0.saturating_sub(taken_at.0);
    let mut changes = Batch::default();
    let mut index = last_index(snapshot)?;
    for (namespace, lease) in State::new(snapshot).leases()? {
        let Some(expires_at) = lease.expires_at.filter(|_| shift > 0) else { continue };
        index += 1;
        let expires_at = Some(Timestamp(expires_at.0.saturating_add(shift)));
        let entry = Entry::LeaseRenewed { namespace, lock: lease.lock, expires_at, ttl_ms: None };
        let view = crate::overlay::Overlay { below: snapshot, above: &changes };
        let mut fold = Fold::new(&view, index);
        fold.apply(&entry)?;
        let more = fold.finish(&entry)?;
        changes.absorb(more);
    }
    Ok(changes)
}

type Pairs<'a> = [(Space, &'a [u8], &'a [u8])];

fn each_piece(
    source: &mut dyn io::Read,
    progress: &mut dyn FnMut(u64),
    take: &mut dyn FnMut(&Pairs<'_>) -> Result<(), BackupError>,
) -> Result<Head, BackupError> {
    let mut reader = Reader { source, at: 0, block: 0, digest: Xxh3Default::new() };
    let mut magic = [0; MAGIC.len()];
    match reader.fill(&mut magic) {
        Ok(()) if magic == *MAGIC => {}
        Ok(()) | Err(BackupError::CutOff { .. }) => return Err(BackupError::NotABackup),
        Err(error) => return Err(error),
    }
    let mut head = None;
    loop {
        let damaged = BackupError::Damaged { at: reader.at, block: reader.block };
        let (digest, blocks) = (reader.digest.digest128(), reader.block);
        let body = reader.body()?;
        let Ok(read) = postcard::from_bytes::<Body<'_>>(&body) else { return Err(damaged) };
        match read {
            Body::Head(Head { format, .. }) if format != FORMAT => {
                return Err(BackupError::Format { found: format });
            }
            Body::Head(found) if head.is_none() => head = Some(found),
            Body::Piece(pairs) if head.is_some() => {
                let pair = |(space, key, value)| Some((*Space::ALL.get(usize::from(space))?, key, value));
                let pairs: Option<Vec<_>> = pairs.into_iter().map(pair).collect();
                take(&pairs.ok_or(damaged)?)?;
            }
            Body::End { blocks: told, digest: wanted } if told == blocks && wanted == digest => {
                reader.end()?;
                progress(reader.at);
                return head.ok_or(damaged);
            }
            Body::Head(_) | Body::Piece(_) | Body::End { .. } => return Err(damaged),
        }
        progress(reader.at);
    }
}

struct Reader<'a> {
    source: &'a mut dyn io::Read,
    /// How many bytes were read.
    at: u64,
    /// The number of the block that is read.
    block: u64,
    digest: Xxh3Default,
}

impl Reader<'_> {
    fn body(&mut self) -> Result<Vec<u8>, BackupError> {
        let damaged = BackupError::Damaged { at: self.at, block: self.block };
        let (mut len, mut sum) = ([0; 4], [0; 4]);
        self.fill(&mut len)?;
        self.fill(&mut sum)?;
        let len = u32::from_be_bytes(len) as usize;
        if len > BLOCK_BYTES_MAX {
            return Err(damaged);
        }
        // Not more memory than there are bytes, whatever the length says.
        let mut body = Vec::new();
        while body.len() < len {
            let start = body.len();
            body.resize(len.min(start + PIECE_BYTES), 0);
            self.fill(&mut body[start..])?;
        }
        if checksum(self.block, &body) != u32::from_be_bytes(sum) {
            return Err(damaged);
        }
        self.block += 1;
        Ok(body)
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), BackupError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.source.read(&mut bytes[filled..]) {
                Ok(0) => return Err(BackupError::CutOff { at: self.at, block: self.block }),
                Ok(len) => (filled, self.at) = (filled + len, self.at + len as u64),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BackupError::Read(error)),
            }
        }
        self.digest.update(bytes);
        Ok(())
    }

    /// Nothing comes after the end.
    fn end(&mut self) -> Result<(), BackupError> {
        match self.fill(&mut [0]) {
            Err(BackupError::CutOff { .. }) => Ok(()),
            Ok(()) => Err(BackupError::Damaged { at: self.at - 1, block: self.block }),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GraceBook, Ledger, Memory, state::verify};
    use lockwood_model::{
        Change, Commit, Depth, DocumentKey, Event, FieldPath, Json, Key, Lease, LeaseVia, LockId, Mode, Path,
        Position, Resource, Token,
    };
    use std::sync::Arc;

    const TAKEN_AT: Timestamp = Timestamp(1000);
    const SECRET: [u8; 32] = *b"the key of the lost server, 32 b";

    fn lease(expires_at: Option<u64>) -> Lease {
        Lease {
            lock: LockId(7),
            token: Token(8),
            owner: "p".into(),
            via: LeaseVia::Native,
            resources: vec![Resource::new(Path::from_segments(["c"]), Mode::Write, Depth::SUBTREE)],
            granted_at: Timestamp(500),
            expires_at: expires_at.map(Timestamp),
            ttl_ms: None,
            note: None,
            version: 1,
        }
    }

    /// Some of everything, in several pieces.
    fn filled() -> Memory {
        let store = Memory::default();
        let namespace: Box<str> = "n".into();
        let mut entries = vec![
            Entry::Indexed {
                namespace: namespace.clone(),
                collection: "c".into(),
                field: FieldPath::name("f"),
                wanted: true,
            },
            Entry::Leased { namespace: namespace.clone(), lease: lease(Some(1300)) },
        ];
        for position in 1..=20 {
            let fields = vec![("f".into(), Json::trusted(&format!("\"{}\"", "x".repeat(40_000))))];
            let at = DocumentKey::new("c", Key::number(position));
            let events = vec![Event { at, change: Change::Created { fields } }];
            let position = Position(position as u64);
            let at = Timestamp(900);
            let commit = Commit { position, at, user: None, note: None, events, purged: None };
            entries.push(Entry::Committed {
                namespace: namespace.clone(),
                commits: vec![commit],
                answer: None,
            });
        }
        for (index, entry) in (1..).zip(&entries) {
            let below = store.snapshot();
            let mut fold = Fold::new(&*below, index);
            fold.apply(entry).unwrap();
            let batch = fold.finish(entry).unwrap();
            store.commit(&batch, Durability::Synced).unwrap();
        }
        let mut numbers = Batch::default();
        numbers.put(Space::Numbers, "ceiling", 5000u64.to_be_bytes());
        numbers.put(Space::Numbers, "format", 2u64.to_be_bytes());
        numbers.put(Space::Numbers, "secret_key", SECRET);
        numbers.put(Space::Numbers, "grace/n", [1; 16]);
        store.commit(&numbers, Durability::Synced).unwrap();
        store
    }

    fn written(store: &Memory) -> Vec<u8> {
        let mut writer = BackupWriter::new(store.snapshot(), TAKEN_AT);
        let mut bytes = Vec::new();
        while let Some(piece) = writer.write().unwrap() {
            bytes.extend_from_slice(&piece);
        }
        bytes
    }

    fn restored(backup: &[u8], now: u64) -> Result<Memory, BackupError> {
        let store = Memory::default();
        restore_backup(&mut &*backup, &store, Timestamp(now), &mut |_| ())?;
        Ok(store)
    }

    fn pairs(store: &Memory, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
        let snapshot = store.snapshot();
        let all = snapshot.scan(space, (Bound::Unbounded, Bound::Unbounded), Order::Forward);
        all.map(|pair| pair.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn about_how_long_a_backup_is_can_be_told_beforehand() {
        for store in [Memory::default(), filled()] {
            let mut writer = BackupWriter::new(store.snapshot(), TAKEN_AT);
            let about = writer.about_bytes().unwrap().unwrap();
            let mut bytes = 0;
            while let Some(piece) = writer.write().unwrap() {
                bytes += piece.len() as u64;
            }
            assert!(about <= 2 * bytes && bytes <= 2 * about + 200, "{about} {bytes}");
        }
    }

    #[test]
    fn what_is_restored_is_what_was_saved() {
        let store = filled();
        let backup = written(&store);
        assert!(backup.len() > 3 * PIECE_BYTES, "several pieces");
        let copy = restored(&backup, TAKEN_AT.0).unwrap();
        for space in Space::ALL.iter().filter(|space| **space != Space::Numbers) {
            assert_eq!(pairs(&copy, *space), pairs(&store, *space), "{space:?}");
        }
        assert_eq!(verify(&*copy.snapshot(), &Memory::default(), &mut |_, _| ()).unwrap(), []);
        let ceiling = copy.snapshot().get(Space::Numbers, b"ceiling").unwrap().unwrap();
        assert_eq!(ceiling[..], (5000 + NUMBERS_GAP).to_be_bytes(), "no number comes twice");
        assert_eq!(pairs(&copy, Space::Numbers).len(), 1, "the new store has its own format and key");
    }

    #[test]
    fn the_key_of_session_secrets_is_not_in_a_backup_and_the_ceiling_does_not_depend_on_it() {
        let backup = written(&filled());
        assert!(!backup.windows(SECRET.len()).any(|bytes| bytes == SECRET));
        let copy = restored(&backup, TAKEN_AT.0).unwrap();
        let (_, recovered) = Ledger::open(Arc::new(copy), [3; 32]).unwrap();
        assert_eq!((recovered.ceiling, recovered.secret_key), (5000 + NUMBERS_GAP, [3; 32]));
        assert_eq!(
            recovered.grace,
            GraceBook::default(),
            "sessions that cannot come back are not waited for"
        );
    }

    #[test]
    fn leases_have_the_time_left_that_they_had() {
        let copy = restored(&written(&filled()), 90_000).unwrap();
        let snapshot = copy.snapshot();
        let [(_, found)] = &State::new(&*snapshot).leases().unwrap()[..] else { panic!("one lease") };
        assert_eq!(*found, lease(Some(90_300)));
        assert_eq!(verify(&*snapshot, &Memory::default(), &mut |_, _| ()).unwrap(), []);
    }

    #[test]
    fn an_empty_store_has_a_backup_too() {
        let backup = written(&Memory::default());
        let copy = restored(&backup, 5).unwrap();
        assert!(Space::ALL.iter().all(|space| pairs(&copy, *space).is_empty()));
    }

    #[track_caller]
    fn refused(backup: &[u8]) -> BackupError {
        let error = check_backup(&mut &*backup, &mut |_| ()).unwrap_err();
        assert_eq!(restored(backup, 5).map(drop).unwrap_err().to_string(), error.to_string());
        error
    }

    #[test]
    fn a_backup_that_is_cut_off_is_refused_wherever_that_is() {
        let backup = written(&filled());
        for len in (0..backup.len()).step_by(20_011).chain([15, 16, 17, 40, backup.len() - 1]) {
            let error = refused(&backup[..len]);
            match len {
                0..16 => assert!(matches!(error, BackupError::NotABackup), "{len}: {error}"),
                _ => assert!(matches!(error, BackupError::CutOff { at, .. } if at == len as u64), "{error}"),
            }
        }
        let longer = [&backup[..], b"x"].concat();
        assert!(matches!(refused(&longer), BackupError::Damaged { at, .. } if at == backup.len() as u64));
    }

    #[test]
    fn a_backup_with_any_byte_changed_is_refused_with_the_place() {
        let backup = written(&filled());
        for at in (0..backup.len()).step_by(20_021).chain([0, 16, 17, 20, 24, backup.len() - 1]) {
            let mut damaged = backup.clone();
            damaged[at] ^= 0x10;
            match refused(&damaged) {
                BackupError::NotABackup => assert!(at < 16),
                BackupError::Damaged { at: place, .. } => assert!(place <= at as u64, "{place} {at}"),
                BackupError::CutOff { .. } => {}
                error => panic!("{at}: {error}"),
            }
        }
    }

    #[test]
    fn blocks_that_are_missing_or_in_another_order_are_refused() {
        let mut writer = BackupWriter::new(filled().snapshot(), TAKEN_AT);
        let mut blocks = Vec::new();
        while let Some(block) = writer.write().unwrap() {
            blocks.push(block);
        }
        let last = blocks.len() - 1;
        assert!(last >= 4);
        let damaged = |blocks: &[Vec<u8>]| {
            assert!(matches!(refused(&blocks.concat()), BackupError::Damaged { .. }));
        };
        damaged(&[&blocks[..1], &blocks[2..]].concat());
        damaged(&[&blocks[..last - 1], &blocks[last..]].concat());
        damaged(&[&blocks[..2], &blocks[1..]].concat());
        blocks.swap(1, 2);
        damaged(&blocks);
    }
}
