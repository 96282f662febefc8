//! Damaged write calls and filters: the decoder refuses them or reads them, and never falls over.

use crate::{
    Code,
    documents::{BodyError, FilterLimits, WireFilter, WireLock, WriteCall, read_body},
    fuzz::{self, NESTING},
};
use lockwood_model::Filter;

const LIMITS: FilterLimits =
    FilterLimits { filter_depth_max: 50, filter_conditions_max: 1000, json_depth_max: 50 };

/// Every kind of event and lock, with every kind of value.
const CALLS: &[&str] = &[
    r#"{"events":[{"type":"create","collection":"user","key":42,"fields":{"name":"ann \u00fc\n","age":1.50}}]}"#,
    r#"{"events":[{"type":"put","collection":"user","key":"order:42","fields":{}}],"idempotency_key":"k1"}"#,
    r#"{"events":[{"key":["a:b",42,""],"fields":{"x":null},"add":{"l":[1,"x"]},"remove":{"m":[]},"collection":"c","type":"update"}]}"#,
    r#"{"events":[{"type":"delete","collection":"u","key":"a%3Ab:%_"},{"type":"restore","collection":"u","key":-7}],"user":{"id":7},"note":null}"#,
    r#"{"events":[],"locks":[{"collection":"u","key":1,"position":5},{"collection":"u","key":1,"field":"f","position":18446744073709551615}]}"#,
    r#"{"events":[],"locks":[{"collection":"u","field":"f","filter":{"not":{"field":"a","op":"=","value":null}},"position":6}]}"#,
    r#"{"requests":[{"events":[],"user":1},{"events":[{"type":"delete","collection":"u","key":1}]}],"idempotency_key":"k"}"#,
    r#"  { "requests" : [ ] }  "#,
];

/// Every kind of filter.
const FILTERS: &[&str] = &[
    r#"{"field":"age","op":">=","value":18}"#,
    r#"{"op":"!=","value":null,"field":"meta_deleted"}"#,
    r#"{"and":[{"field":"name","op":"~=","value":"b\u00f6b"},{"or":[]},{"not":{"field":"l","op":"=","value":[1,{"a":2.0}]}}]}"#,
    r#"{"or":[{"field":"a.\"b.c\"","op":"%=","value":"a\\%_%"},{"field":"x","op":"<","value":-1e3},{"and":[]}]}"#,
    r#"  { "not" : { "not" : { "field" : "a" , "op" : "=" , "value" : "\ud83d\ude00" } } }  "#,
];

/// Pieces that parsers have stumbled over.
const PIECES: &[&str] = &[
    "null",
    "true",
    "-1",
    "-0",
    "1e999",
    "0.5",
    "9223372036854775808",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[]",
    "{}",
    "[[",
    "}}",
    ",",
    ":",
    "\\",
    "%",
    "%2",
    "::",
    "\u{feff}",
    "\u{0}",
    "\"fields\":{},",
    "\"type\":\"put\",",
    "\"and\":[],",
    "\"not\":",
    "\"value\":null,",
];

#[test]
fn damaged_calls_never_bring_the_decoder_down() {
    fuzz::damage(CALLS, PIECES, check_call);
}

#[test]
fn damaged_filters_never_bring_the_decoder_down() {
    fuzz::damage(FILTERS, PIECES, check_filter);
}

#[test]
fn the_corpus_is_sound() {
    for text in CALLS {
        assert!(check_call(text.as_bytes()), "{text}");
    }
    for text in FILTERS {
        assert!(check_filter(text.as_bytes()), "{text}");
    }
}

#[test]
fn every_beginning_is_looked_at() {
    for text in CALLS {
        for len in 0..text.len() {
            check_call(&text.as_bytes()[..len]);
        }
    }
    for text in FILTERS {
        for len in 0..text.len() {
            check_filter(&text.as_bytes()[..len]);
        }
    }
}

#[test]
fn deep_nesting_is_refused_wherever_it_is() {
    let deep = [("[", "]"), ("{\"a\":", "}"), ("{\"not\":", "}"), ("{\"and\":[", "]}")];
    let around = [
        ("", ""),
        ("{\"events\":", "}"),
        ("{\"events\":[{\"type\":\"delete\",\"collection\":\"a\",\"key\":", "}]}"),
        ("{\"requests\":[", "]}"),
        ("{\"x\":", "}"),
    ];
    for (open, close) in deep {
        let nested = format!("{}1{}", open.repeat(NESTING), close.repeat(NESTING));
        for (before, after) in around {
            assert!(read_call(format!("{before}{nested}{after}").as_bytes()).is_err());
        }
        assert!(read_filter(nested.as_bytes()).is_err());
        // Where any value may stand, only reading it with a limit tells; nothing recurses before that.
        let call = read_call(format!("{{\"events\":[],\"user\":{nested}}}").as_bytes()).unwrap();
        let user = call.requests[0].user.as_ref().unwrap();
        assert_eq!(user.read(50).unwrap_err().code, Code::JsonTooDeep);
        let lock = format!("{{\"collection\":\"a\",\"field\":\"f\",\"position\":1,\"filter\":{nested}}}");
        assert!(read_body::<WireLock>(lock.as_bytes()).unwrap().target(LIMITS).is_err());
    }
}

/// Decodes, and writes and reads again what was read; says whether it was a call.
fn check_call(text: &[u8]) -> bool {
    let Ok(call) = read_call(text) else { return false };
    let written = serde_json::to_string(&call).unwrap();
    assert_eq!(read_call(written.as_bytes()).as_ref(), Ok(&call), "{written}");
    for request in &call.requests {
        request.locks.iter().for_each(|lock| drop(lock.target(LIMITS)));
    }
    true
}

fn check_filter(text: &[u8]) -> bool {
    let Ok(filter) = read_filter(text) else { return false };
    let written = WireFilter::from(&filter);
    assert_eq!(written.read(LIMITS), Ok(filter), "{written:?}");
    true
}

fn read_call(text: &[u8]) -> Result<WriteCall, BodyError> {
    told(read_body(text))
}

fn read_filter(text: &[u8]) -> Result<Filter, BodyError> {
    told(read_body::<WireFilter>(text).and_then(|filter| filter.read(LIMITS)))
}

fn told<T>(result: Result<T, BodyError>) -> Result<T, BodyError> {
    if let Err(error) = &result {
        assert!(!error.message.is_empty());
    }
    result
}
