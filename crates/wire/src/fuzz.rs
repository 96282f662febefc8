//! Damages messages at random and shows them to a decoder. Knows nothing of what they say.
//!
//! `LOCKWOOD_FUZZ_COUNT` says how many, `LOCKWOOD_FUZZ_SEED` where the random numbers start; a failure names
//! the seed and the message.

use std::panic::{self, AssertUnwindSafe};

const COUNT_DEFAULT: u64 = 200_000;
const SEED_DEFAULT: u64 = 0x10c4_300d;

/// Deeper than any stack allows for.
pub(crate) const NESTING: usize = 100_000;
/// More damage than this leaves nothing of a message.
const WOUNDS_MAX: u64 = 4;

/// Shows damaged messages to `check`, which says whether it could read them.
pub(crate) fn damage(corpus: &[&str], pieces: &[&str], check: impl Fn(&[u8]) -> bool) {
    let count = from_env("LOCKWOOD_FUZZ_COUNT", COUNT_DEFAULT);
    let seed = from_env("LOCKWOOD_FUZZ_SEED", SEED_DEFAULT);
    let mut random = Random(seed);
    let mut read = 0;
    for round in 0..count {
        let message = mutated(corpus, pieces, &mut random);
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

fn mutated(corpus: &[&str], pieces: &[&str], random: &mut Random) -> Vec<u8> {
    let mut message = random.choice(corpus).as_bytes().to_vec();
    for _ in 0..1 + random.below(WOUNDS_MAX) {
        wound(&mut message, corpus, pieces, random);
    }
    message
}

fn wound(message: &mut Vec<u8>, corpus: &[&str], pieces: &[&str], random: &mut Random) {
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
            let piece = random.choice(pieces);
            message.splice(at..at, piece.bytes());
        }
        // Goes on with another message.
        _ => {
            let other = random.choice(corpus).as_bytes();
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
