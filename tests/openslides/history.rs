//! Group H: who changed a model, when and why.

use crate::{
    harness::BINARY,
    store::{
        INVALID_FORMAT, INVALID_REQUEST, Store, assert_refused, create, delete, request, restore, update,
        with,
    },
};
use serde_json::{Value, json};
use std::{
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

/// Writes one event with this user and information.
#[track_caller]
fn note(store: &mut Store, event: &Value, user: i64, information: &Value) -> u64 {
    let body = with(&request(std::slice::from_ref(event)), "user_id", &json!(user));
    store.written(&with(&body, "information", information))
}

/// The history of these models without timestamps, which are looked at here.
#[track_caller]
fn history(store: &mut Store, fqids: &[&str]) -> Value {
    let mut answer = store.read("history_information", &json!({ "fqids": fqids }));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    for entries in answer.as_object_mut().unwrap().values_mut() {
        let mut last = now - 600.0;
        for entry in entries.as_array_mut().unwrap() {
            let timestamp = entry.as_object_mut().unwrap().remove("timestamp").unwrap();
            assert!(timestamp.is_f64(), "{timestamp}");
            let timestamp = timestamp.as_f64().unwrap();
            assert!((last..=now + 1.0).contains(&timestamp), "{timestamp} between {last} and {now}");
            last = timestamp;
        }
    }
    answer
}

fn entry(position: u64, user: i64, information: &Value) -> Value {
    json!({ "position": position, "user_id": user, "information": information })
}

#[test]
fn h01_one_model() {
    let mut store = Store::start();
    note(&mut store, &create("a/1", &json!({})), 42, &json!(["test"]));
    assert_eq!(history(&mut store, &["a/1"]), json!({ "a/1": [entry(1, 42, &json!(["test"]))] }));
}

/// `a/1` to `a/3`, one position each.
fn with_three() -> Store {
    let mut store = Store::start();
    for id in 1..=3 {
        note(&mut store, &create(&format!("a/{id}"), &json!({})), 42, &json!([format!("test {id}")]));
    }
    store
}

#[test]
fn h02_several_models() {
    let expected = json!({
        "a/1": [entry(1, 42, &json!(["test 1"]))],
        "a/2": [entry(2, 42, &json!(["test 2"]))],
        "a/3": [entry(3, 42, &json!(["test 3"]))],
    });
    assert_eq!(history(&mut with_three(), &["a/3", "a/1", "a/2", "a/1"]), expected);
}

#[test]
fn h03_only_those_asked_for() {
    let expected = json!({ "a/2": [entry(2, 42, &json!(["test 2"]))] });
    assert_eq!(history(&mut with_three(), &["a/2"]), expected);
}

#[test]
fn h04_no_history_is_no_entry() {
    assert_eq!(history(&mut Store::start(), &["a/1"]), json!({}));
    assert_eq!(history(&mut with_three(), &["a/4", "b/1"]), json!({}));
}

#[test]
fn h05_empty_information_is_skipped() {
    let mut store = Store::start();
    note(&mut store, &create("a/1", &json!({})), 2, &json!(null));
    note(&mut store, &update("a/1", &json!({ "f": 1 })), 3, &json!(["test"]));
    note(&mut store, &update("a/1", &json!({ "f": 2 })), 4, &json!({}));
    assert_eq!(history(&mut store, &["a/1"]), json!({ "a/1": [entry(2, 3, &json!(["test"]))] }));
}

#[test]
fn h06_a_whole_life_and_an_unknown_model() {
    let mut store = Store::start();
    note(&mut store, &create("a/1", &json!({ "f": 1 })), 1, &json!({ "a/1": ["created"] }));
    note(&mut store, &update("a/1", &json!({ "f": 2 })), 2, &json!({ "a/1": ["changed"] }));
    note(&mut store, &delete("a/1"), 3, &json!({ "a/1": ["deleted"] }));
    note(&mut store, &restore("a/1"), -4, &json!("restored"));
    let expected = json!({ "a/1": [
        entry(1, 1, &json!({ "a/1": ["created"] })),
        entry(2, 2, &json!({ "a/1": ["changed"] })),
        entry(3, 3, &json!({ "a/1": ["deleted"] })),
        entry(4, -4, &json!("restored")),
    ] });
    assert_eq!(history(&mut store, &["a/1", "a/99"]), expected);
}

#[test]
fn h07_no_models_have_no_history() {
    assert_eq!(history(&mut with_three(), &[]), json!({}));
}

#[test]
fn h08_a_position_is_listed_once_per_model() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1, "l": [1] }))]);
    let change = json!({
        "type": "update", "fqid": "a/1",
        "fields": { "f": null, "g": 1 }, "list_fields": { "add": { "l": [2] } },
    });
    note(&mut store, &change, 5, &json!(["changed"]));
    assert_eq!(history(&mut store, &["a/1"]), json!({ "a/1": [entry(2, 5, &json!(["changed"]))] }));
}

#[test]
fn h09_a_position_is_listed_for_each_of_its_models() {
    let mut store = Store::start();
    let events = [create("a/1", &json!({})), create("b/1", &json!({})), update("a/1", &json!({ "f": 1 }))];
    store.written(&with(&request(&events), "information", &json!("both")));
    let expected = json!({ "a/1": [entry(1, 1, &json!("both"))], "b/1": [entry(1, 1, &json!("both"))] });
    assert_eq!(history(&mut store, &["a/1", "b/1"]), expected);
}

#[test]
fn h10_wrong_names_and_shapes_are_refused() {
    let mut store = with_three();
    for fqid in ["not valid", "", "a", "a/0", "a/1/f", "a/1\n"] {
        let reply = store.ask_reader("history_information", &json!({ "fqids": ["a/1", fqid] }));
        assert_refused(&reply, INVALID_FORMAT, &format!("{fqid:?}"));
    }
    for body in [json!(null), json!([]), json!({}), json!({ "fqids": "a/1" }), json!({ "fqids": [1] })] {
        assert_refused(&store.ask_reader("history_information", &body), INVALID_REQUEST, &body.to_string());
    }
}

/// The model and what was noted about it go; its id is not used again.
#[test]
fn a_purged_model_is_gone_here_too() {
    let mut store = Store::start();
    note(&mut store, &create("a/7", &json!({ "f": "secret" })), 42, &json!(["secret created"]));
    note(&mut store, &create("a/2", &json!({ "f": 2 })), 42, &json!(["test"]));
    let purged = Command::new(BINARY)
        .args(["purge", "a/7", "-n", "openslides", "--user", "ann", "--server"])
        .arg(store.server.native.to_string())
        .output()
        .unwrap();
    assert!(purged.status.success(), "{purged:?}");
    let mut store = store.restarted();
    let expected = json!({ "a/2": [entry(2, 42, &json!(["test"]))] });
    assert_eq!(history(&mut store, &["a/7", "a/2"]), expected);
    for body in [json!({ "fqid": "a/7", "get_deleted_models": 3 }), json!({ "fqid": "a/7", "position": 1 })] {
        assert_eq!(store.ask_reader("get", &body).status, 400);
    }
    assert_eq!(store.read("get_everything", &json!({}))["a"].as_object().unwrap().len(), 1);
    assert_eq!(store.reserve("a", 1), json!({ "ids": [8] }), "its id is not given to another one");
}
