//! Filters as they are sent, and what they mean here. Knows nothing of what is filtered.

use super::{
    answer::Refusal,
    json::{Object, given, keep, read_part},
    name,
};
use crate::limits::Limits;
use lockwood_model::{Condition, FieldPath, Filter, Operator, Scalar};
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

fn comparison(field: &str, operator: Operator, value: &RawValue, limits: &Limits) -> Result<Filter, Refusal> {
    let field = name::field(field)?;
    let value = keep(value, limits.json_depth_max)?;
    let is_ordering = matches!(
        operator,
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual
    );
    // Only numbers have an order here, so nothing is above or below text.
    if is_ordering && matches!(Scalar::read(value.as_str()), Scalar::Text(_) | Scalar::Bool(_)) {
        return Ok(Filter::Any(Vec::new()));
    }
    let condition = Condition::new(FieldPath::name(field), operator, value);
    condition.map(Filter::Is).map_err(|error| Refusal::Format(error.to_string()))
}
