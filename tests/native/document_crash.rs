//! A server that is killed again and again while it is written to: nothing acknowledged is lost, nothing is
//! half there, numbers only go up, and the state is what the log leads to. `LOCKWOOD_KILLS` makes it longer.

use crate::{
    harness::{BINARY, Server},
    http,
    peer::Peer,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const KILLS: u64 = 20;
const WRITERS: u64 = 4;

/// A connection that can break at any moment.
pub(crate) struct Wire {
    reader: BufReader<TcpStream>,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Option<Wire> {
        let tcp = TcpStream::connect(address).ok()?;
        tcp.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        tcp.set_nodelay(true).ok()?;
        Some(Wire { reader: BufReader::new(tcp) })
    }

    /// The answer, or nothing if the connection broke.
    pub(crate) fn post(&mut self, target: &str, body: &Value) -> Option<(u16, Value)> {
        let body = body.to_string();
        let head =
            format!("POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        self.reader.get_mut().write_all(format!("{head}{body}").as_bytes()).ok()?;
        let (mut status, mut len) = (0, 0);
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(rest) = line.strip_prefix("http/1.1 ") {
                status = rest[..3].parse().ok()?;
            } else if let Some(value) = line.strip_prefix("content-length:") {
                len = value.trim().parse().ok()?;
            } else if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; len];
        self.reader.read_exact(&mut body).ok()?;
        Some((status, serde_json::from_slice(&body).ok()?))
    }
}

/// What was acknowledged so far, over all lives of the server.
#[derive(Default)]
struct Known {
    /// Position → the key of the pair written there.
    acknowledged: BTreeMap<u64, String>,
    /// Counter → its last acknowledged value and the position of that.
    counters: BTreeMap<String, (u64, u64)>,
    /// Writes that were sent, acknowledged or not.
    sent: BTreeSet<String>,
    token: u64,
}

/// A pair of documents in one request, and the writer's counter under a position lock; as fast as it goes.
fn writer(id: u64, life: u64, address: SocketAddr, known: &Mutex<Known>, stop: &AtomicBool) {
    let Some(mut wire) = Wire::connect(address) else { return };
    let counter = format!("counter-{id}");
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("{life}-{id}-{number}");
        known.lock().unwrap().sent.insert(key.clone());
        let (value, position) = known.lock().unwrap().counters.get(&counter).copied().unwrap_or((0, 0));
        let body = json!({
            "events": [
                { "type": "create", "collection": "left", "key": key, "fields": { "v": number, "pad": "x".repeat(200) } },
                { "type": "create", "collection": "right", "key": key, "fields": { "v": number } },
                { "type": "put", "collection": "counter", "key": counter, "fields": { "n": value + 1 } },
            ],
            "locks": [{ "collection": "counter", "key": counter, "field": "n", "position": position }],
            "user": id,
            "idempotency_key": key,
        });
        let Some((status, answer)) = wire.post("/v1/crash/write", &body) else { return };
        assert_eq!(status, 200, "{answer}");
        let position = answer["position"].as_u64().unwrap();
        let mut known = known.lock().unwrap();
        assert_eq!(known.acknowledged.insert(position, key), None, "position {position} twice");
        known.counters.insert(counter.clone(), (value + 1, position));
    }
}

/// A lock at a time; every token is larger than all before it.
fn locker(address: SocketAddr, known: &Mutex<Known>, stop: &AtomicBool) {
    let mut peer = Peer::connect_to(address, "crash");
    if peer.try_ask(json!({ "type": "hello", "abandon_timeout_ms": 0 })).is_none() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        let resources = json!([{ "path": ["left"], "mode": "write" }]);
        let Some(answer) = peer.try_ask(json!({ "type": "lock", "resources": resources, "wait": 0 })) else {
            return;
        };
        let Some(token) = answer["token"].as_u64() else { continue };
        {
            let mut known = known.lock().unwrap();
            assert!(token > known.token, "token {token} after {}", known.token);
            known.token = token;
        }
        if peer.try_ask(json!({ "type": "release", "lock": answer["lock"] })).is_none() {
            return;
        }
    }
}

fn run_until_killed(
    server: Server,
    life: u64,
    known: &Arc<Mutex<Known>>,
    load: Duration,
) -> crate::harness::Ended {
    let stop = Arc::new(AtomicBool::new(false));
    let mut threads = Vec::new();
    for id in 0..WRITERS {
        let (known, stop, address) = (Arc::clone(known), Arc::clone(&stop), server.native);
        threads.push(thread::spawn(move || writer(id, life, address, &known, &stop)));
    }
    let (shared, own, address) = (Arc::clone(known), Arc::clone(&stop), server.native);
    threads.push(thread::spawn(move || locker(address, &shared, &own)));
    thread::sleep(load);
    let ended = server.kill();
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    ended
}

/// Every commit the server has, by position.
fn commits(server: &Server) -> BTreeMap<u64, Value> {
    let mut all = BTreeMap::new();
    let mut after = 0;
    loop {
        let page = http::get_json(server, &format!("/v1/crash/changes?after={after}&limit=1000"));
        for commit in page["commits"].as_array().unwrap() {
            let position = commit["position"].as_u64().unwrap();
            assert_eq!(position, all.len() as u64 + 1, "positions have neither gaps nor duplicates");
            all.insert(position, commit.clone());
        }
        let next = page["next"].as_u64().unwrap();
        if all.len() as u64 >= page["position"].as_u64().unwrap() {
            return all;
        }
        assert!(next > after, "{page}");
        after = next;
    }
}

fn keys_of(server: &Server, collection: &str) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut cursor = String::new();
    loop {
        let page = http::get_json(server, &format!("/v1/crash/documents/{collection}?limit=10000{cursor}"));
        for document in page["documents"].as_array().unwrap() {
            all.insert(document["key"].as_str().unwrap().to_owned(), document["value"].clone());
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

fn check(server: &Server, known: &mut Known) {
    let commits = commits(server);
    let (left, right) = (keys_of(server, "left"), keys_of(server, "right"));
    for (position, key) in &known.acknowledged {
        let commit = commits.get(position).unwrap_or_else(|| panic!("position {position} of {key} is lost"));
        assert_eq!(commit["events"][0]["key"], json!(key), "position {position}");
        assert!(left.contains_key(key) && right.contains_key(key), "{key} is lost");
    }
    assert!(left.keys().eq(right.keys()), "a request is half there");
    for (key, value) in &left {
        assert!(known.sent.contains(key), "nobody wrote {key}");
        assert_eq!(value["v"], right[key]["v"]);
    }
    assert_eq!(left.len(), commits.len(), "documents and commits");
    for (counter, value) in keys_of(server, "counter") {
        let found = value["n"].as_u64().unwrap();
        let (last, _) = known.counters.get(&counter).copied().unwrap_or((0, 0));
        assert!(found == last || found == last + 1, "{counter} is {found}, acknowledged was {last}");
        let target = format!("/v1/crash/documents/counter/{counter}");
        let position = http::get_json(server, &target)["document"]["position"].as_u64().unwrap();
        known.counters.insert(counter, (found, position));
    }
}

#[test]
fn nothing_acknowledged_is_lost_however_often_the_server_is_killed() {
    let kills = std::env::var("LOCKWOOD_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let known = Arc::new(Mutex::new(Known::default()));
    let mut server = Server::start(&[]);
    for life in 0..kills {
        // Between a moment and half a second, differently every time.
        let load = Duration::from_millis(20 + (life * 7919) % 480);
        let ended = run_until_killed(server, life, &known, load);
        server = ended.restart(&[]);
        check(&server, &mut known.lock().unwrap());
    }
    let known = known.lock().unwrap();
    assert!(known.acknowledged.len() as u64 > kills, "the load was no load: {}", known.acknowledged.len());
    let data = server.data().to_owned();
    let _ended = server.kill();
    let verified = Command::new(BINARY).args(["verify", "--json", "--data"]).arg(&data).output().unwrap();
    let answer: Value = serde_json::from_slice(&verified.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&verified.stderr)));
    assert_eq!(answer["sound"], json!(true), "{answer}");
}
