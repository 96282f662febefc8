//! The routes of the Schema Registry. Each handler decodes, calls, encodes.

use super::{
    documents::{Decoder, JsonBody, json_of},
    http::{App, InPath, check_namespace},
    query::InQuery,
};
use crate::{native::HttpError, shared::Shared};
use axum::{
    Router,
    extract::State,
    response::Response,
    routing::{get, post},
};
use lockwood_node::{
    refusals::{no_subject, reason, schema_trouble},
    schemas::{
        self, Book, For, Mode, SchemaError, Subject, SubjectSettings, Version, policy_name, read_policy,
        read_schema,
    },
    trouble::Trouble,
};
use lockwood_schema::{ChangeKind, Level, Policy, diff};
use lockwood_wire::{
    Code, Problem, SchemaChange, SchemaCheck, SchemaDeleted, SchemaDiff, SchemaInfo, SchemaReason,
    SchemaRegistered, SchemaRequest, SettingsAnswer, SettingsRequest, SubjectInfo, SubjectList, VersionInfo,
    VersionList,
    documents::{Isolation, WireValue},
};
use serde::Deserialize;
use std::sync::Arc;

/// The routes, for the native router to take in.
pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/v1/{namespace}/schemas", get(subjects))
        .route("/v1/{namespace}/schemas/{subject}", get(versions).post(register).delete(delete_subject))
        .route("/v1/{namespace}/schemas/{subject}/check", post(check))
        .route("/v1/{namespace}/schemas/{subject}/diff", get(differences))
        .route("/v1/{namespace}/schemas/{subject}/settings", get(settings).put(set).delete(forget))
        .route("/v1/{namespace}/schemas/{subject}/{version}", get(version).delete(delete_version))
        .route(
            "/v1/{namespace}/schema-settings",
            get(settings_of_all).put(set_for_all).delete(forget_for_all),
        )
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct SeenQuery {
    /// Whether deleted ones are seen too.
    #[serde(default)]
    deleted: bool,
}

/// The subjects of a namespace: names under which schemas are registered, which are those of collections.
#[utoipa::path(get, path = "/v1/{namespace}/schemas", params(("namespace" = String, Path), SeenQuery),
    responses((status = 200, body = SubjectList), (status = 400, body = Problem)))]
pub(super) async fn subjects(
    State(shared): App,
    InPath(namespace): InPath<String>,
    InQuery(query): InQuery<SeenQuery>,
) -> Result<Response, HttpError> {
    let SeenQuery { deleted } = query;
    let book = open(&shared, &namespace)?;
    let info = |(name, subject): (&str, &Subject)| {
        let version = subject.latest().or_else(|| subject.latest_of(deleted))?;
        let (level, policy, mode) = words(&book, name);
        Some(SubjectInfo {
            subject: name.to_string(),
            version: version.number,
            id: version.id,
            level,
            policy,
            mode,
            enforced: !version.deleted && version.schema.describes_objects(),
            deleted: version.deleted,
        })
    };
    Ok(json_of(&SubjectList {
        subjects: book.subjects.iter().filter_map(|(name, subject)| info((name, subject))).collect(),
    }))
}

fn open(shared: &Shared, namespace: &str) -> Result<Arc<Book>, Trouble> {
    check_namespace(shared, namespace)?;
    Ok(shared.schemas.book(shared, namespace)?)
}

fn words(book: &Book, subject: &str) -> (String, String, String) {
    let (level, policy, mode) = (book.level(subject), book.policy(subject), book.mode(subject));
    (level.to_string(), policy_name(policy).to_owned(), mode.as_str().to_owned())
}

/// The versions of a subject.
#[utoipa::path(get, path = "/v1/{namespace}/schemas/{subject}",
    params(("namespace" = String, Path), ("subject" = String, Path), SeenQuery),
    responses((status = 200, body = VersionList), (status = 404, body = Problem)))]
pub(super) async fn versions(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    InQuery(query): InQuery<SeenQuery>,
) -> Result<Response, HttpError> {
    let SeenQuery { deleted } = query;
    let book = open(&shared, &namespace)?;
    let known = seen(&book, &subject, deleted)?;
    let (level, policy, mode) = words(&book, &subject);
    let all = known.versions.values().filter(|version| deleted || !version.deleted);
    let info =
        |version: &Version| VersionInfo { version: version.number, id: version.id, deleted: version.deleted };
    let versions = all.map(info).collect();
    Ok(json_of(&VersionList { subject, level, policy, mode, versions }))
}

/// A subject that has versions to be seen.
fn seen<'a>(book: &'a Book, subject: &str, deleted: bool) -> Result<&'a Subject, Trouble> {
    let known = book.subject(subject).filter(|known| known.latest_of(deleted).is_some());
    known.ok_or_else(|| no_subject(subject))
}

/// One version of a subject, with its schema.
#[utoipa::path(get, path = "/v1/{namespace}/schemas/{subject}/{version}",
    params(("namespace" = String, Path), ("subject" = String, Path),
    ("version" = String, Path, description = "A number from 1, or latest."), SeenQuery),
    responses((status = 200, body = SchemaInfo), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn version(
    State(shared): App,
    InPath((namespace, subject, version)): InPath<(String, String, String)>,
    InQuery(query): InQuery<SeenQuery>,
) -> Result<Response, HttpError> {
    let SeenQuery { deleted } = query;
    let number = read_version(&version)?;
    let book = open(&shared, &namespace)?;
    let found = pick(&book, &subject, number, deleted)?;
    let schema = WireValue::from_text(found.text.to_string())?;
    Ok(json_of(&SchemaInfo { subject, version: found.number, id: found.id, deleted: found.deleted, schema }))
}

/// None is the latest.
fn read_version(text: &str) -> Result<Option<u32>, Trouble> {
    match text.parse() {
        _ if text == "latest" => Ok(None),
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => {
            let message = format!("{text:?} is no version; versions are numbers from 1, or latest");
            Err(Trouble::new(Code::BadVersion, message))
        }
    }
}

fn pick<'a>(
    book: &'a Book,
    subject: &str,
    number: Option<u32>,
    deleted: bool,
) -> Result<&'a Version, Trouble> {
    let known = seen(book, subject, deleted)?;
    let Some(number) = number else {
        return known.latest_of(deleted).ok_or_else(|| no_subject(subject));
    };
    let found = known.versions.get(&number).filter(|version| deleted || !version.deleted);
    found.ok_or_else(|| no_version(subject, number))
}

fn no_version(subject: &str, number: u32) -> Trouble {
    let message = format!(
        "{subject:?} has no version {number}; `lockwood schema show {subject} --versions` lists them"
    );
    Trouble::new(Code::NoVersion, message)
}

/// Registers a schema for a collection. From then on its documents are held to it. If it is there already,
/// nothing is changed.
#[utoipa::path(post, path = "/v1/{namespace}/schemas/{subject}",
    params(("namespace" = String, Path), ("subject" = String, Path)), request_body = SchemaRequest,
    responses((status = 200, body = SchemaRegistered), (status = 400, body = Problem),
    (status = 409, description = "It does not go with earlier versions, or none are taken.", body = Problem)))]
pub(super) async fn register(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    check_subject(&shared, &subject)?;
    let text = body.read::<SchemaRequest>()?.text();
    let registered = schemas::register(&shared, &namespace, &subject, &text, For::Documents).await;
    let schemas::Registered { version, id, new } =
        registered.map_err(|error| schema_trouble(error, &subject))?;
    Ok(json_of(&SchemaRegistered { subject, version, id, new }))
}

/// A subject is a collection.
fn check_subject(shared: &Shared, subject: &str) -> Result<(), Trouble> {
    let limit = shared.config.limits.subject_bytes_max;
    if subject.len() as u64 > limit {
        let what = format!("the subject's name has {} bytes", subject.len());
        return Err(Trouble::over("subject_bytes_max", limit, &what));
    }
    Decoder(&shared.config.limits).collection(subject)?;
    if subject == schemas::COLLECTION {
        let message = format!("{subject:?} is where schemas are kept, and has none itself");
        return Err(Trouble::new(Code::ReservedCollection, message));
    }
    Ok(())
}

/// Whether a schema could be registered; changes nothing.
#[utoipa::path(post, path = "/v1/{namespace}/schemas/{subject}/check",
    params(("namespace" = String, Path), ("subject" = String, Path)), request_body = SchemaRequest,
    responses((status = 200, body = SchemaCheck), (status = 400, body = Problem)))]
pub(super) async fn check(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_subject(&shared, &subject)?;
    let text = body.read::<SchemaRequest>()?.text();
    let book = open(&shared, &namespace)?;
    let found = schemas::aside(|| {
        schemas::check_sizes(&shared, &subject, &text)?;
        Ok(book.incompatibilities(&subject, &read_schema(&text, For::Documents)?))
    });
    let found = found.map_err(|error| schema_trouble(error, &subject))?;
    let reasons: Vec<SchemaReason> = found.iter().map(reason).collect();
    let (level, policy, _) = words(&book, &subject);
    Ok(json_of(&SchemaCheck { compatible: reasons.is_empty(), level, policy, reasons }))
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// From this version; the one before `to` unless given.
    from: Option<String>,
    /// To this version; the latest unless given.
    to: Option<String>,
}

/// What changed from one version to another.
#[utoipa::path(get, path = "/v1/{namespace}/schemas/{subject}/diff",
    params(("namespace" = String, Path), ("subject" = String, Path), DiffQuery),
    responses((status = 200, body = SchemaDiff), (status = 400, body = Problem), (status = 404, body = Problem)))]
pub(super) async fn differences(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    InQuery(query): InQuery<DiffQuery>,
) -> Result<Response, HttpError> {
    let DiffQuery { from, to } = query;
    let (from, to) = (from.as_deref().map(read_version), to.as_deref().map_or(Ok(None), read_version)?);
    let book = open(&shared, &namespace)?;
    // Deleted versions can be compared by their number.
    let to = pick(&book, &subject, to, to.is_some())?;
    let from = match from.transpose()? {
        Some(from) => pick(&book, &subject, from, from.is_some())?,
        None => before(&book, &subject, to)?,
    };
    let changes = schemas::aside(|| diff(&from.schema, &to.schema)).into_iter();
    let changes = changes.map(|change| SchemaChange {
        kind: kind_name(change.kind).to_owned(),
        path: change.path,
        text: change.text,
    });
    Ok(json_of(&SchemaDiff { subject, from: from.number, to: to.number, changes: changes.collect() }))
}

fn before<'a>(book: &'a Book, subject: &str, to: &Version) -> Result<&'a Version, Trouble> {
    let earlier = seen(book, subject, true)?.live().rfind(|version| version.number < to.number);
    earlier.ok_or_else(|| {
        let message = format!("{subject:?} has no version before {}; say which to compare with", to.number);
        Trouble::new(Code::NoVersion, message)
    })
}

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Added => "added",
        ChangeKind::Removed => "removed",
        ChangeKind::Changed => "changed",
    }
}

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeleteQuery {
    /// For good; only what is deleted already.
    #[serde(default)]
    permanent: bool,
}

/// Deletes all versions of a subject. Its documents are no longer held to anything.
#[utoipa::path(delete, path = "/v1/{namespace}/schemas/{subject}",
    params(("namespace" = String, Path), ("subject" = String, Path), DeleteQuery),
    responses((status = 200, body = SchemaDeleted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn delete_subject(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    InQuery(query): InQuery<DeleteQuery>,
) -> Result<Response, HttpError> {
    let DeleteQuery { permanent } = query;
    Ok(delete(&shared, &namespace, subject, None, permanent).await?)
}

/// Deletes one version of a subject.
#[utoipa::path(delete, path = "/v1/{namespace}/schemas/{subject}/{version}",
    params(("namespace" = String, Path), ("subject" = String, Path),
    ("version" = String, Path, description = "A number from 1, or latest."), DeleteQuery),
    responses((status = 200, body = SchemaDeleted), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn delete_version(
    State(shared): App,
    InPath((namespace, subject, version)): InPath<(String, String, String)>,
    InQuery(query): InQuery<DeleteQuery>,
) -> Result<Response, HttpError> {
    let DeleteQuery { permanent } = query;
    let number = match read_version(&version)? {
        Some(number) => number,
        None => pick(&*open(&shared, &namespace)?, &subject, None, permanent)?.number,
    };
    Ok(delete(&shared, &namespace, subject, Some(number), permanent).await?)
}

async fn delete(
    shared: &Arc<Shared>,
    namespace: &str,
    subject: String,
    version: Option<u32>,
    permanent: bool,
) -> Result<Response, Trouble> {
    check_namespace(shared, namespace)?;
    let removed = schemas::delete(shared, namespace, &subject, version, permanent).await;
    let schemas::Removed { versions } = removed.map_err(|error| match (error, version) {
        (SchemaError::NoVersion, Some(number)) => no_version(&subject, number),
        (error, _) => schema_trouble(error, &subject),
    })?;
    Ok(json_of(&SchemaDeleted { subject, versions, permanent }))
}

/// What holds for a subject.
#[utoipa::path(get, path = "/v1/{namespace}/schemas/{subject}/settings",
    params(("namespace" = String, Path), ("subject" = String, Path)),
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem)))]
pub(super) async fn settings(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
) -> Result<Response, HttpError> {
    Ok(shown(&shared, &namespace, Some(subject))?)
}

/// Says how a subject is to be kept. What is not named stays as it is, null is taken back.
#[utoipa::path(put, path = "/v1/{namespace}/schemas/{subject}/settings",
    params(("namespace" = String, Path), ("subject" = String, Path)), request_body = SettingsRequest,
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn set(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_subject(&shared, &subject)?;
    Ok(change(&shared, &namespace, Some(subject), &body.read()?).await?)
}

/// Takes back everything that was said about a subject.
#[utoipa::path(delete, path = "/v1/{namespace}/schemas/{subject}/settings",
    params(("namespace" = String, Path), ("subject" = String, Path)),
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem)))]
pub(super) async fn forget(
    State(shared): App,
    InPath((namespace, subject)): InPath<(String, String)>,
) -> Result<Response, HttpError> {
    check_subject(&shared, &subject)?;
    Ok(change(&shared, &namespace, Some(subject), &nothing()).await?)
}

/// What holds for subjects that say nothing themselves.
#[utoipa::path(get, path = "/v1/{namespace}/schema-settings", params(("namespace" = String, Path)),
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem)))]
pub(super) async fn settings_of_all(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    Ok(shown(&shared, &namespace, None)?)
}

/// Says how subjects are to be kept that say nothing themselves.
#[utoipa::path(put, path = "/v1/{namespace}/schema-settings", params(("namespace" = String, Path)),
    request_body = SettingsRequest,
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem), (status = 409, body = Problem)))]
pub(super) async fn set_for_all(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    Ok(change(&shared, &namespace, None, &body.read()?).await?)
}

/// Takes back everything that was said about all subjects.
#[utoipa::path(delete, path = "/v1/{namespace}/schema-settings", params(("namespace" = String, Path)),
    responses((status = 200, body = SettingsAnswer), (status = 400, body = Problem)))]
pub(super) async fn forget_for_all(
    State(shared): App,
    InPath(namespace): InPath<String>,
) -> Result<Response, HttpError> {
    Ok(change(&shared, &namespace, None, &nothing()).await?)
}

fn nothing() -> SettingsRequest {
    SettingsRequest { level: Some(None), policy: Some(None), mode: Some(None), isolation: Some(None) }
}

async fn change(
    shared: &Arc<Shared>,
    namespace: &str,
    subject: Option<String>,
    request: &SettingsRequest,
) -> Result<Response, Trouble> {
    check_namespace(shared, namespace)?;
    let settings = read_settings(request)?;
    let set = schemas::set(shared, namespace, subject.as_deref(), settings).await;
    set.map_err(|error| schema_trouble(error, subject.as_deref().unwrap_or("the namespace")))?;
    shown(shared, namespace, subject)
}

fn read_settings(request: &SettingsRequest) -> Result<SubjectSettings, Trouble> {
    let level =
        |text: &str| text.parse::<Level>().map_err(|error| Trouble::new(Code::BadSetting, error.to_string()));
    let policy = |text: &str| {
        let message = format!("{text:?} is no policy; there are STRICT and LENIENT");
        read_policy(text).ok_or_else(|| Trouble::new(Code::BadSetting, message))
    };
    let mode = |text: &str| {
        let message = format!("{text:?} is no mode; there are READWRITE and READONLY");
        Mode::named(text).ok_or_else(|| Trouble::new(Code::BadSetting, message))
    };
    let isolation = |text: &str| {
        let read = text.to_ascii_lowercase().parse::<Isolation>();
        read.map_err(|message| Trouble::new(Code::BadSetting, message))
    };
    Ok(SubjectSettings {
        level: read(request.level.as_ref(), level)?,
        policy: read(request.policy.as_ref(), policy)?,
        mode: read(request.mode.as_ref(), mode)?,
        isolation: read(request.isolation.as_ref(), isolation)?,
        ..SubjectSettings::default()
    })
}

fn read<T>(
    given: Option<&Option<String>>,
    meaning: impl Fn(&str) -> Result<T, Trouble>,
) -> Result<Option<Option<T>>, Trouble> {
    given.map(|text| text.as_deref().map(meaning).transpose()).transpose()
}

fn shown(shared: &Shared, namespace: &str, subject: Option<String>) -> Result<Response, Trouble> {
    let book = open(shared, namespace)?;
    let own = match &subject {
        Some(subject) => book.subjects.get(subject.as_str()).map(|known| &known.settings),
        None => Some(&book.settings),
    };
    let said = [
        ("level", own.is_some_and(|own| own.level.is_some())),
        ("policy", own.is_some_and(|own| own.policy.is_some())),
        ("mode", own.is_some_and(|own| own.mode.is_some())),
        ("isolation", own.is_some_and(|own| own.isolation.is_some())),
    ];
    let own = said.into_iter().filter(|(_, said)| *said).map(|(name, _)| name.to_owned()).collect();
    let (level, policy, mode) = match &subject {
        Some(subject) => words(&book, subject),
        None => {
            let policy: Policy = book.settings.policy.unwrap_or_default();
            let (level, mode) =
                (book.settings.level.unwrap_or_default(), book.settings.mode.unwrap_or_default());
            (level.to_string(), policy_name(policy).to_owned(), mode.as_str().to_owned())
        }
    };
    let isolation = match &subject {
        Some(subject) => book.isolation(subject),
        None => book.settings.isolation.unwrap_or_default(),
    };
    let isolation = isolation.as_str().to_owned();
    Ok(json_of(&SettingsAnswer { subject, level, policy, mode, isolation, own }))
}
