//! Writers and lockers on all nodes while nodes, connections and the database fail: every acknowledged write is there once, no
//! two hold a lock at a time, tokens grow. The number of faults and the seed come from the environment.

use crate::{
    faults::{Clients, Faults},
    harness::eventually_is,
    http::{self, Reply},
    nodes::Nodes,
    spread_nodes::Spread,
    store::Store,
};
use serde_json::json;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

const WRITERS: u64 = 4;
const LOCKERS: u64 = 3;
/// Of the leases.
const TTL_MS: u64 = 4_000;

/// What the clients saw.
#[derive(Default)]
struct Seen {
    /// By writer, the numbers whose write was acknowledged.
    acknowledged: Mutex<Vec<(u64, u64)>>,
    /// Tokens in the order in which leases on one path were granted and ended.
    tokens: Mutex<Vec<u64>>,
    /// The client inside of the section that the lease guards, and the moment from which on it may hold the lease.
    inside: Mutex<Option<(u64, Instant)>>,
    violations: Mutex<Vec<String>>,
}

impl Seen {
    /// How many writes of each writer were acknowledged, and how many leases granted.
    fn progress(&self) -> Vec<u64> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let of = |writer| acknowledged.iter().filter(|(by, _)| *by == writer).count() as u64;
        (0..WRITERS).map(of).chain([self.tokens.lock().unwrap().len() as u64]).collect()
    }
}

/// Waits until all of these figures have grown.
pub(crate) fn eventually_grows(what: &str, figures: impl Fn() -> Vec<u64>) {
    let before = figures();
    eventually_is(what, &figures, |now| now.iter().zip(&before).all(|(now, before)| now > before));
}

#[test]
fn nothing_is_lost_or_doubled_in_a_storm() {
    storm(1);
}

#[test]
fn nothing_is_lost_or_doubled_in_a_storm_over_several_shards() {
    storm(4);
}

/// The namespace that a writer writes to; on four shards they are spread.
fn namespace(writer: u64) -> String {
    format!("w{writer}")
}

fn storm(shards: usize) {
    let mut faults = Faults::from_environment(&format!("{shards} shards"), shards);
    let mut spread = Spread::exposed(3, shards);
    let nodes = &spread.nodes;
    let (seen, mut clients) = (Arc::new(Seen::default()), Clients::default());
    for writer in 0..WRITERS {
        let seen = Arc::clone(&seen);
        let stores: Vec<Store> = (1..=3).map(|number| nodes.store_of(number, &namespace(writer))).collect();
        clients.start(move |number| write(writer, number, &stores, &seen));
    }
    for locker in 0..LOCKERS {
        let seen = Arc::clone(&seen);
        let stores: Vec<Store> = (1..=3).map(|number| nodes.store(number)).collect();
        clients.start(move |round| lock(locker, round, &stores, &seen));
    }
    faults.strike_all(&mut spread);
    eventually_grows("all clients are served again", || seen.progress());
    clients.stop();
    assert_eq!(*seen.violations.lock().unwrap(), Vec::<String>::new());
    check(&spread.nodes, &seen);
}

/// Each number is written by one event; its document counts how often.
fn write(writer: u64, number: u64, stores: &[Store], seen: &Seen) {
    let store = &stores[((writer + number) % stores.len() as u64) as usize];
    let event = json!([{ "type": "create", "collection": "w", "key": [writer, number],
        "fields": { "n": number } }]);
    let reply = try_send(
        store.native,
        "POST",
        &store.target("write"),
        json!({ "events": event }).to_string().as_bytes(),
    );
    match reply.map(|reply| (reply.status, reply.body)) {
        Some((200, _)) => seen.acknowledged.lock().unwrap().push((writer, number)),
        // It is sent once, so a document that is there already was created twice.
        Some((409, body)) => seen.violations.lock().unwrap().push(format!("{writer}:{number}: {body}")),
        _ => {}
    }
}

/// Takes a lease, checks that no other client has it, writes under its token, releases it.
fn lock(locker: u64, round: u64, stores: &[Store], seen: &Seen) {
    let store = &stores[((locker + round) % stores.len() as u64) as usize];
    let owner = format!("locker-{locker}-{round}");
    let body = json!({ "owner": owner, "ttl_ms": TTL_MS, "wait_ms": 2_000,
        "resources": [{ "path": "guarded/1", "mode": "write" }] });
    let send = |method: &str, target: &str, body: &str| {
        try_send(store.native, method, &store.target(target), body.as_bytes())
    };
    let asked = Instant::now();
    let Some(taken) = send("POST", "locks", &body.to_string()).filter(|reply| reply.status == 201) else {
        // It may have been granted without our knowing; it ends by itself.
        return thread::sleep(Duration::from_millis(50));
    };
    let (lock, token) = (taken.json()["lock"].clone(), taken.json()["token"].as_u64());
    let Some(token) = token else { return };
    let target = format!("locks/{lock}/release");
    let release = || send("POST", &target, &json!({ "token": token }).to_string());
    // A lease that was asked for longer ago may have ended while its answer waited at a node that is paused.
    if is_old(asked) {
        return drop(release());
    }
    let before = seen.inside.lock().unwrap().replace((locker, asked));
    if let Some((other, since)) = before.filter(|(_, since)| !is_old(*since) && !is_old(asked)) {
        let times = (since.elapsed(), asked.elapsed());
        let violation = format!("{other} and {locker} (token {token}) hold it, for {times:?} at most");
        seen.violations.lock().unwrap().push(violation);
    }
    {
        let mut tokens = seen.tokens.lock().unwrap();
        if tokens.last().is_some_and(|last| *last >= token) && !is_old(asked) {
            seen.violations.lock().unwrap().push(format!("token {token} after {:?}", tokens.last()));
        }
        tokens.push(token);
    }
    let target = format!("documents/guarded/1?token={token}&wait_ms=0");
    let _ = send("PUT", &target, &json!({ "token": token }).to_string());
    seen.inside.lock().unwrap().take_if(|(inside, since)| (*inside, *since) == (locker, asked));
    if release().is_some_and(|reply| reply.status == 200)
        && send("PUT", &target, r#"{"late":true}"#).is_some_and(|reply| reply.status == 200)
    {
        seen.violations.lock().unwrap().push(format!("a write under token {token} of a released lock"));
    }
}

/// Whether a lease that was asked for at this moment may have ended.
fn is_old(asked: Instant) -> bool {
    asked.elapsed() >= Duration::from_millis(TTL_MS)
}

/// Every acknowledged write is there exactly once: a create makes one event.
fn check(nodes: &Nodes, seen: &Seen) {
    let acknowledged = seen.acknowledged.lock().unwrap();
    assert!(acknowledged.len() > 20, "only {} writes were acknowledged", acknowledged.len());
    assert!(!seen.tokens.lock().unwrap().is_empty(), "no lock was granted");
    for (writer, number) in &*acknowledged {
        let store = nodes.store_of(nodes.running().next().unwrap(), &namespace(*writer));
        let found = store.send("GET", &format!("documents/w/{writer}:{number}"), "");
        assert_eq!(found.status, 200, "{writer}:{number} was acknowledged: {}", found.body);
    }
    println!("{} writes, {} grants", acknowledged.len(), seen.tokens.lock().unwrap().len());
}

/// A request to a node that may be gone; none if there is no whole reply.
pub(crate) fn try_send(native: SocketAddr, method: &str, target: &str, body: &[u8]) -> Option<Reply> {
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {native}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut tcp = TcpStream::connect(native).ok()?;
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    tcp.write_all(&[head.as_bytes(), body].concat()).ok()?;
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).ok()?;
    http::is_complete(&received).then(|| http::read(received))
}
