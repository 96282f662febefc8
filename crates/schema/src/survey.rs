//! Goes through a schema document once and refuses what could not be used safely later. Knows nothing of
//! documents that are to be validated.

use crate::{
    draft::Draft,
    node::{Node, Source, is_schema},
    pattern::Pattern,
    references::localized,
    schema::Invalid,
};
use jsonschema::{PatternOptions, Regex};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The keyword with which a property asks for an index, at the top or below other properties.
pub const INDEX_KEYWORD: &str = "x-lockwood-index";

/// A document has at most this many schemas in it.
pub const NODES_LEN_MAX: usize = 20_000;

/// One value is looked at by at most this many schemas of the document, counted as often as they are
/// referred to; else a short schema could make validation take for ever.
pub const IN_PLACE_LEN_MAX: usize = 4_000;

/// Schemas that look at one value refer to each other at most so many times in a row.
pub const IN_PLACE_DEPTH_MAX: usize = 64;

/// The engine that takes linear time. A pattern that needs another (look-around, back-references) is refused.
pub(crate) fn pattern_options() -> PatternOptions<Regex> {
    const COMPILED_BYTES_MAX: usize = 1 << 20;
    PatternOptions::regex().size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX)
}

/// Looks at every schema that can be reached, and compiles the patterns on the way.
pub(crate) fn survey(root: Value, draft: Draft) -> Result<Source, Invalid> {
    let source = Source { root: localized(root, draft)?, draft, patterns: BTreeMap::new() };
    let mut patterns = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let mut open = vec![source.root()];
    let mut costs = BTreeMap::new();
    while let Some(node) = open.pop() {
        if !seen.insert(node.id()) {
            continue;
        }
        if seen.len() > NODES_LEN_MAX {
            return Err(Invalid::new(&node.at, format!("there are more than {NODES_LEN_MAX} schemas in it")));
        }
        look_at(&node, &mut patterns)?;
        in_place_len(&node, &mut costs, &mut Vec::new())?;
        open.extend(node.reference());
        open.extend(node.subschemas());
    }
    Ok(Source { patterns, ..source })
}

fn look_at(node: &Node<'_>, patterns: &mut BTreeMap<String, Arc<Pattern>>) -> Result<(), Invalid> {
    check_reference(node)?;
    check_identity(node)?;
    check_index(node)?;
    if let Some(pattern) = node.string("pattern") {
        compile(pattern, node.place(&["pattern"]), patterns)?;
    }
    for (pattern, below) in node.entries("patternProperties") {
        compile(pattern, below.at, patterns)?;
    }
    Ok(())
}

fn check_reference(node: &Node<'_>) -> Result<(), Invalid> {
    for keyword in ["$dynamicRef", "$recursiveRef"] {
        if node.get(keyword).is_some() {
            let reason = format!("{keyword} is not supported; write a $ref that begins with #/");
            return Err(Invalid::new(&node.place(&[keyword]), reason));
        }
    }
    let Some(reference) = node.string("$ref") else { return Ok(()) };
    let refuse = |reason| Err(Invalid::new(&node.place(&["$ref"]), reason));
    match node.source.resolve(reference) {
        Some(target) if is_schema(target.value) => Ok(()),
        Some(_) => refuse(format!("the $ref {reference:?} leads to something that is not a schema")),
        None => refuse(format!("the $ref {reference:?} leads to nothing")),
    }
}

/// One draft holds for all of a document.
fn check_identity(node: &Node<'_>) -> Result<(), Invalid> {
    let Some(named) = node.get("$schema").filter(|_| node.at != "#") else { return Ok(()) };
    if named.as_str().and_then(Draft::named) == Some(node.source.draft) {
        return Ok(());
    }
    let reason = "$schema inside names another draft than at the top; one draft holds for all of it";
    Err(Invalid::new(&node.place(&["$schema"]), reason))
}

fn check_index(node: &Node<'_>) -> Result<(), Invalid> {
    let Some(value) = node.value.get(INDEX_KEYWORD) else { return Ok(()) };
    let refuse = |reason: &str| Err(Invalid::new(&node.place(&[INDEX_KEYWORD]), reason));
    let Value::Bool(wanted) = value else {
        return refuse("x-lockwood-index is either true or false");
    };
    let segments: Vec<&str> = node.at.split('/').skip(1).collect();
    let is_property = !segments.is_empty()
        && segments.len().is_multiple_of(2)
        && segments.iter().step_by(2).all(|keyword| *keyword == "properties");
    if *wanted && !is_property {
        return refuse(
            "only fields and what is inside objects can be indexed; write x-lockwood-index directly in a schema \
             of the properties at the top, or of properties of these",
        );
    }
    Ok(())
}

fn compile(pattern: &str, at: String, patterns: &mut BTreeMap<String, Arc<Pattern>>) -> Result<(), Invalid> {
    if patterns.contains_key(pattern) {
        return Ok(());
    }
    let Some(read) = Pattern::read(pattern) else {
        let reason = format!(
            "the pattern {pattern:?} cannot be used: it is not a regular expression, or it is too large, or it \
             has look-around or back-references, which can take for ever"
        );
        return Err(Invalid { pointer: at, reason });
    };
    patterns.insert(pattern.to_owned(), Arc::new(read));
    Ok(())
}

/// How many schemas look at the same value when this one does; fails when they go round in circles.
fn in_place_len(
    node: &Node<'_>,
    known: &mut BTreeMap<usize, usize>,
    above: &mut Vec<usize>,
) -> Result<usize, Invalid> {
    if let Some(len) = known.get(&node.id()) {
        return Ok(*len);
    }
    if above.contains(&node.id()) {
        return Err(Invalid::new(&node.at, "the schema refers to itself without going into the value"));
    }
    if above.len() == IN_PLACE_DEPTH_MAX {
        let reason = format!("more than {IN_PLACE_DEPTH_MAX} schemas refer to each other for one value");
        return Err(Invalid::new(&node.at, reason));
    }
    above.push(node.id());
    let mut len = 1_usize;
    for next in looking_at_the_same(node) {
        len = len.saturating_add(in_place_len(&next, known, above)?);
    }
    above.pop();
    if len > IN_PLACE_LEN_MAX {
        let reason = format!("one value would be looked at more than {IN_PLACE_LEN_MAX} times");
        return Err(Invalid::new(&node.at, reason));
    }
    known.insert(node.id(), len);
    Ok(len)
}

fn looking_at_the_same<'a>(node: &Node<'a>) -> Vec<Node<'a>> {
    let mut found: Vec<Node<'a>> = node.reference().into_iter().collect();
    found.extend(["allOf", "anyOf", "oneOf"].iter().flat_map(|keyword| node.children(keyword)));
    found.extend(["if", "then", "else", "not"].iter().filter_map(|keyword| node.child(keyword)));
    for keyword in ["dependentSchemas", "dependencies"] {
        found.extend(node.entries(keyword).into_iter().map(|(_, node)| node));
    }
    found
}
