//! Write requests as they are sent, and the calls they become. Shapes are judged first, over the whole call,
//! then names and values. Knows nothing of what is stored.

use super::{
    answer::Refusal,
    filter::{RawFilter, Shape},
    json::{Members, Object, Text, Whole, given, keep, read, read_part},
    name::{self, Named},
};
use lockwood_engine::{Action, Intent, Limits as DocumentLimits, ListChange, PositionLock, Request, Target};
use lockwood_model::{DocumentKey, FieldPath, FieldValue, Filter, Json, Position, Scalar};
use lockwood_node::{
    limits::Limits,
    shard::{Call, Keep},
};
use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// The collections whose objects are written without events.
const VOLATILE: [&str; 2] = ["action_worker", "import_preview"];

/// The body of `write`: one request, or a list of them.
pub(super) fn read_call(body: &[u8], limits: &Limits) -> Result<Call, Refusal> {
    let OneOrMany(raw) = read(body)?;
    within(limits.requests_per_call_max, "requests_per_call_max", raw.len(), "requests")?;
    let events = raw.iter().map(|raw| raw.events.len()).sum();
    within(limits.events_per_call_max, "events_per_call_max", events, "events")?;
    let shapes = raw.iter().map(RequestShape::new).collect::<Result<Vec<_>, _>>()?;
    let mut locks = 0;
    let mut call = Call { limits: Some(document_limits(limits)), ..Call::default() };
    for (place, (raw, shape)) in raw.iter().zip(shapes).enumerate() {
        let request = build(raw, shape, limits)?;
        locks += request.locks.len();
        within(limits.position_locks_per_call_max, "position_locks_per_call_max", locks, "locks")?;
        call.requests.push(request);
        if let Some(index) = raw.migration_index {
            call.founding.push(place);
            call.version.get_or_insert(i64::try_from(index.0).unwrap_or(i64::MAX));
        }
    }
    Ok(call)
}

/// The body of `write_without_events`: a list, whose first element is a request.
pub(super) fn read_volatile(body: &[u8], limits: &Limits) -> Result<Keep, Refusal> {
    let list: Vec<&RawValue> = read(body)?;
    let first = list.first().ok_or_else(|| Refusal::Request("the list has no request".to_owned()))?;
    let Object(raw): Object<RawRequest<'_>> = read_part("the request", first)?;
    within(limits.events_per_call_max, "events_per_call_max", raw.events.len(), "events")?;
    let request = build(&raw, RequestShape::new(&raw)?, limits)?;
    if let Some(intent) = request.intents.iter().find(|intent| !VOLATILE.contains(&&*intent.at.collection)) {
        let message = format!("{} is in none of the collections {}", intent.at, VOLATILE.join(", "));
        return Err(Refusal::Request(message));
    }
    let mut intents = request.intents;
    if intents.iter().all(|intent| intent.action == Action::Delete) {
        return Ok(Keep::Remove(intents.into_iter().map(|intent| intent.at).collect()));
    }
    match (intents.pop(), intents.is_empty()) {
        (Some(Intent { at, action: Action::Create { mut fields } }), true) => {
            fields.retain(|(_, value)| !value.is_null());
            Ok(Keep::Merge(at, fields))
        }
        // The original takes no notice of list_fields here.
        (Some(Intent { at, action: Action::Update { set, .. } }), true) => Ok(Keep::Merge(at, set)),
        _ => Err(Refusal::Request(
            "without events there is one create, one update, or deletes only".to_owned(),
        )),
    }
}

/// The body of `reserve_ids`: a collection and how many.
pub(super) fn read_reserve(body: &[u8], limits: &Limits) -> Result<(String, u64), Refusal> {
    #[derive(Deserialize)]
    struct RawReserve {
        collection: String,
        amount: Whole,
    }
    let Object(RawReserve { collection, amount: Whole(amount) }) = read(body)?;
    name::written_collection(&collection)?;
    let amount = u64::try_from(amount).ok().filter(|amount| (1..=name::ID_MAX as u64).contains(amount));
    let amount = amount
        .ok_or_else(|| Refusal::Format(format!("the amount is a number from 1 to {}", name::ID_MAX)))?;
    if amount > limits.reserve_max {
        return Err(Refusal::over("reserve_max", limits.reserve_max, "too many ids at once"));
    }
    Ok((collection, amount))
}

pub(super) fn document_limits(limits: &Limits) -> DocumentLimits {
    DocumentLimits {
        document_bytes_max: limits.document_bytes_max,
        fields_per_document_max: limits.fields_per_document_max,
    }
}

fn within(limit: u64, name: &str, found: usize, what: &str) -> Result<(), Refusal> {
    if found as u64 <= limit { Ok(()) } else { Err(Refusal::over(name, limit, &format!("too many {what}"))) }
}

struct OneOrMany<'a>(Vec<RawRequest<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for OneOrMany<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<OneOrMany<'a>, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Vec<RawRequest<'de>>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a write request or a list of write requests")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                Ok(vec![RawRequest::deserialize(MapAccessDeserializer::new(map))?])
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut requests = Vec::new();
                while let Some(Object(request)) = list.next_element()? {
                    requests.push(request);
                }
                Ok(requests)
            }
        }
        deserializer.deserialize_any(Read).map(OneOrMany)
    }
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    user_id: Whole,
    #[serde(borrow)]
    information: &'a RawValue,
    #[serde(borrow)]
    locked_fields: Members<'a, RawLock<'a>>,
    #[serde(borrow)]
    events: Vec<RawEvent<'a>>,
    #[serde(default, deserialize_with = "given")]
    migration_index: Option<Whole>,
}

/// What shapes there are in a request beyond what reading it has shown.
struct RequestShape<'a> {
    events: Vec<EventShape<'a>>,
    /// For each locked key its positions and filters.
    locks: Vec<Vec<(Whole, Option<Shape<'a>>)>>,
}

impl<'a> RequestShape<'a> {
    fn new(raw: &RawRequest<'a>) -> Result<RequestShape<'a>, Refusal> {
        if raw.migration_index.is_some_and(|index| index.0 < 1) {
            return Err(Refusal::Request("the migration index is 1 or more".to_owned()));
        }
        let events = raw.events.iter().map(EventShape::new).collect::<Result<_, _>>()?;
        let locks = raw.locked_fields.0.iter().map(|(_, lock)| lock.shapes()).collect::<Result<_, _>>()?;
        Ok(RequestShape { events, locks })
    }
}

fn build(raw: &RawRequest<'_>, shape: RequestShape<'_>, limits: &Limits) -> Result<Request, Refusal> {
    if raw.events.is_empty() {
        return Err(Refusal::Format("a write request has at least one event".to_owned()));
    }
    let keys = raw.locked_fields.0.iter().zip(shape.locks);
    let mut locks = Vec::with_capacity(keys.len());
    for ((key, raw), shapes) in keys {
        build_locks(key, raw, shapes, limits, &mut locks)?;
    }
    let intents = shape.events.into_iter().map(|event| event.build(limits)).collect::<Result<_, _>>()?;
    let note = Some(keep(raw.information, limits.json_depth_max)?).filter(|note| !is_falsy(note));
    if note.as_ref().is_some_and(|note| note.as_str().len() as u64 > limits.note_bytes_max) {
        return Err(Refusal::over("note_bytes_max", limits.note_bytes_max, "the information is too long"));
    }
    let user = Some(Json::trusted(&raw.user_id.0.to_string()));
    Ok(Request { intents, locks, user, note, ..Request::default() })
}

/// What the original keeps as null.
fn is_falsy(json: &Json) -> bool {
    match Scalar::read(json.as_str()) {
        Scalar::Null | Scalar::Bool(false) | Scalar::Compound("[]" | "{}") => true,
        Scalar::Number(number) => number.as_f64() == 0.0,
        Scalar::Text(text) => text.is_empty(),
        Scalar::Bool(true) | Scalar::Compound(_) => false,
    }
}

/// What is given for a locked key.
enum RawLock<'a> {
    Position(Whole),
    One(FilteredLock<'a>),
    Many(Vec<Object<FilteredLock<'a>>>),
}

#[derive(Deserialize)]
struct FilteredLock<'a> {
    position: Whole,
    #[serde(borrow, default, deserialize_with = "given")]
    filter: Option<Object<RawFilter<'a>>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawLock<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawLock<'a>, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = RawLock<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a position, an object with a position and perhaps a filter, or a list of those")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<RawLock<'de>, E> {
                Ok(RawLock::Position(Whole(number.into())))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<RawLock<'de>, E> {
                Ok(RawLock::Position(Whole(number.into())))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<RawLock<'de>, E> {
                Whole::from_float(number).map(RawLock::Position)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawLock<'de>, A::Error> {
                FilteredLock::deserialize(MapAccessDeserializer::new(map)).map(RawLock::One)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawLock<'de>, A::Error> {
                let mut locks = Vec::new();
                while let Some(lock) = list.next_element()? {
                    locks.push(lock);
                }
                if locks.is_empty() {
                    return Err(A::Error::custom("a list of locks has at least one"));
                }
                Ok(RawLock::Many(locks))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'a> RawLock<'a> {
    fn shapes(&self) -> Result<Vec<(Whole, Option<Shape<'a>>)>, Refusal> {
        let shape = |lock: &FilteredLock<'a>| {
            let filter = lock.filter.as_ref().map(|Object(filter)| filter.shape()).transpose()?;
            Ok((lock.position, filter))
        };
        match self {
            RawLock::Position(position) => Ok(vec![(*position, None)]),
            RawLock::One(lock) => Ok(vec![shape(lock)?]),
            RawLock::Many(locks) => locks.iter().map(|Object(lock)| shape(lock)).collect(),
        }
    }
}

fn build_locks(
    key: &str,
    raw: &RawLock<'_>,
    shapes: Vec<(Whole, Option<Shape<'_>>)>,
    limits: &Limits,
    locks: &mut Vec<PositionLock>,
) -> Result<(), Refusal> {
    let named = Named::read(key)?;
    named.check_len()?;
    if !matches!((&named, raw), (Named::CollectionField(..), _) | (_, RawLock::Position(_))) {
        return Err(Refusal::Format(format!("the lock on {key} is a position; it can have no filter")));
    }
    for (position, shape) in shapes {
        let filter = shape.map(|shape| shape.build(limits)).transpose()?;
        let position = read_position(position, &format!("the lock on {key}"))?;
        locks.push(PositionLock { target: target(&named, filter), position });
    }
    Ok(())
}

fn target(named: &Named<'_>, filter: Option<Filter>) -> Target {
    match named {
        Named::Model(at) => Target::Document(at.clone()),
        Named::Field(at, field) => Target::Field(at.clone(), FieldPath::name(field)),
        Named::CollectionField(collection, field) => {
            let field = FieldPath::name(field);
            Target::CollectionField { collection: (*collection).into(), field, filter }
        }
    }
}

/// A position; one beyond the end of numbers is as good as the last. `what` names the member it was given for.
pub(super) fn read_position(Whole(number): Whole, what: &str) -> Result<Position, Refusal> {
    if number < 1 {
        return Err(Refusal::Format(format!("{what}: {number} is no position: positions begin at 1")));
    }
    Ok(Position(u64::try_from(number).unwrap_or(u64::MAX)))
}

/// An event; which members it must have depends on its type.
struct RawEvent<'a> {
    kind: Option<Cow<'a, str>>,
    fqid: Option<Cow<'a, str>>,
    fields: Option<&'a RawValue>,
    list_fields: Option<&'a RawValue>,
    /// A member of another name.
    stranger: Option<Cow<'a, str>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawEvent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawEvent<'a>, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = RawEvent<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawEvent<'de>, A::Error> {
                let mut event =
                    RawEvent { kind: None, fqid: None, fields: None, list_fields: None, stranger: None };
                while let Some(Text(name)) = map.next_key()? {
                    let again = match &*name {
                        "type" => event.kind.replace(map.next_value::<Text<'_>>()?.0).is_some(),
                        "fqid" => event.fqid.replace(map.next_value::<Text<'_>>()?.0).is_some(),
                        "fields" => event.fields.replace(map.next_value()?).is_some(),
                        "list_fields" => event.list_fields.replace(map.next_value()?).is_some(),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            event.stranger = Some(name);
                            continue;
                        }
                    };
                    if again {
                        return Err(A::Error::custom(format_args!("the member {name:?} is given twice")));
                    }
                }
                Ok(event)
            }
        }
        deserializer.deserialize_map(Read)
    }
}

/// An event whose members are all there.
struct EventShape<'a> {
    fqid: Cow<'a, str>,
    action: ActionShape<'a>,
}

enum ActionShape<'a> {
    Create(Members<'a, &'a RawValue>),
    Update(Members<'a, &'a RawValue>, RawLists<'a>),
    Delete,
    Restore,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct RawLists<'a> {
    #[serde(borrow, default, deserialize_with = "given")]
    add: Option<Members<'a, Vec<Element>>>,
    #[serde(borrow, default, deserialize_with = "given")]
    remove: Option<Members<'a, Vec<Element>>>,
}

/// A whole number or a string.
struct Element(Json);

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Element, D::Error> {
        struct Read;
        impl Visitor<'_> for Read {
            type Value = Element;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number or a string")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Element, E> {
                Ok(Element(Json::trusted(&number.to_string())))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Element, E> {
                Ok(Element(Json::trusted(&number.to_string())))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Element, E> {
                Whole::from_float(number).map(|Whole(number)| Element(Json::trusted(&number.to_string())))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Element, E> {
                Ok(Element(serde_json::Value::from(text).into()))
            }
        }
        deserializer.deserialize_any(Read)
    }
}

impl<'a> EventShape<'a> {
    fn new(raw: &RawEvent<'a>) -> Result<EventShape<'a>, Refusal> {
        let wrong = |message: &str| Refusal::Request(message.to_owned());
        let kind = raw.kind.as_deref().ok_or_else(|| wrong("an event has a type"))?;
        let fqid = raw.fqid.clone().ok_or_else(|| wrong("an event has an fqid"))?;
        let action = match kind {
            "create" => {
                let fields = raw.fields.ok_or_else(|| wrong("a create has fields"))?;
                ActionShape::Create(read_part("the fields of a create", fields)?)
            }
            "update" => update_shape(raw)?,
            "delete" => ActionShape::Delete,
            "restore" => ActionShape::Restore,
            _ => return Err(wrong("the type of an event is create, update, delete or restore")),
        };
        Ok(EventShape { fqid, action })
    }

    fn build(self, limits: &Limits) -> Result<Intent, Refusal> {
        let at = name::model(&self.fqid)?;
        name::written_collection(&at.collection)?;
        check_len(&at.collection, "collection_bytes_max", limits.collection_bytes_max)?;
        let action = match self.action {
            ActionShape::Create(fields) => Action::Create { fields: build_fields(&at, fields, limits)? },
            ActionShape::Update(fields, lists) => Action::Update {
                set: build_fields(&at, fields, limits)?,
                lists: build_lists(&at, lists, limits)?,
            },
            ActionShape::Delete => Action::Delete,
            ActionShape::Restore => Action::Restore,
        };
        Ok(Intent { at, action })
    }
}

fn update_shape<'a>(raw: &RawEvent<'a>) -> Result<ActionShape<'a>, Refusal> {
    if let Some(stranger) = &raw.stranger {
        return Err(Refusal::Request(format!("an update has no member {stranger:?}")));
    }
    let fields = raw.fields.map(|fields| read_part("the fields of an update", fields)).transpose()?;
    let fields: Members<'a, &'a RawValue> = fields.unwrap_or(Members(Vec::new()));
    let lists = match raw.list_fields {
        Some(lists) => read_part::<Object<RawLists<'a>>>("the list_fields of an update", lists)?.0,
        None => RawLists::default(),
    };
    let listed = || [&lists.add, &lists.remove].into_iter().flatten().flat_map(|lists| &lists.0);
    if fields.0.is_empty() && listed().next().is_none() {
        return Err(Refusal::Request("an update has at least one field".to_owned()));
    }
    let has = |name: &str| fields.0.binary_search_by(|(field, _)| (**field).cmp(name)).is_ok();
    if let Some((name, _)) = listed().find(|(name, _)| has(name)) {
        return Err(Refusal::Request(format!("the field {name:?} is in both fields and list_fields")));
    }
    Ok(ActionShape::Update(fields, lists))
}

fn build_fields(
    at: &DocumentKey,
    fields: Members<'_, &RawValue>,
    limits: &Limits,
) -> Result<Vec<FieldValue>, Refusal> {
    let build = |(name, value): (Cow<'_, str>, &RawValue)| {
        Ok((field_name(at, &name, limits)?.into(), keep(value, limits.json_depth_max)?))
    };
    fields.0.into_iter().map(build).collect()
}

fn build_lists(at: &DocumentKey, lists: RawLists<'_>, limits: &Limits) -> Result<Vec<ListChange>, Refusal> {
    let mut changes: BTreeMap<Box<str>, ListChange> = BTreeMap::new();
    let (added, removed) = (lists.add.into_iter(), lists.remove.into_iter());
    for (name, list) in added.flat_map(|lists| lists.0) {
        let field: Box<str> = field_name(at, &name, limits)?.into();
        changes.insert(field.clone(), ListChange { field, add: Some(elements(list)), remove: None });
    }
    for (name, list) in removed.flat_map(|lists| lists.0) {
        let field: Box<str> = field_name(at, &name, limits)?.into();
        let unchanged = ListChange { field: field.clone(), add: None, remove: None };
        changes.entry(field).or_insert(unchanged).remove = Some(elements(list));
    }
    Ok(changes.into_values().collect())
}

fn elements(list: Vec<Element>) -> Vec<Json> {
    list.into_iter().map(|Element(json)| json).collect()
}

fn field_name<'a>(at: &DocumentKey, name: &'a str, limits: &Limits) -> Result<&'a str, Refusal> {
    let name = name::own_field(&at.collection, name)?;
    check_len(name, "field_bytes_max", limits.field_bytes_max)?;
    Ok(name)
}

fn check_len(name: &str, limit_name: &str, limit: u64) -> Result<(), Refusal> {
    if name.len() as u64 <= limit {
        return Ok(());
    }
    Err(Refusal::over(limit_name, limit, &format!("the name {name:?} is too long")))
}
