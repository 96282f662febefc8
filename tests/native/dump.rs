//! Dumps: what is loaded is what was dumped, all of it or nothing.

use crate::{
    harness::{Server, eventually},
    http,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

const NDJSON: [(&str, &str); 1] = [("content-type", "application/x-ndjson")];

fn dump(store: &Store) -> String {
    let reply = http::request(store.native, "GET", &store.target("dump"), &[]);
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    reply.body
}

fn load(store: &Store, dump: &str) -> http::Reply {
    http::send(store.native, "POST", &store.target("load"), &NDJSON, dump.as_bytes())
}

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "shop");
    (server, store)
}

/// Some of everything.
fn fill(shop: &Store, from: u64) {
    for key in from..from + 20 {
        shop.create("user", key, json!({ "n": key, "tags": [1, "x"], "é": { "z": 1, "a": [null] } }));
    }
    shop.post(
        "write",
        &json!({ "user": { "z": 1, "a": 2 }, "note": "a\nnote\u{1f991}", "events": [
        { "type": "update", "collection": "user", "key": from, "fields": { "n": null, "m": 1 } },
        { "type": "create", "collection": "or/der", "key": ["a:b", from, "%"], "fields": { "x": 1 } },
        { "type": "update", "collection": "or/der", "key": ["a:b", from, "%"], "fields": { "x": null } },
        { "type": "delete", "collection": "user", "key": from + 1 },
    ] }),
    );
    let number = format!(r#"{{"big":123456789012345678901234567890,"float":1.50e3,"key":{from}}}"#);
    assert_eq!(shop.send("PUT", &format!("documents/number/{from}"), &number).status, 200);
    shop.write(json!([{ "type": "restore", "collection": "user", "key": from + 1 }]));
    shop.delete("user", from + 2);
    for n in 0..40 {
        shop.update("user", from + 3, json!({ "n": n, format!("f{}", n % 3): n, "gone": null }));
    }
    shop.post("reserve", &json!({ "collection": "user", "amount": 100 }));
    shop.ask("PUT", "indexes/user/n", &json!(null));
}

/// Everything that can be asked, in a form that can be compared.
fn look(shop: &Store) -> Vec<Value> {
    let position = shop.get("position")["position"].as_u64().unwrap();
    let horizon = shop.get("position")["horizon"].as_u64().unwrap();
    let mut seen = vec![shop.get("position"), shop.get("collections"), shop.get("changes?limit=10000")];
    for collection in ["user", "or%2Fder", "number"] {
        for at in horizon..=position {
            seen.push(shop.get(&format!("documents/{collection}?deleted=with&at={at}")));
        }
        let documents = shop.get(&format!("documents/{collection}?deleted=with"));
        for document in documents["documents"].as_array().unwrap() {
            let key = document["key"].as_str().unwrap().replace('%', "%25");
            seen.push(shop.get(&format!("history/{collection}/{key}")));
        }
    }
    // Which locks hold, told by which are broken; the write itself never goes through.
    let mut locks = Vec::new();
    for at in horizon..=position {
        locks.push(json!({ "collection": "user", "key": 3, "field": "n", "position": at }));
        locks.push(json!({ "collection": "user", "field": "f1", "position": at }));
        locks.push(json!({ "collection": "user", "key": 1, "position": at }));
        let filter = json!({ "field": "n", "op": "<", "value": 9 });
        locks.push(json!({ "collection": "user", "field": "m", "filter": filter, "position": at }));
    }
    let body = json!({ "locks": locks, "events": [{ "type": "restore", "collection": "x", "key": 1 }] });
    seen.push(shop.send("POST", "write", &body.to_string()).json());
    seen
}

#[track_caller]
fn check_round_trip(shop: &Store) {
    let text = dump(shop);
    let copy = Store { namespace: "copy".into(), ..shop.clone() };
    let loaded = load(&copy, &text);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(loaded.json()["position"], shop.get("position")["position"]);
    let again = dump(&copy).replacen("\"namespace\":\"copy\"", "\"namespace\":\"shop\"", 1);
    for (line, (one, other)) in text.lines().zip(again.lines()).enumerate() {
        assert_eq!(one, other, "line {}", line + 1);
    }
    assert_eq!(text, again);
    assert_eq!(look(shop), look(&copy));
    eventually("the index is built", || copy.get("indexes") == shop.get("indexes"));
    let reserve = json!({ "collection": "user", "amount": 1 });
    assert_eq!(shop.post("reserve", &reserve), copy.post("reserve", &reserve));
}

#[test]
fn a_round_trip_changes_nothing() {
    let (_server, shop) = start();
    fill(&shop, 0);
    check_round_trip(&shop);
}

#[test]
fn a_round_trip_after_history_was_forgotten() {
    let (server, shop) = start();
    fill(&shop, 0);
    shop.trim(0);
    fill(&shop, 1000);
    shop.update("user", 3, json!({ "n": 1 }));
    shop.delete("user", 4);
    shop.write(json!([{ "type": "restore", "collection": "user", "key": 2 }]));
    check_round_trip(&shop);
    // And everything is still there after a restart.
    let copy = Store { namespace: "copy".into(), ..shop };
    let before = look(&copy);
    let server = server.kill().restart(&[]);
    assert_eq!(look(&Store::new(&server, "copy")), before);
}

#[test]
fn a_round_trip_when_all_history_is_forgotten() {
    let (_server, shop) = start();
    fill(&shop, 0);
    shop.trim(0);
    let position = shop.get("position");
    assert_eq!(position["position"], position["horizon"]);
    check_round_trip(&shop);
}

#[test]
fn the_lines_of_a_dump() {
    let (_server, shop) = start();
    shop.create("a", 7, json!({ "x": 1 }));
    shop.trim(0);
    shop.post(
        "write",
        &json!({ "user": 1, "events": [
        { "type": "update", "collection": "a", "key": 7, "fields": { "x": null, "y": 2 } },
        { "type": "delete", "collection": "a", "key": 7 }] }),
    );
    let text = dump(&shop);
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines[2]["commit"]["at"].take().as_u64().unwrap() > 1_700_000_000_000);
    let expected = json!([
        { "lockwood": "dump", "format": 1, "namespace": "shop", "position": 2, "horizon": 1 },
        { "document": { "collection": "a", "key": "7", "created": 1, "position": 1, "existence": 1,
            "deleted": false, "version": 1, "fields": { "x": 1 } } },
        { "commit": { "position": 2, "at": null, "user": 1, "events": [
            { "type": "updated", "collection": "a", "key": "7", "fields": { "y": 2 }, "removed": ["x"] },
            { "type": "deleted", "collection": "a", "key": "7", "had": ["y"] }] } },
        { "counter": { "collection": "a", "next": 8 } },
        { "end": { "lines": 4 } },
    ]);
    assert_eq!(Value::from(lines), expected);
}

#[test]
fn a_dump_is_of_one_moment() {
    let (_server, shop) = start();
    shop.create("sum", 1, json!({ "n": 0 }));
    shop.create("sum", 2, json!({ "n": 0 }));
    let writer = {
        let shop = shop.clone();
        std::thread::spawn(move || {
            for n in 1..200 {
                shop.write(json!([
                    { "type": "update", "collection": "sum", "key": 1, "fields": { "n": n } },
                    { "type": "update", "collection": "sum", "key": 2, "fields": { "n": -n } }]));
            }
        })
    };
    for number in 0..10 {
        let copy = Store { namespace: format!("copy{number}"), ..shop.clone() };
        let loaded = load(&copy, &dump(&shop));
        assert_eq!(loaded.status, 200, "{}", loaded.body);
        let value =
            |key| copy.get(&format!("documents/sum/{key}"))["document"]["value"]["n"].as_i64().unwrap();
        assert_eq!(value(1) + value(2), 0);
    }
    writer.join().unwrap();
}

/// What is wrong with a dump is told with its line, and nothing of it stays.
#[test]
fn a_damaged_dump_leaves_nothing_behind() {
    let (_server, shop) = start();
    fill(&shop, 0);
    shop.trim(0);
    fill(&shop, 1000);
    let good = dump(&shop);
    let lines: Vec<&str> = good.lines().collect();
    let first_commit = lines.iter().position(|line| line.starts_with("{\"commit\"")).unwrap();
    let copy = Store { namespace: "copy".into(), ..shop };
    let check = |what: &str, text: &str, part: &str| {
        let problem = load(&copy, text).assert_problem(400, "bad_body");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(part), "{what}: {detail}");
        assert_eq!(copy.get("position"), json!({ "position": 0, "horizon": 0 }), "{what}");
        assert_eq!(copy.get("collections")["collections"], json!([]), "{what}");
        assert_eq!(copy.get("indexes")["indexes"], json!([]), "{what}");
    };
    let with = |number: usize, line: &str| {
        let mut lines = lines.clone();
        lines[number] = line;
        lines.join("\n")
    };
    let without = |number: usize| {
        let mut lines = lines.clone();
        lines.remove(number);
        lines.join("\n")
    };
    check("nothing at all", "", "line 1:");
    check("not a dump", "{}", "line 1: this is not how a dump begins");
    check("another format", &with(0, &lines[0].replace("\"format\":1", "\"format\":2")), "line 1:");
    check("cut off", &lines[..lines.len() - 1].join("\n"), "cut off");
    check("cut off in a line", &good[..good.len() / 2], "line ");
    check("a missing document", &without(3), &format!("line {}:", lines.len() - 1));
    check("a missing commit", &without(first_commit + 5), "line ");
    check("the last commit missing", &without(first_commit + 63), "line ");
    check("not JSON", &with(first_commit, "{"), &format!("line {}:", first_commit + 1));
    check("an empty line", &with(first_commit, ""), &format!("line {}:", first_commit + 1));
    check("a document after a commit", &with(first_commit + 1, lines[1]), "not where such lines are");
    check("the same document twice", &with(2, lines[1]), "there twice");
    check("more after the end", &format!("{good}{}", lines[1]), "not where such lines are");
    let changed = lines[0].replace("\"position\":", "\"position\":1");
    check("another position", &with(0, &changed), "line 1: the dump says");
    let odd = r#"{"commit":{"position":N,"at":1,"events":[{"type":"restored","collection":"user","key":"0","fields":{}}]}}"#;
    let position = lines[first_commit].split(&[':', ','][..]).nth(2).unwrap();
    check("what cannot have happened", &with(first_commit, &odd.replace('N', position)), "cannot be then");
    // After all that a good one is taken.
    assert_eq!(load(&copy, &good).status, 200);
    assert_eq!(look(&copy), look(&shop));
}

#[test]
fn mistakes_in_lines_have_their_own_codes() {
    let (_server, shop) = start();
    let head = r#"{"lockwood":"dump","format":1,"namespace":"x","position":1,"horizon":0}"#;
    let check = |line: &str, code: &str| {
        load(&shop, &format!("{head}\n{line}\n")).assert_problem(400, code);
        assert_eq!(shop.get("position")["position"], 0);
    };
    check(r#"{"documents":{}}"#, "bad_body");
    check(r#"{"counter":{"collection":"a","next":1,"x":1}}"#, "unknown_member");
    check(r#"{"counter":{"collection":"","next":1}}"#, "bad_collection");
    check(r#"{"counter":{"collection":"a\u0000b","next":1}}"#, "bad_collection");
    check(r#"{"counter":{"collection":"a","next":0}}"#, "bad_body");
    check(r#"{"counter":{"collection":"a","next":9223372036854775809}}"#, "bad_body");
    check(r#"{"index":{"collection":"a","field":""}}"#, "bad_field");
    let event = |event: &str| format!(r#"{{"commit":{{"position":1,"at":1,"events":[{event}]}}}}"#);
    check(&event(r#"{"type":"created","collection":"a","key":"","fields":{}}"#), "bad_key");
    check(&event(r#"{"type":"created","collection":"a","key":"1","fields":{"":1}}"#), "bad_field");
    check(
        &event(r#"{"type":"created","collection":"a","key":"1","fields":{"meta_deleted":1}}"#),
        "reserved_field",
    );
    check(&event(""), "bad_body");
    let used = event(r#"{"type":"created","collection":"a","key":"7","fields":{}}"#);
    check(&format!(r#"{used}{}{{"counter":{{"collection":"a","next":3}}}}"#, "\n"), "bad_body");
    let deep = format!("{}{}", "[".repeat(101), "]".repeat(101));
    let line = event(&format!(r#"{{"type":"created","collection":"a","key":"1","fields":{{"x":{deep}}}}}"#));
    check(&line, "json_too_deep");
}

#[test]
fn a_dump_is_loaded_into_an_empty_namespace_only() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({}));
    let text = dump(&shop);
    load(&shop, &text).assert_problem(409, "namespace_not_empty");
    assert_eq!(shop.get("position")["position"], 1);
    let counted = Store { namespace: "counted".into(), ..shop };
    counted.post("reserve", &json!({ "collection": "a", "amount": 1 }));
    load(&counted, &text).assert_problem(409, "namespace_not_empty");
    let typed = [("content-type", "text/plain")];
    let other = Store { namespace: "other".into(), ..shop };
    let reply = http::send(other.native, "POST", &other.target("load"), &typed, text.as_bytes());
    reply.assert_problem(415, "unsupported_media_type");
    assert_eq!(load(&other, text.trim_end()).json(), json!({ "position": 1, "documents": 1, "commits": 1 }));
}

/// A load that is under way: the first half of a dump was sent.
fn begin(store: &Store, text: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(store.native).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        store.target("load"),
        store.native,
        text.len()
    );
    tcp.write_all(head.as_bytes()).unwrap();
    tcp.write_all(&text.as_bytes()[..text.len() / 2]).unwrap();
    tcp
}

#[test]
fn nobody_writes_in_between() {
    let (_server, shop) = start();
    fill(&shop, 0);
    let text = dump(&shop);
    let copy = Store { namespace: "copy".into(), ..shop };
    let mut tcp = begin(&copy, &text);
    let create = json!({ "events": [{ "type": "create", "collection": "a", "key": 1, "fields": {} }] });
    // Something that changes nothing shows whether the load has begun.
    let restore = json!({ "events": [{ "type": "restore", "collection": "a", "key": 1 }] }).to_string();
    eventually("the load has begun", || {
        copy.send("POST", "write", &restore).json()["code"] == "namespace_loading"
    });
    copy.refuses("POST", "write", &create, 409, "namespace_loading");
    copy.refuses("POST", "reserve", &json!({ "collection": "a", "amount": 1 }), 409, "namespace_loading");
    copy.refuses("PUT", "indexes/a/x", &json!(null), 409, "namespace_loading");
    load(&copy, &text).assert_problem(409, "namespace_loading");
    tcp.write_all(&text.as_bytes()[text.len() / 2..]).unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(look(&copy), look(&shop));
    copy.create("a", 1, json!({}));
}

#[test]
fn a_load_that_is_given_up_leaves_nothing() {
    let (_server, shop) = start();
    for n in 0..3 {
        fill(&shop, n * 1000);
    }
    let text = dump(&shop);
    let copy = Store { namespace: "copy".into(), ..shop };
    drop(begin(&copy, &text));
    eventually("it is empty again", || load(&copy, &text).status == 200);
}

#[test]
fn a_load_cut_off_by_a_crash_leaves_nothing() {
    let (server, shop) = start();
    for key in 0..200 {
        shop.create("a", key, json!({ "x": "x".repeat(20_000) }));
    }
    let text = dump(&shop);
    let copy = Store { namespace: "copy".into(), ..shop };
    let _tcp = begin(&copy, &text);
    eventually("some of it is there", || {
        let listed = http::request(copy.native, "GET", "/v1/namespaces", &[]).json();
        listed["namespaces"][0]["position"].as_u64().unwrap_or(0) > 0
    });
    assert_eq!(copy.get("position")["position"], 0, "and nobody sees it");
    assert_eq!(copy.get("collections")["collections"], json!([]));
    let server = server.kill().restart(&[]);
    let copy = Store::new(&server, "copy");
    assert_eq!(copy.get("position"), json!({ "position": 0, "horizon": 0 }));
    assert_eq!(copy.get("collections")["collections"], json!([]));
    assert_eq!(load(&copy, &text).status, 200);
    assert_eq!(copy.get("position")["position"], 200);
}
