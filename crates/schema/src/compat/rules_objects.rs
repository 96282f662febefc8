//! Rules for the properties of objects. Knows nothing of how a single property is judged.
//!
//! A model is *open* when other properties may be anything, *closed* when there may be none, and *partially
//! open* when they must fit a schema.
//!
//! | reading side | is read without loss when the writing side … |
//! | --- | --- |
//! | a property | says something of it that is covered, or is closed without it |
//! | other properties | has only properties and patterns that are covered, as are its other properties |
//! | `unevaluatedProperties` | the same, for names that no part that has to fit describes; or is the same schema |
//! | a pattern | has the same pattern, covered; or everything it could match is covered |
//! | `required` | requires it too; or the reading side has a default |
//! | a dependency | has it too, or requires what it asks for, or never has what asks |
//! | `propertyNames` | has it, covered |

use super::{
    compare::{Comparison, Difference, Rigour},
    kind::Kind,
    leftover::{Model, unread_properties},
    rules_arrays::because,
    written::{QUICK_PER_STEP, Written},
};
use crate::{
    node::{Node, strings},
    types::Types,
};

impl Comparison {
    /// Everything about objects but how many properties they have. `reader` is one of `parts`.
    pub(super) fn objects<'a>(
        &mut self,
        reader: &Node<'a>,
        parts: &[Node<'a>],
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        if !written.types.meets(Types::OBJECT)
            || !self.can_pay(names_and_patterns(reader, written) + written.leftover_weight())
        {
            return;
        }
        for (name, property) in reader.entries("properties") {
            self.property(name, &property, written, found);
        }
        for (pattern, schema) in reader.entries("patternProperties") {
            self.pattern_property(pattern, &schema, written, found);
        }
        if let Some(others) = reader.child("additionalProperties") {
            let readers = std::slice::from_ref(reader);
            self.other_properties(&Others { schema: others, readers, kinds: ADDITIONAL }, written, found);
        }
        self.unevaluated_properties(reader, written, found);
        self.required(reader, parts, written, found);
        self.dependencies(reader, written, found);
        self.property_names(reader, written, found);
    }

    fn property<'a>(
        &mut self,
        name: &str,
        property: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let theirs = Written::new(&written.property(name));
        if theirs.is_anything() && self.is_lenient() && !written.names(name) {
            return;
        }
        let list = self.covers(property, &theirs);
        if list.is_empty() {
            return;
        }
        if written.names(name) {
            found.extend(list);
        } else if theirs.is_anything() {
            let reason = format!("{name:?} is described here, and documents may have anything there");
            found.push(Difference::new(Kind::PropertyAddedToOpenContentModel, &property.at, reason));
        } else {
            let text = format!("{name:?} is described more narrowly than other properties were");
            let reason = because(&text, &list);
            found.push(Difference::new(Kind::PropertyAddedNotCovered, &property.at, reason));
        }
    }

    fn pattern_property<'a>(
        &mut self,
        pattern: &str,
        schema: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let has = |node: &Node<'a>| node.named("patternProperties", pattern);
        let theirs: Vec<Node<'a>> = written.parts.iter().filter_map(has).collect();
        if !theirs.is_empty() {
            let list = self.covers(schema, &Written::new(&theirs));
            if let Some(first) = list.first() {
                let reason = format!("properties that match {pattern:?}: {}", first.reason);
                found.push(Difference::new(Kind::PatternPropertyNarrowed, &schema.at, reason));
            }
            return;
        }
        if !written.models().iter().any(|model| self.covers_matching(pattern, schema, model, written)) {
            let reason = format!("properties that match {pattern:?} are described here, which was not so");
            found.push(Difference::new(Kind::PatternPropertyAdded, &schema.at, reason));
        }
    }

    /// Whether everything in `model` that could match the pattern is covered. Which names two patterns have
    /// in common is not worked out: all patterns of `model` count as matching.
    fn covers_matching<'a>(
        &mut self,
        pattern: &str,
        schema: &Node<'a>,
        model: &Model<'a>,
        written: &Written<'a>,
    ) -> bool {
        for name in &model.names {
            let matches = schema.source.matches(pattern, name);
            if matches && !self.covers(schema, &Written::new(&written.property(name))).is_empty() {
                return false;
            }
        }
        for (_, theirs) in &model.patterns {
            if !self.covers(schema, &Written::new(std::slice::from_ref(theirs))).is_empty() {
                return false;
            }
        }
        let others = Written::new(model.rest.as_slice());
        if others.is_anything() && self.is_lenient() {
            return true;
        }
        self.covers(schema, &others).is_empty()
    }

    /// The properties that no part of the reading schema looks at, whatever else holds.
    fn unevaluated_properties<'a>(
        &mut self,
        reader: &Node<'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let Some((schema, readers)) = unread_properties(reader) else { return };
        if !written.parts.iter().any(|part| self.are_same(part, reader)) {
            self.other_properties(&Others { schema, readers: &readers, kinds: UNEVALUATED }, written, found);
        }
    }

    /// Each part of the writing side alone says which properties there can be, so one with no differences
    /// is enough; else the one with the fewest is reported.
    fn other_properties<'a>(
        &mut self,
        others: &Others<'_, 'a>,
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        let models = written.models().into_iter();
        let lists = models.map(|model| (self.others_of(others, &model, written), model.rest.is_none()));
        // Of as many, those that say what was allowed instead.
        let fewest = lists.min_by_key(|(list, is_open)| (list.len(), *is_open));
        match fewest {
            Some((list, _)) => found.extend(list),
            None => found.extend(self.unnamed(others, &[])),
        }
    }

    fn others_of<'a>(
        &mut self,
        others: &Others<'_, 'a>,
        model: &Model<'a>,
        written: &Written<'a>,
    ) -> Vec<Difference> {
        let mut found = Vec::new();
        for name in model.names.iter().filter(|name| !others.reads(name)) {
            found.extend(self.property_removed(name, others, written));
        }
        for (pattern, theirs) in &model.patterns {
            let theirs = Written::new(std::slice::from_ref(theirs));
            if !others.reads_pattern(pattern) && !self.covers(&others.schema, &theirs).is_empty() {
                let reason = format!("properties that match {pattern:?} are not described here any more");
                let at = others.place(&["patternProperties", pattern]);
                found.push(Difference::new(Kind::PatternPropertyRemoved, at, reason));
            }
        }
        found.extend(self.unnamed(others, model.rest.as_slice()));
        found
    }

    fn property_removed<'a>(
        &mut self,
        name: &str,
        others: &Others<'_, 'a>,
        written: &Written<'a>,
    ) -> Option<Difference> {
        let list = self.covers(&others.schema, &Written::new(&written.property(name)));
        if list.is_empty() {
            return None;
        }
        let at = others.place(&["properties", name]);
        if others.schema.is_nothing() {
            let reason = format!("{name:?} is not described any more, and other properties are not allowed");
            return Some(Difference::new(Kind::PropertyRemovedFromClosedContentModel, at, reason));
        }
        let text = format!("{name:?} is not described any more, and does not fit what others must");
        Some(Difference::new(Kind::PropertyRemovedNotCovered, at, because(&text, &list)))
    }

    /// Properties that the writing side does not name.
    fn unnamed<'a>(&mut self, others: &Others<'_, 'a>, theirs: &[Node<'a>]) -> Option<Difference> {
        let (removed, narrowed) = others.kinds;
        let (others, theirs) = (&others.schema, Written::new(theirs));
        if theirs.is_anything() && self.is_lenient() {
            return None;
        }
        let list = self.covers(others, &theirs);
        if list.is_empty() {
            return None;
        }
        if others.is_nothing() {
            let reason = "other properties are not allowed here, and documents may have some";
            return Some(Difference::new(removed, &others.at, reason));
        }
        let reason = because("other properties are described more narrowly", &list);
        Some(Difference::new(narrowed, &others.at, reason))
    }

    fn required<'a>(
        &mut self,
        reader: &Node<'a>,
        parts: &[Node<'a>],
        written: &Written<'a>,
        found: &mut Vec<Difference>,
    ) {
        for name in reader.strings("required") {
            let defaulted =
                self.rigour == Rigour::ByPolicy && parts.iter().any(|part| has_default(part, name));
            if written.requires(name) || defaulted {
                continue;
            }
            let reason =
                format!("{name:?} is required here, and documents may be without it; a default would help");
            let at = reader.place(&["properties", name]);
            found.push(Difference::new(Kind::RequiredAttributeAdded, at, reason));
        }
    }

    fn dependencies<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        for (keyword, name, needed) in needed_names(reader) {
            let has_reason = needed.iter().all(|needed| depends(written, name, needed));
            if !has_reason && !is_never_there(written, name) {
                let kind = dependency_kind(written, name);
                let reason = format!("{name:?} asks for {} here, which was not so", needed.join(", "));
                found.push(Difference::new(kind, reader.place(&[keyword, name]), reason));
            }
        }
        for (name, schema) in dependent_schemas(reader) {
            let theirs =
                written.parts.iter().flat_map(dependent_schemas).filter(|(theirs, _)| *theirs == name);
            let mut with: Vec<Node<'a>> = theirs.map(|(_, node)| node).collect();
            with.extend(written.parts.iter().cloned());
            let list = self.covers(&schema, &Written::new(&with));
            if !list.is_empty() && !is_never_there(written, name) {
                let kind = dependency_kind(written, name);
                let reason = because(&format!("{name:?} asks for more here"), &list);
                found.push(Difference::new(kind, &schema.at, reason));
            }
        }
    }

    fn property_names<'a>(&mut self, reader: &Node<'a>, written: &Written<'a>, found: &mut Vec<Difference>) {
        let Some(names) = reader.child("propertyNames") else { return };
        let theirs: Vec<Node<'a>> =
            written.parts.iter().filter_map(|node| node.child("propertyNames")).collect();
        let list = self.covers(&names, &Written::new(&theirs));
        if !list.is_empty() {
            let reason = because("not every name that was allowed is allowed here", &list);
            found.push(Difference::new(Kind::PropertyNamesChanged, &names.at, reason));
        }
    }
}

/// What a reading schema asks of the properties that it does not describe.
struct Others<'r, 'a> {
    schema: Node<'a>,
    /// The schemas that describe the rest; the first is the one that asks.
    readers: &'r [Node<'a>],
    kinds: (Kind, Kind),
}

/// What it is called when other properties are not allowed any more, and when they are described more narrowly.
const ADDITIONAL: (Kind, Kind) = (Kind::AdditionalPropertiesRemoved, Kind::AdditionalPropertiesNarrowed);
const UNEVALUATED: (Kind, Kind) = (Kind::UnevaluatedPropertiesRemoved, Kind::UnevaluatedPropertiesNarrowed);

impl Others<'_, '_> {
    fn reads(&self, name: &str) -> bool {
        let describes =
            |node: &Node<'_>| node.named("properties", name).is_some() || !node.matching(name).is_empty();
        self.readers.iter().any(describes)
    }

    fn reads_pattern(&self, pattern: &str) -> bool {
        self.readers.iter().any(|node| node.named("patternProperties", pattern).is_some())
    }

    fn place(&self, segments: &[&str]) -> String {
        self.readers[0].place(segments)
    }
}

/// The steps it takes to look for every name among the patterns of the other side.
fn names_and_patterns(reader: &Node<'_>, written: &Written<'_>) -> usize {
    let len = |node: &Node<'_>, keyword: &str| {
        node.get(keyword).and_then(serde_json::Value::as_object).map_or(0, serde_json::Map::len)
    };
    let (names, patterns) = (len(reader, "properties"), len(reader, "patternProperties"));
    let total = |keyword: &str| written.parts.iter().map(|part| len(part, keyword)).sum::<usize>();
    let (their_names, their_patterns) = (total("properties"), total("patternProperties"));
    let pairs = (names + their_names).saturating_mul(patterns + their_patterns);
    pairs.saturating_add(patterns.saturating_mul(their_patterns)) / QUICK_PER_STEP
}

fn has_default(part: &Node<'_>, name: &str) -> bool {
    let property = part.named("properties", name);
    property.is_some_and(|property| property.conjuncts().iter().any(|node| node.get("default").is_some()))
}

/// The dependencies that ask for names: keyword, who asks, and what for.
fn needed_names<'a>(node: &Node<'a>) -> Vec<(&'static str, &'a str, Vec<&'a str>)> {
    let mut found = Vec::new();
    for keyword in ["dependentRequired", "dependencies"] {
        let all = node.get(keyword).and_then(serde_json::Value::as_object);
        for (name, needed) in all.into_iter().flatten().filter(|(_, needed)| needed.is_array()) {
            found.push((keyword, name.as_str(), strings(needed)));
        }
    }
    found
}

fn dependent_schemas<'a>(node: &Node<'a>) -> Vec<(&'a str, Node<'a>)> {
    ["dependentSchemas", "dependencies"].iter().flat_map(|keyword| node.entries(keyword)).collect()
}

fn depends(written: &Written<'_>, name: &str, needed: &str) -> bool {
    let asks = |(_, theirs, list): &(&str, &str, Vec<&str>)| *theirs == name && list.contains(&needed);
    written.requires(needed) || written.parts.iter().flat_map(needed_names).any(|one| asks(&one))
}

fn dependency_kind(written: &Written<'_>, name: &str) -> Kind {
    let named = written.parts.iter().flat_map(needed_names).any(|(_, theirs, _)| theirs == name);
    let described = written.parts.iter().flat_map(dependent_schemas).any(|(theirs, _)| theirs == name);
    if named || described { Kind::DependencyNarrowed } else { Kind::DependencyAdded }
}

fn is_never_there(written: &Written<'_>, name: &str) -> bool {
    written.property(name).iter().any(Node::is_nothing)
}
