//! Calling a procedure at the owner of a key: what it sees of the documents of this shard, and what becomes of what
//! it wants to write.

use super::super::{
    documents::{Decoder, JsonBody, Retry, json_of},
    http::{App, InPath},
};
use super::{
    operations::{Access, Asked, last_of, read_arguments},
    procedures::{Registered, find},
};
use crate::{
    cluster::{Current, spans},
    native::HttpError,
    shared::Shared,
};
use axum::{extract::State, response::Response};
use lockwood_engine::{Action, Intent, PutIf};
use lockwood_model::{Budget, DocumentKey, FieldValue, Json, Key, Position};
use lockwood_node::{
    gate::{self, Run},
    shard::{Amended, Call, Reading, in_place},
    trouble::Trouble,
    work::Job,
};
use lockwood_script::{Documents, Invocation, Procedure, ScriptError};
use lockwood_wire::{
    Code, Problem,
    documents::WireKey,
    shards::{CallAnswer, CallRequest},
};
use serde_json::value::RawValue;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Calls a procedure at the owner of a key, under the key's lock. What it writes is done all together, or not at all.
#[utoipa::path(post, path = "/v1/{namespace}/shard/call", params(("namespace" = String, Path)),
    request_body = CallRequest, responses((status = 200, body = CallAnswer), (status = 400, body = Problem),
    (status = 404, body = Problem), (status = 409, body = Problem), (status = 422, body = Problem),
    (status = 423, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn call(
    State(shared): App,
    InPath(namespace): InPath<String>,
    retry: Retry,
    body: JsonBody,
) -> Result<Response, HttpError> {
    let request: CallRequest = body.read()?;
    let access = Access::read(&request.mode)?;
    let CallRequest { procedure, collection, key, arguments, tokens, wait_ms, user, note, .. } = request;
    let asked = Asked::new(&shared, &namespace, (&collection, &key), (user, note), (tokens, wait_ms))?;
    let registered = find(&shared.shard.read(), &namespace, &procedure)?;
    let compiled = in_place(|| shared.procedures.compiled(&procedure, &registered.source));
    let compiled = compiled.map_err(|error| failed(&registered, &error))?;
    let arguments = read_arguments(&shared, &arguments)?;
    let calling = Arc::new(Calling { namespace, registered, compiled, asked, arguments, access });
    match access {
        Access::Ro => Ok(calling.read(&shared).await?),
        Access::Rw => Ok(calling.write(&shared, retry).await?),
    }
}

/// A call under way.
struct Calling {
    namespace: String,
    registered: Registered,
    compiled: Arc<Procedure>,
    asked: Asked,
    arguments: Vec<Json>,
    access: Access,
}

impl Calling {
    /// Runs it on what readers see.
    async fn read(self: &Arc<Self>, shared: &Arc<Shared>) -> Result<Response, Trouble> {
        let mut touched = BTreeSet::from([self.asked.at.clone()]);
        loop {
            // While documents move they may have to be brought here first.
            shared.admit_keys(&self.namespace, touched.iter()).await?;
            shared.shard.shown(shared.shard.last_index()).await?;
            let run = {
                let _running = shared.procedures.enter().await;
                let (calling, own) = (Arc::clone(self), Arc::clone(shared));
                let work = move |budget: &Budget| calling.run(&own, &own.shard.read(), budget);
                Job::new(shared).run(work).await?
            };
            let moves = shared.cluster.current().is_some_and(|current| current.map.prev.is_some());
            if moves && !run.read.is_subset(&touched) {
                touched.extend(run.read);
                continue;
            }
            return Ok(self.answer(&run.made?, None));
        }
    }

    /// Runs it with everything it touches locked.
    async fn write(self: &Arc<Self>, shared: &Arc<Shared>, retry: Retry) -> Result<Response, Trouble> {
        let answer = retry.answer();
        let first = (&self.asked.at, answer.as_ref());
        let (calling, own) = (Arc::clone(self), Arc::clone(shared));
        let work = Arc::new(move |reading: &Reading, budget: &Budget| calling.run(&own, reading, budget));
        let call_of = |intents, made: &Json| self.call_of(shared, intents, made);
        let amended = gate::run(shared, &self.namespace, first, &self.asked.terms, work, call_of).await?;
        let position = last_of(&amended);
        match (amended, position) {
            (Amended::Now { made, .. }, position) => Ok(self.answer(&made, position)),
            (Amended::Before(_), position) => self.replay(shared, position),
        }
    }

    fn answer(&self, made: &Json, position: Option<Position>) -> Response {
        let position = position.map(|position| position.0);
        json_of(&CallAnswer { answer: made.into(), position, version: self.registered.version })
    }

    fn run(&self, shared: &Arc<Shared>, reading: &Reading, budget: &Budget) -> Run<Json> {
        let mut desk = Desk {
            decoder: Decoder(&shared.config.limits),
            current: shared.cluster.current(),
            shared,
            reading,
            calling: self,
            there: HashMap::new(),
            read: BTreeSet::new(),
            intents: Vec::new(),
            trouble: None,
        };
        let call = Invocation { key: Some(&self.asked.at.key), arguments: &self.arguments };
        let made = self.compiled.run_within(&call, &mut desk, budget);
        let Desk { read, intents, trouble, .. } = desk;
        // What went wrong with a document is told better here than by what the procedure made of it.
        let made = match trouble {
            Some(trouble) => Err(trouble),
            None => made.map_err(|error| failed(&self.registered, &error)),
        };
        Run { read, intents, made }
    }

    /// What is written, with what was answered, so that it can be answered again.
    fn call_of(&self, shared: &Shared, intents: Vec<Intent>, made: &Json) -> Result<Call, Trouble> {
        let note = Noted {
            procedure: Cow::Borrowed(&self.registered.name),
            version: self.registered.version,
            answer: raw(made),
            note: self.asked.note.as_ref().map(raw),
        };
        let note = serde_json::to_string(&note).expect("it is made of JSON");
        let limit = shared.config.limits.note_bytes_max;
        if note.len() as u64 > limit {
            let what = format!("the answer of a procedure that writes is kept, and has {} bytes", note.len());
            return Err(Trouble::over("note_bytes_max", limit, &what));
        }
        Ok(self.asked.call_of(intents, Some(Json::trusted(&note))))
    }

    /// Answers what was answered before.
    fn replay(&self, shared: &Shared, position: Option<Position>) -> Result<Response, Trouble> {
        let reading = shared.shard.read();
        let note = match (reading.namespace(&self.namespace)?, position) {
            (Some((id, _)), Some(position)) => {
                let state = reading.state();
                let here = state.commit(id, position)?.and_then(|found| found.commit.note);
                match here {
                    Some(note) => Some(note),
                    None => state.origin(id, &self.asked.at, position)?.and_then(|origin| origin.note),
                }
            }
            _ => None,
        };
        let noted = note.as_ref().and_then(|note| serde_json::from_str::<Noted<'_>>(note.as_str()).ok());
        match noted {
            Some(noted) => Ok(json_of(&CallAnswer {
                answer: (&Json::trusted(noted.answer.get())).into(),
                position: position.map(|position| position.0),
                version: noted.version,
            })),
            None => {
                let message = "the call was done before, and what was answered then is forgotten; nothing was \
                               done now";
                Err(Trouble::new(Code::ProcedureFailed, message))
            }
        }
    }
}

/// The note of what a procedure wrote.
#[derive(serde::Serialize, serde::Deserialize)]
struct Noted<'a> {
    #[serde(borrow)]
    procedure: Cow<'a, str>,
    version: u32,
    #[serde(borrow)]
    answer: &'a RawValue,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    note: Option<&'a RawValue>,
}

fn raw(json: &Json) -> &RawValue {
    serde_json::from_str(json.as_str()).expect("the model keeps valid JSON")
}

fn failed(registered: &Registered, error: &ScriptError) -> Trouble {
    let Registered { name, version, .. } = registered;
    let (code, why) = match error {
        ScriptError::Refused { code, message } => {
            return Trouble::new(Code::ProcedureFailed, format!("{code}: {message}"));
        }
        ScriptError::Syntax { .. } => (Code::BadScript, "cannot be run"),
        ScriptError::BadArgument { .. } => (Code::BadBody, "cannot be called so"),
        _ => (Code::ProcedureFailed, "failed"),
    };
    Trouble::new(code, format!("the procedure {name} (version {version}) {why}: {error}; nothing was done"))
}

/// What a procedure sees of the documents of this shard, and what it wants to be done to them.
struct Desk<'a> {
    shared: &'a Shared,
    decoder: Decoder<'a>,
    /// By which map it is decided what is here.
    current: Option<Arc<Current>>,
    reading: &'a Reading,
    calling: &'a Calling,
    /// How documents that are to be written are by now.
    there: HashMap<DocumentKey, There>,
    read: BTreeSet<DocumentKey>,
    intents: Vec<Intent>,
    /// What went wrong, in the words of this side.
    trouble: Option<Trouble>,
}

/// Whether there is a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    Live,
    Deleted,
    Never,
}

impl Desk<'_> {
    fn at(&mut self, collection: &str, key: &Key) -> Result<DocumentKey, Trouble> {
        let at = self.decoder.document(collection, &WireKey(key.clone()))?;
        if let Some(current) = &self.current
            && self.shared.cluster.has_spread_now(&self.calling.namespace)?
        {
            let first = &self.calling.asked.at;
            let (here, there) = (current.owner(first)?, current.owner(&at)?);
            if here != there {
                return Err(spans(first, here, &at, there));
            }
        }
        Ok(at)
    }

    fn find(&self, at: &DocumentKey) -> Result<Option<lockwood_model::Document>, Trouble> {
        let Some((id, _)) = self.reading.namespace(&self.calling.namespace)? else { return Ok(None) };
        Ok(self.reading.state().document(id, at)?)
    }

    fn write(
        &mut self,
        (collection, key): (&str, &Key),
        fields: &[FieldValue],
        actions: impl FnOnce(There) -> (Vec<Action>, There),
    ) -> Result<(), Trouble> {
        let at = self.at(collection, key)?;
        if self.calling.access == Access::Ro {
            let message = format!(
                "the procedure {} writes {at}, and was called with the mode ro; call it with rw",
                self.calling.registered.name
            );
            return Err(Trouble::new(Code::BadMode, message));
        }
        fields.iter().try_for_each(|(name, _)| self.decoder.written_field(name))?;
        let before = match self.there.get(&at) {
            Some(there) => *there,
            None => match self.find(&at)? {
                None => There::Never,
                Some(document) if document.deleted => There::Deleted,
                Some(_) => There::Live,
            },
        };
        let (actions, after) = actions(before);
        self.there.insert(at.clone(), after);
        self.intents.extend(actions.into_iter().map(|action| Intent { at: at.clone(), action }));
        Ok(())
    }

    /// Keeps what went wrong for whoever called, and tells the procedure.
    fn told<T>(&mut self, done: Result<T, Trouble>) -> Result<T, String> {
        done.map_err(|trouble| {
            let message = trouble.message.clone();
            self.trouble.get_or_insert(trouble);
            message
        })
    }

    fn store(&mut self, at: (&str, &Key), fields: Vec<FieldValue>) -> Result<(), String> {
        let named = fields.clone();
        let done = self.write(at, &named, |before| {
            let put = Action::Put { fields, when: PutIf::Always };
            let actions = if before == There::Deleted { vec![Action::Restore, put] } else { vec![put] };
            (actions, There::Live)
        });
        self.told(done)
    }
}

impl Documents for Desk<'_> {
    fn get(&mut self, collection: &str, key: &Key) -> Result<Option<Vec<FieldValue>>, String> {
        let found = self.at(collection, key).and_then(|at| {
            let found = self.find(&at)?.filter(|document| !document.deleted);
            self.read.insert(at);
            Ok(found)
        });
        let found = self.told(found)?;
        let fields = |document: lockwood_model::Document| {
            document.present().map(|(name, value)| (name.into(), value.clone())).collect()
        };
        Ok(found.map(fields))
    }

    fn put(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        self.store((collection, key), fields)
    }

    fn insert(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        self.store((collection, key), fields)
    }

    fn update(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String> {
        let named = fields.clone();
        let done = self.write((collection, key), &named, |before| {
            (vec![Action::Update { set: fields, lists: Vec::new() }], before)
        });
        self.told(done)
    }

    fn delete(&mut self, collection: &str, key: &Key) -> Result<(), String> {
        let done = self.write((collection, key), &[], |_| (vec![Action::Delete], There::Deleted));
        self.told(done)
    }
}
