//! Gives every alternative of a schema a schema of its own, because generators of clients make classes of schemas that
//! have names and drop alternatives without; and says what they would take differently. Knows nothing of routes.

use std::collections::BTreeMap;
use utoipa::openapi::{
    Ref, RefOr, Schema, Type,
    schema::{AdditionalProperties, ArrayItems, Object, SchemaType},
};

type Schemas = BTreeMap<String, RefOr<Schema>>;

const ANY_VALUE: &str = "#/components/schemas/WireValue";

/// Says what generators of clients would take differently: that an object of which no members are known may have any,
/// and that "null, or any value" is any value, because as alternatives null would be both.
pub(super) fn spell_out(schema: &mut RefOr<Schema>) {
    let RefOr::T(inner) = schema else { return };
    match inner {
        Schema::Object(object) => {
            if is_unknown(object) {
                object.additional_properties = Some(Box::new(AdditionalProperties::FreeForm(true)));
            }
            object.properties.values_mut().for_each(spell_out);
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                spell_out(items);
            }
        }
        Schema::AllOf(all) => all.items.iter_mut().for_each(spell_out),
        Schema::OneOf(choice) => {
            choice.items.iter_mut().for_each(spell_out);
            if let Some(any) = any_value(&choice.items) {
                *schema = RefOr::Ref(any);
            }
        }
        _ => {}
    }
}

fn is_unknown(object: &Object) -> bool {
    let is_object = match &object.schema_type {
        SchemaType::Type(kind) => *kind == Type::Object,
        SchemaType::Array(kinds) => kinds.contains(&Type::Object),
        SchemaType::AnyValue => false,
    };
    is_object && object.properties.is_empty() && object.additional_properties.is_none()
}

fn any_value(items: &[RefOr<Schema>]) -> Option<Ref> {
    items.iter().filter(|_| items.len() == 2).find_map(|item| match item {
        RefOr::Ref(reference) if reference.ref_location == ANY_VALUE => Some(reference.clone()),
        _ => None,
    })
}

pub(super) fn name_all(schemas: &mut Schemas) {
    let mut named = Vec::new();
    for (owner, schema) in schemas.iter_mut() {
        let RefOr::T(Schema::OneOf(choice)) = schema else { continue };
        for item in &mut choice.items {
            let RefOr::T(schema) = item else { continue };
            let Some(name) = take_name(owner, schema) else { continue };
            let reference = RefOr::Ref(Ref::from_schema_name(&name));
            named.push((name, std::mem::replace(item, reference)));
        }
    }
    for (name, schema) in named {
        let before = schemas.insert(name.clone(), schema);
        assert!(before.is_none(), "two schemas are called {name}");
    }
}

/// The title of an alternative, or the schema it belongs to with what tells it apart; none for plain values.
fn take_name(owner: &str, schema: &mut Schema) -> Option<String> {
    match schema {
        Schema::AllOf(all) => all.title.take(),
        Schema::Object(object) if object.properties.is_empty() => None,
        Schema::Object(object) => {
            let title = object.title.take();
            title.or_else(|| Some(format!("{owner}{}", pascal_case(&distinction(object)?))))
        }
        _ => None,
    }
}

/// The only value of its tag, or the name of its only property.
fn distinction(object: &Object) -> Option<String> {
    let tag = object.properties.values().find_map(|property| match property {
        RefOr::T(Schema::Object(Object { enum_values: Some(values), .. })) => match &values[..] {
            [only] => only.as_str().map(str::to_owned),
            _ => None,
        },
        _ => None,
    });
    let mut names = object.properties.keys();
    tag.or_else(|| names.next().filter(|_| object.properties.len() == 1).cloned())
}

fn pascal_case(text: &str) -> String {
    let word = |word: &str| {
        let mut chars = word.chars();
        chars.next().map(|first| first.to_uppercase().chain(chars).collect::<String>()).unwrap_or_default()
    };
    text.split('_').map(word).collect()
}
