//! The changes: register, delete, settings; and whether a schema could be registered. Knows nothing of listings.

use super::{
    SchemaRegistry,
    answer::{Answer, Refusal},
    context::Place,
    done,
    query::Query,
    read::description,
    request::{Given, read_config, read_mode, read_schema},
    route::{Number, Route},
};
use crate::schemas::{self, Book, For, SchemaError, SubjectSettings, policy_name};
use lockwood_schema::{Incompatibility, Schema, check};
use serde_json::json;

impl SchemaRegistry {
    pub(super) async fn post(&self, route: &Route, query: &Query, body: &[u8]) -> Result<Answer, Refusal> {
        match route {
            Route::Versions(place) => self.register(place, &read_schema(body)?).await,
            Route::Subject(place) => self.lookup(place, query, &read_schema(body)?),
            Route::Compatibility(place, number) => {
                self.compatibility(place, *number, query, &read_schema(body)?)
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    async fn register(&self, place: &Place, given: &Given) -> Result<Answer, Refusal> {
        let (name, subject) = (self.name(place)?, place.subject()?);
        if let Some(wanted) = given.version {
            self.check_next(place, wanted)?;
        }
        let registered =
            schemas::register(&self.shared, &place.namespace, subject, &given.text, For::Anything).await;
        let registered = registered.map_err(|error| Refusal::of_change(error, &name))?;
        let schemas::Registered { version, id, .. } = registered;
        done(&json!({ "id": id, "version": version, "schemaType": "JSON", "schema": given.text }))
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
                let (level, policy) = (settings.level.flatten(), settings.policy.flatten());
                self.set(place, settings).await?;
                let mut answer = json!({});
                if let Some(level) = level {
                    answer["compatibility"] = level.as_str().into();
                }
                if let Some(policy) = policy {
                    answer["compatibilityPolicy"] = policy_name(policy).into();
                }
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
        let level = match &place.subject {
            None => book.settings.level.unwrap_or_default(),
            Some(subject) => {
                let own = book.subjects.get(subject.as_str()).map(|known| &known.settings);
                let own = own.filter(|own| own.level.is_some() || own.policy.is_some());
                let own = own.ok_or_else(|| Refusal::no_subject(subject))?;
                own.level.unwrap_or_else(|| book.level(subject))
            }
        };
        self.set(
            place,
            SubjectSettings { level: Some(None), policy: Some(None), ..SubjectSettings::default() },
        )
        .await?;
        done(&json!({ "compatibilityLevel": level.as_str() }))
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
