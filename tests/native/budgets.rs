//! That no request takes more work than its budget, keeps others waiting, or is worked on when nobody waits for it.

use crate::{
    harness::{Server, eventually},
    http::{self, Reply},
    limits::limits,
    peer::{Peer, assert_error},
    store::Store,
};
use serde_json::{Map, Value, json};
use std::{
    io::Write,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
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
    let body = json!({ "collection": "a", "filter": long_filter(1000) });
    begin(server, store, ("POST", "count"), &body, LONG_TICKS)
}

/// So long is worked on what takes long before something happens.
const LONG_TICKS: u64 = 20;

/// Starts what takes long, and gives the connection that waits for it when so long was worked on it.
fn begin(
    server: &Server,
    store: &Store,
    (method, path): (&str, &str),
    body: &Value,
    worked: u64,
) -> TcpStream {
    let body = body.to_string();
    let before = ticks(server);
    let mut tcp = TcpStream::connect(store.native).unwrap();
    let head = format!(
        "{method} {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        store.target(path),
        store.native,
        body.len()
    );
    tcp.write_all(head.as_bytes()).unwrap();
    tcp.write_all(body.as_bytes()).unwrap();
    eventually("it is worked on", || ticks(server) > before + worked);
    tcp
}

/// So much work that nothing here is stopped for its sake.
const UNBOUNDED: [&str; 4] = ["--work-max", "1000000000000", "--work-ms-max", "3600000"];

/// A schema that refers to itself twice, so that validating doubles with every level.
fn register_doubling(store: &Store) {
    let known = json!({ "n": { "$ref": "#/$defs/n" }, "x": true });
    let below = |name: &str| json!({ "properties": known, "required": [name] });
    let schema = json!({ "type": "object", "properties": { "n": { "$ref": "#/$defs/n" } },
        "$defs": { "n": { "anyOf": [below("x"), below("y")] } } });
    store.post("schemas/a", &json!({ "schema": schema }));
}

/// A document of that schema.
fn doubling() -> Value {
    (0..60).fold(json!({}), |inner, _| json!({ "n": inner }))
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

/// What happened beside a request that takes long.
#[derive(Debug)]
struct Beside {
    reply: Reply,
    /// How long the request took.
    took: Duration,
    /// How many documents another client wrote meanwhile, and the longest of these writes.
    written: usize,
    longest: Duration,
    /// How long 200 writes took before.
    usual: Duration,
}

impl Beside {
    /// A writer that waits for something that long writes once, and waits for all of it. A request that is refused early
    /// takes no longer than some hundred writes do.
    #[track_caller]
    fn assert_nobody_waited_for(&self, long: Duration) {
        let Beside { took, written, longest, usual, .. } = self;
        let said =
            format!("{written} writes in {took:?}, the longest {longest:?}, of {long:?}; usual {usual:?}");
        assert!(*written > 1, "{said}");
        assert!(*longest < (long / 2).max(*usual), "{said}");
    }

    #[track_caller]
    fn assert_nobody_waited(&self) {
        self.assert_nobody_waited_for(self.took);
    }
}

/// Sends what takes long from one client, and writes documents from another until the first is answered.
fn beside(store: &Store, other: &Store, attack: impl FnOnce(&Store) -> Reply + Send) -> Beside {
    let begun = Instant::now();
    for key in 0..200 {
        other.create("usual", key, json!({}));
    }
    let usual = begun.elapsed();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let begun = Instant::now();
            let reply = attack(store);
            over.store(true, Ordering::Release);
            (reply, begun.elapsed())
        });
        let (mut written, mut longest) = (0, Duration::ZERO);
        while written < 2 || !over.load(Ordering::Acquire) {
            let begun = Instant::now();
            other.create("b", written as u64, json!({}));
            longest = longest.max(begun.elapsed());
            written += 1;
        }
        let (reply, took) = attacker.join().unwrap();
        Beside { reply, took, written, longest, usual }
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
    let beside = beside(&shop, &Store::new(&server, "elsewhere"), |shop| {
        shop.send("POST", "write", &many.to_string())
    });
    let problem = beside.reply.assert_problem(410, "position_too_old");
    assert!(problem["detail"].as_str().unwrap().contains("too much comparing"), "{problem}");
    // A tenth of the comparing, done where it keeps nobody waiting.
    let begun = Instant::now();
    shop.post("count", &json!({ "collection": "a", "filter": long_filter(100) }));
    beside.assert_nobody_waited_for(begun.elapsed() * 10);
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
    let beside =
        beside(&shop, &Store::new(&server, "elsewhere"), |shop| shop.send("PUT", "documents/a/1", &document));
    let problem = beside.reply.assert_problem(422, "budget_exceeded");
    assert!(problem["detail"].as_str().unwrap().contains("work_max"), "{problem}");
    beside.assert_nobody_waited();
    shop.ask("PUT", "documents/a/1", &json!({ "x": [7] }));
}

#[test]
fn a_small_document_that_takes_for_ever_to_validate_is_refused() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    register_doubling(&shop);
    shop.refuses("PUT", "documents/a/1", &doubling(), 422, "budget_exceeded");
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

/// A schema that knows names by many patterns.
fn register_patterns(store: &Store, len: usize) {
    let patterns: Map<String, Value> =
        (0..len).map(|number| (format!("^p{number}_"), json!({ "type": "integer" }))).collect();
    let schema = json!({ "type": "object", "properties": {}, "patternProperties": patterns });
    store.post("schemas/a", &json!({ "schema": schema }));
}

/// So many names that one of those patterns matches, the last one.
fn names(patterns: usize, len: usize) -> impl Iterator<Item = String> {
    (0..len).map(move |number| format!("p{}_{number}", patterns - 1))
}

/// A list of lists, each of which is looked at for names.
fn nested_lists(len: usize) -> Value {
    json!({ "t": (0..len).map(|number| [number]).collect::<Vec<_>>() })
}

fn register_list(store: &Store) {
    let schema = json!({ "type": "object", "properties": { "t": { "type": "array" } } });
    store.post("schemas/a", &json!({ "schema": schema }));
}

#[test]
fn looking_up_names_is_paid_from_the_budget_of_the_request() {
    const PATTERNS: usize = 1000;
    let server = Server::start(&["--work-max", "1000000"]);
    let shop = shop(&server);
    register_patterns(&shop, PATTERNS);
    let is_refused = |path: &str, body: Value| {
        let problem = shop.refuses("POST", path, &body, 422, "budget_exceeded");
        assert!(problem["detail"].as_str().unwrap().contains("work_max"), "{problem}");
    };
    let compared = |field| json!({ "field": field, "op": "=", "value": 1 });
    let filter = |len| json!({ "or": names(PATTERNS, len).map(compared).collect::<Vec<_>>() });
    is_refused("count", json!({ "collection": "a", "filter": filter(900) }));
    shop.post("count", &json!({ "collection": "a", "filter": filter(20) }));

    let resources = |len| {
        let resource = |name: String| json!({ "path": ["a", "1", name], "mode": "write" });
        names(PATTERNS, len).map(resource).collect::<Vec<_>>()
    };
    let lease = |len| json!({ "owner": "ann", "resources": resources(len), "ttl_ms": 60_000 });
    is_refused("locks", lease(3000));
    assert_eq!(shop.send("POST", "locks", &lease(20).to_string()).status, 201);

    let wanted: Vec<String> = names(PATTERNS, 500).collect();
    is_refused("get", json!({ "documents": [{ "collection": "a", "key": 1 }], "fields": wanted }));
    is_refused("filter", json!({ "collection": "a", "fields": wanted }));
}

#[test]
fn a_session_is_not_kept_waiting_for_names_to_be_looked_up() {
    const PATTERNS: usize = 1000;
    let server = Server::start(&[]);
    let shop = shop(&server);
    register_patterns(&shop, PATTERNS);
    let mut ann = Peer::open_with(&server, "shop", json!({ "name": "ann" }));
    let lock = |len| {
        let resource = |name: String| json!({ "path": ["a", "1", name], "mode": "write" });
        let resources: Vec<Value> = names(PATTERNS, len).map(resource).collect();
        json!({ "type": "lock", "resources": resources })
    };
    assert_error(&ann.ask(lock(3000)), "budget_exceeded");
    assert_eq!(ann.ask(lock(20))["type"], "granted");
}

#[test]
fn names_in_a_large_document_over_the_budget_are_refused() {
    let server = Server::start(&["--work-max", "100000"]);
    let shop = shop(&server);
    register_list(&shop);
    let large = nested_lists(200_000);
    shop.refuses("PUT", "documents/a/1", &large, 422, "budget_exceeded");
    let insert = |fields: &Value| json!({ "collection": "a", "key": 1, "fields": fields });
    shop.refuses("POST", "shard/insert", &insert(&large), 422, "budget_exceeded");
    shop.post("shard/insert", &insert(&nested_lists(2000)));
    shop.ask("PUT", "documents/a/1", &nested_lists(1000));
}

#[test]
fn names_in_a_large_document_are_looked_up_while_others_write() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    register_list(&shop);
    let other = Store::new(&server, "elsewhere");
    let large = nested_lists(500_000);
    let beside = beside(&shop, &other, |shop| shop.send("PUT", "documents/a/1", &large.to_string()));
    assert_eq!(beside.reply.status, 200, "{}", beside.reply.body);
    beside.assert_nobody_waited();
    // Made of what is there while it is decided, so it is put off and decided again.
    let insert = json!({ "collection": "a", "key": 2, "fields": large });
    shop.post("shard/insert", &insert);
    let mut unknown = large;
    unknown["t"].as_array_mut().unwrap().push(json!([{ "name": 1 }]));
    shop.refuses("PUT", "documents/a/3", &unknown, 400, "unknown_field");
    let insert = json!({ "collection": "a", "key": 3, "fields": unknown });
    shop.refuses("POST", "shard/insert", &insert, 400, "unknown_field");
}

/// `a[ab]{900}c` may have to be followed from every letter on.
#[test]
fn a_pattern_of_a_schema_is_paid_for_by_its_size() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    let text = json!({ "type": "string", "pattern": "a[ab]{900}c" });
    let schema = json!({ "type": "object", "properties": { "x": text } });
    shop.post("schemas/a", &json!({ "schema": schema }));
    let other = Store::new(&server, "elsewhere");
    let document = json!({ "x": "ab".repeat(200_000) }).to_string();
    let beside = beside(&shop, &other, |shop| shop.send("PUT", "documents/a/1", &document));
    beside.reply.assert_problem(422, "budget_exceeded");
    beside.assert_nobody_waited();
    shop.ask("PUT", "documents/a/1", &json!({ "x": format!("a{}c", "b".repeat(900)) }));
}

fn register_procedure(store: &Store, source: &str) {
    let target = store.target("shard/procedures/busy");
    let headers = [("content-type", "text/plain")];
    let registered = http::send(store.native, "PUT", &target, &headers, source.as_bytes());
    assert_eq!(registered.status, 200, "{}", registered.body);
}

/// As long as a procedure can be, which is about a second: it may do a number of steps, and pays for their length.
fn register_long_procedure(store: &Store) {
    let long = "x = x * x + x ".repeat(4000);
    register_procedure(store, &format!("return function() local x = 1.5 while true do {long} end end"));
}

fn call() -> Value {
    json!({ "mode": "rw", "procedure": "busy", "collection": "a", "key": 1 })
}

/// A procedure that calls nothing is paid for by the length of what runs between two rounds of its loop.
#[test]
fn a_procedure_that_computes_without_calls_is_stopped_and_keeps_no_other_writer_waiting() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    register_long_procedure(&shop);
    let call = call().to_string();
    let other = Store::new(&server, "elsewhere");
    let beside = beside(&shop, &other, |shop| shop.send("POST", "shard/call", &call));
    let problem = beside.reply.assert_problem(422, "procedure_failed");
    assert!(problem["detail"].as_str().unwrap().contains("steps"), "{problem}");
    beside.assert_nobody_waited();
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
fn a_validation_ends_when_its_client_leaves() {
    let server = Server::start(&UNBOUNDED);
    let shop = shop(&server);
    register_doubling(&shop);
    let client = begin(&server, &shop, ("PUT", "documents/a/1"), &doubling(), LONG_TICKS);
    drop(client);
    eventually("the server is idle", || is_idle(&server));
    // Its lock is gone with it.
    shop.ask("PUT", "documents/a/1", &json!({ "n": { "x": 1 } }));
}

#[test]
fn a_procedure_ends_when_its_client_leaves() {
    let server = Server::start(&[]);
    let shop = shop(&server);
    register_long_procedure(&shop);
    let before = ticks(&server);
    shop.refuses("POST", "shard/call", &call(), 422, "procedure_failed");
    let whole = ticks(&server) - before;
    let before = ticks(&server);
    let client = begin(&server, &shop, ("POST", "shard/call"), &call(), whole / 10);
    drop(client);
    eventually("the server is idle", || is_idle(&server));
    let spent = ticks(&server) - before;
    assert!(spent * 4 < whole * 3, "{spent} of {whole}");
    shop.create("a", 1, json!({}));
}

#[test]
fn a_server_that_validates_stops_when_told() {
    let server = Server::start(&UNBOUNDED);
    let shop = shop(&server);
    register_doubling(&shop);
    let _client = begin(&server, &shop, ("PUT", "documents/a/1"), &doubling(), LONG_TICKS);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
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
