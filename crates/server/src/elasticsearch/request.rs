//! From what a client wrote to what is to be done: query parameters and the bodies of writes. Knows nothing of
//! routes or of the state.

use super::{
    answer::{Object, Refusal},
    change::{Expected, Invocation, Order, Update, Write, failed_script, script_exception},
    library::Library,
    script::Script,
    source::{Members, Source},
};
use hyper::StatusCode;
use lockwood_node::limits::Limits;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value, value::RawValue};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
};

/// More retries than this make no difference.
const RETRIES_MAX: u64 = 10_000;

/// The query part of an address; the last of several values counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Params(BTreeMap<String, String>);

/// Parameters that change what is done, and are not understood here.
const UNSUPPORTED: [&str; 8] = [
    "q",
    "pipeline",
    "parent",
    "_source_exclude",
    "_source_excludes",
    "stored_fields",
    "search_type",
    "require_alias",
];

impl Params {
    pub(super) fn read(query: Option<&str>) -> Result<Params, Refusal> {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned();
        let params: BTreeMap<String, String> = pairs.collect();
        if let Some(name) = UNSUPPORTED.into_iter().find(|name| params.contains_key(*name)) {
            return Err(Refusal::argument(format!("the parameter [{name}] is not supported")));
        }
        if let Some(format) =
            params.get("format").filter(|format| !["json", "text"].contains(&format.as_str()))
        {
            return Err(Refusal::argument(format!("the format [{format}] is not supported; json is")));
        }
        if let Some(kind) = params.get("version_type").filter(|kind| *kind != "internal") {
            return Err(Refusal::argument(format!(
                "No version type match [{kind}]; only internal is supported"
            )));
        }
        Ok(Params(params))
    }

    /// Refuses all but these: one that is overlooked might have limited what is done.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Refusal> {
        match self.0.keys().find(|name| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some(name) => {
                Err(Refusal::argument(format!("request contains unrecognized parameter: [{name}]")))
            }
        }
    }

    /// As if these had been in an address.
    pub(super) fn of(pairs: Vec<(String, String)>) -> Params {
        Params(pairs.into_iter().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.get(name) {
            None => Ok(None),
            Some("" | "true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => Err(Refusal::argument(format!(
                "Failed to parse value [{other}] of [{name}] as only [true] or [false] are allowed."
            ))),
        }
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refusal> {
        let read = |text: &str| {
            text.parse().map_err(|_| {
                Refusal::argument(format!("Failed to parse int parameter [{name}] with value [{text}]"))
            })
        };
        self.get(name).map(read).transpose()
    }

    fn expected(&self) -> Result<Expected, Refusal> {
        check_term(self.number("if_primary_term")?)?;
        Ok(Expected { version: self.number("version")?, seq_no: self.number("if_seq_no")? })
    }
}

impl Write {
    /// With what the parameters say of the document.
    pub(super) fn expecting(mut self, params: &Params) -> Result<Write, Refusal> {
        let Expected { version, seq_no } = params.expected()?;
        self.expected = Expected { version, seq_no: seq_no.or(self.expected.seq_no) };
        Ok(self)
    }
}

/// There has only ever been one primary.
fn check_term(term: Option<u64>) -> Result<(), Refusal> {
    match term {
        None | Some(1) => Ok(()),
        Some(term) => {
            Err(Refusal::conflict(format!("required primary term [{term}]; the primary term is [1]")))
        }
    }
}

/// The body of a request as UTF-8.
pub(super) fn text(body: &[u8]) -> Result<&str, Refusal> {
    std::str::from_utf8(body).map_err(|error| Refusal::parse(format!("the body is not UTF-8: {error}")))
}

/// Any part of a body.
pub(super) fn part<T: DeserializeOwned>(what: &str, json: &str) -> Result<T, Refusal> {
    serde_json::from_str(json).map_err(|error| Refusal::parse(format!("failed to parse [{what}]: {error}")))
}

/// An object whose members are looked at one by one; nothing if there is no body.
pub(super) fn members(what: &str, json: &str) -> Result<BTreeMap<String, Box<RawValue>>, Refusal> {
    if json.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    part::<Members>(what, json).map(|Members(members)| members.into_iter().collect())
}

/// The same for what says which documents are meant: a name that comes twice, wherever it is, might mean others.
pub(super) fn unambiguous_members(
    what: &str,
    json: &str,
) -> Result<BTreeMap<String, Box<RawValue>>, Refusal> {
    if !json.trim().is_empty() {
        serde_json::from_str::<Unambiguous>(json).map_err(|error| {
            let reason = format!("failed to parse [{what}]: {error}");
            Refusal::new(StatusCode::BAD_REQUEST, "parsing_exception", reason)
        })?;
    }
    members(what, json)
}

/// Any JSON in which no object has a name twice.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unambiguous, D::Error> {
        struct Look;
        impl<'de> Visitor<'de> for Look {
            type Value = Unambiguous;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unambiguous, A::Error> {
                let mut names: HashSet<String> = HashSet::new();
                while let Some((name, Unambiguous)) = map.next_entry::<String, Unambiguous>()? {
                    if let Some(name) = names.replace(name) {
                        return Err(A::Error::custom(format_args!("Duplicate field '{name}'")));
                    }
                }
                Ok(Unambiguous)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Unambiguous, A::Error> {
                while list.next_element::<Unambiguous>()?.is_some() {}
                Ok(Unambiguous)
            }

            fn visit_unit<E>(self) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }

            fn visit_str<E>(self, _: &str) -> Result<Unambiguous, E> {
                Ok(Unambiguous)
            }
        }
        deserializer.deserialize_any(Look)
    }
}

/// How long a time is that is written like `5m`, in milliseconds.
pub(super) fn time_ms(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (number, unit) = text.split_at(text.find(|char: char| !char.is_ascii_digit())?);
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(number.parse::<u64>().ok()?.saturating_mul(unit_ms))
}

/// Reads the bodies of writes.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) limits: &'a Limits,
    pub(super) library: &'a Library,
}

impl Reader<'_> {
    pub(super) fn source(self, json: &str) -> Result<Source, Refusal> {
        let source = Source::read(json, self.limits.json_depth_max)?;
        for (name, _) in &source.0 {
            crate::native::Decoder(self.limits).written_field(name)?;
        }
        Ok(source)
    }

    /// A document to be written; `create` if it must not be there yet.
    pub(super) fn index(self, json: &str, create: bool) -> Result<Write, Refusal> {
        let source = self.source(if json.trim().is_empty() { "" } else { json })?;
        Ok(Write::new(if create { Order::Create(source) } else { Order::Index(source) }))
    }

    pub(super) fn update(self, json: &str, params: &Params) -> Result<Write, Refusal> {
        let mut members = members("update", json)?;
        let mut take = |name: &str| members.remove(name);
        let flag =
            |raw: Option<Box<RawValue>>, name: &str| raw.map(|raw| part::<bool>(name, raw.get())).transpose();
        let script = take("script");
        let sibling = Siblings {
            params: take("params"),
            lang: take("lang"),
            file: take("script_file"),
            id: take("script_id"),
        };
        let update = Update {
            script: self.invocation(script.as_deref(), &sibling)?,
            doc: take("doc").map(|doc| self.source(doc.get())).transpose()?,
            upsert: take("upsert").map(|upsert| self.source(upsert.get())).transpose()?,
            scripted_upsert: flag(take("scripted_upsert"), "scripted_upsert")?.unwrap_or(false),
            doc_as_upsert: flag(take("doc_as_upsert"), "doc_as_upsert")?
                .or(params.flag("doc_as_upsert")?)
                .unwrap_or(false),
            detect_noop: flag(take("detect_noop"), "detect_noop")?.unwrap_or(true),
        };
        let mut expected = Expected::default();
        if let Some(seq_no) = take("if_seq_no") {
            expected.seq_no = Some(part("if_seq_no", seq_no.get())?);
        }
        check_term(take("if_primary_term").map(|term| part("if_primary_term", term.get())).transpose()?)?;
        drop((take("_source"), take("fields")));
        if let Some(name) = members.keys().next() {
            return Err(Refusal::new(
                StatusCode::BAD_REQUEST,
                "x_content_parse_exception",
                format!("[UpdateRequest] unknown field [{name}]"),
            ));
        }
        check_update(&update)?;
        let retries = params.number("retry_on_conflict")?.unwrap_or(0).min(RETRIES_MAX);
        Ok(Write { expected, retries: Some(retries), ..Write::new(Order::Update(Box::new(update))) })
    }

    fn invocation(self, script: Option<&RawValue>, beside: &Siblings) -> Result<Option<Invocation>, Refusal> {
        let mut known = match script.map(|script| part::<Value>("script", script.get())).transpose()? {
            None => Map::new(),
            Some(Value::String(text)) => Map::from_iter([("inline".to_owned(), Value::String(text))]),
            Some(Value::Object(object)) => object,
            Some(_) => return Err(Refusal::parse("[script] is a string or an object")),
        };
        let old_style =
            [("params", &beside.params), ("lang", &beside.lang), ("file", &beside.file), ("id", &beside.id)];
        let is_string = script.is_some_and(|script| script.get().starts_with('"'));
        for (name, raw) in old_style {
            if let Some(raw) = raw {
                known.entry(name).or_insert(part(name, raw.get())?);
            }
        }
        if known.keys().all(|name| name == "params" || name == "lang") {
            let lonely = script.is_some() || !known.is_empty();
            return if lonely { Err(validation("script or doc is missing")) } else { Ok(None) };
        }
        let params = match known.remove("params") {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(_) => return Err(Refusal::parse("[params] is an object")),
        };
        let lang = text_member(&mut known, "lang")?;
        let usual = if is_string { "groovy" } else { "painless" };
        if let Some(lang) = lang.as_deref().filter(|lang| !["groovy", "painless"].contains(lang)) {
            return Err(Refusal::argument(format!(
                "script_lang not supported [{lang}]; groovy and painless are"
            )));
        }
        let mut found = Vec::new();
        for name in ["inline", "source", "file", "id", "stored"] {
            found.extend(text_member(&mut known, name)?.map(|text| (name, text)));
        }
        known.remove("options");
        if let Some(name) = known.keys().next() {
            return Err(Refusal::parse(format!("[script] unknown field [{name}]")));
        }
        let [(form, text)] = &found[..] else {
            return Err(Refusal::parse("a script has one of [source], [inline], [file], [id] and [stored]"));
        };
        if ["inline", "source"].contains(form) {
            let lang = lang.unwrap_or_else(|| usual.to_owned());
            let script = Arc::new(self.script(text, &lang)?);
            return Ok(Some(Invocation { script, params, lang, name: None }));
        }
        let Some((script, own)) = self.library.get(text) else {
            let what = if *form == "file" { "on disk file" } else { "stored" };
            return Err(Refusal::argument(format!(
                "Unable to find {what} script [{text}] using lang [{}]",
                lang.as_deref().unwrap_or("groovy")
            )));
        };
        Ok(Some(Invocation {
            script,
            params,
            lang: lang.unwrap_or_else(|| own.to_owned()),
            name: Some(text.clone()),
        }))
    }

    fn script(self, text: &str, lang: &str) -> Result<Script, Refusal> {
        let limit = self.limits.script_bytes_max;
        if text.len() as u64 > limit {
            let what = format!("the script has {} bytes", text.len());
            return Err(Refusal::over("script_bytes_max", limit, &what));
        }
        Script::read(text).map_err(|misread| {
            let reason = format!("{} at byte {}", misread.reason, misread.at);
            let cause = Object::new().text("type", ILLEGAL).text("reason", &reason).done();
            failed_script(script_exception("compile error", Some(&cause), text, lang))
        })
    }
}

const ILLEGAL: &str = super::answer::ILLEGAL_ARGUMENT;

/// What stands beside a script that is just a string.
struct Siblings {
    params: Option<Box<RawValue>>,
    lang: Option<Box<RawValue>>,
    file: Option<Box<RawValue>>,
    id: Option<Box<RawValue>>,
}

fn text_member(object: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::parse(format!("[{name}] is a string"))),
    }
}

fn check_update(update: &Update) -> Result<(), Refusal> {
    match (&update.script, &update.doc) {
        (None, None) => Err(validation("script or doc is missing")),
        (Some(_), Some(_)) => Err(validation("can't provide both script and doc")),
        (_, None) if update.doc_as_upsert => {
            Err(validation("doc must be specified if doc_as_upsert is enabled"))
        }
        _ => Ok(()),
    }
}

pub(super) fn validation(problem: &str) -> Refusal {
    let reason = format!("Validation Failed: 1: {problem};");
    Refusal::new(StatusCode::BAD_REQUEST, "action_request_validation_exception", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(json: &str) -> Result<Update, Refusal> {
        let library = Library::open(None, 1000).unwrap();
        let reader = Reader { limits: &Limits::default(), library: &library };
        let Order::Update(update) = reader.update(json, &Params::default())?.order else { panic!("{json}") };
        Ok(*update)
    }

    #[track_caller]
    fn check_script(json: &str, lang: &str, name: Option<&str>) {
        let script = update(json).unwrap_or_else(|refusal| panic!("{json}: {refusal:?}")).script.unwrap();
        assert_eq!((&*script.lang, script.name.as_deref()), (lang, name), "{json}");
        assert_eq!(script.params["p"], 1, "{json}");
    }

    #[test]
    fn every_form_of_a_script() {
        check_script(r#"{"script":"ctx.op='none'","params":{"p":1}}"#, "groovy", None);
        check_script(r#"{"script":"ctx.op='none'","lang":"painless","params":{"p":1}}"#, "painless", None);
        check_script(r#"{"script":{"inline":"a","params":{"p":1}}}"#, "painless", None);
        check_script(r#"{"script":{"source":"a","lang":"groovy","params":{"p":1}}}"#, "groovy", None);
        let named = Some("judge-lock");
        check_script(r#"{"script":{"lang":"groovy","file":"judge-lock","params":{"p":1}}}"#, "groovy", named);
        check_script(r#"{"script":{"id":"judge-lock","params":{"p":1}}}"#, "groovy", named);
        check_script(r#"{"script":{"stored":"judge-lock","params":{"p":1}}}"#, "groovy", named);
        check_script(r#"{"script_file":"judge-lock","params":{"p":1}}"#, "groovy", named);
    }

    #[test]
    fn updates_that_make_no_sense() {
        for json in [
            "",
            "{}",
            "[]",
            r#"{"upsert":{}}"#,
            r#"{"doc":{},"script":"a"}"#,
            r#"{"doc":[]}"#,
            r#"{"doc":{"meta_position":1}}"#,
            r#"{"script":1}"#,
            r#"{"script":{}}"#,
            r#"{"script":{"source":"a","file":"b"}}"#,
            r#"{"script":{"source":"a","x":1}}"#,
            r#"{"script":{"source":"a","params":1}}"#,
            r#"{"script":{"file":"nobody"}}"#,
            r#"{"script":{"source":"a","lang":"js"}}"#,
            r#"{"script":"while (true) {}"}"#,
            r#"{"script":"a","doc_as_upsert":true}"#,
            r#"{"doc":{},"detect_noop":1}"#,
            r#"{"doc":{},"dox":{}}"#,
            // The seed has this, with a comma missing.
            r#"{"upsert":{"process_id":123},"script":"a" "params":{}}"#,
        ] {
            let refusal = update(json).expect_err(json);
            assert_eq!(refusal.status, StatusCode::BAD_REQUEST, "{json}");
        }
    }
}
