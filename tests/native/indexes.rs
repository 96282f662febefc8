//! Secondary indexes: with them or without, the answers are the same.

use crate::{
    harness::{Server, eventually},
    store::Store,
};
use serde_json::{Value, json};

fn start() -> (Server, Store) {
    let server = Server::start(&[]);
    let store = Store::new(&server, "shop");
    (server, store)
}

fn is_ready(shop: &Store) -> bool {
    shop.get("indexes")["indexes"].as_array().unwrap().iter().all(|index| index["state"] == "ready")
}

#[test]
fn indexes_are_declared_listed_and_dropped() {
    let (_server, shop) = start();
    assert_eq!(shop.get("indexes"), json!({ "indexes": [] }));
    shop.create("user", 1, json!({ "age": 1 }));
    let declared = shop.ask("PUT", "indexes/user/age", &json!(null));
    assert_eq!((&declared["collection"], &declared["field"]), (&"user".into(), &"age".into()));
    assert!(["building", "ready"].contains(&declared["state"].as_str().unwrap()), "{declared}");
    eventually("it is built", || is_ready(&shop));
    let age = json!({ "collection": "user", "field": "age", "state": "ready" });
    assert_eq!(shop.ask("PUT", "indexes/user/age", &json!(null)), age, "again");
    assert_eq!(shop.get("indexes"), json!({ "indexes": [age] }));
    // One can be declared before there is anything.
    shop.ask("PUT", "indexes/order/total", &json!(null));
    eventually("it is built", || is_ready(&shop));
    assert_eq!(shop.get("indexes")["indexes"].as_array().unwrap().len(), 2);
    assert_eq!(shop.ask("DELETE", "indexes/user/age", &json!(null)), age);
    shop.refuses("DELETE", "indexes/user/age", &json!(null), 404, "no_index");
    shop.refuses("PUT", "indexes/user/meta_deleted", &json!(null), 400, "reserved_field");
    assert_eq!(shop.get("indexes")["indexes"][0]["field"], "total");
}

fn filters() -> Vec<Value> {
    let mut filters = Vec::new();
    for op in ["=", "!=", "<", "<=", ">", ">=", "~=", "%="] {
        for value in
            [json!(3), json!(3.0), json!("b"), json!("B%"), json!(true), json!(null), json!([1]), json!(-1e3)]
        {
            let compound = value.is_array() || value.is_null();
            if compound && !["=", "!="].contains(&op) || ["~=", "%="].contains(&op) && !value.is_string() {
                continue;
            }
            filters.push(json!({ "field": "v", "op": op, "value": value }));
        }
    }
    let (low, high) =
        (json!({ "field": "v", "op": ">", "value": 1 }), json!({ "field": "v", "op": "<=", "value": 4 }));
    filters.push(json!({ "and": [low, high, { "field": "w", "op": "=", "value": 1 }] }));
    filters.push(json!({ "or": [low, { "field": "w", "op": "=", "value": 0 }] }));
    filters.push(json!({ "not": high }));
    filters
}

fn answers(shop: &Store) -> Vec<Value> {
    filters()
        .iter()
        .flat_map(|filter| {
            let body = json!({ "collection": "a", "filter": filter });
            let page = json!({ "collection": "a", "filter": filter, "limit": 7, "sort": [{ "field": "w" }] });
            [shop.post("filter", &body), shop.post("filter", &page), shop.post("count", &body)]
        })
        .collect()
}

/// Values of every kind, written, changed and deleted while the index is declared.
#[test]
fn an_index_changes_no_answer() {
    let (server, shop) = start();
    let values = [
        json!(1),
        json!(2.5),
        json!(3),
        json!(3.0),
        json!(-1000),
        json!("b"),
        json!("B"),
        json!("bc"),
        json!(true),
        json!(false),
        json!([1]),
        json!([1.0]),
        json!({ "x": 1 }),
        json!("x".repeat(300)),
    ];
    let events: Vec<Value> = (0..1500_usize)
        .map(|key| {
            let fields = json!({ "v": values[key % values.len()], "w": key % 3 });
            json!({ "type": "create", "collection": "a", "key": key, "fields": fields })
        })
        .collect();
    shop.write(events.into());
    let writer = {
        let shop = shop.clone();
        std::thread::spawn(move || {
            for n in 0..150_usize {
                match n % 5 {
                    0 => shop.delete("a", n * 7),
                    1 => shop.update("a", n * 7, json!({ "v": null })),
                    2 => shop.create("a", 2000 + n, json!({ "v": n % 6, "w": 1 })),
                    _ => shop.update("a", n * 7, json!({ "v": values[n * 3 % values.len()] })),
                };
            }
        })
    };
    shop.ask("PUT", "indexes/a/v", &json!(null));
    writer.join().unwrap();
    eventually("it is built", || is_ready(&shop));
    let with = answers(&shop);
    // Kept over a restart.
    let server = server.kill().restart(&[]);
    let shop = Store::new(&server, "shop");
    assert_eq!(shop.get("indexes")["indexes"][0]["state"], "ready");
    assert_eq!(answers(&shop), with);
    shop.ask("DELETE", "indexes/a/v", &json!(null));
    let without = answers(&shop);
    for (filter, (with, without)) in filters().iter().zip(with.chunks(3).zip(without.chunks(3))) {
        assert_eq!(with, without, "{filter}");
    }
}

/// A server that ends while an index is built completes it at the next start.
#[test]
fn an_interrupted_index_is_completed() {
    let (server, shop) = start();
    for part in 0..5_usize {
        let events: Vec<Value> = (0..2000_usize)
            .map(|n| {
                let key = part * 2000 + n;
                json!({ "type": "create", "collection": "a", "key": key, "fields": { "v": key % 10 } })
            })
            .collect();
        shop.write(events.into());
    }
    shop.ask("PUT", "indexes/a/v", &json!(null));
    let server = server.kill().restart(&[]);
    let shop = Store::new(&server, "shop");
    eventually("it is built", || is_ready(&shop) && shop.get("indexes")["indexes"] != json!([]));
    let body = json!({ "collection": "a", "filter": { "field": "v", "op": "=", "value": 3 } });
    assert_eq!(shop.post("count", &body)["count"], 1000);
}

/// As locks do, unless the policy is lenient: such an index would stay empty.
#[test]
fn an_index_on_a_field_that_the_schema_does_not_know_is_refused() {
    let (_server, shop) = start();
    let schema = json!({ "type": "object", "properties": { "age": { "type": "integer" }, "address": {
        "type": "object", "properties": { "zip": { "type": "string" } } } } });
    shop.ask("POST", "schemas/user", &json!({ "schema": schema }));
    let detail =
        shop.refuses("PUT", "indexes/user/aeg", &json!(null), 400, "unknown_field")["detail"].to_string();
    assert!(detail.contains("did you mean age"), "{detail}");
    shop.refuses("PUT", "indexes/user/address.zpi", &json!(null), 400, "unknown_field");
    assert_eq!(shop.get("indexes"), json!({ "indexes": [] }));
    shop.ask("PUT", "indexes/user/address.zip", &json!(null));
    shop.ask("PUT", "schemas/user/settings", &json!({ "policy": "LENIENT" }));
    shop.ask("PUT", "indexes/user/aeg", &json!(null));
    shop.ask("PUT", "schemas/user/settings", &json!({ "policy": "STRICT" }));
    // What was declared before can still be taken away.
    shop.ask("DELETE", "indexes/user/aeg", &json!(null));
}
