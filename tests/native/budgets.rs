//! That no request takes more work than its budget, keeps others waiting, or is worked on when nobody waits for it.

use crate::{
    harness::{Server, eventually},
    http::Reply,
    limits::limits,
    peer::Peer,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

fn shop(server: &Server) -> Store {
    Store::new(server, "shop")
}

/// A filter that compares a long text with many patterns, none of which it has.
fn long_filter(conditions: usize) -> Value {
    let like = |number| json!({ "field": "x", "op": "%=", "value": format!("%aab{number}%") });
    json!({ "or": (0..conditions).map(like).collect::<Vec<_>>() })
}

/// A few documents with long texts.
fn write_texts(store: &Store, len: u64) {
    for key in 0..len {
        store.create("a", key, json!({ "x": "a".repeat(500_000) }));
    }
}

/// Starts a count that takes long, and gives the connection that waits for it.
fn count_for_long(server: &Server, store: &Store) -> TcpStream {
    let body = json!({ "collection": "a", "filter": long_filter(1000) }).to_string();
    let before = ticks(server);
    let mut tcp = TcpStream::connect(store.native).unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        store.target("count"),
        store.native,
        body.len()
    );
    tcp.write_all(head.as_bytes()).unwrap();
    tcp.write_all(body.as_bytes()).unwrap();
    eventually("the count is worked on", || ticks(server) > before + 20);
    tcp
}

/// The time a server has worked for, in hundredths of a second.
fn ticks(server: &Server) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    // The name of the program, which comes before, may have spaces in it.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(11).unwrap().parse().unwrap()
}

fn is_idle(server: &Server) -> bool {
    let before = ticks(server);
    thread::sleep(Duration::from_millis(300));
    ticks(server) <= before + 1
}

/// Sends what takes long from one client, and writes documents from another until the first is answered. Gives the
/// answer and how many documents were written meanwhile.
fn beside(store: &Store, other: &Store, attack: impl FnOnce(&Store) -> Reply + Send) -> (Reply, usize) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let reply = attack(store);
            over.store(true, Ordering::Release);
            reply
        });
        let mut written = 0;
        while !over.load(Ordering::Acquire) {
            other.create("b", written as u64, json!({}));
            written += 1;
        }
        (attacker.join().unwrap(), written)
    })
}

#[test]
fn a_pattern_is_compared_in_linear_time() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    shop.create("a", 1, json!({ "x": "a".repeat(4_000_000) }));
    let like =
        |end: &str| json!({ "field": "x", "op": "%=", "value": format!("%{}{end}%", "a".repeat(900)) });
    let filter = json!({ "or": Vec::from(["b", "c", "d", "e", "_b"].map(like)) });
    assert_eq!(shop.post("count", &json!({ "collection": "a", "filter": filter }))["count"], 0);
}

#[test]
fn a_position_lock_keeps_no_other_writer_waiting() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    let read_at = shop.create("b", "first", json!({}));
    shop.create("a", 1, json!({ "x": "a".repeat(1_000_000) }));
    let locked = |filter: Value| {
        let lock = json!({ "collection": "a", "field": "x", "filter": filter, "position": read_at });
        json!({ "events": [{ "type": "put", "collection": "c", "key": 1, "fields": {} }], "locks": [lock] })
    };
    let pattern = format!("%{}b%", "a".repeat(900));
    let one = locked(json!({ "field": "x", "op": "%=", "value": pattern }));
    shop.post("write", &one);
    // More than may be compared while all others wait: nobody can say, so it is refused.
    let many = locked(long_filter(1000));
    let (reply, _) = beside(&shop, &Store::new(&server, "elsewhere"), |shop| {
        shop.send("POST", "write", &many.to_string())
    });
    reply.assert_problem(410, "position_too_old");
}

#[test]
fn validation_over_the_budget_is_refused_and_keeps_no_other_writer_waiting() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    let alternatives: Vec<Value> = (0..3_000).map(|number| json!({ "const": number })).collect();
    let list = json!({ "type": "array", "contains": { "anyOf": alternatives } });
    let schema = json!({ "type": "object", "properties": { "x": list } });
    shop.post("schemas/a", &json!({ "schema": schema }));
    let document = json!({ "x": vec![-1; 200_000] }).to_string();
    let (reply, written) =
        beside(&shop, &Store::new(&server, "elsewhere"), |shop| shop.send("PUT", "documents/a/1", &document));
    let problem = reply.assert_problem(422, "budget_exceeded");
    assert!(problem["detail"].as_str().unwrap().contains("work_max"), "{problem}");
    assert!(written > 0);
    shop.ask("PUT", "documents/a/1", &json!({ "x": [7] }));
}

/// A schema that refers to itself twice doubles with every level.
#[test]
fn a_small_document_that_takes_for_ever_to_validate_is_refused() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    let known = json!({ "n": { "$ref": "#/$defs/n" }, "x": true });
    let below = |name: &str| json!({ "properties": known, "required": [name] });
    let schema = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } },
        "$defs": { "n": { "anyOf": [below("x"), below("y")] } } });
    shop.post("schemas/a", &json!({ "schema": schema }));
    let nested = (0..60).fold(json!({}), |inner, _| json!({ "n": inner }));
    shop.refuses("PUT", "documents/a/1", &nested, 422, "budget_exceeded");
    shop.ask("PUT", "documents/a/1", &json!({ "n": { "x": 1 } }));
}

#[test]
fn documents_that_take_long_to_validate_are_validated() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    let alternatives: Vec<Value> = (0..100).map(|number| json!({ "const": number })).collect();
    let list = json!({ "type": "array", "items": { "anyOf": alternatives } });
    shop.post("schemas/a", &json!({ "schema": { "type": "object", "properties": { "x": list } } }));
    let event = |key: u64, last: u64| {
        let mut list = vec![99; 20_000];
        list.push(last);
        json!({ "type": "put", "collection": "a", "key": key, "fields": { "x": list } })
    };
    // The same document twice in one call is two documents to be validated.
    shop.write(json!([event(1, 1), event(2, 2), event(1, 3)]));
    let wrong = json!({ "events": [event(3, 1), event(4, 100)] });
    shop.refuses("POST", "write", &wrong, 400, "schema_mismatch");
    assert_eq!(shop.post("count", &json!({ "collection": "a" }))["count"], 2);
}

#[test]
fn a_search_ends_when_its_client_leaves() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    write_texts(&shop, 4);
    let client = count_for_long(&server, &shop);
    drop(client);
    eventually("the server is idle", || is_idle(&server));
}

#[test]
fn a_server_with_work_stops_when_told() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    write_texts(&shop, 4);
    let _client = count_for_long(&server, &shop);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}

#[test]
fn a_second_signal_stops_a_server_with_work_at_once() {
    let server = Server::start(&["--drain-timeout", "1h"]);
    let mut ann = Peer::open(&server, "ann");
    ann.hold("write a");
    let shop = shop(&server);
    write_texts(&shop, 4);
    let _client = count_for_long(&server, &shop);
    server.signal("-TERM");
    ann.next_of("draining");
    server.signal("-TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(3), "{}", ended.log);
}

limits! {
    work_max = 1000, |server, limit| {
        let shop = shop(server);
        let event = |collection: &str, key: u64| json!({ "type": "put", "collection": collection, "key": key, "fields": {} });
        shop.write((0..600).map(|key| event("many", key)).chain((0..300).map(|key| event("few", key))).collect());
        let body = |name: &str| json!({ "collection": name, "filter": { "field": "x", "op": "=", "value": 1 } });
        for question in ["count", "exists", "filter"] {
            shop.post(question, &body("few"));
            limit.refuses(&shop.send("POST", question, &body("many").to_string()), 422, "budget_exceeded");
        }
    };
    work_ms_max = 1, |server, limit| {
        let shop = shop(server);
        shop.create("a", 1, json!({ "x": "a".repeat(500_000) }));
        let body = json!({ "collection": "a", "filter": long_filter(100) });
        limit.refuses(&shop.send("POST", "count", &body.to_string()), 422, "budget_exceeded");
        shop.get("documents/a/1?fields=y");
    };
    jobs_max = 1, |server, _| {
        let shop = shop(server);
        write_texts(&shop, 4);
        let first = count_for_long(server, &shop);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                shop.post("count", &json!({ "collection": "b" }));
                is_done.store(true, Ordering::Release);
            });
            thread::sleep(Duration::from_millis(300));
            assert!(!is_done.load(Ordering::Acquire), "two were worked on");
            // What needs no long work does not wait.
            shop.create("b", 1, json!({}));
            drop(first);
        });
    };
}
