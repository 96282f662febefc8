//! The questions of the reader and their answers. Knows nothing of HTTP, and nothing of writing.

use super::{
    answer::Refusal,
    filter::RawFilter,
    json::{Object, Text, Whole, given, read, read_part},
    model::{self, Members},
    name::{self, Named},
    request::read_position,
};
use lockwood_model::{Budget, DocumentKey, FieldPath, Filter, Json, Key, Position, Scalar, Timestamp};
use lockwood_node::{
    limits::Limits,
    schemas::{self, Active},
    shard::{Find, PageError, Reading, Selection},
    trouble::Trouble,
};
use lockwood_storage::{DocumentRef, NamespaceId};
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    fmt,
    io::Write,
    sync::Arc,
};

/// The longest name a collection can have, whatever the limits are.
const COLLECTION_BYTES_CAP: usize = 1024;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Question {
    Get,
    GetMany,
    GetAll,
    GetEverything,
    Filter,
    Exists,
    Count,
    Min,
    Max,
    HistoryInformation,
}

impl Question {
    pub(super) fn named(route: &str) -> Option<Question> {
        Some(match route {
            "get" => Question::Get,
            "get_many" => Question::GetMany,
            "get_all" => Question::GetAll,
            "get_everything" => Question::GetEverything,
            "filter" => Question::Filter,
            "exists" => Question::Exists,
            "count" => Question::Count,
            "min" => Question::Min,
            "max" => Question::Max,
            "history_information" => Question::HistoryInformation,
            _ => return None,
        })
    }

    /// Whether it may look at many models.
    pub(super) fn is_long(self, body: &[u8]) -> bool {
        const SHORT_BYTES_MAX: usize = 2048;
        !matches!(self, Question::Get | Question::GetMany) || body.len() > SHORT_BYTES_MAX
    }
}

/// The store at one moment, as the facade sees it.
pub(super) struct Library<'a> {
    limits: &'a Limits,
    /// What looking may cost.
    budget: &'a Budget,
    reading: Reading,
    /// None if nothing was ever written.
    namespace: Option<NamespaceId>,
    position: Position,
    /// The schemas that collections have.
    active: Arc<Active>,
}

impl<'a> Library<'a> {
    pub(super) fn open(
        reading: Reading,
        name: &str,
        (limits, budget): (&'a Limits, &'a Budget),
        active: Arc<Active>,
    ) -> Result<Library<'a>, Refusal> {
        let (namespace, position) = match reading.namespace(name)? {
            Some((namespace, position)) => (Some(namespace), position),
            None => (None, reading.position(name)?),
        };
        Ok(Library { limits, budget, reading, namespace, position, active })
    }

    /// A collection with a schema is not asked for fields that the schema does not know.
    fn check_names(&self, collection: &str, names: &[&str], filter: Option<&Filter>) -> Result<(), Refusal> {
        let checked = self.active.check_names(collection, names, filter, self.budget);
        Ok(checked.map_err(Trouble::from)?)
    }

    pub(super) fn answer(&self, question: Question, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        match question {
            Question::Get => self.get(body),
            Question::GetMany => self.get_many(body),
            Question::GetAll => self.get_all(body),
            Question::GetEverything => self.get_everything(body),
            Question::HistoryInformation => self.history_information(body),
            Question::Filter | Question::Exists | Question::Count | Question::Min | Question::Max => {
                self.find(question, body)
            }
        }
    }

    fn get(&self, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(RawGet { fqid: Text(fqid), mapped_fields, position, get_deleted_models }) = read(body)?;
        let deleted = selection(get_deleted_models)?;
        let at = name::model(&fqid)?;
        let names = Names::read(&mapped_fields)?;
        self.check_names(&at.collection, names.list(), None)?;
        let as_of = position.map(|position| read_position(position, "position")).transpose()?;
        let mut out = Vec::new();
        let found = self.model(&at, deleted, as_of, |document| match &names {
            Names::All => model::whole(&mut out, document),
            Names::Some(names) => model::some(&mut out, document, |name| has(names, name)),
        })?;
        match (found, deleted) {
            (true, _) => Ok(out),
            (false, Selection::Only) => Err(Refusal::NotDeleted(at)),
            (false, _) => Err(Refusal::Missing(at)),
        }
    }

    /// Shows a model, if it is there; says whether it is.
    fn model(
        &self,
        at: &DocumentKey,
        deleted: Selection,
        as_of: Option<Position>,
        see: impl FnOnce(&DocumentRef<'_>),
    ) -> Result<bool, Refusal> {
        let Some(namespace) = self.namespace_with(&at.collection) else { return Ok(false) };
        let Some(found) = self.reading.get(namespace, at.clone(), deleted, as_of)? else { return Ok(false) };
        let document = found.document()?;
        // What has no positions was not there at any of them.
        let there = as_of.is_none() || document.position() > Position::START;
        if there {
            see(&document);
        }
        Ok(there)
    }

    fn get_many(&self, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(RawGetMany { requests, mapped_fields, position, get_deleted_models }) = read(body)?;
        let deleted = selection(get_deleted_models)?;
        let wanted = Wanted::read(&requests, &mapped_fields, self.limits)?;
        self.check_wanted(&wanted)?;
        let as_of = position.map(|position| read_position(position, "position")).transpose()?;
        let mut out = Vec::new();
        let mut collections = Members::open(&mut out);
        for (collection, models) in &wanted.models {
            let mut object = Members::open(collections.name(collection));
            for (id, parts) in models {
                let at = DocumentKey::new(collection, Key::number(*id));
                self.model(&at, deleted, as_of, |document| {
                    let out = object.name(&id.to_string());
                    match parts {
                        Parts::Whole => model::whole(out, document),
                        Parts::Fields(names) => model::some(out, document, |name| has(names, name)),
                        Parts::Of(parts) => model::some(out, document, |name| wanted.has(parts, name)),
                    }
                })?;
                self.check_len(object.out)?;
            }
            object.close();
        }
        collections.close();
        Ok(out)
    }

    fn check_wanted(&self, wanted: &Wanted<'_>) -> Result<(), Refusal> {
        for (collection, models) in wanted.models.iter().filter(|_| !self.active.is_empty()) {
            let mut parts = BTreeSet::new();
            for part in models.values() {
                match part {
                    Parts::Whole => {}
                    Parts::Fields(names) => self.check_names(collection, names, None)?,
                    Parts::Of(numbers) => parts.extend(numbers),
                }
            }
            if !parts.is_empty() {
                self.check_names(collection, &wanted.common, None)?;
            }
            parts
                .into_iter()
                .try_for_each(|part: &usize| self.check_names(collection, &wanted.parts[*part], None))?;
        }
        Ok(())
    }

    fn get_all(&self, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(RawGetAll { collection: Text(collection), mapped_fields, get_deleted_models }) =
            read(body)?;
        let deleted = selection(get_deleted_models)?;
        let collection = name::collection(&collection)?;
        let names = Names::read(&mapped_fields)?;
        self.check_names(collection, names.list(), None)?;
        let mut out = Vec::new();
        self.models(&mut out, collection, None, deleted, &names)?;
        Ok(out)
    }

    /// Writes an object of all models that are found.
    fn models(
        &self,
        out: &mut Vec<u8>,
        collection: &str,
        filter: Option<Filter>,
        deleted: Selection,
        names: &Names<'_>,
    ) -> Result<(), Refusal> {
        let mut object = Members::open(out);
        if let Some(find) = self.search(collection, filter, deleted) {
            self.reading.each(&find, None, &mut |found, document| {
                let out = object.name(&found().at.key.to_string());
                match names {
                    Names::All => model::whole(out, document),
                    Names::Some(names) => model::mapped(out, document, names),
                }
                self.check_len(out).is_ok()
            })?;
        }
        self.check_len(object.out)?;
        object.close();
        Ok(())
    }

    /// None if there cannot be anything in the collection: no interface writes to longer names.
    fn namespace_with(&self, collection: &str) -> Option<NamespaceId> {
        self.namespace.filter(|_| collection.len() <= COLLECTION_BYTES_CAP)
    }

    fn search(&self, collection: &str, filter: Option<Filter>, deleted: Selection) -> Option<Find> {
        Some(Find {
            namespace: self.namespace_with(collection)?,
            collection: collection.into(),
            filter,
            deleted,
            at: None,
            looks_max: self.limits.looks_max,
            budget: self.budget.clone(),
            custody: None,
        })
    }

    fn get_everything(&self, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(RawEverything { get_deleted_models }) = read(body)?;
        let deleted = selection(get_deleted_models)?;
        let mut out = Vec::new();
        let mut collections = Members::open(&mut out);
        let names = match self.namespace {
            Some(namespace) => self.reading.state().collections(namespace)?,
            None => Vec::new(),
        };
        // Where schemas are kept is not for this interface.
        for name in names.iter().filter(|name| name.as_str() != schemas::COLLECTION) {
            let Some(find) = self.search(name, None, deleted) else { continue };
            // A collection is named only if there is something in it.
            let mut models = Vec::new();
            let mut object = Members::open(&mut models);
            let before = collections.out.len();
            self.reading.each(&find, None, &mut |found, document| {
                let key = found().at.key;
                model::numbered(object.name(&key.to_string()), document, &key);
                self.check_total(before + object.out.len()).is_ok()
            })?;
            object.close();
            self.check_total(before + models.len())?;
            if models != b"{}" {
                collections.name(name).append(&mut models);
            }
        }
        collections.close();
        Ok(out)
    }

    fn find(&self, question: Question, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(raw): Object<RawFind<'_>> = read(body)?;
        let shape = raw.filter.0.shape()?;
        let wants_field = matches!(question, Question::Min | Question::Max);
        let field = match (&raw.field, wants_field) {
            (Some(field), true) => read_text(field)?,
            (None, true) => return Err(Refusal::Request("the field is missing".to_owned())),
            (_, false) => Cow::Borrowed(""),
        };
        if wants_field && raw.kind.as_ref().is_some_and(|kind| read_text(kind).ok().as_deref() != Some("int"))
        {
            return Err(Refusal::Request("the type is int".to_owned()));
        }
        let mapped: Option<Vec<Text<'_>>> = match (&raw.mapped_fields, question) {
            (Some(raw), Question::Filter) => Some(read_part("mapped_fields", raw)?),
            _ => None,
        };
        let collection = name::collection(&raw.collection.0)?;
        let filter = shape.build(self.limits)?;
        let names = Names::read(&mapped)?;
        if wants_field {
            name::field(&field)?;
            self.check_names(collection, &[&*field], None)?;
        }
        self.check_names(collection, names.list(), Some(&filter))?;
        let mut out = Vec::new();
        let mut object = Members::open(&mut out);
        match question {
            Question::Filter => {
                self.models(object.name("data"), collection, Some(filter), Selection::With, &names)?;
            }
            _ => {
                let find = self.search(collection, Some(filter), Selection::With);
                let (member, value) = self.number(question, find, &field)?;
                object.member(member, &value);
            }
        }
        match self.position {
            Position::START => object.member("position", "null"),
            position => object.member("position", &position.to_string()),
        }
        object.close();
        Ok(out)
    }

    /// The name and the value of what an aggregate answers.
    fn number(
        &self,
        question: Question,
        find: Option<Find>,
        field: &str,
    ) -> Result<(&'static str, String), Refusal> {
        let is_number = |value: &Scalar<'_>| matches!(value, Scalar::Number(_));
        let extreme = |order: Ordering| -> Result<String, Refusal> {
            let Some(find) = &find else { return Ok("null".to_owned()) };
            let found = self.reading.extreme(find, &FieldPath::name(field), order, is_number)?;
            Ok(found.unwrap_or_else(|| "null".to_owned()))
        };
        Ok(match question {
            Question::Exists => {
                let exists = find.map_or(Ok(false), |find| self.reading.exists(&find))?;
                ("exists", exists.to_string())
            }
            Question::Min => ("min", extreme(Ordering::Less)?),
            Question::Max => ("max", extreme(Ordering::Greater)?),
            _ => ("count", find.map_or(Ok(0), |find| self.reading.count(&find))?.to_string()),
        })
    }

    fn history_information(&self, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let Object(RawHistory { fqids }) = read(body)?;
        let models = fqids.iter().map(|Text(fqid)| name::model(fqid)).collect::<Result<BTreeSet<_>, _>>()?;
        let limit = self.limits.documents_per_get_max;
        if models.len() as u64 > limit {
            return Err(Refusal::over("documents_per_get_max", limit, "too many models are asked for"));
        }
        let mut out = Vec::new();
        let mut object = Members::open(&mut out);
        let mut notes = Notes { library: self, known: BTreeMap::new(), looks: 0 };
        for at in models {
            let mut list: Vec<u8> = Vec::new();
            notes.write(&mut list, &at)?;
            self.check_total(object.out.len() + list.len())?;
            if !list.is_empty() {
                let out = object.name(&at.to_string());
                out.push(b'[');
                out.append(&mut list);
                out.push(b']');
            }
        }
        object.close();
        Ok(out)
    }

    fn check_len(&self, out: &[u8]) -> Result<(), Refusal> {
        self.check_total(out.len())
    }

    fn check_total(&self, len: usize) -> Result<(), Refusal> {
        let limit = self.limits.answer_bytes_max;
        if len as u64 > limit {
            return Err(Refusal::over("answer_bytes_max", limit, "the answer is too long"));
        }
        Ok(())
    }
}

/// Who wrote when and why, each position read once.
struct Notes<'a> {
    library: &'a Library<'a>,
    /// None for positions without a note.
    known: BTreeMap<Position, Option<Note>>,
    looks: u64,
}

struct Note {
    at: Timestamp,
    user: Option<Json>,
    information: Json,
}

impl Notes<'_> {
    fn write(&mut self, out: &mut Vec<u8>, at: &DocumentKey) -> Result<(), Refusal> {
        let Library { limits, reading, .. } = self.library;
        let Some(namespace) = self.library.namespace_with(&at.collection) else { return Ok(()) };
        let limit = limits.looks_max;
        for position in reading.state().changed_at(namespace, at, usize::MAX)? {
            self.looks += 1;
            if self.looks > limit {
                return Err(Refusal::over(
                    "looks_max",
                    limit,
                    "too many positions would have to be looked at",
                ));
            }
            self.library.budget.spend(1).map_err(PageError::from)?;
            self.library.check_total(out.len())?;
            let Some(note) = self.note(namespace, position)? else { continue };
            if !out.is_empty() {
                out.push(b',');
            }
            let (seconds, millis) = (note.at.0 / 1000, note.at.0 % 1000);
            let information = &note.information;
            let user = note.user.as_ref().map_or("null", Json::as_str);
            write!(
                out,
                "{{\"position\":{position},\"timestamp\":{seconds}.{millis:03},\"user_id\":{user},\
                 \"information\":{information}}}"
            )
            .expect("memory takes everything");
        }
        Ok(())
    }

    fn note(&mut self, namespace: NamespaceId, position: Position) -> Result<Option<&Note>, Refusal> {
        if !self.known.contains_key(&position) {
            let found = self.library.reading.state().commit(namespace, position)?;
            let note = found.and_then(|found| {
                let commit = found.commit;
                Some(Note { at: commit.at, user: commit.user, information: commit.note? })
            });
            self.known.insert(position, note);
        }
        Ok(self.known[&position].as_ref())
    }
}

#[derive(Deserialize)]
struct RawGet<'a> {
    #[serde(borrow)]
    fqid: Text<'a>,
    #[serde(borrow, default, deserialize_with = "given")]
    mapped_fields: Option<Vec<Text<'a>>>,
    #[serde(default, deserialize_with = "given")]
    position: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    get_deleted_models: Option<Whole>,
}

#[derive(Deserialize)]
struct RawGetMany<'a> {
    #[serde(borrow)]
    requests: Vec<RawPart<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    mapped_fields: Option<Vec<Text<'a>>>,
    #[serde(default, deserialize_with = "given")]
    position: Option<Whole>,
    #[serde(default, deserialize_with = "given")]
    get_deleted_models: Option<Whole>,
}

#[derive(Deserialize)]
struct RawGetAll<'a> {
    #[serde(borrow)]
    collection: Text<'a>,
    #[serde(borrow, default, deserialize_with = "given")]
    mapped_fields: Option<Vec<Text<'a>>>,
    #[serde(default, deserialize_with = "given")]
    get_deleted_models: Option<Whole>,
}

#[derive(Deserialize)]
struct RawEverything {
    #[serde(default, deserialize_with = "given")]
    get_deleted_models: Option<Whole>,
}

/// For `filter` and the aggregates; some members are looked at by some of them only.
#[derive(Deserialize)]
struct RawFind<'a> {
    #[serde(borrow)]
    collection: Text<'a>,
    #[serde(borrow)]
    filter: Object<RawFilter<'a>>,
    #[serde(borrow, default, deserialize_with = "given")]
    mapped_fields: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given")]
    field: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "given", rename = "type")]
    kind: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawHistory<'a> {
    #[serde(borrow)]
    fqids: Vec<Text<'a>>,
}

fn read_text(raw: &RawValue) -> Result<Cow<'_, str>, Refusal> {
    read_part::<Text<'_>>("the field or the type", raw).map(|Text(text)| text)
}

fn selection(number: Option<Whole>) -> Result<Selection, Refusal> {
    match number {
        None | Some(Whole(1)) => Ok(Selection::Without),
        Some(Whole(2)) => Ok(Selection::Only),
        Some(Whole(3)) => Ok(Selection::With),
        Some(_) => Err(Refusal::Request("get_deleted_models is 1, 2 or 3".to_owned())),
    }
}

/// Which fields are wanted: those named, sorted and each once, or all.
enum Names<'a> {
    All,
    Some(Vec<&'a str>),
}

impl<'a> Names<'a> {
    fn read(given: &'a Option<Vec<Text<'a>>>) -> Result<Names<'a>, Refusal> {
        let names = sorted(given.as_deref().unwrap_or_default())?;
        Ok(if names.is_empty() { Names::All } else { Names::Some(names) })
    }

    fn list(&self) -> &[&'a str] {
        match self {
            Names::All => &[],
            Names::Some(names) => names,
        }
    }
}

fn sorted<'a>(given: &'a [Text<'a>]) -> Result<Vec<&'a str>, Refusal> {
    let mut names = given.iter().map(|Text(name)| name::field(name)).collect::<Result<Vec<_>, _>>()?;
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

fn has(names: &[&str], name: &str) -> bool {
    names.binary_search(&name).is_ok()
}

/// One of the requests of `get_many`.
enum RawPart<'a> {
    Field(Cow<'a, str>),
    Models(RawModels<'a>),
}

#[derive(Deserialize)]
struct RawModels<'a> {
    #[serde(borrow)]
    collection: Text<'a>,
    ids: Vec<Whole>,
    #[serde(borrow, default, deserialize_with = "given")]
    mapped_fields: Option<Vec<Text<'a>>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for RawPart<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RawPart<'a>, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = RawPart<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an fqfield, or an object with a collection and ids")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<RawPart<'de>, E> {
                Ok(RawPart::Field(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RawPart<'de>, E> {
                Ok(RawPart::Field(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawPart<'de>, A::Error> {
                RawModels::deserialize(MapAccessDeserializer::new(map)).map(RawPart::Models)
            }
        }
        deserializer.deserialize_any(Read)
    }
}

/// What `get_many` is asked for. The fields of a part are kept once, however many models it names.
struct Wanted<'a> {
    models: BTreeMap<&'a str, BTreeMap<i64, Parts<'a>>>,
    /// Sorted names of the fields of each part.
    parts: Vec<Vec<&'a str>>,
    /// The same for all parts together; fqfields name their own and know nothing of these.
    common: Vec<&'a str>,
}

/// Which fields of a model are wanted.
enum Parts<'a> {
    Whole,
    Fields(Vec<&'a str>),
    /// Those of these parts.
    Of(Vec<usize>),
}

impl<'a> Wanted<'a> {
    fn read(
        requests: &'a [RawPart<'a>],
        common: &'a Option<Vec<Text<'a>>>,
        limits: &Limits,
    ) -> Result<Wanted<'a>, Refusal> {
        let fields = requests.iter().filter(|part| matches!(part, RawPart::Field(_))).count();
        if requests.is_empty() || (fields != 0 && fields != requests.len()) {
            let message = "the requests are a list of fqfields, or of objects with a collection and ids";
            return Err(Refusal::Request(message.to_owned()));
        }
        let common = sorted(common.as_deref().unwrap_or_default())?;
        let mut wanted = Wanted { models: BTreeMap::new(), parts: Vec::new(), common };
        let mut named = 0;
        for part in requests {
            named += match part {
                RawPart::Field(text) => wanted.add_field(text)?,
                RawPart::Models(models) => wanted.add_models(models)?,
            };
            if named > limits.documents_per_get_max {
                let limit = limits.documents_per_get_max;
                return Err(Refusal::over("documents_per_get_max", limit, "too many models are asked for"));
            }
        }
        wanted.sort();
        Ok(wanted)
    }

    /// Says how many models were not wanted before.
    fn add_field(&mut self, text: &'a str) -> Result<u64, Refusal> {
        let (Named::Field(at, field), Some((collection, _))) = (Named::read(text)?, text.split_once('/'))
        else {
            return Err(Refusal::Format(format!("{text:?} is no fqfield")));
        };
        let id = at.key.as_number().expect("keys in the facade's grammar are numbers");
        let models = self.models.entry(collection).or_default();
        let before = models.len();
        if let Parts::Fields(names) = models.entry(id).or_insert(Parts::Fields(Vec::new())) {
            names.push(field);
        }
        Ok((models.len() - before) as u64)
    }

    /// Says how many models the part names.
    fn add_models(&mut self, part: &'a RawModels<'a>) -> Result<u64, Refusal> {
        let models = self.models.entry(name::collection(&part.collection.0)?).or_default();
        let names = sorted(part.mapped_fields.as_deref().unwrap_or_default())?;
        let is_whole = names.is_empty() && self.common.is_empty();
        let number = self.parts.len();
        self.parts.push(names);
        for Whole(id) in &part.ids {
            let parts = models.entry(name::id(&part.collection.0, *id)?).or_insert(Parts::Of(Vec::new()));
            match parts {
                _ if is_whole => *parts = Parts::Whole,
                Parts::Of(numbers) if numbers.last() != Some(&number) => numbers.push(number),
                _ => {}
            }
        }
        Ok(part.ids.len() as u64)
    }

    fn sort(&mut self) {
        for parts in self.models.values_mut().flat_map(BTreeMap::values_mut) {
            if let Parts::Fields(names) = parts {
                names.sort_unstable();
                names.dedup();
            }
        }
    }

    fn has(&self, parts: &[usize], name: &str) -> bool {
        has(&self.common, name) || parts.iter().any(|part| has(&self.parts[*part], name))
    }
}
