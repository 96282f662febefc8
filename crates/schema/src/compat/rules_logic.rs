//! Rules for schemas that are made of schemas for the same value. Knows nothing of what is in those.
//!
//! | reading side | is read without loss when |
//! | --- | --- |
//! | `allOf`, `$ref` | each part is (they are taken apart before these rules) |
//! | `anyOf` | one variant covers the writing side; else the writing side is taken apart |
//! | `oneOf` | the same, and no second variant covers it too |
//! | `not` | the writing side excludes as much, or has no type in common with it |
//! | `if` | the writing side has the same condition, covered; or both `then` and `else` are covered |

use super::{
    compare::{Comparison, Difference},
    kind::Kind,
    written::Written,
};
use crate::{node::Node, schema::allowed_types};

impl Comparison {
    /// Everything that is made of other schemas for the same value.
    pub(super) fn logic<'a>(
        &mut self,
        reader: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        for keyword in ["anyOf", "oneOf"] {
            self.sum(keyword, reader, written, found);
        }
        self.negation(reader, written, found);
        self.condition(reader, written, found);
    }

    fn sum<'a>(
        &mut self,
        keyword: &'static str,
        reader: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let variants = reader.children(keyword);
        if variants.is_empty() || written.parts.iter().any(|part| self.same_sum(keyword, part, reader)) {
            return;
        }
        let lists: Vec<Vec<Difference>> =
            variants.iter().map(|variant| self.covers(variant, written)).collect();
        if !lists.iter().any(Vec::is_empty) {
            found.extend(narrowed(keyword, reader, &variants, lists));
        } else if keyword == "oneOf" && self.is_ambiguous(&variants, written) {
            let reason = "what was written fits several variants of oneOf here, and only one may fit";
            found.push(Difference::new(Kind::OneOfAmbiguous, reader.place(&[keyword]), reason));
        }
    }

    /// Whether some of the writing side is certain to fit two variants.
    fn is_ambiguous<'a>(&mut self, variants: &[Node<'a>], written: &Written<'a>) -> bool {
        if written.is_nothing() {
            return false;
        }
        if variants.iter().filter(|variant| self.certainly_covers(variant, written)).nth(1).is_some() {
            return true;
        }
        let by_sum = written.open_sum().map(|sum| sum.iter().map(|variant| written.with(variant)).collect());
        let narrower: Vec<Written<'a>> = by_sum.unwrap_or_else(|| written.by_type());
        narrower.iter().any(|written| self.is_ambiguous(variants, written))
    }

    /// Unchanged variants exclude each other as they did before.
    fn same_sum(&mut self, keyword: &str, part: &Node<'_>, reader: &Node<'_>) -> bool {
        if part.get(keyword).is_none() {
            return false;
        }
        let (theirs, ours) = (part.children(keyword), reader.children(keyword));
        theirs.len() == ours.len()
            && theirs.iter().zip(&ours).all(|(theirs, ours)| self.are_same(theirs, ours))
    }

    fn has_condition(&mut self, part: &Node<'_>, condition: &Node<'_>) -> bool {
        part.child("if").is_some_and(|theirs| self.are_same(&theirs, condition))
    }

    fn negation<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        let Some(excluded) = reader.child("not") else { return };
        if !written.types.meets(allowed_types(&excluded)) {
            return;
        }
        let theirs: Vec<Node<'a>> = written.parts.iter().filter_map(|node| node.child("not")).collect();
        let excluded_values = Written::new(std::slice::from_ref(&excluded));
        if theirs.iter().any(|theirs| self.certainly_covers(theirs, &excluded_values)) {
            return;
        }
        let kind = if theirs.is_empty() { Kind::NotAdded } else { Kind::NotExtended };
        let reason = "something is excluded here that may have been written";
        found.push(Difference::new(kind, &excluded.at, reason));
    }

    fn condition<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        let Some(condition) = reader.child("if") else { return };
        for keyword in ["then", "else"] {
            let Some(wanted) = reader.child(keyword) else { continue };
            let mut parts = written.parts.clone();
            let alike = written.parts.iter().filter(|part| self.has_condition(part, &condition));
            parts.extend(alike.filter_map(|part| part.child(keyword)));
            let list = self.covers(&wanted, &Written::new(&parts));
            if let Some(first) = list.first() {
                let reason = format!("{keyword} asks for something else here: {}", first.reason);
                found.push(Difference::new(Kind::ConditionChanged, &wanted.at, reason));
            }
        }
    }
}

/// If only one variant has the right type, its differences say more than that no variant fits.
fn narrowed(
    keyword: &str,
    reader: &Node<'_>,
    variants: &[Node<'_>],
    lists: Vec<Vec<Difference>>,
) -> Vec<Difference> {
    let len = variants.len();
    let is_near = |list: &Vec<Difference>, variant: &Node<'_>| {
        !list.iter().any(|one| one.at == variant.at && one.kind == Kind::TypeChanged)
    };
    let mut near: Vec<Vec<Difference>> = lists
        .into_iter()
        .zip(variants)
        .filter(|(list, variant)| is_near(list, variant))
        .map(|(list, _)| list)
        .collect();
    match (near.pop(), near.is_empty()) {
        (Some(only), true) if !only.iter().any(|one| one.kind == Kind::TypeNarrowed) => only,
        _ => {
            let reason =
                format!("none of the {len} variants of {keyword} fits all that may have been written");
            vec![Difference::new(Kind::SumTypeNarrowed, reader.place(&[keyword]), reason)]
        }
    }
}
