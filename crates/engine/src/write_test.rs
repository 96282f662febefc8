//! What each action does to a document, which fields it touches, and when it is refused.

use crate::{
    Action::{self, Delete, Restore},
    Limits, PutIf, Refused, Request,
    scene::{NO_LIMITS, Scene, add, create, key, put, remove, request, set, update, update_lists},
};
use lockwood_model::{Change, Document, Field, Json, META_DELETED, META_POSITION, Position};
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

const AT: &str = "c/1";

/// A document is written as JSON, with a minus sign before it if it is deleted, and empty if it was never
/// there. Expected are the document afterwards and the fields touched in the order of their names; `*` stands
/// for `meta_deleted meta_position`.
#[track_caller]
fn check(before: &str, actions: &[Action], expected: Result<(&str, &str), Refused>) {
    check_within(NO_LIMITS, before, actions, expected);
}

#[track_caller]
fn check_within(limits: Limits, before: &str, actions: &[Action], expected: Result<(&str, &str), Refused>) {
    let mut scene = scene(before);
    let old = scene.state.documents.get(&key(AT)).cloned();
    let outcome = scene.call(&[request(AT, actions)], limits);
    let found = outcome.map(|commits| {
        let changes = commits.iter().flat_map(|commit| &commit.events).map(|event| &event.change);
        let touched: BTreeSet<&str> = changes.flat_map(|change| change.touches()).collect();
        let document = &scene.state.documents[&key(AT)];
        assert_eq!((document.position, commits.len()), (scene.state.position, 1));
        check_touched(old.as_deref(), document, &touched);
        (text(document), touched.into_iter().collect::<Vec<_>>().join(" "))
    });
    let meta = format!("{META_DELETED} {META_POSITION}");
    let expected = expected.map(|(after, touched)| (after.to_owned(), touched.replace('*', &meta)));
    assert_eq!(found, expected, "{before} {actions:?}");
}

/// The document knows what the events say.
#[track_caller]
fn check_touched(old: Option<&Document>, new: &Document, touched: &BTreeSet<&str>) {
    for name in ["f", "g", "h", "unknown", META_DELETED, META_POSITION] {
        let before = old.map_or(Position::START, |old| old.touched(name));
        let expected = if touched.contains(name) { new.position } else { before };
        assert_eq!(new.touched(name), expected, "{name}");
    }
}

fn scene(before: &str) -> Scene {
    let mut scene = Scene::default();
    // Something else, so that positions are not what they are by default.
    let mut requests = vec![request("c/2", &[create("{}")])];
    match before.strip_prefix('-') {
        None if before.is_empty() => {}
        None => requests.push(request(AT, &[create(before)])),
        Some(before) => requests.extend([request(AT, &[create(before)]), request(AT, &[Delete])]),
    }
    scene.call(&requests, NO_LIMITS).unwrap();
    scene
}

fn text(document: &Document) -> String {
    let members: Vec<String> =
        document.present().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{}{{{}}}", if document.deleted { "-" } else { "" }, members.join(","))
}

fn no_document(deleted: bool) -> Refused {
    Refused::NoDocument { at: key(AT), deleted }
}

fn exists(deleted: bool) -> Refused {
    Refused::Exists { at: key(AT), deleted }
}

fn not_deleted(missing: bool) -> Refused {
    Refused::NotDeleted { at: key(AT), missing }
}

fn no_node(path: &str) -> Refused {
    Refused::NoNode { at: key(AT), path: path.parse().unwrap() }
}

fn no_container(path: &str) -> Refused {
    Refused::NoContainer { at: key(AT), path: path.parse().unwrap() }
}

fn not_a_list(field: &str) -> Refused {
    Refused::NotAList { at: key(AT), field: field.into() }
}

#[test]
fn creating() {
    check(
        "",
        &[create(r#"{"f":1,"g":[null,{"a":null}]}"#)],
        Ok((r#"{"f":1,"g":[null,{"a":null}]}"#, "f g meta_deleted")),
    );
    check("", &[create("{}")], Ok(("{}", "meta_deleted")));
    check("", &[create(r#"{"f":null,"g":0}"#)], Ok((r#"{"g":0}"#, "g meta_deleted")));
    check("{}", &[create("{}")], Err(exists(false)));
    check("-{}", &[create("{}")], Err(exists(true)));
    check("", &[create("{}"), create("{}")], Err(exists(false)));
}

#[test]
fn updating() {
    check(r#"{"f":1}"#, &[update(r#"{"f":2}"#)], Ok((r#"{"f":2}"#, "f")));
    check(r#"{"f":1}"#, &[update(r#"{"f":1}"#)], Ok((r#"{"f":1}"#, "f")));
    check(r#"{"f":1}"#, &[update(r#"{"g":2}"#)], Ok((r#"{"f":1,"g":2}"#, "g")));
    check(r#"{"f":1}"#, &[update(r#"{"f":null}"#)], Ok(("{}", "f")));
    check(r#"{"f":1}"#, &[update(r#"{"g":null}"#)], Ok((r#"{"f":1}"#, "g")));
    check(r#"{"f":1}"#, &[update(r#"{"f":null,"g":2,"h":null}"#)], Ok((r#"{"g":2}"#, "f g h")));
    check(r#"{"f":1}"#, &[update(r#"{"f":null}"#), update(r#"{"f":3}"#)], Ok((r#"{"f":3}"#, "f")));
    check("", &[update(r#"{"f":1}"#)], Err(no_document(false)));
    check("", &[update(r#"{"f":null}"#)], Err(no_document(false)));
    check("-{}", &[update(r#"{"f":1}"#)], Err(no_document(true)));
}

#[test]
fn setting_nodes() {
    check(r#"{"f":{"a":1}}"#, &[set("f/a", "[2]")], Ok((r#"{"f":{"a":[2]}}"#, "f")));
    check(r#"{"f":{"a":1}}"#, &[set("f/b", "null")], Ok((r#"{"f":{"a":1,"b":null}}"#, "f")));
    check(r#"{"f":{"a":1}}"#, &[set("f/a", "")], Ok((r#"{"f":{}}"#, "f")));
    check(r#"{"f":[1,2]}"#, &[set("f/0", ""), set("f/1", "3")], Ok((r#"{"f":[2,3]}"#, "f")));
    check(r#"{"f":1}"#, &[set("g", "2")], Ok((r#"{"f":1,"g":2}"#, "g")));
    check(r#"{"f":1}"#, &[set("f", "")], Ok(("{}", "f")));
    check(r#"{"f":1}"#, &[set("f", "null")], Ok(("{}", "f")));
    check(r#"{"f":1}"#, &[set("g", "")], Err(no_node("g")));
    check(r#"{"f":1}"#, &[set("g/a", "1")], Err(no_node("g")));
    check(r#"{"f":{}}"#, &[set("f/a/b", "1")], Err(no_node("f/a")));
    check(r#"{"f":[]}"#, &[set("f/1", "1")], Err(no_node("f/1")));
    check(r#"{"f":1}"#, &[set("f/a", "1")], Err(no_container("f")));
    check(r#"{"f":[0]}"#, &[set("f/0/a/b", "1")], Err(no_container("f/0")));
    check("", &[set("f", "1")], Err(no_document(false)));
    check("-{}", &[set("f", "1")], Err(no_document(true)));
}

#[test]
fn adding_to_lists() {
    check("{}", &[add("f", "[1]")], Ok((r#"{"f":[1]}"#, "f")));
    check("{}", &[add("f", "[1,1,2]")], Ok((r#"{"f":[1,1,2]}"#, "f")));
    check("{}", &[add("f", "[]")], Ok((r#"{"f":[]}"#, "f")));
    check(r#"{"f":[42]}"#, &[add("f", "[1]")], Ok((r#"{"f":[42,1]}"#, "f")));
    check(r#"{"f":[42]}"#, &[add("f", "[42]")], Ok((r#"{"f":[42]}"#, "f")));
    check(r#"{"f":[42]}"#, &[add("f", "[\"42\"]")], Ok((r#"{"f":[42,"42"]}"#, "f")));
    check(r#"{"f":1}"#, &[add("f", "[1]")], Err(not_a_list("f")));
    check(r#"{"f":[[1]]}"#, &[add("f", "[1]")], Err(not_a_list("f")));
    check(r#"{"f":[1.0]}"#, &[add("f", "[1]")], Err(not_a_list("f")));
    check("", &[add("f", "[1]")], Err(no_document(false)));
    check("-{}", &[add("f", "[1]")], Err(no_document(true)));
}

#[test]
fn removing_from_lists() {
    check(r#"{"f":[1]}"#, &[remove("f", "[1]")], Ok((r#"{"f":[]}"#, "f")));
    check(r#"{"f":[1,2,1]}"#, &[remove("f", "[1,7]")], Ok((r#"{"f":[2]}"#, "f")));
    check(r#"{"f":[1]}"#, &[remove("f", "[7]")], Ok((r#"{"f":[1]}"#, "f")));
    check(r#"{"f":[]}"#, &[remove("f", "[1]")], Ok((r#"{"f":[]}"#, "f")));
    check(r#"{"f":"x"}"#, &[remove("f", "[1]")], Err(not_a_list("f")));
    check(r#"{"f":[[1]]}"#, &[remove("f", "[1]")], Err(not_a_list("f")));
    // The document has changed, but none of its fields.
    check(r#"{"g":1}"#, &[remove("f", "[1]")], Ok((r#"{"g":1}"#, "")));
    check("", &[remove("f", "[1]")], Err(no_document(false)));
}

#[test]
fn changing_lists_and_values_together() {
    check(r#"{"f":[1]}"#, &[update_lists("{}", &[("f", "[2]", "[1]")])], Ok((r#"{"f":[2]}"#, "f")));
    check("{}", &[update_lists("{}", &[("f", "[1,2]", "[1]")])], Ok((r#"{"f":[1,2]}"#, "f")));
    let lists = [("f", "[2]", ""), ("g", "", "[1]")];
    check(r#"{"f":[1],"g":[1]}"#, &[update_lists("{}", &lists)], Ok((r#"{"f":[1,2],"g":[]}"#, "f g")));
    check(r#"{"f":[1]}"#, &[update_lists(r#"{"h":null}"#, &lists)], Ok((r#"{"f":[1,2]}"#, "f h")));
    check(r#"{"f":[1],"g":5}"#, &[update_lists(r#"{"h":1}"#, &lists)], Err(not_a_list("g")));
    check("", &[create("{}"), add("f", "[1]"), add("f", "[1,2]")], Ok((r#"{"f":[1,2]}"#, "f meta_deleted")));
}

#[test]
fn putting() {
    use PutIf::{Absent, Always, Present};
    let new = r#"{"f":null,"g":2}"#;
    check("", &[put(new, Always)], Ok((r#"{"g":2}"#, "g meta_deleted")));
    check("", &[put(new, Absent)], Ok((r#"{"g":2}"#, "g meta_deleted")));
    check("", &[put(new, Present)], Err(no_document(false)));
    check(r#"{"f":1,"h":1}"#, &[put(new, Always)], Ok((r#"{"g":2}"#, "f g h")));
    check(r#"{"g":2}"#, &[put(new, Present)], Ok((r#"{"g":2}"#, "g")));
    check("{}", &[put(new, Absent)], Err(exists(false)));
    check("-{}", &[put(new, Present)], Err(no_document(true)));
}

#[test]
fn a_deleted_document_that_is_put_begins_a_new_life() {
    use PutIf::{Absent, Always};
    let new = r#"{"f":null,"g":2}"#;
    for when in [Always, Absent] {
        check("-{}", &[put(new, when)], Ok((r#"{"g":2}"#, "g *")));
        check(r#"-{"f":1,"g":1,"h":1}"#, &[put(new, when)], Ok((r#"{"g":2}"#, "f g h *")));
        check(r#"{"f":1}"#, &[Delete, put(new, when)], Ok((r#"{"g":2}"#, "f g *")));
    }
    check(r#"-{"f":1}"#, &[create(new)], Err(exists(true)));
}

#[test]
fn deleting_and_restoring() {
    check(r#"{"f":1,"g":2}"#, &[Delete], Ok((r#"-{"f":1,"g":2}"#, "f g *")));
    check("{}", &[Delete], Ok(("-{}", "*")));
    check(r#"-{"f":1}"#, &[Restore], Ok((r#"{"f":1}"#, "f *")));
    check("", &[Delete], Err(no_document(false)));
    check("-{}", &[Delete], Err(no_document(true)));
    check("", &[Restore], Err(not_deleted(true)));
    check("{}", &[Restore], Err(not_deleted(false)));
}

#[test]
fn several_actions_in_one_request() {
    let (f1, g2) = (r#"{"f":1}"#, r#"{"g":2}"#);
    check("", &[create(f1), update(g2)], Ok((r#"{"f":1,"g":2}"#, "f g meta_deleted")));
    check("", &[create(f1), Delete], Ok((r#"-{"f":1}"#, "f *")));
    check("", &[create(f1), Delete, Restore], Ok((f1, "f *")));
    check(f1, &[Delete, Restore, Delete, Restore], Ok((f1, "f *")));
    check(f1, &[update(g2), Delete, Restore, update(r#"{"f":null}"#)], Ok((g2, "f g *")));
    check(f1, &[update(r#"{"f":null}"#), Delete], Ok(("-{}", "f *")));
    check(f1, &[Delete, update(g2)], Err(no_document(true)));
    check(f1, &[Delete, create(g2)], Err(exists(true)));
}

#[test]
fn limits() {
    let two_fields = Limits { fields_per_document_max: 2, ..NO_LIMITS };
    let seven_bytes = Limits { document_bytes_max: 7, ..NO_LIMITS };
    let over = |name, limit, len| Refused::OverLimit { at: key(AT), name, limit, len };
    let (two, three) = (r#"{"f":1,"g":2}"#, r#"{"f":1,"g":2,"h":3}"#);
    check_within(two_fields, "", &[create(two)], Ok((two, "f g meta_deleted")));
    check_within(two_fields, "", &[create(three)], Err(over("fields_per_document_max", 2, 3)));
    check_within(two_fields, two, &[update(r#"{"h":3}"#)], Err(over("fields_per_document_max", 2, 3)));
    check_within(two_fields, two, &[update(r#"{"f":null,"h":3}"#)], Ok((r#"{"g":2,"h":3}"#, "f h")));
    check_within(seven_bytes, "", &[create(r#"{"f":123456}"#)], Ok((r#"{"f":123456}"#, "f meta_deleted")));
    check_within(seven_bytes, "", &[create(r#"{"f":1234567}"#)], Err(over("document_bytes_max", 7, 8)));
    check_within(
        seven_bytes,
        "",
        &[create("{}"), add("f", "[1,2,3]")],
        Err(over("document_bytes_max", 7, 8)),
    );
}

#[test]
fn what_is_over_a_lowered_limit_can_be_made_smaller() {
    let none = Limits { fields_per_document_max: 0, document_bytes_max: 0 };
    let one = r#"{"f":1}"#;
    check_within(none, one, &[update(r#"{"f":null}"#)], Ok(("{}", "f")));
    check_within(none, one, &[Delete, Restore], Ok((one, "f *")));
    check_within(none, one, &[put("{}", PutIf::Always)], Ok(("{}", "f")));
    let over = Refused::OverLimit { at: key(AT), name: "fields_per_document_max", limit: 0, len: 1 };
    check_within(none, one, &[update(one)], Err(over));
}

#[test]
fn a_call_is_done_as_a_whole_or_not_at_all() {
    let mut scene = scene("{}");
    let start = scene.state.position;
    let write = |action: Action| -> Request { request(AT, &[action]) };
    let refused = scene.call(&[write(update(r#"{"f":1}"#)), write(Restore)], NO_LIMITS);
    assert_eq!((refused, scene.state.position), (Err(not_deleted(false)), start));
    let commits = scene.call(&[write(Delete), write(Restore)], NO_LIMITS).unwrap();
    let positions: Vec<Position> = commits.iter().map(|commit| commit.position).collect();
    assert_eq!(positions, [start.next(), start.next().next()]);
    assert_eq!(scene.call(&[], NO_LIMITS), Ok(Vec::new()));
}

/// Rules: what a document must be like once a request is done with it.
mod rules {
    use super::*;
    use crate::{Misfit, Refused, Rules, decide};
    use lockwood_model::{Document, DocumentKey};

    /// Every document has the field `must`.
    struct Must;

    impl Rules for Must {
        fn check(&self, at: &DocumentKey, document: &Document) -> Result<(), Refused> {
            if document.present().any(|(name, _)| name == "must") {
                return Ok(());
            }
            let misfits = vec![Misfit { path: "$".into(), reason: "there is no must".into() }];
            Err(Refused::Misfit { at: at.clone(), misfits })
        }
    }

    fn judged(actions: Vec<Action>) -> Result<(), Refused> {
        let at = DocumentKey::new("a", lockwood_model::Key::number(1));
        let intents = actions.into_iter().map(|action| crate::Intent { at: at.clone(), action }).collect();
        let request = Request { intents, ..Request::default() };
        let Ok(decided) =
            decide(&request, &Scene::default(), crate::scene::NO_LIMITS, &Must, crate::scene::NOW);
        decided.map(drop)
    }

    fn create(name: &str) -> Action {
        Action::Create { fields: vec![(name.into(), lockwood_model::Json::trusted("1"))] }
    }

    fn update(name: &str) -> Action {
        Action::Update { set: vec![(name.into(), lockwood_model::Json::trusted("1"))], lists: Vec::new() }
    }

    #[test]
    fn a_document_that_breaks_one_is_refused() {
        assert!(matches!(judged(vec![create("other")]), Err(Refused::Misfit { .. })));
        assert_eq!(judged(vec![create("must")]), Ok(()));
    }

    #[test]
    fn only_what_becomes_of_a_document_in_the_end_counts() {
        assert_eq!(judged(vec![create("other"), update("must")]), Ok(()));
        assert_eq!(judged(vec![create("other"), Action::Delete]), Ok(()));
        let without = Action::Update {
            set: vec![("must".into(), lockwood_model::Json::trusted("null"))],
            lists: vec![],
        };
        assert!(
            judged(vec![create("must"), without]).is_err(),
            "a field that goes may be one that must be there"
        );
    }
}

/// A document that is there without a position.
fn volatile(content: &str) -> Scene {
    let mut scene = scene("");
    let fields: BTreeMap<Box<str>, serde_json::Value> = serde_json::from_str(content).unwrap();
    let field = |(name, value)| Field { name, position: Position::START, value: Some(Json::from(value)) };
    let document = Document { fields: fields.into_iter().map(field).collect(), ..Document::unborn() };
    scene.state.documents.insert(key(AT), Rc::new(document));
    scene
}

#[test]
fn documents_without_positions_get_one_when_they_are_changed() {
    let cases = [
        (update(r#"{"g":2}"#), r#"{"f":1,"g":2}"#),
        (put(r#"{"g":2}"#, PutIf::Present), r#"{"g":2}"#),
        (Delete, r#"-{"f":1}"#),
    ];
    for (action, expected) in cases {
        let mut scene = volatile(r#"{"f":1}"#);
        let commits = scene.call(&[request(AT, std::slice::from_ref(&action))], NO_LIMITS).unwrap();
        let first = &commits[0].events[0].change;
        assert!(matches!(first, Change::Created { fields } if fields.len() == 1), "{action:?}: {commits:?}");
        let document = &scene.state.documents[&key(AT)];
        assert_eq!((text(document).as_str(), document.created), (expected, Position(2)), "{action:?}");
    }
}

#[test]
fn documents_without_positions_exist() {
    for content in ["{}", r#"{"f":1}"#] {
        let refused = volatile(content).call(&[request(AT, &[create("{}")])], NO_LIMITS);
        assert_eq!(refused, Err(Refused::Exists { at: key(AT), deleted: false }));
        let refused = volatile(content).call(&[request(AT, &[Restore])], NO_LIMITS);
        assert_eq!(refused, Err(Refused::NotDeleted { at: key(AT), missing: false }));
    }
}
