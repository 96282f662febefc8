//! The changes: register, delete, settings; and whether a schema could be registered. Knows nothing of listings.

use super::{
    SchemaRegistry,
    answer::{Answer, Refusal},
    context::Place,
    done,
    query::Query,
    read::{config, description, says_config},
    request::{Given, read_config, read_mode, read_schema},
    route::{Number, Route},
};
use lockwood_node::schemas::{self, Book, For, SchemaError, SubjectSettings, policy_name};
use lockwood_schema::{Incompatibility, Schema, check};
use serde_json::{Value, json};
use std::borrow::Cow;

impl SchemaRegistry {
    pub(super) async fn post(&self, route: &Route, query: &Query, body: &[u8]) -> Result<Answer, Refusal> {
        match route {
            Route::Versions(place) => self.register(place, query, &read_schema(body)?).await,
            Route::Subject(place) => self.lookup(place, query, &read_schema(body)?),
            Route::Compatibility(place, number) => {
                self.compatibility(place, *number, query, &read_schema(body)?)
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    async fn register(&self, place: &Place, query: &Query, given: &Given) -> Result<Answer, Refusal> {
        let (name, subject) = (self.name(place)?, place.subject()?);
        if let Some(wanted) = given.version {
            self.check_next(place, wanted)?;
        }
        let text = self.spelled(place, query, &given.text)?;
        let registered =
            schemas::register(&self.shared, &place.namespace, subject, &text, For::Anything).await;
        let registered = registered.map_err(|error| Refusal::of_change(error, &name))?;
        let schemas::Registered { version, id, .. } = registered;
        let book = self.book(&place.namespace)?;
        let mut answer = json!({ "id": id, "version": version, "schemaType": "JSON", "schema": text });
        // It may be kept in another spelling, from before.
        if let Some(kept) = book.subject(subject).and_then(|known| known.versions.get(&version)) {
            answer["schema"] = (&*kept.text).into();
            answer["guid"] = kept.schema.guid().to_string().into();
        }
        done(&answer)
    }

    /// The text that is kept: in its normal form if the request or the config says so.
    fn spelled<'a>(&self, place: &Place, query: &Query, text: &'a str) -> Result<Cow<'a, str>, Refusal> {
        let normalize = query.flag("normalize") || self.book(&place.namespace)?.normalize(place.subject()?);
        if !normalize {
            return Ok(text.into());
        }
        // What is too long or cannot be read is refused when it is registered, with its place.
        let sized = schemas::check_sizes(&self.shared, "", text).is_ok();
        let normal = if sized { schemas::aside(|| Schema::normalized(text)) } else { None };
        Ok(normal.map_or(text.into(), Cow::from))
    }

    fn check_next(&self, place: &Place, wanted: u32) -> Result<(), Refusal> {
        let book = self.book(&place.namespace)?;
        let next = book.subjects.get(place.subject()?).map_or(0, |known| known.last_version) + 1;
        if wanted == next {
            return Ok(());
        }
        Err(Refusal::bad_schema(format!(
            "the next version is {next}, not {wanted}; send the schema without one"
        )))
    }

    fn lookup(&self, place: &Place, query: &Query, given: &Given) -> Result<Answer, Refusal> {
        let name = self.name(place)?;
        let schema = self.parse(&name, &given.text)?;
        let book = self.book(&place.namespace)?;
        let known = self.known(&book, place)?;
        let deleted = query.flag("deleted");
        if known.latest_of(deleted).is_none() {
            return Err(Refusal::no_subject(&name));
        }
        let mut seen = known.versions.values().rev().filter(|version| deleted || !version.deleted);
        let found =
            seen.find(|version| version.schema == schema).ok_or_else(|| Refusal::no_schema("asked for"))?;
        done(&description(&name, found))
    }

    fn parse(&self, name: &str, text: &str) -> Result<Schema, Refusal> {
        let read = || {
            schemas::check_sizes(&self.shared, "", text)?;
            schemas::read_schema(text, For::Anything)
        };
        schemas::aside(read).map_err(|error| Refusal::of_change(error, name))
    }

    fn compatibility(
        &self,
        place: &Place,
        number: Option<Number>,
        query: &Query,
        given: &Given,
    ) -> Result<Answer, Refusal> {
        let schema = self.parse(&self.name(place)?, &given.text)?;
        let book = self.book(&place.namespace)?;
        let subject = place.subject()?;
        let found = match number {
            None => schemas::aside(|| book.incompatibilities(subject, &schema)),
            Some(number) => against(&book, subject, number, &schema)?,
        };
        let mut answer = json!({ "is_compatible": found.is_empty() });
        if query.flag("verbose") {
            let line = |(version, reason): &(u32, Incompatibility)| format!("version {version}: {reason}");
            answer["messages"] = found.iter().map(line).collect::<Vec<_>>().into();
        }
        done(&answer)
    }

    pub(super) async fn put(&self, route: &Route, body: &[u8]) -> Result<Answer, Refusal> {
        match route {
            Route::Config(place) => {
                let settings = read_config(body)?;
                self.check_alias(place, &settings)?;
                let answer = said(&settings);
                self.set(place, settings).await?;
                done(&answer)
            }
            Route::Mode(place) => {
                let mode = read_mode(body)?;
                self.set(place, SubjectSettings { mode: Some(Some(mode)), ..SubjectSettings::default() })
                    .await?;
                done(&json!({ "mode": mode.as_str() }))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// An alias is another name for one subject. To say that all subjects together have none is to say nothing.
    fn check_alias(&self, place: &Place, settings: &SubjectSettings) -> Result<(), Refusal> {
        let Some(alias) = &settings.alias else { return Ok(()) };
        let says_more = settings.level.is_some() || settings.policy.is_some() || settings.normalize.is_some();
        if place.subject.is_none() && (alias.is_some() || !says_more) {
            let message = "alias belongs to the config of one subject: PUT /config/SUBJECT";
            return Err(Refusal::not_permitted(message));
        }
        let Some(alias) = alias else { return Ok(()) };
        self.contexts().read(&place.namespace, alias)?.subject().map(drop)
    }

    async fn set(&self, place: &Place, settings: SubjectSettings) -> Result<(), Refusal> {
        let name = self.contexts().write(&place.namespace, place.subject.as_deref().unwrap_or_default());
        let set = schemas::set(&self.shared, &place.namespace, place.subject.as_deref(), settings).await;
        set.map_err(|error| Refusal::of_change(error, &name))
    }

    pub(super) async fn delete(&self, route: &Route, query: &Query) -> Result<Answer, Refusal> {
        let permanent = query.flag("permanent");
        match route {
            Route::Subject(place) => done(&json!(self.remove(place, None, permanent).await?)),
            Route::Version(place, number) => {
                let number = self.numbered(place, *number, permanent)?;
                self.remove(place, Some(number), permanent).await?;
                done(&json!(number))
            }
            Route::Config(place) => self.forget_config(place).await,
            Route::Mode(place) => self.forget_mode(place).await,
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    async fn remove(
        &self,
        place: &Place,
        version: Option<u32>,
        permanent: bool,
    ) -> Result<Vec<u32>, Refusal> {
        let (name, subject) = (self.name(place)?, place.subject()?);
        let removed = schemas::delete(&self.shared, &place.namespace, subject, version, permanent).await;
        removed.map(|removed| removed.versions).map_err(|error| match (error, version) {
            (SchemaError::NoVersion, Some(version)) => Refusal::no_version(&version.to_string()),
            (error, _) => Refusal::of_change(error, &name),
        })
    }

    fn numbered(&self, place: &Place, number: Number, permanent: bool) -> Result<u32, Refusal> {
        match number {
            Number::Exactly(number) => Ok(number),
            Number::Latest => {
                let book = self.book(&place.namespace)?;
                Ok(self.pick(&book, place, Number::Latest, permanent)?.number)
            }
        }
    }

    /// Answers what was said until now.
    async fn forget_config(&self, place: &Place) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let answer = match &place.subject {
            None => config(&book.settings, book.settings.level.unwrap_or_default()),
            Some(subject) => {
                let own = book.subjects.get(subject.as_str()).map(|known| &known.settings);
                let own = own.filter(|own| says_config(own)).ok_or_else(|| Refusal::no_subject(subject))?;
                config(own, book.level(subject))
            }
        };
        let nothing = SubjectSettings {
            level: Some(None),
            policy: Some(None),
            normalize: Some(None),
            alias: Some(None),
            ..SubjectSettings::default()
        };
        self.set(place, nothing).await?;
        done(&answer)
    }

    async fn forget_mode(&self, place: &Place) -> Result<Answer, Refusal> {
        let book = self.book(&place.namespace)?;
        let mode = match &place.subject {
            None => book.settings.mode.unwrap_or_default(),
            Some(subject) => {
                let own = book.subjects.get(subject.as_str()).and_then(|known| known.settings.mode);
                own.ok_or_else(|| Refusal::no_subject(subject))?
            }
        };
        self.set(place, SubjectSettings { mode: Some(None), ..SubjectSettings::default() }).await?;
        done(&json!({ "mode": mode.as_str() }))
    }
}

/// A config as it was set.
fn said(settings: &SubjectSettings) -> Value {
    let mut answer = json!({});
    if let Some(level) = settings.level.flatten() {
        answer["compatibility"] = level.as_str().into();
    }
    if let Some(policy) = settings.policy.flatten() {
        answer["compatibilityPolicy"] = policy_name(policy).into();
    }
    if let Some(normalize) = settings.normalize.flatten() {
        answer["normalize"] = normalize.into();
    }
    if let Some(Some(alias)) = &settings.alias {
        answer["alias"] = (&**alias).into();
    }
    answer
}

/// Against one version, at the level of the subject. There is nothing to say against the latest of none.
fn against(
    book: &Book,
    subject: &str,
    number: Number,
    schema: &Schema,
) -> Result<Vec<(u32, Incompatibility)>, Refusal> {
    let known = book.subject(subject);
    let version = match number {
        Number::Latest => known.and_then(|known| known.latest()),
        Number::Exactly(number) => {
            let found =
                known.and_then(|known| known.versions.get(&number)).filter(|version| !version.deleted);
            Some(found.ok_or_else(|| Refusal::no_version(&number.to_string()))?)
        }
    };
    let Some(version) = version else { return Ok(Vec::new()) };
    let compare = || check(book.level(subject), book.policy(subject), schema, &[&version.schema]);
    Ok(schemas::aside(compare).into_iter().map(|reason| (version.number, reason)).collect())
}
