//! What `unevaluatedProperties` and `unevaluatedItems` say: they are about what is left when every other schema for the
//! same value has looked at it. Knows nothing of which side reads.
//!
//! | side | what is certain |
//! | --- | --- |
//! | reading | what a schema looks at that has to fit (`$ref`, `allOf`) is not left; all else may be |
//! | writing | what no schema can look at, in whatever branch, is left |
//!
//! Both err on the careful side: a property that only one variant of an `anyOf` describes may be left, and may be not.

use super::written::Written;
use crate::node::Node;
use std::collections::BTreeSet;

const PROPERTIES: &str = "unevaluatedProperties";
const ITEMS: &str = "unevaluatedItems";

/// What a writing schema says of the properties that are left.
#[derive(Debug, Clone)]
pub(super) struct LeftoverProperties<'a> {
    schema: Node<'a>,
    /// Names that some branch describes.
    names: BTreeSet<&'a str>,
    /// Patterns of branches, and whether the branch has to fit.
    patterns: Vec<(&'a str, Node<'a>, bool)>,
    /// Whether a branch looks at all properties, so that none may be left.
    none_left: bool,
    /// How many branches there are.
    pub(super) weight: usize,
}

impl<'a> LeftoverProperties<'a> {
    pub(super) fn of(node: &Node<'a>) -> Option<LeftoverProperties<'a>> {
        let schema = node.child(PROPERTIES).filter(|_| node.get("additionalProperties").is_none())?;
        let certain: BTreeSet<usize> = node.conjuncts().iter().map(Node::id).collect();
        let branches = node.branches();
        let mut leftover = LeftoverProperties {
            schema,
            names: BTreeSet::new(),
            patterns: Vec::new(),
            none_left: false,
            weight: branches.len(),
        };
        for branch in &branches {
            leftover.names.extend(branch.entries("properties").iter().map(|(name, _)| *name));
            let has_to_fit = certain.contains(&branch.id());
            let patterns = branch.entries("patternProperties").into_iter();
            leftover.patterns.extend(patterns.map(|(pattern, schema)| (pattern, schema, has_to_fit)));
            let looks_at_all = ["additionalProperties", PROPERTIES];
            let is_other = branch.id() != node.id();
            leftover.none_left |= is_other && looks_at_all.iter().any(|one| branch.get(one).is_some());
        }
        leftover.weight += leftover.names.len() + leftover.patterns.len();
        Some(leftover)
    }

    /// What a property has to fit because it is left; none if it may not be left.
    pub(super) fn says_of(&self, name: &str) -> Option<Node<'a>> {
        let matches = |(pattern, schema, _): &(&str, Node<'a>, bool)| schema.source.matches(pattern, name);
        let may_be_seen = self.none_left || self.names.contains(name) || self.patterns.iter().any(matches);
        (!may_be_seen).then(|| self.schema.clone())
    }
}

/// What a writing schema says of the elements that are left.
#[derive(Debug, Clone)]
pub(super) struct LeftoverItems<'a> {
    schema: Node<'a>,
    /// Places before this one are described in some branch.
    pub(super) described_len: usize,
    none_left: bool,
    /// How many branches there are.
    pub(super) weight: usize,
}

impl<'a> LeftoverItems<'a> {
    pub(super) fn of(node: &Node<'a>) -> Option<LeftoverItems<'a>> {
        let schema = node.child(ITEMS)?;
        let branches = node.branches();
        let mut leftover =
            LeftoverItems { schema, described_len: 0, none_left: false, weight: branches.len() };
        for branch in &branches {
            let items = branch.items();
            leftover.described_len = leftover.described_len.max(items.prefix.len());
            // An element that `contains` describes counts as looked at in some drafts.
            let looks = items.rest.is_some() || branch.get("contains").is_some();
            let is_other = branch.id() != node.id();
            leftover.none_left |= looks || (is_other && branch.get(ITEMS).is_some());
        }
        Some(leftover)
    }

    /// What an element has to fit because it is left; none if it may not be left.
    pub(super) fn says_of(&self, index: usize) -> Option<Node<'a>> {
        (!self.none_left && index >= self.described_len).then(|| self.schema.clone())
    }
}

/// Which properties a writing schema allows by itself.
#[derive(Debug)]
pub(super) struct Model<'a> {
    pub(super) names: Vec<&'a str>,
    /// Whatever matches the pattern fits one of the schemas that stand beside it.
    pub(super) patterns: Vec<(&'a str, Node<'a>)>,
    /// What all others have to fit; none if that is anything.
    pub(super) rest: Option<Node<'a>>,
}

impl<'a> Model<'a> {
    fn of(node: &Node<'a>, leftover: Option<&LeftoverProperties<'a>>) -> Model<'a> {
        let Some(leftover) = leftover else {
            return Model {
                names: node.entries("properties").into_iter().map(|(name, _)| name).collect(),
                patterns: node.entries("patternProperties"),
                rest: node.child("additionalProperties"),
            };
        };
        let mut patterns = Vec::new();
        for (pattern, schema, has_to_fit) in &leftover.patterns {
            patterns.push((*pattern, schema.clone()));
            // Where the branch does not fit, the property is left, unless others look at it.
            if !has_to_fit {
                patterns.push((*pattern, leftover.schema.clone()));
            }
        }
        let rest = (!leftover.none_left).then(|| leftover.schema.clone());
        Model { names: leftover.names.iter().copied().collect(), patterns, rest }
    }
}

impl<'a> Written<'a> {
    /// What each part alone says about which properties there can be.
    pub(super) fn models(&self) -> Vec<Model<'a>> {
        self.parts_of_objects().map(|(part, leftover)| Model::of(part, leftover)).collect()
    }
}

/// The schema of properties that may be left when a schema reads, and the schemas that look at the others; none if
/// nothing is left, or may be anything.
pub(super) fn unread_properties<'a>(reader: &Node<'a>) -> Option<(Node<'a>, Vec<Node<'a>>)> {
    let schema = reader.child(PROPERTIES).filter(|schema| !schema.is_anything())?;
    let readers = reader.conjuncts();
    let looks_at_all = |node: &Node<'a>| {
        node.get("additionalProperties").is_some()
            || (node.id() != reader.id() && node.get(PROPERTIES).is_some())
    };
    (!readers.iter().any(looks_at_all)).then_some((schema, readers))
}

/// The schema of elements that may be left when a schema reads, and the first place where that can be; none if nothing
/// is left, or may be anything.
pub(super) fn unread_items<'a>(reader: &Node<'a>) -> Option<(Node<'a>, usize)> {
    let schema = reader.child(ITEMS).filter(|schema| !schema.is_anything())?;
    let readers = reader.conjuncts();
    let looks_at_all = |node: &Node<'a>| {
        node.items().rest.is_some() || (node.id() != reader.id() && node.get(ITEMS).is_some())
    };
    let first = readers.iter().map(|node| node.items().prefix.len()).max().unwrap_or(0);
    (!readers.iter().any(looks_at_all)).then_some((schema, first))
}
