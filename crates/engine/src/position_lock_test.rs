//! Which locks hold. Most follow the same story: `a/1` is created with `f1` at position 1 and gets `f2` at 2.

use crate::{
    Action::{self, Delete, Restore},
    BrokenBy, PositionLock, Refused, Request, Target,
    scene::{NO_LIMITS, Scene, create, filter, key, remove, request, update},
};
use lockwood_model::Position;

fn story(actions: &[Action]) -> Scene {
    let mut scene = Scene::default();
    for action in actions {
        scene.call(&[request("a/1", std::slice::from_ref(action))], NO_LIMITS).unwrap();
    }
    scene
}

fn usual() -> Scene {
    story(&[create(r#"{"f1":1}"#), update(r#"{"f2":1}"#)])
}

/// `a/1`, `a/1/f`, `a/f` or `a/f where g = 1`, each with `@2` behind it.
fn lock(text: &str) -> PositionLock {
    let (target, position) = text.rsplit_once('@').unwrap();
    let (target, condition) = match target.split_once(" where ") {
        Some((target, condition)) => (target, Some(condition)),
        None => (target, None),
    };
    let parts: Vec<&str> = target.split('/').collect();
    let is_id = |part: &str| part.starts_with(|char: char| char.is_ascii_digit());
    let target = match parts[..] {
        [_, id] if is_id(id) => Target::Document(key(target)),
        [collection, field] => {
            let filter = condition.map(filter);
            Target::CollectionField { collection: collection.into(), field: field.parse().unwrap(), filter }
        }
        [collection, id, field] => Target::Field(key(&format!("{collection}/{id}")), field.parse().unwrap()),
        _ => panic!("{text}"),
    };
    PositionLock { target, position: Position(position.parse().unwrap()) }
}

/// Expected are the indices of the locks that are broken, and where.
#[track_caller]
fn check(mut scene: Scene, locks: &[&str], expected: &[(usize, u64)]) {
    let request = Request { locks: locks.iter().map(|text| lock(text)).collect(), ..Request::default() };
    let broken = match scene.call(std::slice::from_ref(&request), NO_LIMITS) {
        Err(Refused::Locked(broken)) => broken,
        outcome => outcome.map(|_| Vec::new()).unwrap(),
    };
    let positions: Vec<(usize, u64)> = broken
        .iter()
        .map(|broken| match broken.by {
            BrokenBy::Write { position, .. } => (broken.index, position.0),
            BrokenBy::TooOld { .. } | BrokenBy::TooMuch { .. } => panic!("{locks:?}"),
        })
        .collect();
    assert_eq!(positions, expected, "{locks:?}");
}

#[test]
fn documents_and_fields() {
    check(usual(), &["a/1@2"], &[]);
    check(usual(), &["a/1@1"], &[(0, 2)]);
    check(usual(), &["a/7@1"], &[]);
    check(usual(), &["a/1/f1@1"], &[]);
    check(usual(), &["a/1/f2@2"], &[]);
    check(usual(), &["a/1/f2@1"], &[(0, 2)]);
    check(usual(), &["a/1/unknown@0"], &[]);
    // Each by its own position.
    check(usual(), &["a/1/f2@2", "a/1/f1@1"], &[]);
    check(usual(), &["a/1@1", "a/1@2", "a/1/f1@0"], &[(0, 2), (2, 1)]);
}

#[test]
fn collections() {
    check(usual(), &["a/f1@1"], &[]);
    check(usual(), &["a/f2@2"], &[]);
    check(usual(), &["a/f2@1"], &[(0, 2)]);
    check(usual(), &["a/unknown@0", "a_suf/f2@0", "b/f2@0"], &[]);
}

#[test]
fn searches() {
    check(usual(), &["a/f1 where f1 = 1@1"], &[]);
    check(usual(), &["a/f2 where f1 = 1@1"], &[(0, 2)]);
    check(usual(), &["a/f2 where f1 = 2@1"], &[]);
    check(usual(), &["a/f1 where f1 = 1@1", "a/f2@2"], &[]);
    check(usual(), &["a/f2 where f1 = 1@1", "a/f2@2"], &[(0, 2)]);
    check(usual(), &["a/f2 where f1 = 1@2", "a/f2@1"], &[(1, 2)]);
    check(usual(), &["a/f1 where f1 = 1 and f2 = null@1"], &[(0, 2)]);
}

#[test]
fn leaving_and_entering_a_filter() {
    let left = || story(&[create(r#"{"f":1,"g":1}"#), update(r#"{"f":2}"#)]);
    check(left(), &["a/f where f = 1@1"], &[(0, 2)]);
    // By a field that is not the locked one.
    check(left(), &["a/g where f = 1@1"], &[(0, 2)]);
    check(left(), &["a/g where f = 2@1"], &[(0, 2)]);
    check(left(), &["a/g where f = 3@1"], &[]);
    let deleted = || story(&[create(r#"{"f":1}"#), Delete]);
    check(deleted(), &["a/f where f = 1 and meta_deleted = false@1"], &[(0, 2)]);
    check(deleted(), &["a/unknown where f = 1 and meta_deleted = false@1"], &[(0, 2)]);
    check(deleted(), &["a/unknown where f = 2 and meta_deleted = false@1"], &[]);
}

/// Every change moves `meta_position`, so it can make a document enter and leave, though it touches another
/// field.
#[test]
fn filters_on_the_position() {
    let moved = || story(&[create(r#"{"f":1}"#), update(r#"{"g":1}"#)]);
    check(moved(), &["a/f where meta_position = 2@1"], &[(0, 2)]);
    check(moved(), &["a/f where meta_position = 1@1"], &[(0, 2)]);
    check(moved(), &["a/f where meta_position = 3@1"], &[]);
    check(moved(), &["a/f where meta_position > 0 and f = 2@1"], &[]);
    check(moved(), &["a/meta_position@1", "a/meta_position where f = 1@1"], &[]);
}

#[test]
fn what_touches_which_field() {
    let created = || story(&[create(r#"{"f":1,"g":null}"#)]);
    check(created(), &["a/f@0", "a/g@0", "a/meta_deleted@0", "a/meta_position@0"], &[(0, 1), (2, 1)]);
    let fields = ["a/1/f@1", "a/1/g@1", "a/1/meta_deleted@1", "a/1/meta_position@1", "a/1@1"];
    let after = |action: Action| story(&[create(r#"{"f":1}"#), action]);
    check(after(update(r#"{"f":1}"#)), &fields, &[(0, 2), (4, 2)]);
    check(after(update(r#"{"g":null}"#)), &fields, &[(1, 2), (4, 2)]);
    check(after(remove("g", "[1]")), &fields, &[(4, 2)]);
    check(after(Delete), &fields, &[(0, 2), (2, 2), (3, 2), (4, 2)]);
    let restored = || story(&[create(r#"{"f":1}"#), update("{}"), Delete, Restore]);
    check(restored(), &["a/1/f@3", "a/f@3", "a/g@3", "a/meta_position@3"], &[(0, 4), (1, 4), (3, 4)]);
}

#[test]
fn older_than_what_is_kept() {
    let mut scene = usual();
    scene.forget_before(Position(2));
    let horizon = Position(2);
    let judge = |scene: &mut Scene, text: &str| {
        scene.call(&[Request { locks: vec![lock(text)], ..Request::default() }], NO_LIMITS).map(drop)
    };
    for text in ["a/1@1", "a/7@1", "a/1/f1@1", "a/unknown@1", "a/f1 where f1 = 2@1"] {
        let Err(Refused::Locked(broken)) = judge(&mut scene, text) else { panic!("{text}") };
        assert_eq!(broken[0].by, BrokenBy::TooOld { horizon }, "{text}");
    }
    assert_eq!(judge(&mut scene, "a/1@2"), Ok(()));
}

#[test]
fn a_request_sees_what_the_one_before_it_did() {
    let mut scene = usual();
    let mut second = request("a/1", &[update(r#"{"f2":3}"#)]);
    second.locks = vec![lock("a/1/f1@2"), lock("a/f2 where f1 = 1@2"), lock("a/1/f2@3")];
    let first = request("a/1", &[update(r#"{"f1":2}"#)]);
    let Err(Refused::Locked(broken)) = scene.call(&[first, second.clone()], NO_LIMITS) else { panic!() };
    assert_eq!(broken.iter().map(|broken| broken.index).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(scene.state.position, Position(2), "nothing was done");
    assert!(scene.call(&[second], NO_LIMITS).is_ok(), "and a request is not in its own way");
}

/// Judging takes time in which nobody else is served.
#[test]
fn a_search_that_would_take_too_long_is_too_old() {
    let mut scene = usual();
    let large = "x".repeat(4_000_000);
    for _ in 0..40 {
        scene.call(&[request("a/1", &[update(&format!(r#"{{"f1":"{large}"}}"#))])], NO_LIMITS).unwrap();
    }
    let search = || lock("a/f1 where f2 > 5@2");
    let locked = |locks: Vec<PositionLock>| Request { locks, ..request("a/2", &[create("{}")]) };
    // One search is within the budget; so many are not, however they are spread over the call.
    scene.call(&[locked(vec![search()])], NO_LIMITS).unwrap();
    let calls = [request("a/3", &[create("{}")]), locked(vec![search(); 3])];
    let Err(Refused::Locked(broken)) = scene.call(&calls, NO_LIMITS) else { panic!("it was done") };
    let now = Position(44);
    assert!(broken.iter().all(|broken| broken.by == BrokenBy::TooMuch { present: now }), "{broken:?}");
    assert_eq!(broken.last().unwrap().index, 2);
}

#[test]
fn whose_the_write_was_is_told_until_it_is_too_much() {
    let mut scene = Scene::default();
    let note = Some(crate::scene::json(&format!("\"{}\"", "x".repeat(1000))));
    scene.call(&[Request { note, ..request("a/1", &[create("{}")]) }], NO_LIMITS).unwrap();
    let locks = vec![lock("a/1@0"); 3000];
    let calls = [Request { locks, ..request("a/1", &[Delete]) }];
    let Err(Refused::Locked(broken)) = scene.call(&calls, NO_LIMITS) else { panic!("it was done") };
    let origins = broken.iter().filter(|broken| matches!(broken.by, BrokenBy::Write { origin: Some(_), .. }));
    assert_eq!((broken.len(), origins.count() / 100), (3000, 10));
}
