//! The questions: subjects, versions, schemas by id, settings. Knows nothing of changing anything.

use super::{
    SchemaRegistry,
    answer::{Answer, Refusal, json as text},
    context::{Place, split},
    done,
    query::Query,
    route::{Number, OfId, Route},
};
use hyper::StatusCode;
use lockwood_node::schemas::{Book, Settings, Subject, Version, aside, policy_name};
use lockwood_schema::{Guid, Level};
use serde_json::{Value, json};

/// Subjects of every context.
const ANY_CONTEXT: &str = ":*:";

impl SchemaRegistry {
    pub(super) async fn look(&self, route: &Route, query: &Query) -> Result<Answer, Refusal> {
        match route {
            Route::Root => done(&json!({})),
            Route::Subjects(namespace) => aside(|| self.subjects(namespace, query)),
            Route::Metadata(place) if query.get("key").is_none() => {
                self.version(place, Number::Latest, query, described)
            }
            Route::Metadata(_) => Err(Refusal::no_schema("with this metadata")),
            Route::Versions(place) => self.versions(place, query),
            Route::Version(place, number) => self.version(place, *number, query, described),
            Route::VersionText(place, number) => {
                self.version(place, *number, query, |_, version| Err(version.text.to_string()))
            }
            // Nothing refers to anything else.
            Route::ReferencedBy(place, number) => self.version(place, *number, query, |_, _| Ok(json!([]))),
            Route::Schemas(namespace) => aside(|| self.schemas(namespace, query)),
            Route::Types => done(&json!(["JSON"])),
            Route::Id(namespace, id, part) => self.by_id(namespace, id, *part, query),
            Route::Guid(guid) => aside(|| self.by_guid(guid)),
            Route::GuidIds(guid) => aside(|| self.ids_of_guid(guid, query)),
            Route::Config(place) => self.config_of(place, query),
            Route::Mode(place) => self.mode_of(place, query),
            Route::Contexts => aside(|| self.all_contexts(query)),
            Route::ServerId => {
                let clusters = json!({ "schema-registry-cluster": "lockwood" });
                done(&json!({ "id": "", "scope": { "path": [], "clusters": clusters } }))
            }
            Route::ServerVersion => done(&json!({ "version": env!("CARGO_PKG_VERSION"), "commitId": "" })),
            Route::Subject(_) | Route::Compatibility(..) => Err(Refusal::method_not_allowed()),
        }
    }

    /// The namespaces that have a registry, the default one always. There may be many, and none of their registries
    /// may have been read before, so this is done [`aside`].
    fn namespaces(&self) -> Result<Vec<String>, Refusal> {
        let default = self.contexts().default;
        let mut names = vec![default.to_owned()];
        let reading = self.shared.shard.read();
        for (name, id) in reading.state().namespaces()? {
            // A name with a colon cannot be written as a context.
            let is_context = name != default && !name.contains(':') && Book::is_there(reading.state(), id)?;
            if is_context && !self.book(&name)?.subjects.is_empty() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn all_contexts(&self, query: &Query) -> Result<Answer, Refusal> {
        let names = self.namespaces()?;
        done(&json!(query.page(names.iter().map(|name| self.context(name)).collect())?))
    }

    fn context(&self, namespace: &str) -> String {
        if namespace == self.contexts().default { ".".to_owned() } else { format!(".{namespace}") }
    }

    /// Namespaces and the beginning of names that a prefix means.
    fn meant(&self, namespace: &str, prefix: Option<&str>) -> Result<(Vec<String>, String), Refusal> {
        match prefix {
            None if namespace == self.contexts().default => Ok((self.namespaces()?, String::new())),
            None => Ok((vec![namespace.to_owned()], String::new())),
            Some(prefix) => match prefix.strip_prefix(ANY_CONTEXT) {
                Some(rest) => Ok((self.namespaces()?, rest.to_owned())),
                None => {
                    let (namespace, rest) = match split(prefix) {
                        Some((context, rest)) => (self.contexts().namespace(context)?, rest),
                        None => (namespace.to_owned(), prefix),
                    };
                    Ok((vec![namespace], rest.to_owned()))
                }
            },
        }
    }

    /// Goes through the subjects a request is about, with their names as clients know them.
    fn each_subject(
        &self,
        namespace: &str,
        query: &Query,
        mut see: impl FnMut(String, &Subject),
    ) -> Result<(), Refusal> {
        let (namespaces, prefix) = self.meant(namespace, query.get("subjectPrefix"))?;
        for namespace in namespaces {
            let book = self.book(&namespace)?;
            for (name, subject) in book.subjects.iter().filter(|(name, _)| name.starts_with(&prefix)) {
                see(self.contexts().write(&namespace, name), subject);
            }
        }
        Ok(())
    }

    fn subjects(&self, namespace: &str, query: &Query) -> Result<Answer, Refusal> {
        let mut names = Vec::new();
        self.each_subject(namespace, query, |name, subject| {
            let (live, any) = (subject.latest().is_some(), !subject.versions.is_empty());
            let wanted = match only_deleted(query) {
                true => any && !live,
                false => live || (any && query.flag("deleted")),
            };
            if wanted {
                names.push(name);
            }
        })?;
        done(&json!(query.page(names)?))
    }

    fn schemas(&self, namespace: &str, query: &Query) -> Result<Answer, Refusal> {
        let mut all = Vec::new();
        self.each_subject(namespace, query, |name, subject| {
            let versions =
                subject.versions.values().filter(|version| query.flag("deleted") || !version.deleted);
            let versions: Vec<&Version> = versions.collect();
            let first = if query.flag("latestOnly") { versions.len().saturating_sub(1) } else { 0 };
            all.extend(versions[first..].iter().map(|version| description(&name, version)));
        })?;
        done(&json!(query.page(all)?))
    }

    fn versions(&self, place: &Place, query: &Query) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let known = self.known(&book, place)?;
        let wanted = |version: &&Version| match only_deleted(query) {
            true => version.deleted,
            false => !version.deleted || query.flag("deleted"),
        };
        let numbers: Vec<u32> =
            known.versions.values().filter(wanted).map(|version| version.number).collect();
        if numbers.is_empty() {
            return Err(Refusal::no_subject(&self.name(place)?));
        }
        done(&json!(query.page(numbers)?))
    }

    /// The name of a subject as the client knows it.
    pub(super) fn name(&self, place: &Place) -> Result<String, Refusal> {
        Ok(self.contexts().write(&place.namespace, place.subject()?))
    }

    pub(super) fn known<'a>(&self, book: &'a Book, place: &Place) -> Result<&'a Subject, Refusal> {
        let known = book.subject(place.subject()?);
        known
            .ok_or_else(|| self.name(place).map_or_else(|refusal| refusal, |name| Refusal::no_subject(&name)))
    }

    /// `show` gives JSON, or text as its error.
    fn version(
        &self,
        place: &Place,
        number: Number,
        query: &Query,
        show: impl FnOnce(&str, &Version) -> Result<Value, String>,
    ) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let version = self.pick(&book, place, number, query.flag("deleted"))?;
        match show(&self.name(place)?, version) {
            Ok(value) => done(&value),
            Err(schema) => Ok(text(StatusCode::OK, schema)),
        }
    }

    pub(super) fn pick<'a>(
        &self,
        book: &'a Book,
        place: &Place,
        number: Number,
        deleted: bool,
    ) -> Result<&'a Version, Refusal> {
        let known = self.known(book, place)?;
        let latest = known.latest_of(deleted);
        match (number, latest) {
            (_, None) => Err(Refusal::no_subject(&self.name(place)?)),
            (Number::Latest, Some(latest)) => Ok(latest),
            (Number::Exactly(number), _) => {
                let found = known.versions.get(&number).filter(|version| deleted || !version.deleted);
                found.ok_or_else(|| Refusal::no_version(&number.to_string()))
            }
        }
    }

    fn by_id(&self, namespace: &str, id: &str, part: OfId, query: &Query) -> Result<Answer, Refusal> {
        let namespace = match query.get("subject") {
            Some(subject) => self.meant_by(&self.contexts().read(namespace, subject)?)?.namespace,
            None => namespace.to_owned(),
        };
        let book = self.book(&namespace)?;
        let number = id.parse().map_err(|_| Refusal::no_schema(id))?;
        let uses: Vec<(&str, &Version)> = book.uses(number).collect();
        let Some((_, first)) = uses.first() else { return Err(Refusal::no_schema(id)) };
        let seen = uses.iter().filter(|(_, version)| query.flag("deleted") || !version.deleted);
        let write = |name: &str| self.contexts().write(&namespace, name);
        match part {
            OfId::Schema => {
                let mut answer = schema_of(first);
                if query.flag("fetchMaxId") {
                    answer["maxId"] = book.last_id().into();
                }
                done(&answer)
            }
            OfId::Text => Ok(text(StatusCode::OK, first.text.to_string())),
            OfId::Subjects => {
                let mut names: Vec<String> = seen.map(|(name, _)| write(name)).collect();
                names.dedup();
                done(&json!(query.page(names)?))
            }
            OfId::Versions => {
                let one = |(name, version): &(&str, &Version)| json!({ "subject": write(name), "version": version.number });
                done(&json!(query.page(seen.map(one).collect())?))
            }
        }
    }

    /// A GUID means the same in every context.
    fn by_guid(&self, guid: &str) -> Result<Answer, Refusal> {
        for namespace in self.namespaces()? {
            if let Some(version) = with_guid(&*self.book(&namespace)?, guid) {
                return done(&schema_of(version));
            }
        }
        Err(Refusal::no_schema(guid))
    }

    fn ids_of_guid(&self, guid: &str, query: &Query) -> Result<Answer, Refusal> {
        let mut ids = Vec::new();
        for namespace in self.namespaces()? {
            if let Some(version) = with_guid(&*self.book(&namespace)?, guid) {
                ids.push(json!({ "context": self.context(&namespace), "id": version.id }));
            }
        }
        if ids.is_empty() {
            return Err(Refusal::no_schema(guid));
        }
        done(&json!(query.page(ids)?))
    }

    fn config_of(&self, place: &Place, query: &Query) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let Some(subject) = &place.subject else {
            return done(&config(&book.settings, book.settings.level.unwrap_or_default()));
        };
        let own = book.subjects.get(subject.as_str()).map(|known| &known.settings);
        let inherits = query.flag("defaultToGlobal");
        if !own.is_some_and(says_config) && !inherits {
            return Err(Refusal::no_level(&self.name(place)?));
        }
        let mut shown = own.cloned().unwrap_or_default();
        shown.policy = shown.policy.or(book.settings.policy);
        if inherits {
            shown.normalize = shown.normalize.or(book.settings.normalize);
        }
        done(&config(&shown, book.level(subject)))
    }

    fn mode_of(&self, place: &Place, query: &Query) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let mode = match &place.subject {
            None => book.settings.mode.unwrap_or_default(),
            Some(subject) => {
                let own = book.subjects.get(subject.as_str()).and_then(|known| known.settings.mode);
                if own.is_none() && !query.flag("defaultToGlobal") {
                    return Err(Refusal::no_mode(&self.name(place)?));
                }
                book.mode(subject)
            }
        };
        done(&json!({ "mode": mode.as_str() }))
    }
}

/// One client writes it in another way.
fn only_deleted(query: &Query) -> bool {
    query.flag("deletedOnly") || query.flag("deleted_only")
}

fn described(name: &str, version: &Version) -> Result<Value, String> {
    Ok(description(name, version))
}

pub(super) fn description(name: &str, version: &Version) -> Value {
    json!({
        "subject": name,
        "version": version.number,
        "id": version.id,
        "guid": version.schema.guid().to_string(),
        "schemaType": "JSON",
        "schema": &*version.text,
    })
}

/// A schema by itself.
fn schema_of(version: &Version) -> Value {
    let guid = version.schema.guid().to_string();
    json!({ "guid": guid, "schema": &*version.text, "schemaType": "JSON" })
}

/// What is written in another way than a GUID belongs to no schema.
fn with_guid<'a>(book: &'a Book, guid: &str) -> Option<&'a Version> {
    let guid: Guid = guid.parse().ok()?;
    book.versions().find(|version| version.schema.guid() == guid)
}

/// Whether a subject says anything itself that belongs to its config.
pub(super) fn says_config(own: &Settings) -> bool {
    own.level.is_some() || own.policy.is_some() || own.normalize.is_some() || own.alias.is_some()
}

/// A config as it is asked for: the level has another name than where it is set.
pub(super) fn config(settings: &Settings, level: Level) -> Value {
    let mut answer = json!({ "compatibilityLevel": level.as_str() });
    if let Some(policy) = settings.policy {
        answer["compatibilityPolicy"] = policy_name(policy).into();
    }
    if let Some(normalize) = settings.normalize {
        answer["normalize"] = normalize.into();
    }
    if let Some(alias) = &settings.alias {
        answer["alias"] = (&**alias).into();
    }
    answer
}
