//! What the table shows of itself: locks, places in the queue, blockers, nodes and intents. Changes nothing.

use crate::{
    entry::{Class, EntryKey, LockKey, Order, Place},
    entry_set::Kind,
    lock::{Deadline, Pending, State},
    outcome::{Claimed, LockView, NodeView, Standing},
    table::{BLOCKERS_LEN_MAX, LockTable},
    tree::{Among, NodeKey},
};
use lockwood_model::{LockId, Mode, OwnerId, Path, Resource, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// How many conflicts are looked at to say where a lock stands. Beyond that the figures are lower bounds; a
/// lock on very many resources in a very long queue must not keep everyone else waiting.
const LOOKS_MAX: usize = 200_000;
/// How many bytes of paths a view of nodes holds.
const NODES_BYTES_MAX: usize = 4 << 20;

/// Locks in the way of a lock, each once.
#[derive(Default)]
struct Blockers {
    locks: BTreeSet<LockKey>,
    looks: usize,
}

impl LockTable {
    /// One lock.
    pub fn view(&self, lock: LockId) -> Option<LockView> {
        self.by_id.get(&lock).map(|key| self.view_of(*key))
    }

    /// One lock with no more than so many of its resources.
    pub fn brief(&self, lock: LockId, resources_max: usize) -> Option<LockView> {
        self.by_id.get(&lock).map(|key| self.view_with(*key, resources_max))
    }

    /// All locks after `after`, in the order they were asked for.
    pub fn views(&self, after: Option<LockId>) -> impl Iterator<Item = LockView> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_id.range((start, Bound::Unbounded)).map(|(_, key)| self.view_of(*key))
    }

    /// The locks of one owner.
    pub fn owned(&self, owner: OwnerId) -> impl Iterator<Item = LockView> {
        let locks = self.owners.get(&owner).map(|owner| &owner.locks[..]).unwrap_or_default();
        locks.iter().map(|key| self.view_of(*key))
    }

    /// The locks whose waiting, or that of their conversion, ends by `now`.
    pub fn due(&self, now: Timestamp) -> impl Iterator<Item = LockView> {
        let due = self.deadlines.iter().take_while(move |(at, _)| *at <= now);
        due.filter_map(|(_, deadline)| match deadline {
            Deadline::Wait(lock) | Deadline::Conversion(lock) => self.view(*lock),
            Deadline::Expiry(_) | Deadline::Owner(_) => None,
        })
    }

    /// Whose lock it is.
    pub fn owner_of(&self, lock: LockId) -> Option<OwnerId> {
        self.by_id.get(&lock).map(|key| self.lock_of(*key).owner)
    }

    /// Where a lock, or its conversion, stands in line; nothing if it does not wait.
    pub fn standing(&self, lock: LockId) -> Option<Standing> {
        let key = *self.by_id.get(&lock)?;
        let blockers = self.blocking_locks(key)?;
        let waiting = blockers.iter().filter(|key| self.lock_of(**key).is_waiting()).count();
        Some(Standing { place: waiting + 1, blockers: self.name(&blockers), blockers_len: blockers.len() })
    }

    /// The locks that a lock, or its conversion, waits for.
    pub fn blockers(&self, lock: LockId) -> Vec<LockId> {
        let blocking = self.by_id.get(&lock).and_then(|key| self.blocking_locks(*key)).unwrap_or_default();
        blocking.into_iter().map(|key| self.lock_of(key).id).collect()
    }

    /// Every pair of a waiting lock and a lock it waits for, up to `pairs_len_max` of them.
    pub fn waits(&self, pairs_len_max: usize) -> Vec<(LockId, LockId)> {
        let mut pairs = Vec::new();
        for (id, key) in &self.by_id {
            for blocker in self.blocking_locks(*key).unwrap_or_default() {
                if pairs.len() == pairs_len_max {
                    return pairs;
                }
                pairs.push((*id, self.lock_of(blocker).id));
            }
        }
        pairs
    }

    /// The nodes at and below `path` with claims on them, and all their ancestors, in the order of their
    /// paths. Looks at no more than `claims_len_max` claims, and stops early where paths are very long.
    pub fn nodes(&self, path: &Path, claims_len_max: usize) -> Vec<NodeView> {
        let Some(top) = self.tree.find(path) else { return Vec::new() };
        let keys: Vec<EntryKey> =
            self.tree.here(top).iter().chain(self.tree.below(top).iter()).take(claims_len_max).collect();
        let mut views: BTreeMap<Path, NodeView> = BTreeMap::new();
        let mut bytes = 0;
        for key in keys {
            let entry = self.entry(key);
            let path = self.tree.path(entry.node);
            // All of its ancestors may need a view, each with its own path.
            bytes += path.segments().map(str::len).sum::<usize>() * (path.len() + 1);
            if bytes > NODES_BYTES_MAX {
                break;
            }
            let node = match entry.mode.on_child_list() {
                true => self.tree.parent(entry.node).expect("a child list has a node"),
                false => entry.node,
            };
            let view = views.entry(path).or_insert_with_key(|path| self.node_view(node, path.clone()));
            view.claims.push(Claimed {
                lock: self.lock_of(entry.lock).id,
                owner: entry.owner,
                mode: entry.mode,
                depth: entry.depth,
                granted: entry.granted(),
            });
            self.add_ancestors(node, &mut views);
        }
        for view in views.values_mut() {
            view.claims.sort_by_key(|claim| (!claim.granted, claim.lock, claim.mode));
        }
        views.into_values().collect()
    }

    /// How many claims there are at and below `path`.
    pub fn claims_len(&self, path: &Path) -> usize {
        self.tree.find(path).map_or(0, |top| self.tree.here(top).len() + self.tree.below(top).len())
    }

    fn add_ancestors(&self, node: NodeKey, views: &mut BTreeMap<Path, NodeView>) {
        let mut current = node;
        while let Some(parent) = self.tree.parent(current) {
            let path = self.tree.path(parent);
            if views.contains_key(&path) {
                return;
            }
            views.insert(path.clone(), self.node_view(parent, path));
            current = parent;
        }
    }

    fn node_view(&self, node: NodeKey, path: Path) -> NodeView {
        let below = self.tree.below(node);
        let count = |class| below.count(Kind { granted: true, class });
        NodeView {
            path,
            claims: Vec::new(),
            intent_read: count(Class::Read),
            intent_change: count(Class::Update) + count(Class::Write) + count(Class::Link),
        }
    }

    fn view_of(&self, key: LockKey) -> LockView {
        self.view_with(key, usize::MAX)
    }

    fn view_with(&self, key: LockKey, resources_max: usize) -> LockView {
        let lock = self.lock_of(key);
        let (token, granted_at, mut wait_until) = match &lock.state {
            State::Waiting(Pending { deadline, .. }) => (None, None, *deadline),
            State::Granted { token, at } => (Some(*token), Some(*at), None),
        };
        if let Some(conversion) = &lock.conversion {
            wait_until = conversion.pending.deadline;
        }
        LockView {
            id: lock.id,
            owner: lock.owner,
            token,
            rank: lock.rank,
            resources: lock.entries.iter().take(resources_max).map(|entry| self.resource(*entry)).collect(),
            converting_to: lock.conversion.is_some().then(|| self.converting_to(key, resources_max)),
            requested_at: lock.requested_at,
            granted_at,
            expires_at: lock.end.at(),
            wait_until,
            away_until: self.owners[&lock.owner].away_until,
        }
    }

    fn converting_to(&self, key: LockKey, resources_max: usize) -> Vec<Resource> {
        let lock = self.lock_of(key);
        let conversion = lock.conversion.as_ref().expect("it is converting");
        let stronger = conversion.stronger.iter().map(|(old, new)| (*old, self.entry(*new).mode));
        let modes: BTreeMap<EntryKey, Mode> = stronger.chain(conversion.weaker.iter().copied()).collect();
        let converted = |entry: &EntryKey| {
            let resource = self.resource(*entry);
            Resource { mode: modes.get(entry).copied().unwrap_or(resource.mode), ..resource }
        };
        lock.entries.iter().take(resources_max).map(converted).collect()
    }

    /// All locks that a waiting lock, or its conversion, waits for.
    fn blocking_locks(&self, key: LockKey) -> Option<Vec<LockKey>> {
        let lock = self.lock_of(key);
        if !lock.is_waiting() && lock.conversion.is_none() {
            return None;
        }
        let mut blockers = Blockers::default();
        for entry in lock.all_entries().map(|key| self.entry(key)).filter(|entry| !entry.granted()) {
            let (among, end) =
                if entry.in_front() { (Among::Granted, Order::END) } else { (Among::All, entry.order) };
            self.collect_rivals(entry.place(), among, end, &mut blockers);
        }
        Some(blockers.locks.into_iter().collect())
    }

    /// Some of the locks that a waiting lock, or its conversion, waits for.
    pub(crate) fn some_blockers(&self, key: LockKey) -> Vec<LockId> {
        let waiting =
            self.lock_of(key).all_entries().map(|key| self.entry(key)).filter(|entry| !entry.granted());
        let mut blockers = Vec::new();
        for entry in waiting {
            let end = if entry.in_front() { Order::END } else { entry.order };
            self.collect_some(entry.place(), Among::Granted, end, &mut blockers);
            if !entry.in_front() {
                self.collect_some(entry.place(), Among::Waiting, end, &mut blockers);
            }
        }
        self.name_once(blockers)
    }

    /// Some of the locks in the way of places without entries.
    pub(crate) fn blockers_of(&self, places: &[Place], among: Among) -> Vec<LockId> {
        let mut blockers = Vec::new();
        for place in places {
            self.collect_some(*place, Among::Granted, Order::END, &mut blockers);
            if among != Among::Granted {
                self.collect_some(*place, Among::Waiting, Order::END, &mut blockers);
            }
        }
        self.name_once(blockers)
    }

    fn name_once(&self, mut locks: Vec<LockKey>) -> Vec<LockId> {
        locks.sort_unstable();
        locks.dedup();
        self.name(&locks)
    }

    fn collect_rivals(&self, place: Place, among: Among, end: Order, blockers: &mut Blockers) {
        self.tree.each_rival(place, among, Order::FIRST..end, |key| {
            let entry = self.entry(key);
            if entry.owner != place.owner {
                blockers.locks.insert(entry.lock);
            }
            blockers.looks += 1;
            blockers.looks < LOOKS_MAX
        });
    }

    /// Like `collect_rivals`, but gives up once there are enough to name, however many there are.
    fn collect_some(&self, place: Place, among: Among, end: Order, blockers: &mut Vec<LockKey>) {
        let before = blockers.len();
        self.tree.each_rival(place, among, Order::FIRST..end, |key| {
            let entry = self.entry(key);
            if entry.owner != place.owner {
                blockers.push(entry.lock);
            }
            blockers.len() < before + BLOCKERS_LEN_MAX
        });
    }

    /// The ids of the first few, holders first and then by age.
    fn name(&self, locks: &[LockKey]) -> Vec<LockId> {
        let mut first: BTreeSet<(bool, LockId)> = BTreeSet::new();
        for key in locks {
            let lock = self.lock_of(*key);
            first.insert((lock.is_waiting(), lock.id));
            if first.len() > BLOCKERS_LEN_MAX {
                first.pop_last();
            }
        }
        first.into_iter().map(|(_, id)| id).collect()
    }
}
