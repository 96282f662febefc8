//! Group W: what a write stores and what it refuses. Locks, the message bus and what comes of several writers
//! are tested elsewhere.

use crate::store::{
    DATASTORE_NOT_EMPTY, INVALID_FORMAT, INVALID_REQUEST, Store, WRITER, assert_is, assert_refused,
    assert_silent, create, delete, deleted_model, exists, locked, locking, missing, model, not_deleted,
    object, position, request, restore, update, update_lists, with, without,
};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// A store in which `a/1` was created with these fields at position 1.
fn with_model(fields: &Value) -> Store {
    let mut store = Store::start();
    assert_eq!(store.apply(&[create("a/1", fields)]), 1);
    store
}

#[track_caller]
fn check_at(store: &mut Store, position: u64, expected: &Value) {
    let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "position": position }));
    assert_is(&reply, 200, expected);
}

#[test]
fn w01_a_create_is_stored_at_position_1() {
    let mut store = Store::start();
    let reply = store.write(&request(&[create("a/1", &json!({ "f": 1 }))]));
    assert_silent(&reply, 201);
    assert_eq!(position(&reply), Some(1));
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w02_a_create_raises_the_next_id() {
    let mut store = with_model(&json!({}));
    assert_eq!(store.reserve("a", 1), json!({ "ids": [2] }));
    store.apply(&[create("a/3", &json!({}))]);
    assert_eq!(store.reserve("a", 1), json!({ "ids": [4] }));
}

#[test]
fn w03_a_null_field_is_dropped() {
    with_model(&json!({ "f": 1, "empty": null })).has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w04_reserved_fields_are_refused() {
    let mut store = with_model(&json!({ "f": 1 }));
    for field in ["meta_something", "metadata", "meta", "meta_position", "meta_deleted"] {
        let created = store.write(&request(&[create("a/2", &json!({ field: 1 }))]));
        assert_refused(&created, INVALID_FORMAT, &format!("create {field}"));
        for value in [json!(1), json!(null)] {
            let updated = store.write(&request(&[update("a/1", &json!({ field: value }))]));
            assert_refused(&updated, INVALID_FORMAT, &format!("update {field} to {value}"));
        }
        let listed = store.write(&request(&[update_lists("a/1", &json!({ "add": { field: [1] } }))]));
        assert_refused(&listed, INVALID_FORMAT, &format!("list update {field}"));
    }
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w05_the_same_create_twice_stores_nothing() {
    let mut store = Store::start();
    let twice = [create("a/1", &json!({ "f": 1 })), create("a/1", &json!({ "f": 1 }))];
    assert_is(&store.write(&request(&twice)), 400, &exists("a/1"));
    store.is_empty();
}

/// What is kept of a create is the fields; position and flag are those of the moment one asks for.
#[test]
fn w06_reserved_fields_are_not_part_of_an_event() {
    let mut store = with_model(&json!({ "f": 1 }));
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    check_at(&mut store, 1, &model(&json!({ "f": 1 }), 1));
    check_at(&mut store, 2, &model(&json!({ "f": 2 }), 2));
}

#[test]
fn w07_a_value_and_a_removal_in_one_update() {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_eq!(store.apply(&[update("a/1", &json!({ "f": null, "g": 2 }))]), 2);
    store.has("a/1", &json!({ "g": 2 }), 2);
}

#[test]
fn w08_values_survive_as_they_are() {
    let values = [
        json!([true, null, { "test": "value" }]),
        json!({ "a": { "b": null }, "": [] }),
        json!([]),
        json!({}),
        json!(""),
        json!(false),
        json!(0),
        json!(-1.5),
        json!(9_007_199_254_740_993_u64),
        json!("line\nend \u{0} \u{1f512} \"quoted\" \\"),
    ];
    let mut store = with_model(&json!({}));
    for (count, value) in (2..).zip(values) {
        store.apply(&[update("a/1", &json!({ "f": value }))]);
        store.has("a/1", &json!({ "f": value }), count);
    }
}

#[test]
fn w09_removing_an_absent_field_succeeds() {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_eq!(store.apply(&[update("a/1", &json!({ "g": null }))]), 2);
    store.has("a/1", &json!({ "f": 1 }), 2);
}

#[test]
fn w10_updating_a_missing_model_is_refused() {
    let mut store = Store::start();
    for value in [json!("value"), json!(null)] {
        let reply = store.write(&request(&[update("a/1", &json!({ "f": value }))]));
        assert_is(&reply, 400, &missing("a/1"));
    }
    let reply = store.write(&request(&[update_lists("a/1", &json!({ "add": { "f": [1] } }))]));
    assert_is(&reply, 400, &missing("a/1"));
    store.is_empty();
}

#[test]
fn w11_one_update_changes_only_its_fields() {
    let mut store = with_model(&json!({ "f": 1, "g": [1], "h": "x" }));
    store.apply(&[update("a/1", &json!({ "h": "y" }))]);
    store.has("a/1", &json!({ "f": 1, "g": [1], "h": "y" }), 2);
}

/// What a list update makes of what is stored.
#[track_caller]
fn check_lists(what: &str, stored: &Value, lists: &Value, expected: &Value) {
    let mut store = with_model(stored);
    assert_eq!(store.apply(&[update_lists("a/1", lists)]), 2, "{what}");
    assert_eq!(store.get("a/1").json(), model(expected, 2), "{what}");
}

#[test]
fn w12_adding_to_lists() {
    let add = |list: Value| json!({ "add": { "l": list } });
    let of = |list: Value| json!({ "l": list });
    check_lists("to an absent one", &json!({ "f": 1 }), &add(json!([1])), &json!({ "f": 1, "l": [1] }));
    check_lists("to an empty one", &of(json!([])), &add(json!([1])), &of(json!([1])));
    check_lists("a string", &json!({}), &add(json!(["str"])), &of(json!(["str"])));
    check_lists("to an existing one", &of(json!([42])), &add(json!([1])), &of(json!([42, 1])));
    check_lists("what is there", &of(json!([1])), &add(json!([1, 2])), &of(json!([1, 2])));
    check_lists("a number like a string", &of(json!(["1"])), &add(json!([1])), &of(json!(["1", 1])));
    check_lists("the same twice", &json!({}), &add(json!([1, 1, 2])), &of(json!([1, 1, 2])));
    check_lists("nothing", &json!({ "f": 1, "l": [1] }), &add(json!([])), &json!({ "f": 1, "l": [1] }));
}

#[test]
fn w13_removing_from_lists() {
    let remove = |list: Value| json!({ "remove": { "l": list } });
    let of = |list: Value| json!({ "l": list });
    check_lists("from an absent one", &json!({ "f": 1 }), &remove(json!([1])), &json!({ "f": 1 }));
    check_lists("from an empty one", &of(json!([])), &remove(json!([1])), &of(json!([])));
    check_lists("the only one", &of(json!([42])), &remove(json!([42])), &of(json!([])));
    check_lists("what is not there", &of(json!([1])), &remove(json!([42])), &of(json!([1])));
    check_lists("partly there", &of(json!([1, 2])), &remove(json!([1, 42])), &of(json!([2])));
    check_lists("all of a kind", &of(json!([1, 2, 1])), &remove(json!([1])), &of(json!([2])));
    check_lists("a string like a number", &of(json!([1, "1"])), &remove(json!(["1"])), &of(json!([1])));
}

#[test]
fn w14_adding_and_removing_together() {
    let two = json!({ "add": { "f": [2] }, "remove": { "g": ["x"] } });
    check_lists("on two fields", &json!({ "f": [1], "g": ["x"] }), &two, &json!({ "f": [1, 2], "g": [] }));
    let one = json!({ "add": { "f": [2] }, "remove": { "f": [1] } });
    check_lists("on one field", &json!({ "f": [1] }), &one, &json!({ "f": [2] }));
    let same = json!({ "add": { "f": [2] }, "remove": { "f": [2] } });
    check_lists("the same, added first", &json!({ "f": [1] }), &same, &json!({ "f": [1] }));
}

#[test]
fn w15_list_updates_of_what_is_no_list_are_refused() {
    for stored in
        [json!(1), json!("text"), json!({}), json!(true), json!([[1]]), json!([1, { "a": 1 }]), json!([null])]
    {
        let mut store = with_model(&json!({ "f": stored }));
        for lists in [json!({ "add": { "f": [1] } }), json!({ "remove": { "f": [1] } })] {
            let reply = store.write(&request(&[update_lists("a/1", &lists)]));
            assert_refused(&reply, INVALID_FORMAT, &format!("{lists} on {stored}"));
        }
        store.has("a/1", &json!({ "f": stored }), 1);
    }
}

#[test]
fn w16_only_numbers_and_strings_are_listed() {
    let mut store = with_model(&json!({ "l": [1] }));
    let wrong = [
        json!(1),
        json!("x"),
        json!(null),
        json!({}),
        json!([1.5]),
        json!([true]),
        json!([null]),
        json!([[1]]),
    ];
    for value in wrong {
        for kind in ["add", "remove"] {
            let reply = store.write(&request(&[update_lists("a/1", &json!({ kind: { "l": value } }))]));
            assert_refused(&reply, INVALID_REQUEST, &format!("{kind} {value}"));
        }
    }
    store.has("a/1", &json!({ "l": [1] }), 1);
}

#[test]
fn w17_a_deleted_model_is_hidden_and_can_be_read_as_deleted() {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_eq!(store.apply(&[delete("a/1")]), 2);
    store.lacks("a/1");
    let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "get_deleted_models": 2 }));
    assert_is(&reply, 200, &deleted_model(&json!({ "f": 1 }), 2));
}

#[test]
fn w18_deleting_what_is_not_there_is_refused() {
    let mut store = Store::start();
    assert_is(&store.write(&request(&[delete("a/1")])), 400, &missing("a/1"));
    store.is_empty();
    store.apply(&[create("a/1", &json!({})), delete("a/1")]);
    assert_is(&store.write(&request(&[delete("a/1")])), 400, &missing("a/1"));
}

#[test]
fn w19_a_restore_brings_the_content_back_at_a_new_position() {
    let mut store = with_model(&json!({ "f": 1 }));
    store.apply(&[delete("a/1")]);
    assert_eq!(store.apply(&[restore("a/1")]), 3);
    store.has("a/1", &json!({ "f": 1 }), 3);
}

#[test]
fn w20_restoring_what_is_not_deleted_is_refused() {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_is(&store.write(&request(&[restore("a/1")])), 400, &not_deleted("a/1"));
    assert_is(&store.write(&request(&[restore("a/2")])), 400, &not_deleted("a/2"));
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w21_a_deleted_id_is_never_created_again() {
    let mut store = with_model(&json!({ "f": 1 }));
    store.apply(&[delete("a/1")]);
    assert_is(&store.write(&request(&[create("a/1", &json!({}))])), 400, &exists("a/1"));
}

/// What the events of one request make of `a/1 {f:1}`, all at position 2.
#[track_caller]
fn check_events(what: &str, events: &[Value], expected: &Value) {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_eq!(store.apply(events), 2, "{what}");
    assert_eq!(store.get("a/1").json(), model(expected, 2), "{what}");
}

#[test]
fn w22_events_of_one_request_see_each_other() {
    let (gone, back) = (delete("a/1"), restore("a/1"));
    let both = json!({ "type": "update", "fqid": "a/1", "fields": { "g": 2 }, "list_fields": { "add": { "l": [1] } } });
    check_events("update and list update", &[both], &json!({ "f": 1, "g": 2, "l": [1] }));
    let twice = [gone.clone(), back.clone(), gone.clone(), back.clone()];
    check_events("delete and restore twice", &twice, &json!({ "f": 1 }));
    let first = update("a/1", &json!({ "another": "value", "f": null }));
    let last = update("a/1", &json!({ "third": ["my", "list"] }));
    let around = [first, gone, back, last];
    check_events("update around them", &around, &json!({ "another": "value", "third": ["my", "list"] }));
    let updates = [update("a/1", &json!({ "f": 2 })), update("a/1", &json!({ "f": 3 }))];
    check_events("the last update counts", &updates, &json!({ "f": 3 }));
    let lists = [update("a/1", &json!({ "f": [1] })), update_lists("a/1", &json!({ "add": { "f": [2] } }))];
    check_events("update, then list update", &lists, &json!({ "f": [1, 2] }));
}

#[test]
fn w23_a_create_and_what_follows_share_one_position() {
    let made = create("a/1", &json!({ "f": 1 }));
    let cases = [
        (
            "update",
            update("a/1", &json!({ "f": null, "g": [true, null, {}] })),
            json!({ "g": [true, null, {}] }),
        ),
        ("list update", update_lists("a/1", &json!({ "add": { "g": [2] } })), json!({ "f": 1, "g": [2] })),
    ];
    for (what, event, expected) in cases {
        let mut store = Store::start();
        assert_eq!(store.apply(&[made.clone(), event]), 1, "{what}");
        store.has("a/1", &expected, 1);
    }
    let mut store = Store::start();
    assert_eq!(store.apply(&[made, delete("a/1"), restore("a/1")]), 1);
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w24_a_create_and_a_delete_leave_a_deleted_model() {
    let mut store = Store::start();
    assert_eq!(store.apply(&[create("a/1", &json!({ "f": 1 })), delete("a/1")]), 1);
    store.lacks("a/1");
    let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "get_deleted_models": 3 }));
    assert_is(&reply, 200, &deleted_model(&json!({ "f": 1 }), 1));
}

#[test]
fn w25_a_delete_and_an_update_are_refused_together() {
    let mut store = with_model(&json!({ "f": 1 }));
    let reply = store.write(&request(&[delete("a/1"), update("a/1", &json!({ "f": 42 }))]));
    assert_is(&reply, 400, &missing("a/1"));
    store.has("a/1", &json!({ "f": 1 }), 1);
}

#[test]
fn w26_the_position_of_a_model_follows_every_event() {
    let mut store = with_model(&json!({ "f": [] }));
    store.apply(&[create("b/1", &json!({}))]);
    store.has("a/1", &json!({ "f": [] }), 1);
    store.apply(&[update_lists("a/1", &json!({ "add": { "f": [42] } }))]);
    store.has("a/1", &json!({ "f": [42] }), 3);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    store.has("a/1", &json!({ "f": 2 }), 4);
    store.apply(&[update("a/1", &json!({ "f": null }))]);
    store.has("a/1", &json!({}), 5);
    store.apply(&[delete("a/1")]);
    let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "get_deleted_models": 2 }));
    assert_is(&reply, 200, &deleted_model(&json!({}), 6));
    store.apply(&[restore("a/1")]);
    store.has("a/1", &json!({}), 7);
}

#[test]
fn w27_several_requests_of_one_call_have_a_position_each() {
    let mut store = with_model(&json!({ "f": 1 }));
    let first = request(&[update("a/1", &json!({ "f": null }))]);
    let second = request(&[update("a/1", &json!({ "g": 1 }))]);
    assert_eq!(store.written(&json!([first, second])), 3);
    check_at(&mut store, 2, &model(&json!({}), 2));
    store.has("a/1", &json!({ "g": 1 }), 3);
    assert_eq!(store.written(&json!([request(&[create("b/1", &json!({}))])])), 4);
}

#[test]
fn w28_one_refused_request_undoes_the_whole_call() {
    let mut store = with_model(&json!({ "f": 1 }));
    let first = request(&[update("a/1", &json!({ "f": 2 })), create("b/5", &json!({}))]);
    let second = request(&[update("a/9", &json!({ "f": 1 }))]);
    assert_is(&store.write(&json!([first, second])), 400, &missing("a/9"));
    store.has("a/1", &json!({ "f": 1 }), 1);
    store.lacks("b/5");
    assert_eq!(store.reserve("b", 1), json!({ "ids": [1] }));
}

#[test]
fn w29_an_empty_call_does_nothing() {
    let mut store = Store::start();
    assert_silent(&store.write(&json!([])), 201);
    store.is_empty();
}

#[test]
fn w30_positions_have_no_gaps() {
    let mut store = with_model(&json!({ "f": 1 }));
    assert_is(&store.write(&request(&[create("a/1", &json!({}))])), 400, &exists("a/1"));
    assert_is(&store.write(&request(&[delete("a/2")])), 400, &missing("a/2"));
    let scalar = request(&[update_lists("a/1", &json!({ "add": { "f": [1] } }))]);
    assert_refused(&store.write(&scalar), INVALID_FORMAT, "a list update of a number");
    assert_eq!(store.apply(&[update("a/1", &json!({ "f": 2 }))]), 2);
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn w31_who_when_and_why_are_stored() {
    let mut store = Store::start();
    let before = now() - 1.0;
    for (count, (user, information)) in
        (1..).zip([(42, json!(["note"])), (0, json!({ "a": [1] })), (-1, json!("x"))])
    {
        let fqid = format!("a/{count}");
        let body = with(&request(&[create(&fqid, &json!({}))]), "user_id", &json!(user));
        store.written(&with(&body, "information", &information));
        let history = store.read("history_information", &json!({ "fqids": [fqid] }));
        let timestamp = history[&fqid][0]["timestamp"].as_f64().unwrap();
        assert!((before..=now() + 1.0).contains(&timestamp), "{history}");
        let entry =
            json!({ "position": count, "timestamp": timestamp, "user_id": user, "information": information });
        assert_eq!(history, json!({ fqid: [entry] }));
    }
}

#[test]
fn w32_empty_information_is_stored_as_null() {
    let mut store = Store::start();
    for (id, information) in (1..).zip([json!(null), json!(0), json!(""), json!([]), json!({}), json!(false)])
    {
        let fqid = format!("a/{id}");
        store.written(&with(&request(&[create(&fqid, &json!({}))]), "information", &information));
        assert_eq!(
            store.read("history_information", &json!({ "fqids": [fqid] })),
            json!({}),
            "{information}"
        );
    }
}

fn migrated(index: u64, fqid: &str) -> Value {
    with(&request(&[create(fqid, &json!({}))]), "migration_index", &json!(index))
}

#[test]
fn w33_a_migration_index_is_taken_by_an_empty_store() {
    let mut store = Store::start();
    assert_eq!(store.written(&migrated(7, "a/1")), 1);
    assert_eq!(store.apply(&[create("a/2", &json!({}))]), 2);
}

#[test]
fn w34_a_migration_index_is_refused_by_a_store_that_has_positions() {
    let mut store = with_model(&json!({}));
    assert_eq!(store.apply(&[create("a/2", &json!({}))]), 2);
    for index in [1, 7] {
        assert_refused(&store.write(&migrated(index, "a/3")), DATASTORE_NOT_EMPTY, "the first had none");
    }
    store.lacks("a/3");
    let mut store = Store::start();
    store.written(&migrated(7, "a/1"));
    assert_refused(&store.write(&migrated(7, "a/2")), DATASTORE_NOT_EMPTY, "the first had the same");
}

#[test]
fn w35_a_migration_index_is_judged_before_locks_and_in_order() {
    let mut store = with_model(&json!({ "f": 1 }));
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    let stale = with(&migrated(1, "a/1"), "locked_fields", &json!({ "a/1": 1 }));
    assert_refused(&store.write(&stale), DATASTORE_NOT_EMPTY, "before locks and models");
    let mut store = Store::start();
    let both = json!([migrated(1, "a/1"), migrated(1, "a/2")]);
    assert_refused(&store.write(&both), DATASTORE_NOT_EMPTY, "the second request");
    store.is_empty();
}

/// Bodies of one write that are refused, by what is wrong with them.
fn wrong_requests() -> Vec<(&'static str, Value, u64)> {
    let right = request(&[create("a/1", &json!({ "f": 1 }))]);
    let mut cases = vec![
        ("a list of no requests", json!(["not_valid", null]), INVALID_REQUEST),
        ("text", json!("text"), INVALID_REQUEST),
        ("a number", json!(1), INVALID_REQUEST),
        ("null", json!(null), INVALID_REQUEST),
        ("an empty object", json!({}), INVALID_REQUEST),
        ("a list in a list", json!([[right]]), INVALID_REQUEST),
        ("one right, one wrong", json!([right, {}]), INVALID_REQUEST),
    ];
    for member in ["user_id", "information", "locked_fields", "events"] {
        cases.push((member, without(&right, member), INVALID_REQUEST));
    }
    let members = [
        ("a user that is text", "user_id", json!("1"), INVALID_REQUEST),
        ("a user that is null", "user_id", json!(null), INVALID_REQUEST),
        ("a user that is true", "user_id", json!(true), INVALID_REQUEST),
        ("locks that are a list", "locked_fields", json!([]), INVALID_REQUEST),
        ("locks that are null", "locked_fields", json!(null), INVALID_REQUEST),
        ("events that are an object", "events", json!({}), INVALID_REQUEST),
        ("an event that is text", "events", json!(["create"]), INVALID_REQUEST),
        ("no events", "events", json!([]), INVALID_FORMAT),
        ("the lock key `collection`", "locked_fields", json!({ "collection": 1 }), INVALID_FORMAT),
        (
            "the lock key `_collection/field`",
            "locked_fields",
            json!({ "_collection/field": 1 }),
            INVALID_FORMAT,
        ),
        ("the lock key `c/c/f`", "locked_fields", json!({ "c/c/f": 1 }), INVALID_FORMAT),
        ("the lock key `1/1/1`", "locked_fields", json!({ "1/1/1": 1 }), INVALID_FORMAT),
        ("the lock position -1", "locked_fields", json!({ "a/1": -1 }), INVALID_FORMAT),
        ("the lock position 0", "locked_fields", json!({ "a/1": 0 }), INVALID_FORMAT),
        ("the lock position null", "locked_fields", json!({ "a/1": null }), INVALID_REQUEST),
        ("the migration index as text", "migration_index", json!("should be a number"), INVALID_REQUEST),
        ("the migration index 0", "migration_index", json!(0), INVALID_REQUEST),
        ("the migration index -1", "migration_index", json!(-1), INVALID_REQUEST),
    ];
    cases.extend(members.map(|(what, member, value, kind)| (what, with(&right, member, &value), kind)));
    cases.extend(
        wrong_events().map(|(what, event, kind)| (what, request(&[right["events"][0].clone(), event]), kind)),
    );
    cases
}

fn wrong_events() -> [(&'static str, Value, u64); 20] {
    let change = |fields: Value, lists: Value| json!({ "type": "update", "fqid": "a/1", "fields": fields, "list_fields": lists });
    let made = create("a/2", &json!({ "f": 1 }));
    let changed = update("a/1", &json!({ "f": 1 }));
    [
        ("an unknown type", with(&made, "type", &json!("unknown")), INVALID_REQUEST),
        ("no type", without(&made, "type"), INVALID_REQUEST),
        ("no fqid", without(&made, "fqid"), INVALID_REQUEST),
        ("an fqid that is a number", with(&made, "fqid", &json!(1)), INVALID_REQUEST),
        ("a wrong fqid", with(&made, "fqid", &json!("not valid")), INVALID_FORMAT),
        ("a delete of a wrong fqid", delete("not valid"), INVALID_FORMAT),
        ("a restore of a wrong fqid", restore("not valid"), INVALID_FORMAT),
        ("a create without fields", without(&made, "fields"), INVALID_REQUEST),
        ("a create with fields that are a list", with(&made, "fields", &json!([])), INVALID_REQUEST),
        ("a create of a reserved field", create("a/2", &json!({ "meta": 1 })), INVALID_FORMAT),
        ("an update of a reserved field", update("a/1", &json!({ "meta": 1 })), INVALID_FORMAT),
        ("an update with empty fields", update("a/1", &json!({})), INVALID_REQUEST),
        ("an update without fields", without(&changed, "fields"), INVALID_REQUEST),
        ("an update with fields that are null", update("a/1", &json!(null)), INVALID_REQUEST),
        ("an update with nothing in both", change(json!({}), json!({})), INVALID_REQUEST),
        (
            "an update with empty lists",
            change(json!({}), json!({ "add": {}, "remove": {} })),
            INVALID_REQUEST,
        ),
        ("a field in both", change(json!({ "f": [2] }), json!({ "add": { "f": [3] } })), INVALID_REQUEST),
        (
            "a field in both, removed",
            change(json!({ "f": [2] }), json!({ "remove": { "f": [3] } })),
            INVALID_REQUEST,
        ),
        (
            "an unknown list change",
            change(json!({ "g": 1 }), json!({ "other": { "f": [1] } })),
            INVALID_REQUEST,
        ),
        ("an unknown member of an update", with(&changed, "x", &json!(1)), INVALID_REQUEST),
    ]
}

#[test]
fn w36_wrong_requests_are_refused_and_store_nothing() {
    let mut store = Store::start();
    for (what, body, kind) in wrong_requests() {
        assert_refused(&store.write(&body), kind, what);
    }
    store.is_empty();
    assert_eq!(store.reserve("a", 1), json!({ "ids": [1] }));
}

#[test]
fn w37_what_is_not_json_is_refused() {
    let mut store = Store::start();
    let body = request(&[create("a/1", &json!({}))]).to_string();
    for route in ["write", "write_without_events"] {
        let path = format!("{WRITER}/{route}");
        for kind in [None, Some("text/plain"), Some("application/x-www-form-urlencoded")] {
            let reply = store.writer.send("POST", &path, kind, &body);
            assert_refused(&reply, INVALID_REQUEST, &format!("{route} as {kind:?}"));
        }
        for body in ["", "{", "some=data", "[1,]", "{\"user_id\": 1", "nul", "\u{1}"] {
            let reply = store.writer.send("POST", &path, Some("application/json"), body);
            assert_refused(&reply, INVALID_REQUEST, &format!("{route} of {body:?}"));
        }
    }
    store.is_empty();
}

#[test]
fn w38_unknown_members_elsewhere_are_ignored() {
    let mut store = Store::start();
    let made = with(&create("a/1", &json!({ "f": 1 })), "x", &json!(1));
    store.written(&with(&request(&[made]), "x", &json!([1])));
    store.has("a/1", &json!({ "f": 1 }), 1);
    store.apply(&[with(&delete("a/1"), "fields", &json!({ "f": 2 }))]);
    store.apply(&[with(&restore("a/1"), "x", &json!(null))]);
    store.has("a/1", &json!({ "f": 1 }), 3);
}

#[test]
fn w39_names_of_models() {
    let mut store = Store::start();
    let wrong =
        ["", "/", "a", "a/", "/1", "a/0", "a/01", "a/-1", "a/+1", "a/1.0", "a/x", "ab/1", "a1/1", "a1c/1"];
    let others = [
        "_a/1", "a_/1", "_/1", "a_b_/1", "A/1", "aBc/1", "a/1/f", "a//1", " a/1", "a/1 ", "a/1\n", "ä/1",
        "a-b/1",
    ];
    for fqid in wrong.into_iter().chain(others) {
        let reply = store.write(&request(&[create(fqid, &json!({}))]));
        assert_refused(&reply, INVALID_FORMAT, &format!("{fqid:?}"));
    }
    store.is_empty();
    for (position, fqid) in (1..).zip(["a/1", "abc/1", "a_c/1", "a__b/1", "z/10", "z/2147483647"]) {
        assert_eq!(store.apply(&[create(fqid, &json!({}))]), position);
        store.has(fqid, &json!({}), position);
    }
}

#[test]
fn w40_names_of_fields() {
    let mut store = Store::start();
    let wrong = ["", "F", "1f", "_f", "$f", "f$$", "f$a$", "f-g", "f g", "f\n", "f/g", "ä", "fÄ", "f."];
    for field in wrong {
        let reply = store.write(&request(&[create("a/1", &json!({ field: 1 }))]));
        assert_refused(&reply, INVALID_FORMAT, &format!("{field:?}"));
    }
    store.is_empty();
    let right = object(
        ["f", "f1", "f_", "f$", "f_$_s", "f$1", "f__g", "fmeta"].map(|field| (field.to_owned(), json!(1))),
    );
    store.apply(&[create("a/1", &right)]);
    store.has("a/1", &right, 1);
}

#[test]
fn w41_names_have_limits() {
    let mut store = Store::start();
    let collection = |len: usize| "c".repeat(len);
    let too_long = create(&format!("{}/1", collection(33)), &json!({}));
    assert_refused(&store.write(&request(&[too_long])), INVALID_FORMAT, "a collection of 33");
    let field = |len: usize| json!({ "f".repeat(len): 1 });
    assert_refused(&store.write(&request(&[create("a/1", &field(238))])), INVALID_FORMAT, "a/ and 238");
    store.is_empty();
    let longest = format!("{}/2147483647", collection(32));
    assert_eq!(store.apply(&[create(&longest, &json!({}))]), 1);
    assert_eq!(store.apply(&[create("a/1", &field(237))]), 2);
    store.has("a/1", &field(237), 2);
}

#[test]
fn w42_ids_end_where_the_originals_do() {
    let mut store = Store::start();
    for id in ["2147483648", "3000000000", "9007199254740993", "99999999999999999999999999"] {
        let reply = store.write(&request(&[create(&format!("a/{id}"), &json!({}))]));
        assert_refused(&reply, INVALID_FORMAT, id);
    }
    store.is_empty();
    assert_eq!(store.apply(&[create("a/2147483647", &json!({}))]), 1);
}

#[test]
fn w43_everything_outlives_the_process() {
    let mut store = with_model(&json!({ "f": 1 }));
    store.apply(&[create("a/2", &json!({ "g": [1] })), delete("a/2")]);
    let mut store = store.crashed(&[]);
    store.has("a/1", &json!({ "f": 1 }), 1);
    let reply = store.ask_reader("get", &json!({ "fqid": "a/2", "get_deleted_models": 2 }));
    assert_is(&reply, 200, &deleted_model(&json!({ "g": [1] }), 2));
    assert_eq!(store.apply(&[update("a/1", &json!({ "f": 2 }))]), 3);
    check_at(&mut store, 1, &model(&json!({ "f": 1 }), 1));
}

#[test]
fn w44_the_first_wrong_event_is_the_one_reported() {
    let mut store = with_model(&json!({ "f": 1 }));
    let events = [create("b/1", &json!({})), delete("a/9"), create("a/1", &json!({}))];
    assert_is(&store.write(&request(&events)), 400, &missing("a/9"));
    store.lacks("b/1");
    let events = [create("a/1", &json!({})), delete("a/9")];
    assert_is(&store.write(&locking(&events, &json!({ "a/1": 1 }))), 400, &exists("a/1"));
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    assert_is(&store.write(&locking(&events, &json!({ "a/1": 1 }))), 400, &locked(&["a/1"]));
}
