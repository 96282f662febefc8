//! A regular expression of a schema, and what trying it on a text costs. Knows nothing of where it stands.
//!
//! Most patterns read a text once. One with many places, such as `a[ab]{900}c`, may have to follow all of them at every
//! letter, which takes about as long as the product. Which of both it will be is not known before, so the cost grows
//! with the places faster at first.

use crate::survey::pattern_options;
use jsonschema::Validator;
use regex_syntax::hir::{Hir, HirKind};
use serde_json::{Value, json};

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
        Some(Pattern { validator, places: places(text)? })
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

/// How many letters and classes a pattern has, those of repetitions counted as often as they are repeated. Counted in the
/// expression as it is compiled, so no way of writing a repetition hides one.
fn places(text: &str) -> Option<u64> {
    let translated = jsonschema_regex::to_rust_regex(text).ok()?;
    Some(places_of(&regex_syntax::parse(&translated).ok()?))
}

/// The parser refuses expressions that are nested deeply.
fn places_of(expression: &Hir) -> u64 {
    let sum = |parts: &[Hir]| parts.iter().map(places_of).fold(0, u64::saturating_add);
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) => 1,
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(1);
            places_of(&repeated.sub).saturating_mul(times.into())
        }
        HirKind::Capture(group) => places_of(&group.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_as_often_as_they_are_repeated() {
        let check = |pattern: &str, expected| {
            assert_eq!(places(pattern), Some(expected), "{pattern}");
        };
        check("^[a-z]+$", 1);
        check("a[ab]{900}c", 902);
        check("^([0-9]{4}-){2}x?$", 11);
        check("(a|b{2,30}){10}", 310);
        check(r"\(\{[\]{5}]{3,}", 5);
        check("", 0);
    }

    #[test]
    fn repetition_behind_another_quantifier_is_counted() {
        let check = |pattern: &str, expected| {
            assert_eq!(places(pattern), Some(expected), "{pattern}");
            assert_eq!(Pattern::read(pattern).unwrap().places, expected, "{pattern}");
        };
        check("a[ab]?{900}c", 902);
        check("a[ab]+{900}c", 902);
        check("a[ab]*{900}c", 902);
        check("a[ab]??{900}c", 902);
        check("a[ab]{30}{30}c", 902);
        check("a([ab]c){15}?{30}c", 902);
        check("a([ab]?{30})+{30}c", 902);
        // Blanks and remarks between an expression and how often it is repeated.
        check("(?x) a ([ab] [cd]) {450} c", 902);
        check("(?x) a ([ab][cd]) # twice each\n {450} c", 902);
        check("a(?:[ab]|[ac]c){300}c", 902);
        check(r"a\x{62}{900}\p{L}c", 903);
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
