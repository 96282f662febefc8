//! Which names a schema knows, and which it may be that somebody meant. Knows nothing of queries.

use crate::{
    json_path,
    nearest::nearest,
    places::{PlaceId, Places},
    schema::Schema,
};
use lockwood_model::{Budget, Exhausted};
use serde_json::{Map, Value};
use std::fmt;

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
    pub fn field(&self, path: &[&str], budget: &Budget) -> Result<FieldKnown, Exhausted> {
        let places = self.places();
        let mut at = places.root(budget)?;
        let mut walked = Vec::with_capacity(path.len());
        for segment in path {
            let mut below = places.members(&at, segment, budget)?;
            let mut step = Step::Member(segment);
            if below.is_empty()
                && let Ok(index) = segment.parse()
            {
                below = places.elements(&at, index, budget)?;
                if !below.is_empty() {
                    step = Step::Element(index);
                }
            }
            walked.push(step);
            if below.is_empty() {
                let nearest = nearest(segment, places.names(&at), budget)?;
                return Ok(FieldKnown::Unknown(UnknownField { path: written(&walked), nearest }));
            }
            at = below;
        }
        Ok(FieldKnown::Known)
    }

    /// The names in a document that the schema does not know, in the order they stand in, at most
    /// [`UNKNOWN_FIELDS_LEN_MAX`]. What is below an unknown name is not looked at.
    pub fn unknown_fields(&self, document: &Value, budget: &Budget) -> Result<Vec<UnknownField>, Exhausted> {
        let places = self.places();
        let mut look = Look { places, budget, walked: Vec::new(), found: Vec::new() };
        look.through(document, &places.root(budget)?)?;
        Ok(look.found)
    }
}

/// A look at all names in a document.
struct Look<'a> {
    places: &'a Places,
    budget: &'a Budget,
    /// The way to the value that is looked at. It is written out only for names that are not known: most are.
    walked: Vec<Step<'a>>,
    found: Vec<UnknownField>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Member(&'a str),
    Element(usize),
}

impl<'a> Look<'a> {
    fn through(&mut self, value: &'a Value, at: &[PlaceId]) -> Result<(), Exhausted> {
        match value {
            Value::Object(object) => self.through_members(object, at),
            Value::Array(list) => self.through_elements(list, at),
            _ => Ok(()),
        }
    }

    fn through_members(&mut self, object: &'a Map<String, Value>, at: &[PlaceId]) -> Result<(), Exhausted> {
        for (name, value) in object {
            if self.found.len() == UNKNOWN_FIELDS_LEN_MAX {
                return Ok(());
            }
            let below = self.places.members(at, name, self.budget)?;
            self.walked.push(Step::Member(name));
            if below.is_empty() {
                let nearest = nearest(name, self.places.names(at), self.budget)?;
                self.found.push(UnknownField { path: written(&self.walked), nearest });
            } else {
                self.through(value, &below)?;
            }
            self.walked.pop();
        }
        Ok(())
    }

    fn through_elements(&mut self, list: &'a [Value], at: &[PlaceId]) -> Result<(), Exhausted> {
        let prefix_len = self.places.prefix_len(at);
        let rest = self.places.elements(at, prefix_len, self.budget)?;
        for (index, value) in list.iter().enumerate() {
            self.budget.spend(1)?;
            if !holds_names(value) {
                continue;
            }
            self.walked.push(Step::Element(index));
            if index < prefix_len {
                let below = self.places.elements(at, index, self.budget)?;
                self.through(value, &below)?;
            } else {
                self.through(value, &rest)?;
            }
            self.walked.pop();
        }
        Ok(())
    }
}

fn written(steps: &[Step<'_>]) -> String {
    steps.iter().fold(json_path::ROOT.to_owned(), |path, step| match step {
        Step::Member(name) => json_path::member(&path, name),
        Step::Element(index) => json_path::element(&path, *index),
    })
}

fn holds_names(value: &Value) -> bool {
    value.is_object() || value.is_array()
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

    fn field(schema: &Schema, path: &[&str]) -> FieldKnown {
        schema.field(path, &Budget::unlimited()).unwrap()
    }

    fn unknown_fields(document: &Value) -> Vec<UnknownField> {
        person().unknown_fields(document, &Budget::unlimited()).unwrap()
    }

    /// The steps that it takes to look a document through.
    fn steps(schema: &Schema, document: &Value) -> u64 {
        let budget = Budget::unlimited();
        schema.unknown_fields(document, &budget).unwrap();
        u64::MAX - budget.left()
    }

    #[test]
    fn every_pattern_that_is_tried_is_paid_for() {
        let patterns = |len: usize| {
            let all: Vec<String> = (0..len).map(|number| format!(r#""^a{number}_":{{}}"#)).collect();
            Schema::parse(&format!(
                r#"{{"additionalProperties":true,"patternProperties":{{{}}}}}"#,
                all.join(",")
            ))
            .unwrap()
        };
        let names: Map<String, Value> = (0..100).map(|number| (format!("b{number}"), Value::Null)).collect();
        let document = Value::Object(names);
        let (few, many) = (steps(&patterns(2), &document), steps(&patterns(200), &document));
        assert!(many > 200 * 100 && many > 50 * few, "{few} {many}");
        let budget = Budget::new(many / 2);
        assert_eq!(patterns(200).unknown_fields(&document, &budget), Err(Exhausted::Spent(many / 2)));
        assert_eq!(patterns(200).field(&["b"], &Budget::new(200)), Err(Exhausted::Spent(200)));
    }

    #[test]
    fn a_list_is_looked_through_in_few_steps_for_each_element() {
        let schema = Schema::parse(r#"{"properties":{"t":{"type":"array"}}}"#).unwrap();
        let list = |len: usize| serde_json::json!({ "t": vec![serde_json::json!([0]); len] });
        let (short, long) = (steps(&schema, &list(100)), steps(&schema, &list(10_000)));
        assert!(long < 101 * short && long < 10 * 10_000, "{short} {long}");
    }

    #[test]
    fn names_that_may_be_meant_are_paid_for() {
        let all: Vec<String> = (0..1000).map(|number| format!(r#""field_number_{number}":{{}}"#)).collect();
        let schema = Schema::parse(&format!(r#"{{"properties":{{{}}}}}"#, all.join(","))).unwrap();
        let path = ["field_numbr_7"];
        assert!(matches!(schema.field(&path, &Budget::new(1000)), Err(Exhausted::Spent(_))));
        let FieldKnown::Unknown(unknown) = field(&schema, &path) else { panic!("it is known") };
        assert_eq!(unknown.nearest[0], "field_number_7");
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
            assert_eq!(field(&schema, &path), FieldKnown::Known, "{path:?}");
        }
    }

    #[track_caller]
    fn unknown_at(path: &str, at: &str, nearest: &[&str]) {
        let segments: Vec<&str> = path.split('/').collect();
        let FieldKnown::Unknown(unknown) = field(&person(), &segments) else { panic!("{path} is known") };
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
        let found: Vec<String> = unknown_fields(&document).iter().map(|one| one.path.clone()).collect();
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
            unknown_fields(&serde_json::json!({"adress": 1}))[0].to_string(),
            "the schema knows no field $.adress; did you mean address?"
        );
        let many: serde_json::Map<String, Value> =
            (0..100).map(|i| (format!("unknown{i}"), Value::Null)).collect();
        assert_eq!(unknown_fields(&Value::Object(many)).len(), UNKNOWN_FIELDS_LEN_MAX);
    }

    #[test]
    fn a_schema_that_refers_to_itself_knows_its_names_at_every_depth() {
        let schema =
            Schema::parse(r##"{"properties":{"next":{"$ref":"#"}},"additionalProperties":false}"##).unwrap();
        assert_eq!(field(&schema, &["next"; 50]), FieldKnown::Known);
        assert!(matches!(field(&schema, &["next", "next", "nxt"]), FieldKnown::Unknown(_)));
    }
}
