//! Filters: which documents are meant. Always answers yes or no, whatever the data is. Knows nothing of
//! where documents are kept.

use crate::{
    budget::{Budget, Exhausted},
    field_path::FieldPath,
    json::{Json, Scalar},
    pattern::Pattern,
};
use std::{borrow::Cow, cmp::Ordering};

/// Something with named values, each as compact JSON text.
pub trait Fields {
    /// The value of a field, if it is there.
    fn value(&self, field: &str) -> Option<Cow<'_, str>>;

    /// The value that a path leads to, if it is there.
    fn at(&self, path: &FieldPath) -> Option<Cow<'_, str>> {
        match self.value(path.root())? {
            Cow::Borrowed(field) => path.find(field).map(Cow::Borrowed),
            Cow::Owned(field) if path.is_top_level() => Some(Cow::Owned(field)),
            Cow::Owned(field) => path.find(&field).map(|found| Cow::Owned(found.to_owned())),
        }
    }
}

/// Characters of a pattern.
const PATTERN_LEN_MAX: usize = 1000;

/// A question about a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Filter {
    /// A field compared with a value.
    Is(Condition),
    /// All of these; true if there are none.
    All(Vec<Filter>),
    /// One of these; false if there are none.
    Any(Vec<Filter>),
    /// Not this.
    Not(Box<Filter>),
}

/// A field compared with a value.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    field: FieldPath,
    operator: Operator,
    value: Json,
    prepared: Prepared,
}

/// The value as it is compared without regard to case.
#[derive(Debug, Clone, PartialEq)]
enum Prepared {
    /// The operator compares the value as it is.
    Nothing,
    Text(String),
    Pattern(Pattern),
}

/// How a field is compared.
///
/// | operator | true if the field |
/// | --- | --- |
/// | `=`, `!=` | is there and equal, is there and different; `= null` is absent, `!= null` is there |
/// | `<` `<=` `>` `>=` | is of the value's type, and so ordered |
/// | `~=` | is text and equal but for case |
/// | `%=` | is text like the pattern but for case: `%` is any text, `_` any character, `\` takes the next as it is |
///
/// Numbers are compared with numbers and text with text; values of different types are never equal and have
/// no order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `=`
    Equal,
    /// `!=`
    Different,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `~=`
    EqualFolded,
    /// `%=`
    Like,
}

/// The value makes no sense with the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// `null` with something else than `=` or `!=`.
    #[error("null can be compared with = (absent) and != (present) only, not with {0}")]
    Null(&'static str),
    /// A list or an object with something else than `=` or `!=`.
    #[error("lists and objects can be compared with = and != only, not with {0}")]
    Compound(&'static str),
    /// A pattern that is not text.
    #[error("{0} takes text")]
    NotText(&'static str),
    /// A pattern that would take too long to compare with.
    #[error("a pattern has at most {PATTERN_LEN_MAX} characters")]
    LongPattern,
}

impl Operator {
    /// Every operator.
    pub const ALL: [Operator; 8] = [
        Operator::Equal,
        Operator::Different,
        Operator::Less,
        Operator::LessOrEqual,
        Operator::Greater,
        Operator::GreaterOrEqual,
        Operator::EqualFolded,
        Operator::Like,
    ];

    /// How it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::Equal => "=",
            Operator::Different => "!=",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::EqualFolded => "~=",
            Operator::Like => "%=",
        }
    }

    /// The operator written so.
    pub fn read(text: &str) -> Option<Operator> {
        Operator::ALL.into_iter().find(|operator| operator.as_str() == text)
    }
}

impl Condition {
    /// A condition, if the value makes sense with the operator.
    pub fn new(field: FieldPath, operator: Operator, value: Json) -> Result<Condition, FilterError> {
        let name = operator.as_str();
        let prepared = match (Scalar::read(value.as_str()), operator) {
            (_, Operator::Equal | Operator::Different) => Prepared::Nothing,
            (Scalar::Null, _) => return Err(FilterError::Null(name)),
            (Scalar::Compound(_), _) => return Err(FilterError::Compound(name)),
            (Scalar::Text(text), Operator::Like) if text.chars().count() > PATTERN_LEN_MAX => {
                return Err(FilterError::LongPattern);
            }
            (Scalar::Text(text), Operator::EqualFolded) => Prepared::Text(folded(&text)),
            (Scalar::Text(text), Operator::Like) => Prepared::Pattern(Pattern::read(&folded(&text))),
            (_, Operator::Like) => return Err(FilterError::NotText(name)),
            _ => Prepared::Nothing,
        };
        Ok(Condition { field, operator, value, prepared })
    }

    /// Which field.
    pub fn field(&self) -> &FieldPath {
        &self.field
    }

    /// Compared how.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// Compared with what.
    pub fn value(&self) -> &Json {
        &self.value
    }

    fn matches(&self, fields: &impl Fields, budget: &Budget) -> Result<bool, Exhausted> {
        if !self.field.is_top_level() {
            // Whatever is inside a field, all of it is gone through.
            let field = fields.value(self.field.root());
            budget.spend_bytes(field.map_or(0, |field| field.len()))?;
        }
        let found = fields.at(&self.field);
        if self.value.is_null() {
            budget.spend(1)?;
            return Ok(found.is_none() == (self.operator == Operator::Equal));
        }
        let Some(found) = found else {
            budget.spend(1)?;
            return Ok(false);
        };
        budget.spend_bytes(found.len().saturating_mul(self.cost()))?;
        Ok(self.holds(&found))
    }

    /// How many times as long as reading a value comparing it takes.
    fn cost(&self) -> usize {
        match &self.prepared {
            Prepared::Pattern(pattern) => pattern.cost(),
            Prepared::Nothing | Prepared::Text(_) => 1,
        }
    }

    fn holds(&self, found: &str) -> bool {
        // Equal text is the common case of equal values.
        if self.operator == Operator::Equal && found == self.value.as_str() {
            return true;
        }
        if let (Operator::Equal, true) = (self.operator, is_plain(found) && is_plain(self.value.as_str())) {
            return false;
        }
        let (found, value) = (Scalar::read(found), Scalar::read(self.value.as_str()));
        let ordered =
            |wanted: &[Ordering]| found.compare(&value).is_some_and(|order| wanted.contains(&order));
        match self.operator {
            Operator::Equal => found.equals(&value),
            Operator::Different => !found.equals(&value),
            Operator::Less => ordered(&[Ordering::Less]),
            Operator::LessOrEqual => ordered(&[Ordering::Less, Ordering::Equal]),
            Operator::Greater => ordered(&[Ordering::Greater]),
            Operator::GreaterOrEqual => ordered(&[Ordering::Greater, Ordering::Equal]),
            Operator::EqualFolded => match (&found, &self.prepared) {
                (Scalar::Text(text), Prepared::Text(wanted)) => folded(text) == *wanted,
                _ => found.equals(&value),
            },
            Operator::Like => match (&found, &self.prepared) {
                (Scalar::Text(text), Prepared::Pattern(pattern)) => pattern.matches(&folded(text)),
                _ => false,
            },
        }
    }
}

/// Text without escapes, which is equal to other such text only if it is written in the same way.
fn is_plain(json: &str) -> bool {
    json.starts_with('"') && !json.as_bytes().contains(&b'\\')
}

impl Filter {
    /// Whether the document is meant, however long that takes to find out.
    #[cfg(test)]
    fn matches(&self, fields: &impl Fields) -> bool {
        self.matches_within(fields, &Budget::unlimited()).expect("nobody cancels it")
    }

    /// Whether the document is meant, if the budget suffices to find out.
    pub fn matches_within(&self, fields: &impl Fields, budget: &Budget) -> Result<bool, Exhausted> {
        match self {
            Filter::Is(condition) => condition.matches(fields, budget),
            Filter::All(filters) => {
                for filter in filters {
                    if !filter.matches_within(fields, budget)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Filter::Any(filters) => {
                for filter in filters {
                    if filter.matches_within(fields, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Filter::Not(filter) => filter.matches_within(fields, budget).map(|matches| !matches),
        }
    }

    /// The fields it looks at, each once.
    pub fn fields(&self) -> Vec<&FieldPath> {
        let mut names = Vec::new();
        self.collect_fields(&mut names);
        names.sort_unstable();
        names.dedup();
        names
    }

    fn collect_fields<'a>(&'a self, names: &mut Vec<&'a FieldPath>) {
        match self {
            Filter::Is(condition) => names.push(&condition.field),
            Filter::All(filters) | Filter::Any(filters) => {
                filters.iter().for_each(|filter| filter.collect_fields(names));
            }
            Filter::Not(filter) => filter.collect_fields(names),
        }
    }

    /// The conditions that every document it matches fulfils.
    pub fn required(&self) -> Vec<&Condition> {
        match self {
            Filter::Is(condition) => vec![condition],
            Filter::All(filters) => filters.iter().flat_map(Filter::required).collect(),
            Filter::Any(filters) if filters.len() == 1 => filters[0].required(),
            Filter::Any(_) | Filter::Not(_) => Vec::new(),
        }
    }
}

/// Text without regard to case: letter by letter, so that a part of it is folded as it is in the whole.
fn folded(text: &str) -> String {
    text.chars().flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One(&'static str);

    impl Fields for One {
        fn value(&self, field: &str) -> Option<Cow<'_, str>> {
            (field == "f" && !self.0.is_empty()).then_some(Cow::Borrowed(self.0))
        }
    }

    fn condition(operator: &str, value: &str) -> Result<Filter, FilterError> {
        let operator = Operator::read(operator).unwrap();
        Condition::new(FieldPath::name("f"), operator, Json::read(value, 9).unwrap()).map(Filter::Is)
    }

    /// `found` is the field's value, or empty if it is absent.
    #[track_caller]
    fn check(found: &'static str, operator: &str, value: &str, expected: bool) {
        let filter = condition(operator, value).unwrap();
        assert_eq!(filter.matches(&One(found)), expected, "{found} {operator} {value}");
        let negated = Filter::Not(Box::new(filter));
        assert_eq!(negated.matches(&One(found)), !expected, "not {found} {operator} {value}");
    }

    #[test]
    fn values_of_one_type() {
        check("42", ">", "9", true);
        check("42", "=", "42.0", true);
        check("42", "!=", "42.0", false);
        check("1", "<=", "1", true);
        check("\"b\"", ">", "\"a\"", true);
        check("\"Straße\"", "~=", "\"sTRAßE\"", true);
        check("[1,2]", "=", "[1,2]", true);
        check("{\"a\":1}", "!=", "{\"a\":2}", true);
        check("true", "=", "true", true);
    }

    #[test]
    fn values_of_different_types() {
        check("1", "=", "\"1\"", false);
        check("1", "!=", "\"1\"", true);
        check("\"abc\"", "<", "5", false);
        check("\"abc\"", ">=", "5", false);
        check("[1]", "<", "5", false);
        check("7", "%=", "\"%\"", false);
        check("7", "~=", "7", true);
    }

    #[test]
    fn absent_fields() {
        for operator in ["=", "!=", "<", "<=", ">", ">="] {
            check("", operator, "1", false);
        }
        check("", "=", "null", true);
        check("", "!=", "null", false);
        check("0", "=", "null", false);
        check("0", "!=", "null", true);
    }

    #[test]
    fn patterns() {
        check("\"Hello World\"", "%=", "\"hello%\"", true);
        check("\"Hello World\"", "%=", "\"%o w%\"", true);
        check("\"Hello\"", "%=", "\"h_llo\"", true);
        check("\"Hello\"", "%=", "\"h_lo\"", false);
        check("\"50%\"", "%=", "\"50\\\\%\"", true);
        check("\"500\"", "%=", "\"50\\\\%\"", false);
        check("\"\"", "%=", "\"%%\"", true);
        check("\"ΑΣ\"", "%=", "\"%σ\"", true);
        check("\"aaaaaaaaaaaaaaaaaaaaaaaaab\"", "%=", "\"%a%a%a%a%a%a%a%c\"", false);
    }

    #[test]
    fn values_that_make_no_sense_with_the_operator() {
        assert_eq!(condition("<", "null"), Err(FilterError::Null("<")));
        assert_eq!(condition("~=", "null"), Err(FilterError::Null("~=")));
        assert_eq!(condition(">", "[1]"), Err(FilterError::Compound(">")));
        assert_eq!(condition("%=", "1"), Err(FilterError::NotText("%=")));
        let pattern = |len| format!("\"{}\"", "é".repeat(len));
        assert!(condition("%=", &pattern(PATTERN_LEN_MAX)).is_ok());
        assert_eq!(condition("%=", &pattern(PATTERN_LEN_MAX + 1)), Err(FilterError::LongPattern));
    }

    #[test]
    fn comparing_long_text_is_paid_for() {
        let like = |pattern| condition("%=", pattern).unwrap();
        let text = One(&*Box::leak(format!("\"{}\"", "a".repeat(256_000)).into_boxed_str()));
        assert_eq!(like("\"%ab%\"").matches_within(&text, &Budget::new(2_000)), Ok(false));
        assert_eq!(like("\"%ab%\"").matches_within(&text, &Budget::new(1_000)), Err(Exhausted::Spent(1_000)));
        // With any character in it a part costs more.
        assert_eq!(
            like("\"%a_b%\"").matches_within(&text, &Budget::new(2_000)),
            Err(Exhausted::Spent(2_000))
        );
        let inside: Filter = "f.x = 1".parse().unwrap();
        let field = One(&*Box::leak(format!("{{\"y\":\"{}\"}}", "a".repeat(256_000)).into_boxed_str()));
        assert_eq!(inside.matches_within(&field, &Budget::new(1_000)), Err(Exhausted::Spent(1_000)));
    }

    #[test]
    fn members_of_objects_are_compared_like_fields() {
        let document = One(r#"{"zip":"53111","no":{"of":7},"null":null,"list":[{"zip":1}]}"#);
        let check = |text: &str, expected: bool| {
            let filter: Filter = text.parse().unwrap();
            assert_eq!(filter.matches(&document), expected, "{text}");
        };
        check("f.zip = \"53111\" and f.no.of >= 7 and f.zip %= \"53%\"", true);
        check("f.zip != \"53111\"", false);
        check("f.no = {\"of\":7.0}", true);
        for absent in ["f.city", "f.null", "f.zip.x", "f.list.zip", "f.list.0", "g.zip", "\"f.zip\""] {
            check(&format!("{absent} = null"), true);
            check(&format!("{absent} != null"), false);
            check(&format!("{absent} != 1"), false);
        }
    }

    #[test]
    fn all_of_none_and_any_of_none() {
        assert!(Filter::All(Vec::new()).matches(&One("1")));
        assert!(!Filter::Any(Vec::new()).matches(&One("1")));
    }
}
