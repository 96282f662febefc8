//! Every route of the document interface, whole answers compared.

use crate::{
    harness::Server,
    http::{self, get_json},
    peer::Peer,
    store::{Store, timeless},
};
use serde_json::{Value, json};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "shop");
    (server, store)
}

fn written(position: u64) -> Value {
    json!({ "position": position, "positions": [position], "replayed": false })
}

#[test]
fn a_document_is_put_read_replaced_and_deleted() {
    let (_server, shop) = start();
    let path = "documents/user/42";
    assert_eq!(shop.ask("PUT", path, &json!({ "name": "Ann", "age": 30, "gone": null })), written(1));
    assert_eq!(shop.ask("PUT", &format!("{path}?user=7&note=birthday"), &json!({ "age": 31 })), written(2));
    let document = json!({ "collection": "user", "key": "42", "position": 2, "created": 1, "deleted": false,
        "value": { "age": 31 } });
    assert_eq!(shop.get(path), json!({ "position": 2, "document": document }));
    assert_eq!(shop.get(&format!("{path}?fields=name")), {
        let mut answer = json!({ "position": 2, "document": document });
        answer["document"]["value"] = json!({});
        answer
    });
    let old = shop.get(&format!("{path}?at=1&fields=name,age"));
    assert_eq!(old["document"]["value"], json!({ "name": "Ann", "age": 30 }));
    assert_eq!(shop.ask("DELETE", &format!("{path}?position=2"), &json!(null)), written(3));
    let problem = shop.send("GET", path, "").assert_problem(404, "no_document");
    assert!(problem["detail"].as_str().unwrap().contains("is deleted"), "{problem}");
    let with = shop.get(&format!("{path}?deleted=with"));
    assert_eq!(with["document"]["deleted"], true);
    assert_eq!(shop.get(&format!("{path}?deleted=only")), with);
    shop.send("GET", "documents/user/43", "").assert_problem(404, "no_document");
    shop.refuses("PUT", &format!("{path}?if=present"), &json!({}), 409, "document_deleted");
}

#[test]
fn puts_can_insist() {
    let (_server, shop) = start();
    shop.refuses("PUT", "documents/a/1?if=present", &json!({}), 404, "no_document");
    assert_eq!(shop.ask("PUT", "documents/a/1?if=absent", &json!({})), written(1));
    shop.refuses("PUT", "documents/a/1?if=absent", &json!({}), 409, "document_exists");
    assert_eq!(shop.ask("PUT", "documents/a/1?if=present", &json!({ "x": 1 })), written(2));
    shop.refuses("PUT", "documents/a/1?if=maybe", &json!({}), 400, "bad_query");
    shop.refuses("PUT", "documents/a/1?position=1", &json!({}), 409, "position_locked");
    assert_eq!(shop.ask("PUT", "documents/a/1?position=2", &json!({ "x": 2 })), written(3));
    shop.refuses("DELETE", "documents/a/1?position=2", &json!(null), 409, "position_locked");
}

#[test]
fn keys_are_written_in_many_ways() {
    let (_server, shop) = start();
    shop.create("order", json!(["eu", 42]), json!({ "n": 1 }));
    shop.create("order", json!(["a:b", "50%"]), json!({ "n": 2 }));
    shop.create("order", 7, json!({ "n": 3 }));
    for (path, n) in [("eu:42", 1), ("a%253Ab:50%2525", 2), ("7", 3)] {
        assert_eq!(shop.get(&format!("documents/order/{path}"))["document"]["value"]["n"], n, "{path}");
    }
    assert_eq!(shop.found(&json!({ "collection": "order" })), ["7", "a%3Ab:50%25", "eu:42"]);
    let wanted = json!([{ "collection": "order", "key": "7" }, { "collection": "order", "key": "eu:42" }]);
    let got = shop.post("get", &json!({ "documents": wanted }));
    assert_eq!(
        (&got["documents"][0]["value"]["n"], &got["documents"][1]["value"]["n"]),
        (&3.into(), &1.into())
    );
}

#[test]
fn a_write_call_does_all_its_requests_or_none() {
    let (_server, shop) = start();
    let create =
        |key: u64| json!({ "events": [{ "type": "create", "collection": "a", "key": key, "fields": {} }] });
    let answer = shop.post("write", &json!({ "requests": [create(1), create(2)] }));
    assert_eq!(answer, json!({ "position": 2, "positions": [1, 2], "replayed": false }));
    shop.refuses("POST", "write", &json!({ "requests": [create(3), create(1)] }), 409, "document_exists");
    assert_eq!(shop.get("position"), json!({ "position": 2, "horizon": 0 }));
    assert_eq!(shop.post("count", &json!({ "collection": "a" })), json!({ "position": 2, "count": 2 }));
}

#[test]
fn an_idempotency_key_answers_again() {
    let (_server, shop) = start();
    let call = json!({ "idempotency_key": "k",
        "events": [{ "type": "create", "collection": "a", "key": 1, "fields": { "x": 1 } }] });
    assert_eq!(shop.post("write", &call), written(1));
    let again = shop.post("write", &call);
    assert_eq!(again, json!({ "position": 1, "positions": [1], "replayed": true }));
    let mut other = call;
    other["events"][0]["fields"]["x"] = 2.into();
    shop.refuses("POST", "write", &other, 409, "idempotency_mismatch");
}

#[test]
fn every_kind_of_event() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({ "tags": ["x"], "n": 1 }));
    let update = json!([{ "type": "update", "collection": "a", "key": 1, "fields": { "n": null, "m": 2 },
        "add": { "tags": ["y", "x"] }, "remove": { "tags": ["x"] } }]);
    shop.write(update);
    let value = |at: &str| shop.get(&format!("documents/a/1?deleted=with{at}"))["document"]["value"].clone();
    assert_eq!(value(""), json!({ "tags": ["y"], "m": 2 }));
    shop.write(json!([{ "type": "put", "collection": "a", "key": 1, "fields": { "z": 1 } }]));
    assert_eq!(value(""), json!({ "z": 1 }));
    shop.delete("a", 1);
    shop.refuses(
        "POST",
        "write",
        &json!({ "events": [{ "type": "update", "collection": "a", "key": 1,
        "fields": { "n": 1 } }] }),
        409,
        "document_deleted",
    );
    shop.write(json!([{ "type": "restore", "collection": "a", "key": 1 }]));
    shop.refuses(
        "POST",
        "write",
        &json!({ "events": [{ "type": "restore", "collection": "a", "key": 1 }] }),
        409,
        "not_deleted",
    );
    assert_eq!(value(""), json!({ "z": 1 }));
    shop.refuses(
        "POST",
        "write",
        &json!({ "events": [{ "type": "update", "collection": "a", "key": 1,
        "add": { "z": [1] } }] }),
        400,
        "not_a_list",
    );
    assert_eq!(shop.get("position")["position"], 5);
}

#[test]
fn several_documents_are_read_in_the_order_asked_for() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({ "x": 1, "y": 1 }));
    shop.create("b", "k", json!({ "x": 2, "y": 2 }));
    shop.delete("b", "k");
    let wanted = json!([{ "collection": "b", "key": "k" }, { "collection": "a", "key": 1, "fields": ["y"] },
        { "collection": "a", "key": 2 }]);
    let one = json!({ "collection": "a", "key": "1", "position": 1, "created": 1, "deleted": false,
        "value": { "y": 1 } });
    let answer = shop.post("get", &json!({ "documents": wanted, "fields": ["x"] }));
    assert_eq!(answer, json!({ "position": 3, "documents": [null, one, null] }));
    let other = json!({ "collection": "b", "key": "k", "position": 3, "created": 2, "deleted": true,
        "value": { "x": 2 } });
    let answer = shop.post("get", &json!({ "documents": wanted, "fields": ["x"], "deleted": "with" }));
    assert_eq!(answer, json!({ "position": 3, "documents": [other, one, null] }));
    let answer = shop.post("get", &json!({ "documents": wanted, "fields": ["x"], "at": 1 }));
    assert_eq!(answer, json!({ "position": 1, "documents": [null, one, null] }));
}

fn people(shop: &Store) {
    let people = [("ann", 30, "red"), ("bob", 20, "blue"), ("cy", 40, "red"), ("dee", 25, "RED")];
    for (n, (name, age, color)) in people.into_iter().enumerate() {
        shop.create("user", n + 1, json!({ "name": name, "age": age, "color": color }));
    }
    shop.create("user", 5, json!({ "name": "eve" }));
}

#[test]
fn filters_find_sort_and_page() {
    let (_server, shop) = start();
    people(&shop);
    let found = |filter: Value| shop.found(&json!({ "collection": "user", "filter": filter }));
    let is = |field: &str, op: &str, value: Value| json!({ "field": field, "op": op, "value": value });
    assert_eq!(found(is("age", ">", 25.into())), ["1", "3"]);
    assert_eq!(found(is("age", "!=", 30.into())), ["2", "3", "4"]);
    assert_eq!(found(json!({ "not": is("age", "=", 30.into()) })), ["2", "3", "4", "5"]);
    assert_eq!(found(is("age", "=", Value::Null)), ["5"]);
    assert_eq!(found(is("color", "~=", "red".into())), ["1", "3", "4"]);
    assert_eq!(found(is("name", "%=", "%E%".into())), ["4", "5"]);
    let both = json!({ "and": [is("color", "=", "red".into()), is("age", "<=", 30.0.into())] });
    assert_eq!(found(both.clone()), ["1"]);
    assert_eq!(found(json!({ "or": [both, is("name", "=", "bob".into())] })), ["1", "2"]);
    // Sorted, in pages of two.
    let mut body = json!({ "collection": "user", "sort": [{ "field": "age", "descending": true }], "limit": 2,
        "fields": ["name"] });
    let first = shop.post("filter", &body);
    let names = |page: &Value| -> Vec<String> {
        let documents = page["documents"].as_array().unwrap().iter();
        documents.map(|document| document["value"]["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&first), ["cy", "ann"]);
    body["cursor"] = first["next"].clone();
    let second = shop.post("filter", &body);
    assert_eq!(names(&second), ["dee", "bob"]);
    body["cursor"] = second["next"].clone();
    let last = shop.post("filter", &body);
    assert_eq!(
        last,
        json!({ "position": 5, "documents": [{ "collection": "user", "key": "5", "position": 5,
        "created": 5, "deleted": false, "value": { "name": "eve" } }] })
    );
}

#[test]
fn a_collection_is_listed_in_pages() {
    let (_server, shop) = start();
    people(&shop);
    shop.delete("user", 2);
    let first = shop.get("documents/user?limit=2&fields=name");
    let document = |key: &str, position: u64, name: &str| {
        json!({ "collection": "user", "key": key, "position": position, "created": position,
            "deleted": false, "value": { "name": name } })
    };
    let next = first["next"].as_str().unwrap();
    let documents = json!([document("1", 1, "ann"), document("3", 3, "cy")]);
    assert_eq!(first, json!({ "position": 6, "documents": documents, "next": next }));
    let rest = shop.get(&format!("documents/user?limit=2&fields=name&cursor={next}"));
    let documents = json!([document("4", 4, "dee"), document("5", 5, "eve")]);
    assert_eq!(rest, json!({ "position": 6, "documents": documents }));
    let deleted = shop.get("documents/user?deleted=only");
    assert_eq!(deleted["documents"][0]["key"], "2");
    assert_eq!(shop.get("documents/user?at=5&deleted=only")["documents"], json!([]));
}

#[test]
fn counts_and_extremes() {
    let (_server, shop) = start();
    people(&shop);
    let red = json!({ "collection": "user", "filter": { "field": "color", "op": "=", "value": "red" } });
    assert_eq!(shop.post("count", &red), json!({ "position": 5, "count": 2 }));
    assert_eq!(shop.post("exists", &red), json!({ "position": 5, "exists": true }));
    let none = json!({ "collection": "nobody" });
    assert_eq!(shop.post("exists", &none), json!({ "position": 5, "exists": false }));
    let age = |filter: Value| json!({ "collection": "user", "field": "age", "filter": filter });
    let old = json!({ "field": "age", "op": ">", "value": 25 });
    assert_eq!(shop.post("min", &age(old.clone())), json!({ "position": 5, "min": 30 }));
    assert_eq!(shop.post("max", &age(old)), json!({ "position": 5, "max": 40 }));
    let nothing = json!({ "collection": "user", "field": "height" });
    assert_eq!(shop.post("min", &nothing), json!({ "position": 5, "min": null }));
    assert_eq!(shop.post("max", &nothing), json!({ "position": 5, "max": null }));
}

#[test]
fn history_tells_who_changed_what() {
    let (_server, shop) = start();
    let write = |body: Value| shop.post("write", &body);
    write(json!({ "user": 7, "note": { "why": "new" },
        "events": [{ "type": "create", "collection": "a", "key": 1, "fields": { "x": 1, "y": [1] } }] }));
    shop.create("a", 2, json!({}));
    write(json!({ "user": "bob",
        "events": [{ "type": "update", "collection": "a", "key": 1, "fields": { "x": 2, "y": null, "z": 1.50 } }] }));
    shop.delete("a", 1);
    shop.write(json!([{ "type": "restore", "collection": "a", "key": 1 }]));
    let entries = json!([
        { "position": 1, "at": "T", "user": 7, "note": { "why": "new" }, "event": "created",
          "changes": { "x": { "after": 1 }, "y": { "after": [1] } } },
        { "position": 3, "at": "T", "user": "bob", "note": null, "event": "updated",
          "changes": { "x": { "before": 1, "after": 2 }, "y": { "before": [1] }, "z": { "after": 1.50 } } },
        { "position": 4, "at": "T", "user": null, "note": null, "event": "deleted", "changes": {} },
        { "position": 5, "at": "T", "user": null, "note": null, "event": "restored", "changes": {} },
    ]);
    assert_eq!(timeless(shop.get("history/a/1")), json!({ "position": 5, "entries": entries }));
    let first = timeless(shop.get("history/a/1?limit=2"));
    let expected = json!({ "position": 5, "entries": [entries[0], entries[1]], "next": 3 });
    assert_eq!(first, expected);
    let rest = timeless(shop.get("history/a/1?limit=2&after=3"));
    assert_eq!(rest, json!({ "position": 5, "entries": [entries[2], entries[3]] }));
    assert_eq!(shop.get("history/a/1?after=5")["entries"], json!([]));
    shop.send("GET", "history/a/3", "").assert_problem(404, "no_document");
    Store { namespace: "empty".into(), ..shop }
        .send("GET", "history/a/1", "")
        .assert_problem(404, "no_document");
}

#[test]
fn history_of_many_changes_is_complete() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({ "n": 0 }));
    for n in 1..100 {
        shop.update("a", 1, json!({ "n": n }));
    }
    let (mut after, mut seen) = (0, Vec::new());
    loop {
        let page = shop.get(&format!("history/a/1?limit=7&after={after}"));
        seen.extend(page["entries"].as_array().unwrap().iter().map(|entry| entry["changes"]["n"].clone()));
        match page["next"].as_u64() {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(seen.len(), 100);
    for (n, diff) in seen.iter().enumerate().skip(1) {
        assert_eq!(*diff, json!({ "before": n - 1, "after": n }));
    }
}

#[test]
fn a_page_of_changes() {
    let (_server, shop) = start();
    assert_eq!(shop.get("changes"), json!({ "position": 0, "commits": [], "next": 0 }));
    let write = |body: Value| shop.post("write", &body);
    write(json!({ "user": 1, "note": "n",
        "events": [{ "type": "create", "collection": "a", "key": 1, "fields": { "x": 1 } },
                   { "type": "create", "collection": "b", "key": 1, "fields": { "y": 1 } }] }));
    shop.write(json!([{ "type": "update", "collection": "a", "key": 1, "fields": { "x": null, "z": 2 } }]));
    shop.delete("b", 1);
    shop.write(json!([{ "type": "restore", "collection": "b", "key": 1 }]));
    let created_a = json!({ "type": "created", "collection": "a", "key": "1", "fields": { "x": 1 } });
    let created_b = json!({ "type": "created", "collection": "b", "key": "1", "fields": { "y": 1 } });
    let commits = json!([
        { "position": 1, "at": "T", "user": 1, "note": "n", "events": [created_a, created_b] },
        { "position": 2, "at": "T", "user": null, "note": null, "events": [
            { "type": "updated", "collection": "a", "key": "1", "fields": { "z": 2 }, "removed": ["x"] }] },
        { "position": 3, "at": "T", "user": null, "note": null, "events": [
            { "type": "deleted", "collection": "b", "key": "1" }] },
        { "position": 4, "at": "T", "user": null, "note": null, "events": [
            { "type": "restored", "collection": "b", "key": "1", "fields": { "y": 1 } }] },
    ]);
    let changes = |query: &str| timeless(shop.get(&format!("changes{query}")));
    assert_eq!(changes(""), json!({ "position": 4, "commits": commits, "next": 4 }));
    assert_eq!(changes("?limit=2"), json!({ "position": 4, "commits": [commits[0], commits[1]], "next": 2 }));
    assert_eq!(
        changes("?limit=2&after=2"),
        json!({ "position": 4, "commits": [commits[2], commits[3]], "next": 4 })
    );
    assert_eq!(changes("?after=4"), json!({ "position": 4, "commits": [], "next": 4 }));
    let mut only_b = commits[0].clone();
    only_b["events"] = json!([created_b]);
    assert_eq!(
        changes("?collection=b,c"),
        json!({ "position": 4, "commits": [only_b, commits[2], commits[3]], "next": 4 })
    );
    assert_eq!(changes("?field=z")["commits"], json!([commits[1]]));
    assert_eq!(changes("?field=x&collection=a")["next"], 4);
    assert_eq!(changes("?field=nothing"), json!({ "position": 4, "commits": [], "next": 4 }));
    // Says how far it looked, although nothing was found.
    let looked = changes("?field=meta_deleted&collection=b&limit=2");
    assert_eq!(looked, json!({ "position": 4, "commits": [only_b, commits[2]], "next": 3 }));
}

#[test]
fn ids_are_reserved() {
    let (_server, shop) = start();
    let reserve = |amount: u64| shop.post("reserve", &json!({ "collection": "a", "amount": amount }));
    assert_eq!(reserve(3), json!({ "first": 1, "last": 3 }));
    assert_eq!(reserve(1), json!({ "first": 4, "last": 4 }));
    shop.create("a", 10, json!({}));
    assert_eq!(reserve(1), json!({ "first": 11, "last": 11 }));
    shop.refuses("POST", "reserve", &json!({ "collection": "a", "amount": 0 }), 400, "bad_body");
}

#[test]
fn positions_and_collections() {
    let (_server, shop) = start();
    assert_eq!(shop.get("position"), json!({ "position": 0, "horizon": 0 }));
    assert_eq!(shop.get("collections"), json!({ "position": 0, "collections": [] }));
    shop.create("user", 1, json!({}));
    shop.create("order", 1, json!({}));
    shop.delete("order", 1);
    assert_eq!(shop.get("collections"), json!({ "position": 3, "collections": ["order", "user"] }));
    assert_eq!(shop.get("position"), json!({ "position": 3, "horizon": 0 }));
    assert_eq!(shop.trim(0), json!({ "trimmed": 3 }));
    assert_eq!(shop.trim(0), json!({ "trimmed": 0 }));
    assert_eq!(shop.get("position"), json!({ "position": 3, "horizon": 3 }));
}

#[test]
fn namespaces_with_documents_are_listed() {
    let (server, shop) = start();
    let mut ann = Peer::open_with(&server, "locks", json!({}));
    ann.hold("write a");
    shop.create("user", 1, json!({}));
    let listed = json!({ "namespaces": [
        { "namespace": "locks", "sessions": 1, "locks_granted": 1, "locks_waiting": 0 },
        { "namespace": "shop", "sessions": 0, "locks_granted": 0, "locks_waiting": 0, "position": 1 },
    ] });
    assert_eq!(get_json(&server, "/v1/namespaces"), listed);
    let _both = Peer::open_with(&server, "shop", json!({}));
    let listed = get_json(&server, "/v1/namespaces");
    assert_eq!(
        (&listed["namespaces"][1]["sessions"], &listed["namespaces"][1]["position"]),
        (&1.into(), &1.into())
    );
}

#[test]
fn namespaces_are_apart() {
    let (server, shop) = start();
    let other = Store::new(&server, "other%20one");
    shop.create("a", 1, json!({ "in": "shop" }));
    other.create("a", 1, json!({ "in": "other" }));
    assert_eq!(shop.get("documents/a/1")["document"]["value"]["in"], "shop");
    assert_eq!(other.get("documents/a/1")["document"]["value"]["in"], "other");
    assert_eq!(other.get("position")["position"], 1);
}

#[test]
fn documents_survive_a_restart() {
    let (server, shop) = start();
    people(&shop);
    shop.delete("user", 2);
    let paths = ["documents/user?deleted=with", "changes", "history/user/2", "position", "collections"];
    let before: Vec<Value> = paths.map(|path| shop.get(path)).to_vec();
    let server = server.kill().restart(&[]);
    let shop = Store::new(&server, "shop");
    let after: Vec<Value> = paths.map(|path| shop.get(path)).to_vec();
    assert_eq!(before, after);
    let server = server.stop().restart(&[]);
    let shop = Store::new(&server, "shop");
    assert_eq!(before, paths.map(|path| shop.get(path)));
    assert_eq!(shop.create("user", 9, json!({})), 7);
}

#[test]
fn old_history_is_forgotten_by_a_server_that_is_told_so() {
    let (server, shop) = start();
    people(&shop);
    let server = server.stop().restart(&["--retain", "0"]);
    let shop = Store::new(&server, "shop");
    crate::harness::eventually("it is forgotten", || shop.get("position")["horizon"] == 5);
    assert_eq!(shop.get("documents/user")["documents"].as_array().unwrap().len(), 5);
    let server = server.stop().restart(&["--retain", "1h"]);
    let shop = Store::new(&server, "shop");
    shop.create("user", 6, json!({}));
    assert_eq!(shop.get("position"), json!({ "position": 6, "horizon": 5 }));
}

#[test]
fn numbers_and_text_stay_as_they_were_written() {
    let (_server, shop) = start();
    let body = r#"{ "a": 1.50, "b": 123456789012345678901234567890, "c": "\u00e9\ud83e\udd91", "d": [1, {"z":1,"a":2}] }"#;
    assert_eq!(shop.send("PUT", "documents/a/1", body).status, 200);
    let reply = http::request(shop.native, "GET", &shop.target("documents/a/1"), &[]);
    let value = r#""value":{"a":1.50,"b":123456789012345678901234567890,"c":"\u00e9\ud83e\udd91","d":[1,{"z":1,"a":2}]}"#;
    assert!(reply.body.contains(value), "{}", reply.body);
}

#[test]
fn metrics_count_documents() {
    let (server, shop) = start();
    people(&shop);
    shop.refuses("PUT", "documents/user/1?position=0", &json!({}), 409, "position_locked");
    shop.get("documents/user/1");
    let value = |name: &str| crate::metrics::value(&server, name);
    assert_eq!(value("lockwood_writes_total"), 5.0);
    assert_eq!(value("lockwood_write_events_total"), 5.0);
    assert_eq!(value("lockwood_position_lock_refusals_total"), 1.0);
    assert!(value("lockwood_batches_total") >= 1.0);
    assert!(value("lockwood_reads_total") >= 1.0);
    assert_eq!(value("lockwood_feeds"), 0.0);
    assert_eq!(value("lockwood_position{namespace=\"shop\"}"), 5.0);
}

#[test]
fn parameters_that_would_be_overlooked_are_refused() {
    let (_server, shop) = start();
    shop.create("a", 1, json!({ "x": 1 }));
    for path in ["dump?at=1", "position?at=1", "collections?at=1"] {
        let refused = shop.refuses("GET", path, &json!(null), 400, "bad_query");
        assert!(refused["detail"].to_string().contains("at"), "{refused}");
    }
    for wrong in ["-1", "x", "", "99999999999999999999"] {
        let refused =
            shop.refuses("GET", &format!("documents/a/1?at={wrong}"), &json!(null), 400, "bad_query");
        let said = format!("the parameter `at` must be a whole number from 0 to {}, not {wrong:?}", u64::MAX);
        assert_eq!(refused["detail"], said);
    }
}
