//! What a record of the log says, and its form on disk. Outcomes only: nothing here has to be decided again.
//!
//! A record is the CRC-32 of the rest in four bytes, one byte for the format, and the entry in postcard's
//! encoding.

use crate::{
    lease::StoredLease,
    moved::{Moved, StoredMoved},
    store::StoreError,
};
use lockwood_model::{
    Change, Commit, Document, DocumentKey, Event, Field, FieldPath, FieldValue, Json, Key, KeyPart, Lease,
    LockId, Position, Purged, Timestamp,
};
use serde::{Deserialize, Serialize};

const FORMAT: u8 = 1;

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A call with one or more write requests was done.
    Committed {
        /// Where.
        namespace: Box<str>,
        /// What.
        commits: Vec<Commit>,
        /// How to know the call if it comes again.
        answer: Option<Answer>,
    },
    /// Ids were handed out.
    Reserved {
        /// Where.
        namespace: Box<str>,
        /// For which collection.
        collection: Box<str>,
        /// The first id that is still free.
        next: u64,
    },
    /// A secondary index was declared, or is no longer wanted.
    Indexed {
        /// Where.
        namespace: Box<str>,
        /// Of which collection.
        collection: Box<str>,
        /// Of which field, or of what inside one.
        field: FieldPath,
        /// False if it goes.
        wanted: bool,
    },
    /// Documents without positions were written or taken away.
    Kept {
        /// Where.
        namespace: Box<str>,
        /// All their fields.
        put: Vec<(DocumentKey, Vec<FieldValue>)>,
        /// Taken away without a trace.
        removed: Vec<DocumentKey>,
    },
    /// The users' notes of all writes so far are not to be shown any more.
    NotesErased {
        /// Where.
        namespace: Box<str>,
    },
    /// Everything in a namespace is gone, as if it had never been.
    Emptied {
        /// Where.
        namespace: Box<str>,
    },
    /// Documents of an earlier life came in, with nothing known before this position.
    Loaded {
        /// Where.
        namespace: Box<str>,
        /// Up to where nothing is known.
        horizon: Position,
        /// As they were then.
        documents: Vec<(DocumentKey, Document)>,
    },
    /// The history of everything up to an index of the log is not kept any more.
    Trimmed {
        /// The index.
        to: u64,
    },
    /// Some fields of a document without positions were written; it came into being if it was not there.
    Merged {
        /// Where.
        namespace: Box<str>,
        /// Which.
        at: DocumentKey,
        /// These have a value now.
        set: Vec<FieldValue>,
        /// These have none, and perhaps had none before.
        removed: Vec<Box<str>>,
    },
    /// Whoever began a namespace said which version its data is of.
    Versioned {
        /// Where.
        namespace: Box<str>,
        /// In the words of the writer.
        version: i64,
    },
    /// A dump is being loaded, or all of it is there. What is there of it in between is not to stay.
    Loading {
        /// Where.
        namespace: Box<str>,
        /// True if all of it is there.
        done: bool,
    },
    /// A lease was granted, or its owner wrote something else on it.
    Leased {
        /// Where.
        namespace: Box<str>,
        /// As it is now.
        lease: Lease,
    },
    /// A lease ends later than it would have, or earlier.
    LeaseRenewed {
        /// Where.
        namespace: Box<str>,
        /// Which.
        lock: LockId,
        /// When it ends now.
        expires_at: Option<Timestamp>,
        /// How long it lasts from its renewal; none if that is as before.
        ttl_ms: Option<u64>,
    },
    /// Leases are over.
    LeasesEnded {
        /// Where.
        namespace: Box<str>,
        /// Which.
        locks: Vec<LockId>,
    },
    /// Documents came from another shard, and what is known of their keys is known here now.
    Installed {
        /// Where.
        namespace: Box<str>,
        /// In which transition.
        transition: u64,
        /// Up to where nothing is known of their past.
        horizon: Position,
        /// As they were there.
        documents: Vec<Moved>,
    },
    /// Documents are gone without a trace, and so is what was known of their keys.
    Forgotten {
        /// Where.
        namespace: Box<str>,
        /// Which.
        documents: Vec<DocumentKey>,
    },
    /// It does not matter any more in which transition these keys became known.
    Unmarked {
        /// Where.
        namespace: Box<str>,
        /// Which.
        documents: Vec<DocumentKey>,
    },
    /// No write gets a position up to this one.
    Raised {
        /// In no namespace.
        floor: Position,
    },
    /// A purge. The documents it names are gone with this record; all those of a collection or a namespace, and the answers
    /// to the calls that wrote them, with those up to its [`Entry::Dropped`].
    Purged {
        /// Where.
        namespace: Box<str>,
        /// Its position, who and why, and in `purged` of what; it has no events.
        commit: Commit,
        /// The documents, for as long as anything is left of them in the log.
        documents: Vec<DocumentKey>,
        /// The first free id of the collection; 0 if none was ever used.
        next: u64,
        /// Whether it has to be completed. A dump tells of purges that were.
        pending: bool,
    },
    /// Calls are not known any more if they come again, because what they did is purged.
    Unanswered {
        /// Where.
        namespace: Box<str>,
        /// What their callers named them.
        keys: Vec<Box<str>>,
        /// The record of the purge.
        purge: u64,
    },
    /// Some of what is known of a namespace besides its documents is gone, because all of it is purged. There may be
    /// too much of that for one record.
    Cleared {
        /// Where.
        namespace: Box<str>,
        /// How much, at most: the first in the order in which it is kept.
        len: u64,
    },
    /// What is purged is gone from the state, and so is the name of a collection or a namespace.
    Dropped {
        /// Where.
        namespace: Box<str>,
        /// What.
        purged: Purged,
        /// The record of the purge.
        purge: u64,
    },
    /// Nothing is left of what a purge took away, in no file.
    PurgeEnded {
        /// The record of the purge.
        purge: u64,
    },
    /// What was here is purged. It gave a namespace its number, if it names one.
    Erased {
        /// Which.
        namespace: Option<Box<str>>,
    },
}

/// How a call is known again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// What the caller named it.
    pub key: Box<str>,
    /// A digest of what it asked for.
    pub fingerprint: [u8; 16],
}

impl Entry {
    /// Whose documents it is about, if it is about those of one namespace.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Entry::Committed { namespace, .. }
            | Entry::Reserved { namespace, .. }
            | Entry::Indexed { namespace, .. }
            | Entry::Kept { namespace, .. }
            | Entry::NotesErased { namespace }
            | Entry::Emptied { namespace }
            | Entry::Loaded { namespace, .. }
            | Entry::Merged { namespace, .. }
            | Entry::Versioned { namespace, .. }
            | Entry::Loading { namespace, .. }
            | Entry::Installed { namespace, .. }
            | Entry::Forgotten { namespace, .. }
            | Entry::Unmarked { namespace, .. }
            | Entry::Purged { namespace, .. }
            | Entry::Unanswered { namespace, .. }
            | Entry::Cleared { namespace, .. }
            | Entry::Dropped { namespace, .. } => Some(namespace),
            Entry::Erased { namespace } => namespace.as_deref(),
            Entry::Trimmed { .. }
            | Entry::PurgeEnded { .. }
            | Entry::Raised { .. }
            | Entry::Leased { .. }
            | Entry::LeaseRenewed { .. }
            | Entry::LeasesEnded { .. } => None,
        }
    }

    /// The record for the log.
    pub fn encode(&self) -> Vec<u8> {
        let mut record = vec![0, 0, 0, 0, FORMAT];
        record = postcard::to_extend(&stored(self), record).expect("entries can be encoded");
        let sum = crc32fast::hash(&record[4..]);
        record[..4].copy_from_slice(&sum.to_be_bytes());
        record
    }

    /// The entry of the record at `index`.
    pub fn decode(index: u64, record: &[u8]) -> Result<Entry, StoreError> {
        let damaged = || StoreError::damaged(format!("the record {index} of the log"));
        match Entry::check(index, record)?.split_first() {
            Some((&FORMAT, body)) => {
                let stored: StoredEntry<'_> = postcard::from_bytes(body).map_err(|_| damaged())?;
                entry(stored).ok_or_else(damaged)
            }
            _ => Err(damaged()),
        }
    }

    /// Compares the record at `index` with its checksum; gives what is behind that.
    pub(crate) fn check(index: u64, record: &[u8]) -> Result<&[u8], StoreError> {
        match record.split_first_chunk::<4>() {
            Some((sum, rest)) if crc32fast::hash(rest) == u32::from_be_bytes(*sum) => Ok(rest),
            _ => Err(StoreError::damaged(format!("the record {index} of the log"))),
        }
    }
}

#[derive(Serialize, Deserialize)]
enum StoredEntry<'a> {
    Committed {
        #[serde(borrow)]
        namespace: &'a str,
        commits: Vec<StoredCommit<'a>>,
        answer: Option<(&'a str, [u8; 16])>,
    },
    Reserved {
        namespace: &'a str,
        collection: &'a str,
        next: u64,
    },
    Indexed {
        namespace: &'a str,
        collection: &'a str,
        field: &'a str,
        wanted: bool,
    },
    Kept {
        namespace: &'a str,
        put: Vec<(StoredKey<'a>, Vec<StoredField<'a>>)>,
        removed: Vec<StoredKey<'a>>,
    },
    NotesErased {
        namespace: &'a str,
    },
    Emptied {
        namespace: &'a str,
    },
    Loaded {
        namespace: &'a str,
        horizon: u64,
        documents: Vec<(StoredKey<'a>, StoredDocument<'a>)>,
    },
    Trimmed {
        to: u64,
    },
    Merged {
        namespace: &'a str,
        at: StoredKey<'a>,
        set: Vec<StoredField<'a>>,
        removed: Vec<&'a str>,
    },
    Versioned {
        namespace: &'a str,
        version: i64,
    },
    Loading {
        namespace: &'a str,
        done: bool,
    },
    Leased {
        namespace: &'a str,
        lease: StoredLease<'a>,
    },
    LeaseRenewed {
        namespace: &'a str,
        lock: u64,
        expires_at: Option<u64>,
    },
    LeasesEnded {
        namespace: &'a str,
        locks: Vec<u64>,
    },
    Installed {
        namespace: &'a str,
        transition: u64,
        horizon: u64,
        documents: Vec<StoredMoved<'a>>,
    },
    Forgotten {
        namespace: &'a str,
        documents: Vec<StoredKey<'a>>,
    },
    Unmarked {
        namespace: &'a str,
        documents: Vec<StoredKey<'a>>,
    },
    Raised {
        floor: u64,
    },
    /// An index of something inside a field; before it there were those of fields only.
    IndexedBelow {
        namespace: &'a str,
        collection: &'a str,
        names: Vec<&'a str>,
        wanted: bool,
    },
    Purged {
        namespace: &'a str,
        commit: StoredCommit<'a>,
        purged: StoredPurged<'a>,
        documents: Vec<StoredKey<'a>>,
        next: u64,
        pending: bool,
    },
    Unanswered {
        namespace: &'a str,
        keys: Vec<&'a str>,
        purge: u64,
    },
    Dropped {
        namespace: &'a str,
        purged: StoredPurged<'a>,
        purge: u64,
    },
    PurgeEnded {
        purge: u64,
    },
    Erased {
        namespace: Option<&'a str>,
    },
    Cleared {
        namespace: &'a str,
        len: u64,
    },
    LeaseRenewedFor {
        namespace: &'a str,
        lock: u64,
        expires_at: Option<u64>,
        ttl_ms: u64,
    },
}

#[derive(Serialize, Deserialize)]
enum StoredPurged<'a> {
    Documents(&'a str, u64),
    Collection(&'a str),
    Namespace,
}

#[derive(Serialize, Deserialize)]
struct StoredCommit<'a> {
    position: u64,
    at: u64,
    #[serde(borrow)]
    user: Option<&'a str>,
    note: Option<&'a str>,
    events: Vec<(StoredKey<'a>, StoredChange<'a>)>,
}

/// Collection and key parts.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct StoredKey<'a>(#[serde(borrow)] &'a str, Vec<StoredPart<'a>>);

#[derive(Clone, Serialize, Deserialize)]
enum StoredPart<'a> {
    Number(i64),
    Text(&'a str),
}

/// Name and value.
#[derive(Serialize, Deserialize)]
struct StoredField<'a>(&'a str, &'a str);

#[derive(Serialize, Deserialize)]
enum StoredChange<'a> {
    Created(#[serde(borrow)] Vec<StoredField<'a>>),
    Updated(Vec<StoredField<'a>>, Vec<&'a str>),
    Deleted(Vec<&'a str>),
    Restored(Vec<StoredField<'a>>),
    Recreated(Vec<StoredField<'a>>, Vec<&'a str>),
}

/// A document as it is kept, in the log and in the state. Borrowed, so that reading one field of it does not
/// copy the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredDocument<'a> {
    pub(crate) created: u64,
    pub(crate) position: u64,
    pub(crate) existence: u64,
    pub(crate) hidden: u64,
    pub(crate) deleted: bool,
    pub(crate) forgotten: u64,
    pub(crate) version: u64,
    /// Name, position, value; sorted by name.
    #[serde(borrow)]
    pub(crate) fields: Vec<(&'a str, u64, Option<&'a str>)>,
}

fn stored(entry: &Entry) -> StoredEntry<'_> {
    match entry {
        Entry::Committed { namespace, commits, answer } => StoredEntry::Committed {
            namespace,
            commits: commits.iter().map(stored_commit).collect(),
            answer: answer.as_ref().map(|answer| (&*answer.key, answer.fingerprint)),
        },
        Entry::Reserved { namespace, collection, next } => {
            StoredEntry::Reserved { namespace, collection, next: *next }
        }
        Entry::Indexed { namespace, collection, field, wanted } if field.is_top_level() => {
            StoredEntry::Indexed { namespace, collection, field: field.root(), wanted: *wanted }
        }
        Entry::Indexed { namespace, collection, field, wanted } => StoredEntry::IndexedBelow {
            namespace,
            collection,
            names: field.names().collect(),
            wanted: *wanted,
        },
        Entry::Kept { namespace, put, removed } => StoredEntry::Kept {
            namespace,
            put: put.iter().map(|(at, fields)| (stored_key(at), stored_fields(fields))).collect(),
            removed: removed.iter().map(stored_key).collect(),
        },
        Entry::NotesErased { namespace } => StoredEntry::NotesErased { namespace },
        Entry::Emptied { namespace } => StoredEntry::Emptied { namespace },
        Entry::Loaded { namespace, horizon, documents } => StoredEntry::Loaded {
            namespace,
            horizon: horizon.0,
            documents: documents.iter().map(|(at, document)| (stored_key(at), document.into())).collect(),
        },
        Entry::Trimmed { to } => StoredEntry::Trimmed { to: *to },
        Entry::Merged { namespace, at, set, removed } => StoredEntry::Merged {
            namespace,
            at: stored_key(at),
            set: stored_fields(set),
            removed: removed.iter().map(|name| &**name).collect(),
        },
        Entry::Versioned { namespace, version } => StoredEntry::Versioned { namespace, version: *version },
        Entry::Loading { namespace, done } => StoredEntry::Loading { namespace, done: *done },
        Entry::Leased { namespace, lease } => StoredEntry::Leased { namespace, lease: lease.into() },
        Entry::LeaseRenewed { namespace, lock, expires_at, ttl_ms } => {
            let (lock, expires_at) = (lock.0, expires_at.map(|at| at.0));
            match *ttl_ms {
                None => StoredEntry::LeaseRenewed { namespace, lock, expires_at },
                Some(ttl_ms) => StoredEntry::LeaseRenewedFor { namespace, lock, expires_at, ttl_ms },
            }
        }
        Entry::LeasesEnded { namespace, locks } => {
            StoredEntry::LeasesEnded { namespace, locks: locks.iter().map(|lock| lock.0).collect() }
        }
        Entry::Installed { namespace, transition, horizon, documents } => StoredEntry::Installed {
            namespace,
            transition: *transition,
            horizon: horizon.0,
            documents: documents.iter().map(StoredMoved::from).collect(),
        },
        Entry::Forgotten { namespace, documents } => {
            StoredEntry::Forgotten { namespace, documents: documents.iter().map(stored_key).collect() }
        }
        Entry::Unmarked { namespace, documents } => {
            StoredEntry::Unmarked { namespace, documents: documents.iter().map(stored_key).collect() }
        }
        Entry::Raised { floor } => StoredEntry::Raised { floor: floor.0 },
        Entry::Purged { namespace, commit, documents, next, pending } => StoredEntry::Purged {
            namespace,
            commit: stored_commit(commit),
            purged: stored_purged(commit.purged.as_ref()),
            documents: documents.iter().map(stored_key).collect(),
            next: *next,
            pending: *pending,
        },
        Entry::Unanswered { namespace, keys, purge } => {
            let keys = keys.iter().map(|key| &**key).collect();
            StoredEntry::Unanswered { namespace, keys, purge: *purge }
        }
        Entry::Dropped { namespace, purged, purge } => {
            StoredEntry::Dropped { namespace, purged: stored_purged(Some(purged)), purge: *purge }
        }
        Entry::Cleared { namespace, len } => StoredEntry::Cleared { namespace, len: *len },
        Entry::PurgeEnded { purge } => StoredEntry::PurgeEnded { purge: *purge },
        Entry::Erased { namespace } => StoredEntry::Erased { namespace: namespace.as_deref() },
    }
}

fn stored_purged(purged: Option<&Purged>) -> StoredPurged<'_> {
    match purged {
        Some(Purged::Documents { collection, count }) => StoredPurged::Documents(collection, *count),
        Some(Purged::Collection { collection }) => StoredPurged::Collection(collection),
        Some(Purged::Namespace) | None => StoredPurged::Namespace,
    }
}

fn stored_commit(commit: &Commit) -> StoredCommit<'_> {
    StoredCommit {
        position: commit.position.0,
        at: commit.at.0,
        user: commit.user.as_ref().map(Json::as_str),
        note: commit.note.as_ref().map(Json::as_str),
        events: commit
            .events
            .iter()
            .map(|event| (stored_key(&event.at), stored_change(&event.change)))
            .collect(),
    }
}

pub(crate) fn stored_key(at: &DocumentKey) -> StoredKey<'_> {
    let parts = at.key.parts().iter().map(|part| match part {
        KeyPart::Number(number) => StoredPart::Number(*number),
        KeyPart::Text(text) => StoredPart::Text(text),
    });
    StoredKey(&at.collection, parts.collect())
}

fn stored_fields(fields: &[FieldValue]) -> Vec<StoredField<'_>> {
    fields.iter().map(|(name, value)| StoredField(name, value.as_str())).collect()
}

fn stored_change(change: &Change) -> StoredChange<'_> {
    fn names(names: &[Box<str>]) -> Vec<&str> {
        names.iter().map(|name| &**name).collect()
    }
    match change {
        Change::Created { fields } => StoredChange::Created(stored_fields(fields)),
        Change::Updated { set, removed } => StoredChange::Updated(stored_fields(set), names(removed)),
        Change::Deleted { fields } => StoredChange::Deleted(names(fields)),
        Change::Restored { fields } => StoredChange::Restored(stored_fields(fields)),
        Change::Recreated { fields, removed } => {
            StoredChange::Recreated(stored_fields(fields), names(removed))
        }
    }
}

fn entry(stored: StoredEntry<'_>) -> Option<Entry> {
    Some(match stored {
        StoredEntry::Committed { namespace, commits, answer } => Entry::Committed {
            namespace: namespace.into(),
            commits: commits.into_iter().map(commit).collect::<Option<_>>()?,
            answer: answer.map(|(key, fingerprint)| Answer { key: key.into(), fingerprint }),
        },
        StoredEntry::Reserved { namespace, collection, next } => {
            Entry::Reserved { namespace: namespace.into(), collection: collection.into(), next }
        }
        StoredEntry::Indexed { namespace, collection, field, wanted } => Entry::Indexed {
            namespace: namespace.into(),
            collection: collection.into(),
            field: FieldPath::name(field),
            wanted,
        },
        StoredEntry::IndexedBelow { namespace, collection, names, wanted } => Entry::Indexed {
            namespace: namespace.into(),
            collection: collection.into(),
            field: FieldPath::from_names(names)?,
            wanted,
        },
        StoredEntry::Kept { namespace, put, removed } => Entry::Kept {
            namespace: namespace.into(),
            put: put.into_iter().map(|(at, given)| Some((key(at)?, fields(given)))).collect::<Option<_>>()?,
            removed: removed.into_iter().map(key).collect::<Option<_>>()?,
        },
        StoredEntry::NotesErased { namespace } => Entry::NotesErased { namespace: namespace.into() },
        StoredEntry::Emptied { namespace } => Entry::Emptied { namespace: namespace.into() },
        StoredEntry::Loaded { namespace, horizon, documents } => Entry::Loaded {
            namespace: namespace.into(),
            horizon: Position(horizon),
            documents: documents
                .into_iter()
                .map(|(at, document)| Some((key(at)?, document.to_document())))
                .collect::<Option<_>>()?,
        },
        StoredEntry::Trimmed { to } => Entry::Trimmed { to },
        StoredEntry::Merged { namespace, at, set, removed } => Entry::Merged {
            namespace: namespace.into(),
            at: key(at)?,
            set: fields(set),
            removed: removed.into_iter().map(Into::into).collect(),
        },
        StoredEntry::Versioned { namespace, version } => {
            Entry::Versioned { namespace: namespace.into(), version }
        }
        StoredEntry::Loading { namespace, done } => Entry::Loading { namespace: namespace.into(), done },
        StoredEntry::Leased { namespace, lease } => {
            Entry::Leased { namespace: namespace.into(), lease: lease.to_lease()? }
        }
        StoredEntry::LeaseRenewed { namespace, lock, expires_at } => Entry::LeaseRenewed {
            namespace: namespace.into(),
            lock: LockId(lock),
            expires_at: expires_at.map(Timestamp),
            ttl_ms: None,
        },
        StoredEntry::LeaseRenewedFor { namespace, lock, expires_at, ttl_ms } => Entry::LeaseRenewed {
            namespace: namespace.into(),
            lock: LockId(lock),
            expires_at: expires_at.map(Timestamp),
            ttl_ms: Some(ttl_ms),
        },
        StoredEntry::LeasesEnded { namespace, locks } => {
            Entry::LeasesEnded { namespace: namespace.into(), locks: locks.into_iter().map(LockId).collect() }
        }
        StoredEntry::Installed { namespace, transition, horizon, documents } => Entry::Installed {
            namespace: namespace.into(),
            transition,
            horizon: Position(horizon),
            documents: documents.iter().map(StoredMoved::to_moved).collect::<Option<_>>()?,
        },
        StoredEntry::Forgotten { namespace, documents } => Entry::Forgotten {
            namespace: namespace.into(),
            documents: documents.into_iter().map(key).collect::<Option<_>>()?,
        },
        StoredEntry::Unmarked { namespace, documents } => Entry::Unmarked {
            namespace: namespace.into(),
            documents: documents.into_iter().map(key).collect::<Option<_>>()?,
        },
        StoredEntry::Raised { floor } => Entry::Raised { floor: Position(floor) },
        StoredEntry::Purged { namespace, commit: stored, purged, documents, next, pending } => {
            Entry::Purged {
                namespace: namespace.into(),
                commit: Commit { purged: Some(read_purged(&purged)), ..commit(stored)? },
                documents: documents.into_iter().map(key).collect::<Option<_>>()?,
                next,
                pending,
            }
        }
        StoredEntry::Unanswered { namespace, keys, purge } => Entry::Unanswered {
            namespace: namespace.into(),
            keys: keys.into_iter().map(Into::into).collect(),
            purge,
        },
        StoredEntry::Dropped { namespace, purged, purge } => {
            Entry::Dropped { namespace: namespace.into(), purged: read_purged(&purged), purge }
        }
        StoredEntry::PurgeEnded { purge } => Entry::PurgeEnded { purge },
        StoredEntry::Erased { namespace } => Entry::Erased { namespace: namespace.map(Into::into) },
        StoredEntry::Cleared { namespace, len } => Entry::Cleared { namespace: namespace.into(), len },
    })
}

fn read_purged(stored: &StoredPurged<'_>) -> Purged {
    match *stored {
        StoredPurged::Documents(collection, count) => {
            Purged::Documents { collection: collection.into(), count }
        }
        StoredPurged::Collection(collection) => Purged::Collection { collection: collection.into() },
        StoredPurged::Namespace => Purged::Namespace,
    }
}

fn commit(stored: StoredCommit<'_>) -> Option<Commit> {
    let event = |(at, stored)| Some(Event { at: key(at)?, change: change(stored) });
    Some(Commit {
        position: Position(stored.position),
        at: Timestamp(stored.at),
        user: stored.user.map(Json::trusted),
        note: stored.note.map(Json::trusted),
        events: stored.events.into_iter().map(event).collect::<Option<_>>()?,
        purged: None,
    })
}

pub(crate) fn key(stored: StoredKey<'_>) -> Option<DocumentKey> {
    let StoredKey(collection, parts) = stored;
    let parts = parts.into_iter().map(|part| match part {
        StoredPart::Number(number) => KeyPart::Number(number),
        StoredPart::Text(text) => KeyPart::Text(text.into()),
    });
    Some(DocumentKey { collection: collection.into(), key: Key::new(parts)? })
}

fn fields(stored: Vec<StoredField<'_>>) -> Vec<FieldValue> {
    stored.into_iter().map(|StoredField(name, value)| (name.into(), Json::trusted(value))).collect()
}

fn change(stored: StoredChange<'_>) -> Change {
    let owned = |names: Vec<&str>| names.into_iter().map(Into::into).collect();
    match stored {
        StoredChange::Created(given) => Change::Created { fields: fields(given) },
        StoredChange::Updated(set, removed) => Change::Updated { set: fields(set), removed: owned(removed) },
        StoredChange::Deleted(names) => Change::Deleted { fields: owned(names) },
        StoredChange::Restored(given) => Change::Restored { fields: fields(given) },
        StoredChange::Recreated(given, removed) => {
            Change::Recreated { fields: fields(given), removed: owned(removed) }
        }
    }
}

impl<'a> From<&'a Document> for StoredDocument<'a> {
    fn from(document: &'a Document) -> StoredDocument<'a> {
        let field =
            |field: &'a Field| (&*field.name, field.position.0, field.value.as_ref().map(Json::as_str));
        StoredDocument {
            created: document.created.0,
            position: document.position.0,
            existence: document.existence.0,
            hidden: document.hidden.0,
            deleted: document.deleted,
            forgotten: document.forgotten.0,
            version: document.version,
            fields: document.fields.iter().map(field).collect(),
        }
    }
}

impl StoredDocument<'_> {
    pub(crate) fn to_document(&self) -> Document {
        let field = |(name, position, value): &(&str, u64, Option<&str>)| Field {
            name: (*name).into(),
            position: Position(*position),
            value: value.map(Json::trusted),
        };
        Document {
            created: Position(self.created),
            position: Position(self.position),
            existence: Position(self.existence),
            hidden: Position(self.hidden),
            deleted: self.deleted,
            forgotten: Position(self.forgotten),
            version: self.version,
            fields: self.fields.iter().map(field).collect(),
        }
    }
}

#[cfg(test)]
#[path = "entry_test.rs"]
mod tests;
