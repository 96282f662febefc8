//! The message bus: what a write says on the stream of a real Redis, and that nothing is lost while there is
//! none. Names begin with the group of the behaviour, B where there is no other.

use crate::{
    redis::{Redis, free_port},
    store::{
        INVALID_FORMAT, Store, assert_is, assert_refused, assert_silent, create, delete, exists, locked,
        locking, missing, request, restore, update, update_lists,
    },
};
use serde_json::{Value, json};

fn started() -> (Redis, Store) {
    let redis = Redis::start();
    let store = Store::start_with(&["--openslides-redis", &redis.address()]);
    (redis, store)
}

/// Makes a model, lets events happen to it and looks at what they said.
#[track_caller]
fn check(fields: &Value, events: &[Value], message: &Value) {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", fields)]);
    store.apply(events);
    assert_eq!(redis.messages(2)[1], *message, "{events:?}");
}

#[test]
fn w01_a_create_tells_its_fields_and_the_reserved_ones() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1, "empty": null, "g": [1, { "x": null }], "h": "1" }))]);
    let message = json!({
        "a/1/f": 1, "a/1/g": [1, { "x": null }], "a/1/h": "1", "a/1/meta_deleted": false, "a/1/meta_position": 1,
    });
    assert_eq!(redis.messages(1), [message]);
}

#[test]
fn w07_an_update_tells_values_and_removals() {
    let message = json!({ "a/1/f": null, "a/1/g": [true, null, { "x": 1 }], "a/1/meta_position": 2 });
    let event = update("a/1", &json!({ "f": null, "g": [true, null, { "x": 1 }] }));
    check(&json!({ "f": 1, "h": 1 }), &[event], &message);
}

#[test]
fn w09_the_removal_of_an_absent_field_is_told() {
    let message = json!({ "a/1/g": null, "a/1/meta_position": 2 });
    check(&json!({ "f": 1 }), &[update("a/1", &json!({ "g": null }))], &message);
}

#[test]
fn w11_a_value_that_stays_the_same_is_told() {
    let message = json!({ "a/1/f": 1, "a/1/meta_position": 2 });
    check(&json!({ "f": 1 }), &[update("a/1", &json!({ "f": 1 }))], &message);
}

#[test]
fn w12_list_updates_tell_the_whole_list() {
    let lists = |lists: Value| [update_lists("a/1", &lists)];
    let told = |list: Value| json!({ "a/1/l": list, "a/1/meta_position": 2 });
    check(&json!({}), &lists(json!({ "add": { "l": [1] } })), &told(json!([1])));
    check(&json!({ "l": [42] }), &lists(json!({ "add": { "l": [1] } })), &told(json!([42, 1])));
    check(&json!({ "l": [1] }), &lists(json!({ "add": { "l": [1] } })), &told(json!([1])));
    check(&json!({ "l": [1] }), &lists(json!({ "remove": { "l": [1] } })), &told(json!([])));
    check(&json!({ "l": [1] }), &lists(json!({ "remove": { "l": [9] } })), &told(json!([1])));
    check(
        &json!({ "l": [1] }),
        &lists(json!({ "add": { "l": [2] }, "remove": { "l": [1] } })),
        &told(json!([2])),
    );
}

#[test]
fn w13_a_removal_from_an_absent_list_tells_only_the_position() {
    let event = update_lists("a/1", &json!({ "remove": { "l": [1] } }));
    check(&json!({ "f": 1 }), &[event], &json!({ "a/1/meta_position": 2 }));
}

#[test]
fn w17_a_delete_tells_null_for_everything() {
    let message = json!({ "a/1/f": null, "a/1/g": null, "a/1/meta_deleted": null, "a/1/meta_position": 2 });
    check(&json!({ "f": 1, "g": 2 }), &[delete("a/1")], &message);
}

#[test]
fn w19_a_restore_tells_null_for_everything() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.apply(&[delete("a/1")]);
    store.apply(&[restore("a/1")]);
    let message =
        |position: u64| json!({ "a/1/f": null, "a/1/meta_deleted": null, "a/1/meta_position": position });
    assert_eq!(redis.messages(3)[1..], [message(2), message(3)]);
}

#[test]
fn w22_events_of_one_request_are_one_message() {
    let first = update("a/1", &json!({ "another": "value", "f": null }));
    let last = update("a/1", &json!({ "third": ["my", "list"] }));
    let message = json!({
        "a/1/f": null, "a/1/another": null, "a/1/third": ["my", "list"],
        "a/1/meta_deleted": null, "a/1/meta_position": 2,
    });
    check(&json!({ "f": 1 }), &[first, delete("a/1"), restore("a/1"), last], &message);
    let event = json!({ "type": "update", "fqid": "a/1", "fields": { "g": 2 }, "list_fields": { "add": { "l": [1] } } });
    check(&json!({ "f": 1 }), &[event], &json!({ "a/1/g": 2, "a/1/l": [1], "a/1/meta_position": 2 }));
}

#[test]
fn w23_a_create_with_what_follows_is_one_message() {
    let made = create("a/1", &json!({ "f": 1 }));
    let nulls = json!({ "a/1/f": null, "a/1/meta_deleted": null, "a/1/meta_position": 1 });
    let cases = [
        (vec![made.clone(), delete("a/1")], nulls.clone()),
        (vec![made.clone(), delete("a/1"), restore("a/1")], nulls),
        (
            vec![made, update("a/1", &json!({ "f": null, "g": 1 }))],
            json!({ "a/1/f": null, "a/1/g": 1, "a/1/meta_deleted": false, "a/1/meta_position": 1 }),
        ),
    ];
    for (events, message) in cases {
        let (redis, mut store) = started();
        store.apply(&events);
        assert_eq!(redis.messages(1), [message], "{events:?}");
    }
}

#[test]
fn w27_a_call_of_two_requests_is_one_message() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let first = request(&[update("a/1", &json!({ "f": null, "h": 1 })), create("b/1", &json!({ "x": 1 }))]);
    let second = request(&[update("a/1", &json!({ "g": 1, "h": 2 }))]);
    assert_eq!(store.written(&json!([first, second])), 3);
    let message = json!({
        "a/1/f": null, "a/1/g": 1, "a/1/h": 2, "a/1/meta_position": 3,
        "b/1/x": 1, "b/1/meta_deleted": false, "b/1/meta_position": 2,
    });
    assert_eq!(redis.messages(2)[1], message);
}

#[test]
fn w28_what_is_refused_or_empty_says_nothing() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    assert_is(&store.write(&request(&[create("a/1", &json!({}))])), 400, &exists("a/1"));
    assert_is(&store.write(&request(&[delete("a/2")])), 400, &missing("a/2"));
    let scalar = request(&[update_lists("a/1", &json!({ "add": { "f": [1] } }))]);
    assert_refused(&store.write(&scalar), INVALID_FORMAT, "a list update of a number");
    assert_silent(&store.write(&json!([])), 201);
    store.reserve("a", 1);
    assert_silent(&store.ask_writer("delete_history_information", &json!({})), 204);
    store.apply(&[create("b/1", &json!({}))]);
    assert_eq!(redis.messages(2)[1], json!({ "b/1/meta_deleted": false, "b/1/meta_position": 2 }));
}

#[test]
fn l24_a_call_with_a_broken_lock_says_nothing() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let first = request(&[update("a/1", &json!({ "f": null }))]);
    let second = locking(&[update("a/1", &json!({ "g": 1 }))], &json!({ "a/1/f": 1 }));
    assert_is(&store.write(&json!([first, second])), 400, &locked(&["a/1/f"]));
    store.apply(&[create("b/1", &json!({}))]);
    assert_eq!(redis.messages(2)[1], json!({ "b/1/meta_deleted": false, "b/1/meta_position": 2 }));
}

#[test]
fn v01_an_object_without_events_has_position_0_on_the_bus() {
    let (redis, mut store) = started();
    let mut write = |event: Value, status: u16| {
        assert_silent(&store.ask_writer("write_without_events", &json!([request(&[event])])), status);
    };
    write(create("action_worker/1", &json!({ "state": "running" })), 201);
    write(update("action_worker/1", &json!({ "state": "end" })), 201);
    write(delete("action_worker/1"), 200);
    write(create("action_worker/2", &json!({ "x": 1 })), 201);
    let message = |state: &str| json!({ "action_worker/1/state": state, "action_worker/1/meta_position": 0 });
    let last = json!({ "action_worker/2/x": 1, "action_worker/2/meta_position": 0 });
    assert_eq!(redis.messages(3), [message("running"), message("end"), last]);
}

/// Whoever hears of a change can read it.
#[test]
fn b05_the_content_is_there_before_the_message() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 0 }))]);
    for number in 1..=20_usize {
        store.apply(&[update("a/1", &json!({ "f": number }))]);
        let told = redis.messages(number + 1)[number]["a/1/f"].as_u64().unwrap();
        assert_eq!(store.get("a/1").json()["f"].as_u64(), Some(told));
    }
}

#[test]
fn b01_messages_come_in_the_order_of_positions() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({}))]);
    for number in 2..=50 {
        store.apply(&[update("a/1", &json!({ "f": number }))]);
    }
    let told = redis.messages(50);
    let positions: Vec<u64> =
        told.iter().map(|message| message["a/1/meta_position"].as_u64().unwrap()).collect();
    assert_eq!(positions, (1..=50).collect::<Vec<u64>>());
}

/// The messages of `a/1` being created and then changed.
fn create_and_update(positions: std::ops::RangeInclusive<u64>) -> Vec<Value> {
    let message = |position: u64| match position {
        1 => json!({ "a/1/f": 1, "a/1/meta_deleted": false, "a/1/meta_position": 1 }),
        _ => json!({ "a/1/f": position, "a/1/meta_position": position }),
    };
    positions.map(message).collect()
}

#[test]
fn b02_writes_succeed_without_redis_and_are_told_later() {
    let port = free_port();
    let mut store = Store::start_with(&["--openslides-redis", &format!("127.0.0.1:{port}")]);
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    assert_eq!(store.apply(&[update("a/1", &json!({ "f": 2 }))]), 2);
    store.has("a/1", &json!({ "f": 2 }), 2);
    let redis = Redis::start_at(port);
    assert_eq!(redis.messages(2), create_and_update(1..=2));
    store.apply(&[update("a/1", &json!({ "f": 3 }))]);
    assert_eq!(redis.messages(3), create_and_update(1..=3));
}

#[test]
fn b03_what_is_written_while_redis_is_away_is_told_when_it_is_back() {
    let (redis, mut store) = started();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    assert_eq!(redis.messages(1), create_and_update(1..=1));
    let port = redis.stop();
    for number in 2..=5 {
        assert_eq!(store.apply(&[update("a/1", &json!({ "f": number }))]), number);
    }
    let redis = Redis::start_at(port);
    assert_eq!(redis.messages(4), create_and_update(2..=5));
}

#[test]
fn b04_what_was_not_told_outlives_a_crash() {
    let port = free_port();
    let flags = ["--openslides-redis", &format!("127.0.0.1:{port}")];
    let mut store = Store::start_with(&flags);
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    let mut store = store.crashed(&flags);
    let redis = Redis::start_at(port);
    assert_eq!(redis.messages(2), create_and_update(1..=2));
    store.apply(&[update("a/1", &json!({ "f": 3 }))]);
    assert_eq!(redis.messages(3), create_and_update(1..=3));
}
