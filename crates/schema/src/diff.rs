//! What changed from one schema to the next, for people to read. Knows nothing of whether it breaks anybody.

use crate::{failure::shown, json_path, node::Node, schema::Schema};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// At most this many changes are listed.
pub const DIFF_LEN_MAX: usize = 500;

/// Changes deeper than this are not looked for.
const DIFF_DEPTH_MAX: usize = 64;

/// Definitions are gone into wherever they are referred to, but not more often than this.
const DIFF_WORK_MAX: usize = 20_000;

/// What happened to something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It is there in both, with something else said of it.
    Changed,
}

/// One change, on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which part of a document: `$.address.zip`, `$.tags[*]`.
    pub path: String,
    /// What it is, was, or how it changed.
    pub text: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            ChangeKind::Added => '+',
            ChangeKind::Removed => '-',
            ChangeKind::Changed => '~',
        };
        write!(f, "{sign} {}: {}", self.path, self.text)
    }
}

/// What changed from `old` to `new`, from the top down, in the order of names.
pub fn diff(old: &Schema, new: &Schema) -> Vec<Change> {
    let mut comparison = Comparison { above: Vec::new(), work: 0, found: Vec::new() };
    comparison.compare(&[old.root()], &[new.root()], json_path::ROOT);
    comparison.found
}

struct Comparison {
    /// Pairs that are being compared, from the top down; schemas can refer to themselves.
    above: Vec<(Vec<usize>, Vec<usize>)>,
    work: usize,
    found: Vec<Change>,
}

/// What is said of one part of documents, by a schema and all it refers to.
struct Said<'a> {
    parts: Vec<Node<'a>>,
}

/// Keywords that are gone into, or that only say where others stand.
const STRUCTURE: [&str; 11] = [
    "$defs",
    "$ref",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "definitions",
    "items",
    "patternProperties",
    "prefixItems",
    "properties",
    "required",
];

impl Comparison {
    fn compare(&mut self, old: &[Node<'_>], new: &[Node<'_>], path: &str) {
        let (old, new) = (Said::of(old), Said::of(new));
        let pair = (old.ids(), new.ids());
        self.work += 1;
        let is_enough = self.above.len() > DIFF_DEPTH_MAX || self.work > DIFF_WORK_MAX;
        if is_enough || self.above.contains(&pair) {
            return;
        }
        self.above.push(pair);
        self.keywords(&old, &new, path);
        self.members(&old.properties(), &new.properties(), |name| {
            let text = |said: &Said<'_>| if said.requires(name) { ", required" } else { "" };
            (json_path::member(path, name), text(&old), text(&new))
        });
        let places = |path: String| (path, "", "");
        self.members(&old.patterns(), &new.patterns(), |name| places(format!("{path}./{name}/")));
        self.members(&old.elements(), &new.elements(), |name| places(format!("{path}[{name}]")));
        self.members(&old.others(), &new.others(), |_| places(format!("{path}.*")));
        self.above.pop();
    }

    fn keywords(&mut self, old: &Said<'_>, new: &Said<'_>, path: &str) {
        let (old, new) = (old.keywords(), new.keywords());
        let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
        for name in names {
            let text = match (old.get(name), new.get(name)) {
                (Some(old), Some(new)) if old != new => format!("{name} {} → {}", list(old), list(new)),
                (Some(old), None) => format!("{name} removed (was {})", list(old)),
                (None, Some(new)) => format!("{name} {} added", list(new)),
                _ => continue,
            };
            self.push(ChangeKind::Changed, path.to_owned(), text);
        }
    }

    /// `place` tells where a member is, and what is to be said of it besides, before and now.
    fn members<'p>(
        &mut self,
        old: &BTreeMap<String, Vec<Node<'_>>>,
        new: &BTreeMap<String, Vec<Node<'_>>>,
        place: impl Fn(&str) -> (String, &'p str, &'p str),
    ) {
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let (path, before, now) = place(name);
            match (old.get(name), new.get(name)) {
                (Some(old), None) => {
                    self.push(ChangeKind::Removed, path, format!("{}{before}", Said::of(old).summary()));
                }
                (None, Some(new)) => {
                    self.push(ChangeKind::Added, path, format!("{}{now}", Said::of(new).summary()));
                }
                (Some(old), Some(new)) => {
                    if before != now {
                        let text = if now.is_empty() { "no longer required" } else { "now required" };
                        self.push(ChangeKind::Changed, path.clone(), text.to_owned());
                    }
                    self.compare(old, new, &path);
                }
                (None, None) => {}
            }
        }
    }

    fn push(&mut self, kind: ChangeKind, path: String, text: String) {
        if self.found.len() < DIFF_LEN_MAX {
            self.found.push(Change { kind, path, text });
        }
    }
}

impl<'a> Said<'a> {
    fn of(nodes: &[Node<'a>]) -> Said<'a> {
        Said { parts: nodes.iter().flat_map(Node::conjuncts).collect() }
    }

    /// What tells it from others, whether or not it is reached by a reference.
    fn ids(&self) -> Vec<usize> {
        let is_way = |node: &&Node<'a>| node.assertions().all(|(keyword, _)| keyword == "$ref");
        let mut ids: Vec<usize> = self.parts.iter().filter(|node| !is_way(node)).map(Node::id).collect();
        if ids.is_empty() {
            ids.extend(self.parts.iter().map(Node::id));
        }
        ids
    }

    fn requires(&self, name: &str) -> bool {
        self.parts.iter().any(|part| part.strings("required").contains(&name))
    }

    /// What is said and not gone into.
    fn keywords(&self) -> BTreeMap<&'a str, Vec<&'a Value>> {
        let mut found: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for part in &self.parts {
            let all = part.value.as_object().into_iter().flatten();
            for (name, _) in all.filter(|(name, _)| !STRUCTURE.contains(&name.as_str())) {
                found.entry(name).or_default().extend(part.get(name));
            }
            if let Some(closed @ Value::Bool(_)) = part.get("additionalProperties") {
                found.entry("additionalProperties").or_default().push(closed);
            }
        }
        found.retain(|_, values| !values.is_empty());
        found
    }

    fn properties(&self) -> BTreeMap<String, Vec<Node<'a>>> {
        self.by_name(|part| owned(part.entries("properties")))
    }

    fn patterns(&self) -> BTreeMap<String, Vec<Node<'a>>> {
        self.by_name(|part| owned(part.entries("patternProperties")))
    }

    fn elements(&self) -> BTreeMap<String, Vec<Node<'a>>> {
        self.by_name(|part| {
            let items = part.items();
            let prefix = items.prefix.into_iter().enumerate().map(|(index, node)| (index.to_string(), node));
            prefix.chain(items.rest.map(|node| ("*".to_owned(), node))).collect()
        })
    }

    fn others(&self) -> BTreeMap<String, Vec<Node<'a>>> {
        self.by_name(|part| {
            let others = part.child("additionalProperties").filter(|node| node.value.is_object());
            others.into_iter().map(|node| (String::new(), node)).collect()
        })
    }

    fn by_name(
        &self,
        named: impl Fn(&Node<'a>) -> Vec<(String, Node<'a>)>,
    ) -> BTreeMap<String, Vec<Node<'a>>> {
        let mut found: BTreeMap<String, Vec<Node<'a>>> = BTreeMap::new();
        for (name, node) in self.parts.iter().flat_map(named) {
            found.entry(name).or_default().push(node);
        }
        found
    }

    /// A few words on what it is.
    fn summary(&self) -> String {
        let types = self.parts.iter().map(crate::schema::allowed_types).reduce(crate::types::Types::and);
        let fixed = self.keywords().remove("const").or_else(|| self.keywords().remove("enum"));
        match fixed {
            Some(values) => format!("one of {}", list(&values)),
            None => types.map_or_else(|| "any type".to_owned(), |types| types.to_string()),
        }
    }
}

fn owned<'a>(entries: Vec<(&'a str, Node<'a>)>) -> Vec<(String, Node<'a>)> {
    entries.into_iter().map(|(name, node)| (name.to_owned(), node)).collect()
}

fn list(values: &[&Value]) -> String {
    values.iter().map(|value| shown(value)).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(old: &str, new: &str, expected: &[&str]) {
        let (old, new) = (Schema::parse(old).unwrap(), Schema::parse(new).unwrap());
        let lines: Vec<String> = diff(&old, &new).iter().map(Change::to_string).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn every_change_is_a_line() {
        check(
            r#"{"type":"object","required":["a"],"properties":{
                "a":{"type":"string","maxLength":5},"b":{"type":"integer"},
                "list":{"type":"array","items":{"type":"string"}},
                "inner":{"type":"object","properties":{"x":{"enum":[1,2]}}}}}"#,
            r#"{"type":"object","required":["c"],"additionalProperties":false,"properties":{
                "a":{"type":"string","maxLength":9,"title":"A"},"c":{"type":["string","null"]},
                "list":{"type":"array","items":{"type":"integer"}},
                "inner":{"type":"object","properties":{"x":{"enum":[1]},"y":{"const":true}}}}}"#,
            &[
                "~ $: additionalProperties false added",
                "~ $.a: no longer required",
                "~ $.a: maxLength 5 → 9",
                "~ $.a: title \"A\" added",
                "- $.b: integer",
                "+ $.c: null or string, required",
                "~ $.inner.x: enum [1,2] → [1]",
                "+ $.inner.y: one of true",
                "~ $.list[*]: type \"string\" → \"integer\"",
            ],
        );
    }

    #[test]
    fn references_are_followed_and_recursion_ends() {
        let tree = |leaf: &str| {
            format!(
                r##"{{"$defs":{{"t":{{"type":"object","properties":{{
                    "value":{{"type":"{leaf}"}},"next":{{"$ref":"#/$defs/t"}}}}}}}},"$ref":"#/$defs/t"}}"##
            )
        };
        check(&tree("string"), &tree("string"), &[]);
        check(&tree("string"), &tree("number"), &["~ $.value: type \"string\" → \"number\""]);
    }
}
