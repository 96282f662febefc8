//! What a change makes of a map, and which changes are refused.

use crate::{Change, Function, Host, HostMode, Phase, Planned, ShardMap, ShardNo, This};
use serde_json::{Value, json};

fn shard(name: &str) -> Vec<Host> {
    vec![Host { mode: HostMode::Rw, weight: 1, address: format!("{name}:1") }]
}

fn list(names: &str) -> Value {
    names.split_whitespace().map(|name| json!([["rw", 1, name, 1]])).collect()
}

fn hash(shards: u32) -> Function {
    Function::Hash { shards, by: crate::By::Key }
}

/// Epoch 7, shards a and b, hash over both.
fn steady() -> ShardMap {
    ShardMap::steady(7, vec![shard("a"), shard("b")], hash(2))
}

fn resharding() -> ShardMap {
    let shards = vec![shard("a"), shard("b"), shard("c")];
    let (phase, curr, prev) = (Phase::Resharding, hash(3), Some(hash(2)));
    ShardMap { epoch: 9, phase, shards, curr, prev, transition: 9, reverses: 0, keeps: false }
}

fn finishing() -> ShardMap {
    ShardMap { epoch: 10, phase: Phase::Finishing, prev: None, ..resharding() }
}

#[expect(clippy::needless_pass_by_value, reason = "so that the tests can write json! in place")]
fn apply(map: Option<&ShardMap>, change: Value) -> Result<Planned, String> {
    let change = Change::from_json(&change).map_err(|error| error.to_string())?;
    change.apply(map).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(map: Option<&ShardMap>, change: Value, expected: &str) {
    let found = apply(map, change).unwrap_err();
    assert!(found.starts_with(expected), "{found}");
}

#[track_caller]
fn transition(map: &ShardMap, change: Value) -> (ShardMap, usize) {
    match apply(Some(map), change).unwrap() {
        Planned::Transition { preparing, keep } => (preparing, keep),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_change_is_the_whole_map() {
    let expected = ShardMap::steady(1, vec![shard("a"), shard("b")], hash(2));
    let change = json!({"list": list("a b"), "curr": {"function": "hash"}});
    assert_eq!(apply(None, change), Ok(Planned::Publish(expected)));
    refused(None, json!({"curr": {"function": "hash"}}), "list: missing");
    refused(None, json!({"list": list("a")}), "curr: missing");
    let change = json!({"list": list("a"), "curr": {"function": "hash"}, "prev": {"function": "hash"}});
    refused(None, change, "prev: given, but there is no map yet");
    let change = json!({"list": list("a"), "curr": {"function": "hash", "shards": 2}});
    refused(None, change, "curr.shards: 2 is outside 1 to 1");
}

#[test]
fn nothing_named_is_nothing_changed() {
    for map in [steady(), resharding(), finishing()] {
        assert_eq!(apply(Some(&map), json!({})), Ok(Planned::Unchanged));
        let same = json!({"list": map.shards, "curr": map.curr});
        assert_eq!(apply(Some(&map), same), Ok(Planned::Unchanged));
    }
    assert_eq!(apply(Some(&steady()), json!({"prev": false})), Ok(Planned::Unchanged));
    assert_eq!(apply(Some(&finishing()), json!({"prev": false})), Ok(Planned::Unchanged));
    assert_eq!(apply(Some(&steady()), json!({"prev": hash(2)})), Ok(Planned::Unchanged));
}

#[test]
fn hosts_alone_are_published() {
    let change = || json!({"list": [[["rw", 1, "a", 1]], [["ro", 5, "b", 2], ["rw", 1, "b", 1]]]});
    let Ok(Planned::Publish(map)) = apply(Some(&steady()), change()) else { panic!() };
    assert_eq!((map.epoch, map.phase, &map.curr, map.shards[1].len()), (8, Phase::Steady, &hash(2), 2));
    let Ok(Planned::Publish(map)) = apply(Some(&steady()), json!({"list": list("a b c")})) else { panic!() };
    assert_eq!((map.shards.len(), &map.curr), (3, &hash(2)), "a shard more that nothing uses yet");
}

#[test]
fn hosts_change_under_way_in_the_same_phase() {
    let moved = json!({"list": list("a b d")});
    let Ok(Planned::Publish(map)) = apply(Some(&resharding()), moved.clone()) else { panic!() };
    assert_eq!((map.epoch, map.phase, map.transition), (10, Phase::Resharding, 9));
    assert_eq!((map.prev, map.curr), (Some(hash(2)), hash(3)));
    let preparing = ShardMap { epoch: 8, phase: Phase::Preparing, ..resharding() };
    let Ok(Planned::Publish(map)) = apply(Some(&preparing), moved) else { panic!() };
    assert_eq!((map.epoch, map.phase, map.transition), (9, Phase::Preparing, 10));
}

#[test]
fn another_curr_is_a_transition() {
    let (map, keep) = transition(&steady(), json!({"list": list("a b c"), "curr": {"function": "hash"}}));
    assert_eq!((map.epoch, map.phase, map.transition, keep), (8, Phase::Preparing, 9, 3));
    assert_eq!((map.curr, map.prev, map.shards.len()), (hash(3), Some(hash(2)), 3));
    let (map, keep) = transition(&steady(), json!({"curr": {"function": "jump"}}));
    assert_eq!((map.shards.len(), map.prev, keep), (2, Some(hash(2)), 2));
    let (map, _) = transition(&steady(), json!({"curr": {"function": "jump"}, "prev": hash(2)}));
    assert_eq!((map.prev, map.keeps), (Some(hash(2)), false));
    refused(
        Some(&steady()),
        json!({"curr": {"function": "jump"}, "prev": {"function": "modulo"}}),
        "prev: keys are where hash over 2 has them",
    );
}

#[test]
fn owners_keep_what_they_have_when_prev_is_given_to_a_steady_map() {
    let (map, _) = transition(&steady(), json!({"prev": {"function": "constant", "shard": 1}}));
    assert_eq!((map.curr.clone(), map.prev.clone()), (hash(2), Some(Function::Constant { shard: 1 })));
    assert!(map.keeps);
    assert_eq!(ShardMap::from_json(&map.to_json()).unwrap(), map);
}

#[test]
fn the_list_of_a_transition_has_old_and_new_shards() {
    let (map, keep) = transition(&steady(), json!({"list": list("a"), "curr": {"function": "hash"}}));
    assert_eq!((map.curr.clone(), map.shards.len(), keep), (hash(1), 2, 1));
    let after = ShardMap { phase: Phase::Steady, prev: None, transition: 0, ..map.clone() };
    assert_eq!(map.trimmed(keep).shards.len(), 2, "prev still uses both");
    assert_eq!(after.trimmed(keep).shards, [shard("a")]);
    refused(
        Some(&steady()),
        json!({"list": list("b"), "curr": {"function": "hash"}}),
        "shards[1][0].address: b:1 is also the address of shards[0][0]",
    );
}

#[test]
fn shards_in_use_are_not_dropped() {
    let (steady, resharding) = (steady(), resharding());
    refused(Some(&steady), json!({"list": list("a")}), "list: 1 shards, but curr (hash over 2) uses 2");
    refused(Some(&resharding), json!({"list": list("a b")}), "list: 2 shards, but curr (hash over 3) uses 3");
    let shrinking = ShardMap { curr: hash(2), prev: Some(hash(3)), ..resharding };
    refused(Some(&shrinking), json!({"list": list("a b")}), "list: 2 shards, but prev (hash over 3) uses 3");
    let script = json!({"function": "script", "name": "mine", "version": 1, "source": "return 1"});
    let scripted = ShardMap { curr: serde_json::from_value::<Function>(script).unwrap().filled(2), ..steady };
    refused(
        Some(&scripted),
        json!({"list": list("a")}),
        "list: 1 shards, but curr (script mine version 1) uses 2",
    );
}

#[test]
fn one_transition_at_a_time() {
    for map in [resharding(), finishing()] {
        let said =
            format!("{} towards hash over 3 is under way; wait until it is steady, or abort", map.phase);
        refused(Some(&map), json!({"curr": {"function": "jump"}}), &said);
        refused(Some(&map), json!({"curr": {"function": "jump"}, "list": list("a b c d")}), &said);
        refused(Some(&map), json!({"prev": {"function": "jump"}}), &said);
    }
    assert_eq!(apply(Some(&resharding()), json!({"prev": hash(2)})), Ok(Planned::Unchanged));
}

#[test]
fn prev_off_ends_the_transition() {
    assert_eq!(apply(Some(&resharding()), json!({"prev": false})), Ok(Planned::Drop));
    refused(
        Some(&resharding()),
        json!({"prev": false, "list": list("a b d")}),
        "prev: false ends the transition",
    );
    refused(
        Some(&steady()),
        json!({"prev": false, "curr": {"function": "jump"}}),
        "prev: false together with",
    );
}

#[test]
fn what_a_node_prefers_is_read_and_is_no_part_of_the_map() {
    let this = |value: Value| Change::from_json(&json!({ "this": value })).unwrap().this;
    assert_eq!(
        (this(json!(0)), this(json!(2))),
        (Some(Some(This::Nothing)), Some(Some(This::Shard(ShardNo(2)))))
    );
    assert_eq!(this(json!(false)), Some(None));
    assert_eq!(apply(Some(&steady()), json!({"this": 2})), Ok(Planned::Unchanged));
}

#[test]
fn mistakes_name_the_parameter() {
    let map = steady();
    refused(Some(&map), json!([]), "config: not an object");
    refused(Some(&map), json!({"lists": []}), "lists: unknown; list, this, curr and prev");
    refused(Some(&map), json!({"this": "a"}), "this: the number of the shard");
    refused(Some(&map), json!({"this": -1}), "this: the number of the shard");
    refused(Some(&map), json!({"mode": "ro"}), "mode: a node has none");
    refused(Some(&map), json!({"list": []}), "list: empty");
    refused(Some(&map), json!({"list": [[["ro", 1, "a", 1]]]}), "list[0]: no rw host");
    refused(
        Some(&map),
        json!({"list": [[["rw", 1, "a", 1], ["ro", 1200, "a", 2]]]}),
        "list[0][1].weight: 1200",
    );
    refused(Some(&map), json!({"curr": 7}), "curr: ");
    refused(
        Some(&map),
        json!({"curr": {"function": "hash", "shards": 3}}),
        "curr.shards: 3 is outside 1 to 2",
    );
    refused(Some(&map), json!({"prev": true}), "prev: ");
    refused(
        Some(&map),
        json!({"prev": {"function": "constant", "shard": 3}}),
        "prev.shard: 3 is outside 1 to 2",
    );
}
