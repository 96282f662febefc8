//! A shard: one log with one owner, and the state it is folded into. Decides in memory, one call after the
//! other; a thread of its own makes what was decided durable, many calls at a time, unless a caller is alone and
//! does it itself. Knows nothing of protocols.
//!
//! ```text
//!   call ──► decide, under the lock ──► open batch ──► batch in flight ──► log and state, one sync
//!              ▲ sees the state, the batch in flight and the open batch           │
//!              └──────────────────────── answers wait for this ◄──────────────────┘
//! ```
//!
//! While one batch is synced the next one is filled. A refusal that rests on something not yet durable waits
//! for it too, so no answer ever tells of what could still be lost.

mod base;
mod join;
mod load;
mod maintenance;
mod moving;
mod partners;
mod purge;
mod query;
#[cfg(test)]
mod shard_test;
mod view;
mod writer;
#[cfg(test)]
mod writer_test;

use crate::metrics::{Counter, Histogram};
use lockwood_engine::{Limits, Refused, Request, Rules};
use lockwood_model::{DocumentKey, FieldValue, Position, Timestamp};
use lockwood_storage::{Answer, Entry, NamespaceId, Snapshot, State, StoreError};
use std::sync::{Arc, atomic::Ordering};
use tokio::sync::watch;

pub use join::{Join, JoinPlace, JoinRows, JoinSide, Only, Source, join};
pub use load::{Loading, Positions};
pub use maintenance::SnapshotDue;
pub(crate) use purge::{Begun, Purging, Stage};
pub use query::{
    Any, Count, Custody, Elsewhere, Extreme, Find, Found, Gather, PageError, Pager, Place, Selection, Sort,
    order,
};
pub use writer::{Follow, Pending, Shard, in_place};

/// A call with more events and position locks than this is long in deciding; it does not keep others from the
/// thread meanwhile.
const LONG_CALL_LEN: usize = 500;
/// The largest position; it fits into any JSON reader's numbers.
pub const POSITION_MAX: u64 = 1 << 53;
/// The largest id that is handed out.
const IDS_MAX: u64 = i64::MAX as u64 - 1;

/// A write call: one or more requests that are done together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Call {
    /// What is to be done, all of it or nothing.
    pub requests: Vec<Request>,
    /// How to know the call if it comes again.
    pub answer: Option<Answer>,
    /// How large documents may become.
    pub limits: Option<Limits>,
    /// Requests, by their place in the call, that may only be the first write of the namespace.
    pub founding: Vec<usize>,
    /// Which version the data of the namespace is of, if this call founds it.
    pub version: Option<i64>,
    /// Whether position locks of the future are refused: such a lock could never be broken, so it would protect nothing.
    pub refuses_future: bool,
}

impl Call {
    /// Which documents it writes.
    pub fn documents(&self) -> impl Iterator<Item = &DocumentKey> + Clone {
        self.requests.iter().flat_map(|request| &request.intents).map(|intent| &intent.at)
    }

    /// Where the namespace has to be at least before the call, by its position locks. Beyond that are only the requests
    /// before a lock in the same call.
    fn latest(&self) -> Option<Position> {
        let lock = |(index, request): (u64, &Request)| {
            let latest = request.locks.iter().map(|lock| lock.position).max()?;
            Some(Position(latest.0.saturating_sub(index)))
        };
        (0..).zip(&self.requests).filter_map(lock).max()
    }
}

/// What is to be done to documents without positions.
#[derive(Debug, Clone, PartialEq)]
pub enum Keep {
    /// Write some of its fields; null removes a field. Brings it into being if it is not there.
    Merge(DocumentKey, Vec<FieldValue>),
    /// Take these away without a trace.
    Remove(Vec<DocumentKey>),
}

impl Keep {
    /// Which documents it is about.
    pub fn documents(&self) -> impl Iterator<Item = &DocumentKey> + Clone {
        let (one, several) = match self {
            Keep::Merge(at, _) => (Some(at), &[][..]),
            Keep::Remove(documents) => (None, &documents[..]),
        };
        one.into_iter().chain(several)
    }
}

/// What a write call led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The position of each request.
    pub positions: Vec<Position>,
    /// True if the call had been done before and this is what was answered then.
    pub replayed: bool,
}

/// What came of a call that was made of what is there.
#[derive(Debug)]
pub enum Amended<T> {
    /// It was done now, if there was something to do; and what else was made.
    Now {
        /// The call that was made.
        call: Call,
        /// Where it was written.
        written: Written,
        /// What was made besides.
        made: T,
    },
    /// It had been done before.
    Before(Written),
}

/// Why a shard did not do what it was asked.
#[derive(Debug, Clone)]
pub enum ShardError {
    /// The request does not fit what is there.
    Refused(Box<Refused>),
    /// The idempotency key was used for another call.
    IdempotencyMismatch,
    /// The namespace has something in it.
    NotEmpty(Position),
    /// A namespace of this name was purged at this position, and positions are never used again.
    Purged(Position),
    /// The document has positions, so it cannot be written without one.
    HasPositions(DocumentKey),
    /// A position lock is ahead of the namespace, which is at the second position.
    Ahead(Position, Position),
    /// A dump is being loaded into the namespace.
    Loading,
    /// What is to be written is being purged.
    Purging,
    /// Lines of a dump that do not fit what is there.
    Misfit(String),
    /// There are too many indexes.
    TooManyIndexes(u64),
    /// More is waiting for the disk than the limit allows.
    TooMuchPending(u64),
    /// There are too many namespaces.
    TooManyNamespaces(u64),
    /// More ids than there are.
    NoIdsLeft,
    /// Another node has to decide, or this one under the map it has by now.
    Elsewhere,
    /// The disk, or what is on it.
    Store(StoreError),
}

impl From<Refused> for ShardError {
    fn from(refused: Refused) -> ShardError {
        ShardError::Refused(Box::new(refused))
    }
}

impl From<StoreError> for ShardError {
    fn from(error: StoreError) -> ShardError {
        ShardError::Store(error)
    }
}

/// The shard at one moment: everything in it is durable and belongs together.
#[derive(Clone)]
pub struct Reading {
    snapshot: Arc<dyn Snapshot>,
    /// Some namespace may have a part of a dump in it.
    loads: bool,
    /// Everything that was given a position up to this one is in it. Zero unless there are other shards.
    floor: Position,
    exempt: Exempt,
}

/// The namespaces that a floor does not matter to; none unless they are named.
#[derive(Clone, Default)]
pub(crate) struct Exempt(pub(super) Option<Arc<IsExempt>>);

type IsExempt = dyn Fn(&str) -> bool + Send + Sync;

impl Exempt {
    fn covers(&self, namespace: &str) -> bool {
        self.0.as_ref().is_some_and(|is_exempt| is_exempt(namespace))
    }
}

impl Reading {
    /// The state at this moment.
    pub fn state(&self) -> State<'_> {
        State::new(&*self.snapshot)
    }

    /// A position that is in the past of all namespaces, those that are not there included.
    pub fn floor(&self) -> Position {
        self.floor
    }

    /// A namespace with its position; none if nothing was ever written to it. What a dump is being loaded
    /// into is not there before all of it is.
    pub fn namespace(&self, name: &str) -> Result<Option<(NamespaceId, Position)>, StoreError> {
        let state = self.state();
        if self.loads && state.half_loaded()?.iter().any(|found| found == name) {
            return Ok(None);
        }
        let Some(namespace) = state.namespace(name)? else { return Ok(None) };
        Ok(Some((namespace, state.position(namespace)?.max(self.floor_of(name)))))
    }

    /// Where a namespace stands. One that was purged stands at its purge until something is written to it again.
    pub fn position(&self, name: &str) -> Result<Position, StoreError> {
        match self.namespace(name)? {
            Some((_, position)) => Ok(position),
            None => Ok(self.state().past(name)?.max(self.floor_of(name))),
        }
    }

    fn floor_of(&self, namespace: &str) -> Position {
        if self.exempt.covers(namespace) { Position::START } else { self.floor }
    }
}

/// What limits a shard.
#[derive(Debug, Clone, Copy)]
pub struct ShardLimits {
    /// Bytes of writes that may wait for the disk.
    pub pending_bytes_max: u64,
    /// How many namespaces may have documents.
    pub namespaces_max: u64,
}

/// What a shard has done since it was opened.
#[derive(Debug, Default)]
pub struct Counts {
    /// Write requests that were done.
    pub commits: Counter,
    /// What they did, document by document.
    pub events: Counter,
    /// Write calls refused because a position lock did not hold.
    pub position_refusals: Counter,
    /// How often the disk was written and synced.
    pub batches: Counter,
    /// How long the disk took for a batch.
    pub sync_time: Histogram,
}

impl Counts {
    fn note(&self, call: &Call, written: &Result<Written, ShardError>) {
        match written {
            Ok(Written { positions, replayed: false }) => {
                self.commits.add(positions.len() as u64);
                self.events.add(call.requests.iter().map(|request| request.intents.len() as u64).sum());
            }
            Err(ShardError::Refused(refused)) if matches!(**refused, Refused::Locked(_)) => {
                self.position_refusals.add(1);
            }
            _ => {}
        }
    }
}

impl Shard {
    /// Does a write call whatever locks there are.
    #[cfg(test)]
    pub(crate) async fn write(
        &self,
        namespace: &str,
        call: &Call,
        now: Timestamp,
    ) -> Result<Written, ShardError> {
        self.settle_write(call, self.decide_write(namespace, call, &lockwood_engine::NoRules, now)?).await
    }

    /// Decides a write call without waiting for it to become durable; [`Shard::settle`] does.
    pub fn decide_write(
        &self,
        namespace: &str,
        call: &Call,
        rules: &dyn Rules,
        now: Timestamp,
    ) -> Result<Pending<Written>, ShardError> {
        let events = call.requests.iter().map(|request| request.intents.len() + request.locks.len());
        let decide = || self.decide(|writer| writer.write(namespace, call, rules, now));
        if events.sum::<usize>() > LONG_CALL_LEN { in_place(decide) } else { decide() }
    }

    /// Waits for a write call that was decided.
    pub async fn settle_write(&self, call: &Call, pending: Pending<Written>) -> Result<Written, ShardError> {
        let written = self.settle(pending).await;
        self.counts().note(call, &written);
        written
    }

    /// Makes a call of what is there, and decides it before anything else can be written. What `make` refuses is
    /// as much of an answer as what it makes: it rests on what is there.
    pub fn decide_amend<T, E>(
        &self,
        namespace: &str,
        answer: Option<&Answer>,
        make: impl FnOnce(State<'_>) -> Result<(Call, T), E>,
        rules: &dyn Rules,
        now: Timestamp,
    ) -> Result<Pending<Result<Amended<T>, E>>, ShardError> {
        self.decide(|writer| {
            if let Some(answer) = answer
                && let Some(written) = writer.answered(namespace, answer)?
            {
                return Ok(Ok(Amended::Before(written)));
            }
            match writer.look(|state| Ok(make(state)))? {
                Err(refused) => Ok(Err(refused)),
                Ok((mut call, made)) => {
                    call.answer = answer.cloned();
                    let written = writer.write(namespace, &call, rules, now)?;
                    Ok(Ok(Amended::Now { call, written, made }))
                }
            }
        })
    }

    /// Waits for a call that was made of what is there.
    pub async fn settle_amend<T, E>(
        &self,
        pending: Pending<Result<Amended<T>, E>>,
    ) -> Result<Result<Amended<T>, E>, ShardError> {
        let settled = self.settle(pending).await;
        if let Ok(Ok(Amended::Now { call, written, .. })) = &settled {
            self.counts().note(call, &Ok(written.clone()));
        }
        settled
    }

    /// Decides on documents without positions.
    pub fn decide_keep(
        &self,
        namespace: &str,
        keep: &Keep,
        limits: Limits,
        rules: &dyn Rules,
    ) -> Result<Pending<()>, ShardError> {
        self.decide(|writer| writer.keep(namespace, keep.clone(), limits, rules))
    }

    /// Decides on a record that needs no deciding.
    pub(crate) fn decide_record(&self, entry: &Entry) -> Result<Pending<()>, ShardError> {
        self.decide(|writer| {
            entry.namespace().map_or(Ok(()), |namespace| writer.check_not_loading(namespace))?;
            writer.record(entry)
        })
    }

    /// What was answered to the same call before, if it was.
    pub async fn answered(&self, namespace: &str, answer: &Answer) -> Result<Option<Written>, ShardError> {
        self.submit(|writer| writer.answered(namespace, answer)).await
    }

    /// Hands out `amount` ids; gives the first.
    pub async fn reserve(&self, namespace: &str, collection: &str, amount: u64) -> Result<u64, ShardError> {
        self.reserve_from(namespace, collection, amount, 1).await
    }

    /// The same, none of them below `least`.
    pub async fn reserve_from(
        &self,
        namespace: &str,
        collection: &str,
        amount: u64,
        least: u64,
    ) -> Result<u64, ShardError> {
        self.submit(|writer| writer.reserve(namespace, collection, amount, least..=IDS_MAX)).await
    }

    /// The same, if the last of them is no larger than `last_max`.
    pub async fn reserve_up_to(
        &self,
        namespace: &str,
        collection: &str,
        amount: u64,
        last_max: u64,
    ) -> Result<u64, ShardError> {
        self.submit(|writer| writer.reserve(namespace, collection, amount, 1..=last_max)).await
    }

    /// Writes or takes away documents without positions, whatever locks there are.
    #[cfg(test)]
    pub(crate) async fn keep(&self, namespace: &str, keep: Keep, limits: Limits) -> Result<(), ShardError> {
        self.submit(|writer| writer.keep(namespace, keep, limits, &lockwood_engine::NoRules)).await
    }

    /// Puts a record into the log that needs no deciding.
    pub async fn record(&self, entry: Entry) -> Result<(), ShardError> {
        self.submit(|writer| {
            entry.namespace().map_or(Ok(()), |namespace| writer.check_not_loading(namespace))?;
            writer.record(&entry)
        })
        .await
    }

    /// What is durable now.
    pub fn read(&self) -> Reading {
        // Asked before and after, so that a load that begins in between is noticed.
        let loads = self.is_loading();
        // Before the snapshot, which therefore has all that the floor speaks of.
        let floor = Position(self.floor.load(Ordering::Acquire));
        let snapshot = self.published();
        Reading { snapshot, loads: loads || self.is_loading(), floor, exempt: self.exempt.clone() }
    }

    /// Makes it a shard that only shows what its store shows: other processes write, and load dumps. Its readers go by the
    /// positions of whole namespaces.
    pub(crate) fn become_copy(&mut self) {
        self.loads.store(1, Ordering::Release);
        self.exempt(|_| true);
    }

    /// Shows what the store shows by now.
    pub fn show_latest(&self) {
        self.renew_view();
    }

    /// Tells whenever more is durable.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.applied()
    }
}
