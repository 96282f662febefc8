//! Damaged messages of every kind: the decoder refuses them or reads them, and never falls over.

use crate::{
    ClientMessage, DecodeError,
    fuzz::{self, NESTING},
};

/// Every kind of message, with every kind of value.
const CORPUS: &[&str] = &[
    r#"{"type":"hello","id":1}"#,
    r#"{"type":"hello","id":18446744073709551615,"name":"ann \u00fc\n\"","abandon_timeout_ms":60000}"#,
    r#"{"type":"attach","id":2,"session":"5e55","secret":"00ff","locks":[]}"#,
    r#"{"type":"attach","id":2,"session":"s","secret":"x","name":"n","abandon_timeout_ms":5,"locks":[{"lock":4,"token":7,"resources":[{"path":["a","b"],"mode":"write","depth":2}]}]}"#,
    r#"{"type":"lock","id":3,"resources":[{"path":["user","42"],"mode":"write"}],"wait":0}"#,
    r#"{"type":"lock","id":3,"resources":[{"path":"user/4%2F2","mode":"read","depth":1},{"path":"/","mode":"list"}],"wait":"forever"}"#,
    r#"{"id":3,"resources":[{"mode":"link","path":["","\ud83d\ude00","/"]},{"path":[],"mode":"update"}],"wait":1500,"type":"lock"}"#,
    r#"  {"type" : "lock" , "id" : 4 , "resources" : [ ] }  "#,
    r#"{"type":"release","id":5,"lock":9}"#,
    r#"{"type":"cancel","id":6,"lock":9}"#,
    r#"{"type":"convert","id":7,"lock":9,"mode":"write","wait":10}"#,
    r#"{"type":"convert","id":7,"lock":9,"resources":[{"path":"a/%_/b","mode":"read"}]}"#,
    r#"{"type":"place","id":8,"lock":9}"#,
    r#"{"type":"bye","id":9}"#,
];

/// Pieces that parsers have stumbled over.
const PIECES: &[&str] = &[
    "null",
    "true",
    "-1",
    "-0",
    "1e999",
    "0.5",
    "18446744073709551616",
    "\"\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "\"forever\"",
    "[]",
    "{}",
    "[[",
    "}}",
    ",",
    ":",
    "\\",
    "%",
    "%2",
    "//",
    "\u{feff}",
    "\u{0}",
    "\"id\":1,",
    "\"type\":\"lock\",",
    "\"wait\":null,",
    "\"resources\":null,",
];

#[test]
fn damaged_messages_never_bring_the_decoder_down() {
    fuzz::damage(CORPUS, PIECES, check);
}

#[test]
fn every_message_of_the_corpus_is_one() {
    for text in CORPUS {
        assert!(check(text.as_bytes()), "{text}");
    }
}

#[test]
fn every_beginning_of_a_message_is_looked_at() {
    for text in CORPUS {
        for len in 0..text.len() {
            check(&text.as_bytes()[..len]);
        }
    }
}

#[test]
fn deep_nesting_is_refused_wherever_it_is() {
    let deep = [("[", "]"), ("{\"a\":", "}")];
    let around = [
        ("", ""),
        ("{\"id\":1,\"type\":", "}"),
        ("{\"id\":1,\"resources\":", "}"),
        ("{\"id\":1,\"x\":", "}"),
    ];
    for (open, close) in deep {
        for (before, after) in around {
            let open = format!("{before}{}", open.repeat(NESTING));
            assert!(decode(open.as_bytes()).is_err());
            let closed = format!("{open}1{}{after}", close.repeat(NESTING));
            assert!(decode(closed.as_bytes()).is_err());
        }
    }
}

/// Decodes, and writes and reads again what was read; says whether it was a message.
fn check(text: &[u8]) -> bool {
    let Ok(message) = decode(text) else { return false };
    let written = message.clone().encode();
    assert_eq!(decode(written.as_bytes()), Ok(message), "{written}");
    true
}

fn decode(text: &[u8]) -> Result<ClientMessage, DecodeError> {
    let decoded = ClientMessage::decode(text);
    if let Err(error) = &decoded {
        assert!(!error.message.is_empty());
    }
    decoded
}
