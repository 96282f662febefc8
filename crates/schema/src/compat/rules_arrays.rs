//! Rules for the elements of lists. Knows nothing of how a single element is judged.
//!
//! | reading side | is read without loss when |
//! | --- | --- |
//! | an element by its place | it covers all that is said of that place on the writing side |
//! | further elements | they cover all places and further elements of the writing side |
//! | `unevaluatedItems` | the same, for places that no part that has to fit describes; or the whole schema is the same |
//! | `contains`, `minContains` | the writing side asks for as many of something that is covered |
//! | `maxContains` | the writing side allows as few of something that covers it |

use super::{
    compare::{Comparison, Difference},
    kind::Kind,
    leftover::unread_items,
    written::{End, Written, order},
};
use crate::{node::Node, types::Types};
use serde_json::Value;
use std::cmp::Ordering;

impl Comparison {
    /// Everything about lists but how many elements they have.
    pub(super) fn arrays<'a>(
        &mut self,
        reader: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        if !written.types.meets(Types::ARRAY) || !self.can_pay(written.leftover_weight()) {
            return;
        }
        let items = reader.items();
        for (index, item) in items.prefix.iter().enumerate() {
            self.element(item, index, written, found);
        }
        if let Some(rest) = items.rest {
            self.further(Rest::Additional(&rest), items.prefix.len(), written, found);
        }
        self.unevaluated_items(reader, written, found);
        self.contained(reader, written, found);
    }

    fn element<'a>(
        &mut self,
        item: &Node<'a>,
        index: usize,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        if written.ends_before(index) {
            return;
        }
        let theirs = Written::new(&written.element(index));
        let list = self.covers(item, &theirs);
        if list.is_empty() {
            return;
        }
        let is_placed = written.parts.iter().any(|node| node.items().prefix.len() > index);
        if is_placed {
            found.extend(list);
        } else if theirs.is_anything() {
            let reason = format!("element {index} is described here, and could be anything");
            found.push(Difference::new(Kind::ItemAddedToOpenContentModel, &item.at, reason));
        } else {
            let reason =
                because(&format!("element {index} is described more narrowly than further ones were"), &list);
            found.push(Difference::new(Kind::ItemAddedNotCovered, &item.at, reason));
        }
    }

    /// The elements that no part of the reading schema looks at, whatever else holds.
    fn unevaluated_items<'a>(
        &mut self,
        reader: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let Some((rest, first)) = unread_items(reader) else { return };
        if !written.parts.iter().any(|part| self.are_same(part, reader)) {
            self.further(Rest::Unevaluated(&rest), first, written, found);
        }
    }

    /// `first` is the first place that the reading side does not describe by itself.
    fn further<'a>(
        &mut self,
        further: Rest<'_, 'a>,
        first: usize,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let (rest, removed, narrowed) = further.kinds();
        let described = written.described_len();
        for index in first..described {
            self.removed(rest, index, written, found);
        }
        let beyond = described.max(first);
        if written.ends_before(beyond) {
            return;
        }
        let theirs = Written::new(&written.element(beyond));
        let list = self.covers(rest, &theirs);
        if list.is_empty() {
            return;
        }
        let is_list = described == 0 && first == 0 && !theirs.is_anything() && !rest.is_nothing();
        if is_list {
            found.extend(list);
        } else if rest.is_nothing() {
            let reason = "no further elements are allowed here, and there may be some";
            found.push(Difference::new(removed, &rest.at, reason));
        } else {
            let reason = because("further elements are described more narrowly", &list);
            found.push(Difference::new(narrowed, &rest.at, reason));
        }
    }

    fn removed<'a>(
        &mut self,
        rest: &Node<'a>,
        index: usize,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        if written.ends_before(index) {
            return;
        }
        let list = self.covers(rest, &Written::new(&written.element(index)));
        if list.is_empty() {
            return;
        }
        let (kind, text) = if rest.is_nothing() {
            (Kind::ItemRemovedFromClosedContentModel, format!("element {index} is not allowed here any more"))
        } else {
            let text = format!("element {index} is not described by itself any more");
            (Kind::ItemRemovedNotCovered, because(&text, &list))
        };
        found.push(Difference::new(kind, &rest.at, text));
    }

    fn contained<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        let Some(wanted) = reader.child("contains") else { return };
        let one = Value::from(1);
        let least = reader.get("minContains").unwrap_or(&one);
        if least.as_f64() != Some(0.0) && !self.contains_enough(&wanted, least, written) {
            let has = written.parts.iter().any(|node| node.get("contains").is_some());
            let kind = if has { Kind::ContainsNarrowed } else { Kind::ContainsAdded };
            let reason = "a list must contain something here that it did not have to";
            found.push(Difference::new(kind, &wanted.at, reason));
        }
        if let Some(most) = reader.get("maxContains")
            && !self.contains_few(&wanted, most, written)
        {
            let reason = "a list may contain fewer of something here than it did";
            found.push(Difference::new(Kind::ContainsNarrowed, reader.place(&["maxContains"]), reason));
        }
    }

    fn contains_enough<'a>(&mut self, wanted: &Node<'a>, least: &Value, written: &Written<'a>) -> bool {
        let one = Value::from(1);
        written.parts.iter().any(|node| {
            let theirs = node.get("minContains").unwrap_or(&one);
            let enough = order(theirs, least) != Ordering::Less;
            let covers = |theirs: Node<'a>| self.certainly_covers(wanted, &Written::new(&[theirs]));
            enough && node.child("contains").is_some_and(covers)
        })
    }

    fn contains_few<'a>(&mut self, wanted: &Node<'a>, most: &Value, written: &Written<'a>) -> bool {
        let len_max = written.count("maxItems", End::Upper);
        if len_max.is_some_and(|len_max| order(len_max, most) != Ordering::Greater) {
            return true;
        }
        let wanted = Written::new(std::slice::from_ref(wanted));
        written.parts.iter().any(|node| {
            let few = node.get("maxContains").is_some_and(|theirs| order(theirs, most) != Ordering::Greater);
            few && node.child("contains").is_some_and(|theirs| self.certainly_covers(&theirs, &wanted))
        })
    }
}

/// The schema of further elements, by the keyword that has it.
#[derive(Clone, Copy)]
enum Rest<'r, 'a> {
    Additional(&'r Node<'a>),
    Unevaluated(&'r Node<'a>),
}

impl<'r, 'a> Rest<'r, 'a> {
    /// The schema, and what it is called when it is `false` now, and when it allows less.
    fn kinds(self) -> (&'r Node<'a>, Kind, Kind) {
        match self {
            Rest::Additional(rest) => (rest, Kind::AdditionalItemsRemoved, Kind::AdditionalItemsNarrowed),
            Rest::Unevaluated(rest) => (rest, Kind::UnevaluatedItemsRemoved, Kind::UnevaluatedItemsNarrowed),
        }
    }
}

/// A reason with the first of the reasons below it.
pub(super) fn because(text: &str, list: &[Difference]) -> String {
    match list.first() {
        Some(first) => format!("{text}: {} ({})", first.reason, first.kind),
        None => text.to_owned(),
    }
}
