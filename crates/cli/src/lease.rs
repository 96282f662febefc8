//! `lockwood lease`: takes, renews, releases and lists leases.

use crate::{
    exit::Failure,
    output::{Table, json_line, print},
    target::{Namespace, Server},
    wait::parse_span,
};
use clap::ArgGroup;
use lockwood_client::{
    Code, Depth, Error, LeaseAnswer, LeaseInfo, LeaseOutcome, LeaseRequest, Leases, LockFilter, LockId,
    LockInfo, Mode, Path, ReleaseRequest, RenewRequest, Resource, text, wire::WireValue,
};
use lockwood_wire::{LockState, WireResource};
use std::{process::ExitCode, time::Duration};

const AFTER_HELP: &str = "\
A lease is a lock with a named owner. It is on disk: it outlives the process that took it, its connections and
restarts of the server, until it is released or its time is over. Its token goes with every write it is to guard
(`lockwood put --token`); when the lease is over, such a write is refused, whoever is late.

Taking what the owner has already succeeds and changes nothing. To run a program under a lease that is renewed
for it, see `lockwood lock --lease`.

The four words for locks on trees:
  LOCK_S(c, d, f, depth)    lockwood lease take c/d/f --read --depth N --owner ME
  LOCK_X(c, d, f, depth)    lockwood lease take c/d/f --write --depth N --owner ME
  UNLOCK_S(c, d, f, depth)  lockwood lease release c/d/f --read --depth N --owner ME
  UNLOCK_X(c, d, f, depth)  lockwood lease release c/d/f --write --depth N --owner ME
without --depth for everything below.

Exit codes:
  2    the command line is wrong
  69   no server answers, or it takes no locks now
  70   the server refused the request
  75   others have it, and the wait is over
  76   the lease is over, or another's

Examples:
  lockwood lease take user/42 --owner importer --ttl 30s --wait 10s
  lockwood lease renew --lock 12 --token 34 --ttl 30s
  lockwood lease release user/42 --owner importer
  lockwood lease release --all --owner importer
  lockwood lease list --owner importer";

/// Take, renew, release and list leases: locks that outlive the process that takes them
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    Take(Take),
    Renew(Renew),
    Release(Release),
    List(List),
}

/// Which server, and which namespace of it.
#[derive(clap::Args)]
struct Where {
    #[command(flatten)]
    server: Server,
    #[command(flatten)]
    namespace: Namespace,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

/// How paths are locked.
#[derive(clap::Args)]
struct How {
    /// Share them with other readers
    #[arg(long, short)]
    read: bool,
    /// Have them alone; so it is unless told otherwise
    #[arg(long, short)]
    write: bool,
    /// Read them, and be the only one who may ask to write them next
    #[arg(long, short)]
    update: bool,
    /// Keep the lists of their children as they are
    #[arg(long)]
    list: bool,
    /// Add or remove children of them
    #[arg(long)]
    link: bool,
    /// How many levels are covered; 1 is the node alone [default: everything below]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    depth: Option<u64>,
}

/// Take a lease on all these paths, or none of them
#[derive(clap::Args)]
#[command(group = ArgGroup::new("mode").args(["read", "write", "update", "list", "link"]))]
struct Take {
    /// What to lock: user/42/name; / is the whole namespace
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<Path>,
    /// Who takes it: a name that stays the same each time it asks
    #[arg(long)]
    owner: String,
    #[command(flatten)]
    how: How,
    /// How long it is held unless it is renewed: 500ms, 30s, 5m or 2h
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = parse_span)]
    ttl: Duration,
    /// How long to stand in line for it
    #[arg(long, value_name = "SPAN", default_value = "0", value_parser = parse_span)]
    wait: Duration,
    /// Any JSON that others shall see
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    note: Option<WireValue>,
    /// Print the token and nothing else, for a script: put … --token $(cat FILE)
    #[arg(long, conflicts_with = "json")]
    token_only: bool,
    #[command(flatten)]
    at: Where,
}

/// Change when leases end
#[derive(clap::Args)]
#[command(group = ArgGroup::new("which").args(["lock", "all"]).required(true))]
struct Renew {
    /// The lease with this number; needs its token or its owner
    #[arg(long, value_name = "LOCK")]
    lock: Option<u64>,
    /// All leases of the owner
    #[arg(long, requires = "owner", conflicts_with = "token")]
    all: bool,
    /// The lease's token
    #[arg(long)]
    token: Option<u64>,
    /// Whose it is
    #[arg(long)]
    owner: Option<String>,
    /// How long it is held from now on
    #[arg(long, value_name = "SPAN", default_value = "30s", value_parser = parse_span)]
    ttl: Duration,
    #[command(flatten)]
    at: Where,
}

/// End leases: one by its number, those taken with the same paths, or all of an owner
#[derive(clap::Args)]
#[command(
    group = ArgGroup::new("which").args(["paths", "lock", "all"]).required(true),
    group = ArgGroup::new("mode").args(["read", "write", "update", "list", "link"])
)]
struct Release {
    /// What was locked, with the same mode and depth as when it was taken
    #[arg(value_name = "PATH", requires = "owner")]
    paths: Vec<Path>,
    /// The lease with this number; needs its token or its owner
    #[arg(long, value_name = "LOCK")]
    lock: Option<u64>,
    /// All leases of the owner
    #[arg(long, requires = "owner")]
    all: bool,
    /// The lease's token
    #[arg(long, conflicts_with_all = ["paths", "all"])]
    token: Option<u64>,
    /// Whose it is
    #[arg(long)]
    owner: Option<String>,
    #[command(flatten)]
    how: How,
    #[command(flatten)]
    at: Where,
}

/// List leases, held and waiting
#[derive(clap::Args)]
struct List {
    /// Only those of this owner
    #[arg(long)]
    owner: Option<String>,
    /// Only those of this node and what is below it
    #[arg(long)]
    path: Option<Path>,
    #[command(flatten)]
    at: Where,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let done = match &args.action {
        Action::Take(take) => take.run().await,
        Action::Renew(renew) => renew.run().await,
        Action::Release(release) => release.run().await,
        Action::List(list) => list.run().await,
    };
    match done {
        Ok(text) => print(&text),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

impl Where {
    fn leases(&self) -> Leases {
        Leases::new(&self.server.address, &self.namespace.name)
    }
}

impl How {
    fn mode(&self) -> Mode {
        match self {
            How { read: true, .. } => Mode::Read,
            How { update: true, .. } => Mode::Update,
            How { list: true, .. } => Mode::List,
            How { link: true, .. } => Mode::Link,
            _ => Mode::Write,
        }
    }

    fn resources(&self, paths: &[Path]) -> Vec<WireResource> {
        let depth = self.depth.and_then(Depth::levels).unwrap_or(Depth::SUBTREE);
        let resource = |path: &Path| WireResource::from(&Resource::new(path.clone(), self.mode(), depth));
        paths.iter().map(resource).collect()
    }
}

impl Take {
    async fn run(&self) -> Result<String, Error> {
        let request = LeaseRequest {
            owner: self.owner.clone(),
            resources: self.how.resources(&self.paths),
            ttl_ms: millis(self.ttl),
            wait_ms: Some(millis(self.wait)),
            poll_ms: None,
            note: self.note.clone(),
        };
        let answer = self.at.leases().take(&request).await?;
        if self.token_only {
            return Ok(answer.lock.token.map(|token| format!("{token}\n")).unwrap_or_default());
        }
        Ok(if self.at.json { json_line(&answer) } else { taken(&answer) })
    }
}

impl Renew {
    async fn run(&self) -> Result<String, Error> {
        let request = RenewRequest { ttl_ms: millis(self.ttl), owner: self.owner.clone(), token: self.token };
        let leases = self.at.leases().renew(self.lock.map(LockId), &request).await?;
        Ok(if self.at.json { json_line(&leases) } else { listed(&leases, "renewed") })
    }
}

impl Release {
    async fn run(&self) -> Result<String, Error> {
        let resources = (!self.paths.is_empty()).then(|| self.how.resources(&self.paths));
        let request = ReleaseRequest { owner: self.owner.clone(), token: self.token, resources };
        let leases = self.at.leases().release(self.lock.map(LockId), &request).await?;
        Ok(match self.at.json {
            true => json_line(&leases),
            false if leases.is_empty() => "left the line\n".to_owned(),
            false => listed(&leases, "released"),
        })
    }
}

impl List {
    async fn run(&self) -> Result<String, Error> {
        let locks = self.fetch().await?;
        if self.at.json {
            return Ok(json_line(&locks));
        }
        if locks.is_empty() {
            return Ok(format!("no leases in namespace {}\n", text::plain(&self.at.namespace.name)));
        }
        let header = ["lock", "owner", "state", "token", "ends in", "covers", "note"].map(str::to_owned);
        Ok(Table::default().render(&header, &locks.iter().map(row).collect::<Vec<_>>()))
    }

    async fn fetch(&self) -> Result<Vec<LockInfo>, Error> {
        let filter =
            LockFilter { owner: self.owner.clone(), path: self.path.clone(), ..LockFilter::default() };
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = match self.at.leases().list(&filter, after).await {
                Err(error) if error.code() == Some(Code::UnknownNamespace) => return Ok(found),
                page => page?,
            };
            found.extend(page.locks.into_iter().filter(|lock| is_lease(&lock.owner.via)));
            match page.next {
                Some(next) if Some(next) != after => after = Some(next),
                _ => return Ok(found),
            }
        }
    }
}

/// Whether a lock that came this way is a lease.
pub(crate) fn is_lease(via: &str) -> bool {
    matches!(via, "lease" | "elasticsearch")
}

fn row(lock: &LockInfo) -> Vec<String> {
    let state = match lock.state {
        LockState::Waiting => format!("waiting {}", text::span(lock.age_ms)),
        LockState::Granted | LockState::Converting => format!("held {}", text::span(lock.age_ms)),
    };
    vec![
        lock.lock.to_string(),
        lock.owner.name.clone().unwrap_or_default(),
        state,
        lock.token.map(|token| token.to_string()).unwrap_or_default(),
        lock.expires_in_ms.map(text::span).unwrap_or_default(),
        text::resources(&lock.resources),
        lock.note.as_ref().map(text::value).unwrap_or_default(),
    ]
}

fn taken(answer: &LeaseAnswer) -> String {
    let lock = &answer.lock;
    let word = match answer.outcome {
        LeaseOutcome::Granted => "taken",
        LeaseOutcome::Held => "held already",
        LeaseOutcome::Queued => "in line",
    };
    let owner = lock.owner.name.as_deref().map(text::plain).unwrap_or_default();
    let covers = text::resources(&lock.resources);
    let token = lock.token.map(|token| format!(", token {token}")).unwrap_or_default();
    let end = lock.expires_in_ms.map(|left| format!(", ends in {}", text::span(left))).unwrap_or_default();
    format!("{word}: lock {} of {owner}{token}: {covers}{end}\n", lock.lock)
}

fn listed(leases: &[LeaseInfo], word: &str) -> String {
    let line = |lease: &LeaseInfo| {
        let (owner, covers) = (text::plain(&lease.owner), text::resources(&lease.resources));
        let end = match (word, &lease.expires_at) {
            ("renewed", Some(at)) => format!(", until {}", text::plain(at)),
            _ => String::new(),
        };
        format!("{word}: lock {} of {owner}, token {}: {covers}{end}\n", lease.lock, lease.token)
    };
    leases.iter().map(line).collect()
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn parse_json(text: &str) -> Result<WireValue, String> {
    WireValue::from_text(text.to_owned()).map_err(|error| error.message)
}
