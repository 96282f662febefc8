//! One connection to PostgreSQL on a thread of its own. Knows nothing of tables.
//!
//! The thread has a runtime of its own, so a caller may block wherever it runs: on the commit thread, in
//! `block_in_place`, or on a worker of another runtime. Calls of several callers are in flight at a time; PostgreSQL
//! does them one after the other, so a slow one delays those behind it. A caller that cannot wait, like renewals of ownership,
//! opens a link of its own.
//!
//! | a call that | is |
//! | --- | --- |
//! | was not sent before its deadline | [`CallError::Unavailable`]: nothing happened |
//! | was sent, and not answered: connection lost, server stopped, deadline | [`CallError::Unknown`] |
//! | was answered by an error | [`CallError::Refused`]: its transaction was rolled back |
//!
//! A call that is not answered by its deadline takes the connection with it: what is behind it would wait too.

use super::{address::Address, tls::Tls};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, broadcast, mpsc, oneshot, watch},
    time::{Instant, sleep, timeout_at},
};
use tokio_postgres::{
    AsyncMessage, Client, Connection, Row, Statement,
    error::{DbError, Severity, SqlState},
    types::ToSql,
};

/// So many calls wait for the thread; more are refused.
const CALLS_LEN_MAX: usize = 1024;
/// How long to wait before connecting again, at first and at most.
const BACKOFF: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// So many hints are kept for those who are slow to read them.
const HINTS_LEN: usize = 256;
/// The channel of hints that a log has grown.
pub(super) const CHANNEL: &str = "lockwood_log";
/// Why a server does not let a client in.
const REFUSALS: [SqlState; 3] = [
    SqlState::INVALID_CATALOG_NAME,
    SqlState::INVALID_PASSWORD,
    SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
];
/// The largest SQL text whose statement is kept prepared; there are few of them.
const STATEMENTS_LEN_MAX: usize = 256;

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It was never sent.
    #[error("PostgreSQL is unavailable: {0}")]
    Unavailable(String),
    /// It was sent, and may or may not have been done.
    #[error("PostgreSQL did not answer: {0}")]
    Unknown(String),
    /// PostgreSQL answered with an error; nothing was done.
    #[error("PostgreSQL refused a statement: {message} (SQLSTATE {code})")]
    Refused {
        /// The SQLSTATE.
        code: String,
        /// What PostgreSQL says.
        message: String,
    },
    /// An answer, but none that was expected.
    #[error("PostgreSQL has something unexpected: {0}")]
    Unexpected(String),
}

impl CallError {
    /// Whether the transaction was rolled back because of another one, and can be tried again.
    pub(super) fn is_conflict(&self) -> bool {
        let conflicts = [SqlState::T_R_SERIALIZATION_FAILURE, SqlState::T_R_DEADLOCK_DETECTED];
        self.has_code(&conflicts)
    }

    pub(super) fn has_code(&self, codes: &[SqlState]) -> bool {
        matches!(self, CallError::Refused { code, .. } if codes.iter().any(|known| known.code() == code))
    }
}

/// What a link does for a caller.
type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that is made again when it is lost. Ends with the last reference to it.
pub struct Link {
    deadline: Duration,
    jobs: mpsc::Sender<Job>,
    sessions: watch::Receiver<Option<Arc<Session>>>,
    shared: Arc<Shared>,
}

/// What the thread and the callers share.
struct Shared {
    /// Why there is no connection; written by the thread.
    trouble: Mutex<String>,
    /// Whether that is for a person to mend: no such database, or no such user or password.
    is_refused: AtomicBool,
    hints: broadcast::Sender<String>,
    connections: AtomicU64,
}

/// One connection, until it is lost.
pub(super) struct Session {
    client: Client,
    statements: Mutex<HashMap<String, Statement>>,
    /// Warnings that the server has sent.
    warnings: AtomicU64,
    /// Cuts the connection.
    cut: Notify,
}

/// What a call can do.
pub(super) struct Call {
    session: Arc<Session>,
    sent: Arc<AtomicBool>,
    warnings: u64,
}

impl Link {
    /// Starts the thread, which connects. Does not wait for that: calls do. `deadline` is how long a call may take as a rule,
    /// a connection that has to be made first included.
    pub fn open(address: &Address, deadline: Duration) -> io::Result<Arc<Link>> {
        let tls = Tls::new(address)?;
        let (jobs, queue) = mpsc::channel(CALLS_LEN_MAX);
        let (session, sessions) = watch::channel(None);
        let shared = Arc::new(Shared {
            trouble: Mutex::new("not connected yet".to_owned()),
            is_refused: AtomicBool::new(false),
            hints: broadcast::Sender::new(HINTS_LEN),
            connections: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (address, own) = (address.clone(), Arc::clone(&shared));
        std::thread::Builder::new()
            .name("lockwood-postgres".to_owned())
            .spawn(move || runtime.block_on(run(queue, address, tls, session, own)))?;
        Ok(Arc::new(Link { deadline, jobs, sessions, shared }))
    }

    /// Waits until PostgreSQL answers.
    pub async fn ready(&self, deadline: Duration) -> Result<(), CallError> {
        self.call(deadline, |call| async move { call.query("select 1", &[]).await.map(drop) }).await
    }

    /// The same, for a caller that blocks.
    pub fn ready_blocking(&self, deadline: Duration) -> Result<(), CallError> {
        self.call_blocking(deadline, |call| async move { call.query("select 1", &[]).await.map(drop) })
    }

    /// How long a call may take as a rule.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Whether the last attempt to connect met a server that does not let us in.
    pub fn is_refused(&self) -> bool {
        self.shared.is_refused.load(Ordering::Relaxed)
    }

    /// How often a connection was made.
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Hints that a log has grown. They may be late, lost or absent.
    pub(super) fn hints(&self) -> broadcast::Receiver<String> {
        self.shared.hints.subscribe()
    }

    /// Does something on the connection and waits for it.
    pub(super) async fn call<T, F>(
        &self,
        deadline: Duration,
        work: impl FnOnce(Call) -> F + Send + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let (sender, receiver) = oneshot::channel();
        self.start(deadline, work, |answer| drop(sender.send(answer)))?;
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// The same, for a caller that blocks.
    pub(super) fn call_blocking<T, F>(
        &self,
        deadline: Duration,
        work: impl FnOnce(Call) -> F + Send + 'static,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        self.start(deadline, work, move |answer| drop(sender.send(answer)))?;
        receiver.recv().unwrap_or_else(|_| Err(stopped()))
    }

    /// Does something whose outcome does not matter, if there is a connection.
    pub(super) fn tell<F>(&self, deadline: Duration, work: impl FnOnce(Call) -> F + Send + 'static)
    where
        F: Future<Output = Result<(), CallError>> + Send,
    {
        if self.sessions.borrow().is_some() {
            let _ = self.start(deadline, work, drop);
        }
    }

    fn start<T, F>(
        &self,
        deadline: Duration,
        work: impl FnOnce(Call) -> F + Send + 'static,
        answer: impl FnOnce(Result<T, CallError>) + Send + 'static,
    ) -> Result<(), CallError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, CallError>> + Send,
    {
        let (sessions, shared) = (self.sessions.clone(), Arc::clone(&self.shared));
        let by = Instant::now() + deadline;
        let job = Box::pin(async move { answer(perform(sessions, &shared, by, work).await) });
        self.jobs.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CallError::Unavailable("too many calls wait".to_owned()),
            mpsc::error::TrySendError::Closed(_) => stopped(),
        })
    }
}

fn stopped() -> CallError {
    CallError::Unknown("the thread of the connection has stopped".to_owned())
}

async fn perform<T, F: Future<Output = Result<T, CallError>>>(
    mut sessions: watch::Receiver<Option<Arc<Session>>>,
    shared: &Shared,
    by: Instant,
    work: impl FnOnce(Call) -> F,
) -> Result<T, CallError> {
    let is_open = |session: &Option<Arc<Session>>| session.as_ref().is_some_and(|s| !s.client.is_closed());
    let session = match timeout_at(by, sessions.wait_for(is_open)).await {
        Ok(Ok(session)) => session.clone().expect("it was waited for"),
        _ => return Err(CallError::Unavailable(shared.trouble.lock().clone())),
    };
    let sent = Arc::new(AtomicBool::new(false));
    let warnings = session.warnings.load(Ordering::Relaxed);
    let call = Call { session: Arc::clone(&session), sent: Arc::clone(&sent), warnings };
    match timeout_at(by, work(call)).await {
        Ok(answer) => answer,
        Err(_) => {
            session.cut.notify_one();
            let late = "no answer before the deadline".to_owned();
            Err(if sent.load(Ordering::Relaxed) {
                CallError::Unknown(late)
            } else {
                CallError::Unavailable(late)
            })
        }
    }
}

impl Call {
    /// The rows of a statement, which is kept prepared.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, CallError> {
        let statement = self.prepare(sql).await?;
        self.run(self.session.client.query(&statement, parameters)).await
    }

    /// Statements without parameters, not prepared.
    pub(super) async fn batch(&self, sql: &str) -> Result<(), CallError> {
        self.run(self.session.client.batch_execute(sql)).await
    }

    /// A prepared statement. That nothing else was sent yet stays true.
    pub(super) async fn prepare(&self, sql: &str) -> Result<Statement, CallError> {
        if let Some(statement) = self.session.statements.lock().get(sql) {
            return Ok(statement.clone());
        }
        let prepared = self.session.client.prepare(sql).await.map_err(|error| self.read_error(&error))?;
        let mut statements = self.session.statements.lock();
        if statements.len() >= STATEMENTS_LEN_MAX {
            statements.clear();
        }
        statements.insert(sql.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// The connection, for statements that are sent together. To be asked for right before they are.
    pub(super) fn client(&self) -> &Client {
        self.sent.store(true, Ordering::Relaxed);
        &self.session.client
    }

    /// Waits for something that is sent now.
    async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, CallError> {
        self.sent.store(true, Ordering::Relaxed);
        work.await.map_err(|error| self.read_error(&error))
    }

    /// A commit that was cancelled while it waited for a standby is reported as done, with a warning.
    pub(super) fn check_unwarned(&self) -> Result<(), CallError> {
        match self.session.warnings.load(Ordering::Relaxed) == self.warnings {
            true => Ok(()),
            false => Err(CallError::Unknown("the server warned while it committed".to_owned())),
        }
    }

    /// An error of the server says that nothing was done, unless it ends the connection.
    pub(super) fn read_error(&self, error: &tokio_postgres::Error) -> CallError {
        match error.as_db_error() {
            Some(refusal) if !ends_connection(refusal) => CallError::Refused {
                code: refusal.code().code().to_owned(),
                message: refusal.message().to_owned(),
            },
            _ if self.sent.load(Ordering::Relaxed) => CallError::Unknown(say(error)),
            _ => CallError::Unavailable(say(error)),
        }
    }
}

fn ends_connection(error: &DbError) -> bool {
    matches!(error.parsed_severity(), Some(Severity::Fatal | Severity::Panic))
        || *error.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// The message of the server or the system, which the error itself does not show.
fn say(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(refusal), _) => refusal.message().to_owned(),
        (None, Some(source)) => format!("{error}: {source}"),
        (None, None) => error.to_string(),
    }
}

async fn run(
    mut queue: mpsc::Receiver<Job>,
    address: Address,
    tls: Tls,
    session: watch::Sender<Option<Arc<Session>>>,
    shared: Arc<Shared>,
) {
    tokio::spawn(async move { keep_connected(&address, &tls, &session, &shared).await });
    while let Some(job) = queue.recv().await {
        tokio::spawn(job);
    }
}

async fn keep_connected(
    address: &Address,
    tls: &Tls,
    current: &watch::Sender<Option<Arc<Session>>>,
    shared: &Shared,
) {
    let mut backoff = BACKOFF;
    loop {
        let trouble = match connect(address, tls, &shared.is_refused).await {
            Ok((session, connection)) => {
                let mut connection = pin!(drive(connection, &session, &shared.hints));
                let prepared = tokio::select! {
                    trouble = &mut connection => Err(trouble),
                    prepared = prepare_session(&session.client) => prepared,
                };
                match prepared {
                    Ok(()) => {
                        backoff = BACKOFF;
                        shared.connections.fetch_add(1, Ordering::Relaxed);
                        current.send_replace(Some(Arc::clone(&session)));
                        let trouble = tokio::select! {
                            trouble = connection => trouble,
                            () = session.cut.notified() => "no answer before the deadline".to_owned(),
                        };
                        current.send_replace(None);
                        trouble
                    }
                    Err(trouble) => trouble,
                }
            }
            Err(trouble) => trouble,
        };
        *shared.trouble.lock() = trouble;
        sleep(backoff).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
}

type Stream = Connection<tokio_postgres::Socket, super::tls::Encrypted<tokio_postgres::Socket>>;

async fn connect(
    address: &Address,
    tls: &Tls,
    is_refused: &AtomicBool,
) -> Result<(Arc<Session>, Stream), String> {
    let connected = address.config.connect(tls.clone()).await;
    let code = connected.as_ref().err().and_then(tokio_postgres::Error::code);
    is_refused.store(code.is_some_and(|code| REFUSALS.contains(code)), Ordering::Relaxed);
    let (client, connection) = connected.map_err(|error| say(&error))?;
    let (statements, warnings) = (Mutex::new(HashMap::new()), AtomicU64::new(0));
    Ok((Arc::new(Session { client, statements, warnings, cut: Notify::new() }), connection))
}

/// What is acknowledged is durable, whatever the default of the database is; and isolation is what it is expected to be.
async fn prepare_session(client: &Client) -> Result<(), String> {
    match client.query_one("show synchronous_commit", &[]).await {
        Ok(row) => {
            let level: &str = row.try_get(0).map_err(|error| say(&error))?;
            if level == "off" {
                client.batch_execute("set synchronous_commit = on").await.map_err(|error| say(&error))?;
            }
        }
        // A database without the setting has no commits that are not durable.
        Err(error) if error.as_db_error().is_some_and(|refusal| !ends_connection(refusal)) => {}
        Err(error) => return Err(say(&error)),
    }
    match client.batch_execute(&format!("listen {CHANNEL}")).await {
        Err(error) if error.as_db_error().is_none() => Err(say(&error)),
        // A database without notifications is polled.
        _ => Ok(()),
    }
}

/// Moves bytes until the connection is lost; says why.
async fn drive(mut connection: Stream, session: &Session, hints: &broadcast::Sender<String>) -> String {
    loop {
        match poll_fn(|context| connection.poll_message(context)).await {
            None => return "the connection was closed".to_owned(),
            Some(Err(error)) => return say(&error),
            Some(Ok(AsyncMessage::Notice(notice))) => {
                if notice.parsed_severity() == Some(Severity::Warning) {
                    session.warnings.fetch_add(1, Ordering::Relaxed);
                }
            }
            Some(Ok(AsyncMessage::Notification(hint))) => drop(hints.send(hint.payload().to_owned())),
            Some(Ok(_)) => {}
        }
    }
}
