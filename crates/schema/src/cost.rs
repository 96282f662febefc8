//! What validating a value costs, found out before it is done: the validator cannot be interrupted. Knows nothing
//! of who pays.
//!
//! A schema that looks at a value costs a few steps. Which schemas look at which part of the value follows from the
//! schema and the names and lengths in the value, so it can be counted without validating anything. A schema that
//! does not refer to itself looks at each part at most once for each time it can be reached, which gives a bound
//! without counting.

use crate::{
    node::{Node, Source},
    pattern::Pattern,
    schema::Schema,
};
use lockwood_model::{Budget, Exhausted};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// One schema that looks at one value costs so many steps.
const STEPS_PER_LOOK: u64 = 4;
/// A part of a value takes at least so many bytes, with what separates it from others.
const PART_BYTES_MIN: u64 = 2;
/// Reading so much text takes as long as another look.
const TEXT_BYTES_PER_LOOK: usize = 64;
/// Schemas look at parts of parts at most so deep; the validator calls itself as often.
const DEPTH_MAX: u32 = 1000;

/// Schemas that are further from the top than this are not part of the bound.
const EXPANDED_DEPTH_MAX: usize = 200;

/// Who looks at what.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    looks: Vec<Look>,
    /// How often schemas look if each looks once for each time it can be reached; none if that never ends.
    expanded: Option<u64>,
}

/// One schema.
#[derive(Debug, Default)]
struct Look {
    steps: u64,
    /// What a text has to match.
    pattern: Option<Arc<Pattern>>,
    /// Schemas that look at the same value.
    same: Vec<usize>,
    /// Those of the elements of a list.
    prefix: Vec<usize>,
    rest: Option<usize>,
    contains: Option<usize>,
    /// Those of the members of an object.
    members: HashMap<Box<str>, usize>,
    patterns: Vec<(Arc<Pattern>, usize)>,
    others: Vec<usize>,
    names: Option<usize>,
    /// Schemas that look at the same value do so twice, to find out what is left for `unevaluated…`.
    twice: bool,
}

impl Schema {
    /// Pays for validating a value that takes so many bytes as JSON.
    pub(crate) fn pay(&self, value: &Value, bytes: usize, budget: &Budget) -> Result<(), Exhausted> {
        let parts = 1 + bytes as u64 / PART_BYTES_MIN;
        let bound =
            self.costs().expanded.map(|looks| looks.saturating_mul(parts).saturating_mul(STEPS_PER_LOOK));
        match bound {
            Some(steps) if steps < budget.left() / 8 => budget.spend(steps),
            _ => self.costs().count(value, budget),
        }
    }
}

impl Costs {
    pub(crate) fn of(source: &Source) -> Costs {
        let mut places = BTreeMap::new();
        let mut open = vec![source.root()];
        let mut costs = Costs::default();
        let mut nodes = Vec::new();
        while let Some(node) = open.pop() {
            if places.contains_key(&node.id()) {
                continue;
            }
            places.insert(node.id(), nodes.len());
            open.extend(below(&node));
            nodes.push(node);
        }
        costs.looks = nodes.iter().map(|node| Look::of(node, &places)).collect();
        costs.expanded = costs.expand(0, &mut vec![None; nodes.len()], &mut Vec::new());
        costs
    }

    /// How many looks one schema stands for; none if it is reached from itself, or only by a long way.
    fn expand(&self, at: usize, known: &mut [Option<u64>], above: &mut Vec<usize>) -> Option<u64> {
        if let Some(looks) = known[at] {
            return Some(looks);
        }
        if above.contains(&at) || above.len() == EXPANDED_DEPTH_MAX {
            return None;
        }
        above.push(at);
        let look = &self.looks[at];
        let mut looks = look.steps.saturating_add(look.reading());
        let times = if look.twice { 2 } else { 1 };
        for next in &look.same {
            looks = looks.saturating_add(self.expand(*next, known, above)?.saturating_mul(times));
        }
        for next in look.inner() {
            looks = looks.saturating_add(self.expand(next, known, above)?);
        }
        above.pop();
        known[at] = Some(looks);
        Some(looks)
    }

    /// Pays for every look at every part. Counts what would be looked at if nothing were refused before.
    fn count(&self, value: &Value, budget: &Budget) -> Result<(), Exhausted> {
        let mut open = vec![(0, value, 0)];
        while let Some((at, value, depth)) = open.pop() {
            let look = &self.looks[at];
            let text = value.as_str().map_or(0, |text| (text.len() / TEXT_BYTES_PER_LOOK) as u64);
            budget.spend((look.steps + text).saturating_mul(STEPS_PER_LOOK))?;
            if let (Some(pattern), Some(text)) = (&look.pattern, value.as_str()) {
                budget.spend(pattern.steps(text.len()))?;
            }
            if depth == DEPTH_MAX {
                return Err(Exhausted::Spent(budget.steps_max()));
            }
            let mut push = |at: usize, value| open.push((at, value, depth + 1));
            for _ in 0..if look.twice { 2 } else { 1 } {
                look.same.iter().for_each(|at| push(*at, value));
            }
            match value {
                Value::Array(list) => {
                    budget.spend(list.len() as u64)?;
                    for (index, element) in list.iter().enumerate() {
                        look.element(index).for_each(|at| push(at, element));
                    }
                }
                Value::Object(object) => {
                    for (name, member) in object {
                        budget.spend(STEPS_PER_LOOK)?;
                        look.names.map_or(Ok(()), |at| self.name(at, name.len(), budget))?;
                        look.patterns
                            .iter()
                            .try_for_each(|(like, _)| budget.spend(like.steps(name.len())))?;
                        look.member(name).for_each(|at| push(at, member));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Pays for looking at a name. Schemas that look at the same value go round in no circles.
    fn name(&self, at: usize, bytes: usize, budget: &Budget) -> Result<(), Exhausted> {
        let look = &self.looks[at];
        let text = (bytes / TEXT_BYTES_PER_LOOK) as u64;
        budget.spend((look.steps + text).saturating_mul(STEPS_PER_LOOK))?;
        look.pattern.iter().try_for_each(|pattern| budget.spend(pattern.steps(bytes)))?;
        look.same.iter().try_for_each(|next| self.name(*next, bytes, budget))
    }
}

impl Look {
    fn of(node: &Node<'_>, places: &BTreeMap<usize, usize>) -> Look {
        let place = |node: &Node<'_>| places[&node.id()];
        let (items, names) = (node.items(), ["dependentSchemas", "dependencies"]);
        let mut same: Vec<usize> = node.reference().iter().map(place).collect();
        for keyword in ["allOf", "anyOf", "oneOf"] {
            same.extend(node.children(keyword).iter().map(place));
        }
        for keyword in ["if", "then", "else", "not"] {
            same.extend(node.child(keyword).iter().map(place));
        }
        for keyword in names {
            same.extend(node.entries(keyword).iter().map(|(_, node)| place(node)));
        }
        let unevaluated = ["unevaluatedProperties", "unevaluatedItems"];
        let others = ["additionalProperties", "unevaluatedProperties"];
        Look {
            steps: 1 + sizes(node),
            pattern: node
                .string("pattern")
                .and_then(|pattern| node.source.patterns.get(pattern))
                .map(Arc::clone),
            same,
            prefix: items.prefix.iter().map(place).collect(),
            rest: items.rest.or_else(|| node.child("unevaluatedItems")).as_ref().map(place),
            contains: node.child("contains").as_ref().map(place),
            members: node
                .entries("properties")
                .iter()
                .map(|(name, node)| ((*name).into(), place(node)))
                .collect(),
            patterns: node
                .entries("patternProperties")
                .iter()
                .filter_map(|(pattern, below)| {
                    Some((Arc::clone(node.source.patterns.get(*pattern)?), place(below)))
                })
                .collect(),
            others: others
                .iter()
                .filter_map(|keyword| node.child(keyword))
                .map(|node| place(&node))
                .collect(),
            names: node.child("propertyNames").as_ref().map(place),
            twice: unevaluated.iter().any(|keyword| node.get(keyword).is_some()),
        }
    }

    /// As how many looks at each part the patterns count if all of the value is text for them. A part has at least
    /// [`PART_BYTES_MIN`] bytes.
    fn reading(&self) -> u64 {
        let all = self.pattern.iter().chain(self.patterns.iter().map(|(pattern, _)| pattern));
        let part = |pattern: &Arc<Pattern>| {
            let read = pattern.steps_per_64_bytes().saturating_mul(PART_BYTES_MIN) / 64;
            (read.saturating_add(pattern.steps(0)) / STEPS_PER_LOOK).saturating_add(1)
        };
        all.map(part).fold(0, u64::saturating_add)
    }

    /// The schemas of parts of the value.
    fn inner(&self) -> impl Iterator<Item = usize> + '_ {
        let lists = self.prefix.iter().chain(&self.rest).chain(&self.contains);
        let members = self.members.values().chain(self.patterns.iter().map(|(_, at)| at));
        lists.chain(members).chain(&self.others).chain(&self.names).copied()
    }

    fn element(&self, index: usize) -> impl Iterator<Item = usize> {
        let described = self.prefix.get(index).copied().or(self.rest);
        described.into_iter().chain(self.contains)
    }

    fn member<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let mut found: Vec<usize> = self.members.get(name).copied().into_iter().collect();
        if !self.patterns.is_empty() {
            let text = Value::String(name.to_owned());
            let like = self.patterns.iter().filter(|(pattern, _)| pattern.matches(&text));
            found.extend(like.map(|(_, at)| *at));
        }
        if found.is_empty() {
            found.extend(&self.others);
        }
        found.into_iter()
    }
}

/// Every schema that a validator can come to from this one.
fn below<'a>(node: &Node<'a>) -> Vec<Node<'a>> {
    let mut found = node.subschemas();
    found.extend(node.reference());
    found
}

/// What a value is compared with: the values of `enum` and `const`, the names of `required`.
fn sizes(node: &Node<'_>) -> u64 {
    let keywords = ["enum", "const", "required", "dependentRequired"];
    keywords.iter().filter_map(|keyword| node.get(keyword)).map(parts).sum()
}

fn parts(value: &Value) -> u64 {
    match value {
        Value::Array(list) => 1 + list.iter().map(parts).sum::<u64>(),
        Value::Object(object) => 1 + object.values().map(parts).sum::<u64>(),
        Value::String(text) => 1 + (text.len() / TEXT_BYTES_PER_LOOK) as u64,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The steps that validating takes, counted and by the bound.
    fn steps(schema: &str, value: &Value) -> (u64, Option<u64>) {
        let schema = Schema::parse(schema).unwrap();
        let budget = Budget::unlimited();
        schema.costs().count(value, &budget).unwrap();
        let parts = 1 + value.to_string().len() as u64 / PART_BYTES_MIN;
        (u64::MAX - budget.left(), schema.costs().expanded.map(|looks| looks * parts * STEPS_PER_LOOK))
    }

    #[test]
    fn alternatives_cost_for_every_element() {
        let schema = |alternatives: usize| {
            let all: Vec<String> =
                (0..alternatives).map(|number| format!("{{\"const\":{number}}}")).collect();
            format!(r#"{{"properties":{{"x":{{"contains":{{"anyOf":[{}]}}}}}}}}"#, all.join(","))
        };
        let value = json!({ "x": vec![-1; 1000] });
        let (few, many) = (steps(&schema(10), &value).0, steps(&schema(1000), &value).0);
        assert!(few > 10 * 1000 && many > 1000 * 1000 && many > 50 * few, "{few} {many}");
    }

    #[test]
    fn the_bound_is_never_below_what_is_counted() {
        let schemas = [
            r#"{"properties":{"a":{"type":"integer"},"b":{"items":{"enum":[1,2,3]}}},"additionalProperties":{"minimum":1}}"#,
            r##"{"$ref":"#/$defs/x","$defs":{"x":{"allOf":[{"patternProperties":{"^a":{"maxLength":3}}},{"not":{"required":["z"]}}]}}}"##,
            r#"{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":{"type":"array"},"propertyNames":{"maxLength":9}}"#,
        ];
        for value in
            [json!({}), json!({"a": 1, "b": [1, 2, [3]]}), json!({"abc": "x".repeat(500), "c": {"d": 1}})]
        {
            for schema in schemas {
                let (counted, bound) = steps(schema, &value);
                assert!(bound.is_some_and(|bound| counted <= bound), "{counted} {bound:?} {schema} {value}");
            }
        }
    }

    #[test]
    fn a_pattern_with_many_places_costs_for_every_letter() {
        let schema = r#"{"properties":{"x":{"pattern":"a[ab]{900}c"}}}"#;
        let (counted, bound) = steps(schema, &json!({ "x": "ab".repeat(50_000) }));
        assert!(counted > 100_000_000 && bound.is_some_and(|bound| bound >= counted), "{counted} {bound:?}");
    }

    /// Two alternatives that both go on below double with every level.
    #[test]
    fn recursion_that_doubles_is_counted_and_ended() {
        let schema = r##"{"anyOf":[{"properties":{"n":{"$ref":"#"}},"required":["x"]},
            {"properties":{"n":{"$ref":"#"}},"required":["y"]}]}"##;
        let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "n": inner }));
        let (shallow, bound) = steps(schema, &nested(3));
        assert!(shallow < 1000 && bound.is_none(), "{shallow} {bound:?}");
        let schema = Schema::parse(schema).unwrap();
        let budget = Budget::new(1_000_000);
        assert_eq!(schema.pay(&nested(60), 400, &budget), Err(Exhausted::Spent(1_000_000)));
        assert_eq!(schema.pay(&nested(5), 40, &Budget::new(1_000_000)), Ok(()));
    }

    #[test]
    fn a_usual_document_costs_little() {
        let schema = r#"{"type":"object","required":["name"],"properties":{"name":{"type":"string"},
            "age":{"type":"integer"},"tags":{"items":{"type":"string"}}}}"#;
        let budget = Budget::new(100_000);
        Schema::parse(schema)
            .unwrap()
            .pay(&json!({"name": "Ann", "age": 7, "tags": ["a"]}), 40, &budget)
            .unwrap();
        assert!(budget.left() > 95_000, "{}", budget.left());
    }
}
