//! Groups A and E: reading a whole collection, and everything there is.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, Store, assert_refused, create, delete, deleted_model, model, update,
    with,
};
use serde_json::{Value, json};

/// `a/1` and `b/1` live, `a/2` deleted at position 4.
fn with_models() -> Store {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1, "g": "x" }))]);
    store.apply(&[create("a/2", &json!({ "f": 2 }))]);
    store.apply(&[create("b/1", &json!({ "f": 3 }))]);
    store.apply(&[delete("a/2")]);
    store
}

fn live() -> Value {
    model(&json!({ "f": 1, "g": "x" }), 1)
}

fn gone() -> Value {
    deleted_model(&json!({ "f": 2 }), 4)
}

#[track_caller]
fn check(store: &mut Store, members: &Value, expected: &Value) {
    assert_eq!(store.read("get_all", &with(members, "collection", &json!("a"))), *expected);
}

#[test]
fn a01_live_models_are_read() {
    check(&mut with_models(), &json!({ "get_deleted_models": 1 }), &json!({ "1": live() }));
}

#[test]
fn a02_deleted_models_are_hidden() {
    check(&mut with_models(), &json!({}), &json!({ "1": live() }));
}

#[test]
fn a03_only_deleted_models() {
    check(&mut with_models(), &json!({ "get_deleted_models": 2 }), &json!({ "2": gone() }));
}

#[test]
fn a04_all_models() {
    check(&mut with_models(), &json!({ "get_deleted_models": 3 }), &json!({ "1": live(), "2": gone() }));
}

#[test]
fn a05_mapped_fields_that_are_absent_are_null() {
    let mut store = with_models();
    let members = json!({ "mapped_fields": ["g", "meta_position"], "get_deleted_models": 3 });
    let expected = json!({ "1": { "g": "x", "meta_position": 1 }, "2": { "g": null, "meta_position": 4 } });
    check(&mut store, &members, &expected);
    check(&mut store, &json!({ "mapped_fields": ["nothing"] }), &json!({ "1": { "nothing": null } }));
    check(&mut store, &json!({ "mapped_fields": [] }), &json!({ "1": live() }));
}

#[test]
fn a06_a_wrong_collection_is_refused() {
    let mut store = with_models();
    for collection in ["not valid", "", "ab", "a/1", "a\n"] {
        let reply = store.ask_reader("get_all", &json!({ "collection": collection }));
        assert_refused(&reply, INVALID_FORMAT, &format!("{collection:?}"));
    }
}

#[test]
fn a07_a_wrong_field_is_refused() {
    let reply =
        with_models().ask_reader("get_all", &json!({ "collection": "a", "mapped_fields": ["not valid"] }));
    assert_refused(&reply, INVALID_FORMAT, "not valid");
}

#[test]
fn a08_a_collection_of_nothing_is_empty() {
    let mut store = with_models();
    assert_eq!(store.read("get_all", &json!({ "collection": "c" })), json!({}));
    assert_eq!(store.read("get_all", &json!({ "collection": "b", "get_deleted_models": 2 })), json!({}));
}

#[test]
fn a09_a_position_is_ignored() {
    let mut store = with_models();
    store.apply(&[update("a/1", &json!({ "f": 9 }))]);
    let now = json!({ "1": model(&json!({ "f": 9, "g": "x" }), 5) });
    check(&mut store, &json!({ "position": 1 }), &now);
}

#[test]
fn a10_malformed_bodies_are_refused() {
    let mut store = with_models();
    let right = json!({ "collection": "a" });
    let bodies = [
        json!(null),
        json!("a"),
        json!({}),
        json!({ "collection": 1 }),
        with(&right, "mapped_fields", &json!("f")),
        with(&right, "mapped_fields", &json!([1])),
        with(&right, "get_deleted_models", &json!(0)),
        with(&right, "get_deleted_models", &json!("1")),
    ];
    for body in bodies {
        assert_refused(&store.ask_reader("get_all", &body), INVALID_REQUEST, &body.to_string());
    }
}

fn numbered(model: &Value, id: u64) -> Value {
    with(model, "id", &json!(id))
}

#[test]
fn e01_everything_live_with_its_id() {
    let mut store = with_models();
    let other = numbered(&model(&json!({ "f": 3 }), 3), 1);
    let expected = json!({ "a": { "1": numbered(&live(), 1) }, "b": { "1": other } });
    assert_eq!(store.read("get_everything", &json!({})), expected);
    assert_eq!(store.read("get_everything", &json!({ "get_deleted_models": 1 })), expected);
}

#[test]
fn e02_everything_deleted() {
    let expected = json!({ "a": { "2": numbered(&gone(), 2) } });
    assert_eq!(with_models().read("get_everything", &json!({ "get_deleted_models": 2 })), expected);
}

#[test]
fn e03_everything_there_is() {
    let other = numbered(&model(&json!({ "f": 3 }), 3), 1);
    let both = json!({ "1": numbered(&live(), 1), "2": numbered(&gone(), 2) });
    let expected = json!({ "a": both, "b": { "1": other } });
    assert_eq!(with_models().read("get_everything", &json!({ "get_deleted_models": 3 })), expected);
}

#[test]
fn e04_it_is_there_in_production_and_in_development() {
    for flags in [&[][..], &["--openslides-development"]] {
        assert_eq!(Store::start_with(flags).read("get_everything", &json!({})), json!({}));
    }
    let reply = Store::start().ask_reader("get_everything", &json!({ "get_deleted_models": 4 }));
    assert_refused(&reply, INVALID_REQUEST, "no such switch");
}
