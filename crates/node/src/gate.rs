//! What document operations have to do with locks: each runs as an owner and takes the locks it needs for its
//! own time. Knows nothing of protocols, nor of what the operations do.
//!
//! ```text
//!   operation ──► is anybody else's lock in the way? ──no──► decide, under the mutex of the namespace
//!                      │ yes                                         │
//!                      ▼                                             ▼
//!                 stand in line as a lock of its own ──granted──► decide, then give the lock back
//! ```
//!
//! A write need not hold its lock until it is durable. Instead no grant is told before everything that was let
//! through earlier is durable and visible (`State::written`), which comes to the same and does not keep writers
//! of one document from sharing a sync.

use crate::{
    guards::News,
    kernel::Kernel,
    lease::Verdict,
    namespace::{Namespace, State},
    schemas::{self, Held, Named, Rechecks, check_named},
    shard::{Amended, Call, Keep, Pending, Reading, ShardError, Written},
    territory::{Admittance, Admitted, Use},
    trouble::Trouble,
    view,
    work::Job,
};
use lockwood_engine::{Action, Intent, Limits, NoRules, PutIf, Target};
use lockwood_locks::{Outcome, Rank, Refusal, Request};
use lockwood_model::{
    Budget, Depth, DocumentKey, FieldValue, LockId, Mode, OwnerId, Path, Resource, Timestamp, Token, Wait,
    node,
};
use lockwood_storage::{Answer, Entry, State as Stored};
use lockwood_wire::Code;
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
    sync::Arc,
};
use tokio::sync::oneshot;

/// A call with more events than this is decided beside the mutex of its namespace.
const LONG_LEN: usize = 500;
/// How many paths that others have are named.
const PATHS_LEN_MAX: usize = 100;
/// So often something long is run to find out what it touches.
const RUNS_MAX: usize = 16;
/// Where procedures are kept.
pub const PROCEDURES: &str = "_procedures";

/// Who an operation is done for, and how long it may wait for others.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Tokens of locks the caller says it holds, all of one owner. If one of them is over, nothing is done.
    pub tokens: Vec<u64>,
    /// How long to wait for locks of others.
    pub wait: Wait,
}

impl Terms {
    /// For a caller that holds nothing.
    pub fn anonymous(wait: Wait) -> Terms {
        Terms { tokens: Vec::new(), wait }
    }
}

/// Why an operation was not done.
#[derive(Debug)]
pub enum GateError {
    /// It was not let in: by locks, others' or the caller's own that is over, or by the schemas.
    Refused(Box<Trouble>),
    /// Anything else.
    Shard(ShardError),
}

impl From<ShardError> for GateError {
    fn from(error: ShardError) -> GateError {
        GateError::Shard(error)
    }
}

impl From<Trouble> for GateError {
    fn from(trouble: Trouble) -> GateError {
        GateError::Refused(Box::new(trouble))
    }
}

impl From<GateError> for Trouble {
    fn from(error: GateError) -> Trouble {
        match error {
            GateError::Refused(trouble) => *trouble,
            GateError::Shard(error) => error.into(),
        }
    }
}

/// Does a write call once nobody else's lock is in its way.
pub async fn write(
    kernel: &Arc<Kernel>,
    namespace: &str,
    call: &Call,
    terms: &Terms,
) -> Result<Written, GateError> {
    kernel.check_home(namespace, Use::Write).await?;
    let active = kernel.schemas.active(kernel, namespace).map_err(ShardError::from)?;
    check_reserved(call.requests.iter().flat_map(|request| &request.intents).map(|intent| &intent.at))?;
    let job = Job::new(kernel);
    let admitted = kernel.admit_keys(namespace, documents_of(call)).await?;
    if let Err(refused) = check_named(&job, &active, Named::call(call)).await {
        return replay(kernel, namespace, call, refused.into()).await;
    }
    // As they are when it is decided: a schema may be registered while others' locks are waited for.
    let rules = kernel.schemas.held(namespace);
    let decide = |now| {
        let _passage = kernel.pass(admitted)?;
        kernel.shard.decide_write(namespace, call, &rules, now)
    };
    let early = Early { job: &job, rules: &rules, made: Made::Call(call) };
    let mut rechecks = Rechecks::new(&job, &rules);
    loop {
        let written = match pass(kernel, namespace, &Wanted::of(call), (terms, Some(&early)), decide).await {
            Ok(pending) => kernel.shard.settle_write(call, pending).await,
            Err(error) => return replay(kernel, namespace, call, error).await,
        };
        if let Some(written) = rechecks.settled(written).await? {
            return Ok(written);
        }
    }
}

/// A write call that is made of what is there.
pub struct Amendment<'a> {
    /// The documents that are looked at and written, all of them.
    pub documents: &'a [DocumentKey],
    /// What it looks at and changes of them.
    pub resources: Vec<Resource>,
    /// What its first document becomes, if that does not depend on what is there.
    pub makes: Option<&'a [FieldValue]>,
    /// How to know it if it comes again.
    pub answer: Option<Answer>,
}

/// Makes a write call of what is there and does it, once nobody else's lock is in its way. Nothing comes between
/// looking and writing, so `make` has to be quick about it; what takes long is for [`run`].
pub async fn transact<T>(
    kernel: &Arc<Kernel>,
    namespace: &str,
    amendment: &Amendment<'_>,
    terms: &Terms,
    make: impl Fn(Stored<'_>) -> Result<(Call, T), Trouble>,
) -> Result<Amended<T>, GateError> {
    kernel.check_home(namespace, Use::Write).await?;
    let active = kernel.schemas.active(kernel, namespace).map_err(ShardError::from)?;
    check_reserved(amendment.documents.iter())?;
    let admitted = kernel.admit_keys(namespace, amendment.documents.iter()).await?;
    if let ([at], Some(fields), false) = (amendment.documents, amendment.makes, active.is_empty()) {
        let action = Action::Put { fields: fields.to_vec(), when: PutIf::Always };
        let intents = vec![Intent { at: at.clone(), action }];
        let requests = vec![lockwood_engine::Request { intents, ..Default::default() }];
        if let Err(refused) = check_named(&Job::new(kernel), &active, Named::Call(requests.into())).await {
            return done_before(kernel, namespace, amendment.answer.as_ref(), refused.into()).await;
        }
    }
    let rules = kernel.schemas.held(namespace);
    let checked = |state: Stored<'_>| {
        let made = make(state)?;
        rules.check_call(&active, &made.0)?;
        Ok(made)
    };
    amend(kernel, namespace, amendment, (terms, admitted), (&rules, checked)).await
}

/// The same for what is registered: no shard of the map owns it, and only the server itself writes it.
pub async fn transact_registered<T>(
    kernel: &Arc<Kernel>,
    namespace: &str,
    amendment: &Amendment<'_>,
    make: impl Fn(Stored<'_>) -> Result<(Call, T), Trouble>,
) -> Result<Amended<T>, GateError> {
    let terms = Terms::anonymous(Wait::Millis(kernel.config.wait_ms));
    let rules = kernel.schemas.held(namespace);
    amend(kernel, namespace, amendment, (&terms, Admitted::default()), (&rules, make)).await
}

async fn amend<T>(
    kernel: &Arc<Kernel>,
    namespace: &str,
    amendment: &Amendment<'_>,
    (terms, admitted): (&Terms, Admitted),
    (rules, make): (&Held<'_>, impl Fn(Stored<'_>) -> Result<(Call, T), Trouble>),
) -> Result<Amended<T>, GateError> {
    let answer = amendment.answer.as_ref();
    let decide = |now| {
        let _passage = kernel.pass(admitted)?;
        kernel.shard.decide_amend(namespace, answer, &make, rules, now)
    };
    let wanted = Wanted::Resources(&amendment.resources);
    let job = Job::new(kernel);
    let early = Early { job: &job, rules, made: Made::Amendment(amendment) };
    let mut rechecks = Rechecks::new(&job, rules);
    loop {
        let settled = match pass(kernel, namespace, &wanted, (terms, Some(&early)), decide).await {
            Ok(pending) => kernel.shard.settle_amend(pending).await,
            Err(error) => return done_before(kernel, namespace, answer, error).await,
        };
        if let Some(amended) = rechecks.settled(settled).await? {
            return Ok(amended?);
        }
    }
}

/// What a run of something long came to.
pub struct Run<T> {
    /// What it looked at.
    pub read: BTreeSet<DocumentKey>,
    /// What it wants to write.
    pub intents: Vec<Intent>,
    /// What it made.
    pub made: Result<T, Trouble>,
}

/// Runs something that reads and writes any documents of this shard, and does what it wants to write, all of it or
/// nothing. Everything that it touches is locked for it meanwhile: what it touches is seen when it has run, so it
/// may run several times, and only the time that found everything locked counts.
pub async fn run<T: Send + 'static>(
    kernel: &Arc<Kernel>,
    namespace: &str,
    (first, answer): (&DocumentKey, Option<&Answer>),
    terms: &Terms,
    work: Arc<impl Fn(&Reading, &Budget) -> Run<T> + Send + Sync + 'static>,
    call_of: impl Fn(Vec<Intent>, &T) -> Result<Call, Trouble>,
) -> Result<Amended<T>, GateError> {
    kernel.check_home(namespace, Use::Write).await?;
    let mut touched = Touched { read: BTreeSet::new(), written: BTreeSet::from([first.clone()]) };
    let rules = kernel.schemas.held(namespace);
    // One for all runs: running again is no way to more work.
    let job = Job::new(kernel);
    let mut rechecks = Rechecks::new(&job, &rules);
    for _ in 0..RUNS_MAX {
        check_reserved(touched.documents())?;
        let admitted = kernel.admit_keys(namespace, touched.documents()).await?;
        let mut turn = match turn_for(kernel, namespace, &touched.resources(), terms).await {
            Ok(turn) => turn,
            Err(error) => return done_before(kernel, namespace, answer, error).await,
        };
        if let Some(answer) = answer
            && let Some(written) = kernel.shard.answered(namespace, answer).await?
        {
            return Ok(Amended::Before(written));
        }
        // Also what was just brought here.
        kernel.shard.shown(kernel.shard.last_index()).await?;
        let run = {
            let _running = kernel.procedures.enter().await;
            let (work, reading) = (Arc::clone(&work), kernel.shard.read());
            job.run(move |budget| work(&reading, budget)).await.map_err(Trouble::from)?
        };
        if touched.grows(&run) {
            continue;
        }
        // All that it looked at was here until now.
        drop(kernel.pass(admitted)?);
        let made = run.made?;
        if run.intents.is_empty() {
            let written = Written { positions: Vec::new(), replayed: false };
            return Ok(Amended::Now { call: Call::default(), written, made });
        }
        let mut call = call_of(run.intents, &made)?;
        call.answer = answer.cloned();
        let active = kernel.schemas.active(kernel, namespace).map_err(ShardError::from)?;
        check_named(&job, &active, Named::call(&call)).await?;
        let pending = {
            let _passage = kernel.pass(admitted)?;
            kernel.shard.decide_write(namespace, &call, &rules, kernel.clock.now())?
        };
        turn.wrote(pending.index);
        drop(turn);
        let written = kernel.shard.settle_write(&call, pending).await;
        if let Some(written) = rechecks.settled(written).await? {
            return Ok(Amended::Now { call, written, made });
        }
    }
    let message = format!(
        "it touched other documents each of the {RUNS_MAX} times it ran, so it could not be given all it needs; \
         let it touch the same ones"
    );
    Err(Trouble::new(Code::ProcedureFailed, message).into())
}

/// A turn for something long, whose caller still has its own locks: they may have run out while it waited.
async fn turn_for(
    kernel: &Arc<Kernel>,
    namespace: &str,
    resources: &[Resource],
    terms: &Terms,
) -> Result<Turn, GateError> {
    let turn = Turn::take(kernel, namespace, resources, terms).await?;
    // A home that admits has looked.
    if kernel.remote_home(namespace).await?.is_none() {
        enter(kernel, namespace, terms, |_, _| ())?;
    }
    Ok(turn)
}

/// What a run may touch.
struct Touched {
    read: BTreeSet<DocumentKey>,
    written: BTreeSet<DocumentKey>,
}

impl Touched {
    fn documents(&self) -> impl Iterator<Item = &DocumentKey> + Clone {
        self.written.iter().chain(self.read.difference(&self.written))
    }

    fn resources(&self) -> Vec<Resource> {
        let read = self.read.difference(&self.written);
        let read = read.map(|at| Resource::new(document_path(at), Mode::Read, Depth::SUBTREE));
        self.written.iter().flat_map(whole).chain(read).collect()
    }

    /// Takes in what a run touched; says whether there was something new.
    fn grows(&mut self, run: &Run<impl Sized>) -> bool {
        let len = (self.read.len(), self.written.len());
        self.written.extend(run.intents.iter().map(|intent| intent.at.clone()));
        let unknown = run.read.iter().filter(|at| !self.written.contains(*at));
        self.read.extend(unknown.cloned());
        len != (self.read.len(), self.written.len())
    }
}

/// The same for the collection that schemas are kept in, which nobody else writes to. What is to hold from then
/// on is installed right before it is decided.
pub(crate) async fn write_registry(
    kernel: &Arc<Kernel>,
    namespace: &str,
    call: &Call,
    terms: &Terms,
    install: impl Fn() -> Result<(), ShardError>,
) -> Result<Written, GateError> {
    let decide = |now| {
        install()?;
        kernel.shard.decide_write(namespace, call, &NoRules, now)
    };
    let pending = pass(kernel, namespace, &Wanted::of(call), (terms, None), decide).await?;
    Ok(kernel.shard.settle_write(call, pending).await?)
}

/// The documents a call is about: those it changes, and those that must not have changed.
pub fn documents_of(call: &Call) -> impl Iterator<Item = &DocumentKey> + Clone {
    call.requests.iter().flat_map(|request| {
        let locked = request.locks.iter().filter_map(|lock| match &lock.target {
            Target::Document(at) | Target::Field(at, _) => Some(at),
            Target::CollectionField { .. } => None,
        });
        request.intents.iter().map(|intent| &intent.at).chain(locked)
    })
}

/// That none of the documents is in a collection that the server keeps for itself.
pub fn check_reserved<'a>(mut documents: impl Iterator<Item = &'a DocumentKey>) -> Result<(), Trouble> {
    let kept_for = |at: &DocumentKey| match &*at.collection {
        schemas::COLLECTION => Some("schemas"),
        PROCEDURES => Some("procedures"),
        _ => None,
    };
    match documents.find_map(|at| kept_for(at).map(|what| (at, what))) {
        None => Ok(()),
        Some((at, what)) => {
            let message =
                format!("{:?} is where {what} are kept; register and delete them there", at.collection);
            Err(Trouble::new(Code::ReservedCollection, message))
        }
    }
}

/// A call that was done before is answered as it was then, even if its locks are over by now.
async fn replay(
    kernel: &Kernel,
    namespace: &str,
    call: &Call,
    error: GateError,
) -> Result<Written, GateError> {
    if let Some(answer) = call.answer.as_ref().filter(|_| is_refused(&error))
        && let Some(written) = kernel.shard.answered(namespace, answer).await?
    {
        return Ok(written);
    }
    Err(error)
}

/// The same for a call that is made of what is there.
async fn done_before<T>(
    kernel: &Kernel,
    namespace: &str,
    answer: Option<&Answer>,
    error: GateError,
) -> Result<Amended<T>, GateError> {
    let Some(answer) = answer.filter(|_| is_refused(&error)) else { return Err(error) };
    let before = kernel.shard.answered(namespace, answer).await?;
    before.map(Amended::Before).ok_or(error)
}

/// Whether an operation was not let in, or does not fit the schemas.
fn is_refused(error: &GateError) -> bool {
    matches!(error, GateError::Refused(_) | GateError::Shard(ShardError::Refused(_)))
}

/// Writes or takes away documents without positions, once nobody else's lock is in the way.
pub async fn keep(
    kernel: &Arc<Kernel>,
    namespace: &str,
    keep: Keep,
    limits: Limits,
    terms: &Terms,
) -> Result<(), GateError> {
    kernel.check_home(namespace, Use::Write).await?;
    let active = kernel.schemas.active(kernel, namespace).map_err(ShardError::from)?;
    check_reserved(keep.documents())?;
    let job = Job::new(kernel);
    check_named(&job, &active, Named::Keep(Cow::Borrowed(&keep))).await?;
    let admitted = kernel.admit_keys(namespace, keep.documents()).await?;
    let rules = kernel.schemas.held(namespace);
    let decide = |_| {
        let _passage = kernel.pass(admitted)?;
        kernel.shard.decide_keep(namespace, &keep, limits, &rules)
    };
    let mut rechecks = Rechecks::new(&job, &rules);
    loop {
        let pending = pass(kernel, namespace, &Wanted::Keep(&keep), (terms, None), decide).await?;
        let kept = kernel.shard.settle(pending).await;
        if rechecks.settled(kept).await?.is_some() {
            return Ok(());
        }
    }
}

/// Puts a record into the log that is about a whole namespace, once nobody else has a lock there. It is brought
/// to an end also if nobody waits for the answer any more: the schemas may be other ones afterwards.
pub async fn record(
    kernel: &Arc<Kernel>,
    namespace: &str,
    entry: Entry,
    terms: &Terms,
) -> Result<(), GateError> {
    let turn = hold_all(kernel, namespace, terms).await?;
    let (kernel, namespace) = (Arc::clone(kernel), namespace.to_owned());
    let work = tokio::spawn(async move {
        // The whole of it: it must not be given back before all is done.
        let mut turn = turn;
        let _changing = kernel.schemas.changing.lock().await;
        let pending = kernel.shard.decide_record(&entry)?;
        turn.wrote(pending.index);
        let settled = kernel.shard.settle(pending).await;
        kernel.schemas.reread(&kernel, &namespace);
        settled
    });
    match work.await {
        Ok(done) => Ok(done?),
        Err(error) => {
            tracing::error!(%error, "empty a namespace");
            Err(Trouble::storage_failed().into())
        }
    }
}

/// What readers see at a moment at which nobody else's lock is in the way of reading `resources`.
pub async fn read(
    kernel: &Arc<Kernel>,
    name: &str,
    resources: &[Resource],
    terms: &Terms,
) -> Result<Reading, GateError> {
    if let Some(reading) = read_unhindered(kernel, name, terms) {
        return Ok(reading);
    }
    if kernel.remote_home(name).await?.is_none() {
        let reading = enter(kernel, name, terms, |owner, state| {
            let admitted = state.table.admits(owner, resources, terms.rank());
            let free = admitted.is_ok() && kernel.shard.shows(state.written);
            free.then(|| kernel.shard.read())
        })?;
        if let Some(reading) = reading {
            return Ok(reading);
        }
    }
    let turn = Turn::take(kernel, name, resources, terms).await?;
    // Nobody can change what is read before the turn is over, and by then it has been looked at.
    kernel.shard.shown(turn.after).await?;
    Ok(kernel.shard.read())
}

/// That the tokens are of locks that are held, for those who take none.
pub async fn check_tokens(kernel: &Arc<Kernel>, name: &str, terms: &Terms) -> Result<(), GateError> {
    if terms.tokens.is_empty() {
        return Ok(());
    }
    if admit(kernel, name, &[], terms).await?.is_some() {
        return Ok(());
    }
    enter(kernel, name, terms, |_, _| ())
}

/// The owner of the locks with the tokens that the terms have.
pub fn owner_of(kernel: &Arc<Kernel>, name: &str, terms: &Terms) -> Result<OwnerId, GateError> {
    enter(kernel, name, terms, |owner, _| owner)
}

/// What readers see, if nobody has a lock in the namespace at all; then it does not matter what is read.
pub fn read_unhindered(kernel: &Kernel, name: &str, terms: &Terms) -> Option<Reading> {
    if !kernel.decides(name) || !terms.is_free(kernel, name) {
        return None;
    }
    let Some(namespace) = kernel.registry.get(name) else {
        return kernel.registry.while_unused(name, || kernel.shard.read());
    };
    let state = namespace.lock();
    let unhindered = !state.is_closed() && state.table.is_empty() && kernel.shard.shows(state.written);
    unhindered.then(|| kernel.shard.read())
}

/// Holds a whole namespace for as long as the turn is kept.
pub async fn hold_all(kernel: &Arc<Kernel>, name: &str, terms: &Terms) -> Result<Turn, GateError> {
    kernel.shard.check_not_loading(name)?;
    let turn = Turn::take(kernel, name, &[everything()], terms).await?;
    kernel.shard.shown(turn.after).await?;
    Ok(turn)
}

/// Holds some resources for as long as the turn is kept. What was written before is visible then.
pub async fn hold(
    kernel: &Arc<Kernel>,
    name: &str,
    resources: &[Resource],
    terms: &Terms,
) -> Result<Turn, GateError> {
    let turn = Turn::take(kernel, name, resources, terms).await?;
    kernel.shard.shown(turn.after).await?;
    Ok(turn)
}

pub(crate) fn everything() -> Resource {
    Resource::new(Path::default(), Mode::Write, Depth::SUBTREE)
}

/// What an operation changes.
enum Wanted<'a> {
    Call(&'a Call),
    /// A call that is long in deciding; nobody else shall have to wait for it under a mutex.
    LongCall(&'a Call),
    Keep(&'a Keep),
    Resources(&'a [Resource]),
}

impl Wanted<'_> {
    fn of(call: &Call) -> Wanted<'_> {
        let len: usize = call.requests.iter().map(|request| request.intents.len()).sum();
        if len > LONG_LEN { Wanted::LongCall(call) } else { Wanted::Call(call) }
    }

    fn is_long(&self) -> bool {
        matches!(self, Wanted::LongCall(_))
    }

    /// The resources, each by itself.
    fn resources(&self) -> Vec<Resource> {
        match self {
            Wanted::Call(call) | Wanted::LongCall(call) => resources_of(call),
            Wanted::Keep(keep) => resources_of_keep(keep),
            Wanted::Resources(resources) => resources.to_vec(),
        }
    }

    /// At least the resources, where nobody else has any: whole collections instead of many documents.
    fn roughly(&self) -> Vec<Resource> {
        let Wanted::LongCall(call) = self else { return self.resources() };
        let intents = call.requests.iter().flat_map(|request| &request.intents);
        let collections: BTreeSet<&str> = intents.map(|intent| &*intent.at.collection).collect();
        let whole = |name| Resource::new(Path::from_segments([name]), Mode::Write, Depth::SUBTREE);
        collections.into_iter().map(whole).collect()
    }
}

/// What can be refused before it waits for locks: no lock can make it right.
struct Early<'a> {
    job: &'a Job<'a>,
    rules: &'a Held<'a>,
    made: Made<'a>,
}

/// What makes documents.
enum Made<'a> {
    Call(&'a Call),
    Amendment(&'a Amendment<'a>),
}

impl Early<'_> {
    /// Whether the documents fit that it makes whatever is there.
    async fn check(&self) -> Result<(), GateError> {
        match self.made {
            Made::Call(call) => self.rules.check_made(self.job, made_by(call)).await,
            Made::Amendment(Amendment { documents, makes, .. }) => {
                self.rules.check_made(self.job, documents.first().into_iter().zip(*makes)).await
            }
        }
    }
}

/// The documents that a call makes whatever is there, as each of its requests leaves them.
fn made_by(call: &Call) -> impl Iterator<Item = (&DocumentKey, &[FieldValue])> {
    call.requests.iter().flat_map(|request| {
        let numbered = || request.intents.iter().enumerate();
        let last: HashMap<&DocumentKey, usize> =
            numbered().map(|(number, intent)| (&intent.at, number)).collect();
        numbered().filter_map(move |(number, Intent { at, action })| match action {
            Action::Create { fields } | Action::Put { fields, .. } if last[at] == number => {
                Some((at, &fields[..]))
            }
            _ => None,
        })
    })
}

/// Decides something once nobody else's lock is in the way of `wanted`.
async fn pass<T>(
    kernel: &Arc<Kernel>,
    name: &str,
    wanted: &Wanted<'_>,
    (terms, early): (&Terms, Option<&Early<'_>>),
    decide: impl Fn(Timestamp) -> Result<Pending<T>, ShardError>,
) -> Result<Pending<T>, GateError> {
    // Whoever loads a dump has the whole namespace for long; nobody stands in line for that.
    kernel.shard.check_not_loading(name)?;
    if kernel.remote_home(name).await?.is_none() {
        return pass_here(kernel, name, wanted, (terms, early), decide).await;
    }
    // What is in the way is known only when the home has been asked.
    if let Some(early) = early {
        early.check().await?;
    }
    let resources = wanted.resources();
    let mut admittance = admit(kernel, name, &resources, terms).await?;
    // The home decides about locks; here operations keep out of each other's way.
    let pending = pass_here(kernel, name, wanted, (&Terms::anonymous(terms.wait), None), decide).await?;
    admittance.iter_mut().for_each(|admittance| admittance.wrote(pending.index));
    Ok(pending)
}

/// Admits an operation by the guards of the namespace, if another shard decides about its locks.
async fn admit(
    kernel: &Kernel,
    name: &str,
    resources: &[Resource],
    terms: &Terms,
) -> Result<Option<Admittance>, Trouble> {
    match (kernel.remote_home(name).await?, &kernel.territory) {
        (Some(home), Some(territory)) => {
            territory.admit_operation((name, home), resources, terms).await.map(Some)
        }
        _ => Ok(None),
    }
}

/// Decides something once nothing in the table of this shard is in its way.
async fn pass_here<T>(
    kernel: &Arc<Kernel>,
    name: &str,
    wanted: &Wanted<'_>,
    (terms, early): (&Terms, Option<&Early<'_>>),
    decide: impl Fn(Timestamp) -> Result<Pending<T>, ShardError>,
) -> Result<Pending<T>, GateError> {
    if terms.is_free(kernel, name)
        && !wanted.is_long()
        && let Some(decided) = kernel.registry.while_unused(name, || decide(kernel.clock.now()))
    {
        return Ok(decided?);
    }
    let passed = enter(kernel, name, terms, |owner, state| {
        // Without a lock in the namespace there is nothing to compare with.
        let idle = state.table.is_empty() && !state.table.is_frozen();
        if wanted.is_long() {
            return Err(if idle { wanted.roughly() } else { wanted.resources() });
        }
        if !idle {
            let resources = wanted.resources();
            if state.table.admits(owner, &resources, terms.rank()).is_err() {
                return Err(resources);
            }
        }
        let decided = decide(kernel.clock.now());
        if let Ok(pending) = &decided {
            state.written = state.written.max(pending.index);
        }
        Ok(decided)
    })?;
    let resources = match passed {
        Ok(decided) => return Ok(decided?),
        Err(resources) => resources,
    };
    if let Some(early) = early {
        early.check().await?;
    }
    let (mut own, _) = OwnLock::take(kernel, name, &resources, terms).await?;
    // The caller's own locks may have run out while it waited. From here on it does not matter: the turn has
    // what they had.
    enter(kernel, name, terms, |_, _| ())?;
    let pending = decide(kernel.clock.now())?;
    own.wrote = own.wrote.max(pending.index);
    Ok(pending)
}

/// Does something with a namespace as the owner that the terms speak of.
fn enter<T>(
    kernel: &Arc<Kernel>,
    name: &str,
    terms: &Terms,
    mut act: impl FnMut(OwnerId, &mut State) -> T,
) -> Result<T, GateError> {
    loop {
        let namespace = kernel.registry.ensure(kernel, name)?;
        let mut state = namespace.lock();
        // Dropped as unused just now; the next one is new.
        if state.is_closed() {
            continue;
        }
        let now = kernel.clock.now();
        state.expire(kernel, now);
        let done = state.identify(kernel, terms, now).map(|owner| act(owner, &mut state));
        namespace.rearm(state);
        kernel.registry.drop_if_unused(kernel, &namespace);
        return Ok(done?);
    }
}

impl Terms {
    /// Whoever holds something goes ahead of those in line, who may wait for just that.
    fn rank(&self) -> Rank {
        if self.tokens.is_empty() { Rank::Operation } else { Rank::HolderOperation }
    }

    /// Nothing has to be looked up in a namespace that nobody uses.
    fn is_free(&self, kernel: &Kernel, namespace: &str) -> bool {
        self.tokens.is_empty() && kernel.grace.left_ms(namespace) == 0
    }
}

impl State {
    /// The owner of the locks with these tokens; somebody new if there are none.
    fn identify(&self, kernel: &Kernel, terms: &Terms, now: Timestamp) -> Result<OwnerId, Trouble> {
        let mut known: Option<OwnerId> = None;
        for token in &terms.tokens {
            let holder = self.holder(*token, now).ok_or_else(|| token_lost(*token))?;
            if known.is_some_and(|known| known != holder) {
                return Err(token_foreign(*token));
            }
            known = Some(holder);
        }
        Ok(known.unwrap_or_else(|| kernel.next_owner()))
    }

    /// Who holds the lock with a token, if it is not over.
    fn holder(&self, token: u64, now: Timestamp) -> Option<OwnerId> {
        let (lock, owner) =
            self.table.granted(Token(token)).or_else(|| self.converting_from(Token(token)))?;
        let is_over = self.leases.get(lock).is_some_and(|lease| !lease.is_alive(now));
        (!is_over).then_some(owner)
    }

    /// The lock that has another token by now, of which its owner has not heard yet.
    fn converting_from(&self, token: Token) -> Option<(LockId, OwnerId)> {
        let lock = self.guards.as_ref()?.converting_from(token)?;
        Some((lock, self.table.owner_of(lock)?))
    }

    /// Takes a lock for an operation, or its place in line.
    fn stand(
        &mut self,
        kernel: &Kernel,
        owner: OwnerId,
        resources: &[Resource],
        (wait, rank): (Wait, Rank),
    ) -> Result<(LockId, Option<oneshot::Receiver<Verdict>>), Trouble> {
        if kernel.is_draining() {
            return Err(Trouble::draining());
        }
        if !kernel.numbers.suffice(self.table.next_number()) {
            return Err(Trouble::storage_failed());
        }
        let full = self.table.pending_len() as u64 >= kernel.config.limits.queue_len_max;
        let wait = if full { Wait::Never } else { wait };
        let now = kernel.clock.now();
        let request = Request { owner, resources: resources.to_vec(), wait, ttl_ms: None, rank };
        let outcome = self.table.lock(request, now);
        tracing::debug!(namespace = %self.name, owner = owner.0, ?outcome, "an operation asks for a lock");
        match outcome {
            Outcome::Granted { lock, token } => {
                let told =
                    self.may_tell(kernel, (owner, lock, token), (News::Granted { waited_ms: 0 }, None));
                Ok((lock, (!told).then(|| self.verdict_on(lock))))
            }
            Outcome::Queued { lock } => {
                kernel.metrics.waits.add(1);
                Ok((lock, Some(self.verdict_on(lock))))
            }
            Outcome::Refused(Refusal::Busy { .. }) if full => Err(crate::lease::queue_full(kernel)),
            Outcome::Refused(refusal) => {
                let trouble = view::refused(kernel, self, &refusal, Some(&resources.to_vec()), now);
                Err(Trouble { paths: self.others_have(owner, resources), ..trouble })
            }
        }
    }

    /// Of these resources, the paths that others have; the first few.
    fn others_have(&mut self, owner: OwnerId, resources: &[Resource]) -> Vec<Path> {
        let taken = |resource: &&Resource| {
            self.table.admits(owner, std::slice::from_ref(*resource), Rank::Operation).is_err()
        };
        let mut paths: Vec<Path> = resources
            .iter()
            .filter(taken)
            .map(|resource| resource.path.clone())
            .take(PATHS_LEN_MAX)
            .collect();
        paths.dedup();
        paths
    }
}

fn token_lost(token: u64) -> Trouble {
    let message = format!(
        "the lock with token {token} is over: it ran out, was released or was ended by an operator, or it never \
         was in this namespace. Nothing was done. What it guarded may have changed, so take the lock anew and \
         read again before writing"
    );
    Trouble::new(Code::LockLost, message)
}

/// That a token belongs to another owner than those before it.
pub fn token_foreign(token: u64) -> Trouble {
    let message = format!(
        "the lock with token {token} belongs to another owner than the tokens before it; a request is done for \
         one owner, with tokens of its own locks"
    );
    Trouble::new(Code::LockLost, message)
}

/// An operation's own lock. Given back when this goes, however the operation ends.
pub struct Turn {
    lock: OperationLock,
    /// What was let through before, up to this record, must be visible before anything is read.
    after: u64,
}

/// The lock of an operation.
enum OperationLock {
    /// In a table of this server.
    Here(OwnLock),
    /// Within the guards of the namespace's home, another shard; and in the table of this one, by which operations keep
    /// out of each other's way. In this order, so that the next one here is admitted before the home hears of the end.
    There(OwnLock, Admittance),
}

/// The lock of an operation in a table of this server.
struct OwnLock {
    kernel: Arc<Kernel>,
    namespace: Arc<Namespace>,
    owner: OwnerId,
    lock: LockId,
    /// The last record the operation made.
    wrote: u64,
}

impl Turn {
    /// The token of the lock, if it is in a table of this server.
    pub fn token(&self) -> Option<u64> {
        let OperationLock::Here(own) = &self.lock else { return None };
        let state = own.namespace.lock();
        state.table.view(own.lock)?.token.map(|token| token.0)
    }

    /// The owner that the operation runs as, if the lock is in a table of this server.
    pub fn owner(&self) -> Option<OwnerId> {
        let OperationLock::Here(own) = &self.lock else { return None };
        Some(own.owner)
    }

    /// Everything up to a record is the operation's: no lock is granted before it is visible.
    pub(crate) fn wrote(&mut self, index: u64) {
        match &mut self.lock {
            OperationLock::Here(own) => own.wrote = own.wrote.max(index),
            OperationLock::There(own, admittance) => {
                own.wrote = own.wrote.max(index);
                admittance.wrote(index);
            }
        }
    }

    async fn take(
        kernel: &Arc<Kernel>,
        name: &str,
        resources: &[Resource],
        terms: &Terms,
    ) -> Result<Turn, GateError> {
        if let Some(admittance) = admit(kernel, name, resources, terms).await? {
            let (own, after) = OwnLock::take(kernel, name, resources, &Terms::anonymous(terms.wait)).await?;
            return Ok(Turn { lock: OperationLock::There(own, admittance), after });
        }
        let (own, after) = OwnLock::take(kernel, name, resources, terms).await?;
        Ok(Turn { lock: OperationLock::Here(own), after })
    }
}

impl OwnLock {
    /// The lock, and the record that has to be visible to its operation.
    async fn take(
        kernel: &Arc<Kernel>,
        name: &str,
        resources: &[Resource],
        terms: &Terms,
    ) -> Result<(OwnLock, u64), GateError> {
        let (own, after, verdict) = OwnLock::ask(kernel, name, resources, terms)?;
        let after = match verdict {
            Some(verdict) => own.wait(verdict, resources).await?,
            None => after,
        };
        Ok((own, after))
    }

    /// Waits for the end of its place in line; gives the record that has to be visible then.
    async fn wait(
        &self,
        verdict: oneshot::Receiver<Verdict>,
        resources: &[Resource],
    ) -> Result<u64, GateError> {
        match verdict.await {
            Ok(Verdict::Granted { after }) => Ok(after),
            Ok(Verdict::Refused(trouble)) => {
                let paths = self.namespace.lock().others_have(self.owner, resources);
                Err(Trouble { paths, ..*trouble }.into())
            }
            Err(_) => Err(Trouble::unknown_lock(self.lock.0).into()),
        }
    }

    /// The lock, the record that has to be visible, and how its wait ends if it has to wait.
    fn ask(
        kernel: &Arc<Kernel>,
        name: &str,
        resources: &[Resource],
        terms: &Terms,
    ) -> Result<(OwnLock, u64, Option<oneshot::Receiver<Verdict>>), GateError> {
        loop {
            let namespace = kernel.registry.ensure(kernel, name)?;
            let mut state = namespace.lock();
            if state.is_closed() {
                continue;
            }
            let now = kernel.clock.now();
            state.expire(kernel, now);
            let stood = state.identify(kernel, terms, now).and_then(|owner| {
                let (lock, verdict) = state.stand(kernel, owner, resources, (terms.wait, terms.rank()))?;
                Ok((owner, lock, verdict))
            });
            let after = state.written;
            namespace.rearm(state);
            let (owner, lock, verdict) = match stood {
                Ok(stood) => stood,
                Err(trouble) => {
                    kernel.registry.drop_if_unused(kernel, &namespace);
                    return Err(trouble.into());
                }
            };
            let kernel = Arc::clone(kernel);
            return Ok((OwnLock { kernel, namespace, owner, lock, wrote: 0 }, after, verdict));
        }
    }
}

impl Drop for OwnLock {
    fn drop(&mut self) {
        let mut state = self.namespace.lock();
        state.written = state.written.max(self.wrote);
        state.give_back(&self.kernel, self.owner, self.lock);
        self.namespace.rearm(state);
        self.kernel.registry.drop_if_unused(&self.kernel, &self.namespace);
    }
}

/// What a write call changes.
fn resources_of(call: &Call) -> Vec<Resource> {
    let intents = call.requests.iter().flat_map(|request| &request.intents);
    let mut resources = Vec::new();
    for Intent { at, action } in intents {
        match action {
            Action::Update { set, lists } => {
                let names = set.iter().map(|(name, _)| &**name).chain(lists.iter().map(|list| &*list.field));
                resources.extend(names.map(|name| field(at, name, Mode::Write)));
            }
            Action::Set { path, value } => resources.push(node(at, path, value.is_none())),
            // A document that comes, goes or is replaced changes the list of its collection as well.
            Action::Create { .. } | Action::Put { .. } | Action::Delete | Action::Restore => {
                resources.extend(whole(at));
            }
        }
    }
    resources
}

/// What a node is changed by being replaced or removed. In a list what comes after it moves up.
fn node(at: &DocumentKey, path: &Path, removes: bool) -> Resource {
    let shifts = removes && path.len() > 1 && path.segments().next_back().is_some_and(node::is_place);
    let mut whole = document_path(at);
    path.segments().take(path.len() - usize::from(shifts)).for_each(|segment| whole.push(segment));
    Resource::new(whole, Mode::Write, Depth::SUBTREE)
}

fn resources_of_keep(keep: &Keep) -> Vec<Resource> {
    match keep {
        Keep::Remove(documents) => documents.iter().flat_map(whole).collect(),
        // It comes into being if it is not there.
        Keep::Merge(at, fields) => {
            let [_, list] = whole(at);
            let node = Resource::new(document_path(at), Mode::Write, Depth::NODE);
            let fields = fields.iter().map(|(name, _)| field(at, name, Mode::Write));
            fields.chain([node, list]).collect()
        }
    }
}

/// A document with all that is in it, to come, go or be replaced.
pub fn whole(at: &DocumentKey) -> [Resource; 2] {
    let collection = Path::from_segments([&*at.collection]);
    [
        Resource::new(document_path(at), Mode::Write, Depth::SUBTREE),
        Resource::new(collection, Mode::Link, Depth::NODE),
    ]
}

/// Where a document is in the tree of locks.
pub fn document_path(at: &DocumentKey) -> Path {
    at.path()
}

/// A field of a document, with all that is in it.
pub fn field(at: &DocumentKey, name: &str, mode: Mode) -> Resource {
    let mut path = document_path(at);
    path.push(name);
    Resource::new(path, mode, Depth::SUBTREE)
}
