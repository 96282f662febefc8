//! Makes a namespace out of the lines of a dump: all of it, or nothing. Knows nothing of how it is kept.

use super::{answer::json_of, decode::Decoder, indexes, terms::terms};
use crate::{
    body::{self, BodyError as Unread},
    native::{
        HttpError,
        http::{App, InPath, check_namespace},
    },
    shared::Shared,
};
use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};
use hyper::{HeaderMap, header};
use lockwood_model::{Change, Commit, Document, DocumentKey, FieldPath, FieldValue, Position};
use lockwood_node::{
    gate,
    schemas::Book,
    shard::{Loading, POSITION_MAX, Positions, ShardError},
    trouble::Trouble,
};
use lockwood_storage::{Entry, StoreError};
use lockwood_wire::{
    Code, Problem,
    documents::{BodyError, DumpCommit, DumpDocument, DumpHead, DumpLine, LoadAnswer, read_body},
};
use std::sync::Arc;

/// Lines are put into the log together until there are so many, or so many bytes of them.
const BATCH_LEN: usize = 1000;
const BATCH_BYTES: usize = 1024 * 1024;
/// Longer lines are taken apart beside the threads that serve connections.
const LONG_LINE_BYTES: usize = 64 * 1024;

/// Takes in a dump; the namespace must be empty, and is empty again if anything is wrong.
#[utoipa::path(post, path = "/v1/{namespace}/load", params(("namespace" = String, Path)),
    request_body(content = String, content_type = "application/x-ndjson"),
    responses((status = 200, body = LoadAnswer), (status = 400, body = Problem), (status = 409, body = Problem),
    (status = 415, body = Problem)))]
pub(in crate::native) async fn load(
    State(shared): App,
    InPath(namespace): InPath<String>,
    request: Request,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    check_dump_type(request.headers())?;
    let mut body = request.into_body();
    // In a task of its own, so that it is brought to an end also if nobody waits for the answer any more.
    let work = tokio::spawn(async move {
        let loaded = load_all(&shared, &namespace, &mut body).await;
        if loaded.is_err() {
            body::drain(body).await;
        }
        loaded
    });
    match work.await {
        Ok(loaded) => Ok(json_of(&loaded?)),
        Err(error) => {
            tracing::error!(%error, "load a dump");
            Err(Trouble::storage_failed().into())
        }
    }
}

pub(crate) fn check_dump_type(headers: &HeaderMap) -> Result<(), Trouble> {
    const TYPES: [&str; 4] =
        ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/octet-stream"];
    let Some(given) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let given = given.to_str().unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let message = format!("the content type is {given:?}; a dump is application/x-ndjson");
    Err(Trouble::new(Code::UnsupportedMediaType, message))
}

async fn load_all(shared: &Arc<Shared>, namespace: &str, body: &mut Body) -> Result<LoadAnswer, Trouble> {
    let mut load = Load::begin(shared, namespace, Vec::new(), Positions::All).await?;
    let outcome = match load.take_all(body).await {
        Ok(()) => load.end().await,
        Err(trouble) => Err(trouble),
    };
    load.close(outcome).await
}

/// Why a line of a dump did not arrive.
pub(crate) fn unread(error: Unread, line: u64) -> Trouble {
    match error {
        Unread::TooLarge { name, limit } => Trouble::over(name, limit, &format!("line {line} is too long")),
        error => {
            let trouble = Trouble::from(error);
            Trouble { message: format!("line {line}: {}", trouble.message), ..trouble }
        }
    }
}

/// A registry that was made by hand must be one that can be used.
fn check_schemas(shared: &Shared, namespace: &str) -> Result<(), Trouble> {
    let reading = shared.shard.read();
    let Some(id) = reading.state().namespace(namespace)? else { return Ok(()) };
    match Book::read(reading.state(), id) {
        Err(error @ StoreError::Damaged { .. }) => {
            let message = format!("the dump has schemas that cannot be used: {error}");
            Err(Trouble::new(Code::BadBody, message))
        }
        other => Ok(other.map(drop)?),
    }
}

/// A dump that is being taken in. Whoever has it must bring it to an end by [`Load::close`].
pub(crate) struct Load {
    shared: Arc<Shared>,
    namespace: String,
    loading: Loading,
    /// Nobody else has a lock in the namespace meanwhile.
    _turn: gate::Turn,
    positions: Positions,
    head: Option<DumpHead>,
    stage: Stage,
    /// How many lines there were.
    lines: u64,
    batch: Batch,
    position: Position,
    documents: u64,
    commits: u64,
    indexes: u64,
}

/// Which lines may come; in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Documents,
    Commits,
    Rest,
    End,
}

/// Lines that are not in the log yet.
#[derive(Default)]
struct Batch {
    documents: Vec<(DocumentKey, Document)>,
    kept: Vec<(DocumentKey, Vec<FieldValue>)>,
    commits: Vec<Commit>,
    bytes: usize,
    first_line: u64,
}

impl Batch {
    fn len(&self) -> usize {
        self.documents.len() + self.kept.len() + self.commits.len()
    }
}

impl Load {
    pub(crate) async fn begin(
        shared: &Arc<Shared>,
        namespace: &str,
        tokens: Vec<u64>,
        positions: Positions,
    ) -> Result<Load, Trouble> {
        check_namespace(shared, namespace)?;
        let turn = gate::hold_all(shared, namespace, &terms(shared, tokens, None)?).await?;
        let loading = shared.shard.begin_load(namespace).await?;
        Ok(Load {
            shared: Arc::clone(shared),
            namespace: namespace.to_owned(),
            loading,
            _turn: turn,
            positions,
            head: None,
            stage: Stage::Documents,
            lines: 0,
            batch: Batch::default(),
            position: Position::START,
            documents: 0,
            commits: 0,
            indexes: 0,
        })
    }

    /// All of it is there, or nothing.
    pub(crate) async fn close(self, outcome: Result<LoadAnswer, Trouble>) -> Result<LoadAnswer, Trouble> {
        let Load { shared, namespace, loading, _turn, .. } = self;
        let _changing = shared.schemas.changing.lock().await;
        match &outcome {
            Ok(_) => loading.finish().await?,
            Err(_) => loading.undo().await?,
        }
        shared.schemas.reread(&shared, &namespace);
        if outcome.is_ok() {
            indexes::build(&shared);
        }
        outcome
    }

    async fn take_all(&mut self, body: &mut Body) -> Result<(), Trouble> {
        let mut lines = body::Lines::new(&self.shared, body);
        while let Some(line) = lines.next().await.map_err(|error| unread(error, self.lines + 1))? {
            self.take(line).await?;
        }
        Ok(())
    }

    /// A trouble about the next line.
    fn wrong(&self, message: &str) -> Trouble {
        Trouble::new(Code::BadBody, format!("line {}: {message}", self.lines + 1))
    }

    /// Takes in one line.
    pub(crate) async fn take(&mut self, line: &[u8]) -> Result<(), Trouble> {
        let number = self.lines + 1;
        let about = |mut trouble: Trouble| {
            trouble.message = format!("line {number}: {}", trouble.message);
            trouble
        };
        if self.head.is_none() {
            self.head = Some(read_head(line).map_err(about)?);
            self.lines = number;
            return Ok(());
        }
        let read = || read_body::<DumpLine>(line);
        let read = if line.len() > LONG_LINE_BYTES { tokio::task::block_in_place(read) } else { read() };
        let read = read.map_err(|error| about(error.into()))?;
        let stage = match &read {
            DumpLine::Document(_) => Stage::Documents,
            DumpLine::Commit(_) => Stage::Commits,
            DumpLine::Counter { .. } | DumpLine::Index { .. } => Stage::Rest,
            DumpLine::End { .. } => Stage::End,
        };
        if stage < self.stage || self.stage == Stage::End {
            return Err(self.wrong("this line is not where such lines are in a dump"));
        }
        if stage > self.stage {
            self.leave_stage().await?;
            self.stage = stage;
        }
        if self.batch.len() == 0 {
            self.batch.first_line = number;
        }
        match read {
            DumpLine::Document(document) => self.document(&document).map_err(about)?,
            DumpLine::Commit(commit) => self.commit(&commit).map_err(about)?,
            DumpLine::Counter { collection, next } => {
                self.counter(&collection, next).await.map_err(about)?;
            }
            DumpLine::Index { collection, field, path } => {
                let field = DumpLine::indexed(field.as_deref(), path.as_deref()).map_err(Trouble::from);
                self.index(&collection, field.map_err(about)?).await.map_err(about)?;
            }
            DumpLine::End { lines } if lines == self.lines => {}
            DumpLine::End { lines } => {
                let so_far = self.lines;
                return Err(
                    self.wrong(&format!("the dump had {lines} lines before this; there are {so_far}"))
                );
            }
        }
        self.lines = number;
        self.batch.bytes += line.len();
        if self.batch.len() >= BATCH_LEN || self.batch.bytes >= BATCH_BYTES {
            self.put_batch().await?;
        }
        Ok(())
    }

    fn head(&self) -> &DumpHead {
        self.head.as_ref().expect("it is the first line")
    }

    fn decoder(&self) -> Decoder<'_> {
        Decoder(&self.shared.config.limits)
    }

    fn json_depth(&self) -> usize {
        self.shared.config.limits.json_depth_max as usize
    }

    fn document(&mut self, document: &DumpDocument) -> Result<(), Trouble> {
        let at = self.decoder().document(&document.collection, &document.key)?;
        document.fields.0.iter().try_for_each(|(name, _)| self.decoder().field(name))?;
        let document = document.read(Position(self.head().horizon), self.json_depth())?;
        self.documents += 1;
        if document.is_born() {
            self.batch.documents.push((at, document));
        } else {
            let fields = document.fields.into_iter().filter_map(|field| Some((field.name, field.value?)));
            self.batch.kept.push((at, fields.collect()));
        }
        Ok(())
    }

    fn commit(&mut self, commit: &DumpCommit) -> Result<(), Trouble> {
        if commit.position <= self.position.0 {
            let message = format!("the commit {} comes after the commit {}", commit.position, self.position);
            return Err(Trouble::new(Code::BadBody, message));
        }
        let commit = commit.read(self.json_depth())?;
        if commit.events.is_empty() && commit.purged.is_none() {
            return Err(Trouble::new(Code::BadBody, "a commit has at least one event"));
        }
        for event in &commit.events {
            let key = lockwood_wire::documents::WireKey(event.at.key.clone());
            self.decoder().document(&event.at.collection, &key)?;
            let (fields, names): (&[FieldValue], &[Box<str>]) = match &event.change {
                Change::Created { fields } => {
                    self.documents += 1;
                    (fields, &[])
                }
                Change::Restored { fields } => (fields, &[]),
                Change::Updated { set, removed } | Change::Recreated { fields: set, removed } => {
                    (set, removed)
                }
                Change::Deleted { fields } => (&[], fields),
            };
            let names = fields.iter().map(|(name, _)| name).chain(names);
            names.into_iter().try_for_each(|name| self.decoder().written_field(name))?;
        }
        self.position = commit.position;
        self.commits += 1;
        self.batch.commits.push(commit);
        Ok(())
    }

    async fn counter(&mut self, collection: &str, next: u64) -> Result<(), Trouble> {
        self.decoder().collection(collection)?;
        if next == 0 || next > 1 << 63 {
            return Err(Trouble::new(Code::BadBody, "there is no such id"));
        }
        let (namespace, collection) = (self.namespace.as_str().into(), collection.into());
        Ok(self.loading.put(&Entry::Reserved { namespace, collection, next }).await?)
    }

    async fn index(&mut self, collection: &str, field: FieldPath) -> Result<(), Trouble> {
        self.decoder().collection(collection)?;
        self.decoder().check_path(&field)?;
        let limit = self.shared.config.limits.indexes_max;
        self.indexes += 1;
        if self.indexes > limit {
            return Err(ShardError::TooManyIndexes(limit).into());
        }
        let (namespace, collection) = (self.namespace.as_str().into(), collection.into());
        Ok(self.loading.put(&Entry::Indexed { namespace, collection, field, wanted: true }).await?)
    }

    async fn leave_stage(&mut self) -> Result<(), Trouble> {
        self.put_batch().await?;
        let horizon = Position(self.head().horizon);
        if self.stage == Stage::Documents {
            self.position = horizon;
            if horizon > Position::START {
                // There may have been no document, and the horizon is there all the same.
                let (namespace, documents) = (self.namespace.as_str().into(), Vec::new());
                self.loading.put(&Entry::Loaded { namespace, horizon, documents }).await?;
            }
        }
        Ok(())
    }

    async fn put_batch(&mut self) -> Result<(), Trouble> {
        let Batch { documents, kept, commits, first_line, .. } = std::mem::take(&mut self.batch);
        let horizon = Position(self.head().horizon);
        let namespace = || self.namespace.as_str().into();
        let mut entries = Vec::new();
        if !documents.is_empty() {
            entries.push(Entry::Loaded { namespace: namespace(), horizon, documents });
        }
        if !kept.is_empty() {
            entries.push(Entry::Kept { namespace: namespace(), put: kept, removed: Vec::new() });
        }
        // A purge has a record of its own.
        for commits in commits.chunk_by(|a, b| a.purged.is_none() && b.purged.is_none()) {
            entries.push(match commits {
                [purge] if purge.purged.is_some() => Entry::Purged {
                    namespace: namespace(),
                    commit: purge.clone(),
                    documents: Vec::new(),
                    next: 0,
                    pending: false,
                },
                _ => Entry::Committed { namespace: namespace(), commits: commits.to_vec(), answer: None },
            });
        }
        for entry in entries {
            self.loading.put(&entry).await.map_err(|error| {
                let mut trouble = Trouble::from(error);
                trouble.message = format!("lines {first_line} to {}: {}", self.lines, trouble.message);
                trouble
            })?;
        }
        Ok(())
    }

    /// Whether all of it was there.
    pub(crate) async fn end(&mut self) -> Result<LoadAnswer, Trouble> {
        if self.stage != Stage::End {
            return Err(self.wrong("the last line of the dump is missing; it was cut off"));
        }
        let expected = self.head().position;
        check_schemas(&self.shared, &self.namespace)?;
        if self.position.0 != expected && self.positions == Positions::All {
            let message =
                format!("line 1: the dump says that it ends at {expected}, and it ends at {}", self.position);
            return Err(Trouble::new(Code::BadBody, message));
        }
        Ok(LoadAnswer { position: self.position.0, documents: self.documents, commits: self.commits })
    }
}

pub(crate) fn read_head(line: &[u8]) -> Result<DumpHead, Trouble> {
    let head: Result<DumpHead, BodyError> = read_body(line);
    let head = head.ok().filter(|head| head.lockwood == DumpHead::KIND);
    let head = head.ok_or_else(|| Trouble::new(Code::BadBody, "this is not how a dump begins"))?;
    if head.format != DumpHead::FORMAT {
        let message = format!("the dump has format {}; this server reads {}", head.format, DumpHead::FORMAT);
        return Err(Trouble::new(Code::BadBody, message));
    }
    if head.horizon > head.position || head.position > POSITION_MAX {
        return Err(Trouble::new(Code::BadBody, "the positions contradict each other"));
    }
    Ok(head)
}
