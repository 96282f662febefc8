//! Group I: ids that are given out once. Knows nothing of what they are used for.

use crate::store::{INVALID_FORMAT, INVALID_REQUEST, Store, WRITER, assert_is, assert_refused, create, with};
use serde_json::{Value, json};

fn ids(collection: &str, amount: i64) -> Value {
    json!({ "collection": collection, "amount": amount })
}

#[track_caller]
fn check(store: &mut Store, collection: &str, amount: i64, expected: &[u64]) {
    let reply = store.ask_writer("reserve_ids", &ids(collection, amount));
    assert_is(&reply, 200, &json!({ "ids": expected }));
}

#[test]
fn i01_the_first_id_is_1() {
    check(&mut Store::start(), "a", 1, &[1]);
}

#[test]
fn i02_several_ids_are_consecutive() {
    check(&mut Store::start(), "a", 3, &[1, 2, 3]);
}

#[test]
fn i03_the_next_ids_follow_the_last() {
    let mut store = Store::start();
    check(&mut store, "a", 3, &[1, 2, 3]);
    check(&mut store, "a", 4, &[4, 5, 6, 7]);
}

#[test]
fn i04_wrong_shapes_are_refused() {
    let mut store = Store::start();
    let right = ids("a", 1);
    let wrong = [
        json!(["not_valid", null]),
        json!(null),
        json!("a"),
        json!({}),
        json!({ "collection": "a" }),
        json!({ "amount": 1 }),
        with(&right, "amount", &json!("1")),
        with(&right, "amount", &json!(null)),
        with(&right, "amount", &json!(1.5)),
        with(&right, "amount", &json!(true)),
        with(&right, "amount", &json!([1])),
        with(&right, "collection", &json!(1)),
        with(&right, "collection", &json!(null)),
        with(&right, "collection", &json!(["a"])),
    ];
    for body in wrong {
        assert_refused(&store.ask_writer("reserve_ids", &body), INVALID_REQUEST, &body.to_string());
    }
    check(&mut store, "a", 1, &[1]);
}

#[test]
fn i05_less_than_one_id_is_refused() {
    let mut store = Store::start();
    for amount in [-1, 0, i64::MIN] {
        let reply = store.ask_writer("reserve_ids", &ids("a", amount));
        assert_refused(&reply, INVALID_FORMAT, &amount.to_string());
    }
    check(&mut store, "a", 1, &[1]);
}

#[test]
fn i06_a_collection_is_a_name_of_at_most_32() {
    let mut store = Store::start();
    for name in ["", "ab", "A", "a1", "_a", "a_", "a/1", "not valid", "a\n", &"c".repeat(33)] {
        assert_refused(&store.ask_writer("reserve_ids", &ids(name, 1)), INVALID_FORMAT, &format!("{name:?}"));
    }
    check(&mut store, &"c".repeat(32), 1, &[1]);
}

#[test]
fn i07_what_is_not_json_is_refused() {
    let mut store = Store::start();
    let path = format!("{WRITER}/reserve_ids");
    let body = ids("a", 1).to_string();
    for (kind, body) in [(None, body.as_str()), (Some("text/plain"), &body), (Some("application/json"), "{")]
    {
        let reply = store.writer.send("POST", &path, kind, body);
        assert_refused(&reply, INVALID_REQUEST, &format!("{body} as {kind:?}"));
    }
    check(&mut store, "a", 1, &[1]);
}

#[test]
fn i08_a_created_id_is_not_given_out() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({}))]);
    check(&mut store, "a", 1, &[2]);
}

#[test]
fn i09_creating_a_reserved_id_leaves_the_counter_alone() {
    let mut store = Store::start();
    check(&mut store, "a", 5, &[1, 2, 3, 4, 5]);
    store.apply(&[create("a/1", &json!({}))]);
    check(&mut store, "a", 1, &[6]);
}

#[test]
fn i10_each_collection_counts_for_itself() {
    let mut store = Store::start();
    check(&mut store, "a", 2, &[1, 2]);
    check(&mut store, "a_b", 2, &[1, 2]);
    store.apply(&[create("a/7", &json!({}))]);
    check(&mut store, "a_b", 1, &[3]);
    check(&mut store, "a", 1, &[8]);
}

#[test]
fn i11_unknown_members_are_ignored() {
    let mut store = Store::start();
    let reply = store.ask_writer("reserve_ids", &with(&ids("a", 2), "x", &json!({})));
    assert_is(&reply, 200, &json!({ "ids": [1, 2] }));
}

#[test]
fn i12_ids_stay_reserved_after_a_crash() {
    let mut store = Store::start();
    check(&mut store, "a", 3, &[1, 2, 3]);
    store.apply(&[create("b/9", &json!({}))]);
    let mut store = store.crashed(&[]);
    check(&mut store, "a", 1, &[4]);
    check(&mut store, "b", 1, &[10]);
}

#[test]
fn i13_no_id_is_above_the_limit() {
    let mut store = Store::start();
    for amount in [2_147_483_648, 3_000_000_000, i64::MAX] {
        let reply = store.ask_writer("reserve_ids", &ids("a", amount));
        assert_refused(&reply, INVALID_FORMAT, &amount.to_string());
    }
    check(&mut store, "a", 1, &[1]);
    store.apply(&[create("a/2147483647", &json!({}))]);
    assert_refused(&store.ask_writer("reserve_ids", &ids("a", 1)), INVALID_FORMAT, "none is left");
}

#[test]
fn i14_reserving_takes_no_position() {
    let mut store = Store::start();
    check(&mut store, "a", 1, &[1]);
    store.is_empty();
}
