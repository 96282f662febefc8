//! Group X: what a running original answers where one might expect something else, and imports of the size that
//! real organisations make. Knows nothing of how the facade does it.

use crate::store::{
    INVALID_FORMAT, Store, assert_is, assert_refused, assert_silent, compare, create, delete, deleted_model,
    exists, locking, missing, model, not_deleted, object, request, restore, update, update_lists, with,
};
use serde_json::{Value, json};

#[test]
fn x01_nothing_is_removed_from_a_list_that_was_absent() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "full": [1, 3] }))]);
    let change = json!({ "add": { "m": [1, 2], "full": [2] }, "remove": { "m": [1], "full": [1] } });
    store.apply(&[update_lists("a/1", &change)]);
    store.has("a/1", &json!({ "m": [1, 2], "full": [3, 2] }), 2);
}

#[test]
fn x02_fqfields_of_get_many_know_nothing_of_mapped_fields() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1, "n": 2 }))]);
    let body = json!({ "requests": ["a/1/f"], "mapped_fields": ["n"] });
    assert_eq!(store.read("get_many", &body), json!({ "a": { "1": { "f": 1 } } }));
    let at_position = with(&body, "position", &json!(1));
    assert_eq!(store.read("get_many", &at_position), json!({ "a": { "1": { "f": 1 } } }));
}

/// The ids of the models that match.
fn matching(store: &mut Store, operator: &str, value: &Value) -> Vec<u64> {
    let body = json!({ "collection": "a", "filter": compare("n", operator, value), "mapped_fields": ["n"] });
    let answer = store.read("filter", &body);
    let mut ids: Vec<u64> =
        answer["data"].as_object().unwrap().keys().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn x03_numbers_in_text_are_compared_as_numbers() {
    let mut store = Store::start();
    for (id, value) in [(1, json!(5)), (2, json!(6)), (3, json!(42)), (4, json!("6")), (5, json!(true))] {
        store.apply(&[create(&format!("a/{id}"), &json!({ "n": value }))]);
    }
    let cases = [
        ("<", json!("7"), vec![1, 2]),
        ("<=", json!(" 6.0 "), vec![1, 2]),
        (">", json!("+5"), vec![2, 3]),
        (">=", json!("042"), vec![3]),
        (">", json!("x"), vec![]),
        ("~=", json!("5"), vec![1]),
        ("~=", json!("6"), vec![2, 4]),
        ("~=", json!(6), vec![2, 4]),
        ("~=", json!("TRUE"), vec![5]),
        ("~=", json!(true), vec![5]),
    ];
    for (operator, value, expected) in cases {
        assert_eq!(matching(&mut store, operator, &value), expected, "n {operator} {value}");
    }
}

#[test]
fn x04_a_lock_with_a_filter_compares_in_the_same_way() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "n": 6 }))]);
    store.apply(&[update("a/1", &json!({ "n": 5 }))]);
    let lock = json!({ "a/n": { "position": 1, "filter": compare("n", "<", &json!("7")) } });
    let reply = store.write(&locking(&[create("a/2", &json!({}))], &lock));
    assert_eq!(reply.json()["error"]["keys"], json!(["a/n"]), "{reply:?}");
}

#[track_caller]
fn keep(store: &mut Store, event: &Value) {
    let status = if event["type"] == "delete" { 200 } else { 201 };
    assert_silent(
        &store.ask_writer("write_without_events", &json!([request(std::slice::from_ref(event))])),
        status,
    );
}

#[track_caller]
fn shows(store: &mut Store, fqid: &str, fields: &Value) {
    assert_is(&store.get(fqid), 200, &with(fields, "meta_deleted", &json!(false)));
}

#[test]
fn x05_volatile_models_can_be_updated_and_deleted_with_events() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({}))]);
    keep(&mut store, &create("action_worker/1", &json!({ "state": "running", "list": [1] })));
    keep(&mut store, &create("action_worker/2", &json!({ "state": "running" })));
    store.apply(&[update("action_worker/1", &json!({ "state": "end" }))]);
    store.has("action_worker/1", &json!({ "state": "end", "list": [1] }), 2);
    store.apply(&[update_lists("action_worker/1", &json!({ "add": { "list": [2] } }))]);
    store.has("action_worker/1", &json!({ "state": "end", "list": [1, 2] }), 3);
    store.apply(&[delete("action_worker/2")]);
    store.lacks("action_worker/2");
    let deleted = store.read("get", &json!({ "fqid": "action_worker/2", "get_deleted_models": 2 }));
    assert_eq!(deleted, deleted_model(&json!({ "state": "running" }), 4));
    store.apply(&[restore("action_worker/2")]);
    let mut store = store.crashed(&[]);
    store.has("action_worker/2", &json!({ "state": "running" }), 5);
    let then = store.read("get", &json!({ "fqid": "action_worker/1", "position": 2 }));
    assert_eq!(then, model(&json!({ "state": "end", "list": [1] }), 2));
    let before = store.ask_reader("get", &json!({ "fqid": "action_worker/1", "position": 1 }));
    assert_is(&before, 400, &missing("action_worker/1"));
}

#[test]
fn x06_a_volatile_model_is_not_created_again_with_events() {
    let mut store = Store::start();
    keep(&mut store, &create("action_worker/1", &json!({ "state": "running" })));
    keep(&mut store, &create("import_preview/1", &json!({})));
    for fqid in ["action_worker/1", "import_preview/1"] {
        let reply = store.write(&request(&[create(fqid, &json!({ "other": 1 }))]));
        assert_is(&reply, 400, &exists(fqid));
        assert_is(&store.write(&request(&[restore(fqid)])), 400, &not_deleted(fqid));
    }
    shows(&mut store, "action_worker/1", &json!({ "state": "running" }));
    shows(&mut store, "import_preview/1", &json!({}));
}

#[test]
fn x07_a_second_create_without_events_is_merged() {
    let mut store = Store::start();
    keep(&mut store, &create("action_worker/1", &json!({ "a": 1, "b": 1 })));
    keep(&mut store, &create("action_worker/1", &json!({ "b": 2, "c": 2, "a": null })));
    shows(&mut store, "action_worker/1", &json!({ "a": 1, "b": 2, "c": 2 }));
}

#[test]
fn x08_list_fields_are_ignored_without_events() {
    let mut store = Store::start();
    let lists = json!({ "add": { "list": [1] } });
    let both = with(&update("action_worker/1", &json!({ "a": 1 })), "list_fields", &lists);
    keep(&mut store, &both);
    shows(&mut store, "action_worker/1", &json!({ "a": 1 }));
    keep(&mut store, &update_lists("action_worker/2", &lists));
    shows(&mut store, "action_worker/2", &json!({}));
}

#[test]
fn x09_collections_with_long_names_are_empty() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({}))]);
    for len in [33, 128, 300, 100_000] {
        let long = "c".repeat(len);
        let fqid = format!("{long}/1");
        let any = compare("f", "=", &json!(1));
        let find = json!({ "collection": long, "filter": any, "field": "f" });
        let empty = object([(long.clone(), json!({}))]);
        assert_is(&store.get(&fqid), 400, &missing(&fqid));
        let parts = json!({ "requests": [{ "collection": long, "ids": [1] }] });
        assert_eq!(store.read("get_many", &parts), empty);
        assert_eq!(store.read("get_many", &json!({ "requests": [format!("{fqid}/f")] })), empty);
        assert_eq!(store.read("get_all", &json!({ "collection": long })), json!({}));
        assert_eq!(store.read("filter", &find), json!({ "data": {}, "position": 1 }));
        assert_eq!(store.read("exists", &find), json!({ "exists": false, "position": 1 }));
        assert_eq!(store.read("count", &find), json!({ "count": 0, "position": 1 }));
        assert_eq!(store.read("min", &find), json!({ "min": null, "position": 1 }));
        assert_eq!(store.read("history_information", &json!({ "fqids": [fqid] })), json!({}));
        let writes = [
            request(&[create(&fqid, &json!({}))]),
            locking(&[create("a/2", &json!({}))], &object([(fqid.clone(), json!(1))])),
            locking(&[create("a/2", &json!({}))], &object([(format!("{long}/f"), json!(1))])),
        ];
        for body in writes {
            assert_refused(&store.write(&body), INVALID_FORMAT, "a long name");
        }
        let reply = store.ask_writer("reserve_ids", &json!({ "collection": long, "amount": 1 }));
        assert_refused(&reply, INVALID_FORMAT, "a long name");
    }
}

#[test]
fn x10_a_wrong_position_is_named_with_its_key() {
    let mut store = Store::start();
    let says = |message: &Value, parts: &[&str]| {
        let message = message["error"]["msg"].as_str().unwrap().to_owned();
        assert!(parts.iter().all(|part| message.contains(part)), "{parts:?}: {message}");
    };
    let locks = [
        (json!({ "a/1": -3 }), "a/1"),
        (json!({ "a/1/f": 0 }), "a/1/f"),
        (json!({ "a/f": { "position": -3 } }), "a/f"),
        (json!({ "a/1": 7, "b/f": [{ "position": 4 }, { "position": -3 }] }), "b/f"),
    ];
    for (locks, key) in locks {
        let reply = store.write(&locking(&[create("a/2", &json!({}))], &locks));
        assert_refused(&reply, INVALID_FORMAT, key);
        says(&reply.json(), &[&format!("the lock on {key}:"), "is no position"]);
    }
    let get = store.ask_reader("get", &json!({ "fqid": "a/1", "position": -3 }));
    says(&get.json(), &["position: -3"]);
    let many =
        store.ask_reader("get_many", &json!({ "requests": [{ "collection": "abc", "ids": [1, -3] }] }));
    assert_refused(&many, INVALID_FORMAT, "an id");
    says(&many.json(), &["abc/-3"]);
}

/// 2,000 users with a line of information each, every field of theirs locked, as a participant import writes them.
#[test]
fn x11_an_import_of_2000_users_fits() {
    let mut store = Store::start();
    let fqid = |id: u64| format!("user/{id}");
    let line = json!(["Account imported by the participant import of {}", "meeting/42"]);
    let information = object((1..=2000).map(|id| (fqid(id), line.clone())));
    assert!(information.to_string().len() > 125_000);
    let events: Vec<Value> =
        (1..=2000).map(|id| create(&fqid(id), &json!({ "username": format!("user{id}") }))).collect();
    let fields = ["username", "email", "member_number", "saml_id", "first_name", "last_name"];
    let locks = (1..=2000).flat_map(|id| fields.map(|field| (format!("user/{id}/{field}"), json!(1))));
    let body = with(&locking(&events, &object(locks)), "information", &information);
    assert_eq!(store.written(&body), 1);
    let history = store.read("history_information", &json!({ "fqids": ["user/2000"] }));
    assert_eq!(history["user/2000"][0]["information"], information);
}

#[test]
fn x12_more_than_10000_models_are_read_at_once() {
    let mut store = Store::start();
    let ids: Vec<u64> = (1..=12_000).collect();
    let events: Vec<Value> = ids.iter().map(|id| create(&format!("a/{id}"), &json!({ "f": id }))).collect();
    store.apply(&events);
    let many = store.read("get_many", &json!({ "requests": [{ "collection": "a", "ids": ids }] }));
    assert_eq!(many["a"].as_object().unwrap().len(), 12_000);
    let fqids: Vec<String> = ids.iter().map(|id| format!("a/{id}")).collect();
    assert_eq!(store.read("history_information", &json!({ "fqids": fqids })), json!({}));
}

#[test]
fn x13_a_model_of_5_mb_is_kept() {
    let mut store = Store::start();
    let fields = json!({ "text": "x".repeat(5_000_000) });
    store.apply(&[create("a/1", &fields)]);
    store.has("a/1", &fields, 1);
    store.apply(&[update("a/1", &json!({ "other": 1 }))]);
    store.crashed(&[]).has("a/1", &with(&fields, "other", &json!(1)), 2);
}
