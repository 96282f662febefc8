//! One connection of the session protocol: from the first message to the last. Decodes, calls, encodes;
//! decides nothing about locks.

use crate::{
    frame::{Encoder, Fault},
    shared::Shared,
    socket::{CLOSE_TRY_LATER, Conversation, Flow, Goodbye, NO_MEMORY, Socket},
    stream::Stream,
};
use lockwood_locks::Change;
use lockwood_model::{AddressError, Depth, LockId, NodeAddress, Path, Resource, Wait};
use lockwood_node::{
    metrics::Interface,
    namespace::Reclaimed,
    seat::{Answer, Seat, check_resources},
    secret::Secrets,
    session::{Notice, Opening, Via},
    trouble::Trouble,
    view::Line,
};
use lockwood_wire::{ClientMessage, Code, Reclaim, ServerMessage, WireResource};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::sync::mpsc::UnboundedReceiver;

/// How long a new connection may take to say who it is.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);

/// Close codes of this protocol, from the range kept for applications.
const CLOSE_NO_HELLO: u16 = 4000;
const CLOSE_REPLACED: u16 = 4001;
const CLOSE_BYE: u16 = 1000;
const CLOSE_GOING_AWAY: u16 = 1001;
const CLOSE_BAD_FRAME: u16 = 1002;
const CLOSE_TOO_SLOW: u16 = 1008;
const CLOSE_TOO_LARGE: u16 = 1009;

/// Carries on a connection until it ends.
pub(crate) async fn run(
    shared: Arc<Shared>,
    namespace: &str,
    peer: SocketAddr,
    stream: Stream,
    received: &[u8],
) {
    let mut socket = Socket::new(stream, received, &shared);
    let ending = match introduce(&shared, namespace, peer, &mut socket).await {
        // The seat is given up here, before the last words are said.
        Some(seat) => socket.converse(&mut Talk { shared, seat }).await,
        None => Ok(Goodbye::new(CLOSE_NO_HELLO, "no session was opened")),
    };
    if let Ok(goodbye) = ending {
        let _ = socket.close(goodbye).await;
    }
}

/// Waits for the first message and opens the session it asks for.
async fn introduce(
    shared: &Arc<Shared>,
    namespace: &str,
    peer: SocketAddr,
    socket: &mut Socket,
) -> Option<Seat> {
    let message = match socket.first(HELLO_PATIENCE).await {
        Ok(message) => message,
        Err(fault) => {
            let trouble = match fault {
                Some(fault) => fault_trouble(fault),
                None => Trouble::new(Code::Silent, "no hello or attach arrived in time"),
            };
            socket.replies.text(&trouble.into_message(None, None).encode());
            return None;
        }
    };
    let (id, opened) = match ClientMessage::decode(&message) {
        Ok(ClientMessage::Hello { id, name, abandon_timeout_ms }) => {
            (Some(id), open(shared, namespace, peer, id, name, abandon_timeout_ms))
        }
        Ok(ClientMessage::Attach { id, session, secret, name, abandon_timeout_ms, locks }) => {
            let claim = Claim { session, secret, name, abandon_timeout_ms, locks };
            (Some(id), attach(shared, namespace, peer, id, claim))
        }
        Ok(other) => {
            let message =
                "the first message must be hello (a new session) or attach (one that lost its connection)";
            (Some(id_of(&other)), Err(Trouble::new(Code::HelloFirst, message)))
        }
        Err(error) => (error.id, Err(Trouble::new(Code::BadMessage, error.message))),
    };
    match opened {
        Ok((seat, welcome)) => {
            socket.replies.text(&welcome.encode());
            Some(seat)
        }
        Err(trouble) => {
            socket.replies.text(&shared.told(trouble).into_message(id, None).encode());
            None
        }
    }
}

/// What an `attach` brings.
struct Claim {
    session: String,
    secret: String,
    name: Option<String>,
    abandon_timeout_ms: Option<u64>,
    locks: Vec<Reclaim>,
}

type Opened = Result<(Seat, ServerMessage), Trouble>;

fn open(
    shared: &Arc<Shared>,
    namespace: &str,
    peer: SocketAddr,
    id: u64,
    name: Option<String>,
    abandon_timeout_ms: Option<u64>,
) -> Opened {
    if shared.is_draining() {
        return Err(Trouble::draining());
    }
    let session = Secrets::new_session_id();
    let seat = enter(shared, namespace, peer, session.clone(), name, abandon_timeout_ms, &[])?;
    Ok(welcome(shared, namespace, seat, id, session))
}

fn attach(shared: &Arc<Shared>, namespace: &str, peer: SocketAddr, id: u64, mut claim: Claim) -> Opened {
    if !shared.secrets.matches(namespace, &claim.session, &claim.secret) {
        let message = "the secret does not belong to this session and namespace; welcome gave the right one";
        return Err(Trouble::new(Code::WrongSecret, message));
    }
    let locks = read_reclaims(shared, std::mem::take(&mut claim.locks))?;
    let known = shared.registry.get(namespace).and_then(|space| {
        let admission = space.attach(shared, &claim.session, &locks)?;
        Some(Seat::new(shared, space, admission))
    });
    if let Some(seat) = known {
        return Ok(welcome(shared, namespace, seat, id, claim.session));
    }
    if shared.grace.left_ms(namespace) == 0 {
        let message = "this session is no longer known, and its locks are lost; open a new one with hello";
        return Err(Trouble::new(Code::UnknownSession, message));
    }
    let Claim { session, name, abandon_timeout_ms, .. } = claim;
    let seat = enter(shared, namespace, peer, session.clone(), name, abandon_timeout_ms, &locks)?;
    shared.metrics.sessions_attached.add(1);
    Ok(welcome(shared, namespace, seat, id, session))
}

/// Opens a session, with the locks that it brings.
fn enter(
    shared: &Arc<Shared>,
    namespace: &str,
    peer: SocketAddr,
    session: String,
    name: Option<String>,
    abandon_timeout_ms: Option<u64>,
    locks: &[Reclaimed],
) -> Result<Seat, Trouble> {
    let abandon_timeout_ms = check_opening(shared, name.as_deref(), abandon_timeout_ms)?;
    let stay = shared.admit(abandon_timeout_ms)?;
    Seat::open(shared, namespace, Opening { id: session, name, via: Via::Native, peer, stay }, locks)
}

/// What a session is opened with must be within the limits; gives its abandon timeout.
fn check_opening(
    shared: &Shared,
    name: Option<&str>,
    abandon_timeout_ms: Option<u64>,
) -> Result<u64, Trouble> {
    let limits = &shared.config.limits;
    if let Some(name) = name.filter(|name| name.len() as u64 > limits.session_name_bytes_max) {
        let what = format!("the session's name has {} bytes", name.len());
        return Err(Trouble::over("session_name_bytes_max", limits.session_name_bytes_max, &what));
    }
    let abandon_timeout_ms = abandon_timeout_ms.unwrap_or(shared.config.abandon_timeout_ms);
    if abandon_timeout_ms > limits.abandon_timeout_ms_max {
        let what = format!("the abandon timeout is {abandon_timeout_ms} ms");
        return Err(Trouble::over("abandon_timeout_ms_max", limits.abandon_timeout_ms_max, &what));
    }
    Ok(abandon_timeout_ms)
}

fn welcome(
    shared: &Shared,
    namespace: &str,
    mut seat: Seat,
    id: u64,
    session: String,
) -> (Seat, ServerMessage) {
    let welcome = ServerMessage::Welcome {
        id,
        secret: shared.secrets.of(namespace, &session),
        session,
        abandon_timeout_ms: seat.abandon_timeout_ms,
        grace_ms: shared.grace.left_ms(namespace),
        locks: std::mem::take(&mut seat.held),
    };
    (seat, welcome)
}

fn read_reclaims(shared: &Shared, locks: Vec<Reclaim>) -> Result<Vec<Reclaimed>, Trouble> {
    let limit = shared.config.limits.locks_per_session_max;
    if locks.len() as u64 > limit {
        return Err(Trouble::over("locks_per_session_max", limit, "the session has too many locks"));
    }
    let limit = shared.config.limits.resources_per_session_max;
    if locks.iter().map(|lock| lock.resources.len() as u64).sum::<u64>() > limit {
        let what = "the locks of the session have too many resources";
        return Err(Trouble::over("resources_per_session_max", limit, what));
    }
    let mut read = Vec::with_capacity(locks.len());
    for lock in locks {
        let resources = read_resources(lock.resources.clone())?;
        check_resources(shared, &resources)?;
        read.push((lock, resources));
    }
    Ok(read)
}

/// A session that is open on this connection.
struct Talk {
    shared: Arc<Shared>,
    /// Ended when the client has said `bye`; nothing is heard after that.
    seat: Seat,
}

impl Conversation for Talk {
    fn heard(&mut self, message: &[u8], replies: &mut Encoder) -> Flow {
        let (reply, flow) = match ClientMessage::decode(message) {
            Ok(ClientMessage::Bye { id }) => {
                self.seat.end();
                (ServerMessage::Bye { id }, Flow::Close(CLOSE_BYE, "bye"))
            }
            Ok(message) => {
                let id = id_of(&message);
                let reply = match answer(&self.seat, message) {
                    Ok(Some(reply)) => reply,
                    // It follows as a notice.
                    Ok(None) => return Flow::Continue,
                    Err((trouble, lock)) => self.shared.told(trouble).into_message(Some(id), lock),
                };
                (reply, Flow::Continue)
            }
            Err(error) => {
                (Trouble::new(Code::BadMessage, error.message).into_message(error.id, None), Flow::Continue)
            }
        };
        self.say(&reply, replies);
        flow
    }

    fn noticed(&mut self, notice: Notice, replies: &mut Encoder) -> Flow {
        let (message, flow) = match notice {
            Notice::Granted { request, lock, token, after } => {
                self.seat.granted(after);
                (ServerMessage::Granted { id: request, lock: lock.0, token }, Flow::Continue)
            }
            Notice::Converted { request, lock, token, after } => {
                self.seat.converted(lock, after);
                (ServerMessage::Converted { id: request, lock: lock.0, token }, Flow::Continue)
            }
            Notice::Refused { request, lock, trouble } => {
                (self.shared.told(*trouble).into_message(Some(request), Some(lock.0)), Flow::Continue)
            }
            Notice::Lost { lock, code, message } => {
                (ServerMessage::Lost { lock: lock.0, code, message: message.to_owned() }, Flow::Continue)
            }
            Notice::Draining => (self.draining(), Flow::Continue),
            Notice::Closing => {
                let trouble =
                    Trouble::new(Code::Draining, "the server stops now; connect again when it is back");
                (trouble.into_message(None, None), Flow::Close(CLOSE_GOING_AWAY, "the server stops"))
            }
            Notice::Replaced => {
                let trouble = Trouble::new(Code::Replaced, "another connection has taken over this session");
                (trouble.into_message(None, None), Flow::Close(CLOSE_REPLACED, "replaced"))
            }
        };
        self.say(&message, replies);
        flow
    }

    fn faulted(&mut self, fault: Fault, replies: &mut Encoder) -> Flow {
        self.shared.metrics.requests.refused(Interface::Native, fault_trouble(fault).code);
        fault_answer(fault, replies)
    }

    async fn settled(&mut self) -> Result<(), Goodbye> {
        match self.seat.settled().await {
            true => Ok(()),
            false => Err(Goodbye::unsettled(self.seat.is_sole())),
        }
    }

    fn inbox(&mut self) -> &mut UnboundedReceiver<Notice> {
        &mut self.seat.inbox
    }
}

impl Talk {
    fn say(&self, message: &ServerMessage, replies: &mut Encoder) {
        if let ServerMessage::Error { code, .. } = message {
            self.shared.metrics.requests.refused(Interface::Native, *code);
        }
        replies.text(&message.encode());
    }

    fn draining(&self) -> ServerMessage {
        let timeout_ms = self.shared.config.drain_timeout.as_millis() as u64;
        let message = "the server is about to stop; release what you hold, new locks are refused".to_owned();
        ServerMessage::Draining { timeout_ms, message }
    }
}

type Reply = Result<Option<ServerMessage>, (Trouble, Option<u64>)>;

/// Does what a message of an open session asks for.
fn answer(seat: &Seat, message: ClientMessage) -> Reply {
    match message {
        ClientMessage::Lock { id, resources, wait } => {
            lock(seat, id, resources, wait).map_err(|trouble| (trouble, None))
        }
        ClientMessage::Release { id, lock } => {
            seat.release(LockId(lock)).map_err(about(lock))?;
            Ok(Some(ServerMessage::Released { id, lock }))
        }
        ClientMessage::Cancel { id, lock } => {
            let held = seat.cancel(LockId(lock)).map_err(about(lock))?;
            Ok(Some(ServerMessage::Cancelled { id, lock, held }))
        }
        ClientMessage::Convert { id, lock, mode, resources, wait } => {
            convert(seat, id, lock, (mode, resources), wait).map_err(about(lock))
        }
        ClientMessage::Place { id, lock } => {
            let Line { place, blockers_len, blockers } = seat.line(LockId(lock)).map_err(about(lock))?;
            Ok(Some(ServerMessage::Place { id, lock, place, blockers_len, blockers }))
        }
        ClientMessage::Hello { .. } | ClientMessage::Attach { .. } => {
            let message = "this connection has its session already; open another connection for another one";
            Err((Trouble::new(Code::AlreadyOpen, message), None))
        }
        ClientMessage::Bye { .. } => unreachable!("bye is answered where the connection ends"),
    }
}

fn lock(
    seat: &Seat,
    id: u64,
    resources: Vec<WireResource>,
    wait: Wait,
) -> Result<Option<ServerMessage>, Trouble> {
    let resources = read_resources(resources)?;
    seat.check_names(&resources)?;
    Ok(match seat.lock(resources, wait, id)? {
        Answer::Done { lock, token } => Some(ServerMessage::Granted { id, lock: lock.0, token }),
        Answer::Queued { lock, line } => Some(queued(id, lock, line)),
        Answer::Closing { .. } => None,
    })
}

fn convert(
    seat: &Seat,
    id: u64,
    lock: u64,
    to: (Option<String>, Option<Vec<WireResource>>),
    wait: Wait,
) -> Result<Option<ServerMessage>, Trouble> {
    let change = read_change(to, |resources| seat.check(resources))?;
    let answer = seat.convert(LockId(lock), &change, wait, id);
    let answer = answer.or_else(|trouble| misspelt(trouble, &change, |named| seat.check_names(named)))?;
    Ok(match answer {
        Answer::Done { lock, token } => Some(ServerMessage::Converted { id, lock: lock.0, token }),
        Answer::Queued { lock, line } => Some(queued(id, lock, line)),
        Answer::Closing { .. } => None,
    })
}

/// Tells a path that a lock does not have, and that the schema does not know either, as an unknown field. What the lock
/// has can be converted, even if it is older than the schema.
fn misspelt<T>(
    trouble: Trouble,
    change: &Change,
    check: impl FnOnce(&[Resource]) -> Result<(), Trouble>,
) -> Result<T, Trouble> {
    if let (Code::NoSuchResource, Change::Paths(paths)) = (trouble.code, change) {
        let named = paths.iter().map(|(path, mode)| Resource::new(path.clone(), *mode, Depth::NODE));
        check(&named.collect::<Vec<_>>())?;
    }
    Err(trouble)
}

/// What a lock is to become: one mode for the whole of it, or modes for some of its paths.
fn read_change(
    to: (Option<String>, Option<Vec<WireResource>>),
    check: impl FnOnce(&[Resource]) -> Result<(), Trouble>,
) -> Result<Change, Trouble> {
    match to {
        (Some(mode), None) => Ok(Change::All(read_mode(&mode)?)),
        (None, Some(resources)) => {
            let resources = read_resources(resources)?;
            check(&resources)?;
            Ok(Change::Paths(resources.into_iter().map(|resource| (resource.path, resource.mode)).collect()))
        }
        _ => {
            let message =
                "convert takes either mode (for the whole lock) or resources (for some of its paths)";
            Err(Trouble::new(Code::BadMessage, message))
        }
    }
}

fn queued(id: u64, lock: LockId, line: Line) -> ServerMessage {
    let Line { place, blockers_len, blockers } = line;
    ServerMessage::Queued { id, lock: lock.0, place, blockers_len, blockers }
}

fn about(lock: u64) -> impl FnOnce(Trouble) -> (Trouble, Option<u64>) {
    move |trouble| (trouble, Some(lock))
}

pub(super) fn read_resources(resources: Vec<WireResource>) -> Result<Vec<Resource>, Trouble> {
    if resources.is_empty() {
        return Err(Trouble::new(Code::NoResources, "a lock needs at least one resource: {path, mode}"));
    }
    let read = resources.into_iter().map(WireResource::into_model).collect::<Result<Vec<_>, _>>();
    let read = read.map_err(|error| Trouble::new(error.code, error.message))?;
    read.iter().try_for_each(|resource| check_spelling(&resource.path))?;
    Ok(read)
}

/// A lock on another spelling of a key, or on what no key can be, would not be on a document.
fn check_spelling(path: &Path) -> Result<(), Trouble> {
    // Only escapes have several spellings, and only they and empty parts can be wrong.
    let can_be_wrong = |key: &str| key.is_empty() || key.contains(['%', ':']);
    if !path.segments().nth(1).is_some_and(can_be_wrong) {
        return Ok(());
    }
    match NodeAddress::of(path) {
        Err(error @ (AddressError::Spelling { .. } | AddressError::Key(_))) => {
            Err(Trouble::new(Code::BadKey, error.to_string()))
        }
        _ => Ok(()),
    }
}

fn read_mode(mode: &str) -> Result<lockwood_model::Mode, Trouble> {
    mode.parse().map_err(|error: lockwood_model::ModeError| Trouble::new(Code::BadMode, error.to_string()))
}

/// Says what was wrong, and ends the connection.
fn fault_answer(fault: Fault, replies: &mut Encoder) -> Flow {
    replies.text(&fault_trouble(fault).into_message(None, None).encode());
    match fault {
        Fault::TooLarge { .. } => Flow::Close(CLOSE_TOO_LARGE, "message too large"),
        Fault::BadFrame(reason) => Flow::Close(CLOSE_BAD_FRAME, reason),
        Fault::NoMemory => Flow::Close(CLOSE_TRY_LATER, NO_MEMORY),
        Fault::TooSlow => Flow::Close(CLOSE_TOO_SLOW, "the message took too long"),
    }
}

fn fault_trouble(fault: Fault) -> Trouble {
    match fault {
        Fault::TooLarge { bytes_max } => {
            Trouble::over("message_bytes_max", bytes_max as u64, "the message is too large")
        }
        Fault::BadFrame(reason) => Trouble::new(
            Code::BadMessage,
            format!("this is not a WebSocket frame a client may send: {reason}"),
        ),
        Fault::NoMemory => Trouble::new(
            Code::MemoryInUse,
            "unfinished requests and unread answers hold as much memory as they may (flag --held-bytes-max); try \
             again later",
        ),
        Fault::TooSlow => Trouble::new(
            Code::BodyTimeout,
            "the message took too long to arrive (flag --body-timeout); connect again and send it at once",
        ),
    }
}

fn id_of(message: &ClientMessage) -> u64 {
    match message {
        ClientMessage::Hello { id, .. }
        | ClientMessage::Attach { id, .. }
        | ClientMessage::Lock { id, .. }
        | ClientMessage::Release { id, .. }
        | ClientMessage::Cancel { id, .. }
        | ClientMessage::Convert { id, .. }
        | ClientMessage::Place { id, .. }
        | ClientMessage::Bye { id } => *id,
    }
}
