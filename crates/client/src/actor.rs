//! The task that owns the socket of a session: keeps the connection, and gives up in time when it cannot.
//! Knows nothing of what the messages are about; the ledger does.

use crate::{
    connection::{self, Connection, Credentials, Heard, Opened, Welcome},
    error::{Error, Loss},
    ledger::{Command, Ledger, News},
    nodes::Nodes,
    session::{Options, View},
    text,
};
use lockwood_wire::Code;
use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

/// The first pause between attempts to connect; each is twice the one before it.
const BACKOFF_FIRST: Duration = Duration::from_millis(50);
/// The longest pause between attempts to connect.
const BACKOFF_MAX: Duration = Duration::from_secs(3);
/// Requests wait at least this long for a lost server, even if no lock would survive so long.
const GIVE_UP_MIN: Duration = Duration::from_secs(10);
/// The longest time between two pings.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(10);
/// The longest time without any frame after which a connection counts as dead.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// No connection that seems to be alive is called dead sooner than this, however short the abandon timeout.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// How long a session that nobody has any more may take to say goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(2);

/// What the task shares with the handles.
pub(crate) struct Endpoint {
    pub(crate) options: Options,
    pub(crate) nodes: Nodes,
    pub(crate) commands: mpsc::UnboundedReceiver<Command>,
    pub(crate) ids: Arc<AtomicU64>,
    pub(crate) view: watch::Sender<View>,
}

/// Runs until the session is closed or nobody has it any more.
pub(crate) async fn run(endpoint: Endpoint, opened: Opened) {
    let now = Instant::now();
    let mut actor = Actor {
        ledger: Ledger::new(Arc::clone(&endpoint.ids)),
        endpoint,
        link: Link::Idle,
        credentials: None,
        abandon_timeout: Duration::ZERO,
        confirmed_at: now,
        lost_at: now,
        attempts: 0,
        reason: String::new(),
        life: Life::Wanted,
    };
    actor.opened(opened, now);
    while actor.life != Life::Over {
        let wake = actor.sleep().await;
        let now = Instant::now();
        actor.handle(wake, now);
        actor.check_time(now);
    }
}

/// Everything that can wake the task.
enum Wake {
    /// A handle wants something.
    Command(Command),
    /// The last handle is gone.
    Alone,
    /// The attempt to connect has ended.
    Opened(Box<Result<Opened, Error>>),
    /// A frame arrived.
    Heard(Heard),
    /// The connection broke.
    Broken(String),
    /// Some deadline has passed.
    Time,
}

enum Link {
    /// Nobody needs a connection.
    Idle,
    /// The next attempt comes later.
    Pause { until: Instant },
    /// An attempt is under way.
    Opening(Pin<Box<dyn Future<Output = Result<Opened, Error>> + Send>>),
    /// There is a connection.
    Open(Box<OpenLink>),
}

struct OpenLink {
    connection: Connection,
    heard_at: Instant,
    ping: Ping,
    /// What the server complained of, in case it is about to close the connection for that.
    complaint: Option<String>,
}

/// One ping is out at a time: a server may answer several with one pong.
enum Ping {
    Due { at: Instant },
    Out { number: u64, sent_at: Instant },
}

#[derive(PartialEq, Eq)]
enum Life {
    Wanted,
    /// Nobody has the session any more; it ends with the answer to the `bye`, or at this moment.
    Leaving {
        until: Instant,
    },
    Over,
}

struct Actor {
    endpoint: Endpoint,
    ledger: Ledger,
    link: Link,
    /// The session to be taken up again, if there is one.
    credentials: Option<Credentials>,
    abandon_timeout: Duration,
    /// The server had the session at some moment after this one: it has answered what was sent then. Counted
    /// from sending, not from hearing, because what is heard may have lain in a buffer for long.
    confirmed_at: Instant,
    /// When the connection was lost, or first sought.
    lost_at: Instant,
    /// Attempts to connect since then.
    attempts: u32,
    /// Why the connection, or the last attempt, failed.
    reason: String,
    life: Life,
}

impl Actor {
    async fn sleep(&mut self) -> Wake {
        let deadline = self.next_deadline();
        let Actor { endpoint, ledger, link, life, .. } = self;
        tokio::select! {
            // Frames first: after a long sleep of the whole process they may show that all is well.
            biased;
            wake = link.wake(ledger) => wake,
            command = endpoint.commands.recv(), if *life == Life::Wanted => {
                command.map_or(Wake::Alone, Wake::Command)
            }
            () = sleep_until(deadline) => Wake::Time,
        }
    }

    fn handle(&mut self, wake: Wake, now: Instant) {
        match wake {
            Wake::Command(command) => {
                self.ledger.command(command, now);
                self.connect_if_needed(now);
            }
            Wake::Alone => self.leave(now),
            Wake::Opened(result) => match *result {
                Ok(opened) => self.opened(opened, now),
                Err(error) => self.open_failed(&error, now),
            },
            Wake::Heard(heard) => self.heard(heard, now),
            Wake::Broken(reason) => self.broken(reason, now),
            Wake::Time => {}
        }
    }

    fn connect_if_needed(&mut self, now: Instant) {
        if !matches!(self.link, Link::Idle) || !self.ledger.needs_server() {
            return;
        }
        self.lost_at = now;
        self.attempts = 0;
        self.begin_opening();
    }

    fn begin_opening(&mut self) {
        let id = self.next_id();
        let options = self.endpoint.options.at(&self.endpoint.nodes);
        let attempt = connection::open(options, id, self.credentials.clone(), self.ledger.reclaims());
        self.link = Link::Opening(Box::pin(attempt));
    }

    fn opened(&mut self, opened: Opened, now: Instant) {
        let Opened { connection, welcome, greeted_at } = opened;
        let Welcome { session, secret, abandon_timeout, locks } = welcome;
        self.endpoint.view.send_modify(|view| {
            view.session.clone_from(&session);
            view.connected = true;
            view.draining = None;
        });
        self.credentials = Some(Credentials { session, secret });
        self.abandon_timeout = abandon_timeout;
        self.confirmed_at = greeted_at;
        let ping = Ping::Due { at: greeted_at + self.ping_interval() };
        self.link = Link::Open(Box::new(OpenLink { connection, heard_at: now, ping, complaint: None }));
        self.ledger.resume(locks, now);
    }

    fn open_failed(&mut self, error: &Error, now: Instant) {
        match error.code() {
            Some(Code::UnknownSession | Code::WrongSecret) if self.credentials.is_some() => {
                self.session_lost(&Loss {
                    code: Code::LockLost,
                    message: format!(
                        "the server at {} no longer has this session: {error}; treat the work under its \
                         locks as unprotected",
                        self.endpoint.options.address
                    ),
                });
                self.connect_if_needed(now);
            }
            // A server that says no for its own reasons may say yes later.
            Some(code) if code.status() < 500 => self.give_up(error, now),
            _ => {
                self.reason = error.to_string();
                self.attempts += 1;
                self.link = Link::Pause { until: now + self.pause() };
            }
        }
    }

    /// How long to wait before the next attempt, which goes to another node; each gets its chance before a pause.
    fn pause(&self) -> Duration {
        let nodes = &self.endpoint.nodes;
        nodes.skip(nodes.address());
        let len = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        match self.attempts % len {
            0 => backoff(self.attempts / len),
            _ => Duration::ZERO,
        }
    }

    fn heard(&mut self, heard: Heard, now: Instant) {
        let interval = self.ping_interval();
        let Link::Open(open) = &mut self.link else { return };
        open.heard_at = now;
        match heard {
            Heard::Message(message) => {
                let news = self.ledger.message(message);
                self.news(news);
            }
            Heard::Pong(answered) => {
                if let Ping::Out { number, sent_at } = open.ping
                    && number == answered
                {
                    self.confirmed_at = sent_at;
                    open.ping = Ping::Due { at: sent_at + interval };
                }
            }
            Heard::Unreadable(id, reason) => self.ledger.unreadable(id, reason),
            Heard::Noise => {}
        }
    }

    fn news(&mut self, news: News) {
        match news {
            News::None => {}
            News::Draining(draining) => {
                self.endpoint.view.send_modify(|view| view.draining = Some(draining));
            }
            News::Complaint(complaint) => {
                if let Link::Open(open) = &mut self.link {
                    open.complaint = Some(complaint);
                }
            }
            // To take the session back would only start a quarrel with whoever else has its secret.
            News::Replaced(message) => {
                self.session_lost(&Loss { code: Code::Replaced, message });
                self.connect_if_needed(Instant::now());
            }
            News::Ended => self.life = Life::Over,
        }
    }

    fn broken(&mut self, reason: String, now: Instant) {
        if self.life != Life::Wanted {
            self.life = Life::Over;
            return;
        }
        let complaint = match &mut self.link {
            Link::Open(open) => open.complaint.take(),
            _ => None,
        };
        self.reason = complaint.unwrap_or(reason);
        self.ledger.offline();
        self.lost_at = now;
        self.attempts = 0;
        self.endpoint.view.send_modify(|view| view.connected = false);
        self.link = Link::Pause { until: now + backoff(0) };
    }

    /// The session is gone at the server. The next one is opened when it is needed.
    fn session_lost(&mut self, loss: &Loss) {
        self.link = Link::Idle;
        self.credentials = None;
        self.endpoint.view.send_modify(|view| view.connected = false);
        self.ledger.session_lost(loss);
    }

    /// Nothing more is to be expected of the server: everything asked for and held is over.
    fn give_up(&mut self, error: &Error, now: Instant) {
        let loss = self.loss(now);
        self.ledger.fail_all(error);
        self.session_lost(&loss);
    }

    fn leave(&mut self, now: Instant) {
        let Link::Open(_) = self.link else {
            self.life = Life::Over;
            return;
        };
        let id = self.next_id();
        self.ledger.bye(id, None);
        self.life = Life::Leaving { until: now + GOODBYE_MAX };
    }

    /// Does what the passing of time asks for. [`Actor::next_deadline`] names the moments.
    fn check_time(&mut self, now: Instant) {
        if matches!(self.life, Life::Leaving { until } if until <= now) {
            self.life = Life::Over;
            return;
        }
        if self.ledger.holds_any() && self.belief_ends_at() <= now {
            let loss = self.loss(now);
            self.ledger.lose_all(&loss);
        }
        if self.silence_ends_at().is_some_and(|at| at <= now) {
            self.broken("the server fell silent".into(), now);
        }
        match &mut self.link {
            Link::Pause { until } if *until <= now => self.begin_opening(),
            Link::Open(open) => {
                if matches!(open.ping, Ping::Due { at } if at <= now) {
                    let number = self.endpoint.ids.fetch_add(1, Ordering::Relaxed);
                    open.connection.ping(number);
                    open.ping = Ping::Out { number, sent_at: now };
                }
            }
            Link::Idle | Link::Pause { .. } | Link::Opening(_) => {}
        }
        if self.seeks_connection() {
            let error = self.disconnected(now);
            if self.give_up_at() <= now {
                self.give_up(&error, now);
            } else {
                self.ledger.expire(now, &error);
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let mut deadlines = Vec::with_capacity(4);
        match &self.link {
            Link::Idle | Link::Opening(_) => {}
            Link::Pause { until } => deadlines.push(*until),
            Link::Open(open) => {
                deadlines.extend(self.silence_ends_at());
                if let Ping::Due { at } = open.ping {
                    deadlines.push(at);
                }
            }
        }
        if self.ledger.holds_any() {
            deadlines.push(self.belief_ends_at());
        }
        if self.seeks_connection() {
            deadlines.push(self.give_up_at());
            deadlines.extend(self.ledger.next_expiry());
        }
        if let Life::Leaving { until } = self.life {
            deadlines.push(until);
        }
        deadlines.into_iter().min()
    }

    fn seeks_connection(&self) -> bool {
        matches!(self.link, Link::Pause { .. } | Link::Opening(_))
    }

    /// The server may have granted the locks to others after this moment.
    fn belief_ends_at(&self) -> Instant {
        let belief = match self.link {
            Link::Open(_) => self.abandon_timeout.max(SILENCE_MIN),
            _ => self.abandon_timeout,
        };
        far(self.confirmed_at, belief)
    }

    /// Leaves time to take the session up again.
    fn silence_ends_at(&self) -> Option<Instant> {
        let Link::Open(open) = &self.link else { return None };
        Some(open.heard_at + (self.abandon_timeout / 2).clamp(SILENCE_MIN, SILENCE_MAX))
    }

    fn ping_interval(&self) -> Duration {
        (self.abandon_timeout / 6).clamp(SILENCE_MIN / 6, PING_INTERVAL_MAX)
    }

    fn give_up_at(&self) -> Instant {
        far(self.lost_at, self.abandon_timeout.max(GIVE_UP_MIN))
    }

    fn loss(&self, now: Instant) -> Loss {
        let away = now.saturating_duration_since(self.confirmed_at);
        let reason = if self.reason.is_empty() { "no answer" } else { &self.reason };
        Loss {
            code: Code::LockLost,
            message: format!(
                "the server at {} has been out of reach for {} and keeps the locks of a lost connection for {} \
                 only ({reason}); treat the work under the lock as unprotected",
                self.endpoint.options.address,
                text::span(millis(away)),
                text::span(millis(self.abandon_timeout)),
            ),
        }
    }

    fn disconnected(&self, now: Instant) -> Error {
        Error::Disconnected {
            address: self.endpoint.options.address.clone(),
            away_ms: millis(now.saturating_duration_since(self.lost_at)),
            reason: self.reason.clone(),
        }
    }

    fn next_id(&self) -> u64 {
        self.endpoint.ids.fetch_add(1, Ordering::Relaxed)
    }
}

impl Link {
    async fn wake(&mut self, ledger: &mut Ledger) -> Wake {
        match self {
            Link::Idle | Link::Pause { .. } => std::future::pending().await,
            Link::Opening(attempt) => Wake::Opened(Box::new(attempt.await)),
            Link::Open(open) => match open.connection.exchange(&mut ledger.outbox).await {
                Ok(heard) => Wake::Heard(heard),
                Err(reason) => Wake::Broken(reason),
            },
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// The pause before the attempt of this number, between half and all of its nominal length, so that many
/// clients of one server do not come back all at once.
fn backoff(attempt: u32) -> Duration {
    let nominal = BACKOFF_FIRST.saturating_mul(1 << attempt.min(10)).min(BACKOFF_MAX);
    // Without randomness all pauses are full: slower, not wrong.
    let random = getrandom::u32().unwrap_or(u32::MAX);
    nominal / 2 + (nominal / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// A moment that may be out of every clock's range.
fn far(from: Instant, span: Duration) -> Instant {
    /// As good as never.
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    from + span.min(YEAR)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
