//! A transition step by step: what it waits for, what it asks for, and what it refuses.

use crate::{
    Action, By, Change, Drive, Epoch, Event, Function, Host, HostMode, Phase, Planned, ShardMap, ShardNo,
    Step, Transition,
};
use serde_json::json;

fn shards(names: &str) -> Vec<Vec<Host>> {
    let host = |name| Host { mode: HostMode::Rw, weight: 1, address: format!("{name}:1") };
    names.split_whitespace().map(|name| vec![host(name)]).collect()
}

fn hash(shards: u32) -> Function {
    Function::Hash { shards, by: By::Key }
}

fn steady() -> ShardMap {
    ShardMap::steady(7, shards("a b"), hash(2))
}

fn start(to: &str, drive: Drive) -> Transition {
    let change = Change { list: Some(shards(to)), curr: Some(hash(0)), prev: None, this: None };
    let Ok(Planned::Transition { preparing, keep }) = change.apply(Some(&steady())) else { panic!() };
    Transition::start(&steady(), preparing, keep, drive)
}

/// Does everything that is to be done, as nodes without faults would, until the step changes.
fn step(transition: &mut Transition) {
    let begun = (transition.step, transition.map.epoch);
    while (transition.step, transition.map.epoch) == begun {
        let actions = transition.actions();
        assert!(!actions.is_empty(), "nothing to do in {begun:?}");
        let map = transition.map.clone();
        for event in actions.into_iter().flat_map(|action| answers(action, &map)) {
            transition.apply(event);
        }
    }
}

fn until(transition: &mut Transition, end: Step) {
    while transition.step != end {
        step(transition);
    }
}

fn answers(action: Action, map: &ShardMap) -> Vec<Event> {
    let (epoch, transition) = (map.epoch, map.transition);
    match action {
        Action::Publish { to, .. } => {
            to.into_iter().map(|node| Event::Acknowledged { node, epoch }).collect()
        }
        Action::Export { from } => vec![Event::Exported { node: from, epoch }],
        Action::Import { to } => vec![Event::Imported { node: to, epoch }],
        Action::Copy { donor, round } => vec![copied(donor, transition, round)],
        Action::Verify { donor, round } => vec![Event::Verified { donor, transition, round }],
        Action::Clean { donor } => vec![Event::Cleaned { donor, transition, removed: 3, done: true }],
        Action::Done => panic!("nothing is left to do"),
    }
}

fn copied(donor: ShardNo, transition: Epoch, round: u32) -> Event {
    Event::Copied { donor, transition, round, copied: 3, total: Some(3), done: true }
}

fn left(transition: &Transition) -> Vec<String> {
    transition.waits().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn from_end_to_end() {
    let mut transition = start("a b c", Drive::Whole);
    let mut maps = Vec::new();
    while !transition.is_over() {
        let map = transition.map.clone();
        map.validate().unwrap();
        if maps.last() != Some(&map) {
            maps.push(map);
        }
        step(&mut transition);
    }
    let seen: Vec<_> = maps.iter().map(|map| (map.epoch, map.phase, map.transition)).collect();
    let expected = [
        (8, Phase::Preparing, 9),
        (9, Phase::Resharding, 9),
        (10, Phase::Finishing, 9),
        (11, Phase::Steady, 0),
    ];
    assert_eq!(seen, expected);
    assert_eq!(transition.map, ShardMap::steady(11, shards("a b c"), hash(3)));
    assert_eq!(
        transition.donors.iter().map(|donor| donor.shard).collect::<Vec<_>>(),
        [ShardNo(1), ShardNo(2)]
    );
    assert_eq!(transition.actions(), [Action::Done]);
}

#[test]
fn each_step_waits_for_everybody() {
    let mut transition = start("a b c", Drive::Whole);
    let acknowledged = |node: &str, epoch| Event::Acknowledged { node: node.to_owned(), epoch };
    transition.apply(acknowledged("a:1", 8));
    transition.apply(acknowledged("b:1", 7));
    transition.apply(acknowledged("x:1", 8));
    assert_eq!(left(&transition), ["b:1", "c:1"]);
    let Action::Publish { to, map } = transition.actions().remove(0) else { panic!() };
    assert_eq!((to, map.phase), (vec!["b:1".to_owned(), "c:1".to_owned()], Phase::Preparing));
    transition.apply(acknowledged("b:1", 8));
    let actions = transition.apply(acknowledged("c:1", 8));
    assert_eq!(actions, ["a:1", "b:1", "c:1"].map(|from| Action::Export { from: from.to_owned() }));
    for node in ["a:1", "b:1"] {
        transition.apply(Event::Exported { node: node.to_owned(), epoch: 8 });
    }
    assert_eq!(transition.actions(), [Action::Export { from: "c:1".to_owned() }]);
    let actions = transition.apply(Event::Exported { node: "c:1".to_owned(), epoch: 8 });
    assert_eq!(actions, ["a:1", "b:1", "c:1"].map(|to| Action::Import { to: to.to_owned() }));
}

#[test]
fn exports_are_asked_again_after_a_crash() {
    let mut transition = start("a", Drive::Whole);
    until(&mut transition, Step::Import);
    for node in ["a:1", "b:1"] {
        transition.apply(Event::Exported { node: node.to_owned(), epoch: 8 });
    }
    transition.apply(Event::Imported { node: "a:1".to_owned(), epoch: 8 });
    let text = serde_json::to_string(&transition).unwrap();
    let mut again: Transition = serde_json::from_str(&text).unwrap();
    assert!(matches!(again.actions()[..], [Action::Export { .. }, Action::Export { .. }]));
    for node in ["a:1", "b:1"] {
        again.apply(Event::Exported { node: node.to_owned(), epoch: 8 });
    }
    assert_eq!(again.actions(), [Action::Import { to: "b:1".to_owned() }]);
}

#[test]
fn what_differs_is_copied_again() {
    let mut transition = start("a b c", Drive::Whole);
    until(&mut transition, Step::Copy);
    let one = ShardNo(1);
    transition.apply(copied(one, 9, 0));
    let problem = "2 records are missing".to_owned();
    transition.apply(Event::Differs { donor: one, transition: 9, round: 0, problem });
    assert_eq!(transition.waits()[0], ("shard 1".to_owned(), Some("2 records are missing")));
    assert_eq!(transition.actions()[0], Action::Copy { donor: one, round: 1 });
    transition.apply(copied(one, 9, 0));
    transition.apply(Event::Verified { donor: one, transition: 9, round: 0 });
    assert_eq!(transition.actions()[0], Action::Copy { donor: one, round: 1 }, "late answers do not count");
    transition.apply(copied(one, 9, 1));
    assert_eq!(transition.waits()[0], ("shard 1".to_owned(), None));
    transition.apply(Event::Verified { donor: one, transition: 9, round: 1 });
    until(&mut transition, Step::Done);
}

#[test]
fn events_of_another_transition_do_not_count() {
    let mut transition = start("a b c", Drive::Whole);
    until(&mut transition, Step::Copy);
    let before = transition.clone();
    transition.apply(copied(ShardNo(1), 5, 0));
    transition.apply(copied(ShardNo(3), 9, 0));
    transition.apply(Event::Verified { donor: ShardNo(1), transition: 9, round: 0 });
    transition.apply(Event::Cleaned { donor: ShardNo(1), transition: 9, removed: 1, done: true });
    transition.apply(Event::Imported { node: "a:1".to_owned(), epoch: 8 });
    transition.apply(Event::Failed { node: "x:1".to_owned(), problem: "no".to_owned() });
    assert_eq!(transition, before);
}

#[test]
fn prev_is_kept_until_every_donor_is_verified() {
    let mut transition = start("a b c", Drive::ByHand);
    assert!(
        transition
            .drop_prev(true)
            .unwrap_err()
            .to_string()
            .starts_with("keys have not begun to move (prepare)")
    );
    until(&mut transition, Step::Copy);
    assert_eq!(transition.actions(), [], "nobody has asked for a copy yet");
    transition.copy(Some(ShardNo(1))).unwrap();
    transition.apply(copied(ShardNo(1), 9, 0));
    let refused = transition.drop_prev(false).unwrap_err().to_string();
    let expected =
        "prev is still needed: shard 1 has copied but is not verified, shard 2 has not finished copying; ";
    assert!(refused.starts_with(expected), "{refused}");
    transition.apply(Event::Verified { donor: ShardNo(1), transition: 9, round: 0 });
    assert!(transition.drop_prev(false).unwrap_err().to_string().contains("needed: shard 2 has not"));
    transition.copy(None).unwrap();
    transition.apply(copied(ShardNo(2), 9, 0));
    transition.apply(Event::Verified { donor: ShardNo(2), transition: 9, round: 0 });
    assert_eq!((transition.step, transition.actions().len()), (Step::Copy, 0), "by hand, so it waits");
    assert!(transition.cleanup(None).unwrap_err().to_string().starts_with("prev is still set (copy)"));
    transition.drop_prev(false).unwrap();
    assert_eq!(
        (transition.step, transition.map.prev.clone(), transition.forced),
        (Step::Finish, None, false)
    );
    until(&mut transition, Step::Clean);
    assert_eq!(transition.actions(), []);
    transition.cleanup(None).unwrap();
    assert!(transition.copy(None).unwrap_err().to_string().starts_with("prev is gone (clean)"));
    until(&mut transition, Step::Done);
}

#[test]
fn prev_can_be_dropped_by_force() {
    let mut transition = start("a b c", Drive::Whole);
    until(&mut transition, Step::Copy);
    transition.apply(copied(ShardNo(1), 9, 0));
    transition.drop_prev(true).unwrap();
    assert_eq!((transition.step, transition.forced), (Step::Finish, true));
    transition.drop_prev(false).unwrap();
    until(&mut transition, Step::Done);
    assert_eq!(transition.map, ShardMap::steady(11, shards("a b c"), hash(3)));
}

#[test]
fn only_bulk_work_rests() {
    let mut transition = start("a b c", Drive::Whole);
    transition.pause();
    until(&mut transition, Step::Copy);
    assert_eq!(transition.actions(), []);
    transition.resume();
    assert_eq!(transition.actions().len(), 2);
    until(&mut transition, Step::Clean);
    transition.pause();
    assert_eq!(transition.actions(), []);
}

#[test]
fn abort_before_keys_move() {
    for end in [Step::Prepare, Step::Import] {
        let mut transition = start("a b c", Drive::Whole);
        until(&mut transition, end);
        transition.abort().unwrap();
        assert_eq!((transition.step, transition.aborting), (Step::Settle, true));
        assert_eq!(transition.map, ShardMap { epoch: 9, ..steady() });
        assert_eq!(left(&transition), ["a:1", "b:1", "c:1"], "the shard that was to come learns of it too");
        assert!(transition.abort().unwrap_err().to_string().starts_with("it is going back already"));
        until(&mut transition, Step::Done);
    }
}

#[test]
fn abort_while_keys_move() {
    for end in [Step::Activate, Step::Copy] {
        let mut transition = start("a b c", Drive::ByHand);
        until(&mut transition, end);
        transition.throttle = Some(100);
        transition.abort().unwrap();
        let map = &transition.map;
        map.validate().unwrap();
        assert_eq!((map.epoch, map.phase, map.transition, map.reverses), (10, Phase::Preparing, 11, 9));
        assert_eq!((&map.curr, map.prev.as_ref()), (&hash(2), Some(&hash(3))));
        assert_eq!((transition.donors.len(), transition.throttle), (3, Some(100)), "the owners of before");
        assert!(transition.abort().unwrap_err().to_string().starts_with("it is going back already"));
        until(&mut transition, Step::Done);
        assert_eq!(transition.map, ShardMap::steady(13, shards("a b"), hash(2)));
    }
}

#[test]
fn there_is_no_way_back_to_where_keys_are_already() {
    let mut transition = start("a b c", Drive::ByHand);
    transition.map.keeps = true;
    until(&mut transition, Step::Copy);
    assert!(transition.abort().unwrap_err().to_string().starts_with("prev was given by hand"));
}

#[test]
fn there_is_no_way_back_once_prev_is_gone() {
    let mut transition = start("a b c", Drive::Whole);
    for end in [Step::Finish, Step::Clean, Step::Settle, Step::Done] {
        until(&mut transition, end);
        let refused = transition.abort().unwrap_err().to_string();
        assert!(refused.starts_with(&format!("prev is gone ({end})")), "{refused}");
    }
}

#[test]
fn fewer_shards_leave_the_map_at_the_end() {
    let mut transition = start("a", Drive::Whole);
    until(&mut transition, Step::Settle);
    assert_eq!(transition.map, ShardMap::steady(11, shards("a"), hash(1)));
    assert_eq!(left(&transition), ["a:1", "b:1"], "the shard that leaves learns of it");
    transition.rehost(shards("d"));
    assert_eq!(left(&transition), ["b:1", "d:1"]);
    until(&mut transition, Step::Done);
}

#[test]
fn other_hosts_on_the_way() {
    let mut transition = start("a b c", Drive::Whole);
    until(&mut transition, Step::Import);
    transition.rehost(shards("a b d"));
    assert_eq!((transition.step, transition.map.epoch, transition.map.transition), (Step::Prepare, 9, 10));
    assert_eq!(left(&transition), ["a:1", "b:1", "d:1"]);
    until(&mut transition, Step::Copy);
    transition.apply(copied(ShardNo(1), 10, 0));
    transition.rehost(shards("e b d"));
    assert_eq!((transition.step, transition.map.epoch, transition.map.transition), (Step::Activate, 11, 10));
    assert!(transition.donors[0].done, "what is copied is copied");
    until(&mut transition, Step::Copy);
    transition.abort().unwrap();
    until(&mut transition, Step::Done);
    assert_eq!(
        transition.map.shards,
        shards("e b"),
        "back to the functions of before, not to hosts that are gone"
    );
}

#[test]
fn it_is_kept_as_a_document() {
    let mut transition = start("a b c", Drive::Whole);
    transition.apply(Event::Failed { node: "b:1".to_owned(), problem: "refused".to_owned() });
    while !transition.is_over() {
        let value = serde_json::to_value(&transition).unwrap();
        let read: Transition = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(read, Transition { exported: Default::default(), ..transition.clone() });
        assert_eq!(value["step"], json!(transition.step.to_string()));
        step(&mut transition);
    }
}
