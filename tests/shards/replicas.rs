//! Hosts of a shard that only read: who answers, what they have after everything that can happen to them, and what
//! becomes of what was written when one of them is to write.

use crate::{
    cluster::Cluster,
    harness::eventually,
    http::{self, Reply},
    leaseholder::{HOUR, Leaseholder},
    random::Random,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

/// Hosts: mode, weight, and which node.
type Hosts<'a> = &'a [(&'a str, u64, usize)];

fn list(cluster: &Cluster, shards: &[Hosts<'_>]) -> Value {
    let host = |(mode, weight, node): &(&str, u64, usize)| json!({ "mode": mode, "weight": weight, "address": cluster.addresses[node - 1] });
    let hosts = |hosts: &Hosts<'_>| hosts.iter().map(host).collect::<Vec<_>>();
    shards.iter().map(hosts).collect::<Vec<_>>().into()
}

fn hash(shards: usize) -> Value {
    json!({ "function": "hash", "shards": shards })
}

fn configure(cluster: &Cluster, through: usize, change: Value) -> Reply {
    cluster.store(through, "_system").send("POST", "shard/config", &change.to_string())
}

/// Has the cluster go by this list.
#[track_caller]
fn rehost(cluster: &Cluster, through: usize, shards: &[Hosts<'_>]) {
    let done = configure(cluster, through, json!({ "list": list(cluster, shards) }));
    assert_eq!(done.status, 200, "{}", done.body);
}

/// Nodes for these shards, and a map of them.
fn started(shards: &[Hosts<'_>]) -> Cluster {
    let mut cluster = Cluster::nodes(0);
    let mut nodes: Vec<(usize, usize)> = Vec::new();
    for (index, hosts) in shards.iter().enumerate() {
        nodes.extend(hosts.iter().map(|(_, _, node)| (*node, index + 1)));
    }
    nodes.sort_unstable();
    for (number, shard) in nodes {
        assert_eq!(cluster.add_for(shard), number, "nodes are counted from 1");
    }
    let change = json!({ "list": list(&cluster, shards), "curr": hash(shards.len()) });
    let done = configure(&cluster, 1, change);
    assert_eq!(done.status, 200, "{}", done.body);
    cluster
}

fn send(native: SocketAddr, operation: &str, body: &Value) -> Reply {
    let target = format!("/v1/shop/shard/{operation}");
    http::send(native, "POST", &target, &[], body.to_string().as_bytes())
}

/// Which node answered, and what.
#[track_caller]
fn answered(cluster: &Cluster, through: usize, operation: &str, body: &Value) -> (usize, Value) {
    let reply = send(cluster.node(through).native, operation, body);
    assert_eq!(reply.status, 200, "{operation} {body}: {}", reply.body);
    let host = reply.header("lockwood-host").unwrap();
    let place = cluster.addresses.iter().position(|address| address == host).unwrap();
    (place + 1, reply.json())
}

fn at(key: u64) -> Value {
    json!({ "collection": "user", "key": key })
}

fn version(found: &Value) -> u64 {
    found["document"]["value"]["v"].as_u64().unwrap_or(0)
}

#[track_caller]
fn replace(store: &Store, key: u64, version: u64) {
    store.post("shard/replace", &json!({ "collection": "user", "key": key, "fields": { "v": version } }));
}

/// What one node has of some keys, whoever should have them.
fn contents(cluster: &Cluster, node: usize, keys: std::ops::RangeInclusive<u64>) -> Vec<Value> {
    let store = cluster.store(node, "shop");
    keys.map(|key| store.post("shard/raw/select?operator=test", &at(key))["document"].take()).collect()
}

#[track_caller]
fn become_equal(cluster: &Cluster, one: usize, other: usize, keys: &std::ops::RangeInclusive<u64>) {
    eventually("both nodes have the same", || {
        contents(cluster, one, keys.clone()) == contents(cluster, other, keys.clone())
    });
}

/// Says that it is over, also when it ends badly.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until every one of these nodes answers selects of a key.
fn all_answer(cluster: &Cluster, nodes: &[usize], through: usize, key: u64, expected: u64) {
    for node in nodes {
        eventually("a host that only reads answers", || {
            let (host, found) = answered(cluster, through, "select", &at(key));
            host == *node && version(&found) == expected
        });
    }
}

#[test]
fn selects_are_spread_by_the_weights() {
    let cluster = started(&[&[("rw", 1000, 1), ("ro", 100, 2), ("ro", 300, 3), ("ro", 0, 4)]]);
    replace(&cluster.store(1, "shop"), 1, 7);
    all_answer(&cluster, &[2, 3], 4, 1, 7);
    let mut counts: BTreeMap<usize, f64> = BTreeMap::new();
    const LEN: usize = 4000;
    for index in 0..LEN {
        let (host, found) = answered(&cluster, 1 + index % 4, "select", &at(1));
        assert_eq!(version(&found), 7);
        *counts.entry(host).or_default() += 1.0;
    }
    println!("answered by node: {counts:?}");
    assert!(counts.keys().eq([2, 3].iter()), "only hosts that read and have a weight: {counts:?}");
    let expected = [(2, LEN as f64 * 0.25), (3, LEN as f64 * 0.75)];
    let square = |(node, expected): (usize, f64)| (counts[&node] - expected).powi(2) / expected;
    let chi_square: f64 = expected.into_iter().map(square).sum();
    // With one degree of freedom, right weights go beyond this once in a hundred thousand runs. Equal weights would
    // give 1333, and 100 to 200 would give 148.
    assert!(chi_square < 20.0, "{chi_square} for {counts:?}");
}

#[test]
fn only_the_host_that_writes_answers_rw_reads_and_writes() {
    let cluster = started(&[&[("rw", 1, 1), ("ro", 500, 2), ("ro", 1000, 3)], &[("rw", 1, 4)]]);
    let owners = |key: u64| {
        answered(&cluster, 1, "eselect", &json!({ "collection": "user", "key": key, "mode": "rw" })).0
    };
    let key = (1..).find(|key| owners(*key) == 1).unwrap();
    for through in 1..=4 {
        let store = cluster.store(through, "shop");
        let ask = |operation: &str, more: Value| {
            let mut body = at(key);
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let (host, found) = answered(&cluster, through, operation, &body);
            assert_eq!(host, 1, "{operation} through {through}");
            found
        };
        for round in 0..20u64 {
            ask("insert", json!({ "fields": { "v": round } }));
            ask("update", json!({ "format": "+p", "arguments": ["v", 1] }));
            assert_eq!(version(&ask("eselect", json!({ "mode": "rw" }))), round + 1);
            ask("replace", json!({ "fields": { "v": round + 2, "round": round } }));
            // What is not about one key alone is no business of a host that only reads either.
            let filter = json!({ "field": "round", "op": "=", "value": round });
            let found =
                store.send("POST", "filter", &json!({ "collection": "user", "filter": filter }).to_string());
            assert!(found.body.contains(&format!("\"round\":{round}")), "through {through}: {}", found.body);
            store.update("user", key, json!({ "v": round + 3 }));
            let found = store.get(&format!("documents/user/{key}"));
            assert_eq!(version(&found), round + 3, "through {through}");
            ask("delete", json!({}));
            assert_eq!(ask("eselect", json!({ "mode": "rw" }))["document"], Value::Null);
        }
        // A peer that is asked to write and is not the host for it refuses; nobody else gets through to it.
        assert_eq!(send(cluster.node(through).native, "raw/len?operator=test", &json!({})).status, 200);
    }
    for replica in [2, 3] {
        become_equal(&cluster, 1, replica, &(1..=key));
    }
}

#[test]
fn a_reader_that_is_killed_is_passed_over_and_catches_up() {
    let mut cluster = started(&[&[("rw", 1, 1), ("ro", 500, 2), ("ro", 500, 3)]]);
    let store = cluster.store(1, "shop");
    (1..=50).for_each(|key| replace(&store, key, 1));
    all_answer(&cluster, &[2, 3], 1, 1, 1);
    let done = AtomicBool::new(false);
    let asked = AtomicU64::new(0);
    let natives = [cluster.node(1).native, cluster.node(2).native];
    thread::scope(|scope| {
        let _done = Done(&done);
        for native in natives {
            let (done, asked) = (&done, &asked);
            scope.spawn(move || {
                let mut key = 0;
                while !done.load(Ordering::Relaxed) {
                    key = key % 50 + 1;
                    let reply = send(native, "select", &at(key));
                    assert_eq!(reply.status, 200, "{}", reply.body);
                    assert!(version(&reply.json()) > 0, "{}", reply.body);
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let progress = || {
            let before = asked.load(Ordering::Relaxed);
            eventually("selects go on", || asked.load(Ordering::Relaxed) > before + 50);
        };
        for round in 2..=4 {
            progress();
            cluster.kill(3);
            progress();
            (1..=50).for_each(|key| replace(&store, key, round));
            store.write(
                json!([{ "type": "create", "collection": "user", "key": 100 + round, "fields": { "v": 1 } }]),
            );
            progress();
            cluster.restart(3);
            become_equal(&cluster, 1, 3, &(1..=110));
            all_answer(&cluster, &[3], 1, 50, round);
        }
    });
}

/// Everything that can be asked about some documents through one node: as they are, as they were, and how they
/// became so.
fn story(
    cluster: &Cluster,
    through: usize,
    keys: std::ops::RangeInclusive<u64>,
    positions: &[u64],
) -> Vec<String> {
    let store = cluster.store(through, "shop");
    let mut story = Vec::new();
    for key in keys {
        story.push(store.send("GET", &format!("history/user/{key}"), "").body);
        for position in positions {
            story.push(store.send("GET", &format!("documents/user/{key}?at={position}"), "").body);
        }
    }
    story
}

#[test]
fn a_reader_that_comes_late_gets_everything_though_the_log_is_trimmed() {
    let mut cluster = started(&[&[("rw", 1, 1)], &[("rw", 1, 2)]]);
    let store = cluster.store(1, "shop");
    store.send("PUT", "indexes/user/v", "");
    for round in 1..=3 {
        (1..=120).for_each(|key| replace(&store, key, round));
    }
    store.trim(0);
    let mut positions = Vec::new();
    for round in 4..=6 {
        (1..=120).step_by(2).for_each(|key| replace(&store, key, round));
        positions.push(
            store.write(
                json!([{ "type": "update", "collection": "user", "key": 1, "fields": { "w": round } }]),
            ),
        );
        let deleted = json!([{ "type": "delete", "collection": "user", "key": 10 * round }]);
        positions.push(store.write(deleted));
    }
    let reserved =
        store.post("reserve", &json!({ "collection": "user", "amount": 500 }))["first"].as_u64().unwrap();
    let ann = Leaseholder { store: store.clone(), owner: "ann".to_owned() };
    let lease = ann.take("write user/3");
    let late = cluster.add_for(1);
    rehost(&cluster, 1, &[&[("rw", 1, 1), ("ro", 100, late)], &[("rw", 1, 2)]]);
    // Wherever it is in the middle of, it begins anew.
    cluster.kill(late);
    cluster.restart(late);
    become_equal(&cluster, 1, late, &(1..=120));
    (1..=120).step_by(5).for_each(|key| replace(&store, key, 7));
    become_equal(&cluster, 1, late, &(1..=120));
    let before = story(&cluster, 2, 1..=120, &positions);
    // What it has of the past is seen when it is the one who tells.
    rehost(&cluster, 1, &[&[("ro", 100, 1), ("rw", 1, late)], &[("rw", 1, 2)]]);
    let after = story(&cluster, 2, 1..=120, &positions);
    assert_eq!(before.len(), after.len());
    before.iter().zip(&after).for_each(|(before, after)| assert_eq!(before, after));
    let ids = store.post("reserve", &json!({ "collection": "user", "amount": 1 }));
    assert!(ids["first"].as_u64().unwrap() >= reserved + 500, "{ids}");
    let event = json!({ "type": "update", "collection": "user", "key": 3, "fields": { "v": 0 } });
    let locked = json!({ "events": [event], "wait_ms": 0 });
    let refused = store.send("POST", "write", &locked.to_string());
    assert_eq!(refused.json()["code"], "locked", "{lease:?} still holds: {}", refused.body);
    // And the one that wrote before has followed what the other one writes.
    (1..=120).filter(|key| *key != 3).for_each(|key| replace(&store, key, 8));
    become_equal(&cluster, late, 1, &(1..=120));
}

fn status(cluster: &Cluster) -> Value {
    cluster.store(1, "_system").get("shard/transition")
}

/// Three shards with a host that writes, 1 to 3, and one that only reads, 4 to 6; the first two are in the map.
fn two_of_three() -> Cluster {
    let mut cluster = started(&[&[("rw", 1, 1)], &[("rw", 1, 2)], &[("rw", 1, 3)]]);
    for shard in 1..=3 {
        cluster.add_for(shard);
    }
    let change = json!({ "list": of_len(&cluster, 2), "curr": hash(2) });
    let told = json!({ "do": "reshard", "change": change });
    cluster.store(1, "_system").post("shard/transition", &told);
    eventually("two shards are left", || status(&cluster)["step"] == "none");
    cluster
}

fn of_len(cluster: &Cluster, len: usize) -> Value {
    let hosts: Vec<[(&str, u64, usize); 2]> =
        (1..=len).map(|shard| [("rw", 1, shard), ("ro", 100, shard + 3)]).collect();
    let hosts: Vec<Hosts<'_>> = hosts.iter().map(|hosts| &hosts[..]).collect();
    list(cluster, &hosts)
}

#[test]
fn readers_follow_a_resharding_and_never_answer_with_what_was_before_it() {
    let mut cluster = two_of_three();
    let store = cluster.store(2, "shop");
    let seed = 0x5eed_0005;
    println!("seed {seed:x}");
    let mut random = Random(seed);
    let mut written = 0;
    for (round, len) in [3, 2, 3, 2].into_iter().enumerate() {
        written += 1;
        (1..=150).for_each(|key| replace(&store, key, written));
        let change = json!({ "list": of_len(&cluster, len), "curr": hash(len) });
        let epoch = status(&cluster)["map"]["epoch"].as_u64().unwrap();
        let told = json!({ "do": "reshard", "change": change, "throttle": 200 });
        cluster.store(1, "_system").post("shard/transition", &told);
        let newer =
            |node: usize| cluster.store(node, "shop").get("shard/map")["epoch"].as_u64().unwrap() > epoch;
        (1..=6).for_each(|node| {
            eventually("every node has the next map", || !is_hosted(&cluster, node, len) || newer(node));
        });
        // From here on every answer is by that map or a later one.
        let mut by: BTreeMap<usize, u64> = BTreeMap::new();
        let mut more = 200;
        while more > 0 {
            let key = 1 + random.below(150);
            let through = 1 + random.below(6) as usize;
            let (host, found) = answered(&cluster, through, "select", &at(key));
            assert_eq!(version(&found), written, "{key} from {host} through {through} in round {round}");
            *by.entry(host).or_default() += 1;
            // Others are written meanwhile.
            let other = 151 + random.below(50);
            replace(&store, other, written);
            if status(&cluster)["step"] == "none" {
                more -= 1;
            }
            if round == 1 && by.values().sum::<u64>() == 20 {
                cluster.kill(5);
                cluster.restart(5);
            }
        }
        println!("round {round}: answered by node: {by:?}");
        assert!(by.keys().any(|host| *host > 3), "hosts that only read answer again: {by:?}");
        for shard in 1..=len {
            become_equal(&cluster, shard, shard + 3, &(1..=200));
        }
    }
}

/// Whether a node is in the map now, or in the next one; others are told by those who ask them something.
fn is_hosted(cluster: &Cluster, node: usize, len: usize) -> bool {
    let shards = status(cluster)["map"]["shards"].as_array().unwrap().len().max(len);
    (node - 1) % 3 < shards
}

#[test]
fn a_reader_that_has_caught_up_takes_over_and_nothing_acknowledged_is_lost() {
    let cluster = started(&[&[("rw", 1, 1), ("ro", 1, 2), ("ro", 1, 3)], &[("rw", 1, 4), ("ro", 1, 5)]]);
    let first = cluster.store(1, "shop");
    (1..=40).for_each(|key| replace(&first, key, 0));
    let ann = Leaseholder { store: first, owner: "ann".to_owned() };
    let lease = ann.take("write user/1, write user/2, write user/3, write user/4");
    let done = AtomicBool::new(false);
    let written: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let natives: Vec<SocketAddr> = (1..=5).map(|node| cluster.node(node).native).collect();
    thread::scope(|scope| {
        let _done = Done(&done);
        for (writer, acknowledged) in written.iter().enumerate() {
            let (done, natives) = (&done, &natives);
            scope.spawn(move || {
                let keys: Vec<u64> = (5..=40).filter(|key| *key as usize % 4 == writer).collect();
                for (turn, version) in (1..).enumerate() {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    for key in &keys {
                        let body = json!({ "collection": "user", "key": key, "fields": { "v": version } });
                        let reply = send(natives[(turn + writer) % 5], "replace", &body);
                        assert_eq!(reply.status, 200, "{}", reply.body);
                    }
                    acknowledged.store(version, Ordering::SeqCst);
                }
            });
        }
        let progress = || {
            let before = written[0].load(Ordering::SeqCst);
            eventually("writers go on", || written[0].load(Ordering::SeqCst) > before + 2);
        };
        let maps: [(usize, usize); 4] = [(2, 4), (2, 5), (1, 4), (3, 5)];
        for (of_one, of_two) in maps {
            progress();
            let mode = |node: usize| (if [of_one, of_two].contains(&node) { "rw" } else { "ro" }, 1, node);
            rehost(&cluster, 1, &[&[1, 2, 3].map(mode), &[4, 5].map(mode)]);
            // Whoever writes now has what was acknowledged before.
            let floors: Vec<u64> = written.iter().map(|written| written.load(Ordering::SeqCst)).collect();
            for key in 5..=40 {
                let body = json!({ "collection": "user", "key": key, "mode": "rw" });
                let (host, found) = answered(&cluster, 5, "eselect", &body);
                assert!([of_one, of_two].contains(&host), "{host}");
                assert!(version(&found) >= floors[key as usize % 4], "{key}: {found} after {floors:?}");
            }
            for key in 1..=4 {
                let body = json!({ "collection": "user", "key": key, "fields": { "v": 9 }, "wait_ms": 0 });
                assert_eq!(send(natives[1], "replace", &body).json()["code"], "locked", "{key}");
            }
            progress();
        }
    });
    for (writer, other) in [(3, 1), (3, 2), (5, 4)] {
        become_equal(&cluster, writer, other, &(1..=40));
    }
    let bob = Leaseholder { store: cluster.store(2, "shop"), owner: "bob".to_owned() };
    assert_eq!(ann.release_all().status, 200);
    for key in 1..=4 {
        assert!(bob.take(&format!("write user/{key}")).token > lease.token, "tokens grow");
    }
}

#[test]
fn a_reader_that_has_not_caught_up_takes_over_only_by_force() {
    let mut cluster = started(&[&[("rw", 1, 1)], &[("rw", 1, 2), ("ro", 0, 3)]]);
    let store = cluster.store(1, "shop");
    (1..=30).for_each(|key| replace(&store, key, 1));
    become_equal(&cluster, 2, 3, &(1..=30));
    cluster.node(3).signal("-STOP");
    (1..=30).for_each(|key| replace(&store, key, 2));
    cluster.kill(2);
    cluster.node(3).signal("-CONT");
    let taken_over = json!({ "list": list(&cluster, &[&[("rw", 1, 1)], &[("rw", 1, 3)]]) });
    let refused = configure(&cluster, 3, taken_over);
    let problem = refused.assert_problem(409, "not_caught_up");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains(&cluster.addresses[1]) && detail.contains("force"), "{detail}");
    // Nothing is lost by that: the host comes back, and then it works.
    cluster.restart(2);
    rehost(&cluster, 1, &[&[("rw", 1, 1)], &[("ro", 0, 2), ("rw", 1, 3)]]);
    let read = |key: u64| {
        answered(&cluster, 1, "eselect", &json!({ "collection": "user", "key": key, "mode": "rw" }))
    };
    (1..=30).for_each(|key| assert_eq!(version(&read(key).1), 2, "{key}"));
    become_equal(&cluster, 3, 2, &(1..=30));
    // A host that was never heard of has nothing.
    let stranger = cluster.add_for(2);
    let change = json!({ "list": list(&cluster, &[&[("rw", 1, 1)], &[("rw", 0, stranger)]]) });
    let problem = configure(&cluster, 1, change).assert_problem(409, "not_caught_up");
    assert!(problem["detail"].as_str().unwrap().contains("mode ro first"), "{problem}");
    // By force the other way round, with what was written since lost.
    cluster.node(2).signal("-STOP");
    (1..=30).for_each(|key| replace(&store, key, 3));
    cluster.kill(3);
    cluster.node(2).signal("-CONT");
    let mut change = json!({ "list": list(&cluster, &[&[("rw", 1, 1)], &[("rw", 1, 2)]]) });
    configure(&cluster, 1, change.clone()).assert_problem(409, "not_caught_up");
    change["force"] = true.into();
    let forced = configure(&cluster, 1, change);
    assert_eq!(forced.status, 200, "{}", forced.body);
    (1..=30).for_each(|key| replace(&store, key, 4));
    // What the one has that was given up is not heard of again, from its first answer on.
    cluster.restart(3);
    let epoch = |node: usize| cluster.store(node, "_system").get("shard/map")["epoch"].clone();
    assert_eq!(epoch(3), epoch(1));
    rehost(&cluster, 1, &[&[("rw", 1, 1)], &[("rw", 1, 2), ("ro", 100, 3)]]);
    become_equal(&cluster, 2, 3, &(1..=30));
    let key = (1..=30).find(|key| read_on(&cluster, *key) == 2).unwrap();
    all_answer(&cluster, &[3], 1, key, 4);
}

/// The node that has a key.
fn read_on(cluster: &Cluster, key: u64) -> usize {
    answered(cluster, 1, "eselect", &json!({ "collection": "user", "key": key, "mode": "rw" })).0
}

#[test]
fn a_host_that_is_killed_while_roles_change_loses_nothing() {
    let mut cluster = started(&[&[("rw", 1, 1)], &[("rw", 1, 2), ("ro", 1, 3)]]);
    let store = cluster.store(1, "shop");
    let seed = 0x5eed_0006;
    println!("seed {seed:x}");
    let mut random = Random(seed);
    let mut hosts = [2, 3];
    for round in 1..=8 {
        (1..=30).for_each(|key| replace(&store, key, round));
        become_equal(&cluster, 2, 3, &(1..=30));
        hosts.reverse();
        let [writer, reader] = hosts;
        let shards = list(&cluster, &[&[("rw", 1, 1)], &[("rw", 1, writer), ("ro", 1, reader)]]);
        let change = json!({ "list": shards });
        let victim = hosts[random.below(2) as usize];
        thread::scope(|scope| {
            let system = cluster.store(1, "_system");
            let body = change.to_string();
            // Whether it works is seen later.
            scope.spawn(move || drop(system.send("POST", "shard/config", &body)));
            thread::sleep(Duration::from_millis(random.below(60)));
            cluster.kill(victim);
            cluster.restart(victim);
        });
        eventually("the roles are changed", || configure(&cluster, 1, change.clone()).status == 200);
        for key in 1..=30 {
            let body = json!({ "collection": "user", "key": key, "mode": "rw" });
            let (host, found) = answered(&cluster, 1, "eselect", &body);
            assert_eq!(version(&found), round, "{key} from {host} after {victim} was killed");
            assert_ne!(host, reader);
        }
    }
}

/// Roles go to and fro, without documents: a host that writes again goes by what the other one did about locks meanwhile.
#[test]
fn what_became_of_locks_elsewhere_is_known_to_a_host_that_writes_again() {
    let mut cluster = started(&[&[("rw", 1, 1), ("ro", 1, 2)]]);
    let holder = |cluster: &Cluster, owner: &str| Leaseholder {
        store: cluster.store(2, "shop"),
        owner: owner.to_owned(),
    };
    let writes = |cluster: &Cluster, node: usize| {
        let mode = |number: usize| (if number == node { "rw" } else { "ro" }, 1, number);
        rehost(cluster, node, &[&[1, 2].map(mode)]);
    };
    let (ann, bob) = (holder(&cluster, "ann"), holder(&cluster, "bob"));
    let renewed = ann.take_for("write user/1", 1_500);
    let released = ann.take("write user/2");
    writes(&cluster, 2);
    // The first host would end the one by itself, and holds the other still.
    assert_eq!(ann.renew(renewed.lock, &json!({ "token": renewed.token, "ttl_ms": HOUR })).status, 200);
    assert_eq!(ann.release(released.lock, &json!({ "token": released.token })).status, 200);
    let next = bob.take("write user/2");
    thread::sleep(Duration::from_millis(2_000));
    // Numbers start further on after each restart, and must not be those of another host again.
    cluster.kill(2);
    cluster.restart_for(2, 1);
    let (ann, bob) = (holder(&cluster, "ann"), holder(&cluster, "bob"));
    eventually("it is there again", || bob.ask("write user/3", HOUR, 0).status == 201);
    let last = bob.take("write user/4");
    assert!(last.token > next.token, "{last:?} {next:?}");
    writes(&cluster, 1);
    bob.is_refused("write user/1");
    ann.is_refused("write user/2");
    let passes = ann.renew(renewed.lock, &json!({ "token": renewed.token, "ttl_ms": HOUR }));
    assert_eq!(passes.status, 200, "{}", passes.body);
    assert_eq!(bob.release(next.lock, &json!({ "token": next.token })).status, 200);
    let now = ann.take("write user/2");
    assert!(now.token > last.token && now.lock > last.lock, "{now:?} after {last:?}");
}
