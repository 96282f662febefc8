//! Maps that cannot be, where keys are served, and who is read from.

use crate::{Function, HostMode, NoScripts, Route, Scripts, ShardMap, ShardNo};
use lockwood_model::Key;
use serde_json::{Value, json};

/// Two shards, the second with two hosts that only read.
fn written() -> Value {
    json!({
        "epoch": 7,
        "phase": "steady",
        "shards": [
            [{"mode": "rw", "weight": 100, "address": "a:1"}],
            [["rw", 1, "b", 1], ["ro", 300, "b", 2], ["ro", 100, "b", 3], ["ro", 0, "b", 4]],
        ],
        "curr": {"function": "modulo", "shards": 2},
    })
}

fn read(value: &Value) -> ShardMap {
    ShardMap::from_json(value).unwrap()
}

/// The map with these fields instead.
fn with(fields: &Value) -> Value {
    let mut value = written();
    value.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    value
}

#[track_caller]
fn refused(value: &Value, expected: &str) {
    let found = ShardMap::from_json(value).unwrap_err().to_string();
    assert!(found.starts_with(expected), "{found}");
}

#[test]
fn json_round_trips() {
    let map = read(&written());
    assert_eq!(read(&map.to_json()), map);
    let moving = read(&with(
        &json!({"phase": "preparing", "transition": 8, "prev": {"function": "constant", "shard": 1}}),
    ));
    assert_eq!(read(&moving.to_json()), moving);
}

#[test]
fn shards_that_cannot_be() {
    let shards = |shards: Value| with(&json!({"shards": shards}));
    let one = json!([["rw", 1, "a", 1]]);
    refused(&shards(json!([])), "shards: empty; at least one shard is needed");
    refused(&shards(json!([one, []])), "shards[1]: empty; exactly one rw host is needed");
    refused(&shards(json!([one, [["ro", 1, "b", 1]]])), "shards[1]: no rw host; exactly one is needed");
    refused(
        &shards(json!([[["rw", 1, "b", 1], ["rw", 1, "b", 2]], one])),
        "shards[0]: 2 rw hosts; exactly one",
    );
    let heavy = json!([["rw", 1, "b", 1], ["ro", 1, "b", 2], ["ro", 1200, "b", 3]]);
    refused(&shards(json!([heavy, one])), "shards[0][2].weight: 1200 is more than 1000");
    refused(
        &shards(json!([one, [["rw", 1, "a", 1]]])),
        "shards[1][0].address: a:1 is also the address of shards[0][0]",
    );
    refused(&shards(json!([one, [["rw", 1, "", 1]]])), "shards[1][0].address: \":1\" is not host:port");
    refused(&shards(json!({"a": 1})), "shards: not a list");
}

#[test]
fn a_weight_is_checked_however_the_map_was_made() {
    let mut map = read(&written());
    map.shards[1][2].weight = 1001;
    assert_eq!(map.validate().unwrap_err().to_string(), "shards[1][2].weight: 1001 is more than 1000");
}

#[test]
fn functions_that_cannot_be() {
    refused(&with(&json!({"curr": {"function": "hash", "shards": 3}})), "curr.shards: 3 is outside 1 to 2");
    refused(&with(&json!({"curr": {"function": "hash"}})), "curr.shards: 0 is outside 1 to 2");
    let moving = |prev: Value| with(&json!({"phase": "resharding", "transition": 7, "prev": prev}));
    refused(&moving(json!({"function": "constant", "shard": 3})), "prev.shard: 3 is outside 1 to 2");
    refused(&moving(json!({"function": "constant"})), "prev: missing field `shard`");
    refused(&with(&json!({"prev": true})), "prev: invalid type");
}

#[test]
fn phases_that_cannot_be() {
    let prev = json!({"function": "constant", "shard": 1});
    refused(&with(&json!({"epoch": 0})), "epoch: 0 is outside 1 to");
    refused(&with(&json!({"epoch": u64::MAX})), "epoch: 18446744073709551615 is outside 1 to");
    refused(&with(&json!({"phase": "moving"})), "map: unknown variant `moving`");
    refused(&with(&json!({"phase": "resharding", "transition": 7})), "prev: missing while keys move");
    refused(&with(&json!({"prev": prev})), "prev: given though no key moves");
    refused(&with(&json!({"transition": 7})), "transition: not 0 though steady");
    refused(
        &with(&json!({"phase": "preparing", "prev": prev, "transition": 7})),
        "transition: not the epoch after",
    );
    refused(&with(&json!({"phase": "resharding", "prev": prev})), "transition: 0 though not steady");
    refused(
        &with(&json!({"phase": "resharding", "prev": prev, "transition": 8})),
        "transition: after the map's",
    );
    refused(
        &with(&json!({"phase": "resharding", "prev": prev, "transition": 7, "reverses": 7})),
        "reverses: not an earlier transition",
    );
    refused(&with(&json!({"reverses": 3})), "reverses: not an earlier transition");
    refused(&with(&json!({"colour": 3})), "map: unknown field `colour`");
    refused(&json!(7), "map: ");
}

#[test]
fn where_a_key_is_served() {
    let routes = |fields: Value| {
        let map = read(&with(&fields));
        [4, 5].map(|number| map.route("things", &Key::number(number), &NoScripts).unwrap())
    };
    let (one, two) = (ShardNo(1), ShardNo(2));
    let prev = json!({"function": "constant", "shard": 1});
    assert_eq!(routes(json!({})), [Route::Owner(one), Route::Owner(two)]);
    let preparing = routes(json!({"phase": "preparing", "prev": prev, "transition": 8}));
    assert_eq!(preparing, [Route::Owner(one), Route::Moving { from: one, to: two }]);
    let resharding = routes(json!({"phase": "resharding", "prev": prev, "transition": 7}));
    assert_eq!(resharding, [Route::Owner(one), Route::Pulled { owner: two, donor: one }]);
    let finishing = routes(json!({"phase": "finishing", "transition": 6}));
    assert_eq!(finishing, [Route::Owner(one), Route::Owner(two)]);
}

/// Answers the same for every key.
struct Always(i64);

impl Scripts for Always {
    fn shard(&self, function: &Function, _: &str, _: &Key) -> Result<i64, String> {
        assert!(matches!(function, Function::Script { .. }));
        Ok(self.0)
    }
}

#[test]
fn a_key_without_a_shard_is_told_why() {
    let script = json!({"function": "script", "name": "mine", "version": 3, "source": "return 1"});
    let mut map = read(&written());
    map.prev = Some(map.curr.clone());
    map.curr = serde_json::from_value::<Function>(script).unwrap().filled(2);
    let route = |text: &str, scripts: &dyn Scripts| map.route("things", &text.parse().unwrap(), scripts);
    let said = |text: &str, scripts: &dyn Scripts| route(text, scripts).unwrap_err().to_string();
    let outside = " for things/9, which is outside 1 to 2, the shards of the list";
    for answer in [0, 3, -1, i64::MIN, i64::MAX] {
        let expected = format!("curr (script mine version 3) answers {answer}{outside}");
        assert_eq!(said("9", &Always(answer)), expected);
    }
    assert!(said("9", &NoScripts).starts_with("curr (script mine version 3) has no answer for things/9: "));
    let without_donor = route("x:1", &Always(2)).unwrap();
    assert_eq!(without_donor, Route::Owner(ShardNo(2)), "nobody had what prev has no answer for");
    assert_eq!(route("9", &Always(2)).unwrap(), Route::Owner(ShardNo(2)));
}

#[test]
fn hosts_of_a_shard() {
    let map = read(&written());
    assert_eq!(map.rw_host(ShardNo(2)).unwrap().address, "b:1");
    assert!(map.rw_host(ShardNo(0)).is_none() && map.rw_host(ShardNo(3)).is_none());
    assert_eq!(map.addresses().collect::<Vec<_>>(), ["a:1", "b:1", "b:2", "b:3", "b:4"]);
    assert_eq!(map.shard_numbers().collect::<Vec<_>>(), [ShardNo(1), ShardNo(2)]);
}

/// A fixed sequence that is as good as random (SplitMix64).
fn dice(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|index| {
        let mut number = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        number ^ (number >> 31)
    })
}

#[test]
fn reads_are_spread_by_weight() {
    let map = read(&with(&json!({"shards": [
        [["rw", 1, "a", 1]],
        [["rw", 500, "b", 1], ["ro", 300, "b", 2], ["ro", 100, "b", 3], ["ro", 0, "b", 4], ["ro", 1000, "b", 5]],
    ]})));
    let weights = [("b:1", 0.0), ("b:2", 300.0), ("b:3", 100.0), ("b:4", 0.0), ("b:5", 1000.0)];
    let count = 100_000;
    let mut found = [0_u32; 5];
    for dice in dice(count) {
        let host = map.pick_ro(ShardNo(2), dice).unwrap();
        found[weights.iter().position(|(address, _)| *address == host.address).unwrap()] += 1;
    }
    assert_eq!((found[0], found[3]), (0, 0), "neither rw nor weight 0 while others have a weight");
    let square = |(index, (_, weight)): (usize, &(&str, f64))| {
        let expected = weight / 1400.0 * count as f64;
        if expected == 0.0 { 0.0 } else { (f64::from(found[index]) - expected).powi(2) / expected }
    };
    let chi_square: f64 = weights.iter().enumerate().map(square).sum();
    assert!(chi_square < 13.8, "{found:?} differ by {chi_square}; 1 in 1000 for two degrees of freedom");
}

#[test]
fn a_host_without_weight_is_the_last_resort() {
    let pick = |shard: Value| {
        let map = read(&with(&json!({"shards": [shard], "curr": {"function": "constant", "shard": 1}})));
        let picked: Vec<_> = dice(100).map(|dice| map.pick_ro(ShardNo(1), dice).unwrap().mode).collect();
        assert!(picked.iter().all(|mode| *mode == picked[0]));
        picked[0]
    };
    assert_eq!(pick(json!([["rw", 5, "a", 1], ["ro", 0, "a", 2]])), HostMode::Rw);
    assert_eq!(pick(json!([["rw", 0, "a", 1], ["ro", 0, "a", 2]])), HostMode::Rw);
    assert_eq!(pick(json!([["rw", 0, "a", 1]])), HostMode::Rw);
    assert_eq!(pick(json!([["rw", 1000, "a", 1], ["ro", 1, "a", 2]])), HostMode::Ro);
    assert!(read(&written()).pick_ro(ShardNo(9), 0).is_none());
}
