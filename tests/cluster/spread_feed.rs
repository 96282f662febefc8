//! The change feed of several shards: every commit once, in one order.

use crate::{
    cluster::Cluster,
    http,
    spread_world::{Dice, NAMESPACE},
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

/// Reads events from a node until told to stop.
struct Events(BufReader<TcpStream>);

impl Events {
    fn follow(node: SocketAddr, after: Option<u64>) -> Events {
        let mut tcp = TcpStream::connect(node).unwrap();
        tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let after = after.map_or(String::new(), |after| format!("?after={after}"));
        let text = format!(
            "GET /v1/{NAMESPACE}/changes{after} HTTP/1.1\r\nhost: {node}\r\naccept: text/event-stream\r\n\r\n"
        );
        tcp.write_all(text.as_bytes()).unwrap();
        Events(BufReader::new(tcp))
    }

    /// The next commits, so many.
    fn take(&mut self, len: usize) -> Vec<Value> {
        let (mut commits, mut silences) = (Vec::new(), 0);
        while commits.len() < len {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "it ended after {}", commits.len());
            assert!(!line.starts_with("event: problem"), "{line}");
            silences += usize::from(line.starts_with(": still here"));
            assert!(silences < 3, "nothing comes after {}", commits.len());
            if let Some(text) = line.strip_prefix("data: ") {
                commits.push(serde_json::from_str(text).unwrap());
            }
        }
        commits
    }

    /// Waits for the first line, after which nothing is missed.
    fn begun(mut self) -> Events {
        let mut line = String::new();
        while !line.starts_with("id: ") {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0);
        }
        self
    }
}

fn keys(commits: &[Value]) -> Vec<u64> {
    let mut keys: Vec<u64> =
        commits.iter().map(|commit| commit["events"][0]["key"].as_str().unwrap().parse().unwrap()).collect();
    keys.sort_unstable();
    keys
}

fn is_in_order(commits: &[Value]) -> bool {
    commits.is_sorted_by_key(|commit| commit["position"].as_u64().unwrap())
}

#[test]
fn pages_have_every_commit_once_and_in_order() {
    let mut dice = Dice::new("feed pages");
    let cluster = Cluster::start(3, json!({ "function": "hash", "shards": 3 }));
    let store = |node| cluster.store(node, NAMESPACE);
    for key in 1..=120u64 {
        store(1 + key as usize % 3).create("user", key, json!({ "v": key }));
    }
    let (mut after, mut commits) = (0, Vec::new());
    loop {
        let limit = 1 + dice.below(20);
        let page = store(1 + dice.below(3)).get(&format!("changes?after={after}&limit={limit}"));
        let new = page["commits"].as_array().unwrap();
        commits.extend(new.iter().cloned());
        let next = page["next"].as_u64().unwrap();
        if next == after {
            break;
        }
        after = next;
    }
    assert_eq!(keys(&commits), (1..=120).collect::<Vec<_>>());
    assert!(is_in_order(&commits));
    let page = store(2).get("changes?collection=nobody");
    assert_eq!(page["commits"], json!([]));
}

#[test]
fn a_follower_sees_what_happens_on_all_shards() {
    let cluster = Cluster::start(3, json!({ "function": "modulo", "shards": 3 }));
    let store = |node| cluster.store(node, NAMESPACE);
    store(1).create("user", 1000, json!({}));
    let mut events = Events::follow(cluster.node(2).native, None).begun();
    for key in 1..=60u64 {
        store(1 + key as usize % 3).create("user", key, json!({ "v": key }));
    }
    let commits = events.take(60);
    assert_eq!(keys(&commits), (1..=60).collect::<Vec<_>>());
    assert!(is_in_order(&commits));
    // From somewhere in the middle, through another node.
    let middle = commits[30]["position"].as_u64().unwrap();
    let rest: Vec<Value> =
        commits.iter().filter(|commit| commit["position"].as_u64().unwrap() > middle).cloned().collect();
    let again = Events::follow(cluster.node(3).native, Some(middle)).take(rest.len());
    assert_eq!(again, rest);
}

/// A follower goes on across a resharding, and misses nothing that was written meanwhile.
#[test]
fn a_follower_goes_on_while_keys_move() {
    let (old, new) =
        (json!({ "function": "hash", "shards": 2 }), json!({ "function": "modulo", "shards": 3 }));
    let cluster = Cluster::start(3, old);
    let store = |node| cluster.store(node, NAMESPACE);
    let mut events = Events::follow(cluster.node(1).native, Some(0)).begun();
    let write = |from: u64| {
        for key in from..from + 20 {
            store(1 + key as usize % 3).create("user", key, json!({}));
        }
    };
    write(1);
    cluster.config(3, new);
    write(21);
    let commits = events.take(40);
    assert_eq!(keys(&commits), (1..=40).collect::<Vec<_>>());
    assert!(is_in_order(&commits));
    let reply = http::get(cluster.node(2), &format!("/v1/{NAMESPACE}/changes?after=0&limit=100"));
    assert_eq!(reply.json()["commits"], json!(commits), "{}", reply.body);
}
