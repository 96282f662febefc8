//! Requests bent and broken at random: reading and answering them never panics, and what is wrong with them is
//! always the client's mistake.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many bodies (default 10,000), `LOCKWOOD_FUZZ_SEED` which ones.

use super::{
    answer::Refusal,
    read::{Library, Question},
    request::{document_limits, read_call, read_reserve, read_volatile},
};
use crate::fuzz::{Case, Random, number};
use hyper::StatusCode;
use lockwood_engine::NoRules;
use lockwood_model::{Budget, Timestamp};
use lockwood_node::{
    limits::Limits,
    shard::{Shard, ShardLimits},
};
use lockwood_storage::Memory;
use std::sync::Arc;
use tokio::runtime::Runtime;

const COUNT: u64 = 10_000;
const SEED: u64 = 0x0de5_1de5;
const NAMESPACE: &str = "openslides";

const ROUTES: [&str; 10] = [
    "get",
    "get_many",
    "get_all",
    "get_everything",
    "filter",
    "exists",
    "count",
    "min",
    "max",
    "history_information",
];

/// Bodies to start from: what clients send, and what makes no sense.
const CORPUS: &[&str] = &[
    r#"{"user_id":1,"information":["x"],"locked_fields":{},"events":[{"type":"create","fqid":"a/1","fields":{"f":1,"l":[1,"x"],"n":null}}]}"#,
    r#"[{"user_id":-1,"information":{},"locked_fields":{"a/1":9,"a/1/f":1.0,"a/f":{"position":9,"filter":{"field":"f","operator":"=","value":1}}},"events":[{"type":"update","fqid":"a/1","fields":{"f":null,"g":{"x":[[]]}},"list_fields":{"add":{"l":[2,"\u00e9"]},"remove":{"l":[1]}}}]}]"#,
    r#"{"user_id":0,"information":null,"migration_index":7,"locked_fields":{"a/l":[{"position":1},{"position":2,"filter":{"and_filter":[{"not_filter":{"field":"f","operator":"!=","value":null}}]}}]},"events":[{"type":"delete","fqid":"a/1"},{"type":"restore","fqid":"a/1"}]}"#,
    r#"[{"user_id":1,"information":0,"locked_fields":{},"events":[{"type":"update","fqid":"action_worker/1","fields":{"state":"end","x":null}}]}]"#,
    r#"[{"user_id":1,"information":0,"locked_fields":{},"events":[{"type":"delete","fqid":"action_worker/1"},{"type":"delete","fqid":"import_preview/2"}]}]"#,
    r#"{"collection":"a","amount":3}"#,
    r#"{"fqid":"a/1","mapped_fields":["f","meta_position"],"position":1,"get_deleted_models":3}"#,
    r#"{"requests":[{"collection":"a","ids":[1,2],"mapped_fields":["f"]},{"collection":"b","ids":[]}],"mapped_fields":["g"],"position":2}"#,
    r#"{"requests":["a/1/f","a/1/g","b/2/meta_deleted"],"get_deleted_models":2}"#,
    r#"{"collection":"a","filter":{"or_filter":[{"field":"f","operator":">=","value":1},{"and_filter":[{"field":"s","operator":"%=","value":"a_%\\%"},{"not_filter":{"field":"meta_deleted","operator":"=","value":false}}]}]},"mapped_fields":["f"],"field":"f","type":"int"}"#,
    r#"{"collection":"a","filter":{"field":"l","operator":"=","value":[1,{"a":1e5}]},"field":"meta_position"}"#,
    r#"{"fqids":["a/1","a/2","action_worker/1"]}"#,
    r#"{"user_id":1e3,"information":"\ud83d\ude00","locked_fields":{"meta/meta":1},"events":[{"type":"create","fqid":"abc_def/2147483647","fields":{"f_$_x":"\ud800"}}]}"#,
    "null",
    "[]",
    "\"a/1\"",
    "-1e-7",
    "",
    "\u{feff}{}",
];

const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\ud83e",
    b"null",
    b"true",
    b"0",
    b"-",
    b".5",
    b"1e309",
    b"99999999999999999999999999999999999999999",
    b"\n",
    b"\0",
    b"\xff",
    b"\xf0\x9f\xa6",
    b"\"value\":null,",
    b"\"events\":[],",
    b"\"a/1\":1,",
    b"\"fqid\":\"a/2\",",
    b"{\"type\":\"delete\",\"fqid\":\"a/1\"},",
    b"{\"type\":\"create\",\"fqid\":\"b/7\",\"fields\":{}},",
    b"{\"not_filter\":",
    b"{\"and_filter\":[",
    b"[[[[[[[[[[[[[[[[",
];

#[test]
fn whatever_is_sent_the_answer_is_a_success_or_the_senders_mistake() {
    let seed = number("LOCKWOOD_FUZZ_SEED", SEED);
    let count = number("LOCKWOOD_FUZZ_COUNT", COUNT);
    let mut random = Random::new(seed, CORPUS, PIECES);
    let facade = Facade::new();
    let mut done = 0;
    for index in 0..count {
        let bytes = random.message();
        let case = Case { seed, count, index, bytes: &bytes };
        done += u64::from(facade.check(&bytes));
        drop(case);
    }
    // A fuzzer that only ever makes rubbish proves little.
    assert!(count < 1000 || done > count / 50, "only {done} of {count} were done; seed {seed}");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    const DEPTH: usize = 50_000;
    let facade = Facade::new();
    let around = [
        ("", ""),
        (r#"{"collection":"a","filter":"#, "}"),
        (r#"{"collection":"a","filter":{"field":"f","operator":"=","value":"#, "}}"),
        (
            r#"{"user_id":1,"information":"#,
            r#","locked_fields":{},"events":[{"type":"delete","fqid":"a/1"}]}"#,
        ),
        (
            r#"{"user_id":1,"information":0,"locked_fields":{"a/f":{"position":1,"filter":"#,
            r#"}},"events":[]}"#,
        ),
        (r#"{"user_id":1,"information":0,"locked_fields":{},"events":["#, "]}"),
        (
            r#"{"user_id":1,"information":0,"locked_fields":{},"events":[{"type":"create","fqid":"a/1","fields":{"f":"#,
            "}}]}",
        ),
        (r#"{"fqid":"a/1","unknown":"#, "}"),
    ];
    for (open, close) in
        [("[", "]"), (r#"{"a":"#, "}"), (r#"{"not_filter":"#, "}"), (r#"{"and_filter":["#, "]}")]
    {
        for (before, after) in around {
            let (nested, end) = (open.repeat(DEPTH), close.repeat(DEPTH));
            facade.check(format!("{before}{nested}null{end}{after}").as_bytes());
            facade.check(format!("{before}{nested}").as_bytes());
        }
    }
}

struct Facade {
    shard: Shard,
    limits: Limits,
    runtime: Runtime,
}

impl Facade {
    fn new() -> Facade {
        let limits = ShardLimits { pending_bytes_max: u64::MAX, namespaces_max: 10 };
        let shard = Shard::open(Arc::new(Memory::default()), limits).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Facade { shard, limits: Limits::default(), runtime }
    }

    /// Sends the body to every route; says whether any of them did something.
    fn check(&self, body: &[u8]) -> bool {
        let mut done = [self.write(body), self.keep(body), self.reserve(body)].map(succeeded).contains(&true);
        for route in ROUTES {
            let question = Question::named(route).unwrap();
            let allowed = (&self.limits, &Budget::unlimited());
            let library = Library::open(self.shard.read(), NAMESPACE, allowed, Arc::default()).unwrap();
            let answer = library.answer(question, body);
            if let Ok(json) = &answer {
                let read: Result<serde_json::Value, _> = serde_json::from_slice(json);
                assert!(read.is_ok(), "{route} answers {}", json.escape_ascii());
            }
            done |= succeeded(answer.map(drop));
        }
        done
    }

    fn write(&self, body: &[u8]) -> Result<(), Refusal> {
        let call = read_call(body, &self.limits)?;
        let pending = self.shard.decide_write(NAMESPACE, &call, &NoRules, Timestamp(1))?;
        Ok(self.runtime.block_on(self.shard.settle_write(&call, pending)).map(drop)?)
    }

    fn keep(&self, body: &[u8]) -> Result<(), Refusal> {
        let keep = read_volatile(body, &self.limits)?;
        let pending = self.shard.decide_keep(NAMESPACE, &keep, document_limits(&self.limits), &NoRules)?;
        Ok(self.runtime.block_on(self.shard.settle(pending))?)
    }

    fn reserve(&self, body: &[u8]) -> Result<(), Refusal> {
        let (collection, amount) = read_reserve(body, &self.limits)?;
        let reserved = self.shard.reserve_up_to(NAMESPACE, &collection, amount, i32::MAX as u64);
        Ok(self.runtime.block_on(reserved).map(drop)?)
    }
}

/// Refusals must be the sender's mistake, and be JSON.
fn succeeded(outcome: Result<(), Refusal>) -> bool {
    let Err(refusal) = outcome else { return true };
    let shown = format!("{refusal:?}");
    assert_eq!(refusal.into_answer("\n").status(), StatusCode::BAD_REQUEST, "{shown}");
    false
}
