//! What a write makes of a document: decided from the document as it is, without touching it. Knows nothing of
//! where documents are, be they documents of the store or locks.

use super::{
    answer::{Object, Refusal, list, quoted},
    name::At,
    script::{Context, Script},
    source::Source,
};
use hyper::StatusCode;
use serde_json::{Map, Value};
use std::sync::Arc;

/// A write of one document.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) order: Order,
    pub(super) expected: Expected,
    /// How often to look again if somebody else was faster; as often as it takes if absent.
    pub(super) retries: Option<u64>,
    /// Whether to wait for locks of others.
    pub(super) waits: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Order {
    /// Make it exactly this.
    Index(Source),
    /// The same, if it is not there.
    Create(Source),
    Update(Box<Update>),
    Delete,
}

/// What the writer takes the document to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Expected {
    pub(super) version: Option<u64>,
    pub(super) seq_no: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Update {
    pub(super) script: Option<Invocation>,
    pub(super) doc: Option<Source>,
    pub(super) upsert: Option<Source>,
    pub(super) scripted_upsert: bool,
    pub(super) doc_as_upsert: bool,
    pub(super) detect_noop: bool,
}

/// A script with what it is told.
#[derive(Debug, Clone)]
pub(super) struct Invocation {
    pub(super) script: Arc<Script>,
    pub(super) params: Map<String, Value>,
    pub(super) lang: String,
    /// Its name, if it has one.
    pub(super) name: Option<String>,
}

/// A document as it is.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Current {
    pub(super) source: Source,
    pub(super) version: u64,
    pub(super) seq_no: u64,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Create(Source),
    /// Make it this.
    Replace(Source),
    Remove,
    /// It is as it should be.
    Noop,
    /// There is nothing to delete.
    NotFound,
}

impl Write {
    pub(super) fn new(order: Order) -> Write {
        Write { order, expected: Expected::default(), retries: None, waits: true }
    }

    pub(super) fn decide(&self, at: &At, current: Option<&Current>) -> Result<Step, Refusal> {
        self.expected.check(at, current)?;
        match (&self.order, current) {
            (Order::Index(source) | Order::Create(source), None) => Ok(Step::Create(source.clone())),
            (Order::Index(source), Some(_)) => Ok(Step::Replace(source.clone())),
            (Order::Create(_), Some(current)) => {
                Err(at.conflict(&format!("document already exists (current version [{}])", current.version)))
            }
            (Order::Update(update), None) => update.insert(at),
            (Order::Update(update), Some(current)) => update.apply(at, current),
            (Order::Delete, Some(_)) => Ok(Step::Remove),
            (Order::Delete, None) => Ok(Step::NotFound),
        }
    }
}

impl Expected {
    fn check(self, at: &At, current: Option<&Current>) -> Result<(), Refusal> {
        if let Some(wanted) = self.version {
            match current {
                Some(current) if current.version == wanted => {}
                Some(current) => {
                    let (found, wanted) = (current.version, wanted);
                    return Err(at.conflict(&format!(
                        "current version [{found}] is different than the one provided [{wanted}]"
                    )));
                }
                None => {
                    return Err(
                        at.conflict(&format!("document does not exist (expected version [{wanted}])"))
                    );
                }
            }
        }
        if let Some(wanted) = self.seq_no
            && current.map(|current| current.seq_no) != Some(wanted)
        {
            let found = current.map_or_else(
                || "but no document was found".to_owned(),
                |current| format!("current document has seqNo [{}] and primary term [1]", current.seq_no),
            );
            return Err(at.conflict(&format!("required seqNo [{wanted}], primary term [1]. {found}")));
        }
        Ok(())
    }
}

impl Update {
    /// There is no such document.
    fn insert(&self, at: &At) -> Result<Step, Refusal> {
        match (&self.upsert, &self.script, &self.doc) {
            (Some(upsert), Some(script), _) if self.scripted_upsert => {
                let (op, source) = script.run(at, upsert, 0, "create")?;
                Ok(if op == "create" || op == "index" { Step::Create(source) } else { Step::Noop })
            }
            (Some(upsert), _, _) => Ok(Step::Create(upsert.clone())),
            (None, _, Some(doc)) if self.doc_as_upsert => Ok(Step::Create(doc.clone())),
            _ => Err(at.about(Refusal::new(
                StatusCode::NOT_FOUND,
                "document_missing_exception",
                format!("{}: document missing", at.label()),
            ))),
        }
    }

    fn apply(&self, at: &At, current: &Current) -> Result<Step, Refusal> {
        if let Some(script) = &self.script {
            let (op, source) = script.run(at, &current.source, current.version, "index")?;
            return Ok(match op.as_str() {
                "index" | "create" => Step::Replace(source),
                "delete" => Step::Remove,
                _ => Step::Noop,
            });
        }
        let mut values = current.source.to_values();
        merge(&mut values, self.doc.as_ref().map(Source::to_values).unwrap_or_default());
        let merged = current.source.become_values(values);
        let is_same = self.detect_noop && merged == current.source;
        Ok(if is_same { Step::Noop } else { Step::Replace(merged) })
    }
}

/// Objects are merged, everything else is replaced.
fn merge(target: &mut Map<String, Value>, changes: Map<String, Value>) {
    for (name, change) in changes {
        match (target.get_mut(&name), change) {
            (Some(Value::Object(inner)), Value::Object(change)) => merge(inner, change),
            (_, change) => {
                target.insert(name, change);
            }
        }
    }
}

impl Invocation {
    fn run(&self, at: &At, source: &Source, version: u64, op: &str) -> Result<(String, Source), Refusal> {
        let mut about = Map::new();
        about.insert("_index".to_owned(), at.index.as_str().into());
        about.insert("_type".to_owned(), at.collection().into());
        about.insert("_id".to_owned(), at.id.as_str().into());
        about.insert("_version".to_owned(), version.into());
        let mut context = Context { op: op.to_owned(), source: source.to_values(), about };
        self.script.run(&mut context, &self.params).map_err(|failure| {
            let cause = Object::new().text("type", &failure.kind).text("reason", &failure.reason).done();
            let evaluated = self.name.as_deref().unwrap_or("inline script");
            let text = if self.name.is_some() { "" } else { self.script.text() };
            let exception =
                script_exception(&format!("error evaluating {evaluated}"), Some(&cause), text, &self.lang);
            failed_script(exception)
        })?;
        Ok((context.op, source.become_values(context.source)))
    }
}

/// A script failed or was not understood; `cause` says which.
pub(super) fn failed_script(cause: String) -> Refusal {
    let root = "[lockwood][indices:data/write/update[s]]".to_owned();
    Refusal::argument("failed to execute script")
        .with("caused_by", cause)
        .rooted("remote_transport_exception", root)
}

pub(super) fn script_exception(reason: &str, cause: Option<&str>, text: &str, lang: &str) -> String {
    let object = Object::new().text("type", "script_exception").text("reason", reason);
    let object = cause.into_iter().fold(object, |object, cause| object.raw("caused_by", cause));
    let stack = if text.is_empty() { list([]) } else { list([quoted(text)]) };
    object.raw("script_stack", &stack).text("script", text).text("lang", lang).done()
}
