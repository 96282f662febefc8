//! Clients of a storm that ask nodes in turn and know what they must not see: writers, holders of leases, intruders that write
//! to what is locked, and readers that may be answered by copies. Knows nothing of faults.

use crate::{
    http::{self, Reply},
    spread_nodes::Spread,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::HashSet,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// The documents that lockers guard.
const GUARDED: u64 = 4;
/// Of the leases.
const TTL_MS: u64 = 4_000;
/// Between two turns of a client, so that a long storm leaves no more documents than can be looked at.
const REST: Duration = Duration::from_millis(40);
/// How stale an answer a reader tolerates.
const TOLERATED_MS: [Option<u64>; 3] = [None, Some(300), Some(10_000)];
/// How many documents are looked at in one request.
const PAGE_LEN: usize = 100;

/// What the clients share, and saw.
pub(crate) struct Storm {
    /// The guarded documents, through each node.
    guarded: Vec<Store>,
    writers: Vec<Writer>,
    guards: Vec<Guard>,
    /// Turns of lockers that held their lease all the time, and writes of intruders between them.
    turns: AtomicU64,
    intrusions: AtomicU64,
    /// Answers of readers, and those of copies among them.
    read: AtomicU64,
    read_from_copies: AtomicU64,
    violations: Mutex<Vec<String>>,
}

/// A namespace with documents of one writer.
struct Writer {
    stores: Vec<Store>,
    /// So many documents may be there.
    tried: AtomicU64,
    /// The numbers whose write was acknowledged, and when.
    acknowledged: Mutex<Vec<(u64, Instant)>>,
}

/// What is known of the leases on a guarded document.
#[derive(Default)]
struct Guard {
    last_token: AtomicU64,
    /// The client inside of the section that the lease guards, and the moment from which on it may hold the lease.
    inside: Mutex<Option<(String, Instant)>>,
}

/// A lease, as its holder knows it.
struct Held {
    owner: String,
    key: u64,
    lock: Value,
    token: u64,
    asked: Instant,
}

impl Held {
    /// Whether it may have ended: its answer may have waited at a node that is paused.
    fn is_old(&self) -> bool {
        is_old(self.asked)
    }
}

fn is_old(asked: Instant) -> bool {
    asked.elapsed() >= Duration::from_millis(TTL_MS)
}

impl Storm {
    pub(crate) fn new(spread: &Spread, writers: u64) -> Storm {
        for key in 0..GUARDED {
            spread.store(1, "default").create("guarded", key, json!({ "by": "nobody" }));
        }
        let writer = |number| Writer {
            stores: spread.stores(&format!("w{number}")),
            tried: AtomicU64::new(0),
            acknowledged: Mutex::default(),
        };
        Storm {
            guarded: spread.stores("default"),
            writers: (0..writers).map(writer).collect(),
            guards: (0..GUARDED).map(|_| Guard::default()).collect(),
            turns: AtomicU64::new(0),
            intrusions: AtomicU64::new(0),
            read: AtomicU64::new(0),
            read_from_copies: AtomicU64::new(0),
            violations: Mutex::default(),
        }
    }

    /// How much came of each client's work.
    pub(crate) fn progress(&self) -> Vec<u64> {
        let written = self.writers.iter().map(|writer| writer.acknowledged.lock().unwrap().len() as u64);
        let tokens = self.guards.iter().map(|guard| guard.last_token.load(Ordering::Acquire));
        let others = [&self.turns, &self.intrusions, &self.read];
        written.chain(tokens).chain(others.map(|count| count.load(Ordering::Acquire))).collect()
    }

    fn violation(&self, violation: String) {
        println!("violation: {violation}");
        self.violations.lock().unwrap().push(violation);
    }

    /// Each document is created by one event, which is sent once.
    pub(crate) fn write(&self, writer: u64, number: u64) {
        let own = &self.writers[writer as usize];
        let event =
            json!([{ "type": "create", "collection": "w", "key": number, "fields": { "n": number } }]);
        own.tried.store(number + 1, Ordering::Release);
        match send(pick(&own.stores, writer + number), "POST", "write", &json!({ "events": event })) {
            Some((200, _)) => own.acknowledged.lock().unwrap().push((number, Instant::now())),
            // A document that is there already was created twice.
            Some((409, problem)) => self.violation(format!("w{writer}/{number} is refused: {problem}")),
            _ => {}
        }
        thread::sleep(REST);
    }

    /// Takes a lease on a guarded document, checks that it is alone, writes its name, reads it back, and releases the lease.
    pub(crate) fn lock(&self, locker: u64, round: u64) {
        let Some(held) = self.take(locker, round) else {
            // It may have been granted without our knowing; it ends by itself.
            return thread::sleep(Duration::from_millis(50));
        };
        if !held.is_old() && self.enter(&held) {
            self.use_lease(&held, locker + round);
            let own = |inside: &mut (String, Instant)| inside.0 == held.owner;
            self.guards[held.key as usize].inside.lock().unwrap().take_if(own);
        }
        let store = |node| pick(&self.guarded, locker + round + node);
        let release = json!({ "token": held.token });
        let released = send(store(0), "POST", &held.target("release"), &release);
        if released.is_some_and(|(status, _)| status == 200)
            && held.put(store(1)).is_some_and(|(status, _)| status == 200)
        {
            self.violation(format!("a write under token {} of a released lock", held.token));
        }
    }

    fn take(&self, locker: u64, round: u64) -> Option<Held> {
        let (owner, key, asked) =
            (format!("locker-{locker}-{round}"), (locker + round) % GUARDED, Instant::now());
        let wanted = json!({ "owner": owner, "ttl_ms": TTL_MS, "wait_ms": 2_000,
            "resources": [{ "path": format!("guarded/{key}"), "mode": "write" }] });
        let store = pick(&self.guarded, locker + round);
        let (_, taken) = send(store, "POST", "locks", &wanted).filter(|(status, _)| *status == 201)?;
        Some(Held { owner, key, lock: taken["lock"].clone(), token: taken["token"].as_u64()?, asked })
    }

    /// Notes who is inside. False if the lease may be over, so that nothing can be said.
    fn enter(&self, held: &Held) -> bool {
        let Held { owner, key, token, asked, .. } = held;
        let guard = &self.guards[*key as usize];
        let before = guard.inside.lock().unwrap().replace((owner.clone(), *asked));
        let last = guard.last_token.fetch_max(*token, Ordering::AcqRel);
        if held.is_old() {
            return false;
        }
        if let Some((other, since)) = before.filter(|(_, since)| !is_old(*since)) {
            let times = (since.elapsed(), asked.elapsed());
            self.violation(format!("{other} and {owner} (token {token}) hold {key}, for {times:?} at most"));
        }
        if last >= *token {
            self.violation(format!("token {token} of guarded/{key} after {last}"));
        }
        true
    }

    /// What is written under a lease stays until it is released. A lease that can be renewed was held all the time.
    fn use_lease(&self, held: &Held, round: u64) {
        let store = |node| pick(&self.guarded, round + node);
        if held.put(store(1)).is_none_or(|(status, _)| status != 200) {
            return;
        }
        // Time for others to come between.
        thread::sleep(REST);
        let read = send(store(2), "GET", &format!("documents/guarded/{}", held.key), &Value::Null);
        let renew = json!({ "ttl_ms": TTL_MS, "token": held.token });
        let renewed = send(store(0), "POST", &held.target("renew"), &renew);
        let (Some((200, read)), Some((200, _))) = (read, renewed) else { return };
        let by = &read["document"]["value"]["by"];
        if *by == json!(held.owner) {
            self.turns.fetch_add(1, Ordering::Relaxed);
        } else {
            let Held { owner, key, token, .. } = held;
            self.violation(format!("guarded/{key} is of {by} while {owner} holds it by token {token}"));
        }
    }

    /// Writes to a guarded document without a lock: only while no client holds one.
    pub(crate) fn intrude(&self, intruder: u64, round: u64) {
        let target = format!("documents/guarded/{}?wait_ms=300", round % GUARDED);
        let store = pick(&self.guarded, intruder + round);
        let wrote = send(store, "PUT", &target, &json!({ "by": format!("intruder-{intruder}-{round}") }));
        if wrote.is_some_and(|(status, _)| status == 200) {
            self.intrusions.fetch_add(1, Ordering::Relaxed);
        }
        thread::sleep(REST);
    }

    /// Looks for the document that was acknowledged last, or counts them all; a copy may answer, and says how old it is.
    pub(crate) fn read(&self, reader: u64, round: u64) {
        thread::sleep(REST);
        let number = round as usize % self.writers.len();
        let (writer, tolerated) = (&self.writers[number], TOLERATED_MS[round as usize % TOLERATED_MS.len()]);
        let known = || writer.acknowledged.lock().unwrap();
        let Some((len, (last, _))) = Some(known()).and_then(|known| Some((known.len(), *known.last()?)))
        else {
            return;
        };
        let is_count = (reader + round / 2).is_multiple_of(2);
        let (method, path) =
            if is_count { ("POST", "count".to_owned()) } else { ("GET", format!("documents/w/{last}")) };
        let query = tolerated.map_or(String::new(), |tolerated| format!("?max_lag_ms={tolerated}"));
        let store = pick(&writer.stores, reader + round / 5);
        let asked = Instant::now();
        let body = json!({ "collection": "w" });
        let Some(reply) = try_send(store.native, method, &store.target(&format!("{path}{query}")), &body)
        else {
            return;
        };
        let lag_ms = reply.header("lockwood-lag-ms").map_or(0, |lag| lag.parse::<u64>().unwrap());
        if lag_ms > tolerated.unwrap_or(0) {
            self.violation(format!("an answer is {lag_ms} ms old, and {tolerated:?} is tolerated"));
        }
        // Milliseconds are rounded down.
        let is_due = |(_, at): &(u64, Instant)| *at + Duration::from_millis(lag_ms + 1) <= asked;
        let due = known()[..len].partition_point(is_due);
        let is_right = match (reply.status, is_count) {
            (200, true) => {
                let count = reply.json()["count"].as_u64().unwrap();
                (due as u64..=writer.tried.load(Ordering::Acquire)).contains(&count)
            }
            (200, false) => true,
            (404, false) => due < len,
            _ => return,
        };
        self.read.fetch_add(1, Ordering::Relaxed);
        self.read_from_copies.fetch_add(u64::from(lag_ms > 0), Ordering::Relaxed);
        if !is_right {
            let (node, body) = (store.native, reply.body);
            self.violation(format!(
                "w{number} with {due} documents, {lag_ms} ms late, is {body} at {node} by {path}"
            ));
        }
    }

    /// No client saw what it must not see, and every acknowledged write is there exactly once.
    pub(crate) fn check(&self, spread: &Spread) {
        let of = |count: &AtomicU64| count.load(Ordering::Acquire);
        let written: usize =
            self.writers.iter().map(|writer| writer.acknowledged.lock().unwrap().len()).sum();
        let [turns, intrusions, read, copies] =
            [&self.turns, &self.intrusions, &self.read, &self.read_from_copies].map(of);
        println!(
            "{written} writes, {turns} turns under leases, {intrusions} intrusions, {read} reads, {copies} of them from copies"
        );
        assert_eq!(*self.violations.lock().unwrap(), Vec::<String>::new());
        let least = written.min(turns as usize).min(intrusions as usize).min(copies as usize);
        assert!(least > 5, "some clients came to nothing");
        for (number, writer) in self.writers.iter().enumerate() {
            writer.check(&spread.store(spread.nodes.running().next().unwrap(), &format!("w{number}")));
        }
    }
}

impl Writer {
    fn check(&self, store: &Store) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let mut found = HashSet::new();
        for page in acknowledged.chunks(PAGE_LEN) {
            let wanted: Vec<Value> =
                page.iter().map(|(number, _)| json!({ "collection": "w", "key": number })).collect();
            let page = store.post("get", &json!({ "documents": wanted }));
            let there = page["documents"].as_array().unwrap().iter();
            found.extend(there.filter_map(|document| document["value"]["n"].as_u64()));
        }
        for (number, _) in &*acknowledged {
            assert!(found.contains(number), "{} {number} was acknowledged", store.namespace);
        }
        let count = store.post("count", &json!({ "collection": "w" }))["count"].as_u64().unwrap();
        let possible = acknowledged.len() as u64..=self.tried.load(Ordering::Acquire);
        assert!(possible.contains(&count), "{count} documents of {possible:?}");
    }
}

impl Held {
    fn target(&self, what: &str) -> String {
        format!("locks/{}/{what}", self.lock)
    }

    /// Writes the owner's name under its token.
    fn put(&self, store: &Store) -> Option<(u16, Value)> {
        let target = format!("documents/guarded/{}?token={}&wait_ms=0", self.key, self.token);
        send(store, "PUT", &target, &json!({ "by": self.owner }))
    }
}

fn pick(stores: &[Store], round: u64) -> &Store {
    &stores[(round % stores.len() as u64) as usize]
}

/// The status of a reply, and what it says; none if there is no whole reply.
pub(crate) fn send(store: &Store, method: &str, target: &str, body: &Value) -> Option<(u16, Value)> {
    let reply = try_send(store.native, method, &store.target(target), body)?;
    Some((reply.status, serde_json::from_str(&reply.body).unwrap_or_default()))
}

/// A request to a node that may be gone; none if there is no whole reply.
pub(crate) fn try_send(native: SocketAddr, method: &str, target: &str, body: &Value) -> Option<Reply> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let request = format!(
        "{method} {target} HTTP/1.1\r\nhost: {native}\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut tcp = TcpStream::connect(native).ok()?;
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    tcp.write_all(request.as_bytes()).ok()?;
    let mut received = Vec::new();
    tcp.read_to_end(&mut received).ok()?;
    http::is_complete(&received).then(|| http::read(received))
}
