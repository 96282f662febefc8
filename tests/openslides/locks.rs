//! Group L: what a position lock protects, for each kind of key. Knows nothing of several writers at once.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, Store, assert_is, assert_refused, create, delete, equals, exists,
    locked, locking, request, restore, update, update_lists,
};
use serde_json::{Value, json};

/// `a/1` created with `f1` at position 1, given `f2` at position 2.
fn prepared() -> Store {
    prepared_with(&json!({ "f1": 1 }), &json!({ "f2": 2 }))
}

fn prepared_with(created: &Value, updated: &Value) -> Store {
    let mut store = Store::start();
    assert_eq!(store.apply(&[create("a/1", created)]), 1);
    assert_eq!(store.apply(&[update("a/1", updated)]), 2);
    store
}

fn at(position: i64, filter: &Value) -> Value {
    json!({ "position": position, "filter": filter })
}

/// That a write under these locks succeeds with the next position.
#[track_caller]
fn passes(store: &mut Store, locks: &Value) {
    let next = store.position().as_u64().unwrap_or(0) + 1;
    assert_eq!(store.written(&locking(&[create("a/2", &json!({}))], locks)), next, "{locks}");
    store.has("a/2", &json!({}), next);
}

/// That a write under these locks is refused with all these keys, and that nothing is stored.
#[track_caller]
fn breaks(store: &mut Store, locks: &Value, keys: &[&str]) {
    let position = store.position();
    assert_is(&store.write(&locking(&[create("a/2", &json!({}))], locks)), 400, &locked(keys));
    store.lacks("a/2");
    assert_eq!(store.position(), position);
}

/// Whether a lock holds, as often as one likes: what is written is of no concern to it.
#[track_caller]
fn holds(store: &mut Store, key: &str, lock: &Value) -> bool {
    let id = &store.reserve("probe", 1)["ids"][0];
    let fqid = format!("probe/{id}");
    let reply = store.write(&locking(&[create(&fqid, &json!({}))], &json!({ key: lock })));
    if reply.status != 201 {
        assert_is(&reply, 400, &locked(&[key]));
    }
    reply.status == 201
}

#[test]
fn l01_a_document_lock_at_its_position_passes() {
    passes(&mut prepared(), &json!({ "a/1": 2 }));
}

#[test]
fn l02_a_document_lock_before_its_position_is_broken() {
    breaks(&mut prepared(), &json!({ "a/1": 1 }), &["a/1"]);
}

#[test]
fn l03_a_lock_on_a_document_never_written_passes() {
    passes(&mut Store::start(), &json!({ "b/2": 1 }));
    passes(&mut prepared(), &json!({ "b/2": 1 }));
}

#[test]
fn l04_a_field_lock_is_not_broken_by_another_field() {
    passes(&mut prepared(), &json!({ "a/1/f1": 1 }));
}

#[test]
fn l05_a_field_lock_at_its_position_passes() {
    passes(&mut prepared(), &json!({ "a/1/f2": 2 }));
}

#[test]
fn l06_a_field_lock_before_its_position_is_broken() {
    breaks(&mut prepared(), &json!({ "a/1/f2": 1 }), &["a/1/f2"]);
}

#[test]
fn l07_a_lock_on_a_field_never_written_passes() {
    passes(&mut Store::start(), &json!({ "b/2/f1": 1 }));
    passes(&mut prepared(), &json!({ "a/1/f3": 1 }));
}

#[test]
fn l08_a_collection_field_lock_is_not_broken_by_another_field() {
    passes(&mut prepared(), &json!({ "a/f1": 1 }));
}

#[test]
fn l09_a_collection_field_lock_at_its_position_passes() {
    passes(&mut prepared(), &json!({ "a/f2": 2 }));
}

#[test]
fn l10_a_collection_field_lock_before_its_position_is_broken() {
    breaks(&mut prepared(), &json!({ "a/f2": 1 }), &["a/f2"]);
}

#[test]
fn l11_a_lock_on_a_collection_field_never_written_passes() {
    passes(&mut Store::start(), &json!({ "b/f1": 1 }));
    passes(&mut prepared(), &json!({ "a/f3": 1 }));
}

#[test]
fn l12_a_filtered_lock_passes_if_its_field_is_untouched() {
    passes(&mut prepared(), &json!({ "a/f1": at(1, &equals("f1", &json!(1))) }));
}

#[test]
fn l13_a_filtered_lock_is_broken_by_a_change_inside_the_filter() {
    breaks(&mut prepared(), &json!({ "a/f2": at(1, &equals("f1", &json!(1))) }), &["a/f2"]);
}

#[test]
fn l14_a_filtered_lock_passes_if_the_changed_document_is_outside() {
    passes(&mut prepared(), &json!({ "a/f2": at(1, &equals("f1", &json!(2))) }));
}

#[test]
fn l15_a_filtered_and_a_plain_lock_pass_together() {
    passes(&mut prepared(), &json!({ "a/f1": at(1, &equals("f1", &json!(1))), "a/f2": 2 }));
}

#[test]
fn l16_a_stale_filtered_lock_beside_a_fresh_plain_one_is_broken() {
    let mut store = prepared_with(&json!({ "f1": 1 }), &json!({ "f1": 2, "f2": 2 }));
    breaks(&mut store, &json!({ "a/f1": at(1, &equals("f1", &json!(2))), "a/f2": 2 }), &["a/f1"]);
}

#[test]
fn l17_a_stale_plain_lock_beside_a_fresh_filtered_one_is_broken() {
    let mut store = prepared_with(&json!({ "f1": 1 }), &json!({ "f1": 2, "f2": 2 }));
    breaks(&mut store, &json!({ "a/f1": at(2, &equals("f1", &json!(2))), "a/f2": 1 }), &["a/f2"]);
}

#[test]
fn l18_a_collection_is_not_its_prefix() {
    let mut store = Store::start();
    store.apply(&[create("a_suf/1", &json!({ "f1": 1 }))]);
    store.apply(&[update("a_suf/1", &json!({ "f1": 2, "f2": 2 }))]);
    passes(&mut store, &json!({ "a/f1": at(1, &equals("f1", &json!(2))), "a/f2": 1 }));
}

/// The same for numbers: `a/1` is not a prefix of `a/11`, nor is `f1` of `f11`.
#[test]
fn l18_a_document_and_a_field_are_not_prefixes() {
    let mut store = prepared();
    store.apply(&[create("a/11", &json!({ "f1": 1 })), update("a/1", &json!({ "f11": 1 }))]);
    passes(&mut store, &json!({ "a/1/f1": 1, "a/1/f2": 2 }));
    assert!(!holds(&mut store, "a/1/f11", &json!(2)));
}

#[test]
fn l19_an_and_filter_passes_if_its_field_is_untouched() {
    let mut store = prepared_with(&json!({ "f1": 1, "f3": false }), &json!({ "f2": 2 }));
    let both = json!({ "and_filter": [equals("f1", &json!(1)), equals("f3", &json!(false))] });
    passes(&mut store, &json!({ "a/f1": at(1, &both) }));
}

#[test]
fn l20_an_or_filter_at_the_fresh_position_passes() {
    let mut store = prepared_with(&json!({ "f1": 1, "f3": false }), &json!({ "f2": 2 }));
    let either = json!({ "or_filter": [equals("f1", &json!(1)), equals("f3", &json!(false))] });
    assert!(!holds(&mut store, "a/f2", &at(1, &either)));
    passes(&mut store, &json!({ "a/f2": at(2, &either) }));
}

#[test]
fn l21_an_empty_array_of_locks_is_refused() {
    let mut store = prepared();
    let reply = store.write(&locking(&[create("a/2", &json!({}))], &json!({ "a/f1": [] })));
    assert_refused(&reply, INVALID_REQUEST, "an empty array");
    store.lacks("a/2");
}

#[test]
fn l22_several_locks_on_one_field_pass_if_each_does() {
    let locks = [at(1, &equals("f1", &json!(1))), at(2, &equals("f2", &json!(2)))];
    passes(&mut prepared(), &json!({ "a/f1": locks }));
}

/// The second filter was entered at position 2, by a field that is not the lock's.
#[test]
fn l22_a_filter_entered_by_its_own_field_breaks_one_of_several_locks() {
    let locks = [at(1, &equals("f1", &json!(1))), at(1, &equals("f2", &json!(2)))];
    breaks(&mut prepared(), &json!({ "a/f1": locks }), &["a/f1"]);
}

#[test]
fn l23_one_broken_lock_of_several_is_enough() {
    let locks = [at(1, &equals("f1", &json!(1))), at(2, &equals("f2", &json!(2)))];
    breaks(&mut prepared(), &json!({ "a/f2": locks }), &["a/f2"]);
}

#[test]
fn l23_two_broken_locks_on_one_field_are_reported_once() {
    let locks = [at(1, &equals("f1", &json!(1))), at(1, &equals("f2", &json!(2)))];
    breaks(&mut prepared(), &json!({ "a/f2": locks }), &["a/f2"]);
}

#[test]
fn l24_a_request_sees_what_an_earlier_one_of_its_call_changed() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let first = request(&[update("a/1", &json!({ "f": null }))]);
    let second = locking(&[update("a/1", &json!({ "f2": 1 }))], &json!({ "a/1/f": 1 }));
    assert_is(&store.write(&json!([first, second])), 400, &locked(&["a/1/f"]));
    store.has("a/1", &json!({ "f": 1 }), 1);
    assert_eq!(store.apply(&[update("a/1", &json!({ "f": 2 }))]), 2);
}

/// There are no lock tables that could be cleared: positions outlive the process.
#[test]
fn l25_locks_are_judged_the_same_after_a_restart() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    let mut store = store.restarted();
    for key in ["a/1", "a/1/f", "a/f"] {
        assert!(!holds(&mut store, key, &json!(1)), "{key}");
        assert!(holds(&mut store, key, &json!(2)), "{key}");
    }
    let position = store.apply(&[update("a/1", &json!({ "f": 3 }))]);
    for key in ["a/1", "a/1/f", "a/f"] {
        assert!(!holds(&mut store, key, &json!(2)), "{key}");
        assert!(holds(&mut store, key, &json!(position)), "{key}");
    }
}

#[test]
fn l26_all_broken_keys_are_reported_sorted() {
    let locks = json!({ "a/f2": 1, "a/1/f2": 1, "a/1": 1, "a/1/f1": 1, "a/f1": 1, "b/1": 1 });
    breaks(&mut prepared(), &locks, &["a/1", "a/1/f2", "a/f2"]);
}

#[test]
fn l27_each_key_is_judged_by_its_own_position() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1, "g": 1 }))]);
    store.apply(&[update("a/1", &json!({ "g": 2 }))]);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    breaks(&mut store, &json!({ "a/1/f": 3, "a/1/g": 1 }), &["a/1/g"]);
    passes(&mut store, &json!({ "a/1/f": 3, "a/1/g": 2 }));
}

#[test]
fn l28_a_lock_beyond_the_last_position_passes() {
    passes(&mut prepared(), &json!({ "a/1": 1000, "a/1/f2": 1000, "a/f2": 1000 }));
}

#[test]
fn l29_a_lock_object_without_a_filter_is_a_plain_lock() {
    let mut store = prepared();
    breaks(&mut store, &json!({ "a/f2": { "position": 1 } }), &["a/f2"]);
    passes(&mut store, &json!({ "a/f2": { "position": 2 }, "a/f1": [{ "position": 1 }] }));
}

/// `a/1` has the fields `f` and `l`, and not `g`.
struct Touch {
    what: &'static str,
    event: Value,
    touched: &'static [&'static str],
}

fn touches() -> Vec<Touch> {
    let lists = |lists: Value| update_lists("a/1", &lists);
    let case = |what, event, touched| Touch { what, event, touched };
    vec![
        case("the same value", update("a/1", &json!({ "f": 1 })), &["f"]),
        case("another value", update("a/1", &json!({ "f": 2 })), &["f"]),
        case("a new field", update("a/1", &json!({ "g": 2 })), &["g"]),
        case("a field removed", update("a/1", &json!({ "f": null })), &["f"]),
        case("an absent field removed", update("a/1", &json!({ "g": null })), &["g"]),
        case("a value and a removal", update("a/1", &json!({ "f": 5, "g": null })), &["f", "g"]),
        case("added to a list", lists(json!({ "add": { "l": [2] } })), &["l"]),
        case("added what is there", lists(json!({ "add": { "l": [1] } })), &["l"]),
        case("added to an absent list", lists(json!({ "add": { "g": [1] } })), &["g"]),
        case("removed from a list", lists(json!({ "remove": { "l": [1] } })), &["l"]),
        case("removed what is not there", lists(json!({ "remove": { "l": [9] } })), &["l"]),
        case("removed from an absent list", lists(json!({ "remove": { "g": [1] } })), &[]),
        case("deleted", delete("a/1"), &["f", "l", "meta_deleted", "meta_position"]),
    ]
}

const FIELDS: [&str; 5] = ["f", "l", "g", "meta_deleted", "meta_position"];

/// That a change after a position broke exactly the locks on what it touched.
#[track_caller]
fn check_touched(store: &mut Store, what: &str, position: u64, touched: &[&str]) {
    for field in FIELDS {
        let (own, shared) = (format!("a/1/{field}"), format!("a/{field}"));
        let object = json!({ "position": position });
        for (key, lock) in [(&own, &json!(position)), (&shared, &json!(position)), (&shared, &object)] {
            assert_eq!(holds(store, key, lock), !touched.contains(&field), "{what}: {key} {lock}");
        }
    }
    assert!(!holds(store, "a/1", &json!(position)), "{what}: every event breaks the lock on the document");
}

#[test]
fn l30_an_event_breaks_the_locks_on_what_it_touches() {
    for Touch { what, event, touched } in touches() {
        let mut store = Store::start();
        let position = store.apply(&[create("a/1", &json!({ "f": 1, "l": [1] }))]);
        store.apply(&[event]);
        check_touched(&mut store, what, position, touched);
    }
}

#[test]
fn l31_a_restore_touches_every_field_there_is() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "f": 1, "l": [1] }))]);
    let position = store.apply(&[delete("a/1")]);
    store.apply(&[restore("a/1")]);
    check_touched(&mut store, "restored", position, &["f", "l", "meta_deleted", "meta_position"]);
}

#[test]
fn l32_a_create_touches_its_fields_and_membership() {
    let mut store = Store::start();
    let position = store.apply(&[create("b/1", &json!({}))]);
    store.apply(&[create("a/1", &json!({ "f": 1, "g": null }))]);
    check_touched(&mut store, "created", position, &["f", "meta_deleted"]);
}

#[test]
fn l33_membership_is_locked_by_the_deleted_flag() {
    let mut store = Store::start();
    let mut position = store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    for event in [create("a/3", &json!({})), delete("a/1"), restore("a/1")] {
        let before = position;
        position = store.apply(std::slice::from_ref(&event));
        assert!(!holds(&mut store, "a/meta_deleted", &json!(before)), "{event}");
        assert!(holds(&mut store, "a/meta_deleted", &json!(position)), "{event}");
    }
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    assert!(holds(&mut store, "a/meta_deleted", &json!(position)));
}

#[test]
fn l34_a_request_may_change_what_it_locks_and_its_position_is_then_stale() {
    let mut store = Store::start();
    let old = store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let locks = json!({ "a/1": old, "a/1/f": old, "a/f": old });
    let new = store.written(&locking(&[update("a/1", &json!({ "f": 2 }))], &locks));
    breaks(&mut store, &locks, &["a/1", "a/1/f", "a/f"]);
    passes(&mut store, &json!({ "a/1": new, "a/1/f": new, "a/f": new }));
}

/// What happened to `a/1 {f:1, g:1}`, and whether that breaks the lock `a/h` with the filter `f = 1`.
#[test]
fn l35_entering_staying_in_and_leaving_a_filter_break_its_lock() {
    let inside = equals("f", &json!(1));
    let cases = [
        ("left by its field", update("a/1", &json!({ "f": 2 })), false),
        ("left by a removal", update("a/1", &json!({ "f": null })), false),
        ("entered by its field", update("a/2", &json!({ "f": 1 })), false),
        ("entered by a create", create("a/3", &json!({ "f": 1 })), false),
        ("touched by its field inside", update("a/1", &json!({ "f": 1 })), false),
        ("touched by the lock's field inside", update("a/1", &json!({ "h": 1 })), false),
        ("touched by another field inside", update("a/1", &json!({ "g": 1 })), true),
        ("touched by the lock's field outside", update("a/2", &json!({ "h": 1 })), true),
        ("touched by its field outside", update("a/2", &json!({ "f": 3 })), true),
        ("created outside", create("a/3", &json!({ "f": 4, "h": 1 })), true),
    ];
    for (what, event, held) in cases {
        let mut store = Store::start();
        let models = [create("a/1", &json!({ "f": 1, "g": 1 })), create("a/2", &json!({ "f": 2 }))];
        let position = store.apply(&models);
        store.apply(&[event]);
        assert_eq!(
            holds(&mut store, "a/h", &json!({ "position": position, "filter": inside })),
            held,
            "{what}"
        );
    }
}

#[test]
fn l36_leaving_and_coming_back_breaks_a_filtered_lock() {
    let mut store = Store::start();
    let position = store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    store.apply(&[update("a/1", &json!({ "f": 2 }))]);
    store.apply(&[update("a/1", &json!({ "f": 1 }))]);
    let passed_by = json!({ "position": position, "filter": equals("f", &json!(2)) });
    assert!(!holds(&mut store, "a/f", &passed_by), "in and out again");
    let came_back = json!({ "position": position, "filter": equals("f", &json!(1)) });
    assert!(!holds(&mut store, "a/f", &came_back), "out and in again");
}

#[test]
fn l37_a_delete_leaves_a_filter_for_live_documents() {
    let mut store = Store::start();
    let position = store.apply(&[create("a/1", &json!({ "f": 1 })), create("a/2", &json!({ "f": 2 }))]);
    let live = equals("meta_deleted", &json!(false));
    let filter = json!({ "and_filter": [equals("f", &json!(1)), live] });
    store.apply(&[delete("a/2")]);
    assert!(holds(&mut store, "a/f", &json!({ "position": position, "filter": filter })), "another one");
    store.apply(&[delete("a/1")]);
    assert!(!holds(&mut store, "a/f", &json!({ "position": position, "filter": filter })));
}

#[test]
fn l38_a_broken_lock_is_reported_before_an_existing_document() {
    let mut store = prepared();
    let again = [create("a/1", &json!({}))];
    assert_is(&store.write(&locking(&again, &json!({ "a/1": 1 }))), 400, &locked(&["a/1"]));
    assert_is(&store.write(&locking(&again, &json!({ "a/1": 2 }))), 400, &exists("a/1"));
}

#[test]
fn l39_a_wrong_format_is_reported_before_a_broken_lock() {
    let mut store = prepared();
    let stale = locking(&[create("not valid", &json!({}))], &json!({ "a/1": 1 }));
    assert_refused(&store.write(&stale), INVALID_FORMAT, "in the same request");
    let first = locking(&[create("a/2", &json!({}))], &json!({ "a/1": 1 }));
    let second = request(&[create("not valid", &json!({}))]);
    assert_refused(&store.write(&json!([first, second])), INVALID_FORMAT, "in a later request");
}

#[test]
fn l40_one_point_nought_is_one() {
    let mut store = prepared();
    for key in ["a/1", "a/1/f2", "a/f2"] {
        assert!(!holds(&mut store, key, &json!(1.0)), "{key}");
        assert!(holds(&mut store, key, &json!(2.0)), "{key}");
    }
    assert!(!holds(&mut store, "a/f2", &json!({ "position": 1.0 })));
}

#[test]
fn l41_lock_values_that_are_none() {
    let filter = equals("f1", &json!(1));
    let cases = [
        ("a/f1", json!({ "position": 0 }), INVALID_FORMAT),
        ("a/f1", json!({ "position": -1, "filter": filter }), INVALID_FORMAT),
        ("a/f1", json!([{ "position": 2 }, { "position": 0 }]), INVALID_FORMAT),
        ("a/f1", json!(0), INVALID_FORMAT),
        ("a/f1", json!(-1), INVALID_FORMAT),
        ("a/1/f1", json!(0), INVALID_FORMAT),
        ("a/1", json!({ "position": 2 }), INVALID_FORMAT),
        ("a/1/f1", json!({ "position": 2 }), INVALID_FORMAT),
        ("a/1", json!([{ "position": 2 }]), INVALID_FORMAT),
        ("a/f1", json!({ "position": 2, "filter": equals("not valid", &json!(1)) }), INVALID_FORMAT),
        ("a/1", json!(null), INVALID_REQUEST),
        ("a/1/f1", json!(null), INVALID_REQUEST),
        ("a/f1", json!(null), INVALID_REQUEST),
        ("a/f1", json!([2]), INVALID_REQUEST),
        ("a/f1", json!([[{ "position": 2 }]]), INVALID_REQUEST),
        ("a/f1", json!({}), INVALID_REQUEST),
        ("a/f1", json!({ "filter": filter }), INVALID_REQUEST),
        ("a/f1", json!({ "position": "2" }), INVALID_REQUEST),
        ("a/f1", json!({ "position": 2, "filter": {} }), INVALID_REQUEST),
        ("a/f1", json!({ "position": 2, "filter": { "and_filter": [] } }), INVALID_REQUEST),
        ("a/1", json!("2"), INVALID_REQUEST),
        ("a/1", json!(true), INVALID_REQUEST),
        ("a/1", json!(1.5), INVALID_REQUEST),
    ];
    let mut store = prepared();
    for (key, lock, kind) in cases {
        let reply = store.write(&locking(&[create("a/2", &json!({}))], &json!({ key: lock })));
        assert_refused(&reply, kind, &format!("{key}: {lock}"));
    }
    store.lacks("a/2");
}

#[test]
fn l42_keys_that_are_none() {
    let mut store = prepared();
    let keys =
        ["", "a", "/", "a/", "a/0", "a/01", "a/1/", "a/1/F", "a/1/f/g", "ab/1", "A/1", "a/1\n", "a/f\n"];
    for key in keys.into_iter().chain(["a/1/f\n", "a/-1", "a/$f", "a/1/f_$_$", "a_/1", " a/1"]) {
        let reply = store.write(&locking(&[create("a/2", &json!({}))], &json!({ key: 2 })));
        assert_refused(&reply, INVALID_FORMAT, &format!("{key:?}"));
    }
    store.lacks("a/2");
}

#[test]
fn l43_a_dollar_is_an_ordinary_character() {
    let mut store = Store::start();
    let position = store.apply(&[create("a/1", &json!({ "f_$_s": 1, "f_$1_s": 1 }))]);
    store.apply(&[update("a/1", &json!({ "f_$1_s": 2 }))]);
    assert!(holds(&mut store, "a/1/f_$_s", &json!(position)));
    assert!(!holds(&mut store, "a/1/f_$1_s", &json!(position)));
    assert!(!holds(&mut store, "a/f_$1_s", &json!(position)));
    store.has("a/1", &json!({ "f_$_s": 1, "f_$1_s": 2 }), 2);
}

#[test]
fn l44_a_deleted_document_keeps_its_locks() {
    let mut store = Store::start();
    let position = store.apply(&[create("a/1", &json!({ "f": 1 }))]);
    let gone = store.apply(&[delete("a/1")]);
    assert!(!holds(&mut store, "a/1", &json!(position)));
    assert!(holds(&mut store, "a/1", &json!(gone)));
    let back = store.apply(&[restore("a/1")]);
    assert!(!holds(&mut store, "a/1", &json!(gone)));
    store.has("a/1", &json!({ "f": 1 }), back);
}
