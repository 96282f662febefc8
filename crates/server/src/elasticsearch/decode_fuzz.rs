//! Bodies bent and broken at random: reading them never panics, and what is wrong with them is always the client's
//! mistake.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many (default 10,000), `LOCKWOOD_FUZZ_SEED` which ones.

use super::{
    answer::Refusal,
    change::{Current, Write},
    library::Library,
    name::At,
    request::{Params, Reader, text},
    route::{Route, Scope},
    search::Search,
    source::Source,
};
use crate::fuzz::{Case, Random, number};
use lockwood_node::limits::Limits;

const COUNT: u64 = 10_000;
const SEED: u64 = 0xe1a5_71c5;

/// Bodies to start from: what clients send, and what makes no sense.
const CORPUS: &[&str] = &[
    r#"{"upsert":{"process_id":123},"script":{"lang":"groovy","file":"judge-lock","params":{"process_id":123}}}"#,
    r#"{"upsert":{"lock_type":"shared","lock_count":1},"script":{"id":"judge-lock-2"},"scripted_upsert":true}"#,
    r#"{"script":"if ( ctx._source.process_id != process_id ) { assert false }; ctx.op = 'noop';","params":{"process_id":1}}"#,
    r#"{"script":{"source":"if (--ctx._source.lock_count == 0) { ctx.op = 'delete' }"}}"#,
    r#"{"doc":{"name":"README1.txt","deep":{"a":[1,2.5e3]}},"doc_as_upsert":true,"detect_noop":false}"#,
    r#"{"query":{"bool":{"filter":[{"term":{"process_id":123}}],"must_not":{"ids":{"values":[1,"2"]}}}},"size":1000,"from":0,"sort":"_doc","_source":["a"]}"#,
    r#"{"query":{"range":{"lock_count":{"gte":1,"lt":2}}},"sort":[{"_doc":{"order":"asc"}}]}"#,
    "{\"delete\":{\"_id\":1}}\n{\"index\":{\"_index\":\"a\",\"_type\":\"b\"}}\n{\"x\":null}\n{\"update\":{\"_id\":\"x\",\"retry_on_conflict\":2}}\n{\"doc\":{}}\n",
    "/fs/lock/%2Fclinton%2Fprojects/_update",
    "{}",
    "null",
    "",
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
    b"-1",
    b".5",
    b"1e309",
    b"99999999999999999999999",
    b"\n",
    b"\0",
    b"\xff",
    b"\"doc\":{},",
    b"\"script\":",
    b"\"query\":{\"bool\":{\"must\":[",
    b"%",
    b"%2F",
    b"/",
    b"_doc",
    b"ctx._source.a",
    b"[[[[[[[[[[[[[[[[",
];

#[test]
fn whatever_is_sent_it_is_read_or_the_senders_mistake() {
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
        (r#"{"query":"#, "}"),
        (r#"{"doc":{"a":"#, "}}"),
        (r#"{"script":{"source":"a","params":{"a":"#, "}}}"),
        ("{\"index\":{\"_id\":1}}\n", "\n"),
    ];
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"{"bool":{"must":"#, "}}")] {
        for (before, after) in around {
            let (nested, end) = (open.repeat(DEPTH), close.repeat(DEPTH));
            facade.check(format!("{before}{nested}null{end}{after}").as_bytes());
            facade.check(format!("{before}{nested}").as_bytes());
        }
    }
}

struct Facade {
    limits: Limits,
    library: Library,
    at: At,
}

impl Facade {
    fn new() -> Facade {
        let limits = Limits::default();
        let at = At::new(&limits, "fs", "lock", "1").unwrap();
        Facade { library: Library::open(None, 1000).unwrap(), limits, at }
    }

    /// Reads the body as everything it could be, and decides what is a write; says whether it was anything.
    fn check(&self, body: &[u8]) -> bool {
        let Ok(text) = text(body) else { return false };
        let reader = Reader { limits: &self.limits, library: &self.library };
        let writes =
            [reader.index(text, false), reader.index(text, true), reader.update(text, &Params::default())];
        let written = writes.map(|write| succeeded(write.and_then(|write| self.decide(&write))));
        let scope = Scope { index: Some("fs".to_owned()), collection: None };
        let bulk = reader.bulk(text, &scope).map(|items| {
            for item in items {
                succeeded(item.write.and_then(|write| self.decide(&write)));
            }
        });
        let search = Search::read(&self.limits, false, text, &Params::default(), false);
        let path = Route::read(text).map(drop);
        let read = [succeeded(bulk), succeeded(search.map(drop)), succeeded(path)];
        succeeded(Params::read(Some(text)).map(drop));
        written.contains(&true) || read[..2].contains(&true)
    }

    fn decide(&self, write: &Write) -> Result<(), Refusal> {
        let source = Source::read(r#"{"process_id":123,"lock_type":"shared","lock_count":1}"#, 9).unwrap();
        let current = Current { source, version: 1, seq_no: 1 };
        write.decide(&self.at, None).map(drop).or(write.decide(&self.at, Some(&current)).map(drop))
    }
}

/// Refusals must be the sender's mistake, and be JSON.
fn succeeded(outcome: Result<(), Refusal>) -> bool {
    let Err(refusal) = outcome else { return true };
    let error: Result<serde_json::Value, _> = serde_json::from_str(&refusal.object());
    assert!(error.is_ok() && refusal.status.is_client_error(), "{refusal:?}");
    false
}
