//! One namespace on several shards while nodes, connections and the database fail and documents move: every acknowledged
//! write is there, and while a client holds a lock no other client's write to what it covers succeeds. The number of faults
//! and the seed come from the environment.

use crate::{
    faults::{Clients, Faults},
    spread_nodes::{Spread, hash},
    store::Store,
    storm::{eventually_grows, try_send},
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const SHARDS: usize = 3;
const WRITERS: u64 = 3;
const LOCKERS: u64 = 3;
const INTRUDERS: u64 = 2;
/// The documents that lockers guard; a hash spreads them over the shards.
const GUARDED: u64 = 4;

/// What the clients saw.
#[derive(Default)]
struct Seen {
    /// By writer, the numbers whose write was acknowledged.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    /// The last token that was granted on each guarded document.
    tokens: [AtomicU64; GUARDED as usize],
    /// Turns of lockers in which all was as it should be, and writes of intruders between them.
    turns: AtomicU64,
    intrusions: AtomicU64,
    /// Turns at whose end the lock was still held, so that they count.
    violations: Mutex<Vec<String>>,
}

impl Seen {
    /// How many writes of each writer were acknowledged, the last token of each document, turns and intrusions.
    fn progress(&self) -> Vec<u64> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let of = |writer| acknowledged.iter().filter(|(by, _)| *by == writer).count() as u64;
        let tokens = self.tokens.iter().map(|token| token.load(Ordering::Acquire));
        let others = [&self.turns, &self.intrusions].map(|count| count.load(Ordering::Acquire));
        (0..WRITERS).map(of).chain(tokens).chain(others).collect()
    }
}

#[test]
fn no_lock_is_passed_over_on_several_shards_in_a_storm() {
    let mut faults = Faults::from_environment("locks", SHARDS).with_reshardings();
    let mut spread = Spread::exposed(3, SHARDS);
    spread.config(SHARDS, hash(SHARDS));
    for key in 0..GUARDED {
        spread.store(1, "default").create("guarded", key, json!({ "by": "nobody" }));
    }
    let stores = spread.stores("default");
    let (seen, mut clients) = (Arc::new(Seen::default()), Clients::default());
    let mut start = |client: fn(u64, &[Store], &Seen), number: u64| {
        let (seen, stores) = (Arc::clone(&seen), stores.clone());
        clients.start(move |turn| client(number << 32 | turn, &stores, &seen));
    };
    (0..WRITERS).for_each(|number| start(write, number));
    (0..LOCKERS).for_each(|number| start(lock, number));
    (0..INTRUDERS).for_each(|number| start(intrude, number));
    faults.strike_all(&mut spread);
    spread.unthrottle();
    spread.await_end();
    eventually_grows("all clients are served again", || seen.progress());
    clients.stop();
    assert_eq!(*seen.violations.lock().unwrap(), Vec::<String>::new());
    check(&spread, &seen);
}

fn pick(round: u64, stores: &[Store]) -> &Store {
    &stores[(round % stores.len() as u64) as usize]
}

fn send(store: &Store, method: &str, target: &str, body: &Value) -> Option<(u16, Value)> {
    let body = body.to_string();
    let reply = try_send(store.native, method, &store.target(target), body.as_bytes())?;
    Some((reply.status, serde_json::from_str(&reply.body).unwrap_or_default()))
}

/// Each document is written by one event.
fn write(round: u64, stores: &[Store], seen: &Seen) {
    let (writer, number) = (round >> 32, round & 0xffff_ffff);
    let event = json!([{ "type": "create", "collection": "w", "key": [writer, number], "fields": {} }]);
    let sent = send(pick(round, stores), "POST", "write", &json!({ "events": event }));
    match sent {
        Some((200, _)) => seen.acknowledged.lock().unwrap().push((writer, number)),
        // It is sent once, so a document that is there already was created twice.
        Some((409, problem)) => {
            seen.violations.lock().unwrap().push(format!("{writer}:{number} is answered with {problem}"));
        }
        _ => {}
    }
}

/// Takes a lease on a guarded document, writes its name, reads it back, and asks if it held the lease all the time.
fn lock(round: u64, stores: &[Store], seen: &Seen) {
    let (owner, key) = (format!("locker-{round}"), round % GUARDED);
    let wanted = json!({ "owner": owner, "ttl_ms": 4_000, "wait_ms": 2_000,
        "resources": [{ "path": format!("guarded/{key}"), "mode": "write" }] });
    let taken = send(pick(round, stores), "POST", "locks", &wanted).filter(|(status, _)| *status == 201);
    let Some((lock, token)) =
        taken.and_then(|(_, taken)| Some((taken["lock"].as_u64()?, taken["token"].as_u64()?)))
    else {
        // It may have been granted without our knowing; it ends by itself.
        return thread::sleep(Duration::from_millis(50));
    };
    let last = seen.tokens[key as usize].fetch_max(token, Ordering::AcqRel);
    if last >= token {
        seen.violations.lock().unwrap().push(format!("token {token} of guarded/{key} after {last}"));
    }
    let target = format!("documents/guarded/{key}?token={token}&wait_ms=0");
    let wrote = send(pick(round + 1, stores), "PUT", &target, &json!({ "by": owner }));
    if wrote.is_some_and(|(status, _)| status == 200) {
        // Time for others to come between.
        thread::sleep(Duration::from_millis(20));
        let read = send(pick(round + 2, stores), "GET", &format!("documents/guarded/{key}"), &Value::Null);
        let renewed = send(
            pick(round, stores),
            "POST",
            &format!("locks/{lock}/renew"),
            &json!({ "ttl_ms": 4_000, "token": token }),
        );
        if let (Some((200, read)), Some((200, _))) = (read, renewed) {
            let by = &read["document"]["value"]["by"];
            match *by == json!(owner) {
                true => drop(seen.turns.fetch_add(1, Ordering::Relaxed)),
                false => {
                    let violation =
                        format!("guarded/{key} is of {by} while {owner} holds it by token {token}");
                    seen.violations.lock().unwrap().push(violation);
                }
            }
        }
    }
    let released =
        send(pick(round, stores), "POST", &format!("locks/{lock}/release"), &json!({ "token": token }));
    if released.is_some_and(|(status, _)| status == 200)
        && send(pick(round + 1, stores), "PUT", &target, &json!({ "by": owner }))
            .is_some_and(|it| it.0 == 200)
    {
        let violation = format!("guarded/{key} is written under token {token} of a released lock");
        seen.violations.lock().unwrap().push(violation);
    }
}

/// Writes to guarded documents without a lock: only while no client holds one.
fn intrude(round: u64, stores: &[Store], seen: &Seen) {
    let target = format!("documents/guarded/{}?wait_ms=300", round % GUARDED);
    let wrote = send(pick(round, stores), "PUT", &target, &json!({ "by": "intruder" }));
    if wrote.is_some_and(|(status, _)| status == 200) {
        seen.intrusions.fetch_add(1, Ordering::Relaxed);
    }
    thread::sleep(Duration::from_millis(5));
}

fn check(spread: &Spread, seen: &Seen) {
    let acknowledged = seen.acknowledged.lock().unwrap();
    let (turns, intrusions) = (seen.turns.load(Ordering::Acquire), seen.intrusions.load(Ordering::Acquire));
    println!("{} writes, {turns} turns of lockers, {intrusions} intrusions", acknowledged.len());
    assert!(acknowledged.len() > 20 && turns > 5 && intrusions > 5, "the clients came to nothing");
    let store = spread.store(spread.nodes.running().next().unwrap(), "default");
    for (writer, number) in &*acknowledged {
        let found = store.send("GET", &format!("documents/w/{writer}:{number}"), "");
        assert_eq!(found.status, 200, "{writer}:{number} was acknowledged: {}", found.body);
    }
}
