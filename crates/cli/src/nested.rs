//! `lockwood lock` inside of `lockwood lock`: the inner one asks the outer one, which takes the lock for the owner it is
//! already. Knows nothing of programs.
//!
//! ```text
//!   outer: session ──► lock user/42 ──► program ──► inner: "write user/42/name" ──► program
//!             ▲                                        │
//!             └──────────────── socket ◄───────────────┘
//! ```
//!
//! What the outer lock covers is granted at once, anything else is taken in addition, and the server, which sees
//! one owner, refuses a wait that would never end. The lock ends with the inner command: its connection to the socket
//! is what it holds it by.

use crate::{
    exit::{self, Failure},
    surroundings::Outer,
};
use lockwood_client::{
    Blocker, Code, Error, LeaseRequest, Leases, LockId, Loss, Queued, Request, Resource, Session, Step,
    Token, Wait,
};
use lockwood_wire::WireResource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::time::{Duration, SystemTime};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

/// An order for a lock is not longer than this.
const LINE_BYTES_MAX: usize = 1024 * 1024;
/// How long one request for a lease stands in line for somebody who would wait forever; then it stands in line anew.
const FOREVER_MS: u64 = 3_600_000;
/// So many names are tried for the socket.
const NAMES_LEN: u32 = 10;
const GONE: &str = "the surrounding `lockwood lock` has ended, and its lock with it";

/// What an inner command says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    Lock {
        resources: Vec<WireResource>,
        /// Absent is forever.
        wait_ms: Option<u64>,
    },
    Release,
}

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Queued { lock: u64, place: usize, blockers_len: usize, blockers: Vec<Blocker> },
    Granted { lock: u64, token: u64 },
    Refused { exit_code: u8, message: String },
    Lost { code: Code, message: String },
    Released,
}

/// Takes locks for inner commands, for the owner of the outer lock.
#[derive(Clone)]
pub(crate) enum Granter {
    Session(Session),
    Lease { leases: Leases, owner: String, ttl_ms: u64 },
}

/// Where inner commands send their orders.
pub(crate) struct Supervisor {
    listener: UnixListener,
    name: String,
}

impl Supervisor {
    /// None where the system has no sockets without files; then inner commands are on their own.
    pub(crate) fn bind() -> Option<Supervisor> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        (0..NAMES_LEN).find_map(|attempt| {
            let name = format!("lockwood-{}-{now:x}-{attempt}", std::process::id());
            let listener = UnixListener::bind(format!("\0{name}")).ok()?;
            Some(Supervisor { listener, name })
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Takes orders for as long as it is polled.
    pub(crate) async fn serve(&self, granter: &Granter) {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) if is_of_this_user(&stream) => {
                    tokio::spawn(attend(Line::new(stream), granter.clone()));
                }
                Ok(_) => {}
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Names of sockets are open to everybody on the machine.
fn is_of_this_user(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == rustix::process::getuid().as_raw())
}

/// One message after the other, each a line of JSON.
struct Line {
    input: BufReader<OwnedReadHalf>,
    output: OwnedWriteHalf,
    /// What has come of the next message.
    partial: Vec<u8>,
}

impl Line {
    fn new(stream: UnixStream) -> Line {
        let (input, output) = stream.into_split();
        Line { input: BufReader::new(input), output, partial: Vec::new() }
    }

    async fn say(&mut self, message: &impl Serialize) -> std::io::Result<()> {
        let mut text = serde_json::to_vec(message).expect("orders and answers are valid JSON");
        text.push(b'\n');
        self.output.write_all(&text).await
    }

    /// The next message; none if the other side is gone or makes no sense. May be dropped and called again.
    async fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            let came = self.input.fill_buf().await.ok().filter(|came| !came.is_empty())?;
            let end = came.iter().position(|byte| *byte == b'\n');
            let len = end.map_or(came.len(), |end| end + 1);
            self.partial.extend_from_slice(&came[..len]);
            self.input.consume(len);
            if end.is_some() {
                return serde_json::from_slice(&std::mem::take(&mut self.partial)).ok();
            }
            if self.partial.len() > LINE_BYTES_MAX {
                return None;
            }
        }
    }
}

/// Does what an inner command orders, until it is gone. The lock goes with it.
async fn attend(mut line: Line, granter: Granter) {
    let Some(Order::Lock { resources, wait_ms }) = line.hear().await else { return };
    let resources: Result<Vec<Resource>, _> = resources.into_iter().map(WireResource::into_model).collect();
    // It was read by the same program, so it can be read here.
    let Ok(resources) = resources else { return };
    match granter {
        Granter::Session(session) => attend_session(line, &session, resources, wait_ms).await,
        Granter::Lease { leases, owner, ttl_ms } => {
            let resources = resources.iter().map(WireResource::from).collect();
            let request = LeaseRequest {
                owner,
                resources,
                ttl_ms,
                wait_ms: Some(wait_ms.unwrap_or(FOREVER_MS)),
                poll_ms: None,
                note: None,
            };
            attend_lease(line, &leases, &request, wait_ms.is_none()).await;
        }
    }
}

async fn attend_session(mut line: Line, session: &Session, resources: Vec<Resource>, wait_ms: Option<u64>) {
    let wait = match wait_ms {
        None => Wait::Forever,
        Some(0) => Wait::Never,
        Some(wait_ms) => Wait::Millis(wait_ms),
    };
    let mut waiting = session.ask(Request { resources, wait });
    let lock = loop {
        let step = tokio::select! {
            step = waiting.next() => step,
            // Nothing is said while waiting; dropping the request leaves the queue.
            _ = line.hear::<Order>() => return,
        };
        match step {
            Ok(Step::Granted(lock)) => break lock,
            Ok(Step::Queued(Queued { lock, place, blockers_len, blockers })) => {
                let told = Told::Queued { lock: lock.0, place, blockers_len, blockers };
                if line.say(&told).await.is_err() {
                    return;
                }
            }
            Err(error) => return refuse(&mut line, &error).await,
        }
    };
    let granted = line.say(&Told::Granted { lock: lock.id().0, token: lock.token().0 }).await;
    let order = match granted {
        Ok(()) => tokio::select! {
            order = line.hear() => order,
            loss = lock.lost() => return tell_loss(&mut line, loss).await,
        },
        Err(_) => None,
    };
    let released = lock.release().await;
    if let Some(Order::Release) = order {
        tell_release(&mut line, released).await;
    }
}

async fn attend_lease(mut line: Line, leases: &Leases, request: &LeaseRequest, forever: bool) {
    let lease = loop {
        let held = tokio::select! {
            held = leases.hold(request) => held,
            _ = line.hear::<Order>() => return,
        };
        match held {
            Ok(lease) => break lease,
            Err(error) if forever && error.code() == Some(Code::Timeout) => {}
            Err(error) => return refuse(&mut line, &error).await,
        }
    };
    let granted = line.say(&Told::Granted { lock: lease.lock().0, token: lease.token().0 }).await;
    let order = match granted {
        Ok(()) => tokio::select! {
            order = line.hear() => order,
            loss = lease.lost() => return tell_loss(&mut line, loss).await,
        },
        Err(_) => None,
    };
    // What the owner had before is the outer command's to release.
    let released = match lease.is_reentrant() {
        true => Ok(()),
        false => lease.release().await,
    };
    if let Some(Order::Release) = order {
        tell_release(&mut line, released).await;
    }
}

// Whoever does not hear it is gone, and so is its lock.

async fn refuse(line: &mut Line, error: &Error) {
    let Failure { code, message, .. } = Failure::from(error);
    let _ = line.say(&Told::Refused { exit_code: code, message }).await;
}

async fn tell_loss(line: &mut Line, loss: Loss) {
    let _ = line.say(&Told::Lost { code: loss.code, message: loss.message }).await;
    while line.hear::<Order>().await.is_some() {}
}

async fn tell_release(line: &mut Line, released: Result<(), Error>) {
    match released {
        Ok(()) => drop(line.say(&Told::Released).await),
        Err(Error::Lost(loss)) => tell_loss(line, loss).await,
        Err(error) => refuse(line, &error).await,
    }
}

/// A lock that a surrounding `lockwood lock` is to take for this command.
pub(crate) struct Ordered(Line);

/// What becomes of it.
pub(crate) enum Progress {
    Queued(Queued),
    Granted { lock: LockId, token: Token },
}

impl Ordered {
    /// None if the surrounding command cannot be reached from here.
    pub(crate) async fn send(outer: &Outer, resources: &[Resource], wait: Wait) -> Option<Ordered> {
        let stream = UnixStream::connect(format!("\0{}", outer.socket.as_ref()?)).await.ok()?;
        if !is_of_this_user(&stream) {
            return None;
        }
        let mut line = Line::new(stream);
        let wait_ms = match wait {
            Wait::Forever => None,
            Wait::Never => Some(0),
            Wait::Millis(wait_ms) => Some(wait_ms),
        };
        let resources = resources.iter().map(WireResource::from).collect();
        line.say(&Order::Lock { resources, wait_ms }).await.ok()?;
        Some(Ordered(line))
    }

    /// The next thing that happens; may be dropped and called again.
    pub(crate) async fn next(&mut self) -> Result<Progress, Failure> {
        match self.0.hear().await {
            Some(Told::Queued { lock, place, blockers_len, blockers }) => {
                Ok(Progress::Queued(Queued { lock: LockId(lock), place, blockers_len, blockers }))
            }
            Some(Told::Granted { lock, token }) => {
                Ok(Progress::Granted { lock: LockId(lock), token: Token(token) })
            }
            Some(Told::Refused { exit_code, message }) => Err(Failure::new(exit_code, message)),
            Some(Told::Lost { message, .. }) => Err(Failure::new(exit::NOT_OBTAINED, message)),
            Some(Told::Released) | None => Err(Failure::new(exit::UNAVAILABLE, GONE)),
        }
    }

    /// The lock, once it is granted.
    pub(crate) fn held(self) -> Nested {
        Nested(Mutex::new(self.0))
    }
}

/// A lock that a surrounding `lockwood lock` holds for this command. It ends with this, at the latest.
pub(crate) struct Nested(Mutex<Line>);

impl Nested {
    /// Resolves when the lock is gone although it was not released.
    pub(crate) async fn lost(&self) -> Loss {
        match self.0.lock().await.hear().await {
            Some(Told::Lost { code, message }) => Loss { code, message },
            _ => gone(),
        }
    }

    pub(crate) async fn release(self) -> Result<(), Error> {
        let mut line = self.0.into_inner();
        if line.say(&Order::Release).await.is_err() {
            return Err(Error::Lost(gone()));
        }
        match line.hear().await {
            Some(Told::Released) => Ok(()),
            Some(Told::Lost { code, message }) => Err(Error::Lost(Loss { code, message })),
            Some(Told::Refused { message, .. }) => Err(Error::BadAnswer(message)),
            _ => Err(Error::Lost(gone())),
        }
    }
}

fn gone() -> Loss {
    Loss { code: Code::LockLost, message: GONE.to_owned() }
}
