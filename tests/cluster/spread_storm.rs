//! Questions about many documents while shards come and go and everybody writes: every document is there once, and
//! never as it was before a write that was over.

use crate::{
    cluster::Cluster,
    spread_nodes::hash,
    spread_world::{Dice, StopAtEnd, wait_for_maps},
    store::Store,
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const KEYS: u64 = 300;

/// What writers have finished, by key.
struct Finished(Vec<AtomicU64>);

/// Each writer has keys of its own, which it counts up.
fn write(store: &Store, mine: &[u64], finished: &Finished, dice: &mut Dice) {
    let key = *dice.pick(mine);
    let count = finished.0[key as usize].load(Ordering::SeqCst) + 1;
    let fields = json!({ "v": count, "group": key % 7 });
    match dice.below(3) {
        0 => {
            store.update("user", key, fields);
        }
        1 => {
            store.write(json!([{ "type": "put", "collection": "user", "key": key, "fields": fields }]));
        }
        _ => {
            store.delete("user", key);
            store.write(json!([
                { "type": "restore", "collection": "user", "key": key },
                { "type": "update", "collection": "user", "key": key, "fields": fields }
            ]));
        }
    }
    finished.0[key as usize].store(count, Ordering::SeqCst);
}

/// All documents, page by page, with those that are deleted.
fn read_all(store: &Store, dice: &mut Dice) -> BTreeMap<u64, u64> {
    let mut question = json!({ "collection": "user", "deleted": "with", "limit": 20 + dice.below(200) });
    if dice.one_in(2) {
        // By something that does not change.
        question["sort"] = json!([{ "field": "group" }]);
    }
    let mut all = BTreeMap::new();
    loop {
        let page = store.post("filter", &question);
        for document in page["documents"].as_array().unwrap() {
            let key = document["key"].as_str().unwrap().parse().unwrap();
            let value = document["value"]["v"].as_u64().unwrap();
            assert_eq!(all.insert(key, value), None, "{key} is there twice");
        }
        match page["next"].as_str() {
            Some(next) => question["cursor"] = json!(next),
            None => return all,
        }
    }
}

#[test]
fn every_document_is_there_once_while_shards_come_and_go() {
    let cluster = Cluster::start_on(4, 2, hash(2));
    wait_for_maps(&cluster);
    let finished = Finished((0..=KEYS).map(|_| AtomicU64::new(0)).collect());
    for key in 1..=KEYS {
        cluster.store(1, "shop").create("user", key, json!({ "v": 0, "group": key % 7 }));
    }
    let mut dice = Dice::new("storm of questions");
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let positions: Mutex<u64> = Mutex::new(0);
    thread::scope(|scope| {
        for writer in 0..3u64 {
            let (cluster, finished, stop) = (&cluster, &finished, &stop);
            let mut dice = Dice(dice.below(1 << 30) as u64);
            let mine: Vec<u64> = (1..=KEYS).filter(|key| key % 3 == writer).collect();
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let store = cluster.store(1 + dice.below(4), "shop");
                    write(&store, &mine, finished, &mut dice);
                }
            });
        }
        for _ in 0..3 {
            let (cluster, finished, stop, asked, positions) =
                (&cluster, &finished, &stop, &asked, &positions);
            let mut dice = Dice(dice.below(1 << 30) as u64);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let store = cluster.store(1 + dice.below(4), "shop");
                    let before: Vec<u64> =
                        finished.0.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                    let last = *positions.lock().unwrap();
                    let count = store.post("count", &json!({ "collection": "user", "deleted": "with" }));
                    assert_eq!(count["count"], KEYS, "{count}");
                    let position = count["position"].as_u64().unwrap();
                    assert!(position >= last, "{position} after {last}");
                    let mut known = positions.lock().unwrap();
                    *known = known.max(position);
                    drop(known);
                    let all = read_all(&store, &mut dice);
                    assert_eq!(all.len() as u64, KEYS);
                    for (key, value) in all {
                        let least = before[key as usize];
                        assert!(value >= least, "{key} is {value}, and was {least} before it was asked for");
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = StopAtEnd(&stop);
        for len in [3, 4, 2] {
            // Slow enough for many to ask while documents move.
            cluster.begin(len, hash(len), Some(400));
            cluster.await_end();
        }
    });
    let asked = asked.into_inner();
    println!("asked {asked} times");
    assert!(asked > 3);
}
