//! Queries: which documents a search finds. Values are compared as keywords and numbers are, without analysis. Knows
//! nothing of where documents are.

use super::answer::Refusal;
use hyper::StatusCode;
use lockwood_model::{Budget, Exhausted, Fields, Scalar};
use lockwood_node::limits::Limits;
use serde_json::{Map, Value};
use std::{borrow::Cow, cmp::Ordering};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Query {
    All,
    /// A field has one of these values.
    Is(String, Vec<Value>),
    Ids(Vec<String>),
    Exists(String),
    Range(String, Vec<(Bound, Value)>),
    Both(Vec<Query>),
    /// At least so many of these.
    Some(Vec<Query>, usize),
    Not(Box<Query>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    Above,
    From,
    Below,
    UpTo,
}

impl Query {
    /// Reads the value of `query`.
    pub(super) fn read(value: &Value, limits: &Limits) -> Result<Query, Refusal> {
        Reader { limits, conditions: 0 }.query(value, 1)
    }

    pub(super) fn matches(&self, id: &str, fields: &impl Fields, budget: &Budget) -> Result<bool, Exhausted> {
        let values = |field: &str, compared: usize| {
            budget.spend(1)?;
            let found = values(fields, field, budget)?;
            budget.spend((found.len() as u64).saturating_mul(compared as u64))?;
            Ok(found)
        };
        Ok(match self {
            Query::All => true,
            Query::Is(field, wanted) if field == "_id" => wanted
                .iter()
                .any(|wanted| wanted.as_str().map_or_else(|| wanted.to_string(), str::to_owned) == id),
            Query::Is(field, wanted) => values(field, wanted.len())?
                .iter()
                .any(|found| wanted.iter().any(|wanted| is_same(found, wanted))),
            Query::Ids(ids) => ids.iter().any(|wanted| wanted == id),
            Query::Exists(field) => !values(field, 1)?.is_empty(),
            Query::Range(field, bounds) => values(field, bounds.len())?
                .iter()
                .any(|found| bounds.iter().all(|(bound, limit)| bound.holds(found, limit))),
            Query::Both(queries) => return all_match(queries, id, fields, budget),
            Query::Some(queries, least) => return so_many_match(queries, *least, (id, fields), budget),
            Query::Not(query) => !query.matches(id, fields, budget)?,
        })
    }
}

fn all_match(queries: &[Query], id: &str, fields: &impl Fields, budget: &Budget) -> Result<bool, Exhausted> {
    for query in queries {
        if !query.matches(id, fields, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn so_many_match(
    queries: &[Query],
    least: usize,
    (id, fields): (&str, &impl Fields),
    budget: &Budget,
) -> Result<bool, Exhausted> {
    let mut count = 0;
    for query in queries {
        if count == least {
            break;
        }
        count += usize::from(query.matches(id, fields, budget)?);
    }
    Ok(count == least)
}

/// The values of a field: those in a list one by one. A dot leads into an object, and into each object of a list,
/// as it does in the original, unless a name has it.
fn values(fields: &impl Fields, field: &str, budget: &Budget) -> Result<Vec<Value>, Exhausted> {
    let read = |text: Cow<'_, str>| {
        budget.spend_bytes(text.len())?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    };
    let exact = fields.value(field).or_else(|| fields.value(field.strip_suffix(".keyword")?));
    if let Some(text) = exact {
        return Ok(flat(read(text)?));
    }
    let Some((first, rest)) = field.split_once('.') else { return Ok(Vec::new()) };
    let rest = rest.strip_suffix(".keyword").unwrap_or(rest);
    let field = fields.value(first).map_or(Ok(Value::Null), read)?;
    Ok(rest.split('.').fold(flat(field), |found, name| {
        let member = |mut value: Value| value.get_mut(name).map(Value::take);
        found.into_iter().filter_map(member).flat_map(flat).collect()
    }))
}

fn flat(value: Value) -> Vec<Value> {
    let mut found = Vec::new();
    collect(value, &mut found);
    found
}

fn collect(value: Value, found: &mut Vec<Value>) {
    match value {
        Value::Null => {}
        Value::Array(list) => list.into_iter().for_each(|value| collect(value, found)),
        value => found.push(value),
    }
}

/// Equal, be they written as text or not.
fn is_same(found: &Value, wanted: &Value) -> bool {
    let (left, right) = (found.to_string(), wanted.to_string());
    if Scalar::read(&left).equals(&Scalar::read(&right)) {
        return true;
    }
    match (found, wanted) {
        (Value::Number(_) | Value::Bool(_), Value::String(text)) => is_scalar(&left, text),
        (Value::String(text), Value::Number(_) | Value::Bool(_)) => is_scalar(&right, text),
        _ => false,
    }
}

fn is_scalar(json: &str, text: &str) -> bool {
    serde_json::from_str::<Value>(text)
        .is_ok_and(|value| Scalar::read(json).equals(&Scalar::read(&value.to_string())))
}

impl Bound {
    fn holds(self, found: &Value, limit: &Value) -> bool {
        let (found, limit) = (found.to_string(), limit.to_string());
        let order = Scalar::read(&found).compare(&Scalar::read(&limit));
        order.is_some_and(|order| match self {
            Bound::Above => order == Ordering::Greater,
            Bound::From => order != Ordering::Less,
            Bound::Below => order == Ordering::Less,
            Bound::UpTo => order != Ordering::Greater,
        })
    }
}

struct Reader<'a> {
    limits: &'a Limits,
    conditions: u64,
}

fn wrong(reason: impl Into<String>) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "parsing_exception", reason)
}

impl Reader<'_> {
    fn query(&mut self, value: &Value, depth: u64) -> Result<Query, Refusal> {
        let limit = self.limits.filter_depth_max;
        if depth > limit {
            return Err(Refusal::over("filter_depth_max", limit, "queries are nested too deeply"));
        }
        self.conditions += 1;
        let limit = self.limits.filter_conditions_max;
        if self.conditions > limit {
            return Err(Refusal::over("filter_conditions_max", limit, "the query has too many conditions"));
        }
        let (name, body) = only("query", value)?;
        match name {
            "match_all" => Ok(Query::All),
            "match_none" => Ok(Query::Not(Box::new(Query::All))),
            "term" => self.is(name, body, "value"),
            "match" | "match_phrase" => self.is(name, body, "query"),
            "terms" => self.terms(body),
            "ids" => ids(body),
            "exists" => Ok(Query::Exists(text(body, "exists", "field")?)),
            "range" => range(body),
            "bool" => self.bool(body, depth),
            "constant_score" => {
                let filter = body
                    .get("filter")
                    .ok_or_else(|| wrong("[constant_score] requires a 'filter' element"))?;
                self.query(filter, depth + 1)
            }
            _ => Err(wrong(format!("no [query] registered for [{name}]"))),
        }
    }

    /// A field and a value, perhaps in an object.
    fn is(&mut self, query: &str, body: &Value, inner: &str) -> Result<Query, Refusal> {
        let Value::Object(object) = body else { return Err(wrong(format!("[{query}] query malformed"))) };
        let fields: Vec<_> =
            object.iter().filter(|(name, _)| !["boost", "_name"].contains(&name.as_str())).collect();
        let [(field, value)] = fields[..] else {
            return Err(wrong(match fields.len() {
                0 => format!("[{query}] query names no field; write {{\"{query}\":{{\"FIELD\":\"VALUE\"}}}}"),
                _ => format!("[{query}] query doesn't support multiple fields"),
            }));
        };
        let value = match value {
            Value::Object(object) => {
                object.get(inner).ok_or_else(|| wrong(format!("[{query}] has no [{inner}]")))?
            }
            value => value,
        };
        if value.is_object() || value.is_array() || value.is_null() {
            return Err(wrong(format!("[{query}] takes text, a number or a boolean for [{field}]")));
        }
        Ok(Query::Is(field.clone(), vec![value.clone()]))
    }

    fn terms(&mut self, body: &Value) -> Result<Query, Refusal> {
        let Value::Object(object) = body else { return Err(wrong("[terms] query malformed")) };
        let fields: Vec<_> = object.iter().filter(|(name, _)| *name != "boost").collect();
        let [(field, Value::Array(values))] = fields[..] else {
            return Err(wrong("[terms] query takes one field and a list of values"));
        };
        self.conditions += values.len() as u64;
        let limit = self.limits.filter_conditions_max;
        if self.conditions > limit {
            return Err(Refusal::over("filter_conditions_max", limit, "the query has too many conditions"));
        }
        Ok(Query::Is(field.clone(), values.clone()))
    }

    fn bool(&mut self, body: &Value, depth: u64) -> Result<Query, Refusal> {
        let Value::Object(object) = body else { return Err(wrong("[bool] query malformed")) };
        let (mut all, mut some, mut least) = (Vec::new(), Vec::new(), None);
        for (name, value) in object {
            match name.as_str() {
                "must" | "filter" => all.extend(self.clauses(value, depth)?),
                "should" => some.extend(self.clauses(value, depth)?),
                "must_not" => {
                    all.extend(
                        self.clauses(value, depth)?.into_iter().map(|query| Query::Not(Box::new(query))),
                    );
                }
                "minimum_should_match" => {
                    let read = value.as_u64().or_else(|| value.as_str()?.parse().ok());
                    least = Some(read.ok_or_else(|| wrong("[minimum_should_match] is a whole number here"))?);
                }
                "boost" | "adjust_pure_negative" | "_name" => {}
                _ => return Err(wrong(format!("[bool] query does not support [{name}]"))),
            }
        }
        // Without anything that must be, one of what should be has to.
        let usual = u64::from(all.is_empty() && !some.is_empty());
        let least = usize::try_from(least.unwrap_or(usual)).unwrap_or(usize::MAX);
        if least > 0 {
            all.push(Query::Some(some, least));
        }
        Ok(Query::Both(all))
    }

    fn clauses(&mut self, value: &Value, depth: u64) -> Result<Vec<Query>, Refusal> {
        match value {
            Value::Array(list) => list.iter().map(|value| self.query(value, depth + 1)).collect(),
            value => Ok(vec![self.query(value, depth + 1)?]),
        }
    }
}

/// The only member of an object.
fn only<'a>(what: &str, value: &'a Value) -> Result<(&'a str, &'a Value), Refusal> {
    let members = value.as_object().map(Map::len);
    match (members, value.as_object().and_then(|object| object.iter().next())) {
        (Some(1), Some((name, value))) => Ok((name, value)),
        (Some(0), _) => Err(wrong(format!("{what} malformed, empty clause found"))),
        _ => Err(wrong(format!("[{what}] malformed, expected an object with one member"))),
    }
}

fn text(body: &Value, what: &str, name: &str) -> Result<String, Refusal> {
    let found = body.get(name).and_then(Value::as_str).map(str::to_owned);
    found.ok_or_else(|| wrong(format!("[{what}] must be provided with a [{name}]")))
}

/// Ids may be given as numbers.
pub(super) fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn ids(body: &Value) -> Result<Query, Refusal> {
    let values = body
        .get("values")
        .and_then(Value::as_array)
        .ok_or_else(|| wrong("[ids] requires a list of values"))?;
    let ids: Option<Vec<String>> = values.iter().map(id).collect();
    ids.map(Query::Ids).ok_or_else(|| wrong("[ids] takes text and numbers"))
}

fn range(body: &Value) -> Result<Query, Refusal> {
    let (field, bounds) = only("range", body)?;
    let Value::Object(bounds) = bounds else { return Err(wrong("[range] query malformed")) };
    let mut read = Vec::new();
    for (name, value) in bounds {
        let bound = match name.as_str() {
            "gt" => Bound::Above,
            "gte" => Bound::From,
            "lt" => Bound::Below,
            "lte" => Bound::UpTo,
            "boost" => continue,
            _ => return Err(wrong(format!("[range] query does not support [{name}]"))),
        };
        if !value.is_null() {
            read.push((bound, value.clone()));
        }
    }
    Ok(Query::Range(field.to_owned(), read))
}

#[cfg(test)]
mod tests {
    use super::super::source::Source;
    use super::*;

    const SOURCE: &str = r#"{"process_id":123,"name":"README.txt","tags":["a","b"],"deep":{"x":{"y":1}},"parts":[{"no":1},{"no":[2,3]},4],"a.b":2,"on":true}"#;

    fn read(json: &str) -> Result<Query, Refusal> {
        Query::read(&serde_json::from_str(json).unwrap(), &Limits::default())
    }

    #[track_caller]
    fn check(json: &str, expected: bool) {
        let query = read(json).unwrap_or_else(|refusal| panic!("{json}: {refusal:?}"));
        assert_eq!(
            query.matches("7", &Source::read(SOURCE, 9).unwrap(), &Budget::unlimited()).unwrap(),
            expected,
            "{json}"
        );
    }

    #[test]
    fn queries() {
        check(r#"{"match_all":{}}"#, true);
        check(r#"{"match_none":{}}"#, false);
        check(r#"{"term":{"process_id":123}}"#, true);
        check(r#"{"term":{"process_id":"123"}}"#, true);
        check(r#"{"term":{"process_id":{"value":123.0}}}"#, true);
        check(r#"{"term":{"process_id":124}}"#, false);
        check(r#"{"term":{"nothing":1}}"#, false);
        check(r#"{"term":{"name.keyword":"README.txt"}}"#, true);
        check(r#"{"term":{"tags":"b"}}"#, true);
        check(r#"{"term":{"deep.x.y":1}}"#, true);
        check(r#"{"term":{"a.b":2}}"#, true);
        check(r#"{"term":{"parts.no":3}}"#, true);
        check(r#"{"term":{"parts.no":4}}"#, false);
        check(r#"{"term":{"deep.x.y.z":1}}"#, false);
        check(r#"{"term":{"on":"true"}}"#, true);
        check(r#"{"term":{"_id":7}}"#, true);
        check(r#"{"match":{"name":{"query":"README.txt","operator":"and"}}}"#, true);
        check(r#"{"match":{"name":"README"}}"#, false);
        check(r#"{"terms":{"tags":["x","a"]}}"#, true);
        check(r#"{"ids":{"values":["7",8]}}"#, true);
        check(r#"{"exists":{"field":"deep.x"}}"#, true);
        check(r#"{"exists":{"field":"deep.z"}}"#, false);
        check(r#"{"range":{"process_id":{"gte":123,"lt":124}}}"#, true);
        check(r#"{"range":{"process_id":{"gt":123}}}"#, false);
        check(r#"{"bool":{}}"#, true);
        check(r#"{"bool":{"filter":{"term":{"process_id":123}},"must_not":[{"term":{"tags":"x"}}]}}"#, true);
        check(r#"{"bool":{"should":[{"term":{"tags":"x"}}]}}"#, false);
        check(r#"{"bool":{"must":[{"match_all":{}}],"should":[{"term":{"tags":"x"}}]}}"#, true);
        check(
            r#"{"bool":{"should":[{"term":{"tags":"x"}},{"term":{"tags":"a"}}],"minimum_should_match":2}}"#,
            false,
        );
        check(r#"{"constant_score":{"filter":{"term":{"process_id":123}}}}"#, true);
    }

    #[test]
    fn what_is_no_query() {
        for json in [
            "{}",
            "[]",
            "1",
            r#"{"a":{},"b":{}}"#,
            r#"{"wildcard":{}}"#,
            r#"{"term":{}}"#,
            r#"{"term":1}"#,
            r#"{"term":{"a":1,"b":2}}"#,
            r#"{"term":{"a":[1]}}"#,
            r#"{"term":{"a":{}}}"#,
            r#"{"terms":{"a":1}}"#,
            r#"{"ids":{}}"#,
            r#"{"exists":{}}"#,
            r#"{"range":{"a":{"x":1}}}"#,
            r#"{"bool":{"x":[]}}"#,
            r#"{"bool":[]}"#,
            r#"{"bool":{"must":1}}"#,
            r#"{"constant_score":{}}"#,
        ] {
            let refusal = read(json).expect_err(json);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{json}");
        }
    }

    #[test]
    fn queries_have_limits() {
        let limits = Limits { filter_depth_max: 2, filter_conditions_max: 4, ..Limits::default() };
        let read = |json: &str| Query::read(&serde_json::from_str(json).unwrap(), &limits);
        let bool = |inner: &str| format!(r#"{{"bool":{{"must":[{inner}]}}}}"#);
        let term = r#"{"term":{"a":1}}"#;
        assert!(read(&bool(term)).is_ok());
        assert!(read(&bool(&bool(term))).unwrap_err().reason.contains("filter_depth_max"));
        assert!(read(&bool(&[term; 4].join(","))).unwrap_err().reason.contains("filter_conditions_max"));
        assert!(read(r#"{"terms":{"a":[1,2,3,4]}}"#).unwrap_err().reason.contains("filter_conditions_max"));
    }
}
