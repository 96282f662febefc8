//! Joins (seed 000, R12 and R13): what belongs together, in which order, in pages, under locks.

use crate::{
    harness::{Server, eventually},
    isolation::{Held, assert_no_locks},
    store::Store,
};
use serde_json::{Value, json};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    (server, shop)
}

/// Orders and customers, some of which belong together.
fn filled() -> (Server, Store) {
    let (server, shop) = start();
    for (key, customer, total) in
        [(1, json!(7), 10), (2, json!(8.0), 20), (3, json!("7"), 30), (4, json!(9), 40)]
    {
        shop.create("order", key, json!({ "customer": customer, "total": total }));
    }
    shop.create("order", 5, json!({ "total": 50 }));
    for (key, id, name) in
        [("a", json!(7.0), "Ann"), ("b", json!(8), "Bob"), ("c", json!(8), "Cy"), ("d", json!(1), "Dee")]
    {
        shop.create("user", key, json!({ "id": id, "name": name }));
    }
    shop.create("user", "e", json!({ "name": "Eve" }));
    (server, shop)
}

fn body(kind: &str) -> Value {
    json!({ "left": { "collection": "order", "field": "customer" },
        "right": { "collection": "user", "field": "id" }, "kind": kind })
}

fn keys(page: &Value) -> Vec<String> {
    let key = |document: &Value| document["key"].as_str().unwrap_or("-").to_owned();
    let rows = page["rows"].as_array().unwrap().iter();
    rows.map(|row| format!("{}{}", key(&row["left"]), key(&row["right"]))).collect()
}

#[test]
fn r13_values_are_equal_as_filters_compare_them() {
    let (_server, shop) = filled();
    assert_eq!(keys(&shop.post("join", &body("inner"))), ["1a", "2b", "2c"]);
    assert_eq!(keys(&shop.post("join", &body("left"))), ["1a", "2b", "2c", "3-", "4-", "5-"]);
    let mut narrow = body("inner");
    narrow["left"]["fields"] = json!(["total"]);
    narrow["right"]["fields"] = json!(["name"]);
    narrow["left"]["filter"] = json!({ "field": "total", "op": "<", "value": 15 });
    let left = json!({ "collection": "order", "key": "1", "position": 1, "created": 1, "deleted": false,
        "value": { "total": 10 } });
    let right = json!({ "collection": "user", "key": "a", "position": 6, "created": 6, "deleted": false,
        "value": { "name": "Ann" } });
    let expected = json!({ "position": 10, "rows": [{ "left": left, "right": right }] });
    assert_eq!(shop.post("join", &narrow), expected);
    let mut filtered = body("left");
    filtered["right"]["filter"] = json!({ "field": "name", "op": "!=", "value": "Bob" });
    assert_eq!(keys(&shop.post("join", &filtered)), ["1a", "2c", "3-", "4-", "5-"]);
    // The past, and what is deleted.
    shop.delete("user", "a");
    assert_eq!(keys(&shop.post("join", &body("inner"))), ["2b", "2c"]);
    let mut past = body("inner");
    past["at"] = 10.into();
    assert_eq!(keys(&shop.post("join", &past)), ["1a", "2b", "2c"]);
    // With itself, and with nobody.
    let own = json!({ "left": { "collection": "user", "field": "id" }, "right": { "collection": "user", "field": "id" } });
    assert_eq!(keys(&shop.post("join", &own)), ["bb", "bc", "cb", "cc", "dd"]);
    let none = json!({ "left": { "collection": "x", "field": "y" }, "right": { "collection": "user", "field": "id" } });
    assert_eq!(keys(&shop.post("join", &none)), [""; 0]);
    assert_eq!(
        Store { namespace: "other".into(), ..shop }.post("join", &own),
        json!({ "position": 0, "rows": [] })
    );
}

#[test]
fn pages_go_on_where_they_ended() {
    let (_server, shop) = filled();
    for kind in ["inner", "left"] {
        for isolation in ["snapshot", "locked", "document"] {
            for limit in 1..7 {
                let mut request = body(kind);
                request["isolation"] = isolation.into();
                let all = keys(&shop.post("join", &request));
                request["limit"] = limit.into();
                let mut found = Vec::new();
                loop {
                    let page = shop.post("join", &request);
                    found.extend(keys(&page));
                    let Some(next) = page["next"].as_str() else { break };
                    assert_eq!(page["rows"].as_array().unwrap().len(), limit);
                    request["cursor"] = next.into();
                }
                assert_eq!(found, all, "{kind} {limit}");
            }
        }
    }
    let mut other = body("inner");
    other["limit"] = 1.into();
    other["cursor"] = shop.post("join", &other)["next"].clone();
    other["kind"] = "left".into();
    shop.refuses("POST", "join", &other, 400, "bad_cursor");
    other["cursor"] = "00".into();
    shop.refuses("POST", "join", &other, 400, "bad_cursor");
}

#[test]
fn mistakes_have_codes() {
    let (_server, shop) = filled();
    let check = |change: &dyn Fn(&mut Value), code: &str| {
        let mut request = body("inner");
        change(&mut request);
        shop.refuses("POST", "join", &request, 400, code);
    };
    check(&|body| body["kind"] = "outer".into(), "bad_body");
    check(&|body| body["left"]["field"] = "".into(), "bad_field");
    check(&|body| body["right"]["collection"] = "".into(), "bad_collection");
    check(&|body| body["right"]["feild"] = "x".into(), "unknown_member");
    check(&|body| body["left"]["filter"] = json!({ "field": "x" }), "bad_filter");
    check(&|body| body["left"]["fields"] = json!(["meta_position"]), "reserved_field");
    check(&|body| body["limit"] = 0.into(), "bad_body");
    assert_no_locks(&shop);
}

/// Compared with a loop in a loop, with an index and without.
#[test]
fn an_index_changes_no_answer() {
    let (_server, shop) = start();
    let values = [
        json!(1),
        json!(1.0),
        json!("1"),
        json!(true),
        json!([1, { "a": 2 }]),
        json!([1.0, { "a": 2 }]),
        json!("a long text that is longer than what is kept of short ones, and goes on"),
        json!(null),
        json!(3),
    ];
    let create = |collection: &str, key: usize| {
        json!({ "type": "create", "collection": collection, "key": key,
        "fields": { "v": values[(key * 7 + key / 9) % values.len()], "n": key } })
    };
    shop.write((0..40).flat_map(|key| [create("l", key), create("r", key * 3)]).collect());
    let request = |kind: &str, filter: Value| {
        json!({ "left": { "collection": "l", "field": "v", "filter": filter },
        "right": { "collection": "r", "field": "v", "filter": { "field": "n", "op": ">", "value": 10 } }, "kind": kind,
        "limit": 10_000 })
    };
    let number = |value: &Value| value["value"]["n"].as_u64().unwrap();
    let equal = |a: &Value, b: &Value| {
        let plain = |value: &Value| value.to_string().replace("1.0", "1");
        !a.is_null() && plain(a) == plain(b)
    };
    let documents = |collection: &str| {
        let page = shop.post("filter", &json!({ "collection": collection, "limit": 1000 }));
        page["documents"].as_array().unwrap().clone()
    };
    let (left, right) = (documents("l"), documents("r"));
    let check = || {
        for below in [5, 1000] {
            for kind in ["inner", "left"] {
                let filter = json!({ "field": "n", "op": "<", "value": below });
                let page = shop.post("join", &request(kind, filter));
                let mut expected = Vec::new();
                for a in left.iter().filter(|a| number(a) < below) {
                    let partners =
                        right.iter().filter(|b| number(b) > 10 && equal(&a["value"]["v"], &b["value"]["v"]));
                    let mut partners: Vec<Value> = partners.cloned().collect();
                    if partners.is_empty() && kind == "left" {
                        partners.push(Value::Null);
                    }
                    expected.extend(partners.into_iter().map(|b| json!({ "left": a, "right": b })));
                }
                assert!(expected.len() > 3);
                assert_eq!(page["rows"], Value::Array(expected), "{kind} {below}");
            }
        }
    };
    check();
    shop.ask("PUT", "indexes/r/v", &json!(null));
    eventually("the index is ready", || shop.get("indexes")["indexes"][0]["state"] == "ready");
    check();
}

#[test]
fn r13_a_join_waits_for_what_it_compares_and_for_what_it_shows() {
    let (_server, shop) = filled();
    let join = |isolation: &str, kind: &str| {
        let mut request = body(kind);
        request["isolation"] = isolation.into();
        request["wait_ms"] = 0.into();
        shop.send("POST", "join", &request.to_string())
    };
    // Dee's name is neither compared nor shown.
    let held = Held::take(&shop, "ann", "write user/d/name");
    join("locked", "inner").assert_problem(423, "locked");
    assert_eq!(keys(&join("document", "inner").json()), ["1a", "2b", "2c"]);
    assert_eq!(join("snapshot", "inner").status, 200);
    held.release();
    // Bob's is shown, Dee's id is compared.
    for path in ["write user/b/name", "write user/d/id", "write order/4/customer"] {
        let held = Held::take(&shop, "ann", path);
        let problem = join("document", "inner").assert_problem(423, "locked");
        assert_eq!(problem["blockers"][0]["lock"], held.lock, "{problem}");
        let mut request = body("inner");
        request["isolation"] = "document".into();
        request["tokens"] = json!([held.token]);
        assert_eq!(keys(&shop.post("join", &request)), ["1a", "2b", "2c"]);
        held.release();
    }
    let held = Held::take(&shop, "ann", "write order/4/total");
    assert_eq!(join("document", "inner").status, 200);
    join("document", "left").assert_problem(423, "locked");
    held.release();
    assert_no_locks(&shop);
}
