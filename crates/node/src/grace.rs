//! Grace: which namespaces grant nothing because locks of an earlier run may still be in use, and how long the locks of
//! this run could outlive it. Knows nothing of protocols, nor of what the locks are on.
//!
//! For each namespace the ledger has a *cover*, never less than the largest abandon timeout of a session that holds a
//! lock there. The first grant that needs more than the cover waits, before its client is told, until more is on
//! record; all later ones find it there. Nobody lowers a cover when a lock is released: the looks of [`keep_low`] do,
//! and only after a whole interval without a grant that needed it.
//!
//! What a run finds as covers become *periods*: their namespaces are frozen for that long. How much of the periods is
//! over is measured by a clock that only counts while the server runs, and noted every [`TICK`]; so a restart goes on
//! with what is left, and a wall clock that jumps neither shortens nor lengthens anything.
//!
//! A planned stop notes which sessions hold locks. A period whose holders are known ends when all of them are back.

use crate::{authority::Authority, kernel::Kernel, namespace::Namespace};
use lockwood_storage::{GraceBook, GraceRecord, Ledger, StoreError};
use lockwood_wire::GraceInfo;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How often covers that are larger than need be are looked for.
const LOWER_INTERVAL: Duration = Duration::from_secs(2);
/// How often it is noted how much of the periods is over: a crash loses no more than this of what was waited out.
const TICK: Duration = Duration::from_millis(500);
/// More holders than this in a namespace are not noted; its period then lasts as long as it may.
const HOLDERS_LEN_MAX: usize = 10_000;

/// The grace periods of one log: those that run, and what is on record for the next start.
pub struct Grace {
    ledger: Arc<Ledger>,
    started: Instant,
    /// While it is not fresh, sessions cannot come back: that time does not count.
    authority: Arc<Authority>,
    /// For how long it was not fresh before.
    stale_before_ms: u64,
    /// False once all periods are over: whoever asks then need not look into the book.
    active: AtomicBool,
    /// Locked after the registry and after any namespace.
    book: Mutex<Book>,
    /// The sessions that are not back, of namespaces in which it is known who they are.
    awaited: Mutex<BTreeMap<Arc<str>, BTreeSet<String>>>,
    /// Held from the decision what to write until it is written, so that writes arrive in order.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// What is on record for one namespace. Shared by the book and the namespace, for as long as either is there.
#[derive(Debug, Default)]
pub struct Cover {
    /// Durable. Raised after the write; lowered before it, under the mutex of the namespace.
    recorded_ms: AtomicU64,
    /// The largest abandon timeout of a session that was granted a lock since the last look, more or less: it only keeps
    /// a cover from being lowered too eagerly.
    recent_ms: AtomicU64,
}

/// Has an entry for every namespace that has a record.
#[derive(Default)]
struct Book {
    /// The period of namespaces without an entry; 0 if there is none.
    everywhere_ms: u64,
    entries: BTreeMap<Arc<str>, Entry>,
}

#[derive(Default)]
struct Entry {
    /// Counted from the start of this run; 0 if there is none, or no longer.
    period_ms: u64,
    cover: Arc<Cover>,
    /// What the cover is to become, if that is more.
    wanted_ms: u64,
}

type Record = (Arc<str>, Option<GraceRecord>);

impl Cover {
    /// A session with this abandon timeout holds a lock now: whether more has to be recorded before it is told.
    pub fn granted(&self, timeout_ms: u64) -> bool {
        if timeout_ms > self.recent_ms.load(Ordering::Relaxed) {
            self.recent_ms.store(timeout_ms, Ordering::Relaxed);
        }
        self.lacks(timeout_ms)
    }

    /// Whether less is on record than this.
    pub(crate) fn lacks(&self, timeout_ms: u64) -> bool {
        timeout_ms > self.recorded_ms.load(Ordering::Acquire)
    }

    /// Whether less than what is on record would be too little for this.
    pub(crate) fn is_needed_by(&self, timeout_ms: u64) -> bool {
        timeout_ms >= self.recorded_ms.load(Ordering::Acquire)
    }

    /// Gives up what is not needed any more; true if that is some. Under the mutex of the namespace.
    fn lower(&self, held_ms: u64, patience: Patience) -> bool {
        let recent_ms = self.recent_ms.swap(0, Ordering::Relaxed);
        let needed_ms = match patience {
            Patience::Interval => held_ms.max(recent_ms),
            Patience::None => held_ms,
        };
        // Before the write: whoever is granted a lock from here on sees this and waits for its own write.
        needed_ms < self.recorded_ms.fetch_min(needed_ms, Ordering::AcqRel)
    }
}

/// Whether a cover outlives the last lock that needed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    Interval,
    None,
}

impl Book {
    fn period_ms(&self, name: &str) -> u64 {
        self.entries.get(name).map_or(self.everywhere_ms, |entry| entry.period_ms)
    }

    /// The entry of a namespace, made if need be with the period it has anyway.
    fn entry(&mut self, name: &Arc<str>, cover: &Arc<Cover>) -> &mut Entry {
        let period_ms = self.everywhere_ms;
        let entry = || Entry { period_ms, cover: Arc::clone(cover), wanted_ms: 0 };
        self.entries.entry(Arc::clone(name)).or_insert_with(entry)
    }

    /// What is to be on record; forgets an entry of which that is nothing. Whoever wants more says so again when it is
    /// its turn.
    fn record(&mut self, name: &Arc<str>) -> Record {
        let Some(entry) = self.entries.get_mut(name) else { return (Arc::clone(name), None) };
        entry.wanted_ms = 0;
        let cover_ms = entry.cover.recorded_ms.load(Ordering::Acquire);
        let record = GraceRecord { period_ms: entry.period_ms, cover_ms };
        // An exception of what holds everywhere else is something too.
        if record == GraceRecord::default() && self.everywhere_ms == 0 {
            self.entries.remove(name);
            return (Arc::clone(name), None);
        }
        (Arc::clone(name), Some(record))
    }

    fn is_active(&self) -> bool {
        self.everywhere_ms > 0 || self.entries.values().any(|entry| entry.period_ms > 0)
    }

    fn take_due(&mut self, elapsed_ms: u64) -> Over {
        let due = |period_ms: u64| 0 < period_ms && period_ms <= elapsed_ms;
        let everywhere = due(self.everywhere_ms);
        if everywhere {
            self.everywhere_ms = 0;
        }
        let mut namespaces = Vec::new();
        for (name, entry) in &mut self.entries {
            let is_due = due(entry.period_ms);
            if is_due {
                entry.period_ms = 0;
            }
            if is_due || everywhere {
                namespaces.push(Arc::clone(name));
            }
        }
        let ends = self.entries.values().map(|entry| entry.period_ms).chain([self.everywhere_ms]);
        let next_ms = ends.filter(|period_ms| *period_ms > 0).min();
        let next = next_ms.map(|end_ms| Duration::from_millis(end_ms - elapsed_ms).min(TICK));
        Over { namespaces, everywhere, next }
    }
}

/// Periods that are over.
struct Over {
    /// Whose record is another one now.
    namespaces: Vec<Arc<str>>,
    /// Whether it is that of namespaces without a record.
    everywhere: bool,
    /// When to look again; none if no period is left.
    next: Option<Duration>,
}

impl Grace {
    /// Continues with what the ledger had.
    pub fn start(
        ledger: Arc<Ledger>,
        found: &GraceBook,
        authority: Arc<Authority>,
    ) -> Result<Grace, StoreError> {
        let begun = found.begun();
        if *found != GraceBook::default() {
            ledger.begin_grace(found, &begun)?;
        }
        let entry = |(name, record): (Arc<str>, GraceRecord)| {
            (name, Entry { period_ms: record.period_ms, ..Entry::default() })
        };
        let entries = begun.namespaces.into_iter().map(entry).collect();
        let book = Book { everywhere_ms: begun.everywhere_ms, entries };
        let awaited = found.holders.iter().filter(|(name, _)| book.period_ms(name) > 0);
        let awaited = awaited.map(|(name, sessions)| (Arc::clone(name), sessions.iter().cloned().collect()));
        Ok(Grace {
            awaited: Mutex::new(awaited.collect()),
            ledger,
            started: Instant::now(),
            stale_before_ms: authority.stale_ms(),
            authority,
            active: AtomicBool::new(book.is_active()),
            book: Mutex::new(book),
            turn: Arc::default(),
        })
    }

    /// How long a namespace still grants nothing. Until it is declared over, a period is not, even if its time has come.
    pub fn left_ms(&self, name: &str) -> u64 {
        if !self.active.load(Ordering::Acquire) {
            return 0;
        }
        self.left_of(self.book.lock().period_ms(name))
    }

    /// How long namespaces still grant nothing that no list names.
    pub fn everywhere_left_ms(&self) -> u64 {
        self.left_of(self.book.lock().everywhere_ms)
    }

    /// All namespaces that grant nothing yet.
    pub fn list(&self) -> Vec<GraceInfo> {
        if !self.active.load(Ordering::Acquire) {
            return Vec::new();
        }
        let book = self.book.lock();
        let info = |namespace: Option<&Arc<str>>, period_ms: u64| GraceInfo {
            namespace: namespace.map(|name| name.to_string()),
            left_ms: self.left_of(period_ms),
        };
        let named = book.entries.iter().map(|(name, entry)| info(Some(name), entry.period_ms));
        let all = named.chain([info(None, book.everywhere_ms)]);
        all.filter(|info| info.left_ms > 0).collect()
    }

    /// By namespace, how long it would have to be waited for its locks if the server died now.
    pub(crate) fn covers(&self) -> Vec<(Arc<str>, u64)> {
        let book = self.book.lock();
        let covers = book
            .entries
            .iter()
            .map(|(name, entry)| (Arc::clone(name), entry.cover.recorded_ms.load(Ordering::Acquire)));
        covers.filter(|(_, cover_ms)| *cover_ms > 0).collect()
    }

    fn left_of(&self, period_ms: u64) -> u64 {
        match period_ms {
            0 => 0,
            period_ms => period_ms.saturating_sub(self.elapsed_ms()).max(1),
        }
    }

    fn elapsed_ms(&self) -> u64 {
        let ran_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        ran_ms.saturating_sub(self.authority.stale_ms().saturating_sub(self.stale_before_ms))
    }

    /// What a new namespace of this name starts with.
    pub(crate) fn cover_of(&self, name: &str) -> Arc<Cover> {
        self.book.lock().entries.get(name).map(|entry| Arc::clone(&entry.cover)).unwrap_or_default()
    }

    /// Once this returns, a session with this abandon timeout may be told of a lock that it holds.
    pub(crate) async fn cover(
        self: &Arc<Grace>,
        namespace: &Namespace,
        timeout_ms: u64,
    ) -> Result<(), StoreError> {
        let (name, cover) = (Arc::clone(&namespace.name), Arc::clone(&namespace.cover));
        self.want(&name, &cover, timeout_ms);
        self.in_turn(move |grace| {
            if !cover.lacks(timeout_ms) {
                return Ok(());
            }
            grace.want(&name, &cover, timeout_ms);
            grace.raise()
        })
        .await
    }

    fn want(&self, name: &Arc<str>, cover: &Arc<Cover>, timeout_ms: u64) {
        let mut book = self.book.lock();
        let entry = book.entry(name, cover);
        // An entry that was there before its namespace came into use has another one, with nothing in it.
        entry.cover = Arc::clone(cover);
        entry.wanted_ms = entry.wanted_ms.max(timeout_ms);
    }

    /// Raises all covers that are to be raised, with one write.
    fn raise(&self) -> Result<(), StoreError> {
        let raised: Vec<(Arc<Cover>, u64, Record)> = {
            let mut book = self.book.lock();
            let lacking = book.entries.iter_mut().filter(|(_, entry)| entry.cover.lacks(entry.wanted_ms));
            lacking
                .map(|(name, entry)| {
                    let wanted_ms = std::mem::take(&mut entry.wanted_ms);
                    let record = GraceRecord { period_ms: entry.period_ms, cover_ms: wanted_ms };
                    (Arc::clone(&entry.cover), wanted_ms, (Arc::clone(name), Some(record)))
                })
                .collect()
        };
        let records: Vec<Record> = raised.iter().map(|(_, _, record)| record.clone()).collect();
        self.ledger.record_grace(&records)?;
        for (cover, wanted_ms, _) in raised {
            cover.recorded_ms.store(wanted_ms, Ordering::Release);
        }
        Ok(())
    }

    /// A session has a connection, and has put back what it held. Its namespace grants again if it was the last one.
    pub(crate) fn came_back(self: &Arc<Grace>, kernel: &Arc<Kernel>, name: &Arc<str>, session: &str) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let mut awaited = self.awaited.lock();
        let is_last = awaited.get_mut(name).is_some_and(|left| left.remove(session) && left.is_empty());
        if !is_last {
            return;
        }
        awaited.remove(name);
        drop(awaited);
        let (grace, kernel, name) = (Arc::clone(self), Arc::clone(kernel), Arc::clone(name));
        tokio::spawn(async move {
            match grace.end(&kernel, &name).await {
                Ok(left_ms) => {
                    tracing::info!(namespace = ?name, ?left_ms, "all sessions are back, so the grace period is over");
                }
                Err(error) => tracing::error!(%error, "end a grace period"),
            }
        });
    }

    /// The sessions that may hold locks when this run ends, of namespaces in which all of them can come back.
    fn holders(&self, kernel: &Kernel) -> Vec<(Arc<str>, Vec<String>)> {
        let mut found = Vec::new();
        for namespace in kernel.registry.all() {
            let awaited = self.awaited.lock().get(&namespace.name).cloned();
            if awaited.is_none() && self.left_ms(&namespace.name) > 0 {
                // It is not known who has not come back.
                continue;
            }
            let Some(mut sessions) = namespace.holders(HOLDERS_LEN_MAX) else { continue };
            sessions.extend(awaited.into_iter().flatten());
            if !sessions.is_empty() {
                found.push((Arc::clone(&namespace.name), sessions.into_iter().collect()));
            }
        }
        found
    }

    /// What a namespace takes along when its locks are decided elsewhere from now on: how long it grants nothing yet, and the
    /// sessions that are to come back, if they are known.
    pub fn of(&self, name: &str) -> (u64, Option<Vec<String>>) {
        let awaited = self.awaited.lock().get(name).map(|left| left.iter().cloned().collect());
        (self.left_ms(name), awaited)
    }

    /// Notes for the next run what a namespace brings along whose locks are decided here from then on. In this run it has none.
    pub async fn expect(
        self: &Arc<Grace>,
        name: &str,
        (cover_ms, holders): (u64, Option<Vec<String>>),
    ) -> Result<(), StoreError> {
        let name: Arc<str> = name.into();
        self.in_turn(move |grace| {
            // The end of an earlier period would take the record away, and its sessions would be noted at the end of this run.
            grace.book.lock().entries.remove(&name);
            grace.awaited.lock().remove(&name);
            let record = (cover_ms > 0).then_some(GraceRecord { period_ms: 0, cover_ms });
            grace.ledger.replace_grace(&name, record, holders.as_deref())
        })
        .await
    }

    /// Ends the period of a namespace; how much of it was left. None if there is none.
    pub async fn end(self: &Arc<Grace>, kernel: &Arc<Kernel>, name: &str) -> Result<Option<u64>, StoreError> {
        let (name, kernel): (Arc<str>, _) = (name.into(), Arc::clone(kernel));
        self.in_turn(move |grace| {
            let left_ms = grace.left_ms(&name);
            if left_ms == 0 {
                return Ok(None);
            }
            let record = {
                let cover = kernel.registry.get(&name).map(|namespace| Arc::clone(&namespace.cover));
                let mut book = grace.book.lock();
                book.entry(&name, &cover.unwrap_or_default()).period_ms = 0;
                book.record(&name)
            };
            grace.ledger.record_grace(&[record])?;
            grace.ended(&kernel, |namespace| namespace.name == name);
            Ok(Some(left_ms))
        })
        .await
    }

    /// Some periods are over: namespaces they concern grant again.
    fn ended(&self, kernel: &Kernel, concerns: impl Fn(&Namespace) -> bool) {
        self.active.store(self.book.lock().is_active(), Ordering::Release);
        for namespace in kernel.registry.all() {
            if concerns(&namespace) && self.left_ms(&namespace.name) == 0 {
                namespace.thaw(kernel);
            }
        }
    }

    /// Ends the periods whose time has come.
    fn end_due(&self, kernel: &Kernel) -> Over {
        let elapsed_ms = self.elapsed_ms();
        let over = self.book.lock().take_due(elapsed_ms);
        if over.everywhere || !over.namespaces.is_empty() {
            self.ended(kernel, |_| true);
            tracing::info!(namespaces = ?over.namespaces, everywhere = over.everywhere, "the grace period is over");
        }
        over
    }

    /// Notes which periods are over, and how much of the others.
    fn note(&self, over: &Over) -> Result<(), StoreError> {
        if over.everywhere {
            self.ledger.end_grace_everywhere()?;
        }
        if !over.namespaces.is_empty() {
            let mut book = self.book.lock();
            let records: Vec<Record> = over.namespaces.iter().map(|name| book.record(name)).collect();
            drop(book);
            self.ledger.record_grace(&records)?;
        }
        match over.next {
            Some(_) => self.ledger.set_grace_elapsed(self.elapsed_ms()),
            None => Ok(()),
        }
    }

    /// Lowers covers that are larger than what is held needs.
    fn lower(&self, kernel: &Kernel, patience: Patience) -> Result<(), StoreError> {
        let covers: Vec<(Arc<str>, Arc<Cover>)> = {
            let book = self.book.lock();
            let covered = book.entries.iter().filter(|(_, entry)| !entry.cover.lacks(1));
            covered.map(|(name, entry)| (Arc::clone(name), Arc::clone(&entry.cover))).collect()
        };
        let lowered = covers.iter().filter(|(name, cover)| {
            let (registry, lower) = (&kernel.registry, |held_ms| cover.lower(held_ms, patience));
            match registry.get(name) {
                Some(namespace) => namespace.lower_cover(lower),
                None => registry.while_unused(name, || lower(0)).unwrap_or(false),
            }
        });
        let lowered: Vec<&(Arc<str>, Arc<Cover>)> = lowered.collect();
        if lowered.is_empty() {
            return Ok(());
        }
        let records: Vec<Record> = lowered.iter().map(|(name, _)| self.book.lock().record(name)).collect();
        self.ledger.record_grace(&records)
    }

    /// Notes what is still held at the end, and what is left of the periods.
    pub async fn close(self: &Arc<Grace>, kernel: &Arc<Kernel>) -> Result<(), StoreError> {
        let kernel = Arc::clone(kernel);
        self.in_turn(move |grace| {
            grace.lower(&kernel, Patience::None)?;
            grace.ledger.record_holders(&grace.holders(&kernel))?;
            match grace.active.load(Ordering::Acquire) {
                true => grace.ledger.set_grace_elapsed(grace.elapsed_ms()),
                false => Ok(()),
            }
        })
        .await
    }

    /// Does something that writes, when it is its turn. It is brought to an end even if nobody waits for it any more.
    async fn in_turn<T: Send + 'static>(
        self: &Arc<Grace>,
        work: impl FnOnce(&Grace) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let grace = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&grace)
        });
        work.await.unwrap_or(Err(StoreError::Poisoned))
    }
}

/// Ends periods when their time has come, whether or not the disk takes a note of it.
pub async fn keep_time(kernel: Arc<Kernel>) {
    let mut is_noted = true;
    while kernel.grace.active.load(Ordering::Acquire) {
        let (grace, ticking) = (Arc::clone(&kernel.grace), Arc::clone(&kernel));
        let ticked = grace.in_turn(move |grace| {
            let over = grace.end_due(&ticking);
            let noted = if is_noted { grace.note(&over) } else { Ok(()) };
            Ok((over.next, noted))
        });
        let Ok((next, noted)) = ticked.await else { return };
        if let Err(error) = noted {
            is_noted = false;
            tracing::error!(%error, "note how much of a grace period is over");
        }
        tokio::time::sleep(next.unwrap_or(TICK)).await;
    }
}

/// Lowers covers when less is needed. Ends when the disk fails.
pub async fn keep_low(kernel: Arc<Kernel>) {
    loop {
        tokio::time::sleep(LOWER_INTERVAL).await;
        let (grace, lowering) = (Arc::clone(&kernel.grace), Arc::clone(&kernel));
        if let Err(error) = grace.in_turn(move |grace| grace.lower(&lowering, Patience::Interval)).await {
            return tracing::error!(%error, "lower what locks are covered with");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_locks::LockTable;
    use lockwood_storage::Memory;

    fn open(memory: &Memory) -> (Arc<Grace>, GraceBook) {
        let (ledger, recovered) = Ledger::open(Arc::new(memory.clone()), [1; 32]).unwrap();
        (
            Arc::new(Grace::start(Arc::new(ledger), &recovered.grace, Arc::new(Authority::sole())).unwrap()),
            recovered.grace,
        )
    }

    fn namespace(grace: &Grace, name: &str) -> Namespace {
        Namespace::new(name.into(), LockTable::new(1, 0), (0, grace.cover_of(name)), None)
    }

    #[tokio::test]
    async fn only_a_grant_that_needs_more_than_is_on_record_writes() {
        let memory = Memory::default();
        let (grace, _) = open(&memory);
        let a = namespace(&grace, "a");
        for (timeout_ms, writes) in
            [(0, false), (60, true), (60, false), (10, false), (90, true), (90, false)]
        {
            assert_eq!(a.cover.granted(timeout_ms), writes, "{timeout_ms}");
            if writes {
                grace.cover(&a, timeout_ms).await.unwrap();
            }
        }
        // The namespace is gone and comes back.
        assert!(!namespace(&grace, "a").cover.granted(90));
        assert!(namespace(&grace, "b").cover.granted(90));
        let (_, found) = open(&memory);
        assert_eq!(found.namespaces, [("a".into(), GraceRecord { period_ms: 0, cover_ms: 90 })]);
    }

    #[tokio::test]
    async fn covers_wanted_at_once_are_raised_together() {
        let (grace, _) = open(&Memory::default());
        let (a, b) = (namespace(&grace, "a"), namespace(&grace, "b"));
        grace.want(&b.name, &b.cover, 20);
        grace.cover(&a, 10).await.unwrap();
        assert!(!a.cover.lacks(10) && !b.cover.lacks(20));
    }

    /// A shard that is to be the home may have expected others before, of an attempt that failed.
    #[tokio::test]
    async fn what_a_namespace_brings_along_replaces_what_it_had() {
        let memory = Memory::default();
        let holders = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        open(&memory).0.expect("a", (60_000, holders(&["s1"]))).await.unwrap();
        let (grace, _) = open(&memory);
        assert!(grace.left_ms("a") > 0 && grace.of("a").1 == holders(&["s1"]));
        grace.expect("a", (900_000, holders(&["s2"]))).await.unwrap();
        assert_eq!(grace.of("a"), (0, None), "nothing is expected in this run");
        let (grace, _) = open(&memory);
        assert!(grace.left_ms("a") > 60_000 && grace.of("a").1 == holders(&["s2"]));
        grace.expect("a", (0, None)).await.unwrap();
        assert_eq!(open(&memory).0.of("a"), (0, None));
    }

    #[test]
    fn a_cover_outlives_its_last_lock_by_an_interval() {
        let cover = Cover::default();
        cover.recorded_ms.store(60, Ordering::Release);
        cover.granted(60);
        assert!(!cover.lower(0, Patience::Interval), "it was needed since the last look");
        assert!(!cover.lower(60, Patience::Interval), "it is needed now");
        assert!(cover.lower(0, Patience::Interval));
        assert!(cover.lacks(1));
    }

    #[test]
    fn a_period_of_all_namespaces_has_exceptions() {
        let book = GraceBook { everywhere_ms: 60_000, ..GraceBook::default() };
        let (ledger, _) = Ledger::open(Arc::new(Memory::default()), [1; 32]).unwrap();
        let grace = Grace::start(Arc::new(ledger), &book, Arc::new(Authority::sole())).unwrap();
        grace.book.lock().entry(&"a".into(), &Arc::default()).period_ms = 0;
        assert_eq!(grace.left_ms("a"), 0);
        assert!(grace.left_ms("b") > 1000 && grace.everywhere_left_ms() > 1000);
        assert_eq!(grace.list().len(), 1);
        assert!(grace.book.lock().record(&"a".into()).1.is_some(), "an exception stays on record");
        let over = grace.book.lock().take_due(60_000);
        assert!(over.everywhere && over.next.is_none());
        assert_eq!(grace.left_ms("b"), 0);
        assert_eq!(grace.book.lock().record(&"a".into()).1, None);
    }
}
