//! Why a value does not fit a schema, in plain words. Knows nothing of how that was found out.

use crate::json_path;
use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;
use std::fmt;

/// At most this many reasons are given for one value.
pub const FAILURES_LEN_MAX: usize = 20;

/// Values in a sentence are cut after so many characters.
const SHOWN_CHARS_MAX: usize = 60;

/// One reason why a value does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Where in the value: `$.address.lines[0]`.
    pub path: String,
    /// What was expected and what was found.
    pub reason: String,
}

impl Failure {
    pub(crate) fn of(value: &Value, error: &ValidationError<'_>) -> Failure {
        let path = json_path::of_pointer(value, error.instance_path().as_str());
        Failure { path, reason: reason(error) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.reason)
    }
}

/// A value as it is shown in a sentence.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn reason(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as Kind;
    let found = error.instance();
    let list = |names: &[String]| names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
    let expected = match error.kind() {
        Kind::Type { kind } => format!("expected {}", type_names(kind)),
        Kind::Required { property } => return format!("the field {property} is required and missing"),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            return format!("no other fields are allowed here, found {}", list(unexpected));
        }
        Kind::AdditionalItems { limit } => format!("expected at most {limit} elements"),
        Kind::UnevaluatedItems { .. } => "expected no further elements".to_owned(),
        Kind::Constant { expected_value } => format!("expected {}", shown(expected_value)),
        Kind::Enum { options } => format!("expected one of {}", shown(options)),
        Kind::Maximum { limit } => format!("expected at most {limit}"),
        Kind::Minimum { limit } => format!("expected at least {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("expected less than {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("expected more than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("expected a multiple of {multiple_of}"),
        Kind::MaxLength { limit } => format!("expected at most {limit} characters"),
        Kind::MinLength { limit } => format!("expected at least {limit} characters"),
        Kind::MaxItems { limit } => format!("expected at most {limit} elements"),
        Kind::MinItems { limit } => format!("expected at least {limit} elements"),
        Kind::MaxProperties { limit } => format!("expected at most {limit} fields"),
        Kind::MinProperties { limit } => format!("expected at least {limit} fields"),
        Kind::Pattern { pattern } => format!("expected text that matches {pattern:?}"),
        Kind::UniqueItems => "expected elements that are all different".to_owned(),
        Kind::Contains => "expected an element of the kind that `contains` describes".to_owned(),
        Kind::AnyOf { .. } => "expected something that fits one of the schemas in anyOf".to_owned(),
        Kind::OneOfNotValid { .. } => "expected something that fits one of the schemas in oneOf".to_owned(),
        Kind::OneOfMultipleValid { .. } => {
            "expected something that fits exactly one of the schemas in oneOf, not several".to_owned()
        }
        Kind::Not { schema } => format!("expected something that does not fit {}", shown(schema)),
        Kind::PropertyNames { error } => {
            return format!("a field has a name that is not allowed: {}", reason(error));
        }
        Kind::FalseSchema => "expected nothing here".to_owned(),
        _ => return error.to_string(),
    };
    format!("{expected}, found {}", shown(found))
}

fn type_names(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => one.to_string(),
        TypeKind::Multiple(set) => set.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or "),
    }
}
