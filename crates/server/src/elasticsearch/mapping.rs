//! Which fields the documents of a type have, and of which kind: found by looking at some of them, since there are no
//! mappings.
//! Knows nothing of schemas.

use super::{
    Asked, Elasticsearch,
    answer::{Answer, Object, Refusal, list, ok, quoted},
    name::UNTYPED,
    place::{Looker, Place, Sample},
    route::Scope,
    several::{Address, Meant, Names},
};
use hyper::StatusCode;
use lockwood_model::Budget;
use lockwood_node::shard::PageError;
use serde_json::Value;
use std::collections::BTreeMap;

/// So many documents of each type are looked at, those that come first in a search, and fewer of long ones. Looking at
/// all of them would take longer the more there are, and some day it would exceed the budget of a request.
const SAMPLE: Sample = Sample { len_max: 1000, bytes_max: 16 << 20 };

/// What a field holds, as far as searches care.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Text, compared as a whole; and what is not of one kind.
    Keyword,
    Long,
    Float,
    Boolean,
    Object(Properties),
}

type Properties = BTreeMap<String, Kind>;

/// The types of each index.
type Types = BTreeMap<String, BTreeMap<String, Properties>>;

impl Elasticsearch {
    pub(super) async fn mapping(&self, scope: &Scope, asked: &Asked) -> Result<Answer, Refusal> {
        let address = Address::read(self.limits(), scope, &asked.params)?;
        let look = move |looker: Looker<'_>| {
            let meant = address.find(looker)?;
            Ok((meant.types.clone(), look_at_fields(looker, meant)?))
        };
        let (types, found) = self.look(look).await?;
        self.settle(found.keys()).await?;
        let is_there = |name: &str| found.values().any(|types| types.contains_key(name));
        let missing: Vec<String> = types.exact().filter(|name| !is_there(name)).map(quoted).collect();
        if !missing.is_empty() {
            let reason = format!("type[{}] missing", list(missing).replace('"', ""));
            return Err(Refusal::new(StatusCode::NOT_FOUND, "type_missing_exception", reason));
        }
        let is_typed = scope.collection.is_some() || asked.params.flag("include_type_name")? == Some(true);
        let add = |object: Object, (index, types): (&String, &BTreeMap<String, Properties>)| {
            let mappings = Object::new().raw("mappings", &mappings(types, is_typed)).done();
            object.raw(index, &mappings)
        };
        Ok(ok(found.iter().fold(Object::new(), add).done()))
    }

    /// The mappings of one index.
    pub(super) async fn mappings_of(&self, index: &str) -> Result<String, Refusal> {
        let meant = Meant { indexes: vec![index.to_owned()], types: Names::all() };
        let found = self.look(move |looker| look_at_fields(looker, meant)).await?;
        self.settle(found.keys()).await?;
        Ok(found.get(index).map_or_else(|| "{}".to_owned(), |types| mappings(types, false)))
    }
}

fn look_at_fields(looker: Looker<'_>, meant: Meant) -> Result<Types, Refusal> {
    let mut types: Types = meant.indexes.iter().map(|index| (index.clone(), BTreeMap::new())).collect();
    let place = Place::open(looker, meant)?;
    let mut merger = Merger { budget: looker.budget, bytes: 0 };
    let (limit, mut outcome) = (looker.shared.config.limits.answer_bytes_max, Ok(()));
    place.sample(looker, SAMPLE, &mut |hit| {
        let properties = types.entry(hit.stage.index.clone()).or_default();
        let properties = properties.entry(hit.stage.collection.clone()).or_default();
        outcome = hit.fields().try_for_each(|(name, json)| merger.field(properties, name, json));
        outcome.is_ok() && merger.bytes <= limit
    })?;
    outcome?;
    if merger.bytes > limit {
        return Err(Refusal::over("answer_bytes_max", limit, "the documents have too many fields"));
    }
    Ok(types)
}

struct Merger<'a> {
    budget: &'a Budget,
    /// Of all names so far.
    bytes: u64,
}

impl Merger<'_> {
    fn field(&mut self, properties: &mut Properties, name: &str, json: &str) -> Result<(), PageError> {
        self.budget.spend_bytes(json.len())?;
        self.value(properties, name, &serde_json::from_str(json).unwrap_or(Value::Null));
        Ok(())
    }

    /// Documents are not nested deeply. The elements of a list count as values of the field.
    fn value(&mut self, properties: &mut Properties, name: &str, value: &Value) {
        if let Value::Array(list) = value {
            return list.iter().for_each(|value| self.value(properties, name, value));
        }
        let Some(found) = Kind::of(value) else { return };
        if !properties.contains_key(name) {
            self.bytes += name.len() as u64 + 1;
            properties.insert(name.to_owned(), found.clone());
        }
        let known = properties.get_mut(name).expect("it was put there if it was not");
        known.widen(found);
        if let (Kind::Object(inner), Value::Object(members)) = (known, value) {
            members.iter().for_each(|(name, value)| self.value(inner, name, value));
        }
    }
}

impl Kind {
    fn of(value: &Value) -> Option<Kind> {
        match value {
            Value::Null | Value::Array(_) => None,
            Value::Bool(_) => Some(Kind::Boolean),
            Value::Number(number) if number.is_f64() => Some(Kind::Float),
            Value::Number(_) => Some(Kind::Long),
            Value::String(_) => Some(Kind::Keyword),
            Value::Object(_) => Some(Kind::Object(Properties::new())),
        }
    }

    fn widen(&mut self, found: Kind) {
        match (&*self, found) {
            (Kind::Object(_), Kind::Object(_)) | (Kind::Float, Kind::Long) => {}
            (Kind::Long, Kind::Float) => *self = Kind::Float,
            (known, found) if *known == found => {}
            _ => *self = Kind::Keyword,
        }
    }

    fn object(&self) -> String {
        match self {
            Kind::Keyword => Object::new().text("type", "keyword"),
            Kind::Long => Object::new().text("type", "long"),
            Kind::Float => Object::new().text("type", "float"),
            Kind::Boolean => Object::new().text("type", "boolean"),
            Kind::Object(inner) if inner.is_empty() => Object::new().text("type", "object"),
            Kind::Object(inner) => Object::new().raw("properties", &fields(inner)),
        }
        .done()
    }
}

fn fields(properties: &Properties) -> String {
    properties.iter().fold(Object::new(), |object, (name, kind)| object.raw(name, &kind.object())).done()
}

/// Without types there is only one, which is not named unless it was asked for.
fn mappings(types: &BTreeMap<String, Properties>, is_typed: bool) -> String {
    let of_type = |object: Object, properties: &Properties| {
        object.when(!properties.is_empty(), |object| object.raw("properties", &fields(properties)))
    };
    if !is_typed && types.keys().all(|name| name == UNTYPED) {
        return types.values().fold(Object::new(), of_type).done();
    }
    let add = |object: Object, (name, properties): (&String, &Properties)| {
        object.raw(name, &of_type(Object::new(), properties).done())
    };
    types.iter().fold(Object::new(), add).done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_fields() {
        let mut merger = Merger { budget: &Budget::unlimited(), bytes: 0 };
        let mut properties = Properties::new();
        for (name, json) in [
            ("n", "1"),
            ("n", "2.5"),
            ("on", "true"),
            ("text", "\"a\""),
            ("mixed", "1"),
            ("mixed", "{\"a\":1}"),
            ("list", "[1,2,null]"),
            ("deep", "{\"x\":{\"y\":[1,\"z\"]}}"),
            ("deep", "{\"w\":{}}"),
            ("none", "null"),
        ] {
            merger.field(&mut properties, name, json).unwrap();
        }
        let found: Value = serde_json::from_str(&fields(&properties)).unwrap();
        let expected = serde_json::json!({
            "n": { "type": "float" },
            "on": { "type": "boolean" },
            "text": { "type": "keyword" },
            "mixed": { "type": "keyword" },
            "list": { "type": "long" },
            "deep": { "properties": {
                "x": { "properties": { "y": { "type": "keyword" } } },
                "w": { "type": "object" },
            } },
        });
        assert_eq!(found, expected);
        assert_eq!(merger.bytes, 32, "each name once");
    }
}
