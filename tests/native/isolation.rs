//! Reads under locks (seed 000, R7 and R9 to R11, R17): who waits for whom, what is seen meanwhile, and that
//! nothing is left behind.

use crate::{
    harness::{Server, eventually},
    store::Store,
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    net::TcpStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

/// A lease that is held.
pub(crate) struct Held {
    store: Store,
    pub(crate) lock: u64,
    pub(crate) token: u64,
}

impl Held {
    /// `write user/1/name`, with a depth behind it if it has one.
    #[track_caller]
    pub(crate) fn take(store: &Store, owner: &str, resource: &str) -> Held {
        let words: Vec<&str> = resource.split(' ').collect();
        let mut wanted = json!({ "mode": words[0], "path": words[1] });
        if let Some(depth) = words.get(2) {
            wanted["depth"] = depth.parse::<u64>().unwrap().into();
        }
        let body = json!({ "owner": owner, "resources": [wanted], "ttl_ms": 60_000, "wait_ms": 20_000 });
        let reply = store.send("POST", "locks", &body.to_string());
        assert_eq!(reply.status, 201, "{resource}: {reply:?}");
        let answer = reply.json();
        let (lock, token) = (answer["lock"].as_u64().unwrap(), answer["token"].as_u64().unwrap());
        Held { store: store.clone(), lock, token }
    }

    #[track_caller]
    pub(crate) fn release(self) -> u64 {
        let path = format!("locks/{}/release", self.lock);
        self.store.post(&path, &json!({ "token": self.token }));
        self.token
    }
}

/// Nobody has a lock or waits for one.
#[track_caller]
pub(crate) fn assert_no_locks(store: &Store) {
    assert_eq!(store.get("locks")["locks"], json!([]));
}

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for (key, name, age) in [(1, "ann", 30), (2, "bob", 20), (3, "cy", 40)] {
        shop.create("user", key, json!({ "name": name, "age": age, "address": { "city": "Ulm" } }));
    }
    (server, shop)
}

fn over_age(age: u64) -> Value {
    json!({ "field": "age", "op": ">", "value": age })
}

/// Every read there is, with members for its isolation.
fn reads(isolation: &str, more: &str) -> Vec<(&'static str, String, String)> {
    let body = |text: &str| format!(r#"{{{text},"isolation":"{isolation}","wait_ms":0{more}}}"#);
    let query = format!(
        "isolation={isolation}&wait_ms=0{}",
        more.replace(",\"tokens\":[", "&token=").replace(']', "")
    );
    let post = |path: &str, text: &str| ("POST", path.to_owned(), body(text));
    vec![
        ("GET", format!("documents/user/1?{query}"), String::new()),
        ("GET", format!("documents/user?{query}"), String::new()),
        ("GET", format!("documents/user/1?path=age&{query}"), String::new()),
        post("get", r#""documents":[{"collection":"user","key":2},{"collection":"user","key":1}]"#),
        post("filter", r#""collection":"user""#),
        post("count", r#""collection":"user""#),
        post("exists", r#""collection":"user""#),
        post("min", r#""collection":"user","field":"age""#),
        post("max", r#""collection":"user","field":"age""#),
        post(
            "join",
            r#""left":{"collection":"user","field":"age"},"right":{"collection":"user","field":"age"}"#,
        ),
    ]
}

#[test]
fn r7_r17_every_read_can_respect_locks_and_leaves_none() {
    let (_server, shop) = start();
    let held = Held::take(&shop, "ann", "write user/1");
    let token = format!(",\"tokens\":[{}]", held.token);
    for isolation in ["snapshot", "locked", "document"] {
        for (method, path, body) in reads(isolation, "") {
            let reply = shop.send(method, &path, &body);
            if isolation == "snapshot" {
                assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
                continue;
            }
            let problem = reply.assert_problem(423, "locked");
            assert_eq!(problem["blockers"][0]["lock"], held.lock, "{path}: {problem}");
        }
        // The holder itself is not in its own way.
        for (method, path, body) in reads(isolation, &token) {
            let reply = shop.send(method, &path, &body);
            assert_eq!(reply.status, 200, "{path} {body}: {reply:?}");
        }
    }
    assert_eq!(shop.get("locks")["locks"].as_array().unwrap().len(), 1);
    held.release();
    for isolation in ["snapshot", "locked", "document"] {
        for (method, path, body) in reads(isolation, "") {
            assert_eq!(shop.send(method, &path, &body).status, 200, "{path}");
        }
        // A token that is over is one whoever asks.
        for (method, path, body) in reads(isolation, &token) {
            shop.send(method, &path, &body).assert_problem(409, "lock_lost");
        }
    }
    assert_no_locks(&shop);
}

#[test]
fn the_past_cannot_be_locked() {
    let (_server, shop) = start();
    for isolation in ["locked", "document"] {
        let path = format!("documents/user/1?at=1&isolation={isolation}");
        shop.send("GET", &path, "").assert_problem(400, "locked_past");
        let body = json!({ "collection": "user", "at": 1, "isolation": isolation });
        shop.refuses("POST", "count", &body, 400, "locked_past");
    }
    shop.send("GET", "documents/user/1?isolation=loose", "").assert_problem(400, "bad_query");
    shop.refuses("POST", "count", &json!({ "collection": "user", "isolation": "loose" }), 400, "bad_body");
    assert_no_locks(&shop);
}

#[test]
fn r7_only_what_is_read_is_waited_for() {
    let (_server, shop) = start();
    let held = Held::take(&shop, "ann", "write user/1/age");
    let get =
        |query: &str| shop.send("GET", &format!("documents/user/1?isolation=locked&wait_ms=0{query}"), "");
    assert_eq!(get("&fields=name,address").status, 200);
    get("&fields=name,age").assert_problem(423, "locked");
    assert_eq!(get("&path=address").status, 200);
    get("&path=age&depth=1").assert_problem(423, "locked");
    held.release();
    // Readers do not mind each other.
    let held = Held::take(&shop, "ann", "read user");
    assert_eq!(get("").status, 200);
    let body = json!({ "collection": "user", "isolation": "locked", "wait_ms": 0 });
    assert_eq!(shop.post("count", &body)["count"], 3);
    held.release();
    assert_no_locks(&shop);
}

#[test]
fn r7_a_read_waits_and_sees_what_was_written_meanwhile() {
    let (_server, shop) = start();
    for isolation in ["locked", "document"] {
        let held = Held::take(&shop, "ann", "write user");
        let waiting: Vec<_> = reads(isolation, "")
            .into_iter()
            .map(|(method, path, body)| {
                let (shop, path) = (shop.clone(), path.replace("wait_ms=0", "wait_ms=20000"));
                let body = body.replace("\"wait_ms\":0", "\"wait_ms\":20000");
                thread::spawn(move || (shop.send(method, &path, &body), path))
            })
            .collect();
        let len = waiting.len() + 1;
        eventually("all wait", || shop.get("locks")["locks"].as_array().unwrap().len() == len);
        let body = json!({ "tokens": [held.token], "events": [{ "type": "update", "collection": "user",
            "key": 1, "fields": { "age": 77 } }] });
        let position = shop.post("write", &body)["position"].as_u64().unwrap();
        held.release();
        for reply in waiting {
            let (reply, path) = reply.join().unwrap();
            assert_eq!(reply.status, 200, "{path}: {reply:?}");
            // Document by document it may name the position it started at.
            assert!(isolation == "document" || reply.json()["position"] == position, "{path}: {reply:?}");
        }
        assert_no_locks(&shop);
        shop.update("user", 1, json!({ "age": 30 }));
    }
}

#[test]
fn r9_a_search_by_document_waits_only_for_what_its_filter_looks_at() {
    let (_server, shop) = start();
    let search = |isolation: &str, fields: Value, age: u64| {
        let mut body = json!({ "collection": "user", "filter": over_age(age), "isolation": isolation,
            "wait_ms": 0 });
        if !fields.is_null() {
            body["fields"] = fields;
        }
        shop.send("POST", "filter", &body.to_string())
    };
    let keys = |reply: crate::http::Reply| -> Vec<String> {
        assert_eq!(reply.status, 200, "{reply:?}");
        let page = reply.json();
        let documents = page["documents"].as_array().unwrap().iter();
        documents.map(|document| document["key"].as_str().unwrap().to_owned()).collect()
    };
    // Bob does not match, and the filter does not look at his name.
    let held = Held::take(&shop, "ann", "write user/2/name");
    search("locked", Value::Null, 25).assert_problem(423, "locked");
    assert_eq!(keys(search("document", Value::Null, 25)), ["1", "3"]);
    // Now he does, and all of him is asked for, or only what nobody has.
    search("document", Value::Null, 15).assert_problem(423, "locked");
    assert_eq!(keys(search("document", json!(["address"]), 15)), ["1", "2", "3"]);
    search("document", json!(["name"]), 15).assert_problem(423, "locked");
    let counted =
        json!({ "collection": "user", "filter": over_age(15), "isolation": "document", "wait_ms": 0 });
    assert_eq!(shop.post("count", &counted)["count"], 3);
    let named = json!({ "collection": "user", "field": "name", "isolation": "document", "wait_ms": 0 });
    shop.refuses("POST", "max", &named, 423, "locked");
    held.release();
    // What the filter looks at is waited for, match or not.
    let held = Held::take(&shop, "ann", "write user/2/age");
    let problem = search("document", Value::Null, 25).assert_problem(423, "locked");
    assert_eq!(problem["paths"], json!([["user", "2", "age"]]), "{problem}");
    shop.refuses("POST", "count", &counted, 423, "locked");
    held.release();
    assert_no_locks(&shop);
}

#[test]
fn r10_r11_a_search_by_document_finds_all_sorted_and_in_pages() {
    let (_server, shop) = start();
    let fields = json!({ "name": "x", "age": 50 });
    let create = |key| json!({ "type": "create", "collection": "user", "key": key, "fields": fields });
    shop.write((10..1300).map(create).collect());
    let held = Held::take(&shop, "ann", "write user/2/name");
    let ask = |isolation: &str, more: Value| {
        let mut body = json!({ "collection": "user", "filter": over_age(25), "isolation": isolation });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        shop.post("filter", &body)
    };
    for more in [
        json!({ "limit": 10_000 }),
        json!({ "limit": 7 }),
        json!({ "limit": 3, "sort": [{ "field": "age" }] }),
        json!({ "limit": 700, "sort": [{ "field": "age", "descending": true }] }),
    ] {
        let (free, locked) = (ask("snapshot", more.clone()), ask("document", more.clone()));
        assert_eq!(free, locked, "{more}");
        if let Some(next) = free["next"].as_str() {
            let mut more = more;
            more["cursor"] = next.into();
            assert_eq!(ask("snapshot", more.clone()), ask("document", more));
        }
    }
    held.release();
    assert_no_locks(&shop);
}

#[test]
fn r17_a_reader_that_goes_away_while_it_waits_leaves_nothing() {
    let (_server, shop) = start();
    let held = Held::take(&shop, "ann", "write user");
    let len = || shop.get("locks")["locks"].as_array().unwrap().len();
    for (method, path, body) in reads("locked", "").into_iter().chain(reads("document", "")) {
        let (path, body) = (path.replace("wait_ms=0", "wait_ms=20000"), body.replace(":0}", ":20000}"));
        let mut tcp = TcpStream::connect(shop.native).unwrap();
        let head = format!(
            "{method} {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n",
            shop.target(&path),
            shop.native
        );
        write!(tcp, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        eventually("it waits", || len() == 2);
        drop(tcp);
        eventually("it is gone", || len() == 1);
    }
    held.release();
    assert_no_locks(&shop);
}

/// One holds the collection and moves money in several writes; whoever reads with `locked` sees the same sum.
#[test]
fn r11_nothing_half_done_is_seen_under_locks() {
    let server = Server::start(&[]);
    let bank = Store::new(&server, "bank");
    for key in 0..8 {
        bank.create("account", key, json!({ "owner": key % 4, "money": 100 }));
        bank.create("owner", key, json!({ "number": key }));
    }
    let is_over = AtomicBool::new(false);
    let wait = 20_000;
    let check = |path: &str, body: Value, rows: &str, money: &str| {
        while !is_over.load(Ordering::Relaxed) {
            let answer = bank.post(path, &body);
            let rows = answer[rows].as_array().unwrap();
            assert_eq!(rows.len(), 8, "{answer}");
            let sum: u64 = rows.iter().map(|row| row.pointer(money).unwrap().as_u64().unwrap()).sum();
            assert_eq!(sum, 800, "{answer}");
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..40_u64 {
                let held = Held::take(&bank, "mover", "write account");
                let write = |event: Value| {
                    bank.post("write", &json!({ "tokens": [held.token], "events": [event] }));
                };
                let key = round % 8;
                write(json!({ "type": "update", "collection": "account", "key": key,
                    "fields": { "money": 0 } }));
                // Somebody new, who is there half of the time only.
                write(json!({ "type": "put", "collection": "account", "key": 100 + round,
                    "fields": { "owner": 1, "money": 100 } }));
                thread::sleep(Duration::from_millis(2));
                write(json!({ "type": "delete", "collection": "account", "key": 100 + round }));
                write(json!({ "type": "update", "collection": "account", "key": key,
                    "fields": { "money": 100 } }));
                held.release();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        scope.spawn(|| {
            let body = json!({ "collection": "account", "isolation": "locked", "wait_ms": wait });
            check("filter", body, "documents", "/value/money");
        });
        scope.spawn(|| {
            let body = json!({ "left": { "collection": "account", "field": "owner" },
                "right": { "collection": "owner", "field": "number" }, "isolation": "locked", "wait_ms": wait });
            check("join", body, "rows", "/left/value/money");
        });
        scope.spawn(|| {
            let known: Vec<Value> =
                (0..8).map(|key| json!({ "collection": "account", "key": key })).collect();
            let body = json!({ "documents": known, "isolation": "locked", "wait_ms": wait });
            check("get", body, "documents", "/value/money");
        });
    });
    assert_no_locks(&bank);
}

/// Document by document nobody is seen between two writes of a holder, though others may come and go.
#[test]
fn r9_no_document_is_seen_half_done() {
    let server = Server::start(&[]);
    let bank = Store::new(&server, "bank");
    for key in 0..4 {
        bank.create("account", key, json!({ "a": 1, "b": 1, "n": 1 }));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60_u64 {
                let key = round % 4;
                let held = Held::take(&bank, "mover", &format!("write account/{key}"));
                for field in ["a", "b"] {
                    bank.post(
                        "write",
                        &json!({ "tokens": [held.token], "events": [{ "type": "update",
                        "collection": "account", "key": key, "fields": { field: round } }] }),
                    );
                }
                held.release();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for (path, rows, prefix) in [("filter", "documents", ""), ("join", "rows", "/left")] {
            let (bank, is_over) = (&bank, &is_over);
            scope.spawn(move || {
                let side = json!({ "collection": "account", "field": "n" });
                let body = match path {
                    "filter" => json!({ "collection": "account", "isolation": "document", "wait_ms": 20_000,
                        "filter": { "field": "n", "op": "=", "value": 1 } }),
                    _ => json!({ "left": side, "right": side, "isolation": "document", "wait_ms": 20_000 }),
                };
                while !is_over.load(Ordering::Relaxed) {
                    for row in bank.post(path, &body)[rows].as_array().unwrap() {
                        let value = row.pointer(&format!("{prefix}/value")).unwrap();
                        assert_eq!(value["a"], value["b"], "{row}");
                    }
                }
            });
        }
    });
    assert_no_locks(&bank);
}
