//! Filters as they are sent, and what they mean here. Knows nothing of what is filtered.

use super::{
    answer::Refusal,
    json::{Object, given, keep, read_part},
    name,
};
use lockwood_model::{Condition, FieldPath, Filter, Json, Operator, Scalar};
use lockwood_node::limits::Limits;
use serde::Deserialize;
use serde_json::value::RawValue;

/// An object that is one of four shapes; which one, and whether it is, is for [`RawFilter::build`] to say.
#[derive(Debug, Deserialize)]
pub(super) struct RawFilter<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    field: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    operator: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    value: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    and_filter: Option<Vec<Object<RawFilter<'a>>>>,
    #[serde(borrow, default, deserialize_with = "given")]
    or_filter: Option<Vec<Object<RawFilter<'a>>>>,
    #[serde(borrow, default, deserialize_with = "given")]
    not_filter: Option<Box<Object<RawFilter<'a>>>>,
}

/// A filter whose shape is right but whose names are not looked at yet: shapes are judged before names.
#[derive(Debug)]
pub(super) enum Shape<'a> {
    Is { field: String, operator: Operator, value: &'a RawValue },
    All(Vec<Shape<'a>>),
    Any(Vec<Shape<'a>>),
    Not(Box<Shape<'a>>),
}

impl<'a> RawFilter<'a> {
    /// Decides between the shapes: and, or, not before a comparison.
    pub(super) fn shape(&self) -> Result<Shape<'a>, Refusal> {
        let all = |filters: &[Object<RawFilter<'a>>]| -> Result<Vec<Shape<'a>>, Refusal> {
            if filters.is_empty() {
                return Err(Refusal::Request(
                    "an and_filter or or_filter has at least one filter".to_owned(),
                ));
            }
            filters.iter().map(|Object(filter)| filter.shape()).collect()
        };
        match self {
            RawFilter { and_filter: Some(filters), .. } => Ok(Shape::All(all(filters)?)),
            RawFilter { or_filter: Some(filters), .. } => Ok(Shape::Any(all(filters)?)),
            RawFilter { not_filter: Some(filter), .. } => Ok(Shape::Not(Box::new(filter.0.shape()?))),
            RawFilter { field: Some(field), operator: Some(operator), value: Some(value), .. } => {
                Ok(Shape::Is {
                    field: read_part("the field of a filter", field)?,
                    operator: read_operator(operator)?,
                    value,
                })
            }
            _ => Err(Refusal::Request(
                "a filter has and_filter, or_filter, not_filter, or all of field, operator and value"
                    .to_owned(),
            )),
        }
    }
}

fn read_operator(raw: &RawValue) -> Result<Operator, Refusal> {
    let text: String = read_part("the operator of a filter", raw)?;
    Operator::read(&text).ok_or_else(|| {
        let known: Vec<&str> = Operator::ALL.iter().map(|operator| operator.as_str()).collect();
        Refusal::Request(format!("an operator is one of {}", known.join(" ")))
    })
}

impl Shape<'_> {
    pub(super) fn build(&self, limits: &Limits) -> Result<Filter, Refusal> {
        let mut conditions = 0;
        self.build_at(limits, 1, &mut conditions)
    }

    fn build_at(&self, limits: &Limits, depth: u64, conditions: &mut u64) -> Result<Filter, Refusal> {
        if depth > limits.filter_depth_max {
            return Err(Refusal::over(
                "filter_depth_max",
                limits.filter_depth_max,
                "filters are nested too deeply",
            ));
        }
        let mut inner = |filter: &Shape<'_>| filter.build_at(limits, depth + 1, conditions);
        match self {
            Shape::All(filters) => Ok(Filter::All(filters.iter().map(inner).collect::<Result<_, _>>()?)),
            Shape::Any(filters) => Ok(Filter::Any(filters.iter().map(inner).collect::<Result<_, _>>()?)),
            Shape::Not(filter) => Ok(Filter::Not(Box::new(inner(filter)?))),
            Shape::Is { field, operator, value } => {
                *conditions += 1;
                let limit = limits.filter_conditions_max;
                if *conditions > limit {
                    return Err(Refusal::over(
                        "filter_conditions_max",
                        limit,
                        "a filter has too many conditions",
                    ));
                }
                comparison(field, *operator, value, limits)
            }
        }
    }
}

/// As the original's SQL compares: `<` and its like take the given value for a number, and `~=` compares what
/// both values look like as text.
fn comparison(field: &str, operator: Operator, value: &RawValue, limits: &Limits) -> Result<Filter, Refusal> {
    let field = name::field(field)?;
    let value = keep(value, limits.json_depth_max)?;
    match (operator, Scalar::read(value.as_str())) {
        (
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual,
            Scalar::Text(text),
        ) => read_number(&text).map_or(Ok(NOTHING), |number| condition(field, operator, number)),
        // Only numbers have an order here.
        (
            Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual,
            Scalar::Bool(_),
        ) => Ok(NOTHING),
        (Operator::EqualFolded, Scalar::Text(text)) => {
            let spelled = read_number(&text).or_else(|| read_bool(&text));
            either(condition(field, operator, value.clone())?, field, spelled)
        }
        (Operator::EqualFolded, Scalar::Number(_) | Scalar::Bool(_)) => {
            let spelling = Json::from(serde_json::Value::from(value.as_str()));
            either(condition(field, operator, spelling)?, field, Some(value.clone()))
        }
        _ => condition(field, operator, value),
    }
}

/// Matches no model.
const NOTHING: Filter = Filter::Any(Vec::new());

fn condition(field: &str, operator: Operator, value: Json) -> Result<Filter, Refusal> {
    let condition = Condition::new(FieldPath::name(field), operator, value);
    condition.map(Filter::Is).map_err(|error| Refusal::Format(error.to_string()))
}

/// The filter, or that the field is the value.
fn either(filter: Filter, field: &str, value: Option<Json>) -> Result<Filter, Refusal> {
    let Some(value) = value else { return Ok(filter) };
    Ok(Filter::Any(vec![filter, condition(field, Operator::Equal, value)?]))
}

/// A number as PostgreSQL reads it from text: with spaces around it, a plus sign or leading zeros.
fn read_number(text: &str) -> Option<Json> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let is_digit = |place: usize| digits.as_bytes().get(place).is_some_and(u8::is_ascii_digit);
    let digits = &digits[if is_digit(zeros) { zeros } else { zeros.saturating_sub(1) }..];
    let json = Json::read(&format!("{sign}{digits}"), 1).ok()?;
    matches!(Scalar::read(json.as_str()), Scalar::Number(_)).then_some(json)
}

fn read_bool(text: &str) -> Option<Json> {
    [true, false]
        .into_iter()
        .find(|bool| text.eq_ignore_ascii_case(&bool.to_string()))
        .map(|bool| serde_json::Value::from(bool).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_text() {
        let cases = [
            ("7", "7"),
            (" 7 ", "7"),
            ("+7", "7"),
            ("-007", "-7"),
            ("00", "0"),
            ("00.5", "0.5"),
            ("1e3", "1e3"),
        ];
        for (text, number) in cases {
            let found = read_number(text).expect(text);
            assert!(Scalar::read(found.as_str()).equals(&Scalar::read(number)), "{text}: {found}");
        }
        for text in ["", " ", "x", "7x", "--7", "+-7", "true", "null", "\"7\"", "[7]", "0x7"] {
            assert_eq!(read_number(text), None, "{text}");
        }
    }
}
