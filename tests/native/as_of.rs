//! Reads as of an earlier position: what is answered now for then is what was answered then.

use crate::{harness::Server, store::Store};
use serde_json::{Value, json};

/// Everything that can be asked about the collection, as of `at` or of now.
fn look(shop: &Store, at: Option<u64>) -> Vec<Value> {
    let filter = json!({ "field": "n", "op": ">=", "value": 3 });
    let mut questions = vec![
        ("filter", json!({ "collection": "a", "deleted": "with" })),
        (
            "filter",
            json!({ "collection": "a", "filter": filter, "sort": [{ "field": "n", "descending": true }] }),
        ),
        ("filter", json!({ "collection": "a", "deleted": "only" })),
        ("count", json!({ "collection": "a", "filter": filter })),
        ("exists", json!({ "collection": "a", "filter": { "field": "n", "op": "=", "value": 5 } })),
        ("min", json!({ "collection": "a", "field": "n" })),
        ("max", json!({ "collection": "a", "field": "n", "deleted": "with" })),
        ("get", json!({ "documents": [{ "collection": "a", "key": 0 }, { "collection": "a", "key": 3 }] })),
    ];
    for (_, body) in &mut questions {
        if let Some(at) = at {
            body["at"] = at.into();
        }
    }
    questions.iter().map(|(path, body)| shop.post(path, body)).collect()
}

#[test]
fn the_past_is_what_the_present_was() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    let mut seen = vec![look(&shop, None)];
    for step in 0..60_u64 {
        let key = step % 5;
        let event = match step {
            0..5 => {
                json!({ "type": "create", "collection": "a", "key": key, "fields": { "n": step, "s": "x" } })
            }
            _ if step % 11 == 6 => json!({ "type": "delete", "collection": "a", "key": 4 }),
            _ if step % 11 == 7 => json!({ "type": "restore", "collection": "a", "key": 4 }),
            _ if step % 7 == 0 => {
                json!({ "type": "put", "collection": "a", "key": step % 4, "fields": { "n": step % 9 } })
            }
            _ => json!({ "type": "update", "collection": "a", "key": step % 4,
                "fields": { "n": step % 6, "s": if step % 2 == 0 { Value::Null } else { "y".into() } } }),
        };
        shop.write(json!([event]));
        seen.push(look(&shop, None));
    }
    for (at, seen) in seen.iter().enumerate() {
        assert_eq!(look(&shop, Some(at as u64)), *seen, "as of {at}");
    }
    // After some of it is forgotten, the rest is still the same.
    let server = server.stop().restart(&[]);
    let shop = Store::new(&server, "shop");
    assert_eq!(look(&shop, Some(30)), seen[30]);
    shop.trim(0);
    assert_eq!(look(&shop, Some(60)), seen[60]);
    shop.update("a", 0, json!({ "n": 77 }));
    assert_eq!(look(&shop, Some(60)), seen[60]);
}

#[test]
fn a_page_goes_on_as_of_the_same_position() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for n in 0..10 {
        shop.create("a", n, json!({ "n": n }));
    }
    let body = |cursor: Option<&Value>| {
        let mut body = json!({ "collection": "a", "at": 10, "limit": 4, "sort": [{ "field": "n" }] });
        if let Some(cursor) = cursor {
            body["cursor"] = cursor.clone();
        }
        body
    };
    let first = shop.post("filter", &body(None));
    shop.update("a", 5, json!({ "n": -1 }));
    shop.delete("a", 6);
    let second = shop.post("filter", &body(Some(&first["next"])));
    let keys: Vec<&Value> =
        second["documents"].as_array().unwrap().iter().map(|document| &document["key"]).collect();
    assert_eq!(keys, ["4", "5", "6", "7"]);
    assert_eq!(second["position"], 10);
}
