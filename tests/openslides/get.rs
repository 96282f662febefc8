//! Group G: reading one model, now or at an earlier position.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, READER, Store, assert_is, assert_refused, create, delete, deleted_model,
    missing, model, not_deleted, object, restore, update, with,
};
use serde_json::{Value, json};

fn fields() -> Value {
    json!({ "field_1": "data", "field_2": 42, "field_3": [1, 2, 3] })
}

/// `a/1` with [`fields`] at position 1.
fn with_model() -> Store {
    let mut store = Store::start();
    store.apply(&[create("a/1", &fields())]);
    store
}

/// The same, and `field_1` changed at position 2.
fn with_history() -> Store {
    let mut store = with_model();
    store.apply(&[update("a/1", &json!({ "field_1": "other" }))]);
    store
}

/// What `get` says with these members besides the name of `a/1`.
#[track_caller]
fn check(store: &mut Store, members: &Value, status: u16, expected: &Value) {
    assert_is(&store.ask_reader("get", &with(members, "fqid", &json!("a/1"))), status, expected);
}

#[test]
fn g01_a_model_is_read_whole() {
    let mut store = with_model();
    check(&mut store, &json!({}), 200, &model(&fields(), 1));
    check(&mut store, &json!({ "mapped_fields": [] }), 200, &model(&fields(), 1));
}

#[test]
fn g02_a_missing_model_is_refused() {
    check(&mut Store::start(), &json!({}), 400, &missing("a/1"));
    let mut store = with_model();
    store.lacks("a/2");
    store.lacks("b/1");
}

#[test]
fn g03_the_switch_for_live_models() {
    let mut store = with_model();
    check(&mut store, &json!({ "get_deleted_models": 1 }), 200, &model(&fields(), 1));
    check(&mut store, &json!({ "get_deleted_models": 2 }), 400, &not_deleted("a/1"));
    check(&mut store, &json!({ "get_deleted_models": 3 }), 200, &model(&fields(), 1));
}

#[test]
fn g04_the_switch_for_deleted_models() {
    let mut store = with_model();
    store.apply(&[delete("a/1")]);
    check(&mut store, &json!({}), 400, &missing("a/1"));
    check(&mut store, &json!({ "get_deleted_models": 1 }), 400, &missing("a/1"));
    check(&mut store, &json!({ "get_deleted_models": 2 }), 200, &deleted_model(&fields(), 2));
    check(&mut store, &json!({ "get_deleted_models": 3 }), 200, &deleted_model(&fields(), 2));
}

#[test]
fn g05_the_switch_for_missing_models() {
    let mut store = Store::start();
    check(&mut store, &json!({ "get_deleted_models": 1 }), 400, &missing("a/1"));
    check(&mut store, &json!({ "get_deleted_models": 2 }), 400, &not_deleted("a/1"));
    check(&mut store, &json!({ "get_deleted_models": 3 }), 400, &missing("a/1"));
}

#[test]
fn g06_only_mapped_fields_are_read() {
    let mut store = with_model();
    let some = json!({ "mapped_fields": ["field_2", "field_3", "field_2"] });
    check(&mut store, &some, 200, &json!({ "field_2": 42, "field_3": [1, 2, 3] }));
    let reserved = json!({ "mapped_fields": ["meta_position", "meta_deleted"] });
    check(&mut store, &reserved, 200, &json!({ "meta_position": 1, "meta_deleted": false }));
}

#[test]
fn g07_two_thousand_mapped_fields() {
    let mut store = Store::start();
    let names: Vec<String> = (0..2_000).map(|number| format!("field_{number}")).collect();
    let some = object(names.iter().step_by(2).map(|name| (name.clone(), json!(name))));
    store.apply(&[create("a/1", &with(&some, "other", &json!(1)))]);
    check(&mut store, &json!({ "mapped_fields": names }), 200, &some);
    check(&mut store, &json!({ "mapped_fields": names, "position": 1 }), 200, &some);
}

#[test]
fn g08_an_absent_mapped_field_is_left_out() {
    let mut store = with_model();
    check(&mut store, &json!({ "mapped_fields": ["nothing"] }), 200, &json!({}));
    check(&mut store, &json!({ "mapped_fields": ["nothing", "field_2"] }), 200, &json!({ "field_2": 42 }));
}

#[test]
fn g09_a_model_is_read_as_it_was() {
    check(&mut with_history(), &json!({ "position": 1 }), 200, &model(&fields(), 1));
}

#[test]
fn g10_the_current_position_can_be_asked_for() {
    let mut store = with_history();
    let now = model(&with(&fields(), "field_1", &json!("other")), 2);
    check(&mut store, &json!({ "position": 2 }), 200, &now);
    store.apply(&[create("b/1", &json!({}))]);
    check(&mut store, &json!({ "position": 3 }), 200, &now);
}

#[test]
fn g11_a_model_deleted_at_a_position() {
    let mut store = with_history();
    store.apply(&[delete("a/1")]);
    store.apply(&[restore("a/1")]);
    let then = with(&fields(), "field_1", &json!("other"));
    check(&mut store, &json!({ "position": 3 }), 400, &missing("a/1"));
    check(&mut store, &json!({ "position": 3, "get_deleted_models": 2 }), 200, &deleted_model(&then, 3));
    check(&mut store, &json!({ "position": 3, "get_deleted_models": 3 }), 200, &deleted_model(&then, 3));
    check(&mut store, &json!({ "position": 2 }), 200, &model(&then, 2));
    check(&mut store, &json!({ "position": 4 }), 200, &model(&then, 4));
}

#[test]
fn g12_a_model_not_deleted_at_a_position() {
    let mut store = with_history();
    let only_deleted = json!({ "position": 1, "get_deleted_models": 2 });
    check(&mut store, &only_deleted, 400, &not_deleted("a/1"));
    store.apply(&[delete("a/1")]);
    check(&mut store, &only_deleted, 400, &not_deleted("a/1"));
}

#[test]
fn g13_mapped_fields_at_a_position() {
    let mut store = with_history();
    let asked = json!({ "position": 1, "mapped_fields": ["field_1", "nothing"] });
    check(&mut store, &asked, 200, &json!({ "field_1": "data" }));
    check(&mut store, &json!({ "position": 1, "mapped_fields": ["nothing"] }), 200, &json!({}));
}

#[test]
fn g14_events_are_replayed_in_their_order() {
    let mut store = Store::start();
    let first = [create("a/1", &fields()), update("a/1", &json!({ "field_1": "x" }))];
    store.apply(&[&first[..], &[update("a/1", &json!({ "field_1": "other", "field_2": null }))]].concat());
    store.apply(&[delete("a/1"), restore("a/1")]);
    let then = json!({ "field_1": "other", "field_3": [1, 2, 3] });
    check(&mut store, &json!({ "position": 1 }), 200, &model(&then, 1));
    check(&mut store, &json!({ "position": 2 }), 200, &model(&then, 2));
}

#[test]
fn g15_a_wrong_fqid_is_refused() {
    let mut store = Store::start();
    for fqid in ["not valid", "", "a", "a/0", "ab/1", "a/1/f", "a/1\n"] {
        assert_refused(&store.get(fqid), INVALID_FORMAT, &format!("{fqid:?}"));
    }
}

#[test]
fn g16_a_wrong_mapped_field_is_refused() {
    let mut store = with_model();
    for field in ["not valid", "", "F", "_f", "f\n"] {
        let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "mapped_fields": ["field_1", field] }));
        assert_refused(&reply, INVALID_FORMAT, &format!("{field:?}"));
    }
}

#[test]
fn g17_positions_begin_at_1() {
    let mut store = with_model();
    for position in [0, -1] {
        let reply = store.ask_reader("get", &json!({ "fqid": "a/1", "position": position }));
        assert_refused(&reply, INVALID_FORMAT, &position.to_string());
    }
}

#[test]
fn g18_a_null_body_is_refused() {
    assert_refused(&with_model().ask_reader("get", &json!(null)), INVALID_REQUEST, "null");
}

#[test]
fn g19_seventeen_malformed_bodies_are_refused() {
    let fqid = json!({ "fqid": "a/1" });
    let bodies = [
        json!([]),
        json!([fqid]),
        json!("a/1"),
        json!(1),
        json!({}),
        json!({ "collection": "a", "id": 1 }),
        json!({ "fqid": null }),
        json!({ "fqid": ["a/1"] }),
        with(&fqid, "mapped_fields", &json!("field_1")),
        with(&fqid, "mapped_fields", &json!({ "field_1": 1 })),
        with(&fqid, "mapped_fields", &json!([1])),
        with(&fqid, "mapped_fields", &json!([["field_1"]])),
        with(&fqid, "position", &json!("1")),
        with(&fqid, "position", &json!(1.5)),
        with(&fqid, "get_deleted_models", &json!("1")),
        with(&fqid, "get_deleted_models", &json!(0)),
        with(&fqid, "get_deleted_models", &json!(4)),
    ];
    let mut store = with_model();
    for body in bodies {
        assert_refused(&store.ask_reader("get", &body), INVALID_REQUEST, &body.to_string());
    }
}

#[test]
fn g20_null_and_true_are_no_numbers_or_lists() {
    let mut store = with_model();
    for member in ["mapped_fields", "position", "get_deleted_models"] {
        for value in [json!(null), json!(true), json!({})] {
            let body = json!({ "fqid": "a/1", member: value });
            assert_refused(&store.ask_reader("get", &body), INVALID_REQUEST, &body.to_string());
        }
    }
}

#[test]
fn g21_a_position_beyond_the_end_is_now() {
    let now = model(&with(&fields(), "field_1", &json!("other")), 2);
    check(&mut with_history(), &json!({ "position": 1_000_000 }), 200, &now);
}

#[test]
fn g22_before_its_creation_a_model_is_missing() {
    let mut store = Store::start();
    store.apply(&[create("b/1", &json!({}))]);
    store.apply(&[create("a/1", &fields())]);
    check(&mut store, &json!({ "position": 1 }), 400, &missing("a/1"));
    check(&mut store, &json!({ "position": 1, "get_deleted_models": 3 }), 400, &missing("a/1"));
    check(&mut store, &json!({ "position": 1, "get_deleted_models": 2 }), 400, &not_deleted("a/1"));
}

#[test]
fn g23_unknown_members_are_ignored() {
    check(&mut with_model(), &json!({ "x": 1 }), 200, &model(&fields(), 1));
}

#[test]
fn g24_malformed_json_is_refused() {
    let mut store = with_model();
    let reply = store.reader.send("POST", &format!("{READER}/get"), Some("application/json"), "{\"fqid\": ");
    assert_refused(&reply, INVALID_REQUEST, "half a body");
    store.has("a/1", &fields(), 1);
}
