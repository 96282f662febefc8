//! Group M: reading several models at once, by parts or by fields, now or at an earlier position.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, Store, assert_is, assert_refused, create, delete, deleted_model, model,
    restore, update, with,
};
use serde_json::{Value, json};

fn first() -> Value {
    json!({ "field_1": "data", "field_2": 42, "field_3": [1, 2, 3], "common": 1 })
}

fn second(common: u64) -> Value {
    json!({ "field_4": "data", "field_5": 42, "field_6": [1, 2, 3], "common": common })
}

/// `a/1`, `b/1` and `b/2`, all created at position 1.
fn with_models() -> Store {
    let mut store = Store::start();
    store.apply(&[create("a/1", &first()), create("b/1", &second(2)), create("b/2", &second(3))]);
    store
}

/// The same, and `common` set to 0 in all of them at position 2.
fn with_history() -> Store {
    let mut store = with_models();
    store.apply(&["a/1", "b/1", "b/2"].map(|fqid| update(fqid, &json!({ "common": 0 }))));
    store
}

/// The same, all deleted at position 2.
fn with_deleted() -> Store {
    let mut store = with_models();
    store.apply(&["a/1", "b/1", "b/2"].map(delete));
    store
}

fn all() -> Value {
    json!([{ "collection": "a", "ids": [1] }, { "collection": "b", "ids": [1, 2] }])
}

fn everything() -> Value {
    json!({ "a": { "1": model(&first(), 1) }, "b": { "1": model(&second(2), 1), "2": model(&second(3), 1) } })
}

#[track_caller]
fn check(store: &mut Store, requests: &Value, members: &Value, expected: &Value) {
    assert_is(&store.ask_reader("get_many", &with(members, "requests", requests)), 200, expected);
}

#[test]
fn m01_parts_name_models_by_collection() {
    check(&mut with_models(), &all(), &json!({}), &everything());
}

#[test]
fn m02_fields_name_models_one_by_one() {
    let expected = json!({ "a": { "1": { "field_1": "data" } }, "c": {} });
    check(&mut with_models(), &json!(["a/1/field_1", "c/1/f"]), &json!({}), &expected);
}

#[test]
fn m03_some_may_be_missing() {
    let requests = json!([
        { "collection": "a", "ids": [1] },
        { "collection": "b", "ids": [1, 2, 3] },
        { "collection": "c", "ids": [1] },
    ]);
    check(&mut with_models(), &requests, &json!({}), &with(&everything(), "c", &json!({})));
}

#[test]
fn m04_all_may_be_missing() {
    let requests = json!([{ "collection": "b", "ids": [3] }, { "collection": "c", "ids": [1] }]);
    check(&mut with_models(), &requests, &json!({}), &json!({ "b": {}, "c": {} }));
    check(&mut Store::start(), &requests, &json!({}), &json!({ "b": {}, "c": {} }));
}

#[test]
fn m05_deleted_models_are_hidden() {
    let mut store = with_deleted();
    check(&mut store, &all(), &json!({}), &json!({ "a": {}, "b": {} }));
    check(&mut store, &all(), &json!({ "get_deleted_models": 1 }), &json!({ "a": {}, "b": {} }));
}

#[test]
fn m06_only_deleted_models() {
    let gone = json!({
        "a": { "1": deleted_model(&first(), 2) },
        "b": { "1": deleted_model(&second(2), 2), "2": deleted_model(&second(3), 2) },
    });
    check(&mut with_deleted(), &all(), &json!({ "get_deleted_models": 2 }), &gone);
    check(&mut with_models(), &all(), &json!({ "get_deleted_models": 2 }), &json!({ "a": {}, "b": {} }));
}

#[test]
fn m07_live_and_deleted_models() {
    let mut store = with_models();
    store.apply(&[delete("b/1")]);
    let expected = json!({
        "a": { "1": model(&first(), 1) },
        "b": { "1": deleted_model(&second(2), 2), "2": model(&second(3), 1) },
    });
    check(&mut store, &all(), &json!({ "get_deleted_models": 3 }), &expected);
}

fn mapped_parts() -> Value {
    json!([
        { "collection": "a", "ids": [1], "mapped_fields": ["field_1"] },
        { "collection": "b", "ids": [1, 2], "mapped_fields": ["field_4", "field_5"] },
    ])
}

fn mapped() -> Value {
    json!({
        "a": { "1": { "field_1": "data", "common": 1 } },
        "b": {
            "1": { "field_4": "data", "field_5": 42, "common": 2 },
            "2": { "field_4": "data", "field_5": 42, "common": 3 },
        },
    })
}

#[test]
fn m08_fields_of_a_part_and_of_all_are_united() {
    check(&mut with_models(), &mapped_parts(), &json!({ "mapped_fields": ["common"] }), &mapped());
}

#[test]
fn m09_a_part_without_fields_is_the_whole_model() {
    let requests = json!([
        { "collection": "a", "ids": [1], "mapped_fields": ["field_1"] },
        { "collection": "b", "ids": [1] },
    ]);
    let expected = json!({ "a": { "1": { "field_1": "data" } }, "b": { "1": model(&second(2), 1) } });
    check(&mut with_models(), &requests, &json!({}), &expected);
}

#[test]
fn m10_a_collection_may_come_twice() {
    let requests = json!([
        { "collection": "b", "ids": [1], "mapped_fields": ["field_4"] },
        { "collection": "b", "ids": [2], "mapped_fields": ["field_5"] },
    ]);
    let expected = json!({ "b": { "1": { "field_4": "data" }, "2": { "field_5": 42 } } });
    check(&mut with_models(), &requests, &json!({}), &expected);
    check(&mut with_models(), &json!(["b/1/field_4", "b/2/field_5"]), &json!({}), &expected);
}

#[test]
fn m11_a_model_may_come_twice() {
    let requests = json!([
        { "collection": "b", "ids": [1], "mapped_fields": ["field_4"] },
        { "collection": "b", "ids": [1, 1], "mapped_fields": ["field_5"] },
    ]);
    let expected = json!({ "b": { "1": { "field_4": "data", "field_5": 42 } } });
    check(&mut with_models(), &requests, &json!({}), &expected);
    check(&mut with_models(), &json!(["b/1/field_4", "b/1/field_5"]), &json!({}), &expected);
}

#[test]
fn m12_some_fields_and_the_whole_model_are_the_whole_model() {
    let requests = json!([
        { "collection": "b", "ids": [1], "mapped_fields": ["field_4"] },
        { "collection": "b", "ids": [1] },
    ]);
    check(&mut with_models(), &requests, &json!({}), &json!({ "b": { "1": model(&second(2), 1) } }));
}

#[test]
fn m13_an_absent_field_leaves_an_empty_model() {
    check(&mut with_models(), &json!(["b/1/nothing"]), &json!({}), &json!({ "b": { "1": {} } }));
    check(&mut with_models(), &json!(["b/9/nothing"]), &json!({}), &json!({ "b": {} }));
}

#[test]
fn m14_models_are_read_as_they_were() {
    check(&mut with_history(), &all(), &json!({ "position": 1 }), &everything());
}

fn changed(fields: &Value) -> Value {
    model(&with(fields, "common", &json!(0)), 2)
}

#[test]
fn m15_models_deleted_at_a_position_are_hidden() {
    let mut store = with_history();
    store.apply(&[delete("b/1")]);
    store.apply(&[restore("b/1")]);
    let expected = json!({ "a": { "1": changed(&first()) }, "b": { "2": changed(&second(3)) } });
    check(&mut store, &all(), &json!({ "position": 3 }), &expected);
}

#[test]
fn m16_only_models_deleted_at_a_position() {
    let mut store = with_history();
    store.apply(&[delete("b/1")]);
    store.apply(&[restore("b/1")]);
    let gone = deleted_model(&with(&second(2), "common", &json!(0)), 3);
    let only_deleted = json!({ "position": 3, "get_deleted_models": 2 });
    check(&mut store, &all(), &only_deleted, &json!({ "a": {}, "b": { "1": gone } }));
}

#[test]
fn m17_mapped_fields_at_a_position() {
    let members = json!({ "position": 1, "mapped_fields": ["common"] });
    check(&mut with_history(), &mapped_parts(), &members, &mapped());
}

#[test]
fn m18_an_absent_field_at_a_position() {
    let expected = json!({ "b": { "1": {} } });
    check(&mut with_history(), &json!(["b/1/nothing"]), &json!({ "position": 1 }), &expected);
}

#[test]
fn m19_a_position_at_which_nothing_is_left() {
    let mut store = with_deleted();
    check(&mut store, &all(), &json!({ "position": 2 }), &json!({ "a": {}, "b": {} }));
    let only_deleted = json!({ "position": 1, "get_deleted_models": 2 });
    check(&mut store, &all(), &only_deleted, &json!({ "a": {}, "b": {} }));
    store.apply(&[create("c/1", &json!({}))]);
    let later = json!([{ "collection": "c", "ids": [1] }]);
    check(&mut store, &later, &json!({ "position": 1 }), &json!({ "c": {} }));
}

#[test]
fn m20_ids_begin_at_1() {
    let mut store = with_models();
    for id in [-1, 0] {
        let reply =
            store.ask_reader("get_many", &json!({ "requests": [{ "collection": "a", "ids": [1, id] }] }));
        assert_refused(&reply, INVALID_FORMAT, &id.to_string());
    }
}

#[test]
fn m21_wrong_names_and_positions_are_refused() {
    let mut store = with_models();
    let part = |collection: &str| json!([{ "collection": collection, "ids": [1] }]);
    let bodies = [
        json!({ "requests": part("not valid") }),
        json!({ "requests": part("ab") }),
        json!({ "requests": part("a\n") }),
        json!({ "requests": [{ "collection": "a", "ids": [1], "mapped_fields": ["not valid"] }] }),
        json!({ "requests": part("a"), "mapped_fields": ["not valid"] }),
        json!({ "requests": ["a/1"] }),
        json!({ "requests": ["a/f"] }),
        json!({ "requests": ["a/1/f", "not valid"] }),
        json!({ "requests": part("a"), "position": 0 }),
    ];
    for body in bodies {
        assert_refused(&store.ask_reader("get_many", &body), INVALID_FORMAT, &body.to_string());
    }
}

#[test]
fn m22_malformed_bodies_are_refused() {
    let mut store = with_models();
    let part = json!({ "collection": "a", "ids": [1] });
    let right = json!({ "requests": [part] });
    let bodies = [
        json!(null),
        json!([part]),
        json!({}),
        json!({ "requests": [] }),
        json!({ "requests": null }),
        json!({ "requests": part }),
        json!({ "requests": "a/1/f" }),
        json!({ "requests": [part, "a/1/f"] }),
        json!({ "requests": ["a/1/f", part] }),
        json!({ "requests": [1] }),
        json!({ "requests": [{ "collection": "a" }] }),
        json!({ "requests": [{ "ids": [1] }] }),
        json!({ "requests": [{ "collection": 1, "ids": [1] }] }),
        json!({ "requests": [{ "collection": "a", "ids": 1 }] }),
        json!({ "requests": [{ "collection": "a", "ids": ["1"] }] }),
        json!({ "requests": [{ "collection": "a", "ids": [1.5] }] }),
        json!({ "requests": [{ "collection": "a", "ids": [1], "mapped_fields": "f" }] }),
        with(&right, "mapped_fields", &json!("f")),
        with(&right, "position", &json!("1")),
        with(&right, "get_deleted_models", &json!(0)),
        with(&right, "get_deleted_models", &json!(4)),
    ];
    for body in bodies {
        assert_refused(&store.ask_reader("get_many", &body), INVALID_REQUEST, &body.to_string());
    }
}

#[test]
fn m23_no_ids_are_an_empty_collection() {
    let requests = json!([{ "collection": "a", "ids": [] }, { "collection": "b", "ids": [2] }]);
    let expected = json!({ "a": {}, "b": { "2": model(&second(3), 1) } });
    check(&mut with_models(), &requests, &json!({}), &expected);
}
