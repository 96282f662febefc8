//! A regular expression of a schema, and what trying it on a text costs. Knows nothing of where it stands.
//!
//! Most patterns read a text once. One with many places, such as `a[ab]{900}c`, may have to follow all of them at every
//! letter, which takes about as long as the product. Which of both it will be is not known before, so the cost grows
//! with the places faster at first.

use crate::survey::pattern_options;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::iter::Peekable;

/// Trying one pattern on a short text costs so many steps.
const STEPS_PER_TRY: u64 = 8;
/// So many places that are followed at every letter cost two steps a letter each; fewer cost less.
const PLACES_FOLLOWED: u64 = 256;

/// A pattern that can be tried.
#[derive(Debug)]
pub(crate) struct Pattern {
    validator: Validator,
    /// At least as many as it can be in at the same time.
    places: u64,
}

impl Pattern {
    /// None if it is no regular expression, or one that cannot be used.
    pub(crate) fn read(text: &str) -> Option<Pattern> {
        let options = jsonschema::options().with_pattern_options(pattern_options());
        let validator = options.build(&json!({ "pattern": text })).ok()?;
        Some(Pattern { validator, places: places(&mut text.chars().peekable()) })
    }

    /// Whether it is found in a text; `text` is a string.
    pub(crate) fn matches(&self, text: &Value) -> bool {
        self.validator.is_valid(text)
    }

    /// What trying it on a text of so many bytes costs.
    pub(crate) fn steps(&self, bytes: usize) -> u64 {
        STEPS_PER_TRY.saturating_add((bytes as u64).saturating_mul(self.steps_per_64_bytes()) / 64)
    }

    pub(crate) fn steps_per_64_bytes(&self) -> u64 {
        let places = self.places;
        let squared = places.saturating_mul(places).saturating_mul(2) / PLACES_FOLLOWED;
        squared.min(places.saturating_mul(2)).saturating_mul(64).max(1)
    }
}

/// How many letters and classes there are up to the end of a group, those of repetitions counted as often as they are
/// repeated.
fn places(rest: &mut Peekable<impl Iterator<Item = char>>) -> u64 {
    let mut sum: u64 = 0;
    while let Some(char) = rest.next() {
        let atom = match char {
            ')' => break,
            '(' => places(rest),
            '[' => {
                skip_class(rest);
                1
            }
            '\\' => {
                rest.next();
                1
            }
            '|' | '^' | '$' | '*' | '+' | '?' => continue,
            _ => 1,
        };
        sum = sum.saturating_add(atom.saturating_mul(repetitions(rest)));
    }
    sum
}

fn skip_class(rest: &mut Peekable<impl Iterator<Item = char>>) {
    // A bracket right at the beginning is a letter.
    rest.next_if_eq(&'^');
    rest.next_if_eq(&']');
    while let Some(char) = rest.next() {
        match char {
            ']' => return,
            '\\' => drop(rest.next()),
            _ => {}
        }
    }
}

/// How often what stands before is repeated at most, as far as that is written as `{2,5}`.
fn repetitions(rest: &mut Peekable<impl Iterator<Item = char>>) -> u64 {
    let mut times: u64 = 1;
    while rest.next_if_eq(&'{').is_some() {
        let written: String = std::iter::from_fn(|| rest.next_if(|char| *char != '}')).collect();
        rest.next();
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        times = times.saturating_mul(written.split(',').map(number).max().unwrap_or(0).max(1));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_often_as_they_are_repeated() {
        let check = |pattern: &str, expected| {
            assert_eq!(places(&mut pattern.chars().peekable()), expected, "{pattern}");
        };
        check("^[a-z]+$", 1);
        check("a[ab]{900}c", 902);
        check("^([0-9]{4}-){2}x?$", 11);
        check("(a|b{2,30}){10}", 310);
        check(r"\(\{[\]{5}]{3,}", 5);
        check("", 0);
    }

    #[test]
    fn usual_patterns_cost_little_and_large_ones_their_product() {
        let steps = |pattern: &str, bytes| Pattern::read(pattern).unwrap().steps(bytes);
        assert!(steps("^[A-Za-z0-9+/]*={0,2}$", 4_000_000) < 1_000_000);
        assert!(steps("^[a-z0-9-]{1,63}$", 63) < 10_000);
        assert!(steps("a[ab]{900}c", 100_000) > 100_000_000);
        assert_eq!(steps("x", 0), STEPS_PER_TRY);
    }

    #[test]
    fn what_cannot_be_used_is_no_pattern() {
        for text in ["(", "(?=a)", "a{1000}{1000}{1000}"] {
            assert!(Pattern::read(text).is_none(), "{text}");
        }
    }
}
