//! Which names a schema knows, and which it may be that somebody meant. Knows nothing of queries.

use crate::{
    json_path,
    nearest::nearest,
    node::{Node, is_schema},
    schema::Schema,
};
use lockwood_model::{Budget, Exhausted};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt, sync::LazyLock};

/// At most this many unknown names are listed for one document.
pub const UNKNOWN_FIELDS_LEN_MAX: usize = 20;

/// Whether a schema knows a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldKnown {
    /// It does.
    Known,
    /// It does not, and this is the first name on the way that it does not know.
    Unknown(UnknownField),
}

/// A name that a schema does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    /// Where it stands: `$.address.zpi`.
    pub path: String,
    /// Known names it is like, nearest first, at most [`NEAREST_LEN_MAX`](crate::NEAREST_LEN_MAX).
    pub nearest: Vec<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the schema knows no field {}", self.path)?;
        match self.nearest.as_slice() {
            [] => Ok(()),
            names => write!(f, "; did you mean {}?", names.join(" or ")),
        }
    }
}

impl Schema {
    /// Whether a field is known, given the names from the top; a number also stands for an element of a list.
    ///
    /// A name is known through `properties`, a pattern of `patternProperties`, or an `additionalProperties`
    /// or `unevaluatedProperties` that is there and not `false`; it is enough if one branch of the schema
    /// knows it. What is not said is not known: a model that is open only because it does not say otherwise
    /// knows no names. Below a schema that is `true` or says nothing at all, every name is known.
    pub fn field(&self, path: &[&str]) -> FieldKnown {
        let mut places = self.root().branches();
        let mut walked = json_path::ROOT.to_owned();
        for segment in path {
            let mut below = members(&places, segment);
            let element = segment.parse().ok().map(|index| (index, elements(&places, index)));
            walked = match (element, below.is_empty()) {
                (Some((index, elements)), true) if !elements.is_empty() => {
                    below = elements;
                    json_path::element(&walked, index)
                }
                _ => json_path::member(&walked, segment),
            };
            if below.is_empty() {
                return FieldKnown::Unknown(unknown(walked, segment, &places));
            }
            places = spread(&below);
        }
        FieldKnown::Known
    }

    /// The names in a document that the schema does not know, in the order they stand in, at most
    /// [`UNKNOWN_FIELDS_LEN_MAX`]. What is below an unknown name is not looked at.
    pub fn unknown_fields_of(&self, document: &Value) -> Vec<UnknownField> {
        self.unknown_fields_within(document, &Budget::unlimited()).expect("nobody cancels it")
    }

    /// The same, if the budget suffices to find out.
    pub fn unknown_fields_within(
        &self,
        document: &Value,
        budget: &Budget,
    ) -> Result<Vec<UnknownField>, Exhausted> {
        let mut found = Vec::new();
        look_through(document, &self.root().branches(), json_path::ROOT, &mut found, budget)?;
        Ok(found)
    }
}

fn look_through(
    value: &Value,
    places: &[Node<'_>],
    path: &str,
    found: &mut Vec<UnknownField>,
    budget: &Budget,
) -> Result<(), Exhausted> {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                budget.spend(places.len() as u64)?;
                let below = members(places, name);
                if found.len() == UNKNOWN_FIELDS_LEN_MAX {
                    return Ok(());
                } else if below.is_empty() {
                    found.push(unknown(json_path::member(path, name), name, places));
                } else if holds_names(value) {
                    let below = spread(&below);
                    budget.spend(below.len() as u64)?;
                    look_through(value, &below, &json_path::member(path, name), found, budget)?;
                }
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate().filter(|(_, value)| holds_names(value)) {
                budget.spend(places.len() as u64)?;
                let below = spread(&elements(places, index));
                budget.spend(below.len() as u64)?;
                look_through(value, &below, &json_path::element(path, index), found, budget)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn holds_names(value: &Value) -> bool {
    value.is_object() || value.is_array()
}

/// The schemas of a member, from every branch that knows its name.
fn members<'a>(places: &[Node<'a>], name: &str) -> Vec<Node<'a>> {
    places.iter().flat_map(|node| member(node, name)).collect()
}

fn member<'a>(node: &Node<'a>, name: &str) -> Vec<Node<'a>> {
    if node.is_anything() {
        return vec![node.clone()];
    }
    let mut found: Vec<Node<'a>> = node.named("properties", name).into_iter().collect();
    found.extend(node.matching(name));
    if found.is_empty() {
        let others = ["additionalProperties", "unevaluatedProperties"];
        found.extend(others.iter().filter_map(|keyword| node.child(keyword)));
    }
    found.retain(|node| !node.is_nothing());
    found
}

/// Stands for the elements of a list that are not described: no name in them is known.
static UNDESCRIBED: LazyLock<Value> = LazyLock::new(|| json!({ "type": "array" }));

/// The schemas of an element.
fn elements<'a>(places: &[Node<'a>], index: usize) -> Vec<Node<'a>> {
    places.iter().filter_map(|node| element(node, index)).filter(|node| !node.is_nothing()).collect()
}

fn element<'a>(node: &Node<'a>, index: usize) -> Option<Node<'a>> {
    let items = node.items();
    let described = items.prefix.get(index).cloned().or(items.rest);
    let undescribed = || {
        let is_list = node.is_anything() || node.get("type").is_some_and(names_arrays);
        is_list.then(|| Node {
            value: if node.is_anything() { node.value } else { &UNDESCRIBED },
            ..node.clone()
        })
    };
    described.or_else(undescribed)
}

fn names_arrays(types: &Value) -> bool {
    types == "array" || types.as_array().is_some_and(|list| list.iter().any(|name| name == "array"))
}

fn spread<'a>(nodes: &[Node<'a>]) -> Vec<Node<'a>> {
    let mut seen = BTreeSet::new();
    let mut all: Vec<Node<'a>> = nodes.iter().flat_map(Node::branches).collect();
    all.retain(|node| is_schema(node.value) && seen.insert(node.id()));
    all
}

fn unknown(path: String, name: &str, places: &[Node<'_>]) -> UnknownField {
    let known = places.iter().flat_map(|node| node.entries("properties"));
    let usable = known.filter(|(_, node)| !node.is_nothing()).map(|(name, _)| name);
    UnknownField { path, nearest: nearest(name, usable) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERSON: &str = r##"{"type":"object",
        "properties":{
            "name":{"type":"string"},
            "address":{"$ref":"#/$defs/address"},
            "tags":{"type":"array","items":{"type":"object","properties":{"label":{}}}},
            "plain":{"type":"array"},
            "pair":{"prefixItems":[{"properties":{"first":true}}]},
            "notes":{"type":"object","additionalProperties":true},
            "scores":{"type":"object","additionalProperties":{"type":"object","properties":{"points":{}}}},
            "anything":true,
            "bag":{"type":"object"},
            "contact":{"oneOf":[{"properties":{"email":{}}},{"allOf":[{"properties":{"phone":{}}}]}]},
            "never":false},
        "patternProperties":{"^x_":{"type":"object","properties":{"inner":{}}}},
        "if":{"required":["name"]},"then":{"properties":{"nickname":{}}},
        "$defs":{"address":{"type":"object","properties":{"zip":{"type":"string"},"city":{},
            "parent":{"$ref":"#/$defs/address"}}}}}"##;

    fn person() -> Schema {
        Schema::parse(PERSON).unwrap()
    }

    #[test]
    fn names_are_known_through_every_branch() {
        let schema = person();
        let known = [
            "name",
            "address/zip",
            "address/parent/parent/city",
            "tags/3/label",
            "plain/0",
            "pair/0/first",
            "notes/whatever/below",
            "scores/ann/points",
            "anything/x/0/y",
            "contact/email",
            "contact/phone",
            "x_1/inner",
            "nickname",
            "",
        ];
        for path in known {
            let path: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
            assert_eq!(schema.field(&path), FieldKnown::Known, "{path:?}");
        }
    }

    #[track_caller]
    fn unknown_at(path: &str, at: &str, nearest: &[&str]) {
        let segments: Vec<&str> = path.split('/').collect();
        let FieldKnown::Unknown(unknown) = person().field(&segments) else { panic!("{path} is known") };
        assert_eq!(
            (unknown.path.as_str(), unknown.nearest),
            (at, nearest.iter().map(|&n| n.to_owned()).collect())
        );
    }

    #[test]
    fn what_is_not_said_is_not_known() {
        unknown_at("nam", "$.nam", &["name"]);
        unknown_at("Adress/zip", "$.Adress", &["address"]);
        unknown_at("address/parent/zpi", "$.address.parent.zpi", &["zip"]);
        unknown_at("tags/0/lable", "$.tags[0].lable", &["label"]);
        unknown_at("tags/label", "$.tags.label", &[]);
        unknown_at("plain/0/x", "$.plain[0].x", &[]);
        unknown_at("scores/ann/point", "$.scores.ann.point", &["points"]);
        unknown_at("bag/x", "$.bag.x", &[]);
        unknown_at("name/x", "$.name.x", &[]);
        unknown_at("never", "$.never", &[]);
        unknown_at("contact/mail", "$.contact.mail", &["email"]);
    }

    #[test]
    fn a_document_is_looked_through() {
        let document = serde_json::json!({
            "name": "Ann", "adress": {"zip": 1}, "address": {"zip": "1", "zipp": "2"},
            "tags": [{"label": 1}, {"labels": 2}], "notes": {"a": {"b": 1}}, "scores": {"ann": {"pts": 1}},
            "pair": [{"first": 1}, {"second": {"third": 1}}], "plain": [[{"deep": 1}]],
        });
        let found: Vec<String> =
            person().unknown_fields_of(&document).iter().map(|one| one.path.clone()).collect();
        let expected = [
            "$.address.zipp",
            "$.adress",
            "$.pair[1].second",
            "$.plain[0][0].deep",
            "$.scores.ann.pts",
            "$.tags[1].labels",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            person().unknown_fields_of(&serde_json::json!({"adress": 1}))[0].to_string(),
            "the schema knows no field $.adress; did you mean address?"
        );
        let many: serde_json::Map<String, Value> =
            (0..100).map(|i| (format!("unknown{i}"), Value::Null)).collect();
        assert_eq!(person().unknown_fields_of(&Value::Object(many)).len(), UNKNOWN_FIELDS_LEN_MAX);
    }

    #[test]
    fn a_schema_that_refers_to_itself_knows_its_names_at_every_depth() {
        let schema =
            Schema::parse(r##"{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##).unwrap();
        assert_eq!(schema.field(&["next"; 50]), FieldKnown::Known);
        assert!(matches!(schema.field(&["next", "next", "nxt"]), FieldKnown::Unknown(_)));
    }
}
