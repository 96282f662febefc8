//! What the session has asked for and what it holds, and what to say about it. Knows nothing of sockets,
//! and of time only what it is told.

use crate::{
    error::{Error, Loss, Refusal},
    session::{Draining, Queued},
};
use lockwood_model::{LockId, Mode, Path, Resource, Token, Wait};
use lockwood_wire::{ClientMessage, Code, HeldLock, Reclaim, ServerMessage, WireResource};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

/// How much longer than its own wait a request outlives a lost connection, so that a short interruption
/// does not fail a request that would not wait at all.
const OFFLINE_PATIENCE: Duration = Duration::from_secs(2);

type Reply<T> = oneshot::Sender<Result<T, Error>>;

/// What the handles want.
pub(crate) enum Command {
    Lock {
        id: u64,
        resources: Vec<Resource>,
        wait: Wait,
        grant: Reply<Grant>,
        queued: watch::Sender<Option<Queued>>,
    },
    Convert {
        id: u64,
        key: u64,
        change: Change,
        wait: Wait,
        reply: Reply<Token>,
    },
    Place {
        id: u64,
        key: u64,
        reply: Reply<Queued>,
    },
    Release {
        id: u64,
        key: u64,
        reply: Reply<()>,
    },
    /// Nobody waits for the answer to `id`, or nobody has the lock that `id` asked for.
    Forget {
        id: u64,
    },
    Close {
        id: u64,
        reply: Reply<()>,
    },
}

/// Which resources of a lock get which mode. As at the server, this is about nodes, not child lists.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    All(Mode),
    Paths(Vec<(Path, Mode)>),
}

/// A granted lock on its way to its user.
pub(crate) struct Grant {
    pub(crate) key: u64,
    pub(crate) status: watch::Receiver<Status>,
}

/// What a user can see of a held lock.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Status {
    pub(crate) lock: LockId,
    pub(crate) token: Token,
    pub(crate) loss: Option<Loss>,
}

/// Requests without an answer, locks held, and messages to be sent.
///
/// A lock is named by its *key*, the number of the message that asked for it: other than the lock's own
/// number it is known from the start and never changes. A key is in `asked` while the lock waits, then in
/// `held` until its end is asked for; then the lock is in `asked` again, as a release.
pub(crate) struct Ledger {
    /// By message number, so in the order of asking.
    asked: BTreeMap<u64, Asked>,
    held: HashMap<u64, Held>,
    /// Messages in the order they must be sent; empty while offline, for [`Ledger::resume`] says it all
    /// again.
    pub(crate) outbox: VecDeque<ClientMessage>,
    online: bool,
    ids: Arc<AtomicU64>,
}

enum Asked {
    Lock(AskedLock),
    Convert(AskedConvert),
    Place {
        key: u64,
        reply: Reply<Queued>,
    },
    Release {
        lock: u64,
        reply: Option<Reply<()>>,
    },
    /// Ends the waiting of a conversion.
    Cancel {
        key: u64,
        convert: u64,
    },
    Bye {
        reply: Option<Reply<()>>,
    },
}

struct AskedLock {
    resources: Vec<Resource>,
    wait: Wait,
    asked_at: Instant,
    /// Nothing if nobody wants the lock any more.
    grant: Option<Reply<Grant>>,
    queued: watch::Sender<Option<Queued>>,
    /// The number, once it is known.
    lock: Option<u64>,
    sent: bool,
}

struct AskedConvert {
    key: u64,
    change: Change,
    wait: Wait,
    asked_at: Instant,
    reply: Option<Reply<Token>>,
    /// It was sent on an earlier connection, so the server may know it already.
    again: bool,
}

struct Held {
    lock: u64,
    token: u64,
    resources: Vec<Resource>,
    status: watch::Sender<Status>,
}

/// What a message means beyond this ledger.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    None,
    Draining(Draining),
    /// The session belongs to another connection now.
    Replaced(String),
    /// The server complains about the connection as a whole; it will probably close it.
    Complaint(String),
    /// The session is over, as asked.
    Ended,
}

impl Ledger {
    pub(crate) fn new(ids: Arc<AtomicU64>) -> Ledger {
        Ledger { asked: BTreeMap::new(), held: HashMap::new(), outbox: VecDeque::new(), online: false, ids }
    }

    pub(crate) fn holds_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// True when somebody waits for an answer of the server.
    pub(crate) fn needs_server(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The locks to be put back if the server has restarted.
    pub(crate) fn reclaims(&self) -> Vec<Reclaim> {
        let mut locks: Vec<Reclaim> = self
            .held
            .values()
            .map(|held| Reclaim {
                lock: held.lock,
                token: held.token,
                resources: held.resources.iter().map(WireResource::from).collect(),
            })
            .collect();
        locks.sort_unstable_by_key(|reclaim| reclaim.lock);
        locks
    }

    /// Takes a command of a handle. A request about a lock that is gone gets no answer: its handle knows
    /// the reason.
    pub(crate) fn command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Lock { id, resources, wait, grant, queued } => {
                let sent = self.online;
                let grant = Some(grant);
                let lock = AskedLock { resources, wait, asked_at: now, grant, queued, lock: None, sent };
                self.send(lock.message(id, now));
                self.asked.insert(id, Asked::Lock(lock));
            }
            Command::Convert { id, key, change, wait, reply } => {
                let Some(held) = self.held.get(&key) else { return };
                let reply = Some(reply);
                let convert = AskedConvert { key, change, wait, asked_at: now, reply, again: false };
                let message = convert.message(id, held.lock, now);
                self.send(message);
                self.asked.insert(id, Asked::Convert(convert));
            }
            Command::Place { id, key, reply } => self.ask_place(id, key, reply),
            Command::Release { id, key, reply } => {
                let Some(held) = self.take_held(key) else { return };
                self.ask_release(id, held.lock, Some(reply));
            }
            Command::Forget { id } => self.forget(id),
            Command::Close { id, reply } => self.bye(id, Some(reply)),
        }
    }

    /// Ends the session.
    pub(crate) fn bye(&mut self, id: u64, reply: Option<Reply<()>>) {
        self.send(ClientMessage::Bye { id });
        self.asked.insert(id, Asked::Bye { reply });
    }

    fn ask_place(&mut self, id: u64, key: u64, reply: Reply<Queued>) {
        let waiting = match self.asked.get(&key) {
            Some(Asked::Lock(asked)) => asked.lock,
            _ => None,
        };
        match waiting.or_else(|| self.held.get(&key).map(|held| held.lock)) {
            Some(lock) => {
                self.send(ClientMessage::Place { id, lock });
                self.asked.insert(id, Asked::Place { key, reply });
            }
            None if self.asked.contains_key(&key) => {
                let message = "the server has not put the request in line yet; wait for it to be queued";
                let _ = reply.send(Err(Refusal::new(Code::UnknownLock, message).into()));
            }
            None => {}
        }
    }

    fn ask_release(&mut self, id: u64, lock: u64, reply: Option<Reply<()>>) {
        self.send(ClientMessage::Release { id, lock });
        self.asked.insert(id, Asked::Release { lock, reply });
    }

    /// Ends a lock that nobody wants.
    fn drop_lock(&mut self, lock: u64) {
        let id = self.next_id();
        self.ask_release(id, lock, None);
    }

    fn forget(&mut self, id: u64) {
        if let Some(held) = self.take_held(id) {
            return self.drop_lock(held.lock);
        }
        let Some(mut asked) = self.asked.remove(&id) else { return };
        match &mut asked {
            Asked::Lock(AskedLock { lock: Some(lock), .. }) => return self.drop_lock(*lock),
            // Its number is not known yet; the lock is ended as soon as it is.
            Asked::Lock(lock) if lock.sent => lock.grant = None,
            Asked::Convert(convert) if self.held.contains_key(&convert.key) => {
                convert.reply = None;
                let key = convert.key;
                self.cancel(key, id);
            }
            Asked::Lock(_) | Asked::Convert(_) | Asked::Place { .. } => return,
            Asked::Release { reply, .. } | Asked::Bye { reply } => *reply = None,
            Asked::Cancel { .. } => {}
        }
        self.asked.insert(id, asked);
    }

    fn cancel(&mut self, key: u64, convert: u64) {
        let Some(held) = self.held.get(&key) else { return };
        let lock = held.lock;
        let id = self.next_id();
        self.send(ClientMessage::Cancel { id, lock });
        self.asked.insert(id, Asked::Cancel { key, convert });
    }

    /// Takes a message of the server.
    pub(crate) fn message(&mut self, message: ServerMessage) -> News {
        match message {
            ServerMessage::Granted { id, lock, token } => self.granted(id, lock, token),
            ServerMessage::Queued { id, lock, place, blockers_len, blockers } => {
                self.queued(id, Queued { lock: LockId(lock), place, blockers_len, blockers });
            }
            ServerMessage::Place { id, lock, place, blockers_len, blockers } => {
                if let Some(Asked::Place { reply, .. }) = self.asked.remove(&id) {
                    let _ = reply.send(Ok(Queued { lock: LockId(lock), place, blockers_len, blockers }));
                }
            }
            ServerMessage::Converted { id, token, .. } => self.converted(id, token),
            ServerMessage::Released { id, .. } => {
                if let Some(Asked::Release { reply: Some(reply), .. }) = self.asked.remove(&id) {
                    let _ = reply.send(Ok(()));
                }
            }
            ServerMessage::Cancelled { id, .. } => {
                if let Some(Asked::Cancel { convert, .. }) = self.asked.remove(&id) {
                    self.asked.remove(&convert);
                }
            }
            ServerMessage::Lost { lock, code, message } => self.lost(lock, &Loss { code, message }),
            ServerMessage::Draining { timeout_ms, message } => {
                return News::Draining(Draining { timeout_ms, message });
            }
            ServerMessage::Error { id, code, message, lock, blockers, cycle } => {
                let refusal = Refusal { lock, blockers, cycle, ..Refusal::new(code, message) };
                match id {
                    Some(id) => self.refused(id, refusal),
                    None if code == Code::Replaced => return News::Replaced(refusal.message),
                    None => return News::Complaint(refusal.to_string()),
                }
            }
            ServerMessage::Bye { id } => {
                if let Some(Asked::Bye { reply }) = self.asked.remove(&id) {
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(()));
                    }
                    return News::Ended;
                }
            }
            ServerMessage::Welcome { .. } => {}
        }
        News::None
    }

    fn granted(&mut self, id: u64, lock: u64, token: u64) {
        let Some(asked) = self.asked.remove(&id) else { return };
        match asked {
            Asked::Lock(AskedLock { grant: None, .. }) => self.drop_lock(lock),
            Asked::Lock(AskedLock { grant: Some(grant), resources, .. }) => {
                let status = Status { lock: LockId(lock), token: Token(token), loss: None };
                let (status, receiver) = watch::channel(status);
                self.held.insert(id, Held { lock, token, resources, status });
                // If nobody takes it, a `Forget` is on its way and releases it.
                let _ = grant.send(Ok(Grant { key: id, status: receiver }));
            }
            other => {
                self.asked.insert(id, other);
            }
        }
    }

    fn queued(&mut self, id: u64, queued: Queued) {
        let Some(Asked::Lock(asked)) = self.asked.get_mut(&id) else { return };
        if asked.grant.is_none() {
            self.asked.remove(&id);
            return self.drop_lock(queued.lock.0);
        }
        asked.lock = Some(queued.lock.0);
        asked.queued.send_replace(Some(queued));
    }

    fn converted(&mut self, id: u64, token: u64) {
        let Some(Asked::Convert(asked)) = self.asked.remove(&id) else { return };
        let Some(held) = self.held.get_mut(&asked.key) else { return };
        held.token = token;
        asked.change.apply(&mut held.resources);
        held.status.send_modify(|status| status.token = Token(token));
        if let Some(reply) = asked.reply {
            let _ = reply.send(Ok(Token(token)));
        }
    }

    fn refused(&mut self, id: u64, refusal: Refusal) {
        let Some(asked) = self.asked.remove(&id) else { return };
        match asked {
            // The server had not noticed the lost connection, so the conversion was waiting all along. Its
            // answer will carry the same number.
            Asked::Convert(convert) if convert.again && refusal.code == Code::AlreadyConverting => {
                self.asked.insert(id, Asked::Convert(convert));
            }
            Asked::Cancel { convert, .. } => {
                self.asked.remove(&convert);
            }
            asked => asked.fail(refusal.into()),
        }
    }

    /// The server answered a request in words this client does not know.
    pub(crate) fn unreadable(&mut self, id: u64, reason: String) {
        if let Some(asked) = self.asked.remove(&id) {
            asked.fail(Error::BadAnswer(reason));
        }
    }

    fn lost(&mut self, lock: u64, loss: &Loss) {
        if let Some(key) = self.held.iter().find(|(_, held)| held.lock == lock).map(|(key, _)| *key) {
            return self.lose(key, loss);
        }
        let about_it = |asked: &Asked| match asked {
            Asked::Lock(asked) => asked.lock == Some(lock),
            Asked::Release { lock: releasing, .. } => *releasing == lock,
            _ => false,
        };
        let waiting = self.asked.iter().find(|(_, asked)| about_it(asked)).map(|(id, _)| *id);
        if let Some(asked) = waiting.and_then(|id| self.asked.remove(&id)) {
            asked.fail(Error::Lost(loss.clone()));
        }
    }

    fn lose(&mut self, key: u64, loss: &Loss) {
        let Some(held) = self.held.remove(&key) else { return };
        held.status.send_modify(|status| status.loss = Some(loss.clone()));
        self.drop_requests_about(key);
    }

    /// The held lock, no longer held as far as this client is concerned.
    fn take_held(&mut self, key: u64) -> Option<Held> {
        let held = self.held.remove(&key)?;
        self.drop_requests_about(key);
        Some(held)
    }

    fn drop_requests_about(&mut self, key: u64) {
        self.asked.retain(|_, asked| match asked {
            Asked::Convert(AskedConvert { key: about, .. })
            | Asked::Place { key: about, .. }
            | Asked::Cancel { key: about, .. } => *about != key,
            Asked::Lock(_) | Asked::Release { .. } | Asked::Bye { .. } => true,
        });
    }

    /// Every held lock is gone. Those the server may still keep are to be released, if it can be told.
    pub(crate) fn lose_all(&mut self, loss: &Loss) {
        let keys: Vec<u64> = self.held.keys().copied().collect();
        for key in keys {
            let lock = self.held[&key].lock;
            self.lose(key, loss);
            if self.online {
                self.drop_lock(lock);
            }
        }
    }

    /// The session itself is gone, and with it its locks; requests for new ones stay.
    pub(crate) fn session_lost(&mut self, loss: &Loss) {
        self.offline();
        self.lose_all(loss);
        let (kept, over) = std::mem::take(&mut self.asked)
            .into_iter()
            .partition(|(_, asked)| matches!(asked, Asked::Lock(AskedLock { grant: Some(_), .. })));
        self.asked = kept;
        let over: BTreeMap<u64, Asked> = over;
        for asked in over.into_values() {
            match asked {
                // What was to end has ended.
                Asked::Release { reply, .. } | Asked::Bye { reply } => {
                    if let Some(reply) = reply {
                        let _ = reply.send(Ok(()));
                    }
                }
                asked => asked.fail(Error::Lost(loss.clone())),
            }
        }
    }

    /// Every request fails.
    pub(crate) fn fail_all(&mut self, error: &Error) {
        self.outbox.clear();
        for asked in std::mem::take(&mut self.asked).into_values() {
            asked.fail(error.clone());
        }
    }

    /// The connection is lost.
    pub(crate) fn offline(&mut self) {
        self.online = false;
        self.outbox.clear();
    }

    /// When the next request runs out of patience with a server that is out of reach.
    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.asked.values().filter_map(Asked::offline_until).min()
    }

    /// Fails the requests that have run out of patience with a server that is out of reach. If the server
    /// granted one of them all the same, [`Ledger::resume`] finds the lock and releases it.
    pub(crate) fn expire(&mut self, now: Instant, error: &Error) {
        let over: Vec<u64> = self
            .asked
            .iter()
            .filter(|(_, asked)| asked.offline_until().is_some_and(|until| until <= now))
            .map(|(id, _)| *id)
            .collect();
        for asked in over.iter().filter_map(|id| self.asked.remove(id)) {
            asked.fail(error.clone());
        }
    }

    /// A connection is there, with the list of the locks the session has. What this ledger holds and the
    /// list lacks is lost; what the list has and nobody here wants is released; what was asked for and is
    /// not in the list is asked for again.
    pub(crate) fn resume(&mut self, locks: Vec<HeldLock>, now: Instant) {
        self.online = true;
        self.outbox.clear();
        let locks = self.resume_held(locks);
        let strays = self.resume_waiting(locks);
        self.resume_releases(strays);
        self.ask_again(now);
    }

    /// Returns the entries that are not locks held here.
    fn resume_held(&mut self, locks: Vec<HeldLock>) -> Vec<HeldLock> {
        let by_lock: HashMap<u64, u64> = self.held.iter().map(|(key, held)| (held.lock, *key)).collect();
        let mut missing: HashMap<u64, ()> = self.held.keys().map(|key| (*key, ())).collect();
        let mut others = Vec::new();
        for entry in locks {
            match (by_lock.get(&entry.was.unwrap_or(entry.lock)), entry.token) {
                (Some(key), Some(token)) if missing.remove(key).is_some() => {
                    let held = self.held.get_mut(key).expect("the key comes from this map");
                    held.adopt(entry, token);
                }
                _ => others.push(entry),
            }
        }
        let loss = Loss {
            code: Code::LockLost,
            message: "the lock was gone when the connection came back: it was abandoned or could not be put \
                      back after a restart; treat the work under it as unprotected"
                .into(),
        };
        for key in missing.into_keys() {
            self.lose(key, &loss);
        }
        others
    }

    /// Settles requests the server has granted or kept in line. Returns the entries that nobody wants.
    fn resume_waiting(&mut self, locks: Vec<HeldLock>) -> Vec<HeldLock> {
        for asked in self.asked.values_mut() {
            if let Asked::Lock(asked) = asked {
                asked.lock = None;
            }
        }
        let mut strays = Vec::new();
        for entry in locks {
            match entry.request.and_then(|request| Some((request, self.asked.get_mut(&request)?))) {
                Some((request, Asked::Lock(asked))) if asked.grant.is_some() && asked.lock.is_none() => {
                    match entry.token {
                        Some(token) => self.granted(request, entry.lock, token),
                        None => asked.lock = Some(entry.lock),
                    }
                }
                _ => strays.push(entry),
            }
        }
        strays
    }

    /// Releases what nobody wants; a release that was under way and whose lock is not listed has happened.
    fn resume_releases(&mut self, strays: Vec<HeldLock>) {
        let mut releases: HashMap<u64, u64> = HashMap::new();
        for (id, asked) in &self.asked {
            if let Asked::Release { lock, .. } = asked {
                releases.insert(*lock, *id);
            }
        }
        for entry in strays {
            match releases.remove(&entry.was.unwrap_or(entry.lock)) {
                Some(id) => {
                    if let Some(Asked::Release { lock, .. }) = self.asked.get_mut(&id) {
                        *lock = entry.lock;
                    }
                    self.send(ClientMessage::Release { id, lock: entry.lock });
                }
                None => self.drop_lock(entry.lock),
            }
        }
        for id in releases.into_values() {
            if let Some(Asked::Release { reply: Some(reply), .. }) = self.asked.remove(&id) {
                let _ = reply.send(Ok(()));
            }
        }
    }

    fn ask_again(&mut self, now: Instant) {
        // Nobody wants these, and the server does not have them either.
        self.asked.retain(|_, asked| !matches!(asked, Asked::Lock(AskedLock { grant: None, .. })));
        let mut messages = Vec::new();
        let number = |held: &HashMap<u64, Held>, key: &u64| held.get(key).map(|held| held.lock);
        let waiting: HashMap<u64, u64> = self
            .asked
            .iter()
            .filter_map(|(id, asked)| match asked {
                Asked::Lock(asked) => Some((*id, asked.lock?)),
                _ => None,
            })
            .collect();
        self.asked.retain(|id, asked| {
            let message = match asked {
                Asked::Lock(asked) => {
                    asked.sent = true;
                    asked.lock.is_none().then(|| asked.message(*id, now))
                }
                Asked::Convert(asked) => {
                    asked.again = true;
                    let lock = number(&self.held, &asked.key);
                    lock.filter(|_| asked.reply.is_some()).map(|lock| asked.message(*id, lock, now))
                }
                Asked::Cancel { key, .. } => {
                    number(&self.held, key).map(|lock| ClientMessage::Cancel { id: *id, lock })
                }
                Asked::Place { key, .. } => {
                    let lock = number(&self.held, key).or_else(|| waiting.get(key).copied());
                    let message = lock.map(|lock| ClientMessage::Place { id: *id, lock });
                    messages.extend(message.clone());
                    // A place in a line that has to be joined anew is no answer to the question.
                    return message.is_some();
                }
                // Said by `resume_releases`.
                Asked::Release { .. } => None,
                Asked::Bye { .. } => Some(ClientMessage::Bye { id: *id }),
            };
            messages.extend(message);
            true
        });
        for message in messages {
            self.send(message);
        }
    }

    fn send(&mut self, message: ClientMessage) {
        if self.online {
            self.outbox.push_back(message);
        }
    }

    fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }
}

impl Asked {
    fn fail(self, error: Error) {
        match self {
            Asked::Lock(AskedLock { grant: Some(grant), .. }) => drop(grant.send(Err(error))),
            Asked::Convert(AskedConvert { reply: Some(reply), .. }) => drop(reply.send(Err(error))),
            Asked::Place { reply, .. } => drop(reply.send(Err(error))),
            Asked::Release { reply: Some(reply), .. } | Asked::Bye { reply: Some(reply) } => {
                drop(reply.send(Err(error)));
            }
            Asked::Lock(_)
            | Asked::Convert(_)
            | Asked::Release { .. }
            | Asked::Cancel { .. }
            | Asked::Bye { .. } => {}
        }
    }

    /// Until when the request puts up with a server that is out of reach, if it has a limit of its own.
    fn offline_until(&self) -> Option<Instant> {
        match self {
            Asked::Lock(AskedLock { wait, asked_at, grant: Some(_), .. })
            | Asked::Convert(AskedConvert { wait, asked_at, reply: Some(_), .. }) => match wait {
                Wait::Never => Some(*asked_at + OFFLINE_PATIENCE),
                Wait::Millis(millis) => {
                    asked_at.checked_add(Duration::from_millis(*millis) + OFFLINE_PATIENCE)
                }
                Wait::Forever => None,
            },
            _ => None,
        }
    }
}

impl AskedLock {
    fn message(&self, id: u64, now: Instant) -> ClientMessage {
        let resources = self.resources.iter().map(WireResource::from).collect();
        ClientMessage::Lock { id, resources, wait: rest(self.wait, self.asked_at, now) }
    }
}

impl AskedConvert {
    fn message(&self, id: u64, lock: u64, now: Instant) -> ClientMessage {
        let wait = rest(self.wait, self.asked_at, now);
        match &self.change {
            Change::All(mode) => {
                ClientMessage::Convert { id, lock, mode: Some(mode.to_string()), resources: None, wait }
            }
            Change::Paths(paths) => {
                let resource = |(path, mode): &(Path, Mode)| {
                    WireResource::from(&Resource::new(path.clone(), *mode, lockwood_model::Depth::SUBTREE))
                };
                let resources = Some(paths.iter().map(resource).collect());
                ClientMessage::Convert { id, lock, mode: None, resources, wait }
            }
        }
    }
}

impl Change {
    fn apply(&self, resources: &mut [Resource]) {
        for resource in resources.iter_mut().filter(|resource| !resource.mode.on_child_list()) {
            match self {
                Change::All(mode) => resource.mode = *mode,
                // The last word on a path named twice is the one that counts.
                Change::Paths(paths) => {
                    if let Some((_, mode)) = paths.iter().rev().find(|(path, _)| *path == resource.path) {
                        resource.mode = *mode;
                    }
                }
            }
        }
    }
}

impl Held {
    /// Becomes what the server says it is.
    fn adopt(&mut self, entry: HeldLock, token: u64) {
        self.lock = entry.lock;
        self.token = token;
        if let Ok(resources) = entry.resources.into_iter().map(WireResource::into_model).collect() {
            self.resources = resources;
        }
        self.status.send_modify(|status| {
            status.lock = LockId(entry.lock);
            status.token = Token(token);
        });
    }
}

/// What is left of a wait that began at `asked_at`.
fn rest(wait: Wait, asked_at: Instant, now: Instant) -> Wait {
    let millis = match wait {
        Wait::Millis(0) => return Wait::Never,
        Wait::Millis(millis) => millis,
        other => return other,
    };
    let waited = u64::try_from(now.saturating_duration_since(asked_at).as_millis()).unwrap_or(u64::MAX);
    // A wait that has begun is one: its end is a timeout, and the lock may be free by now.
    Wait::Millis(millis.saturating_sub(waited).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_is_over_before_it_is_asked_for_again_is_still_a_wait() {
        let asked_at = Instant::now();
        let after = |ms| rest(Wait::Millis(500), asked_at, asked_at + Duration::from_millis(ms));
        assert_eq!((after(0), after(200)), (Wait::Millis(500), Wait::Millis(300)));
        assert_eq!((after(500), after(9_000)), (Wait::Millis(1), Wait::Millis(1)));
        assert_eq!(rest(Wait::Millis(0), asked_at, asked_at), Wait::Never);
    }
}
