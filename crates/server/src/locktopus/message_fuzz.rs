//! Messages bent and broken at random: reading them never panics, and what is read means the same when it is
//! written properly and read again.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many messages (default 200,000), `LOCKWOOD_FUZZ_SEED` which ones.

use super::message::{BadResource, Message};
use crate::fuzz::{Case, Random, number};
use lockwood_model::{Mode, PATH_SEGMENTS_CAP, Resource};
use serde_json::json;

const COUNT: u64 = 200_000;
const SEED: u64 = 0x10c7_0905;

/// Messages to start from: what clients send, what the original tolerates, what makes no sense.
const CORPUS: &[&str] = &[
    r#"{"action":"lock","resources":[{"type":"write","path":["a","b"]},{"type":"read","path":["c"]}]}"#,
    r#"{"action":"lock","resources":[{"type":"r","path":[]},{"type":"W"},{"type":"w","path":null}]}"#,
    r#"{"action":"release"}"#,
    r#"{"ACTION":"lock","Resources":[{"tYPE":"R","PATH":[null,"","\u0000","/","🦑","\ud83e\udd91","\\\""]}]}"#,
    r#"{"action":"x","action":"lock","resources":null,"resources":[{"path":["a"],"path":["b"],"type":"w"}]}"#,
    r#"{"action":"lock","resources":[{"type":"w","path":["a"]}]} and then some"#,
    r#"{"action":"release"}{"action":"lock"}"#,
    r#" { "more" : { "deep" : [ [ [ { } ] ] , 1e9 , -0.5 , true , false , null ] } , "action" : "lock" } "#,
    r#"{"action":null,"resources":[null,{},{"type":null}]}"#,
    r#"{"action":3,"resources":{}}"#,
    r#"{"resources":[{"type":"x","path":[3,"a"]},[],"a"]}"#,
    r#"{"action":"lock","resources":[{"type":"w","path":["\ud800","\udc00\ud800"]}]}"#,
    "null",
    "[]",
    "\"lock\"",
    "-1e-7",
    "",
    "\u{feff}{}",
];

/// Pieces that are likely to make a difference where they are put.
const PIECES: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"\\",
    b"\\u",
    b"\\ud83e",
    b"\\udd91",
    b"null",
    b"true",
    b"0",
    b"-",
    b"1e309",
    b" ",
    b"\n",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\xf0\x9f\xa6",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\"action\":\"lock\",",
    b"\"resources\":[",
    b"{\"type\":\"w\",\"path\":[\"a\"]},",
    b"\"path\":[\"",
    b"\"type\":\"R\",",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
];

#[test]
fn broken_messages_never_panic_and_readable_ones_keep_their_meaning() {
    let seed = number("LOCKWOOD_FUZZ_SEED", SEED);
    let count = number("LOCKWOOD_FUZZ_COUNT", COUNT);
    let mut random = Random::new(seed, CORPUS, PIECES);
    let mut read = 0;
    for index in 0..count {
        let bytes = random.message();
        let case = Case { seed, count, index, bytes: &bytes };
        read += u64::from(check(&bytes));
        drop(case);
    }
    // A fuzzer that only ever makes rubbish proves little.
    assert!(count < 1000 || read > count / 50, "only {read} of {count} were readable; seed {seed}");
}

#[test]
fn deep_nesting_does_not_overflow_the_stack() {
    const DEPTH: usize = 100_000;
    for (open, close) in
        [("[", "]"), (r#"{"a":"#, "}"), (r#"{"resources":["#, "]}"), (r#"[{"path":["#, "]}]")]
    {
        let unclosed = open.repeat(DEPTH);
        let closed = format!("{unclosed}null{}", close.repeat(DEPTH));
        for nested in [unclosed, closed] {
            for (before, after) in [
                ("", ""),
                (r#"{"action":"#, "}"),
                (r#"{"resources":"#, "}"),
                (r#"{"resources":["#, "]}"),
                (r#"{"resources":[{"type":"#, "}]}"),
                (r#"{"resources":[{"path":"#, "}]}"),
                (r#"{"resources":[{"path":["#, "]}]}"),
                (r#"{"resources":[{"unknown":"#, "}]}"),
                (r#"{"unknown":"#, "}"),
                (r#"{"action":"lock"}"#, ""),
            ] {
                check(format!("{before}{nested}{after}").as_bytes());
            }
        }
    }
}

/// Says whether it could be read.
fn check(bytes: &[u8]) -> bool {
    let decoded = Message::decode(bytes);
    let lossy = Message::decode(String::from_utf8_lossy(bytes).as_bytes());
    assert_eq!(decoded, lossy, "invalid UTF-8 is replaced, no more");
    let message = match decoded {
        Ok(message) => message,
        Err(reason) => {
            assert!(!reason.is_empty());
            return false;
        }
    };
    let action = message.action.clone();
    let resources = match message.into_resources() {
        Ok(resources) => resources,
        Err(BadResource::Type(reason)) => {
            assert!(reason.contains("invalid lock type"), "{reason}");
            return false;
        }
        Err(BadResource::TooDeep(len)) => {
            assert!(len > PATH_SEGMENTS_CAP);
            return false;
        }
    };
    let again = Message::decode(canonical(&action, &resources).as_bytes()).expect("written properly");
    assert_eq!(again.action, action);
    assert_eq!(again.into_resources().expect("written properly"), resources);
    true
}

/// The message as the official client would write it.
fn canonical(action: &str, resources: &[Resource]) -> String {
    let resources = resources.iter().map(|resource| {
        let kind = if resource.mode == Mode::Write { "write" } else { "read" };
        json!({ "type": kind, "path": resource.path.segments().collect::<Vec<_>>() })
    });
    json!({ "action": action, "resources": resources.collect::<Vec<_>>() }).to_string()
}
