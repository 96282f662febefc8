//! What every store does: batches, snapshots, scans, and what survives.

use super::{Machine, Random, for_seeds};
use crate::store::{Batch, Durability, Order, Range, Snapshot, Space, Store, with_prefix};
use std::{
    collections::BTreeMap,
    ops::{Bound, RangeBounds},
};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;
const SPACES: [Space; 3] = [Space::Numbers, Space::Touched, Space::Answers];

fn put(store: &dyn Store, pairs: &[(&str, &str)], durability: Durability) {
    let mut batch = Batch::default();
    for (key, value) in pairs {
        batch.put(Space::Touched, *key, *value);
    }
    store.commit(&batch, durability).unwrap();
}

fn get(snapshot: &dyn Snapshot, key: &str) -> Option<String> {
    let found = snapshot.get(Space::Touched, key.as_bytes()).unwrap();
    found.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

pub(super) fn what_is_synced_is_there_after_a_restart(machine: &mut dyn Machine) {
    put(&*machine.store(), &[("a", "1"), ("b", "1")], Durability::Buffered);
    put(&*machine.store(), &[("a", "2")], Durability::Synced);
    put(&*machine.store(), &[("a", "3"), ("b", "3")], Durability::Buffered);
    machine.restart();
    let snapshot = machine.store().snapshot();
    let found = (get(&*snapshot, "a"), get(&*snapshot, "b"));
    let pair = |a: &str, b: &str| (Some(a.to_owned()), Some(b.to_owned()));
    assert!(found == pair("2", "1") || found == pair("3", "3"), "{found:?}");
    assert!(!machine.store().is_poisoned());
}

pub(super) fn a_snapshot_stays_as_it_was(machine: &mut dyn Machine) {
    let store = machine.store();
    put(&*store, &[("a", "1"), ("b", "1"), ("c", "1")], Durability::Synced);
    let before = store.snapshot();
    let mut batch = Batch::default();
    batch.put(Space::Touched, "a", "2");
    batch.remove(Space::Touched, "b");
    batch.put(Space::Touched, "d", "2");
    store.commit(&batch, Durability::Synced).unwrap();
    let after = store.snapshot();
    let all = |snapshot: &dyn Snapshot, order| -> Vec<(String, String)> {
        let pairs = snapshot.scan(Space::Touched, with_prefix(b""), order).map(Result::unwrap);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        pairs.map(|(key, value)| (text(&key), text(&value))).collect()
    };
    let pairs =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect::<Vec<_>>();
    assert_eq!(all(&*before, Order::Forward), pairs(&[("a", "1"), ("b", "1"), ("c", "1")]));
    assert_eq!(all(&*before, Order::Backward), pairs(&[("c", "1"), ("b", "1"), ("a", "1")]));
    assert_eq!(all(&*after, Order::Forward), pairs(&[("a", "2"), ("c", "1"), ("d", "2")]));
    assert_eq!((get(&*before, "b").as_deref(), get(&*after, "b")), (Some("1"), None));
}

/// Two keys in two spaces are always written together; nobody may ever see one without the other.
pub(super) fn a_snapshot_sees_the_whole_of_a_batch_or_nothing(machine: &mut dyn Machine) {
    let store = machine.store();
    let write = |number: u64| {
        let mut batch = Batch::default();
        batch.put(Space::Touched, "k", number.to_be_bytes());
        batch.put(Space::Answers, "k", number.to_be_bytes());
        store.commit(&batch, Durability::Buffered).unwrap();
    };
    write(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..300).for_each(write));
        while !writer.is_finished() {
            let snapshot = store.snapshot();
            let one = snapshot.get(Space::Touched, b"k").unwrap();
            std::thread::yield_now();
            assert_eq!(one, snapshot.get(Space::Answers, b"k").unwrap());
        }
    });
}

pub(super) fn a_range_that_ends_before_it_starts_is_empty(machine: &mut dyn Machine) {
    let store = machine.store();
    put(&*store, &[("a", "1"), ("b", "1"), ("c", "1")], Durability::Synced);
    let mut above = Batch::default();
    above.put(Space::Touched, "b", "2");
    let snapshot = store.snapshot();
    let overlay = crate::Overlay { below: &*snapshot, above: &above };
    let bounds = [Bound::Included(b"c".to_vec()), Bound::Excluded(b"c".to_vec())];
    let ends = [Bound::Included(b"a".to_vec()), Bound::Excluded(b"a".to_vec())];
    let mut ranges: Vec<Range> = Vec::new();
    for start in &bounds {
        ranges.extend(ends.iter().map(|end| (start.clone(), end.clone())));
    }
    ranges.push((Bound::Excluded(b"b".to_vec()), Bound::Excluded(b"b".to_vec())));
    for range in ranges {
        for order in [Order::Forward, Order::Backward] {
            assert_eq!(snapshot.scan(Space::Touched, range.clone(), order).count(), 0, "{range:?}");
            assert_eq!(overlay.scan(Space::Touched, range.clone(), order).count(), 0, "{range:?} above");
        }
    }
}

pub(super) fn random_batches_do_what_a_plain_map_does(machine: &mut dyn Machine) {
    for_seeds(machine, |machine, mut random| {
        let mut expected: BTreeMap<Space, Map> = read_all(&*machine.store().snapshot());
        let mut older: Vec<(Box<dyn Snapshot>, BTreeMap<Space, Map>)> = Vec::new();
        for _ in 0..40 {
            let batch = random_batch(&mut random);
            let store = machine.store();
            let above = random_batch(&mut random);
            store.commit(&batch, Durability::Synced).unwrap();
            apply(&mut expected, &batch);
            let snapshot = store.snapshot();
            compare(&*snapshot, &expected, &mut random);
            let mut later = expected.clone();
            apply(&mut later, &above);
            compare(&crate::Overlay { below: &*snapshot, above: &above }, &later, &mut random);
            older.push((snapshot, expected.clone()));
            let pick = random.below(older.len() as u64) as usize;
            compare(&*older[pick].0, &older[pick].1, &mut random);
            if random.one_in(10) {
                older.clear();
                drop(store);
                machine.restart();
            }
        }
    });
}

fn random_key(random: &mut Random) -> Vec<u8> {
    (0..=random.below(3)).map(|_| [0, 1, b'a', 254, 255][random.below(5) as usize]).collect()
}

fn random_batch(random: &mut Random) -> Batch {
    let mut batch = Batch::default();
    for _ in 0..random.below(6) {
        let space = SPACES[random.below(3) as usize];
        let key = random_key(random);
        match random.below(3) {
            0 => batch.remove(space, key),
            _ => batch.put(space, key, vec![7; random.below(3) as usize * 50]),
        }
    }
    batch
}

fn apply(maps: &mut BTreeMap<Space, Map>, batch: &Batch) {
    for (space, key, value) in batch.iter() {
        let map = maps.entry(space).or_default();
        match value {
            Some(value) => map.insert(key.to_vec(), value.to_vec()),
            None => map.remove(&key.to_vec()),
        };
    }
}

fn read_all(snapshot: &dyn Snapshot) -> BTreeMap<Space, Map> {
    let space = |space: &Space| {
        let pairs = snapshot.scan(*space, with_prefix(b""), Order::Forward).map(Result::unwrap);
        (*space, pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect())
    };
    SPACES.iter().map(space).collect()
}

fn compare(snapshot: &dyn Snapshot, expected: &BTreeMap<Space, Map>, random: &mut Random) {
    for space in SPACES {
        let map = expected.get(&space).cloned().unwrap_or_default();
        let key = random_key(random);
        assert_eq!(snapshot.get(space, &key).unwrap().map(|value| value.to_vec()), map.get(&key).cloned());
        let range = (random_bound(random), random_bound(random));
        let inside = map.iter().filter(|(key, _)| range.contains::<Vec<u8>>(key));
        let mut inside: Vec<_> = inside.map(|(key, value)| (key.clone(), value.clone())).collect();
        for order in [Order::Forward, Order::Backward] {
            let found = snapshot.scan(space, range.clone(), order).map(Result::unwrap);
            let found: Vec<_> = found.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(found, inside, "{space:?} {range:?} {order:?}");
            inside.reverse();
        }
    }
}

fn random_bound(random: &mut Random) -> Bound<Vec<u8>> {
    let key = random_key(random);
    match random.below(3) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}
