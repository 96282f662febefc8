//! The writing half of a shard: decides calls in order and makes them durable in batches. Knows nothing of
//! what is asked by readers.

use super::{Call, Counts, Exempt, Keep, ShardError, ShardLimits, Written, base::Base, view::WriteView};
use lockwood_engine::{Limits, NoRules, PositionLock, Recent, Request, Rules, decide, decide_all};
use lockwood_model::{Change, Document, DocumentKey, FieldValue, Json, Position, Timestamp};
use lockwood_storage::{
    Appended, Batch, Claim, Entry, Epoch, Erasure, Fold, LocalLog, Log, NamespaceId, Overlay, Snapshot,
    State, Store, StoreError,
};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

/// Deciding takes less than this, as a rule.
const LOCK_PATIENCE: Duration = Duration::from_micros(200);
/// So many syncs in a row for one caller each make the next caller take it to be alone.
const LONE_SYNCS: u32 = 8;

/// A shard that this process owns.
pub struct Shard {
    core: Arc<Core>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Held by whoever forgets history: one at a time, because each saves a snapshot.
    pub(super) trimming: tokio::sync::Mutex<()>,
    /// Held while a purge is completed: one at a time, the oldest first.
    pub(super) completing: tokio::sync::Mutex<()>,
    /// Somebody still has to read the records after this one.
    pub(super) held: AtomicU64,
    /// How many dumps are being loaded.
    pub(super) loads: AtomicU64,
    /// There is only one connection to the server: nobody else can be kept waiting by whoever serves it.
    pub has_one_caller: Arc<AtomicBool>,
    /// Readers see everything that was ever given a position up to this one.
    pub(super) floor: AtomicU64,
    pub(super) exempt: Exempt,
}

/// What callers and the thread that makes things durable share.
struct Core {
    log: LocalLog,
    store: Arc<dyn Store>,
    epoch: Epoch,
    writer: Mutex<Writer>,
    /// There is something to be made durable, or it is time to stop.
    work: Condvar,
    /// What readers see; written after each batch by whoever made it durable.
    published: RwLock<Arc<dyn Snapshot>>,
    applied: watch::Sender<u64>,
    /// Whether the writer has.
    has_failed: AtomicBool,
    counts: Counts,
}

/// Invariant: the state as deciding sees it is `base`, over it `in_flight`, over it `open`; the record
/// `next_index - 1` is the last one in them.
pub(super) struct Writer {
    base: Base,
    in_flight: Option<Arc<Batch>>,
    open: Batch,
    /// Who waits for the open batch to become durable.
    waiting: Vec<oneshot::Sender<()>>,
    /// Who waits for the batch in flight.
    waiting_in_flight: Vec<oneshot::Sender<()>>,
    /// How many of the last syncs were for one caller only.
    lone_syncs: u32,
    /// The last record that is durable.
    durable: u64,
    /// The last record of the batch in flight, or of the last one that was.
    flight_last: u64,
    next_index: u64,
    pending_bytes: u64,
    recent: Recent,
    limits: ShardLimits,
    failed: Option<StoreError>,
    stopping: bool,
    /// Namespaces that nobody writes to but who loads a dump into them.
    pub(super) loading: BTreeSet<Box<str>>,
    /// What is being purged, by the record of the purge. Nothing of it is written before all of it is gone, whatever
    /// locks say: it would go too, though it was acknowledged later.
    pub(super) purging: BTreeMap<u64, Arc<Erasure>>,
    /// No write gets a position up to this one. What is on record is at least as high.
    pub(super) floor: Position,
    pub(super) exempt: Exempt,
}

/// A batch on its way to the disk, behind the record given.
struct Flight {
    batch: Arc<Batch>,
    expected: u64,
}

/// A decision that must not be told before everything it rests on is durable.
#[must_use = "what was decided becomes durable only if it is waited for"]
pub struct Pending<T> {
    decided: Decided<Result<T, ShardError>>,
    /// The last record the decision rests on.
    pub index: u64,
}

/// Who makes sure that a record becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Its caller, who waits for it next.
    Caller,
    /// The thread.
    Thread,
}

/// A decision, and how what it rests on becomes durable.
enum Decided<T> {
    /// It is already.
    Now(T),
    /// By the caller itself.
    Lead(T, Flight),
    /// By the thread; the message says when.
    Later(T, oneshot::Receiver<()>),
}

impl Shard {
    /// Takes the log in `store` over and starts.
    pub fn open(store: Arc<dyn Store>, limits: ShardLimits) -> Result<Shard, StoreError> {
        let log = LocalLog::new(Arc::clone(&store));
        let Claim { epoch, last } = log.claim()?;
        let base: Arc<dyn Snapshot> = store.snapshot().into();
        let applied = State::new(&*base).applied()?;
        if applied != last {
            let what = format!("the state: it is at record {applied} of the log, which ends at {last}; it");
            return Err(StoreError::damaged(what));
        }
        let floor = State::new(&*base).floor()?;
        let writer = Writer {
            base: Base::new(Arc::clone(&base)),
            in_flight: None,
            open: Batch::default(),
            waiting: Vec::new(),
            waiting_in_flight: Vec::new(),
            lone_syncs: LONE_SYNCS,
            durable: last,
            flight_last: last,
            next_index: last + 1,
            pending_bytes: 0,
            recent: Recent::default(),
            limits,
            failed: None,
            stopping: false,
            loading: BTreeSet::new(),
            purging: BTreeMap::new(),
            floor,
            exempt: Exempt::default(),
        };
        let core = Arc::new(Core {
            log,
            store,
            epoch,
            writer: Mutex::new(writer),
            work: Condvar::new(),
            published: RwLock::new(base),
            applied: watch::Sender::new(last),
            has_failed: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let own = Arc::clone(&core);
        let thread = std::thread::Builder::new()
            .name("lockwood-commit".to_owned())
            .spawn(move || own.keep_committing())
            .map_err(|error| StoreError::Failed(format!("start a thread: {error}")))?;
        let thread = Mutex::new(Some(thread));
        Ok(Shard {
            core,
            thread,
            trimming: tokio::sync::Mutex::new(()),
            completing: tokio::sync::Mutex::new(()),
            held: AtomicU64::new(u64::MAX),
            loads: AtomicU64::new(0),
            has_one_caller: Arc::default(),
            floor: AtomicU64::new(floor.0),
            exempt: Exempt::default(),
        })
    }

    /// Names the namespaces that only this shard gives positions to, so that other shards' do not matter there.
    pub(crate) fn exempt(&mut self, is_exempt: impl Fn(&str) -> bool + Send + Sync + 'static) {
        let exempt = Exempt(Some(Arc::new(is_exempt)));
        self.core.writer.lock().exempt = exempt.clone();
        self.exempt = exempt;
    }

    /// Decides something, and answers when everything the decision rests on is durable.
    pub(super) async fn submit<T>(
        &self,
        decide: impl FnOnce(&mut Writer) -> Result<T, ShardError>,
    ) -> Result<T, ShardError> {
        let pending = self.decide(decide)?;
        self.settle(pending).await
    }

    /// Waits until a decision can be told.
    pub async fn settle<T>(&self, pending: Pending<T>) -> Result<T, ShardError> {
        match pending.decided {
            Decided::Now(result) => result,
            Decided::Lead(result, flight) => {
                // Other tasks of this thread go on elsewhere meanwhile, if there can be any.
                let flown = match self.has_one_caller.load(Ordering::Relaxed) {
                    true => self.core.fly(&flight),
                    false => tokio::task::block_in_place(|| self.core.fly(&flight)),
                };
                match flown {
                    Ok(()) => result,
                    Err(error) => Err(ShardError::Store(error)),
                }
            }
            Decided::Later(result, durable) => match durable.await {
                Ok(()) => result,
                Err(_) => Err(ShardError::Store(self.failure())),
            },
        }
    }

    /// Another call may be long in deciding; then the thread is given to others meanwhile.
    pub(super) fn lock(&self) -> MutexGuard<'_, Writer> {
        match self.core.writer.try_lock_for(LOCK_PATIENCE) {
            Some(writer) => writer,
            None => in_place(|| self.core.writer.lock()),
        }
    }

    /// Decides something, without waiting for anything to become durable.
    pub(super) fn decide<T>(
        &self,
        decide: impl FnOnce(&mut Writer) -> Result<T, ShardError>,
    ) -> Result<Pending<T>, ShardError> {
        let mut writer = self.lock();
        writer.check()?;
        let result = decide(&mut writer);
        if let Err(ShardError::Store(error)) = result {
            return Err(ShardError::Store(error));
        }
        let index = writer.next_index - 1;
        // What no record stands for is in the open batch too.
        let followed = if writer.open.is_empty() { index } else { index.max(writer.flight_last + 1) };
        Ok(Pending { decided: self.follow(writer, followed, result), index })
    }

    /// How everything up to a record becomes durable.
    fn follow<T>(&self, mut writer: MutexGuard<'_, Writer>, index: u64, result: T) -> Decided<T> {
        if writer.is_alone() && can_block() {
            return Decided::Lead(result, writer.take_off(1));
        }
        let (sender, receiver) = oneshot::channel();
        if writer.in_flight.is_some() && index <= writer.flight_last {
            writer.waiting_in_flight.push(sender);
        } else if !writer.open.is_empty() {
            writer.waiting.push(sender);
            drop(writer);
            self.core.work.notify_one();
        } else {
            return Decided::Now(result);
        }
        Decided::Later(result, receiver)
    }

    /// Puts a record into the log that needs no deciding; gives its index. If its caller is about to wait for it
    /// and is alone, it will make it durable itself.
    pub fn append(&self, entry: &Entry, follow: Follow) -> Result<u64, ShardError> {
        let mut writer = self.lock();
        writer.check_sound()?;
        writer.record(entry)?;
        let index = writer.next_index - 1;
        let left_to_caller = follow == Follow::Caller && writer.is_alone() && can_block();
        drop(writer);
        if !left_to_caller {
            self.core.work.notify_one();
        }
        Ok(index)
    }

    /// Has the thread make durable what is not yet.
    pub(crate) fn nudge(&self) {
        self.core.work.notify_one();
    }

    /// Decides something nobody waits for; whoever decides later waits for it too.
    pub(super) fn with_writer<T>(
        &self,
        decide: impl FnOnce(&mut Writer) -> Result<T, ShardError>,
    ) -> Result<T, ShardError> {
        let mut writer = self.lock();
        writer.check()?;
        decide(&mut writer)
    }

    /// Asks the writer something that changes nothing.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Writer) -> T) -> T {
        question(&self.lock())
    }

    /// The last record that was decided on.
    pub fn last_index(&self) -> u64 {
        self.lock().next_index - 1
    }

    /// Whether readers see everything up to a record.
    pub fn shows(&self, index: u64) -> bool {
        *self.core.applied.borrow() >= index
    }

    /// Waits until readers see everything up to a record.
    pub async fn shown(&self, index: u64) -> Result<(), ShardError> {
        if self.shows(index) {
            return Ok(());
        }
        let decided = {
            let writer = self.lock();
            writer.check_sound()?;
            if index >= writer.next_index {
                return Err(ShardError::Store(StoreError::Poisoned));
            }
            self.follow(writer, index, Ok(()))
        };
        self.settle(Pending { decided, index }).await
    }

    fn failure(&self) -> StoreError {
        self.core.writer.lock().failed.clone().unwrap_or(StoreError::Poisoned)
    }

    pub(super) fn published(&self) -> Arc<dyn Snapshot> {
        Arc::clone(&self.core.published.read())
    }

    pub(super) fn applied(&self) -> watch::Receiver<u64> {
        self.core.applied.subscribe()
    }

    /// Looks after the store; one that is gone takes no more writes.
    pub fn tend(&self) -> Result<(), StoreError> {
        self.core.store.tend()
    }

    /// Lets go of the view that readers get, for the one of now: for as long as one is open, the store keeps what it shows.
    pub(super) fn renew_view(&self) {
        let mut writer = self.core.writer.lock();
        // What is in flight is published when it has landed.
        if writer.in_flight.is_none() && writer.failed.is_none() {
            let base: Arc<dyn Snapshot> = self.core.store.snapshot().into();
            writer.base.advance(Arc::clone(&base), &EMPTY);
            *self.core.published.write() = base;
        }
    }

    pub(super) fn store(&self) -> &dyn Store {
        &*self.core.store
    }

    /// What it has done so far.
    pub fn counts(&self) -> &Counts {
        &self.core.counts
    }

    /// Nobody loads a dump into the namespace any more.
    pub(super) fn end_loading(&self, namespace: &str) {
        self.core.writer.lock().loading.remove(namespace);
    }

    pub(super) fn trim_log(&self, to: u64) -> Appended {
        // Between two batches, so that the log's last record is what its owner believes it to be.
        self.core.log.trim(self.core.epoch, to)
    }

    /// Why it takes no more writes; none if it does.
    pub fn store_failure(&self) -> Option<StoreError> {
        self.is_poisoned().then(|| self.core.store.poison().unwrap_or(StoreError::Poisoned))
    }

    /// True after a failed write.
    pub fn is_poisoned(&self) -> bool {
        // Whoever asks must not have to wait for somebody who decides.
        self.core.store.is_poisoned() || self.core.has_failed.load(Ordering::Acquire)
    }
}

impl Drop for Shard {
    fn drop(&mut self) {
        self.core.writer.lock().stopping = true;
        self.core.work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // Only a panic there could make this fail, and it was reported then.
            let _ = thread.join();
        }
    }
}

impl Core {
    /// Makes one batch durable after the other until the shard is dropped.
    fn keep_committing(&self) {
        while let Some(flight) = self.next_flight() {
            // Those who wait learn of an error; there is nobody else to tell.
            let _ = self.fly(&flight);
        }
    }

    /// Waits for its turn and for a batch, and takes it into flight.
    fn next_flight(&self) -> Option<Flight> {
        let mut writer = self.writer.lock();
        while writer.open.is_empty() || writer.in_flight.is_some() {
            if (writer.stopping && writer.open.is_empty()) || writer.failed.is_some() {
                return None;
            }
            self.work.wait(&mut writer);
        }
        Some(writer.take_off(0))
    }

    /// Makes a batch durable, with one sync, and tells everybody who waits for it.
    fn fly(&self, flight: &Flight) -> Result<(), StoreError> {
        let begun = Instant::now();
        let appended = self.log.append(self.epoch, flight.expected, &flight.batch);
        self.counts.sync_time.observe_duration(begun.elapsed());
        let outcome = match appended {
            Appended::Done => Ok(()),
            Appended::Unknown(error) => Err(error),
            Appended::Fenced(_) | Appended::Moved { .. } => {
                Err(StoreError::Failed("the log has another owner".to_owned()))
            }
        };
        match &outcome {
            Ok(()) => self.publish(),
            Err(error) => self.fail(error),
        }
        outcome
    }

    fn publish(&self) {
        let base: Arc<dyn Snapshot> = self.store.snapshot().into();
        let mut writer = self.writer.lock();
        let applied = State::new(&*base).applied().unwrap_or(writer.durable);
        writer.durable = applied;
        let batch = writer.in_flight.take().expect("a batch was in flight");
        writer.base.advance(Arc::clone(&base), &batch);
        *self.published.write() = base;
        let waiting = std::mem::take(&mut writer.waiting_in_flight);
        let more = !writer.open.is_empty();
        drop(writer);
        if more {
            // If it was a caller who made this batch durable, the thread takes over.
            self.work.notify_one();
        }
        self.counts.batches.add(1);
        self.applied.send_replace(applied);
        for waiter in waiting {
            // Whoever does not wait any more has no use for the answer.
            let _ = waiter.send(());
        }
    }

    /// What is on disk is no longer known: everybody is sent away, now and later.
    fn fail(&self, error: &StoreError) {
        tracing::error!(%error, "write to the log; the shard takes no more writes");
        let mut writer = self.writer.lock();
        writer.failed = Some(error.clone());
        self.has_failed.store(true, Ordering::Release);
        writer.open = Batch::default();
        writer.in_flight = None;
        writer.waiting.clear();
        writer.waiting_in_flight.clear();
        drop(writer);
        self.work.notify_one();
    }
}

/// Whether the caller's thread may wait for the disk: one of several that can stand in for each other.
fn can_block() -> bool {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.is_ok_and(|handle| handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread)
}

impl Writer {
    /// Whether there is a batch, nothing in flight, and nobody to share the sync with: neither now nor the
    /// last few times. Then waking the thread would cost the caller more than doing its work.
    fn is_alone(&self) -> bool {
        let nobody_else = self.in_flight.is_none() && self.waiting.is_empty();
        !self.open.is_empty() && nobody_else && self.lone_syncs >= LONE_SYNCS
    }

    /// Takes the open batch into flight; `leading` callers besides those who wait share its sync.
    fn take_off(&mut self, leading: usize) -> Flight {
        let batch = Arc::new(std::mem::take(&mut self.open));
        self.in_flight = Some(Arc::clone(&batch));
        self.flight_last = self.next_index - 1;
        self.waiting_in_flight = std::mem::take(&mut self.waiting);
        let is_lone = self.waiting_in_flight.len() + leading <= 1;
        self.lone_syncs = if is_lone { self.lone_syncs.saturating_add(1) } else { 0 };
        self.pending_bytes = 0;
        Flight { batch, expected: self.durable }
    }

    /// The last record that was decided on.
    pub(super) fn last(&self) -> u64 {
        self.next_index - 1
    }

    fn check(&self) -> Result<(), ShardError> {
        self.check_sound()?;
        match self.pending_bytes > self.limits.pending_bytes_max {
            true => Err(ShardError::TooMuchPending(self.limits.pending_bytes_max)),
            false => Ok(()),
        }
    }

    /// After a failed write there are no more; that the directory is gone is said every time.
    fn check_sound(&self) -> Result<(), ShardError> {
        match &self.failed {
            None => Ok(()),
            Some(gone @ StoreError::Gone { .. }) => Err(ShardError::Store(gone.clone())),
            Some(_) => Err(ShardError::Store(StoreError::Poisoned)),
        }
    }

    pub(super) fn write(
        &mut self,
        namespace: &str,
        call: &Call,
        rules: &dyn Rules,
        now: Timestamp,
    ) -> Result<Written, ShardError> {
        self.check_not_loading(namespace)?;
        self.check_not_purging(namespace, call.documents())?;
        if let Some(answer) = &call.answer
            && let Some(written) = self.answered(namespace, answer)?
        {
            return Ok(written);
        }
        let limits =
            call.limits.unwrap_or(Limits { document_bytes_max: u64::MAX, fields_per_document_max: u64::MAX });
        self.check_room(namespace)?;
        let index = self.next_index;
        let (entry, batch) = {
            let in_flight = Overlay { below: &self.base, above: self.in_flight.as_deref().unwrap_or(&EMPTY) };
            let below = Overlay { below: &in_flight, above: &self.open };
            let mut fold = Fold::new(&below, index);
            let id = fold.namespace(namespace)?;
            let (written, horizon) = edges(&fold.view(), id)?;
            let position = written.max(self.floor_of(namespace));
            if let Some(latest) = call.latest().filter(|latest| call.refuses_future && *latest > position) {
                return Err(ShardError::Ahead(latest, position));
            }
            // One that was purged goes on where it was, and has nothing in it all the same.
            let is_new = written <= horizon && State::new(&below).namespace(namespace)?.is_none();
            let has_begun = written > Position::START && !is_new;
            let late = call.founding.iter().copied().find(|at| *at > 0 || has_begun);
            // What comes before the one that is too late is judged first.
            let requests = &call.requests[..late.unwrap_or(call.requests.len())];
            let mut view = WriteView {
                fold,
                recent: &mut self.recent,
                seen: RefCell::default(),
                namespace: id,
                position,
                horizon,
                own: Vec::new(),
                left: requests.len(),
            };
            let commits = match decide_all(requests, &mut view, limits, rules, now)? {
                Ok(_) if late.is_some() => return Err(ShardError::NotEmpty(view.position)),
                Ok(commits) if commits.is_empty() => {
                    return Ok(Written { positions: Vec::new(), replayed: false });
                }
                Ok(commits) => commits,
                Err(refused) => return Err(refused.into()),
            };
            let entry =
                Entry::Committed { namespace: namespace.into(), commits, answer: call.answer.clone() };
            let batch = view.fold.finish(&entry)?;
            (entry, batch)
        };
        self.take(batch);
        if let Some(version) = call.version {
            // In the same batch, so there is no moment without it.
            self.record(&Entry::Versioned { namespace: namespace.into(), version })?;
        }
        let Entry::Committed { commits, .. } = entry else { unreachable!("it was just made") };
        Ok(Written { positions: commits.iter().map(|commit| commit.position).collect(), replayed: false })
    }

    /// Whether position locks hold by what was decided so far.
    pub(super) fn judge(&mut self, namespace: &str, locks: Vec<PositionLock>) -> Result<(), ShardError> {
        let in_flight = Overlay { below: &self.base, above: self.in_flight.as_deref().unwrap_or(&EMPTY) };
        let below = Overlay { below: &in_flight, above: &self.open };
        let mut fold = Fold::new(&below, self.next_index);
        let id = fold.namespace(namespace)?;
        let (written, horizon) = edges(&fold.view(), id)?;
        let position = written.max(self.floor_of(namespace));
        let view = WriteView {
            fold,
            recent: &mut self.recent,
            seen: RefCell::default(),
            namespace: id,
            position,
            horizon,
            own: Vec::new(),
            left: 0,
        };
        let request = Request { locks, ..Request::default() };
        let limits = Limits { document_bytes_max: u64::MAX, fields_per_document_max: u64::MAX };
        decide(&request, &view, limits, &NoRules, Timestamp(0))?.map(drop).map_err(ShardError::from)
    }

    /// A namespace that is new must be one of not too many.
    fn check_room(&self, namespace: &str) -> Result<(), ShardError> {
        let namespaces_max = self.limits.namespaces_max;
        self.look(|state| {
            if state.namespace(namespace)?.is_none() && state.namespaces()?.len() as u64 >= namespaces_max {
                return Err(ShardError::TooManyNamespaces(namespaces_max));
            }
            Ok(())
        })
    }

    /// What was answered to the same call before.
    pub(super) fn answered(
        &self,
        namespace: &str,
        answer: &lockwood_storage::Answer,
    ) -> Result<Option<Written>, ShardError> {
        self.look(|state| {
            let Some(id) = state.namespace(namespace)? else { return Ok(None) };
            let Some(answered) = state.answer(id, &answer.key)? else { return Ok(None) };
            if answered.fingerprint != answer.fingerprint {
                return Err(ShardError::IdempotencyMismatch);
            }
            let positions = (answered.first.0..=answered.last.0).map(Position).collect();
            Ok(Some(Written { positions, replayed: true }))
        })
    }

    pub(super) fn reserve(
        &mut self,
        namespace: &str,
        collection: &str,
        amount: u64,
        ids: RangeInclusive<u64>,
    ) -> Result<u64, ShardError> {
        self.check_not_loading(namespace)?;
        self.check_collection_not_purging(namespace, collection)?;
        let first: u64 = self.look(|state| match state.namespace(namespace)? {
            None => Ok::<_, ShardError>(1),
            Some(id) => Ok(state.next_id(id, collection)?),
        })?;
        let first = first.max(*ids.start());
        let next = first.checked_add(amount).filter(|next| *next - 1 <= *ids.end());
        let next = next.ok_or(ShardError::NoIdsLeft)?;
        self.record(&Entry::Reserved { namespace: namespace.into(), collection: collection.into(), next })?;
        Ok(first)
    }

    /// Looks and records under one lock, so that nothing comes between what is there and what is made of it.
    pub(super) fn keep(
        &mut self,
        namespace: &str,
        keep: Keep,
        limits: Limits,
        rules: &dyn Rules,
    ) -> Result<(), ShardError> {
        self.check_not_loading(namespace)?;
        self.check_not_purging(namespace, keep.documents())?;
        let entry = match keep {
            Keep::Merge(at, given) => {
                let stored = self.kept(namespace, &at)?.unwrap_or_else(Document::unborn);
                // What only loses fields becomes no larger.
                if given.iter().any(|(_, value)| !value.is_null()) {
                    let mut fields: BTreeMap<&str, &Json> = stored.present().collect();
                    fields.extend(given.iter().map(|(name, value)| (&**name, value)));
                    limits.check(&at, fields.into_iter().filter(|(_, value)| !value.is_null()))?;
                }
                let mut fields: BTreeMap<Box<str>, Json> =
                    stored.present().map(|(name, value)| (name.into(), value.clone())).collect();
                fields.extend(given.iter().cloned());
                fields.retain(|_, value| !value.is_null());
                rules.check(&at, &document_of(fields.into_iter().collect()))?;
                rules.finish()?;
                let (removed, set): (Vec<_>, Vec<_>) =
                    given.into_iter().partition(|(_, value)| value.is_null());
                let removed = removed.into_iter().map(|(name, _)| name).collect();
                Entry::Merged { namespace: namespace.into(), at, set, removed }
            }
            Keep::Remove(removed) => {
                removed.iter().try_for_each(|at| self.kept(namespace, at).map(drop))?;
                Entry::Kept { namespace: namespace.into(), put: Vec::new(), removed }
            }
        };
        self.record(&entry)
    }

    /// A document without positions, if it is there.
    fn kept(&self, namespace: &str, at: &DocumentKey) -> Result<Option<Document>, ShardError> {
        self.look(|state| {
            let Some(id) = state.namespace(namespace)? else { return Ok(None) };
            match state.document(id, at)? {
                Some(document) if document.is_born() => Err(ShardError::HasPositions(at.clone())),
                found => Ok(found),
            }
        })
    }

    pub(super) fn record(&mut self, entry: &Entry) -> Result<(), ShardError> {
        match entry.namespace() {
            Some(namespace) if !matches!(entry, Entry::Emptied { .. } | Entry::Loading { .. }) => {
                self.check_room(namespace)?;
            }
            _ => {}
        }
        let batch = {
            let in_flight = Overlay { below: &self.base, above: self.in_flight.as_deref().unwrap_or(&EMPTY) };
            let below = Overlay { below: &in_flight, above: &self.open };
            let mut fold = Fold::new(&below, self.next_index);
            fold.apply(entry)?;
            fold.finish(entry)?
        };
        self.take(batch);
        if let Entry::Committed { namespace, .. } | Entry::Loaded { namespace, .. } = entry {
            self.forget_recent(namespace)?;
        }
        Ok(())
    }

    /// What comes as a whole record is not noted document by document. The number of a namespace may have
    /// been noted all the same: a call that was refused gave it to a namespace that never came to be.
    pub(super) fn forget_recent(&mut self, namespace: &str) -> Result<(), ShardError> {
        if let Some(id) = self.look(|state| Ok(state.namespace(namespace)?))? {
            self.recent.forget(id.0);
        }
        Ok(())
    }

    /// Changes of the state that no record stands for: they can be made again from what is there.
    pub(super) fn derive(
        &mut self,
        change: impl FnOnce(State<'_>, &mut Batch) -> Result<(), StoreError>,
    ) -> Result<(), ShardError> {
        let mut batch = Batch::default();
        self.look(|state| change(state, &mut batch).map_err(ShardError::from))?;
        self.open.absorb(batch);
        Ok(())
    }

    /// Writes records anew that were there before.
    pub(super) fn rewrite(&mut self, batch: Batch) {
        self.pending_bytes += batch.bytes();
        self.open.absorb(batch);
    }

    /// Asks the state as deciding sees it.
    pub(super) fn look<T>(
        &self,
        question: impl FnOnce(State<'_>) -> Result<T, ShardError>,
    ) -> Result<T, ShardError> {
        let in_flight = Overlay { below: &self.base, above: self.in_flight.as_deref().unwrap_or(&EMPTY) };
        let view = Overlay { below: &in_flight, above: &self.open };
        question(State::new(&view))
    }

    fn take(&mut self, batch: Batch) {
        self.pending_bytes += batch.bytes();
        self.next_index += 1;
        self.open.absorb(batch);
    }
}

/// A document with these fields.
fn document_of(fields: Vec<FieldValue>) -> Document {
    let mut document = Document::unborn();
    document.apply(&Change::Created { fields }, Position::START.next());
    document
}

/// Works for long where that keeps nobody else waiting for the thread.
pub fn in_place<T>(work: impl FnOnce() -> T) -> T {
    if can_block() { tokio::task::block_in_place(work) } else { work() }
}

static EMPTY: Batch = Batch::new();

fn edges(view: &dyn Snapshot, namespace: NamespaceId) -> Result<(Position, Position), StoreError> {
    let state = State::new(view);
    Ok((state.position(namespace)?, state.horizon(namespace)?))
}
