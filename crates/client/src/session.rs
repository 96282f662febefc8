//! What a user of sessions touches: opening, asking, watching the queue, closing. Knows nothing of how
//! messages travel.

use crate::{
    actor::{self, Endpoint},
    connection::{self, Credentials, Opened},
    error::Error,
    ledger::{Command, Grant, Status},
    lock::Lock,
    nodes::Nodes,
};
use lockwood_model::{Depth, LockId, Mode, Path, Resource, Wait};
use lockwood_wire::Blocker;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{mpsc, oneshot, watch};

/// Where and as whom to open a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Host and port of the server. Of a cluster there may be several, with commas between them: any node takes up
    /// the session again when the one it was opened at is gone.
    pub address: String,
    /// The namespace all locks of the session are in.
    pub namespace: String,
    /// How the session is called in listings.
    pub name: Option<String>,
    /// How long the server keeps the locks when the connection is lost; absent means its default.
    pub abandon_timeout_ms: Option<u64>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            address: "127.0.0.1:7117".into(),
            namespace: "default".into(),
            name: None,
            abandon_timeout_ms: None,
        }
    }
}

/// What to take, all of it or nothing, and how long to wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// What to take.
    pub resources: Vec<Resource>,
    /// How long to wait.
    pub wait: Wait,
}

impl Request {
    /// Nothing yet, to be waited for without end.
    #[expect(clippy::new_without_default, reason = "an empty request is the start of one, not a useful one")]
    pub fn new() -> Request {
        Request { resources: Vec::new(), wait: Wait::Forever }
    }

    /// And a node with everything below it.
    pub fn subtree(self, path: Path, mode: Mode) -> Request {
        self.with(Resource::new(path, mode, Depth::SUBTREE))
    }

    /// And this.
    pub fn with(mut self, resource: Resource) -> Request {
        self.resources.push(resource);
        self
    }

    /// Not longer than this.
    pub fn wait(self, wait: Wait) -> Request {
        Request { wait, ..self }
    }
}

/// Where a waiting lock stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Queued {
    /// The lock.
    pub lock: LockId,
    /// 1 for the next in line; 0 if it does not wait.
    pub place: usize,
    /// How many locks are in the way.
    pub blockers_len: usize,
    /// Some of them, holders first.
    pub blockers: Vec<Blocker>,
}

/// The server is about to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draining {
    /// How long it waits for locks to be released.
    pub timeout_ms: u64,
    /// In words, and what to do.
    pub message: String,
}

/// An owner of locks. All clones are the same owner.
///
/// The session ends with [`Session::close`], or in the background when the last clone and the last of its
/// locks are dropped. While the connection is lost it is sought again in the background; requests wait
/// meanwhile, and locks stay for the abandon timeout.
#[derive(Clone)]
pub struct Session {
    link: Link,
}

/// What every handle needs to reach the task that owns the socket.
#[derive(Clone)]
pub(crate) struct Link {
    /// Unbounded so that a drop can use it. It holds at most one message for every running request, and one
    /// more for every request or lock that was dropped.
    commands: mpsc::UnboundedSender<Command>,
    ids: Arc<AtomicU64>,
    view: watch::Receiver<View>,
}

/// What the task that owns the socket shows of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View {
    pub(crate) session: String,
    pub(crate) connected: bool,
    pub(crate) draining: Option<Draining>,
}

impl Options {
    /// The same with the node that is asked next.
    pub(crate) fn at(&self, nodes: &Nodes) -> Options {
        Options { address: nodes.address().to_owned(), ..self.clone() }
    }
}

impl Session {
    /// Opens a session. Tries every address once: an unreachable server is an error here.
    pub async fn open(options: Options) -> Result<Session, Error> {
        let ids = Arc::new(AtomicU64::new(1));
        let first = ids.fetch_add(1, Ordering::Relaxed);
        let nodes = Nodes::new(&options.address);
        let opened = open_first(&options, &nodes, first).await?;
        let (commands, receiver) = mpsc::unbounded_channel();
        let (view_sender, view) =
            watch::channel(View { session: opened.welcome.session.clone(), connected: true, draining: None });
        let endpoint =
            Endpoint { options, nodes, commands: receiver, ids: Arc::clone(&ids), view: view_sender };
        tokio::spawn(actor::run(endpoint, opened));
        Ok(Session { link: Link { commands, ids, view } })
    }

    /// How the server calls the session. Changes when the session could not be taken up again and another
    /// one had to be opened.
    pub fn id(&self) -> String {
        self.link.view.borrow().session.clone()
    }

    /// False while the connection is lost.
    pub fn connected(&self) -> bool {
        self.link.view.borrow().connected
    }

    /// Takes a lock, waiting as long as the request says. Dropping the future ends the waiting.
    pub async fn lock(&self, request: Request) -> Result<Lock, Error> {
        self.ask(request).granted().await
    }

    /// Asks for a lock and lets the caller watch it wait.
    pub fn ask(&self, request: Request) -> Waiting {
        let (grant, answer) = oneshot::channel();
        let (queued_sender, queued) = watch::channel(None);
        let Request { resources, wait } = request;
        let ask =
            self.link.ask(answer, |id| Command::Lock { id, resources, wait, grant, queued: queued_sender });
        Waiting { link: self.link.clone(), ask, queued, queue_over: false }
    }

    /// Resolves when the server says that it is about to stop: locks should be released soon.
    pub async fn draining(&self) -> Draining {
        let mut view = self.link.view.clone();
        if let Ok(view) = view.wait_for(|view| view.draining.is_some()).await
            && let Some(draining) = &view.draining
        {
            return draining.clone();
        }
        std::future::pending().await
    }

    /// Ends the session and all its locks, and waits for the server to confirm it.
    pub async fn close(&self) -> Result<(), Error> {
        let (reply, answer) = oneshot::channel();
        self.link.ask(answer, |id| Command::Close { id, reply }).answer().await
    }
}

/// A session with the first node that takes it.
async fn open_first(options: &Options, nodes: &Nodes, id: u64) -> Result<Opened, Error> {
    let mut left = nodes.len();
    loop {
        let options = options.at(nodes);
        left -= 1;
        match connection::open(options.clone(), id, None::<Credentials>, Vec::new()).await {
            Err(error) if left > 0 && error.code().is_none_or(|code| code.status() >= 500) => {
                nodes.skip(&options.address);
            }
            opened => return opened,
        }
    }
}

impl Link {
    /// Sends a command that will be answered.
    pub(crate) fn ask<T>(
        &self,
        answer: oneshot::Receiver<Result<T, Error>>,
        command: impl FnOnce(u64) -> Command,
    ) -> Ask<T> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        // A closed channel shows as an answer that never comes.
        let _ = self.commands.send(command(id));
        Ask { id, answer: Some(answer), commands: self.commands.clone() }
    }

    pub(crate) fn forget(&self, id: u64) {
        let _ = self.commands.send(Command::Forget { id });
    }
}

/// A request under way; dropping it tells the task that nobody wants the answer any more.
pub(crate) struct Ask<T> {
    id: u64,
    /// Nothing once it was given.
    answer: Option<oneshot::Receiver<Result<T, Error>>>,
    commands: mpsc::UnboundedSender<Command>,
}

impl<T> Ask<T> {
    /// Waits for the answer; may be dropped and called again.
    pub(crate) async fn answer(&mut self) -> Result<T, Error> {
        let receiver = self.answer.as_mut().ok_or(Error::Closed)?;
        let answer = receiver.await.unwrap_or(Err(Error::Closed));
        self.answer = None;
        answer
    }
}

impl<T> Drop for Ask<T> {
    fn drop(&mut self) {
        if self.answer.is_some() {
            let _ = self.commands.send(Command::Forget { id: self.id });
        }
    }
}

/// A lock that was asked for. Dropping it ends the waiting, and the lock too if it was granted meanwhile.
pub struct Waiting {
    link: Link,
    ask: Ask<Grant>,
    queued: watch::Receiver<Option<Queued>>,
    /// Nobody will report the queue any more; only the answer is still to come.
    queue_over: bool,
}

/// What happens next to a lock that was asked for.
#[derive(Debug)]
pub enum Step {
    /// It stands in line, or stands elsewhere than before.
    Queued(Queued),
    /// It is held; there are no further steps.
    Granted(Lock),
}

impl Waiting {
    /// The next thing that happens; may be dropped and called again without missing anything.
    pub async fn next(&mut self) -> Result<Step, Error> {
        loop {
            tokio::select! {
                biased;
                grant = self.ask.answer() => return Ok(Step::Granted(self.lock(grant?))),
                changed = self.queued.changed(), if !self.queue_over => {
                    self.queue_over = changed.is_err();
                    if let Some(queued) = self.queued.borrow_and_update().clone() && changed.is_ok() {
                        return Ok(Step::Queued(queued));
                    }
                }
            }
        }
    }

    /// The lock, when it is granted.
    pub async fn granted(mut self) -> Result<Lock, Error> {
        let grant = self.ask.answer().await?;
        Ok(self.lock(grant))
    }

    /// Asks where the lock stands now. Before the first [`Step::Queued`] there is nothing to ask about.
    pub async fn place(&self) -> Result<Queued, Error> {
        place(&self.link, self.ask.id).await
    }

    fn lock(&self, grant: Grant) -> Lock {
        Lock::new(self.link.clone(), grant)
    }
}

/// Where the lock that was asked for with the message `key` stands.
pub(crate) async fn place(link: &Link, key: u64) -> Result<Queued, Error> {
    let (reply, answer) = oneshot::channel();
    link.ask(answer, |id| Command::Place { id, key, reply }).answer().await
}

const _: () = {
    /// Handles travel between threads.
    const fn sendable<T: Send + Sync>() {}
    sendable::<Session>();
    sendable::<Lock>();
    sendable::<Waiting>();
    sendable::<Status>();
};
