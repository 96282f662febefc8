//! Damaged messages of every kind: the decoder refuses them or reads them, and never falls over.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many, `LOCKWOOD_FUZZ_SEED` where the random numbers start; a failure names
//! the seed and the message.

use crate::{ClientMessage, DecodeError};
use std::panic::{self, AssertUnwindSafe};

const COUNT_DEFAULT: u64 = 200_000;
const SEED_DEFAULT: u64 = 0x10c4_300d;

/// Deeper than any stack allows for.
const NESTING: usize = 100_000;
/// More damage than this leaves nothing of a message.
const WOUNDS_MAX: u64 = 4;

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
    let count = from_env("LOCKWOOD_FUZZ_COUNT", COUNT_DEFAULT);
    let seed = from_env("LOCKWOOD_FUZZ_SEED", SEED_DEFAULT);
    let mut random = Random(seed);
    let mut read = 0;
    for round in 0..count {
        let message = mutated(&mut random);
        match panic::catch_unwind(AssertUnwindSafe(|| check(&message))) {
            Ok(true) => read += 1,
            Ok(false) => {}
            Err(_) => {
                panic!("LOCKWOOD_FUZZ_SEED={seed} round {round}: {:?}", String::from_utf8_lossy(&message))
            }
        }
    }
    // Otherwise the damage is so great that nothing but the first look at a message is ever tried.
    assert!(count < 1000 || read > count / 100, "only {read} of {count} were messages; seed {seed}");
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

fn mutated(random: &mut Random) -> Vec<u8> {
    let mut message = random.choice(CORPUS).as_bytes().to_vec();
    for _ in 0..1 + random.below(WOUNDS_MAX) {
        wound(&mut message, random);
    }
    message
}

fn wound(message: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(message.len() as u64 + 1) as usize;
    match random.below(8) {
        // Flips a bit.
        0 => {
            if let Some(byte) = message.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        // Puts any byte in the place of another.
        1 => {
            if let Some(byte) = message.get_mut(at) {
                *byte = random.below(256) as u8;
            }
        }
        // Puts a digit in the place of another, which often leaves a message.
        2 => message.iter_mut().filter(|byte| byte.is_ascii_digit()).for_each(|digit| {
            *digit = b'0' + random.below(10) as u8;
        }),
        3 => message.truncate(at),
        // Cuts out a part.
        4 => {
            let end = at + random.below((message.len() - at) as u64 + 1) as usize;
            message.drain(at..end);
        }
        // Doubles a part.
        5 => {
            let end = at + random.below((message.len() - at) as u64 + 1) as usize;
            let part = message[at..end].to_vec();
            message.splice(at..at, part);
        }
        6 => {
            let piece = random.choice(PIECES);
            message.splice(at..at, piece.bytes());
        }
        // Goes on with another message.
        _ => {
            let other = random.choice(CORPUS).as_bytes();
            message.truncate(at);
            message.extend(&other[random.below(other.len() as u64) as usize..]);
        }
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text:?}")),
        Err(_) => default,
    }
}

/// SplitMix64: small, good enough, and the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn choice<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }
}
