//! Whether two schemas say the same, whatever their annotations and wherever their definitions stand. Knows
//! nothing of which of them reads.

use crate::node::Node;
use std::collections::BTreeSet;

/// More places than this are not looked at; the schemas then count as different.
const PLACES_LEN_MAX: usize = 50_000;

/// Whether both say the same, keyword by keyword. Schemas that say the same in different words are not `same`.
pub(super) fn same(a: &Node<'_>, b: &Node<'_>) -> bool {
    counted_same(a, b, &mut 0)
}

/// The same; counts the places that were looked at.
pub(super) fn counted_same(a: &Node<'_>, b: &Node<'_>, looked_at: &mut usize) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![(a.clone(), b.clone())];
    while let Some((a, b)) = open.pop() {
        if !seen.insert((a.id(), b.id())) {
            continue;
        }
        *looked_at += 1;
        if seen.len() > PLACES_LEN_MAX || !same_here(&a, &b) {
            return false;
        }
        let (below_a, below_b) = (below(&a), below(&b));
        if below_a.len() != below_b.len() {
            return false;
        }
        for ((way_a, node_a), (way_b, node_b)) in below_a.into_iter().zip(below_b) {
            if way_a != way_b {
                return false;
            }
            open.push((node_a, node_b));
        }
    }
    true
}

/// Apart from the schemas inside, which are compared by themselves.
fn same_here(a: &Node<'_>, b: &Node<'_>) -> bool {
    let own = |node: &Node<'_>| -> Vec<(&'static str, String)> {
        let text = |keyword: &str, value: &serde_json::Value| match keyword {
            // Lists of names in here are not schemas, so they count as they are.
            "dependencies" => value
                .as_object()
                .map(|all| {
                    all.iter().filter(|(_, one)| one.is_array()).map(|(k, v)| format!("{k}{v}")).collect()
                })
                .unwrap_or_default(),
            _ if Node::holds_schemas(keyword) => String::new(),
            _ => value.to_string(),
        };
        node.assertions().map(|(keyword, value)| (keyword, text(keyword, value))).collect()
    };
    let drafts_agree = a.source.draft == b.source.draft;
    drafts_agree && a.value.as_bool() == b.value.as_bool() && own(a) == own(b)
}

/// The schemas inside that have a say, by the way to them, and the one that is referred to.
fn below<'a>(node: &Node<'a>) -> Vec<(String, Node<'a>)> {
    let way = |inner: &Node<'a>| inner.at[node.at.len()..].to_owned();
    let is_definition = |way: &str| way.starts_with("/$defs/") || way.starts_with("/definitions/");
    let mut found: Vec<(String, Node<'a>)> =
        node.subschemas().into_iter().map(|inner| (way(&inner), inner)).collect();
    found.retain(|(way, _)| !is_definition(way));
    found.extend(node.reference().map(|target| ("$ref".to_owned(), target)));
    found
}
