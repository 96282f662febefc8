//! One schema inside a schema document, read the way its draft reads it. Knows nothing of what it is read for.

use crate::{draft::Draft, pattern::Pattern, types::Types};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Keywords that can refuse a value. Everything else is an annotation: it never matters to who reads.
/// `format` and `content…` are annotations here in every draft, because the registry compares them nowhere.
const ASSERTIONS: [&str; 42] = [
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "if",
    "items",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "prefixItems",
    "properties",
    "propertyNames",
    "required",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
    "$dynamicRef",
    "$recursiveRef",
];

/// Keywords that hold one schema, or a list of them.
const HOLDING_SCHEMAS: [&str; 15] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];

/// Keywords that hold schemas by name; the first two only keep them for references.
const HOLDING_NAMED: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// A schema document with what reading it needs.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) root: Value,
    pub(crate) draft: Draft,
    /// One for every regular expression in the document.
    pub(crate) patterns: BTreeMap<String, Arc<Pattern>>,
}

/// A place in a [`Source`] where a schema stands.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    pub(crate) source: &'a Source,
    pub(crate) value: &'a Value,
    /// `#/properties/age`
    pub(crate) at: String,
}

/// What a schema says of the elements of a list.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    /// The first ones, by their place.
    pub(crate) prefix: Vec<Node<'a>>,
    /// All after those.
    pub(crate) rest: Option<Node<'a>>,
}

impl Source {
    pub(crate) fn root(&self) -> Node<'_> {
        Node { source: self, value: &self.root, at: "#".to_owned() }
    }

    /// The schema that a `$ref` of the form `#/…` stands for.
    pub(crate) fn resolve(&self, reference: &str) -> Option<Node<'_>> {
        let pointer = percent_decoded(reference.strip_prefix('#')?)?;
        let value = self.root.pointer(&pointer)?;
        Some(Node { source: self, value, at: format!("#{pointer}") })
    }

    pub(crate) fn matches(&self, pattern: &str, text: &str) -> bool {
        let text = Value::String(text.to_owned());
        self.patterns.get(pattern).is_some_and(|pattern| pattern.matches(&text))
    }
}

impl<'a> Node<'a> {
    /// What tells it from every other place, also from those of other documents that are alive.
    pub(crate) fn id(&self) -> usize {
        std::ptr::from_ref(self.value).addr()
    }

    /// What a keyword says, if the draft knows the keyword here.
    pub(crate) fn get(&self, keyword: &str) -> Option<&'a Value> {
        let object = self.value.as_object()?;
        let value = object.get(keyword)?;
        let hidden = keyword != "$ref"
            && self.source.draft.reference_stands_alone()
            && object.get("$ref").is_some_and(Value::is_string);
        (!hidden && self.source.draft.knows(keyword)).then_some(value)
    }

    pub(crate) fn string(&self, keyword: &str) -> Option<&'a str> {
        self.get(keyword)?.as_str()
    }

    pub(crate) fn strings(&self, keyword: &str) -> Vec<&'a str> {
        self.get(keyword).map(strings).unwrap_or_default()
    }

    fn object(&self, keyword: &str) -> Option<&'a Map<String, Value>> {
        self.get(keyword)?.as_object()
    }

    /// The schema that a keyword holds.
    pub(crate) fn child(&self, keyword: &str) -> Option<Node<'a>> {
        let value = self.get(keyword)?;
        is_schema(value).then(|| self.below(value, &[keyword]))
    }

    /// The schemas that a keyword holds as a list.
    pub(crate) fn children(&self, keyword: &str) -> Vec<Node<'a>> {
        let list = self.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let child = |(index, value)| self.below(value, &[keyword, &usize::to_string(&index)]);
        list.iter().enumerate().filter(|(_, value)| is_schema(value)).map(child).collect()
    }

    /// The schema that a keyword holds under a name.
    pub(crate) fn named(&self, keyword: &str, name: &str) -> Option<Node<'a>> {
        let value = self.object(keyword)?.get(name)?;
        is_schema(value).then(|| self.below(value, &[keyword, name]))
    }

    /// The schemas that a keyword holds by name.
    pub(crate) fn entries(&self, keyword: &str) -> Vec<(&'a str, Node<'a>)> {
        let entry = |(name, value): (&'a String, &'a Value)| {
            is_schema(value).then(|| (name.as_str(), self.below(value, &[keyword, name])))
        };
        self.object(keyword).into_iter().flatten().filter_map(entry).collect()
    }

    /// The schema that `$ref` stands for.
    pub(crate) fn reference(&self) -> Option<Node<'a>> {
        self.source.resolve(self.string("$ref")?)
    }

    /// The schemas of those patterns of `patternProperties` that match a name.
    pub(crate) fn matching(&self, name: &str) -> Vec<Node<'a>> {
        let entries = self.entries("patternProperties").into_iter();
        entries.filter(|(pattern, _)| self.source.matches(pattern, name)).map(|(_, node)| node).collect()
    }

    /// Drafts write the elements of a list in two ways.
    pub(crate) fn items(&self) -> Items<'a> {
        if self.source.draft == Draft::Draft202012 {
            return Items { prefix: self.children("prefixItems"), rest: self.child("items") };
        }
        match self.get("items") {
            Some(Value::Array(_)) => {
                Items { prefix: self.children("items"), rest: self.child("additionalItems") }
            }
            _ => Items { prefix: Vec::new(), rest: self.child("items") },
        }
    }

    /// Itself and every schema that a value has to fit as well, through `$ref` and `allOf`.
    pub(crate) fn conjuncts(&self) -> Vec<Node<'a>> {
        let also = |node: &Node<'a>| node.reference().into_iter().chain(node.children("allOf")).collect();
        self.in_place(also)
    }

    /// Itself and every schema that has a say about the same value, in whatever way.
    pub(crate) fn branches(&self) -> Vec<Node<'a>> {
        self.in_place(Node::also)
    }

    /// Every schema that this one names to have a say about the same value.
    pub(crate) fn also(&self) -> Vec<Node<'a>> {
        let mut found: Vec<Node<'a>> = self.reference().into_iter().collect();
        found.extend(["allOf", "anyOf", "oneOf"].iter().flat_map(|keyword| self.children(keyword)));
        found.extend(["if", "then", "else"].iter().filter_map(|keyword| self.child(keyword)));
        for keyword in ["dependentSchemas", "dependencies"] {
            found.extend(self.entries(keyword).into_iter().map(|(_, node)| node));
        }
        found
    }

    fn in_place(&self, next: impl Fn(&Node<'a>) -> Vec<Node<'a>>) -> Vec<Node<'a>> {
        let mut seen = BTreeSet::from([self.id()]);
        let mut found = vec![self.clone()];
        let mut done = 0;
        while let Some(node) = found.get(done).cloned() {
            done += 1;
            found.extend(next(&node).into_iter().filter(|node| seen.insert(node.id())));
        }
        found
    }

    /// Whether it cannot refuse anything.
    pub(crate) fn is_anything(&self) -> bool {
        match self.value {
            Value::Bool(all) => *all,
            _ => !self.assertions().any(|_| true),
        }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        *self.value == Value::Bool(false)
    }

    /// What it says with keywords that can refuse.
    pub(crate) fn assertions(&self) -> impl Iterator<Item = (&'static str, &'a Value)> {
        ASSERTIONS.iter().filter_map(|keyword| Some((*keyword, self.get(keyword)?)))
    }

    /// The types it says, without looking at what it refers to.
    pub(crate) fn types(&self) -> Types {
        self.get("type").map_or(Types::ALL, Types::read)
    }

    /// Every schema directly inside this one, with the way there.
    pub(crate) fn subschemas(&self) -> Vec<Node<'a>> {
        let mut found = Vec::new();
        for keyword in HOLDING_SCHEMAS {
            found.extend(self.child(keyword));
            found.extend(self.children(keyword));
        }
        for keyword in HOLDING_NAMED {
            found.extend(self.entries(keyword).into_iter().map(|(_, node)| node));
        }
        found
    }

    /// Whether a keyword holds nothing but schemas, which are then compared one by one.
    pub(crate) fn holds_schemas(keyword: &str) -> bool {
        keyword == "$ref" || HOLDING_SCHEMAS.contains(&keyword) || HOLDING_NAMED.contains(&keyword)
    }

    /// The place of something below.
    pub(crate) fn place(&self, segments: &[&str]) -> String {
        let mut at = self.at.clone();
        for segment in segments {
            at.push('/');
            at.push_str(&segment.replace('~', "~0").replace('/', "~1"));
        }
        at
    }

    fn below(&self, value: &'a Value, segments: &[&str]) -> Node<'a> {
        Node { source: self.source, value, at: self.place(segments) }
    }
}

pub(crate) fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

pub(crate) fn strings(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// A `$ref` is a URI, so its pointer may be written with `%` escapes.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}
