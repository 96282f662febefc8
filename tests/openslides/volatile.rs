//! Group V: objects that are written without events. Knows nothing of the message bus.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, Store, assert_is, assert_refused, assert_silent, create, delete,
    locking, missing, request, restore, update, with, without,
};
use serde_json::{Value, json};

const ROUTE: &str = "write_without_events";

/// The only element of the body.
fn alone(events: &[Value]) -> Value {
    json!([request(events)])
}

#[track_caller]
fn done(store: &mut Store, event: &Value) {
    let status = if event["type"] == "delete" { 200 } else { 201 };
    assert_silent(&store.ask_writer(ROUTE, &alone(std::slice::from_ref(event))), status);
}

/// A live object has no position.
#[track_caller]
fn check(store: &mut Store, fqid: &str, fields: &Value) {
    assert_is(&store.get(fqid), 200, &with(fields, "meta_deleted", &json!(false)));
}

#[test]
fn v01_a_create_and_two_updates_are_merged() {
    let mut store = Store::start();
    let fields =
        json!({ "id": 1, "name": "motion.create", "state": "running", "result": { "a": 1, "b": 2 } });
    done(&mut store, &create("action_worker/1", &fields));
    check(&mut store, "action_worker/1", &fields);
    done(&mut store, &update("action_worker/1", &json!({ "timestamp": 5 })));
    let fields = with(&fields, "timestamp", &json!(5));
    check(&mut store, "action_worker/1", &fields);
    done(&mut store, &update("action_worker/1", &json!({ "state": "end", "result": { "a": 2 } })));
    let fields = with(&with(&fields, "state", &json!("end")), "result", &json!({ "a": 2 }));
    check(&mut store, "action_worker/1", &fields);
}

#[test]
fn v02_more_than_one_event_is_refused_unless_all_delete() {
    let mut store = Store::start();
    let (one, two) = (create("action_worker/1", &json!({})), create("action_worker/2", &json!({})));
    let change = update("action_worker/1", &json!({ "a": 1 }));
    let cases = [[one.clone(), two], [one.clone(), change], [one, delete("action_worker/1")]];
    for events in cases {
        assert_refused(
            &store.ask_writer(ROUTE, &alone(&events)),
            INVALID_REQUEST,
            &json!(events).to_string(),
        );
    }
    let restored = alone(&[restore("action_worker/1")]);
    assert_refused(&store.ask_writer(ROUTE, &restored), INVALID_REQUEST, "a restore");
    store.is_empty();
}

#[test]
fn v03_a_body_that_is_no_list_is_refused() {
    let mut store = Store::start();
    let right = request(&[create("action_worker/1", &json!({}))]);
    for body in [right, json!(null), json!("x"), json!({}), json!([])] {
        assert_refused(&store.ask_writer(ROUTE, &body), INVALID_REQUEST, &body.to_string());
    }
    store.is_empty();
}

#[test]
fn v04_other_collections_are_refused() {
    let mut store = Store::start();
    store.apply(&[create("topic/1", &json!({}))]);
    let events = [create("topic/2", &json!({})), update("topic/1", &json!({ "a": 1 })), delete("topic/1")];
    for event in events {
        let reply = store.ask_writer(ROUTE, &alone(std::slice::from_ref(&event)));
        assert_refused(&reply, INVALID_REQUEST, &event.to_string());
    }
    let mixed = alone(&[delete("action_worker/1"), delete("topic/1")]);
    assert_refused(&store.ask_writer(ROUTE, &mixed), INVALID_REQUEST, "one of two");
    store.has("topic/1", &json!({}), 1);
}

#[test]
fn v05_several_are_deleted_at_once_and_gone() {
    let mut store = Store::start();
    done(&mut store, &create("action_worker/1", &json!({ "a": 1 })));
    done(&mut store, &create("import_preview/2", &json!({ "a": 2 })));
    let both = alone(&[delete("action_worker/1"), delete("import_preview/2")]);
    assert_silent(&store.ask_writer(ROUTE, &both), 200);
    for fqid in ["action_worker/1", "import_preview/2"] {
        let reply = store.ask_reader("get", &json!({ "fqid": fqid, "get_deleted_models": 3 }));
        assert_is(&reply, 400, &missing(fqid));
    }
    assert_silent(&store.ask_writer(ROUTE, &both), 200);
}

#[test]
fn v06_an_update_of_a_missing_one_creates_it() {
    let mut store = Store::start();
    done(&mut store, &update("import_preview/1", &json!({ "state": "new" })));
    check(&mut store, "import_preview/1", &json!({ "state": "new" }));
}

#[test]
fn v07_only_the_first_element_is_used() {
    let mut store = Store::start();
    let first = request(&[create("action_worker/1", &json!({}))]);
    let second = request(&[create("action_worker/2", &json!({}))]);
    assert_silent(&store.ask_writer(ROUTE, &json!([first, second])), 201);
    check(&mut store, "action_worker/1", &json!({}));
    store.lacks("action_worker/2");
}

#[test]
fn v08_nothing_of_it_takes_a_position_or_is_history() {
    let mut store = Store::start();
    done(&mut store, &create("action_worker/1", &json!({ "a": 1 })));
    assert_eq!(store.position(), json!(null));
    let history = store.read("history_information", &json!({ "fqids": ["action_worker/1"] }));
    assert_eq!(history, json!({}));
    done(&mut store, &delete("action_worker/1"));
    store.is_empty();
    assert_eq!(store.apply(&[create("a/1", &json!({}))]), 1);
}

#[test]
fn v09_locks_are_not_looked_at() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    let stale = locking(&[create("action_worker/1", &json!({}))], &json!({ "a/1": 1 }));
    assert_silent(&store.ask_writer(ROUTE, &json!([stale])), 201);
    check(&mut store, "action_worker/1", &json!({}));
}

#[test]
fn v10_it_outlives_a_crash() {
    let mut store = Store::start();
    done(&mut store, &create("action_worker/1", &json!({ "a": 1 })));
    done(&mut store, &create("action_worker/2", &json!({ "a": 2 })));
    done(&mut store, &delete("action_worker/2"));
    let mut store = store.crashed(&[]);
    check(&mut store, "action_worker/1", &json!({ "a": 1 }));
    store.lacks("action_worker/2");
}

#[test]
fn v11_the_element_is_a_write_request() {
    let mut store = Store::start();
    let right = request(&[create("action_worker/1", &json!({}))]);
    for member in ["user_id", "information", "locked_fields", "events"] {
        let reply = store.ask_writer(ROUTE, &json!([without(&right, member)]));
        assert_refused(&reply, INVALID_REQUEST, member);
    }
    let wrong = alone(&[create("action_worker/0", &json!({}))]);
    assert_refused(&store.ask_writer(ROUTE, &wrong), INVALID_FORMAT, "a wrong fqid");
    let wrong = alone(&[create("action_worker/1", &json!({ "meta_position": 1 }))]);
    assert_refused(&store.ask_writer(ROUTE, &wrong), INVALID_FORMAT, "a reserved field");
    store.is_empty();
}

#[test]
fn v12_what_is_gone_can_be_made_again() {
    let mut store = Store::start();
    for round in 1..4 {
        done(&mut store, &create("action_worker/1", &json!({ "round": round })));
        check(&mut store, "action_worker/1", &json!({ "round": round }));
        done(&mut store, &delete("action_worker/1"));
        store.lacks("action_worker/1");
    }
}

#[test]
fn v13_every_way_of_reading_shows_it() {
    let mut store = Store::start();
    done(&mut store, &create("action_worker/1", &json!({ "a": 1 })));
    let shown = json!({ "a": 1, "meta_deleted": false });
    let one = json!({ "1": shown });
    assert_eq!(store.read("get_all", &json!({ "collection": "action_worker" })), one);
    let many = json!({ "requests": [{ "collection": "action_worker", "ids": [1] }] });
    assert_eq!(store.read("get_many", &many), json!({ "action_worker": one }));
    let everything = json!({ "action_worker": { "1": with(&shown, "id", &json!(1)) } });
    assert_eq!(store.read("get_everything", &json!({})), everything);
}

#[test]
fn v14_null_removes_a_field() {
    let mut store = Store::start();
    done(&mut store, &create("action_worker/1", &json!({ "a": 1, "b": null })));
    check(&mut store, "action_worker/1", &json!({ "a": 1 }));
    done(&mut store, &update("action_worker/1", &json!({ "a": null, "c": 1 })));
    check(&mut store, "action_worker/1", &json!({ "c": 1 }));
}
