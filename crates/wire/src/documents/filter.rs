//! Filters as they are written in JSON. Knows nothing of what they are asked of.
//!
//! A filter stays text until it is read with its limits, so nothing recurses before the depth is known, and
//! every mistake in it has the code of a mistake in a filter.

use crate::{
    Code,
    documents::{BodyError, WireValue, body::explain_part, value::read_json},
};
use lockwood_model::{Condition, FieldPath, FieldPathError, Filter, Operator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use std::fmt::Write;

/// A filter as it was written (fields are paths, `address.zip`): `{"field","op","value"}`, `{"and":[…]}`, `{"or":[…]}` or `{"not":…}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireFilter(pub WireValue);

/// How large a filter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterLimits {
    /// How many levels there may be; a condition alone has one.
    pub filter_depth_max: usize,
    /// How many conditions there may be; a group without any counts as one.
    pub filter_conditions_max: usize,
    /// How deep the values may be nested.
    pub json_depth_max: usize,
}

impl WireFilter {
    /// The filter meant.
    pub fn read(&self, limits: FilterLimits) -> Result<Filter, BodyError> {
        Reader { limits, conditions: 0, path: Vec::new() }.filter(self.0.as_str())
    }
}

/// The members of every kind of filter.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    field: Option<String>,
    op: Option<String>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    and: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    or: Option<Vec<&'a RawValue>>,
    #[serde(borrow, default, deserialize_with = "even_null")]
    not: Option<&'a RawValue>,
}

/// A value that is there is there, also if it is null.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

struct Reader {
    limits: FilterLimits,
    conditions: usize,
    /// Where in the filter the reader is; as long as the filter is deep.
    path: Vec<Step>,
}

enum Step {
    And(usize),
    Or(usize),
    Not,
}

impl Reader {
    fn filter(&mut self, text: &str) -> Result<Filter, BodyError> {
        if self.path.len() >= self.limits.filter_depth_max {
            return Err(over("filter_depth_max", self.limits.filter_depth_max, "is nested too deeply"));
        }
        if !text.starts_with('{') {
            return Err(self.shapeless());
        }
        let members: Members<'_> =
            serde_json::from_str(text).map_err(|error| self.malformed(text, &error))?;
        match members {
            Members {
                field: Some(field),
                op: Some(op),
                value: Some(value),
                and: None,
                or: None,
                not: None,
            } => self.condition(&field, &op, value),
            Members { field: None, op: None, value: None, and: Some(parts), or: None, not: None } => {
                self.group(&parts, Step::And).map(Filter::All)
            }
            Members { field: None, op: None, value: None, and: None, or: Some(parts), not: None } => {
                self.group(&parts, Step::Or).map(Filter::Any)
            }
            Members { field: None, op: None, value: None, and: None, or: None, not: Some(part) } => {
                self.part(part, Step::Not).map(|filter| Filter::Not(Box::new(filter)))
            }
            _ => Err(self.shapeless()),
        }
    }

    fn group(&mut self, parts: &[&RawValue], step: fn(usize) -> Step) -> Result<Vec<Filter>, BodyError> {
        if parts.is_empty() {
            self.count()?;
        }
        parts.iter().enumerate().map(|(index, part)| self.part(part, step(index))).collect()
    }

    fn part(&mut self, part: &RawValue, step: Step) -> Result<Filter, BodyError> {
        self.path.push(step);
        let filter = self.filter(part.get())?;
        self.path.pop();
        Ok(filter)
    }

    fn condition(&mut self, field: &str, op: &str, value: &RawValue) -> Result<Filter, BodyError> {
        self.count()?;
        let operator = Operator::read(op).ok_or_else(|| {
            let known = Operator::ALL.map(Operator::as_str).join(" ");
            self.wrong(&format!("there is no operator {op:?}; write one of {known}"))
        })?;
        let value = read_json(value.get(), self.limits.json_depth_max)?;
        let field = read_field(field).map_err(|error| BodyError {
            message: format!("{}: {}", self.place(), error.message),
            ..error
        })?;
        Condition::new(field, operator, value).map(Filter::Is).map_err(|error| self.wrong(&error.to_string()))
    }

    fn count(&mut self) -> Result<(), BodyError> {
        self.conditions += 1;
        if self.conditions <= self.limits.filter_conditions_max {
            return Ok(());
        }
        Err(over("filter_conditions_max", self.limits.filter_conditions_max, "has too many conditions"))
    }

    fn shapeless(&self) -> BodyError {
        self.wrong(
            "a filter is one of {\"field\", \"op\", \"value\"}, {\"and\": […]}, {\"or\": […]} and {\"not\": …}",
        )
    }

    fn malformed(&self, text: &str, error: &serde_json::Error) -> BodyError {
        self.wrong(&explain_part::<Members<'_>>(text.as_bytes(), error))
    }

    fn wrong(&self, message: &str) -> BodyError {
        BodyError::new(Code::BadFilter, format!("{}: {message}", self.place()))
    }

    fn place(&self) -> String {
        let mut place = String::from("filter");
        for step in &self.path {
            match step {
                Step::And(index) => write!(place, ".and[{index}]"),
                Step::Or(index) => write!(place, ".or[{index}]"),
                Step::Not => write!(place, ".not"),
            }
            .expect("a string takes all");
        }
        place
    }
}

/// The path that text names.
pub fn read_field(text: &str) -> Result<FieldPath, BodyError> {
    text.parse().map_err(|error: FieldPathError| BodyError::new(Code::BadField, error.to_string()))
}

fn over(name: &str, limit: usize, what: &str) -> BodyError {
    let flag = name.replace('_', "-");
    BodyError::new(Code::OverLimit, format!("the filter {what}; the limit {name} is {limit} (flag --{flag})"))
}

impl From<&Filter> for WireFilter {
    fn from(filter: &Filter) -> WireFilter {
        let text = serde_json::to_string(&Written(filter)).expect("a filter can be written");
        WireFilter(WireValue::from_text(text).expect("what was written is JSON"))
    }
}

/// A filter of the model on its way to text.
struct Written<'a>(&'a Filter);

impl Serialize for Written<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            Filter::Is(condition) => {
                map.serialize_entry("field", &condition.field().to_string())?;
                map.serialize_entry("op", condition.operator().as_str())?;
                map.serialize_entry("value", &WireValue::from(condition.value()))?;
            }
            Filter::All(filters) => {
                map.serialize_entry("and", &filters.iter().map(Written).collect::<Vec<_>>())?;
            }
            Filter::Any(filters) => {
                map.serialize_entry("or", &filters.iter().map(Written).collect::<Vec<_>>())?;
            }
            Filter::Not(filter) => map.serialize_entry("not", &Written(filter))?,
        }
        map.end()
    }
}

impl utoipa::PartialSchema for WireFilter {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::{Array, Object, ObjectBuilder, OneOfBuilder, Ref, Type};
        let itself = || Ref::from_schema_name("WireFilter");
        let operators = Operator::ALL.map(Operator::as_str);
        let condition = ObjectBuilder::new()
            .title(Some("WireCondition"))
            .property("field", Object::with_type(Type::String))
            .property("op", ObjectBuilder::new().schema_type(Type::String).enum_values(Some(operators)))
            .property("value", <WireValue as utoipa::PartialSchema>::schema())
            .required("field")
            .required("op")
            .required("value");
        let group = |name: &str| ObjectBuilder::new().property(name, Array::new(itself())).required(name);
        OneOfBuilder::new()
            .item(condition)
            .item(group("and"))
            .item(group("or"))
            .item(ObjectBuilder::new().property("not", itself()).required("not"))
            .description(Some("Which documents are meant."))
            .into()
    }
}

impl utoipa::ToSchema for WireFilter {}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FilterLimits =
        FilterLimits { filter_depth_max: 4, filter_conditions_max: 3, json_depth_max: 2 };

    fn read(text: &str) -> Result<Filter, BodyError> {
        WireFilter(WireValue::from_text(text.to_owned()).unwrap()).read(LIMITS)
    }

    #[track_caller]
    fn check(text: &str) {
        let filter = read(text).unwrap();
        assert_eq!(WireFilter::from(&filter).0.as_str(), text);
    }

    #[test]
    fn filters_are_read_and_written_alike() {
        for operator in Operator::ALL {
            check(&format!(r#"{{"field":"a","op":"{}","value":"x"}}"#, operator.as_str()));
        }
        check(r#"{"field":"a","op":"=","value":null}"#);
        check(r#"{"field":"address.zip","op":"=","value":1}"#);
        check(r#"{"field":"a.\"b.c\"","op":"=","value":1}"#);
        check(r#"{"field":"a","op":">","value":1.50}"#);
        check(r#"{"and":[{"or":[]},{"not":{"field":"b","op":"=","value":[1,{}]}}]}"#);
    }

    #[track_caller]
    fn refused(text: &str, code: Code, part: &str) {
        let error = read(text).unwrap_err();
        assert_eq!(error.code, code, "{text}: {error}");
        assert!(error.message.contains(part), "{text}: {error}");
    }

    #[test]
    fn mistakes_say_where_they_are() {
        let condition = r#"{"field":"a","op":"=","value":1}"#;
        refused("7", Code::BadFilter, "filter: a filter is one of");
        refused("[]", Code::BadFilter, "filter: a filter is one of");
        refused("{}", Code::BadFilter, "filter: a filter is one of");
        refused(r#"{"field":"a","op":"="}"#, Code::BadFilter, "a filter is one of");
        refused(r#"{"field":"a","op":"=","value":1,"x":1}"#, Code::BadFilter, "`x` is no member");
        refused(r#"{"field":1,"op":"=","value":1}"#, Code::BadFilter, "`field` must be a string, not 1");
        refused(r#"{"and":[],"or":[]}"#, Code::BadFilter, "a filter is one of");
        refused(
            &format!(r#"{{"and":[{condition},{{"not":{{"field":"a","op":"==","value":1}}}}]}}"#),
            Code::BadFilter,
            "filter.and[1].not: there is no operator \"==\"; write one of = !=",
        );
        refused(r#"{"or":[{"field":"a","op":"<","value":null}]}"#, Code::BadFilter, "filter.or[0]: null can");
        refused(r#"{"or":[{"field":"a..b","op":"=","value":1}]}"#, Code::BadField, "filter.or[0]: the field");
        refused(r#"{"not":null}"#, Code::BadFilter, "filter.not: a filter is one of");
        refused(r#"{"field":"a","op":"=","value":[[[]]]}"#, Code::JsonTooDeep, "2 levels");
    }

    #[test]
    fn limits() {
        let condition = r#"{"field":"a","op":"=","value":1}"#;
        let wide = |len: usize| format!(r#"{{"and":[{}]}}"#, vec![condition; len].join(","));
        check(&wide(3));
        refused(&wide(4), Code::OverLimit, "filter_conditions_max");
        refused(
            r#"{"or":[{"or":[]},{"or":[]},{"or":[]},{"or":[]}]}"#,
            Code::OverLimit,
            "filter_conditions_max",
        );
        let deep = |len: usize| format!("{}{condition}{}", r#"{"not":"#.repeat(len), "}".repeat(len));
        check(&deep(3));
        refused(&deep(4), Code::OverLimit, "filter_depth_max");
        refused(&deep(100_000), Code::OverLimit, "filter_depth_max");
    }
}
