//! What the functions answer, for good: their answers are where the data is.

use crate::{By, Function, NoScripts, function::jump};
use lockwood_model::{Key, KeyPart};
use serde_json::{Value, json};

fn key(text: &str) -> Key {
    text.parse().unwrap()
}

fn read(value: Value) -> Function {
    serde_json::from_value(value).unwrap()
}

fn shard(function: &Function, collection: &str, text: &str) -> i64 {
    function.shard(collection, &key(text), &NoScripts).unwrap()
}

/// Keys of every kind: numbers of both signs and ends, text, composites.
fn keys() -> impl Iterator<Item = Key> {
    let numbers = (-3000..3000).map(|number| number.to_string());
    let ends = [i64::MIN.to_string(), i64::MAX.to_string(), "%_".to_owned(), "007".to_owned()];
    let text = (0..3000).map(|number| format!("user-{number}"));
    let composites = (0..3000).map(|number| format!("order:{number}:{}", number % 7));
    numbers.chain(ends).chain(text).chain(composites).map(|text| key(&text))
}

/// These may never change: every value is where documents of a live store are.
#[test]
fn golden_values() {
    let texts = ["0", "1", "42", "-7", "user-1", "%_", "order:42", "a:b:c", "9223372036854775807"];
    let check = |name: &str, function: Function, expected: [i64; 9]| {
        assert_eq!(texts.map(|text| shard(&function, "things", text)), expected, "{name}");
    };
    check("hash", Function::Hash { shards: 1000, by: By::Key }, GOLDEN[0]);
    check("hash by first", Function::Hash { shards: 1000, by: By::First }, GOLDEN[1]);
    check("hash by collection", Function::Hash { shards: 1000, by: By::Collection }, GOLDEN[2]);
    check("jump", Function::Jump { shards: 1000, by: By::Key }, GOLDEN[3]);
    check("jump over 5", Function::Jump { shards: 5, by: By::Key }, GOLDEN[4]);
}

const GOLDEN: [[i64; 9]; 5] = [
    [975, 277, 23, 315, 933, 159, 213, 47, 56],
    [975, 277, 23, 315, 933, 159, 821, 26, 56],
    [136, 220, 762, 621, 65, 899, 841, 163, 172],
    [848, 172, 563, 400, 458, 920, 387, 253, 86],
    [3, 2, 2, 2, 1, 3, 5, 1, 2],
];

/// The first answers of the published algorithm, as other implementations of it give them.
#[test]
fn jump_is_the_published_one() {
    let known =
        [(0, 60, 0), (1, 1, 0), (42, 57, 43), (0xDEAD_10CC, 1, 0), (0xDEAD_10CC, 666, 361), (256, 1024, 520)];
    for (hash, buckets, bucket) in known {
        assert_eq!(jump(hash, buckets), bucket, "{hash} in {buckets}");
    }
}

#[test]
fn answers_are_within_range() {
    for shards in [1, 2, 3, 5, 16, 1000] {
        let spread = [By::Key, By::First, By::Collection]
            .into_iter()
            .flat_map(|by| [Function::Hash { shards, by }, Function::Jump { shards, by }]);
        for function in spread {
            for key in keys() {
                let found = function.shard("things", &key, &NoScripts).unwrap();
                assert!((1..=i64::from(shards)).contains(&found), "{function}: {key} is on {found}");
            }
        }
        for number in (-3000..3000).chain([i64::MIN, i64::MAX]) {
            let found =
                Function::Modulo { shards }.shard("things", &Key::number(number), &NoScripts).unwrap();
            assert!((1..=i64::from(shards)).contains(&found), "modulo {shards}: {number} is on {found}");
        }
    }
}

#[test]
fn hashes_are_even() {
    for function in [Function::Hash { shards: 5, by: By::Key }, Function::Jump { shards: 5, by: By::Key }] {
        let mut counts = [0_usize; 5];
        for key in keys() {
            counts[function.shard("things", &key, &NoScripts).unwrap() as usize - 1] += 1;
        }
        let fair = keys().count() / 5;
        assert!(counts.iter().all(|count| count.abs_diff(fair) < fair / 10), "{function}: {counts:?}");
    }
}

#[test]
fn jump_moves_only_what_the_new_shard_takes() {
    for shards in [2, 3, 4, 9] {
        let (before, after) =
            (Function::Jump { shards, by: By::Key }, Function::Jump { shards: shards + 1, by: By::Key });
        let mut moved = 0;
        for key in keys() {
            let (from, to) = (shard_of(&before, &key), shard_of(&after, &key));
            assert!(from == to || to == i64::from(shards) + 1, "{key} goes from {from} to {to}");
            moved += usize::from(from != to);
        }
        let fair = keys().count() / (shards as usize + 1);
        assert!(moved.abs_diff(fair) < fair / 10, "{moved} moved, about {fair} are fair");
    }
}

fn shard_of(function: &Function, key: &Key) -> i64 {
    function.shard("things", key, &NoScripts).unwrap()
}

#[test]
fn a_number_and_its_text_are_one_key() {
    let text = Key::new([KeyPart::new("42")]).unwrap();
    for value in [json!({"function": "hash", "shards": 97}), json!({"function": "modulo", "shards": 97})] {
        assert_eq!(shard_of(&read(value.clone()), &text), shard_of(&read(value), &Key::number(42)));
    }
    let bounds =
        |below| read(json!({"function": "range", "bounds": [{"below": below, "shard": 1}, {"shard": 2}]}));
    assert_eq!(bounds(json!("42")), bounds(json!(42)));
}

#[test]
fn what_is_hashed() {
    let by = |by: &str| read(json!({"function": "hash", "shards": 100_000, "by": by}));
    let (whole, first, collection) = (by("key"), by("first"), by("collection"));
    assert_eq!(read(json!({"function": "hash", "shards": 100_000})), whole);
    assert_eq!(shard(&whole, "a", "order:1"), shard(&whole, "b", "order:1"));
    assert_ne!(shard(&whole, "a", "order:1"), shard(&whole, "a", "order:2"));
    assert_eq!(shard(&first, "a", "order:1"), shard(&first, "b", "order:2"));
    assert_ne!(shard(&first, "a", "order:1"), shard(&first, "a", "other:1"));
    assert_ne!(shard(&collection, "a", "order:1"), shard(&collection, "b", "order:1"));
    assert_ne!(shard(&whole, "a", "x:y"), shard(&whole, "a", "x%3Ay"), "parts do not run into each other");
}

#[test]
fn modulo_counts_from_one_and_wants_numbers() {
    let modulo = Function::Modulo { shards: 3 };
    assert_eq!(["0", "1", "2", "3", "-1", "4:x"].map(|text| shard(&modulo, "a", text)), [1, 2, 3, 1, 3, 2]);
    assert_eq!(modulo.shard("a", &key("x:1"), &NoScripts).unwrap_err(), "\"x\" is not a number");
}

#[test]
fn ranges() {
    let bounds = json!([{"below": 0, "shard": 3}, {"below": 100, "shard": 1}, {"below": "m", "shard": 2}, {"shard": 1}]);
    let range = read(json!({"function": "range", "bounds": bounds}));
    range.validate("curr", 3).unwrap();
    let texts = ["-1", "0", "99", "100", "a:5", "lzz", "m", "zebra"];
    assert_eq!(texts.map(|text| shard(&range, "a", text)), [3, 1, 1, 2, 2, 2, 1, 1]);
    assert_eq!(range.shard_max(), Some(3));
}

#[test]
fn json_round_trips() {
    for value in [
        json!({"function": "hash", "shards": 3, "by": "first"}),
        json!({"function": "jump", "shards": 3, "by": "key"}),
        json!({"function": "modulo", "shards": 3}),
        json!({"function": "modulo"}),
        json!({"function": "range", "bounds": [{"below": "m", "shard": 1}, {"shard": 2}]}),
        json!({"function": "constant", "shard": 2}),
        json!({"function": "script", "name": "mine", "version": 2, "source": "return 1", "hash": "x"}),
    ] {
        assert_eq!(serde_json::to_value(read(value.clone())).unwrap(), value);
    }
}

#[test]
fn what_is_left_out_is_filled_in() {
    let filled = |value: Value| read(value).filled(4);
    assert_eq!(filled(json!({"function": "jump"})), Function::Jump { shards: 4, by: By::Key });
    assert_eq!(filled(json!({"function": "jump", "shards": 3})), Function::Jump { shards: 3, by: By::Key });
    let script = filled(json!({"function": "script", "name": "mine", "version": 1, "source": "return 1"}));
    script.validate("curr", 4).unwrap();
    assert!(matches!(&script, Function::Script { hash, .. } if hash.len() == 32), "{script:?}");
}

#[test]
fn mistakes_name_the_entry() {
    let check = |value: Value, expected: &str| {
        let found = Function::from_json("curr", &value).and_then(|function| function.validate("curr", 3));
        let found = found.unwrap_err().to_string();
        assert!(found.starts_with(expected), "{found}");
    };
    check(json!({"function": "hash", "shards": 0}), "curr: shards: 0; leave it out");
    check(json!({"function": "hash"}), "curr.shards: 0 is outside 1 to 3");
    check(json!({"function": "jump", "shards": 4}), "curr.shards: 4 is outside 1 to 3");
    check(json!({"function": "hash", "shard": 3}), "curr: unknown field `shard`");
    check(json!({"function": "hash", "by": "value"}), "curr: unknown variant `value`");
    check(json!({"function": "crc32"}), "curr: unknown variant `crc32`");
    check(json!({"shards": 3}), "curr: missing field `function`");
    check(json!({"function": "constant", "shard": 0}), "curr.shard: 0 is outside 1 to 3");
    check(json!({"function": "range", "bounds": []}), "curr.bounds: empty");
    let bounds = |bounds: Value| json!({"function": "range", "bounds": bounds});
    check(bounds(json!([{"shard": 4}])), "curr.bounds[0].shard: 4 is outside 1 to 3");
    check(bounds(json!([{"below": 1, "shard": 1}])), "curr.bounds[0]: the last bound has an upper limit");
    check(bounds(json!([{"shard": 1}, {"shard": 2}])), "curr.bounds[0]: no upper limit");
    check(
        bounds(json!([{"below": "a", "shard": 1}, {"below": 5, "shard": 1}, {"shard": 2}])),
        "curr.bounds[1]: 5 does not come after",
    );
    check(bounds(json!([{"below": 1.5, "shard": 1}, {"shard": 2}])), "curr: below: 1.5 is neither");
    let script =
        json!({"function": "script", "name": "mine", "version": 1, "source": "return 1", "hash": "00"});
    check(script, "curr.hash: the source's hash is ");
}
