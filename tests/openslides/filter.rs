//! Group F: which models a filter finds, and the position that comes with them.

use crate::{
    http::{Connection, JSON},
    store::{
        INVALID_FORMAT, INVALID_REQUEST, READER, Store, WRITER, assert_is, assert_refused, compare, create,
        delete, deleted_model, equals, model, object, request, update,
    },
};
use serde_json::{Value, json};
use std::thread;

fn first() -> Value {
    json!({ "text": "data", "number": 42, "flag": true, "extra": 1 })
}

fn second() -> Value {
    json!({ "text": "test", "number": 21, "flag": false })
}

/// `a/1`, `a/2` and `b/1`, at positions 1, 2 and 3.
fn with_models() -> Store {
    let mut store = Store::start();
    store.apply(&[create("a/1", &first())]);
    store.apply(&[create("a/2", &second())]);
    store.apply(&[create("b/1", &json!({ "text": "data", "number": 42, "flag": true }))]);
    store
}

/// The whole answer for the models of `a` with these ids.
fn found(ids: &[u64]) -> Value {
    let models = ids.iter().map(|id| match id {
        1 => ("1".to_owned(), model(&first(), 1)),
        _ => ("2".to_owned(), model(&second(), 2)),
    });
    json!({ "data": object(models), "position": 3 })
}

/// What other clients of the server are told as `budget_exceeded`.
#[test]
fn f90_a_request_over_the_budget_of_work_is_refused_by_the_name_of_the_limit() {
    let mut store = Store::start_with(&["--work-max", "1000"]);
    for start in 0..4 {
        let ids = start * 500 + 1..start * 500 + 501;
        store.apply(&ids.map(|id| create(&format!("a/{id}"), &json!({ "n": id }))).collect::<Vec<_>>());
    }
    let over = json!({ "collection": "a", "filter": compare("n", ">", &json!(5000)) });
    for route in ["filter", "count"] {
        let reply = store.ask_reader(route, &over);
        assert_refused(&reply, INVALID_REQUEST, route);
        assert!(reply.body.contains("work_max"), "{reply:?}");
    }
    // Nothing else is worse for it.
    store.written(&request(&[create("b/1", &json!({ "n": 1 }))]));
    let small = json!({ "collection": "b", "filter": compare("n", ">", &json!(0)) });
    assert_eq!(store.ask_reader("filter", &small).status, 200);
    store.has("a/7", &json!({ "n": 7 }), 1);
}

#[track_caller]
fn check(store: &mut Store, filter: &Value, ids: &[u64]) {
    let reply = store.ask_reader("filter", &json!({ "collection": "a", "filter": filter }));
    assert_eq!(reply.status, 200, "{filter}: {reply:?}");
    assert_eq!(reply.json(), found(ids), "{filter}");
}

/// Both ways round: the filter finds these, its negation the others.
#[track_caller]
fn check_both(store: &mut Store, filter: &Value, ids: &[u64]) {
    check(store, filter, ids);
    let others: Vec<u64> = [1, 2].into_iter().filter(|id| !ids.contains(id)).collect();
    check(store, &json!({ "not_filter": filter }), &others);
}

#[test]
fn f01_equal() {
    let mut store = with_models();
    check_both(&mut store, &equals("text", &json!("data")), &[1]);
    check_both(&mut store, &equals("text", &json!("DATA")), &[]);
    check_both(&mut store, &equals("number", &json!(21)), &[2]);
    check_both(&mut store, &equals("flag", &json!(true)), &[1]);
}

#[test]
fn f02_not_equal() {
    let mut store = with_models();
    check_both(&mut store, &compare("number", "!=", &json!(21)), &[1]);
    check_both(&mut store, &compare("text", "!=", &json!("neither")), &[1, 2]);
}

#[test]
fn f03_less() {
    let mut store = with_models();
    check_both(&mut store, &compare("number", "<", &json!(42)), &[2]);
    check_both(&mut store, &compare("number", "<", &json!(21)), &[]);
}

#[test]
fn f04_less_or_equal() {
    let mut store = with_models();
    check_both(&mut store, &compare("number", "<=", &json!(42)), &[1, 2]);
    check_both(&mut store, &compare("number", "<=", &json!(41.5)), &[2]);
}

#[test]
fn f05_greater() {
    check_both(&mut with_models(), &compare("number", ">", &json!(21)), &[1]);
}

#[test]
fn f06_greater_or_equal() {
    let mut store = with_models();
    check_both(&mut store, &compare("number", ">=", &json!(21)), &[1, 2]);
    check_both(&mut store, &compare("number", ">=", &json!(21.5)), &[1]);
}

#[test]
fn f07_equal_whatever_the_case() {
    let mut store = with_models();
    check_both(&mut store, &compare("text", "~=", &json!("DATA")), &[1]);
    check_both(&mut store, &compare("text", "~=", &json!("dAtA")), &[1]);
    check_both(&mut store, &compare("text", "~=", &json!("dat")), &[]);
    check_both(&mut store, &compare("text", "~=", &json!("d%")), &[]);
}

#[test]
fn f08_like_a_pattern() {
    let mut store = with_models();
    check_both(&mut store, &compare("text", "%=", &json!("da%")), &[1]);
    check_both(&mut store, &compare("text", "%=", &json!("DA_A")), &[1]);
    check_both(&mut store, &compare("text", "%=", &json!("data")), &[1]);
    check_both(&mut store, &compare("text", "%=", &json!("dat")), &[]);
    check_both(&mut store, &compare("text", "%=", &json!("d.*")), &[]);
}

#[test]
fn f09_numbers_are_compared_as_numbers() {
    let mut store = with_models();
    check_both(&mut store, &compare("number", ">", &json!(9)), &[1, 2]);
    check_both(&mut store, &compare("number", "<", &json!(100)), &[1, 2]);
    check_both(&mut store, &compare("number", ">", &json!(-5)), &[1, 2]);
}

#[test]
fn f10_a_pattern_may_find_several_in_any_case() {
    let mut store = with_models();
    for pattern in ["%T%", "%t%", "_%", "%", "____"] {
        check_both(&mut store, &compare("text", "%=", &json!(pattern)), &[1, 2]);
    }
    check_both(&mut store, &compare("text", "%=", &json!("_____")), &[]);
}

#[test]
fn f11_and() {
    let mut store = with_models();
    let both = json!({ "and_filter": [equals("text", &json!("data")), equals("number", &json!(42))] });
    check_both(&mut store, &both, &[1]);
    let neither = json!({ "and_filter": [equals("text", &json!("data")), equals("number", &json!(21))] });
    check_both(&mut store, &neither, &[]);
    check_both(&mut store, &json!({ "and_filter": [equals("text", &json!("data"))] }), &[1]);
}

#[test]
fn f12_or() {
    let mut store = with_models();
    let either = json!({ "or_filter": [equals("text", &json!("data")), equals("text", &json!("test"))] });
    check_both(&mut store, &either, &[1, 2]);
    let one = json!({ "or_filter": [equals("text", &json!("data")), equals("text", &json!("x"))] });
    check_both(&mut store, &one, &[1]);
}

#[test]
fn f13_nested_with_not_and_false() {
    let large = json!({ "and_filter": [equals("text", &json!("data")), compare("number", ">", &json!(21))] });
    let not_small = json!({ "not_filter": compare("number", "<", &json!(21)) });
    let unset = json!({ "and_filter": [equals("flag", &json!(false)), not_small] });
    check_both(&mut with_models(), &json!({ "or_filter": [large, unset] }), &[1, 2]);
}

#[test]
fn f14_equal_to_null_is_absent() {
    check_both(&mut with_models(), &equals("extra", &json!(null)), &[2]);
}

#[test]
fn f15_not_equal_to_null_is_present() {
    check_both(&mut with_models(), &compare("extra", "!=", &json!(null)), &[1]);
}

#[test]
fn f16_nothing_is_true_of_an_absent_field() {
    let mut store = with_models();
    check(&mut store, &equals("nothing", &json!("data")), &[]);
    for operator in ["=", "!=", "<", "<=", ">", ">=", "~=", "%="] {
        check_both(&mut store, &compare("nothing", operator, &json!("data")), &[]);
    }
    check(&mut store, &compare("extra", "!=", &json!(2)), &[1]);
}

#[test]
fn f17_mapped_fields_that_are_absent_are_null() {
    let mut store = with_models();
    let filter = compare("number", ">", &json!(0));
    let body = json!({ "collection": "a", "filter": filter, "mapped_fields": ["extra", "meta_position"] });
    let data = json!({ "1": { "extra": 1, "meta_position": 1 }, "2": { "extra": null, "meta_position": 2 } });
    assert_is(&store.ask_reader("filter", &body), 200, &json!({ "data": data, "position": 3 }));
}

#[test]
fn f18_the_answer_carries_the_global_position() {
    let mut store = Store::start();
    let body = json!({ "collection": "a", "filter": equals("text", &json!("data")) });
    assert_is(&store.ask_reader("filter", &body), 200, &json!({ "data": {}, "position": null }));
    check(&mut with_models(), &equals("text", &json!("nowhere")), &[]);
}

#[test]
fn f19_wrong_names_are_refused() {
    let mut store = with_models();
    let right = equals("text", &json!("data"));
    let nested = json!({ "not_filter": { "or_filter": [right, equals("not valid", &json!(1))] } });
    let bodies = [
        json!({ "collection": "not valid", "filter": right }),
        json!({ "collection": "a\n", "filter": right }),
        json!({ "collection": "a", "filter": equals("not valid", &json!("data")) }),
        json!({ "collection": "a", "filter": equals("text\n", &json!("data")) }),
        json!({ "collection": "a", "filter": nested }),
        json!({ "collection": "a", "filter": right, "mapped_fields": ["not valid"] }),
    ];
    for body in bodies {
        assert_refused(&store.ask_reader("filter", &body), INVALID_FORMAT, &body.to_string());
    }
}

#[test]
fn f20_unknown_operators_are_refused() {
    let mut store = with_models();
    for operator in [json!("invalid"), json!("=="), json!("<>"), json!(""), json!(null), json!(1)] {
        let filter = json!({ "field": "text", "operator": operator, "value": "data" });
        let reply = store.ask_reader("filter", &json!({ "collection": "a", "filter": filter }));
        assert_refused(&reply, INVALID_REQUEST, &operator.to_string());
    }
}

#[test]
fn f21_null_has_no_order_and_no_text() {
    let mut store = with_models();
    for operator in ["<", "<=", ">", ">=", "~=", "%="] {
        let filter = compare("number", operator, &json!(null));
        let reply = store.ask_reader("filter", &json!({ "collection": "a", "filter": filter }));
        assert_refused(&reply, INVALID_FORMAT, operator);
    }
}

#[test]
fn f22_deleted_models_are_found_and_can_be_told_apart() {
    let mut store = with_models();
    store.apply(&[delete("a/2")]);
    let gone = deleted_model(&second(), 4);
    let mut check = |filter: Value, data: Value| {
        let body = json!({ "collection": "a", "filter": filter });
        assert_is(&store.ask_reader("filter", &body), 200, &json!({ "data": data, "position": 4 }));
    };
    check(compare("number", ">", &json!(0)), json!({ "1": model(&first(), 1), "2": gone }));
    check(equals("meta_deleted", &json!(true)), json!({ "2": gone }));
    check(equals("meta_deleted", &json!(false)), json!({ "1": model(&first(), 1) }));
    check(compare("meta_position", ">", &json!(1)), json!({ "2": gone }));
}

/// While one writer keeps the number and the position the same, every answer must agree with itself.
#[test]
fn f23_the_position_belongs_to_the_data() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "number": 1 }))]);
    let writer = store.server.openslides_writer();
    let writing = thread::spawn(move || {
        let mut connection = Connection::open(writer);
        for number in 2..=300 {
            let body = request(&[update("a/1", &json!({ "number": number }))]).to_string();
            let reply = connection.send("POST", &format!("{WRITER}/write"), Some(JSON), &body);
            assert_eq!(reply.header("x-lockwood-position"), Some(number.to_string().as_str()));
        }
    });
    let body = json!({ "collection": "a", "filter": compare("number", ">", &json!(0)) });
    while !writing.is_finished() {
        let answer = store.read("filter", &body);
        let position = answer["position"].as_u64().unwrap();
        let data = json!({ "1": model(&json!({ "number": position }), position) });
        assert_eq!(answer, json!({ "data": data, "position": position }));
    }
    writing.join().unwrap();
}

/// Values of all kinds, in models numbered from 1.
const VALUES: &str = r#"[1, 1.0, "1", true, "true", [1], {"a": 1}, 2, "b", [], 1.5, "1.0", false, "", 0]"#;

#[track_caller]
fn check_values(store: &mut Store, operator: &str, value: &Value, expected: &[u64]) {
    let filter = compare("f", operator, value);
    let answer = store.read("filter", &json!({ "collection": "a", "filter": filter }));
    let data = answer["data"].as_object().unwrap();
    let mut ids: Vec<u64> = data.keys().map(|id| id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, expected, "f {operator} {value}");
}

fn with_values() -> (Store, u64) {
    let values: Vec<Value> = serde_json::from_str(VALUES).unwrap();
    let mut store = Store::start();
    let events: Vec<Value> =
        (1..).zip(&values).map(|(id, value)| create(&format!("a/{id}"), &json!({ "f": value }))).collect();
    store.apply(&events);
    store.apply(&[create("a/100", &json!({ "g": 1 }))]);
    (store, values.len() as u64)
}

#[test]
fn f24_values_are_equal_if_their_types_are() {
    let (mut store, count) = with_values();
    let cases = [
        (json!(1), vec![1, 2]),
        (json!(1.0), vec![1, 2]),
        (json!("1"), vec![3]),
        (json!(true), vec![4]),
        (json!("true"), vec![5]),
        (json!([1]), vec![6]),
        (json!({ "a": 1 }), vec![7]),
        (json!([]), vec![10]),
        (json!(1.5), vec![11]),
        (json!(false), vec![13]),
        (json!(""), vec![14]),
        (json!(0), vec![15]),
        (json!({}), vec![]),
        (json!([1, 1]), vec![]),
    ];
    for (value, equal) in cases {
        check_values(&mut store, "=", &value, &equal);
        let others: Vec<u64> = (1..=count).filter(|id| !equal.contains(id)).collect();
        check_values(&mut store, "!=", &value, &others);
    }
}

#[test]
fn f25_only_numbers_have_an_order() {
    let (mut store, _) = with_values();
    check_values(&mut store, ">", &json!(0), &[1, 2, 8, 11]);
    check_values(&mut store, ">=", &json!(1), &[1, 2, 8, 11]);
    check_values(&mut store, "<", &json!(1.5), &[1, 2, 15]);
    check_values(&mut store, "<=", &json!(1.5), &[1, 2, 11, 15]);
    for operator in ["<", "<=", ">", ">="] {
        for value in [json!("a"), json!("1a"), json!(""), json!(true), json!(false)] {
            check_values(&mut store, operator, &value, &[]);
        }
    }
}

#[test]
fn f26_lists_and_objects_are_only_equal_or_not() {
    let (mut store, _) = with_values();
    for operator in ["<", "<=", ">", ">=", "~=", "%="] {
        for value in [json!([1]), json!([]), json!({ "a": 1 }), json!({})] {
            let body = json!({ "collection": "a", "filter": compare("f", operator, &value) });
            assert_refused(
                &store.ask_reader("filter", &body),
                INVALID_FORMAT,
                &format!("{operator} {value}"),
            );
        }
    }
}

#[test]
fn f27_malformed_filters_are_refused() {
    let mut store = with_models();
    let right = equals("text", &json!("data"));
    let filters = [
        json!(null),
        json!("text"),
        json!([]),
        json!([right]),
        json!({}),
        json!({ "field": "text", "operator": "=" }),
        json!({ "field": "text", "value": 1 }),
        json!({ "operator": "=", "value": 1 }),
        json!({ "field": 1, "operator": "=", "value": 1 }),
        json!({ "not_filter": null }),
        json!({ "not_filter": [right] }),
        json!({ "not_filter": {} }),
        json!({ "and_filter": [] }),
        json!({ "or_filter": [] }),
        json!({ "and_filter": right }),
        json!({ "or_filter": [right, {}] }),
        json!({ "not_filter": { "and_filter": [] } }),
    ];
    for filter in filters {
        let reply = store.ask_reader("filter", &json!({ "collection": "a", "filter": filter }));
        assert_refused(&reply, INVALID_REQUEST, &filter.to_string());
    }
    for body in [json!(null), json!({}), json!({ "collection": "a" }), json!({ "filter": right })] {
        assert_refused(&store.ask_reader("filter", &body), INVALID_REQUEST, &body.to_string());
    }
    let body = json!({ "collection": "a", "filter": right, "mapped_fields": "text" });
    assert_refused(&store.ask_reader("filter", &body), INVALID_REQUEST, "fields that are no list");
}

#[test]
fn f28_connectives_win_over_a_comparison() {
    let mut store = with_models();
    let mut both = equals("text", &json!("data"));
    both["and_filter"] = json!([equals("text", &json!("test"))]);
    check(&mut store, &both, &[2]);
    let mut both = equals("text", &json!("data"));
    both["not_filter"] = equals("text", &json!("data"));
    check(&mut store, &both, &[2]);
}

#[test]
fn f29_unknown_members_are_ignored() {
    let mut store = with_models();
    let mut filter = equals("text", &json!("data"));
    filter["x"] = json!(1);
    let body = json!({ "collection": "a", "filter": filter, "position": 1, "get_deleted_models": 2 });
    assert_is(&store.ask_reader("filter", &body), 200, &found(&[1]));
}

#[test]
fn f30_filters_may_be_deep_but_not_bottomless() {
    let mut store = with_models();
    let deep = (0..40).fold(equals("text", &json!("data")), |inner, _| json!({ "not_filter": inner }));
    check(&mut store, &deep, &[1]);
    let depth = 20_000;
    let filter = "{\"not_filter\":".repeat(depth) + "{}" + &"}".repeat(depth);
    let body = format!("{{\"collection\":\"a\",\"filter\":{filter}}}");
    let reply = store.reader.send("POST", &format!("{READER}/filter"), Some(JSON), &body);
    assert_refused(&reply, INVALID_REQUEST, "a bottomless filter");
    check(&mut store, &equals("text", &json!("data")), &[1]);
}
