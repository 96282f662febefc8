//! How fast functions are called on this machine, and how long a sandbox takes to start.

use lockwood_model::{Json, Key};
use lockwood_script::{Documents, Invocation, Procedure, ScriptLimits, ShardFunction};
use std::{hint::black_box, time::Instant};

const MODULO: &str = "return function(collection, key) return key % 16 + 1 end";

const HASH: &str = "
local function hash(text)
    local h = 5381
    for i = 1, #text do
        h = bit32.band(h * 33 + string.byte(text, i), 0xffffffff)
    end
    return h
end
return function(collection, key) return hash(collection .. '/' .. key) % 16 + 1 end";

const COUNT: &str = "
return function(db, key, by)
    local document = db.get('counters', key) or { n = 0 }
    db.put('counters', key, { n = document.n + by })
    return document.n + by
end";

struct Nothing;

type Fields = Vec<(Box<str>, Json)>;

impl Documents for Nothing {
    fn get(&mut self, _: &str, _: &Key) -> Result<Option<Fields>, String> {
        Ok(Some(vec![("n".into(), Json::trusted("41"))]))
    }
    fn put(&mut self, _: &str, _: &Key, _: Fields) -> Result<(), String> {
        Ok(())
    }
    fn insert(&mut self, _: &str, _: &Key, _: Fields) -> Result<(), String> {
        Ok(())
    }
    fn update(&mut self, _: &str, _: &Key, _: Fields) -> Result<(), String> {
        Ok(())
    }
    fn delete(&mut self, _: &str, _: &Key) -> Result<(), String> {
        Ok(())
    }
}

fn main() {
    let limits = ScriptLimits::SHARD_FUNCTION;
    let modulo = ShardFunction::compile("modulo", MODULO, limits).expect("compile");
    let numbers: Vec<Key> = (0..1000).map(Key::number).collect();
    rate("key % 16 + 1", 1_000_000, |n| {
        black_box(modulo.shard("orders", &numbers[n % 1000]).expect("answer"));
    });
    let hash = ShardFunction::compile("hash", HASH, limits).expect("compile");
    let texts: Vec<Key> = (0..1000).map(|n| format!("customer-{n:08}").parse().expect("a key")).collect();
    rate("hash of 24 bytes, loop in Luau", 200_000, |n| {
        black_box(hash.shard("orders", &texts[n % 1000]).expect("answer"));
    });
    let pairs: Vec<Key> = (0..1000).map(|n| format!("eu:{n}").parse().expect("a key")).collect();
    let second = "return function(collection, key) return key[2] % 16 + 1 end";
    let second = ShardFunction::compile("second", second, limits).expect("compile");
    rate("second of two parts", 500_000, |n| {
        black_box(second.shard("orders", &pairs[n % 1000]).expect("answer"));
    });
    let count = Procedure::compile("count", COUNT, ScriptLimits::PROCEDURE).expect("compile");
    let arguments = [Json::trusted("1")];
    rate("procedure: one get, one put", 100_000, |n| {
        let call = Invocation { key: Some(&numbers[n % 1000]), arguments: &arguments };
        black_box(count.run(&call, &mut Nothing).expect("answer"));
    });
    rate("compile and start a sandbox", 2_000, |_| {
        black_box(ShardFunction::compile("modulo", MODULO, limits).expect("compile"));
    });
    let endless = ShardFunction::compile("endless", "return function() while true do end end", limits)
        .expect("compile");
    rate("endless loop, stopped after 50,000 steps", 200, |_| {
        endless.shard("orders", &numbers[0]).expect_err("it does not end");
    });
}

fn rate(what: &str, times: usize, mut call: impl FnMut(usize)) {
    let start = Instant::now();
    (0..times).for_each(&mut call);
    let each = start.elapsed().as_secs_f64() / times as f64;
    println!("{what:45} {:9.2} µs {:12.0} /s", each * 1e6, 1.0 / each);
}
