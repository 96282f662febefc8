//! Finds why one schema might not be able to read what fits another. Knows nothing of versions or levels.
//!
//! The question is always the same: does every value that fits the writing schemas also fit the reading one?
//! The reading schema is taken apart into keywords, and for each keyword the writing side must give a reason
//! why it holds (the `rules_…` files have a table each). What has no reason is a difference. So a keyword
//! that nobody thought of on the writing side makes the answer stricter, never wrong.
//!
//! When the keywords alone give no reason, the writing side is taken apart: a value that fits
//! `anyOf: [A, B]` fits A or fits B, so it is enough to find reasons for each of them.
//!
//! Schemas can refer to themselves. While a pair is being compared it is taken for compatible wherever it
//! comes up again below, which is right if it turns out to be so in the end. What was found with the help
//! of such an assumption is therefore not remembered as compatible until the assumption is confirmed.

use super::{
    Direction, Incompatibility,
    kind::Kind,
    level::Policy,
    same::{counted_same, same},
    written::{QUICK_PER_STEP, Written},
};
use crate::{node::Node, schema::Schema};
use std::collections::BTreeMap;

/// Comparing two schemas takes at most this many steps; one step is one part of
/// the one looked at together with one part of the other.
pub const COMPARE_WORK_MAX: usize = 200_000;

/// Comparing goes at most so many levels into two schemas.
pub const COMPARE_DEPTH_MAX: usize = 100;

/// One reason why the reading schema may refuse what the writing schema allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) kind: Kind,
    pub(super) at: String,
    pub(super) reason: String,
}

impl Difference {
    pub(super) fn new(kind: Kind, at: impl Into<String>, reason: impl Into<String>) -> Difference {
        Difference { kind, at: at.into(), reason: reason.into() }
    }

    pub(super) fn against(self, earlier: usize, direction: Direction) -> Incompatibility {
        Incompatibility { kind: self.kind, path: self.at, reason: self.reason, earlier, direction }
    }
}

/// Whether the exceptions count that the rules of the registry make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rigour {
    /// They do, as the policy says.
    ByPolicy,
    /// They do not: the answer is used as a reason elsewhere, and must hold for every value.
    Exact,
}

/// A comparison that is going on.
pub(super) struct Comparison {
    pub(super) policy: Policy,
    pub(super) rigour: Rigour,
    work: usize,
    is_exhausted: bool,
    finished: BTreeMap<Pair, Vec<Difference>>,
    /// How deep each pair stands that is being compared.
    unfinished: BTreeMap<Pair, usize>,
    /// The least deep unfinished pair that was assumed to be compatible since this was last reset.
    assumed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    rigour: Rigour,
    reader: usize,
    writer: Vec<usize>,
}

/// Nothing is assumed.
const NOTHING: usize = usize::MAX;

/// Why `reader` may refuse what fits `writer`.
pub(super) fn differences(policy: Policy, reader: &Schema, writer: &Schema) -> Vec<Difference> {
    if same(&reader.root(), &writer.root()) {
        return Vec::new();
    }
    let mut comparison = Comparison {
        policy,
        rigour: Rigour::ByPolicy,
        work: 0,
        is_exhausted: false,
        finished: BTreeMap::new(),
        unfinished: BTreeMap::new(),
        assumed: NOTHING,
    };
    let found = comparison.covers(&reader.root(), &Written::new(&[writer.root()]));
    if comparison.is_exhausted {
        return vec![Difference::new(Kind::TooComplex, "#", "the schemas are too complex to be compared")];
    }
    without_repetition(found)
}

impl Comparison {
    /// Why a value that fits `written` may not fit `reader`.
    pub(super) fn covers<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>) -> Vec<Difference> {
        if reader.is_anything() || written.is_nothing() || !self.has_strength_for(written) {
            return Vec::new();
        }
        let pair = Pair { rigour: self.rigour, reader: reader.id(), writer: written.ids() };
        if let Some(found) = self.finished.get(&pair) {
            return found.clone();
        }
        if let Some(depth) = self.unfinished.get(&pair) {
            self.assumed = self.assumed.min(*depth);
            return Vec::new();
        }
        self.settle(pair, reader, written)
    }

    fn settle<'a>(&mut self, pair: Pair, reader: &Node<'a>, written: &Written<'a>) -> Vec<Difference> {
        let depth = self.unfinished.len();
        let assumed_before = std::mem::replace(&mut self.assumed, NOTHING);
        self.unfinished.insert(pair.clone(), depth);
        let found = self.compare(reader, written);
        self.unfinished.remove(&pair);
        let rests_on_others = self.assumed < depth;
        if !found.is_empty() || !rests_on_others {
            self.finished.insert(pair, found.clone());
        }
        let assumed_here = if rests_on_others { self.assumed } else { NOTHING };
        self.assumed = assumed_before.min(assumed_here);
        found
    }

    /// Whether every value that fits `written` fits `reader`, without any exceptions.
    pub(super) fn certainly_covers<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>) -> bool {
        let rigour = std::mem::replace(&mut self.rigour, Rigour::Exact);
        let found = self.covers(reader, written);
        self.rigour = rigour;
        found.is_empty()
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.policy == Policy::Lenient && self.rigour == Rigour::ByPolicy
    }

    fn has_strength_for<'a>(&mut self, written: &Written<'a>) -> bool {
        self.is_exhausted |= self.unfinished.len() > COMPARE_DEPTH_MAX;
        self.can_pay(1 + written.weight())
    }

    /// Whether two schemas say the same. Pays for every place that is looked at.
    pub(super) fn are_same(&mut self, a: &Node<'_>, b: &Node<'_>) -> bool {
        let mut looked_at = 0;
        let are_same = self.can_pay(1) && counted_same(a, b, &mut looked_at);
        self.can_pay(looked_at / QUICK_PER_STEP) && are_same
    }

    /// Whether there is strength left for so many steps.
    pub(super) fn can_pay(&mut self, steps: usize) -> bool {
        self.work = self.work.saturating_add(steps);
        self.is_exhausted |= self.work > COMPARE_WORK_MAX;
        !self.is_exhausted
    }

    fn compare<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>) -> Vec<Difference> {
        let found = self.by_keywords(reader, written);
        if found.is_empty() {
            return found;
        }
        if let Some(variants) = written.open_sum() {
            let mut each = Vec::new();
            for variant in &variants {
                // What is already known to be too much is not prepared for any more.
                if self.is_exhausted {
                    break;
                }
                each.extend(self.covers(reader, &written.with(variant)));
            }
            return without_repetition(each);
        }
        let by_type = written.by_type();
        if !by_type.is_empty() && by_type.iter().all(|written| self.covers(reader, written).is_empty()) {
            return Vec::new();
        }
        found
    }

    fn by_keywords<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>) -> Vec<Difference> {
        let parts = reader.conjuncts();
        self.work += parts.len() * written.parts.len();
        let mut found = Vec::new();
        for part in &parts {
            if part.is_nothing() {
                found.push(Difference::new(Kind::SchemaBecameFalse, &part.at, "nothing is allowed here"));
                continue;
            }
            self.scalars(part, written, &mut found);
            self.arrays(part, written, &mut found);
            self.objects(part, &parts, written, &mut found);
            self.logic(part, written, &mut found);
        }
        found
    }
}

fn without_repetition(found: Vec<Difference>) -> Vec<Difference> {
    let mut once: Vec<Difference> = Vec::with_capacity(found.len());
    for one in found {
        if !once.contains(&one) {
            once.push(one);
        }
    }
    once
}
