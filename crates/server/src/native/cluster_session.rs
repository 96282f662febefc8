//! A session on a node of a cluster. Its locks are leases, taken with every shard they are on, whose owner is the
//! session; the node that has the connection keeps them alive. So any node can take the session up again, and what
//! nobody takes up again ends by itself. Decodes, calls, encodes; decides nothing about locks.
//!
//! ```text
//!   message ──► one worker, in order ──► answer
//!                    └── a lock that has to wait ──► a task of its own ──► granted, or not
//! ```

use super::connection::{
    CLOSE_BYE, CLOSE_GOING_AWAY, CLOSE_NO_HELLO, CLOSE_REPLACED, HELLO_PATIENCE, about, check_opening,
    fault_answer, fault_trouble, id_of, misspelt, read_change, read_resources,
};
use crate::{
    cluster::locks::{self, Known},
    frame::{Encoder, Fault},
    lease::{self, LeaseRequest, Which},
    listing::Selection,
    schemas::check_locked_in_place,
    seat::{check_resources, invalid_conversion},
    secret::Secrets,
    session::Notice,
    shared::Shared,
    socket::{Conversation, Flow, Goodbye, Socket},
    trouble::Trouble,
};
use futures_util::FutureExt;
use lockwood_locks::ConvertError;
use lockwood_model::{Json, LeaseVia, LockId, Wait};
use lockwood_wire::{ClientMessage, Code, HeldLock, LeaseAnswer, LockState, ServerMessage, WireResource};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{
        Notify,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot, watch,
    },
    task::{AbortHandle, JoinSet},
};

/// How long locks stay beyond the abandon timeout if the node that keeps them alive is gone too.
const MARGIN_MS: u64 = 20_000;
/// How often they are kept alive. Much less than the margin, so that a few attempts may fail.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// How many messages of a session wait for the one before them.
const PENDING_LEN_MAX: usize = 1000;
/// How many locks of a session are asked for at a time when it is taken up again.
const PAGE_LEN: usize = 100;

/// The sessions that are connected to this node.
#[derive(Default)]
pub(crate) struct Sessions {
    seats: Mutex<HashMap<(String, String), Seated>>,
    next: AtomicU64,
}

struct Seated {
    seat: u64,
    outbox: UnboundedSender<Notice>,
}

impl Sessions {
    /// A number for a connection, or for somebody who takes a lock, which no other one has on any node.
    pub(crate) fn new_seat(&self) -> u64 {
        lease::run().wrapping_add(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// A number for something that a connection wants, larger than those before it.
    pub(crate) fn new_turn(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The connection that speaks for a session from now on; one before it is told.
    fn enter(&self, at: (String, String), seat: u64, outbox: UnboundedSender<Notice>) {
        let before = self.seats.lock().insert(at, Seated { seat, outbox });
        before.into_iter().for_each(|before| drop(before.outbox.send(Notice::Replaced)));
    }

    /// A connection to some node speaks for a session from now on. If there is another one to this node it is told, and
    /// the session's locks are no concern of its any more.
    pub(crate) fn replaced(&self, namespace: &str, session: &str, by: u64) {
        let at = (namespace.to_owned(), session.to_owned());
        let mut seats = self.seats.lock();
        if seats.get(&at).is_some_and(|seated| seated.seat != by) {
            let before = seats.remove(&at);
            before.into_iter().for_each(|before| drop(before.outbox.send(Notice::Replaced)));
        }
    }

    /// A connection is gone; true if no other one speaks for the session.
    fn leave(&self, at: &(String, String), seat: u64) -> bool {
        let mut seats = self.seats.lock();
        let is_last = seats.get(at).is_some_and(|seated| seated.seat == seat);
        if is_last {
            seats.remove(at);
        }
        is_last
    }

    /// Tells all of them something.
    pub(crate) fn tell_all(&self, notice: impl Fn() -> Notice) {
        self.seats.lock().values().for_each(|seated| drop(seated.outbox.send(notice())));
    }

    pub(crate) fn len(&self) -> usize {
        self.seats.lock().len()
    }
}

/// Carries on a connection until it ends.
pub(super) async fn run(shared: Arc<Shared>, namespace: &str, mut socket: Socket) {
    let ending = match introduce(&shared, namespace, &mut socket).await {
        Some(mut talk) => socket.converse(&mut talk).await,
        None => Ok(Goodbye::new(CLOSE_NO_HELLO, "no session was opened")),
    };
    if let Ok(goodbye) = ending {
        let _ = socket.close(goodbye).await;
    }
}

async fn introduce(shared: &Arc<Shared>, namespace: &str, socket: &mut Socket) -> Option<Talk> {
    let message = match socket.first(HELLO_PATIENCE).await {
        Ok(message) => message,
        Err(fault) => {
            let silent = || Trouble::new(Code::Silent, "no hello or attach arrived in time");
            let trouble = fault.map_or_else(silent, fault_trouble);
            socket.replies.text(&trouble.into_message(None, None).encode());
            return None;
        }
    };
    let (id, opened) = match ClientMessage::decode(&message) {
        Ok(message) => (Some(id_of(&message)), open(shared, namespace, message).await),
        Err(error) => (error.id, Err(Trouble::new(Code::BadMessage, error.message))),
    };
    match opened {
        Ok((talk, welcome)) => {
            socket.replies.text(&welcome.encode());
            Some(talk)
        }
        Err(trouble) => {
            socket.replies.text(&trouble.into_message(id, None).encode());
            None
        }
    }
}

async fn open(
    shared: &Arc<Shared>,
    namespace: &str,
    message: ClientMessage,
) -> Result<(Talk, ServerMessage), Trouble> {
    let seat = shared.cluster.sessions.new_seat();
    let (id, session, opening) = match message {
        ClientMessage::Hello { id, name, abandon_timeout_ms } => {
            if shared.is_draining() {
                return Err(Trouble::draining());
            }
            (id, Secrets::new_session_id(), (name, abandon_timeout_ms))
        }
        ClientMessage::Attach { id, session, secret, name, abandon_timeout_ms, .. } => {
            if !shared.secrets.matches(namespace, &session, &secret) {
                let message =
                    "the secret does not belong to this session and namespace; welcome gave the right one";
                return Err(Trouble::new(Code::WrongSecret, message));
            }
            shared.metrics.sessions_attached.add(1);
            // What it waited for it asks for again. A node that took something for it may have died on the way, and
            // nobody would ever release that.
            locks::drop_unsettled(shared, namespace, (&session, seat)).await?;
            let timeout_ms = check_opening(shared, name.as_deref(), abandon_timeout_ms)?;
            locks::mend(shared, namespace, (&session, seat), ttl_ms(shared, timeout_ms)).await?;
            (id, session, (name, abandon_timeout_ms))
        }
        _ => {
            let message =
                "the first message must be hello (a new session) or attach (one that lost its connection)";
            return Err(Trouble::new(Code::HelloFirst, message));
        }
    };
    let (name, abandon_timeout_ms) = opening;
    let abandon_timeout_ms = check_opening(shared, name.as_deref(), abandon_timeout_ms)?;
    let stay = Stay::new(shared)?;
    let locks = held(shared, namespace, &session).await?;
    let welcome = ServerMessage::Welcome {
        id,
        secret: shared.secrets.of(namespace, &session),
        session: session.clone(),
        abandon_timeout_ms,
        grace_ms: 0,
        locks: locks.clone(),
    };
    let note = name.map(|name| Json::trusted(&serde_json::json!({ "session": name }).to_string()));
    let who = Who { id: session, seat, note };
    Ok((Talk::new(stay, namespace, who, abandon_timeout_ms, &locks), welcome))
}

/// Whoever waits for an answer gets one, also if there is an error in this server.
async fn to_the_end<T>(work: impl Future<Output = Result<T, Trouble>>) -> Result<T, Trouble> {
    let done = std::panic::AssertUnwindSafe(work).catch_unwind().await;
    done.unwrap_or_else(|_| Err(Trouble::storage_failed()))
}

/// The locks that a session has.
async fn held(shared: &Arc<Shared>, namespace: &str, session: &str) -> Result<Vec<HeldLock>, Trouble> {
    let mut selection = Selection {
        owner: Some(session.to_owned()),
        state: Some(LockState::Granted),
        len_max: PAGE_LEN,
        ..Selection::default()
    };
    let mut held = Vec::new();
    loop {
        let page = locks::page(shared, namespace, &selection).await?;
        held.extend(page.locks.into_iter().map(|info| HeldLock {
            lock: info.lock,
            request: None,
            token: info.token,
            was: None,
            resources: info.resources,
        }));
        match page.next {
            Some(next) => selection.after = Some(next),
            None => return Ok(held),
        }
    }
}

/// A session's right to be here, for as long as this lives.
struct Stay {
    shared: Arc<Shared>,
}

impl Stay {
    fn new(shared: &Arc<Shared>) -> Result<Stay, Trouble> {
        let limit = shared.config.limits.sessions_max;
        let before = shared.sessions.fetch_add(1, Ordering::AcqRel);
        let stay = Stay { shared: Arc::clone(shared) };
        match before < limit {
            true => Ok(stay),
            false => Err(Trouble::too_many("sessions_max", limit, "there are too many sessions")),
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.shared.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A session, and the connection that speaks for it.
struct Who {
    id: String,
    seat: u64,
    note: Option<Json>,
}

/// A session as its tasks share it.
struct Session {
    stay: Stay,
    namespace: String,
    id: String,
    seat: u64,
    note: Option<Json>,
    abandon_timeout_ms: u64,
    outbox: UnboundedSender<Notice>,
    locks: Mutex<BTreeMap<u64, Hold>>,
    /// Whether it has said bye.
    over: AtomicBool,
}

/// What a session has of a lock.
enum Hold {
    Held,
    /// It stands in line; ending the task ends the wait.
    Waits(AbortHandle),
    /// It is held, and waits for stronger modes.
    Converts(Converting),
}

/// How a conversion ends.
type Over = oneshot::Receiver<Result<locks::Ended, Trouble>>;

/// A conversion that waits.
struct Converting {
    stop: Arc<Notify>,
    stage: watch::Receiver<locks::Stage>,
    /// Says how it ended; none once somebody waits for that.
    over: Option<Over>,
    task: AbortHandle,
}

/// A session that is open on this connection.
struct Talk {
    session: Arc<Session>,
    messages: mpsc::Sender<ClientMessage>,
    inbox: UnboundedReceiver<Notice>,
    /// Ends with the connection.
    _tasks: JoinSet<()>,
}

impl Talk {
    fn new(
        stay: Stay,
        namespace: &str,
        Who { id, seat, note }: Who,
        abandon_timeout_ms: u64,
        held: &[HeldLock],
    ) -> Talk {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let (messages, pending) = mpsc::channel(PENDING_LEN_MAX);
        let locks = Mutex::new(held.iter().map(|held| (held.lock, Hold::Held)).collect());
        let namespace = namespace.to_owned();
        let session = Arc::new(Session {
            stay,
            namespace,
            id,
            seat,
            note,
            abandon_timeout_ms,
            outbox: outbox.clone(),
            locks,
            over: AtomicBool::new(false),
        });
        session.shared().cluster.sessions.enter(session.at(), seat, outbox);
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(Arc::clone(&session), pending));
        tasks.spawn(keep_alive(Arc::clone(&session)));
        session.shared().metrics.sessions_opened.add(1);
        Talk { session, messages, inbox, _tasks: tasks }
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let session = Arc::clone(&self.session);
        if session.shared().cluster.sessions.leave(&session.at(), session.seat) {
            tokio::spawn(async move { session.leave().await });
        }
    }
}

impl Conversation for Talk {
    fn heard(&mut self, message: &[u8], replies: &mut Encoder) -> Flow {
        let (id, trouble) = match ClientMessage::decode(message) {
            Ok(message) => {
                let id = id_of(&message);
                let what = "the session has said more than it has heard answers to";
                let limit = PENDING_LEN_MAX as u64;
                match self.messages.try_send(message) {
                    Ok(()) => return Flow::Continue,
                    Err(_) => (Some(id), Trouble::too_many("pending_len_max", limit, what)),
                }
            }
            Err(error) => (error.id, Trouble::new(Code::BadMessage, error.message)),
        };
        replies.text(&trouble.into_message(id, None).encode());
        Flow::Continue
    }

    fn noticed(&mut self, notice: Notice, replies: &mut Encoder) -> Flow {
        let (message, flow) = match notice {
            Notice::Said(message) => {
                let is_over = matches!(*message, ServerMessage::Bye { .. });
                (*message, if is_over { Flow::Close(CLOSE_BYE, "bye") } else { Flow::Continue })
            }
            Notice::Draining => {
                let timeout_ms = self.session.shared().config.drain_timeout.as_millis() as u64;
                let message =
                    "this node is about to stop; take the session up again at another one".to_owned();
                (ServerMessage::Draining { timeout_ms, message }, Flow::Continue)
            }
            Notice::Replaced => {
                let trouble = Trouble::new(Code::Replaced, "another connection has taken over this session");
                (trouble.into_message(None, None), Flow::Close(CLOSE_REPLACED, "replaced"))
            }
            // Nothing else is told to such a session.
            _ => {
                let trouble =
                    Trouble::new(Code::Draining, "this node stops now; connect again to another one");
                (trouble.into_message(None, None), Flow::Close(CLOSE_GOING_AWAY, "the server stops"))
            }
        };
        replies.text(&message.encode());
        flow
    }

    fn faulted(&mut self, fault: Fault, replies: &mut Encoder) -> Flow {
        fault_answer(fault, replies)
    }

    async fn settled(&mut self) -> Result<(), Goodbye> {
        Ok(())
    }

    fn inbox(&mut self) -> &mut UnboundedReceiver<Notice> {
        &mut self.inbox
    }
}

/// How long locks are held for a session, unless they are kept alive.
fn ttl_ms(shared: &Shared, abandon_timeout_ms: u64) -> u64 {
    (abandon_timeout_ms + MARGIN_MS).min(shared.config.limits.lease_ttl_ms_max)
}

type Reply = Result<ServerMessage, (Trouble, Option<u64>)>;

/// Answers messages in the order they came. Ends with the connection, and all waits with it.
async fn serve(session: Arc<Session>, mut pending: mpsc::Receiver<ClientMessage>) {
    let mut waits = JoinSet::new();
    while let Some(message) = pending.recv().await {
        while waits.try_join_next().is_some() {}
        let id = id_of(&message);
        let reply = match message {
            ClientMessage::Lock { id, resources, wait } => {
                match session.lock(id, resources, wait, &mut waits).await {
                    Ok(()) => continue,
                    Err(trouble) => Err((trouble, None)),
                }
            }
            ClientMessage::Convert { id, lock, mode, resources, wait } => {
                match session.convert((id, lock), (mode, resources), wait, &mut waits).await {
                    Ok(()) => continue,
                    Err(trouble) => Err((trouble, Some(lock))),
                }
            }
            ClientMessage::Bye { id } => {
                waits.shutdown().await;
                session.end().await;
                Ok(ServerMessage::Bye { id })
            }
            message => session.answer(message).await,
        };
        session.say(reply.unwrap_or_else(|(trouble, lock)| trouble.into_message(Some(id), lock)));
    }
}

/// Keeps the locks of a session alive, and tells it of those that are lost.
async fn keep_alive(session: Arc<Session>) {
    loop {
        tokio::time::sleep(RENEW_INTERVAL).await;
        let before = session.held();
        if before.is_empty() {
            continue;
        }
        let renewed: BTreeSet<u64> = match session.renew(session.ttl_ms()).await {
            Ok(leases) => leases,
            Err(trouble) if trouble.code == Code::LockLost => BTreeSet::new(),
            Err(trouble) if trouble.code == Code::Replaced => {
                let _ = session.outbox.send(Notice::Replaced);
                return;
            }
            Err(trouble) => {
                tracing::warn!(session = session.id, why = trouble.message, "keep locks alive");
                continue;
            }
        };
        for lock in before.difference(&renewed) {
            // It may have been released meanwhile.
            if session.locks.lock().remove(lock).is_some() {
                let message = "this lock was ended by an operator, or ran out while a node could not be reached; \
                               whatever it guarded may be changed by others now";
                let (lock, code) = (*lock, Code::LockLost);
                session.say(ServerMessage::Lost { lock, code, message: message.to_owned() });
            }
        }
    }
}

impl Session {
    fn shared(&self) -> &Arc<Shared> {
        &self.stay.shared
    }

    fn at(&self) -> (String, String) {
        (self.namespace.clone(), self.id.clone())
    }

    fn say(&self, message: ServerMessage) {
        // Nobody listens any more if the connection is gone.
        let _ = self.outbox.send(Notice::Said(Box::new(message)));
    }

    fn ttl_ms(&self) -> u64 {
        ttl_ms(self.shared(), self.abandon_timeout_ms)
    }

    fn held(&self) -> BTreeSet<u64> {
        let locks = self.locks.lock();
        locks.iter().filter(|(_, hold)| !matches!(hold, Hold::Waits(_))).map(|(lock, _)| *lock).collect()
    }

    fn all(&self) -> Which {
        Which::All { owner: self.id.clone(), seat: Some(self.seat) }
    }

    /// All its locks end so long from now; says which.
    async fn renew(&self, ttl_ms: u64) -> Result<BTreeSet<u64>, Trouble> {
        let renewed = locks::renew(self.shared(), &self.namespace, &self.all(), ttl_ms).await?;
        Ok(renewed.leases.into_iter().map(|lease| lease.lock).collect())
    }

    /// The connection is lost: from now on the abandon timeout runs.
    async fn leave(&self) {
        if self.over.load(Ordering::Acquire) {
            return;
        }
        if self.abandon_timeout_ms == 0 {
            return self.end().await;
        }
        // Also if it has none: one may have been granted just now.
        if let Err(trouble) = self.renew(self.abandon_timeout_ms).await {
            tracing::debug!(session = self.id, why = trouble.message, "leave locks to themselves");
        }
    }

    /// The session is over, with all its locks.
    async fn end(&self) {
        self.over.store(true, Ordering::Release);
        self.locks.lock().clear();
        match locks::release(self.shared(), &self.namespace, &self.all()).await {
            Err(trouble) if !matches!(trouble.code, Code::LockLost | Code::Replaced) => {
                tracing::warn!(session = self.id, why = trouble.message, "release the locks of a session");
            }
            _ => {}
        }
    }

    /// Takes a lock. If it has to wait that is said, and it goes on waiting when this is over.
    async fn lock(
        self: &Arc<Session>,
        id: u64,
        resources: Vec<WireResource>,
        wait: Wait,
        waits: &mut JoinSet<()>,
    ) -> Result<(), Trouble> {
        let request = self.request(resources, wait)?;
        let (mut known, taking) = locks::take_watched(self.shared(), &self.namespace, request, self.seat);
        let mut taking = Box::pin(taking);
        let is_queued = |known: &Option<Known>| known.as_ref().is_some_and(|known| known.line.is_some());
        let queued = tokio::select! {
            biased;
            done = &mut taking => {
                let lock = done?.lock;
                let token = lock.token.ok_or_else(|| Trouble::unknown_lock(lock.lock))?;
                self.locks.lock().insert(lock.lock, Hold::Held);
                self.say(ServerMessage::Granted { id, lock: lock.lock, token });
                return Ok(());
            }
            known = known.wait_for(is_queued) => known.ok().and_then(|known| (*known).clone()),
        };
        let Some(Known { lock, line }) = queued else { return Err(Trouble::storage_failed()) };
        let locks::WireLine { place, blockers_len, blockers } = line.unwrap_or_default();
        // The task has to wait for the mutex, so it says what comes of it after this is said.
        let mut locks = self.locks.lock();
        self.say(ServerMessage::Queued { id, lock, place, blockers_len, blockers });
        let session = Arc::clone(self);
        let task = waits.spawn(async move {
            let done = to_the_end(taking).await;
            session.conclude(id, lock, done);
        });
        locks.insert(lock, Hold::Waits(task));
        Ok(())
    }

    /// A wait is over.
    fn conclude(&self, id: u64, lock: u64, done: Result<LeaseAnswer, Trouble>) {
        let mut locks = self.locks.lock();
        if !locks.contains_key(&lock) {
            // It was released meanwhile.
            return;
        }
        let granted = done.and_then(|answer| answer.lock.token.ok_or_else(|| Trouble::unknown_lock(lock)));
        match granted {
            Ok(token) => {
                locks.insert(lock, Hold::Held);
                self.say(ServerMessage::Granted { id, lock, token });
            }
            Err(trouble) => {
                locks.remove(&lock);
                self.say(trouble.into_message(Some(id), Some(lock)));
            }
        }
    }

    fn request(&self, resources: Vec<WireResource>, wait: Wait) -> Result<LeaseRequest, Trouble> {
        let shared = self.shared();
        if shared.is_draining() {
            return Err(Trouble::draining());
        }
        let limit = shared.config.limits.locks_per_session_max;
        if self.locks.lock().len() as u64 >= limit {
            return Err(Trouble::over("locks_per_session_max", limit, "the session has too many locks"));
        }
        let resources = read_resources(resources)?;
        check_locked_in_place(shared, &self.namespace, &resources)?;
        Ok(LeaseRequest {
            owner: self.id.clone(),
            via: LeaseVia::Native,
            resources,
            ttl_ms: Some(self.ttl_ms()),
            wait,
            note: self.note.clone(),
        })
    }

    async fn answer(&self, message: ClientMessage) -> Reply {
        match message {
            ClientMessage::Release { id, lock } => {
                self.release(lock).await.map_err(about(lock))?;
                Ok(ServerMessage::Released { id, lock })
            }
            ClientMessage::Cancel { id, lock } => {
                let held = self.cancel(lock).await.map_err(about(lock))?;
                Ok(ServerMessage::Cancelled { id, lock, held })
            }
            ClientMessage::Place { id, lock } => self.place(id, lock).await.map_err(about(lock)),
            _ => {
                let message =
                    "this connection has its session already; open another connection for another one";
                Err((Trouble::new(Code::AlreadyOpen, message), None))
            }
        }
    }

    /// Gives a held lock other modes. If it has to wait that is said, and it goes on waiting when this is over.
    async fn convert(
        self: &Arc<Session>,
        (id, lock): (u64, u64),
        to: (Option<String>, Option<Vec<WireResource>>),
        wait: Wait,
        waits: &mut JoinSet<()>,
    ) -> Result<(), Trouble> {
        let change = read_change(to, |resources| check_resources(self.shared(), resources))?;
        self.check_convertible(lock)?;
        let is_draining = self.shared().is_draining();
        let wait = if is_draining { Wait::Never } else { wait };
        let (owner, ttl_ms) = (self.id.clone(), self.ttl_ms());
        let wanted = change.clone();
        let wish = locks::Wish { lock, owner, seat: self.seat, change, wait, ttl_ms };
        let (watched, converting) = locks::convert(self.shared(), &self.namespace, wish);
        let (mut converting, mut stage) = (Box::pin(converting), watched.stage);
        let queued = tokio::select! {
            biased;
            done = &mut converting => Err(done),
            queued = stage.wait_for(|stage| stage.line.is_some()) => Ok(queued.ok().and_then(|stage| stage.line.clone())),
        };
        let line = match queued {
            Ok(Some(line)) => line,
            // It is over, or about to be.
            queued => {
                let done = match queued {
                    Err(done) => done,
                    Ok(_) => converting.await,
                };
                return match done {
                    Err(trouble) if is_draining && trouble.code == Code::Locked => Err(Trouble::draining()),
                    Err(trouble) if trouble.code == Code::LockLost => Err(Trouble::unknown_lock(lock)),
                    Err(trouble) => misspelt(trouble, &wanted, |named| {
                        check_locked_in_place(self.shared(), &self.namespace, named)
                    }),
                    Ok(ended) => {
                        self.say_converted((id, lock), ended);
                        Ok(())
                    }
                };
            }
        };
        let locks::WireLine { place, blockers_len, blockers } = line;
        // The task has to wait for the mutex, so it says what comes of it after this is said.
        let mut locks = self.locks.lock();
        self.say(ServerMessage::Queued { id, lock, place, blockers_len, blockers });
        let (session, (sender, over)) = (Arc::clone(self), oneshot::channel());
        let task = waits.spawn(async move {
            let done = to_the_end(converting).await;
            session.conclude_conversion((id, lock), done.clone());
            let _ = sender.send(done);
        });
        locks.insert(lock, Hold::Converts(Converting { stop: watched.stop, stage, over: Some(over), task }));
        Ok(())
    }

    fn check_convertible(&self, lock: u64) -> Result<(), Trouble> {
        let error = match self.locks.lock().get(&lock) {
            Some(Hold::Held) => return Ok(()),
            Some(Hold::Waits(_)) => ConvertError::NotGranted,
            Some(Hold::Converts(_)) => ConvertError::AlreadyConverting,
            None => ConvertError::UnknownLock,
        };
        Err(invalid_conversion(LockId(lock), error))
    }

    /// The wait for stronger modes is over.
    fn conclude_conversion(&self, (id, lock): (u64, u64), done: Result<locks::Ended, Trouble>) {
        let mut locks = self.locks.lock();
        if !locks.contains_key(&lock) {
            // It was released meanwhile.
            return;
        }
        locks.insert(lock, Hold::Held);
        match done {
            Ok(ended) => self.say_converted((id, lock), ended),
            Err(trouble) => self.say(trouble.into_message(Some(id), Some(lock))),
        }
    }

    fn say_converted(&self, (id, lock): (u64, u64), ended: locks::Ended) {
        if let locks::Ended::Converted(token) = ended {
            self.say(ServerMessage::Converted { id, lock, token });
        }
    }

    /// Ends a wait; says whether the lock is still held (it was its conversion that waited).
    async fn cancel(&self, lock: u64) -> Result<bool, Trouble> {
        if !self.held().contains(&lock) {
            return self.release(lock).await.map(|()| false);
        }
        if let Some((over, mut stage)) = self.stop_converting(lock) {
            let ended = tokio::select! {
                biased;
                ended = over => ended.ok(),
                // It is too late; how it ends is told when it does.
                _ = stage.wait_for(|stage| stage.is_settling) => None,
            };
            if ended.transpose()? == Some(locks::Ended::Stopped) {
                return Ok(true);
            }
        }
        let message = format!("lock {lock} does not wait, it is held; release it if it is not wanted");
        Err(Trouble::new(Code::AlreadyGranted, message))
    }

    fn stop_converting(&self, lock: u64) -> Option<(Over, watch::Receiver<locks::Stage>)> {
        match self.locks.lock().get_mut(&lock)? {
            Hold::Converts(converting) => {
                converting.stop.notify_one();
                Some((converting.over.take()?, converting.stage.clone()))
            }
            _ => None,
        }
    }

    /// Ends a lock, held or waiting.
    async fn release(&self, lock: u64) -> Result<(), Trouble> {
        let hold = self.locks.lock().remove(&lock).ok_or_else(|| Trouble::unknown_lock(lock))?;
        if let Hold::Converts(converting) = &hold {
            converting.task.abort();
        }
        let which = Which::Lock { lock: LockId(lock), token: None, owner: Some(self.id.clone()) };
        let released = locks::release(self.shared(), &self.namespace, &which).await;
        if let Hold::Waits(task) = hold {
            task.abort();
            return Ok(());
        }
        match released {
            Err(trouble) if trouble.code == Code::LockLost => Err(Trouble::unknown_lock(lock)),
            released => released.map(drop),
        }
    }

    async fn place(&self, id: u64, lock: u64) -> Result<ServerMessage, Trouble> {
        if !self.locks.lock().contains_key(&lock) {
            return Err(Trouble::unknown_lock(lock));
        }
        let info = locks::one(self.shared(), &self.namespace, lock, None).await?;
        let info = info.ok_or_else(|| Trouble::unknown_lock(lock))?;
        let (place, blockers_len) = (info.place.unwrap_or(0), info.blockers_len.unwrap_or(0));
        // Their numbers are known, who they are was said when it began to wait.
        Ok(ServerMessage::Place { id, lock, place, blockers_len, blockers: Vec::new() })
    }
}
