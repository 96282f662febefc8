//! A network that swallows what nodes say to each other while all of them reach the database, so that every ownership is
//! fresh: only what needs the node that is cut off fails, soon, and everything works when the network does.

use crate::{
    direct::{World, is_done, key_on, others_are_served_without},
    harness::eventually,
    leaseholder::HOUR,
    peer::Peer,
};
use lockwood_test_support::{Fault, Proxy};
use serde_json::{Value, json};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Far more than it takes until a node counts as silent, and far less than a request may take.
const SOON: Duration = Duration::from_secs(18);
/// Longer than it takes until a node counts as silent.
const CUT: Duration = Duration::from_secs(4);

/// The shard that is cut off from the other nodes, its owner, and a node that owns neither that shard nor the home.
struct Cut {
    shard: usize,
    owner: usize,
    asked: usize,
}

impl Cut {
    fn of(world: &World) -> Cut {
        let (home, shard) = (world.home(), world.home() % 3 + 1);
        let (at_home, owner) = (world.owner(home), world.owner(shard));
        let asked = (1..=3).find(|node| ![at_home, owner].contains(node)).unwrap();
        Cut { shard, owner, asked }
    }

    fn proxy<'a>(&self, proxies: &'a [Proxy]) -> &'a Proxy {
        &proxies[self.owner - 1]
    }
}

fn alerts(world: &World, asked: usize) -> Vec<String> {
    let status = world.spread.nodes.status(asked);
    let alerts = status["alerts"].as_array().unwrap().iter();
    alerts.map(|alert| alert.as_str().unwrap().to_owned()).collect()
}

fn serves_all_but_the_shard_that_is_cut_off_by(fault: Fault) {
    let (world, proxies) = World::apart();
    let cut = Cut::of(&world);
    let Cut { shard, owner, asked } = cut;
    let epoch = || world.spread.nodes.status(asked)["shards"][shard - 1]["epoch"].clone();
    let before = epoch();
    cut.proxy(&proxies).set(fault);
    others_are_served_without(&world, shard, asked);
    let says = format!("n{asked} cannot reach n{owner} ");
    eventually("an alert says so", || alerts(&world, asked).iter().any(|alert| alert.starts_with(&says)));
    assert_eq!(epoch(), before, "the owner has it, and renews that");
    // By itself it serves what it has.
    is_done(&world.get(owner, key_on(shard)));
    cut.proxy(&proxies).set(Fault::None);
    eventually("all shards are served", || {
        (1..=3).all(|shard| world.put(asked, key_on(shard), 8).status == 200)
            && world.post(asked, "count", &json!({ "collection": "user" })).status == 200
    });
    eventually("no alert says so", || !alerts(&world, asked).iter().any(|alert| alert.starts_with(&says)));
}

#[test]
fn calls_that_do_not_arrive_delay_only_the_shard_that_they_are_for() {
    serves_all_but_the_shard_that_is_cut_off_by(Fault::HoldRequests);
}

#[test]
fn calls_that_are_not_answered_delay_only_the_shard_that_they_are_for() {
    serves_all_but_the_shard_that_is_cut_off_by(Fault::HoldAnswers);
}

/// No node reaches another one. The home serves what it has; others may have to ask it what is registered, and answer soon.
#[test]
fn nodes_that_are_all_cut_off_from_each_other_answer_and_recover() {
    let (world, proxies) = World::apart();
    proxies.iter().for_each(|proxy| proxy.set(Fault::HoldRequests));
    let home = world.home();
    thread::sleep(CUT);
    for shard in 1..=3 {
        let begun = Instant::now();
        let reply = world.get(world.owner(shard), key_on(shard));
        assert!(reply.status == 200 || shard != home, "{}", reply.body);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    }
    proxies.iter().for_each(|proxy| proxy.set(Fault::None));
    eventually("all shards are served by all nodes", || {
        let pairs = (1..=3).flat_map(|node| (1..=3).map(move |shard| (node, shard)));
        pairs.into_iter().all(|(node, shard)| world.put(node, key_on(shard), 9).status == 200)
    });
}

/// The owner has done it, and its answer is lost: it is asked again, and tells what it did.
#[test]
fn a_write_whose_answer_is_swallowed_is_done_once() {
    let (world, proxies) = World::apart();
    let cut = Cut::of(&world);
    for fault in [Fault::HoldAnswers, Fault::HoldRequests] {
        let key = key_on(cut.shard);
        is_done(&world.put(cut.asked, key, 10));
        cut.proxy(&proxies).set(fault);
        let add = json!({ "collection": "user", "key": key, "format": "+p", "arguments": ["v", 1] });
        let reply = thread::scope(|scope| {
            let adding = scope.spawn(|| world.post(cut.asked, "shard/update", &add));
            thread::sleep(CUT);
            cut.proxy(&proxies).set(Fault::None);
            adding.join().unwrap()
        });
        is_done(&reply);
        // What was held is delivered by now.
        thread::sleep(Duration::from_secs(1));
        let found: Value = world.get(cut.asked, key).json();
        assert_eq!(found["document"]["value"]["v"], 11, "{fault:?}: {found}");
    }
}

#[test]
fn a_request_that_waits_for_a_lock_at_another_node_waits_as_long_as_it_says() {
    let (world, _proxies) = World::apart();
    let Cut { shard, asked, .. } = Cut::of(&world);
    let key = key_on(shard);
    let what = format!("write user/{key}");
    let held = world.ann(asked).take(&what);
    let store = world.ann(asked).store;
    thread::scope(|scope| {
        let path = format!("documents/user/{key}?wait_ms=120000");
        let waiting = scope.spawn(move || store.send("PUT", &path, r#"{"v":12}"#));
        // Longer than a node may be silent.
        thread::sleep(2 * CUT);
        assert!(!waiting.is_finished());
        is_done(&world.ann(asked).release(held.lock, &json!({ "owner": "ann" })));
        is_done(&waiting.join().unwrap());
    });
}

/// It is refused for now, and granted when the network works again.
#[test]
fn a_lock_whose_shard_does_not_hear_of_it_is_not_granted() {
    let (world, proxies) = World::apart();
    let cut = Cut::of(&world);
    cut.proxy(&proxies).set(Fault::HoldAnswers);
    thread::sleep(CUT);
    let begun = Instant::now();
    let reply = world.ann(cut.asked).ask(&format!("write user/{}", key_on(cut.shard)), HOUR, 0);
    assert_ne!(reply.status, 201, "{}", reply.body);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    cut.proxy(&proxies).set(Fault::None);
    let what = format!("write user/{}", key_on(cut.shard));
    eventually("the lock is granted", || {
        [200, 201].contains(&world.ann(cut.asked).ask(&what, HOUR, 0).status)
    });
}

/// Its client would wait for ever: it hears that the way is lost, and comes back to the same session.
#[test]
fn a_session_whose_node_is_cut_off_from_the_home_ends_and_comes_back() {
    let (world, proxies) = World::apart();
    let home = world.owner(world.home());
    let asked = (1..=3).find(|node| *node != home).unwrap();
    let server = world.spread.nodes.server(asked);
    let mut ann = Peer::open_for(server, "ann", 60_000);
    let resources = json!([{ "path": "room/1", "mode": "write" }]);
    let held = ann.ask(json!({ "type": "lock", "resources": resources }));
    assert_eq!(held["type"], "granted", "{held}");
    proxies[home - 1].set(Fault::HoldAnswers);
    let begun = Instant::now();
    assert_eq!(ann.try_next(), None);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    proxies[home - 1].set(Fault::None);
    let lock = json!([{ "lock": held["lock"], "token": held["token"],
        "resources": [{ "path": ["room", "1"], "mode": "write" }] }]);
    eventually("the home is reached", || world.get(asked, key_on(world.home())).status == 200);
    let (_ann, welcome) = ann.attach(server, &lock);
    assert_eq!(welcome["locks"][0]["token"], held["token"], "{welcome}");
}
