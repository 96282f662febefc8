//! Group C: counting, asking whether there is any, smallest and largest values.

use crate::store::{
    INVALID_FORMAT, INVALID_REQUEST, Store, assert_is, assert_refused, compare, create, delete, equals,
    update, with,
};
use serde_json::{Value, json};

/// Three models of `a` and one of `b`, at positions 1 to 4.
fn with_models() -> Store {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "text": "data", "number": 42 }))]);
    store.apply(&[create("a/2", &json!({ "text": "data", "number": 9 }))]);
    store.apply(&[create("a/3", &json!({ "text": "test" }))]);
    store.apply(&[create("b/1", &json!({ "text": "data", "number": 1 }))]);
    store
}

fn data() -> Value {
    equals("text", &json!("data"))
}

fn nowhere() -> Value {
    equals("text", &json!("nowhere"))
}

/// The whole answer at position 4.
#[track_caller]
fn check(store: &mut Store, route: &str, filter: &Value, value: &Value) {
    let body = json!({ "collection": "a", "filter": filter });
    assert_is(&store.ask_reader(route, &body), 200, &json!({ route: value, "position": 4 }));
}

/// The same for a field, with and without the type.
#[track_caller]
fn check_field(store: &mut Store, route: &str, filter: &Value, field: &str, value: &Value) {
    let body = json!({ "collection": "a", "filter": filter, "field": field });
    for body in [with(&body, "type", &json!("int")), body] {
        assert_is(&store.ask_reader(route, &body), 200, &json!({ route: value, "position": 4 }));
    }
}

#[test]
fn c01_count_of_hits() {
    let mut store = with_models();
    check(&mut store, "count", &data(), &json!(2));
    check(&mut store, "count", &compare("text", "!=", &json!("")), &json!(3));
}

#[test]
fn c02_count_of_nothing() {
    check(&mut with_models(), "count", &nowhere(), &json!(0));
}

#[test]
fn c03_existence_of_hits() {
    check(&mut with_models(), "exists", &data(), &json!(true));
}

#[test]
fn c04_existence_of_nothing() {
    check(&mut with_models(), "exists", &nowhere(), &json!(false));
}

#[test]
fn c05_the_smallest_with_and_without_type() {
    let mut store = with_models();
    check_field(&mut store, "min", &data(), "number", &json!(9));
    check_field(&mut store, "min", &compare("meta_position", ">", &json!(1)), "meta_position", &json!(2));
}

#[test]
fn c06_the_smallest_of_nothing() {
    let mut store = with_models();
    check_field(&mut store, "min", &nowhere(), "number", &json!(null));
    check_field(&mut store, "min", &data(), "nothing", &json!(null));
}

#[test]
fn c07_the_largest_with_and_without_type() {
    let mut store = with_models();
    check_field(&mut store, "max", &data(), "number", &json!(42));
    check_field(&mut store, "max", &data(), "meta_position", &json!(2));
}

#[test]
fn c08_the_largest_of_nothing() {
    let mut store = with_models();
    check_field(&mut store, "max", &nowhere(), "number", &json!(null));
    check_field(&mut store, "max", &equals("text", &json!("test")), "number", &json!(null));
}

#[test]
fn c09_the_position_is_the_global_one() {
    let filter = json!({ "collection": "a", "filter": data(), "field": "number" });
    let mut store = Store::start();
    for (route, value) in
        [("count", json!(0)), ("exists", json!(false)), ("min", json!(null)), ("max", json!(null))]
    {
        let expected = json!({ route: value, "position": null });
        assert_is(&store.ask_reader(route, &filter), 200, &expected);
    }
    store.apply(&[create("z/1", &json!({}))]);
    store.apply(&[update("z/1", &json!({ "f": 1 }))]);
    assert_eq!(store.read("count", &filter), json!({ "count": 0, "position": 2 }));
}

#[test]
fn c10_wrong_names_are_refused() {
    let mut store = with_models();
    let right = json!({ "collection": "a", "filter": data(), "field": "number" });
    for route in ["count", "exists", "min", "max"] {
        for collection in ["not valid", "", "ab", "a\n"] {
            let body = with(&right, "collection", &json!(collection));
            assert_refused(
                &store.ask_reader(route, &body),
                INVALID_FORMAT,
                &format!("{route} {collection:?}"),
            );
        }
        let body = with(&right, "filter", &equals("not valid", &json!(1)));
        assert_refused(&store.ask_reader(route, &body), INVALID_FORMAT, &format!("{route}: filter field"));
    }
    for route in ["min", "max"] {
        for field in ["not valid", "", "F", "f\n"] {
            let body = with(&right, "field", &json!(field));
            assert_refused(&store.ask_reader(route, &body), INVALID_FORMAT, &format!("{route} {field:?}"));
        }
    }
}

#[test]
fn c11_wrong_operators_and_shapes_are_refused() {
    let mut store = with_models();
    let right = json!({ "collection": "a", "filter": data(), "field": "number" });
    for route in ["count", "exists", "min", "max"] {
        let bodies = [
            with(&right, "filter", &compare("text", "invalid", &json!("data"))),
            with(&right, "filter", &json!({ "and_filter": [] })),
            with(&right, "filter", &json!({})),
            with(&right, "collection", &json!(1)),
            json!({ "collection": "a", "field": "number" }),
            json!({ "filter": data(), "field": "number" }),
            json!(null),
        ];
        for body in bodies {
            assert_refused(&store.ask_reader(route, &body), INVALID_REQUEST, &format!("{route} {body}"));
        }
    }
    for route in ["min", "max"] {
        let bodies = [
            json!({ "collection": "a", "filter": data() }),
            with(&right, "field", &json!(1)),
            with(&right, "type", &json!("text")),
            with(&right, "type", &json!(1)),
        ];
        for body in bodies {
            assert_refused(&store.ask_reader(route, &body), INVALID_REQUEST, &format!("{route} {body}"));
        }
    }
}

#[test]
fn c12_only_numbers_are_small_or_large() {
    let mut store = Store::start();
    let values = [json!("0"), json!(5), json!(3), json!([1]), json!(true), json!(8), json!("x"), json!({})];
    for (id, value) in (1..).zip(values) {
        store.apply(&[create(&format!("a/{id}"), &json!({ "f": value, "g": "x" }))]);
    }
    let body = |field: &str| json!({ "collection": "a", "filter": equals("g", &json!("x")), "field": field });
    assert_eq!(store.read("min", &body("f")), json!({ "min": 3, "position": 8 }));
    assert_eq!(store.read("max", &body("f")), json!({ "max": 8, "position": 8 }));
    assert_eq!(store.read("min", &body("g")), json!({ "min": null, "position": 8 }));
    assert_eq!(store.read("max", &body("g")), json!({ "max": null, "position": 8 }));
    store.apply(&[create("a/20", &json!({ "f": 2.5, "g": "x" }))]);
    assert_eq!(store.read("min", &body("f")), json!({ "min": 2.5, "position": 9 }));
}

#[test]
fn c13_deleted_models_count() {
    let mut store = with_models();
    store.apply(&[delete("a/1")]);
    let both = json!({ "collection": "a", "filter": data(), "field": "number" });
    assert_eq!(store.read("count", &both), json!({ "count": 2, "position": 5 }));
    assert_eq!(store.read("max", &both), json!({ "max": 42, "position": 5 }));
    let live = json!({ "and_filter": [data(), equals("meta_deleted", &json!(false))] });
    let live = with(&both, "filter", &live);
    assert_eq!(store.read("count", &live), json!({ "count": 1, "position": 5 }));
    assert_eq!(store.read("exists", &live), json!({ "exists": true, "position": 5 }));
    assert_eq!(store.read("max", &live), json!({ "max": 9, "position": 5 }));
}
