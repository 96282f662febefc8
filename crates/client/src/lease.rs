//! Leases, over plain HTTP: locks with a named owner that outlive connections and restarts of the server.
//! Knows nothing of sessions.

use crate::{
    error::{Error, Loss},
    http::{Admin, LockFilter},
    nodes::Nodes,
    transport::{Call, Target},
};
use hyper::Method;
use lockwood_model::{LockId, Token};
use lockwood_wire::{
    Code, LeaseAnswer, LeaseInfo, LeaseList, LeaseOutcome, LeaseRequest, LockInfo, LockList, ReleaseRequest,
    RenewRequest,
};
use std::time::Duration;
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// A lease is renewed when this part of its time is over.
const RENEW_AT: u32 = 3;
/// A server that could not be reached is asked again after this part of the lease's time.
const RETRY_AT: u32 = 10;
/// How long the last attempt may take, even if the lease must be over by then: the server knows better.
const LAST_ATTEMPT: Duration = Duration::from_secs(1);

/// The leases of one namespace of a server, or of a cluster. Every call is a connection of its own.
///
/// What passes by itself is asked again, as [`Nodes`] says: what is held already is not taken twice, and what
/// was released is released.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lockwood_client::{LeaseRequest, Leases, Mode, PutOptions, Resource, Depth, Store, Terms};
///
/// let leases = Leases::new("127.0.0.1:7117", "default");
/// let user = Resource::new("user/42".parse()?, Mode::Write, Depth::SUBTREE);
/// let lease = leases.hold(&LeaseRequest {
///     owner: "importer".into(),
///     resources: vec![(&user).into()],
///     ttl_ms: 30_000,
///     wait_ms: Some(10_000),
///     poll_ms: None,
///     note: None,
/// }).await?;
/// // A write that shows the token is refused once the lease is over, whatever this process believes.
/// let terms = Terms::default().token(lease.token());
/// # let (store, ann) = (Store::new("", ""), lockwood_client::DocumentKey::new("user", "42".parse()?));
/// # let fields: lockwood_client::wire::Fields = serde_json::from_str("{}")?;
/// store.put(&ann, &fields, &PutOptions { terms, ..PutOptions::default() }).await?;
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leases {
    /// Where to ask.
    pub nodes: Nodes,
    /// The namespace.
    pub namespace: String,
}

impl Leases {
    /// The leases of a namespace. Several addresses have commas between them.
    pub fn new(nodes: impl Into<Nodes>, namespace: impl Into<String>) -> Leases {
        Leases { nodes: nodes.into(), namespace: namespace.into() }
    }

    /// Takes a lease, and waits for it as long as the request says. Dropping the future leaves the line, unless
    /// the request has a `poll_ms`: then the answer may be that it is queued, and it stays in line.
    pub async fn take(&self, request: &LeaseRequest) -> Result<LeaseAnswer, Error> {
        let patience = Duration::from_millis(request.wait_ms.unwrap_or(0));
        let call = Call::with_json(Method::POST, self.target("locks").text, request);
        loop {
            match self.nodes.ask_surely(&call, patience).await {
                // What an attempt before had of it ended with that attempt's connection.
                Err((error, true)) if is_gone(&error) => {}
                Err((error, _)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
    }

    /// The same, and keeps it by renewing it until it is released or dropped.
    pub async fn hold(&self, request: &LeaseRequest) -> Result<Lease, Error> {
        let asked_at = Instant::now();
        let request = LeaseRequest { poll_ms: None, ..request.clone() };
        let answer = self.take(&request).await?;
        let ttl = Duration::from_millis(request.ttl_ms);
        // A lease that was there before may be about to end.
        let left = answer.lock.expires_in_ms.map_or(ttl, Duration::from_millis).min(ttl);
        let until = match answer.outcome {
            LeaseOutcome::Held => asked_at + left,
            LeaseOutcome::Granted | LeaseOutcome::Queued => Instant::now() + left,
        };
        Lease::keep(self.clone(), &answer, ttl, until)
    }

    /// How a lease that stands in line goes on; answers when it is granted, or after this time.
    pub async fn poll(&self, lock: LockId, patience: Duration) -> Result<LockInfo, Error> {
        let target = self.target(&format!("locks/{lock}")).query("poll_ms", Some(patience.as_millis()));
        self.nodes.ask_within(&Call::new(Method::GET, target.text), patience).await
    }

    /// Changes when leases end: this one, by its token or its owner, or all of an owner.
    pub async fn renew(&self, lock: Option<LockId>, request: &RenewRequest) -> Result<Vec<LeaseInfo>, Error> {
        let call = Call::with_json(Method::POST, self.action(lock, "renew"), request);
        self.nodes.ask(&call).await.map(|list: LeaseList| list.leases)
    }

    /// Ends leases: this one, by its token or its owner; those of an owner with the same resources; or all of
    /// an owner. An owner's requests that stand in line leave it.
    pub async fn release(
        &self,
        lock: Option<LockId>,
        request: &ReleaseRequest,
    ) -> Result<Vec<LeaseInfo>, Error> {
        let call = Call::with_json(Method::POST, self.action(lock, "release"), request);
        match self.nodes.ask_surely(&call, Duration::ZERO).await {
            Ok(LeaseList { leases, .. }) => Ok(leases),
            // That it is gone is what an attempt before was to bring about.
            Err((error, true)) if is_gone(&error) => Ok(Vec::new()),
            Err((error, _)) => Err(error),
        }
    }

    /// One page of the locks of the namespace, leases among them; the next one begins after
    /// [`LockList::next`].
    pub async fn list(&self, filter: &LockFilter, after: Option<u64>) -> Result<LockList, Error> {
        Admin { address: self.nodes.to_string() }.locks(&self.namespace, filter, after).await
    }

    fn target(&self, rest: &str) -> Target {
        Target::new(&self.namespace, rest)
    }

    fn action(&self, lock: Option<LockId>, action: &str) -> String {
        let rest = match lock {
            Some(lock) => format!("locks/{lock}/{action}"),
            None => format!("locks/{action}"),
        };
        self.target(&rest).text
    }
}

/// A lease that is renewed in the background. Dropping it only stops that, and it ends when its time is over;
/// [`Lease::release`] ends it now.
#[derive(Debug)]
pub struct Lease {
    leases: Leases,
    lock: LockId,
    token: Token,
    /// Whether its owner had it before it was asked for.
    reentrant: bool,
    lost: watch::Receiver<Option<Loss>>,
    renewing: JoinHandle<()>,
}

impl Lease {
    fn keep(leases: Leases, answer: &LeaseAnswer, ttl: Duration, until: Instant) -> Result<Lease, Error> {
        let Some(token) = answer.lock.token.map(Token) else {
            return Err(Error::BadAnswer("a lease that is held has no token".into()));
        };
        let (lock, reentrant) = (LockId(answer.lock.lock), answer.outcome == LeaseOutcome::Held);
        let (tell, lost) = watch::channel(None);
        let renewer = Renewer { leases: leases.clone(), lock, token, ttl, until };
        let renewing = tokio::spawn(async move {
            let loss = renewer.run().await;
            tell.send_replace(Some(loss));
        });
        Ok(Lease { leases, lock, token, reentrant, lost, renewing })
    }

    /// Its number within the namespace.
    pub fn lock(&self) -> LockId {
        self.lock
    }

    /// Its fencing token, the same for as long as it is held.
    pub fn token(&self) -> Token {
        self.token
    }

    /// True if its owner had it already, so that somebody else of that name may rely on it too.
    pub fn is_reentrant(&self) -> bool {
        self.reentrant
    }

    /// Waits until it is lost: it could not be renewed in time, or was ended by somebody else.
    pub async fn lost(&self) -> Loss {
        let mut lost = self.lost.clone();
        let told = lost.wait_for(Option::is_some).await.ok().and_then(|loss| loss.clone());
        match told {
            Some(loss) => loss,
            None => std::future::pending().await,
        }
    }

    /// Ends it. An error says that it was over before, or that the server could not be told.
    pub async fn release(self) -> Result<(), Error> {
        self.renewing.abort();
        let request = ReleaseRequest { token: Some(self.token.0), ..ReleaseRequest::default() };
        self.leases.release(Some(self.lock), &request).await.map(drop)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews one lease for as long as that works.
struct Renewer {
    leases: Leases,
    lock: LockId,
    token: Token,
    ttl: Duration,
    /// When the server must have ended it, as far as is known here.
    until: Instant,
}

impl Renewer {
    async fn run(mut self) -> Loss {
        let mut pause = self.until.saturating_duration_since(Instant::now()).min(self.ttl) / RENEW_AT;
        loop {
            sleep(pause).await;
            match self.renew().await {
                Ok(()) => pause = self.ttl / RENEW_AT,
                Err(error) if is_final(&error) || Instant::now() >= self.until => return loss(&error),
                Err(_) => pause = self.ttl / RETRY_AT,
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Error> {
        // The server counts from a later moment, so it ends no earlier than is believed here.
        let asked_at = Instant::now();
        let ttl_ms = u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX);
        let request = RenewRequest { ttl_ms, owner: None, token: Some(self.token.0) };
        let patience = self.until.saturating_duration_since(asked_at).max(LAST_ATTEMPT);
        match timeout(patience, self.leases.renew(Some(self.lock), &request)).await {
            Ok(renewed) => renewed.map(drop)?,
            Err(_) => {
                let (address, reason) = (self.leases.nodes.to_string(), "no answer in time".to_owned());
                return Err(Error::Unreachable { address, reason });
            }
        }
        self.until = asked_at + self.ttl;
        Ok(())
    }
}

/// Whether asking again is no use.
fn is_final(error: &Error) -> bool {
    error.code().is_some_and(|code| code.status() < 500)
}

/// Whether there is no such lock, or no longer.
fn is_gone(error: &Error) -> bool {
    matches!(error.code(), Some(Code::UnknownLock | Code::LockLost))
}

fn loss(error: &Error) -> Loss {
    match error {
        Error::Refused(refusal) => Loss { code: refusal.code, message: refusal.message.clone() },
        other => Loss {
            code: Code::LockLost,
            message: format!("it could not be renewed before its time was over: {other}"),
        },
    }
}

/// Who a request is done for, and how long it waits for the locks of others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terms {
    /// Tokens of locks the caller holds, all of one owner. If one of them is over, nothing is done.
    pub tokens: Vec<u64>,
    /// How long to wait; the server's default unless given.
    pub wait: Option<Duration>,
}

impl Terms {
    /// Shows one more token.
    pub fn token(mut self, token: Token) -> Terms {
        self.tokens.push(token.0);
        self
    }

    /// Waits so long for the locks of others; not at all if that is nothing.
    pub fn wait(mut self, wait: Duration) -> Terms {
        self.wait = Some(wait);
        self
    }

    /// How long to wait, as requests say it.
    pub fn wait_ms(&self) -> Option<u64> {
        self.wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    }

    /// As query parameters.
    pub(crate) fn on(&self, target: Target) -> Target {
        let tokens: Vec<String> = self.tokens.iter().map(u64::to_string).collect();
        target.query("token", (!tokens.is_empty()).then(|| tokens.join(","))).query("wait_ms", self.wait_ms())
    }

    /// As members of a JSON object, put before those that it has.
    pub(crate) fn inside(&self, object: &str) -> String {
        let mut members = Vec::new();
        if !self.tokens.is_empty() {
            let tokens: Vec<String> = self.tokens.iter().map(u64::to_string).collect();
            members.push(format!("\"tokens\":[{}]", tokens.join(",")));
        }
        members.extend(self.wait_ms().map(|wait_ms| format!("\"wait_ms\":{wait_ms}")));
        match object.trim_start().strip_prefix('{') {
            Some(rest) if !members.is_empty() => {
                let comma = if rest.trim_start().starts_with('}') { "" } else { "," };
                format!("{{{}{comma}{rest}", members.join(","))
            }
            // What is no object is for the server to refuse.
            _ => object.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_put_where_they_belong() {
        let terms = Terms::default().token(Token(5)).token(Token(7)).wait(Duration::from_millis(20));
        assert_eq!(terms.on(Target::new("n", "x")).text, "/v1/n/x?token=5%2C7&wait_ms=20");
        assert_eq!(terms.inside(r#" {"a":1}"#), r#"{"tokens":[5,7],"wait_ms":20,"a":1}"#);
        assert_eq!(terms.inside("{ }"), r#"{"tokens":[5,7],"wait_ms":20 }"#);
        assert_eq!(terms.inside("[1]"), "[1]");
        assert_eq!(Terms::default().inside("{}"), "{}");
        assert_eq!(Terms::default().on(Target::new("n", "x")).text, "/v1/n/x");
    }
}
