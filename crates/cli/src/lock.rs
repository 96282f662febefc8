//! `lockwood lock`: runs a program under a lock.

use crate::{
    child::{self, End, Holder, Signals, Watch},
    exit::{self, Failure},
    lock_lease,
    nested::{Granter, Ordered, Progress, Supervisor},
    surroundings::{Outer, Surroundings},
    target::{Namespace, Server},
    wait::{parse_span, parse_wait},
};
use clap::ArgGroup;
use lockwood_client::{
    Code, Depth, Error, Lock, LockId, Mode, Options, Path, Queued, Request, Resource, Session, Step, Token,
    Wait, Waiting, text,
};
use lockwood_wire::WireResource;
use rustix::process::Signal;
use std::{ffi::OsString, fmt::Write, process::ExitCode, time::Duration};
use tokio::{
    process::Command,
    time::{Instant, timeout},
};

/// Nobody wants to read about waits shorter than this.
pub(crate) const REPORT_AFTER: Duration = Duration::from_millis(300);
/// How often a waiter looks whether its place has changed.
pub(crate) const REPORT_EVERY: Duration = Duration::from_secs(5);
/// How long to wait for the server's word on something that is only reported.
const PLACE_PATIENCE: Duration = Duration::from_secs(2);
/// How long the end of the program is held up by a server that does not confirm the release.
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the name of a session that did not choose one within what a server takes.
const DEFAULT_NAME_LEN_MAX: usize = 60;

const AFTER_HELP: &str = "\
Paths: user/42/name; / is the whole namespace; %2F stands for a slash inside a segment.

The program finds LOCKWOOD_SERVER, LOCKWOOD_NAMESPACE, LOCKWOOD_LOCK and LOCKWOOD_TOKEN in its environment.
Commands inside use that server and namespace unless told otherwise. Those that take --token show the lock's token
by themselves there, so they may write what it covers and are refused once it is over; `LOCKWOOD_TOKEN= lockwood
put …` shows none.

A `lockwood lock` inside, in the same namespace, takes its lock for the same owner, with --lease or without as the
outer one: what the outer lock covers is granted at once, anything else is taken in addition, and a wait that would
never end is refused. Its lock ends with it; --name, --owner and --lease are the outer one's.

With --lease the lock is a lease: on disk, renewed while the program runs, and there for the rest of its time if
the server is killed.
If the lock is lost while the program runs, the program and everything it has started get SIGTERM, and SIGKILL after
--kill-after. So they do if this command is killed, even by SIGKILL. SIGTERM is passed on to all of them. Processes are
known by their parents and by LOCKWOOD_RUNS in their environment, without a terminal also by their process group; so
one that clears its environment, leaves the group and loses its parent escapes. At a terminal the program stays in the
foreground. What it leaves behind when it ends by itself is left alone.

Exit codes:
  the program's own, or 128 + n if signal n ended it
  2    the command line is wrong
  69   no server answers, or it takes no locks now
  70   the server refused the request
  75   the lock was not obtained within --wait
  76   the lock was lost while the program ran
  126  the program could not be started
  127  the program was not found
  130  interrupted while waiting (143: terminated)

Examples:
  lockwood lock --write config -- vi config.toml
  lockwood lock --write user/42 --read company/7 --wait 10s -- ./import
  lockwood lock --write backup --wait 0 -- ./backup || echo someone else does it
  lockwood lock --write user/42 --lease 30s --owner importer -- ./import";

/// Run a program under a lock
#[derive(clap::Args)]
#[command(
    after_help = AFTER_HELP,
    group = ArgGroup::new("paths").args(["read", "write", "update", "list", "link"]).required(true).multiple(true)
)]
pub(crate) struct Args {
    /// Share this node and what is below it with other readers
    #[arg(long, short, value_name = "PATH")]
    read: Vec<Path>,
    /// Have this node and what is below it alone
    #[arg(long, short, value_name = "PATH")]
    write: Vec<Path>,
    /// Read this node, and be the only one who may ask to write it next
    #[arg(long, short, value_name = "PATH")]
    update: Vec<Path>,
    /// Keep the list of this node's children as it is
    #[arg(long, value_name = "PATH")]
    list: Vec<Path>,
    /// Add or remove children of this node
    #[arg(long, value_name = "PATH")]
    link: Vec<Path>,
    /// How many levels --read, --write and --update cover; 1 is the node alone [default: everything below]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    depth: Option<u64>,
    /// How long to wait: 0, 500ms, 10s, 5m or forever
    #[arg(long, value_name = "SPAN", default_value = "forever", value_parser = parse_wait)]
    pub(crate) wait: Wait,
    /// Hold a lease of this length instead, and renew it
    #[arg(long, value_name = "SPAN", value_parser = parse_span, conflicts_with = "abandon_timeout")]
    lease: Option<Duration>,
    /// The owner of the lease [default: USER@HOST PID PROGRAM]
    #[arg(long, value_name = "NAME", requires = "lease", conflicts_with = "name")]
    pub(crate) owner: Option<String>,
    /// How the lock's owner is called in listings [default: USER@HOST PID PROGRAM]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// How long the lock stays when the connection is lost [default: the server's, usually 60s]
    #[arg(long, value_name = "SPAN", value_parser = parse_span)]
    abandon_timeout: Option<Duration>,
    /// How long the program may take to stop when the lock is lost
    #[arg(long, value_name = "SPAN", default_value = "10s", value_parser = parse_span)]
    pub(crate) kill_after: Duration,
    /// Do not say who is in the way while waiting
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Tell errors and warnings in JSON, and do not say who is in the way while waiting
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(crate) server: Server,
    #[command(flatten)]
    pub(crate) namespace: Namespace,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // From here on SIGTERM and SIGINT wait to be looked at, so that they cannot leave the program behind.
    let mut signals = Signals::new()?;
    if let Some(ordered) = order(&args).await {
        return run_nested(&args, ordered, signals).await;
    }
    if let Some(ttl) = args.lease {
        return lock_lease::run(&args, ttl, signals).await;
    }
    let opened = tokio::select! {
        opened = Session::open(args.options()) => opened,
        signal = signals.next() => return Ok(interrupted(signal)),
    };
    let session = match opened {
        Ok(session) => session,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    let lock = match obtain(&session, &args, &mut signals).await {
        Obtained::Lock(lock) => lock,
        Obtained::Interrupted(signal) => {
            farewell(&session).await;
            return Ok(interrupted(signal));
        }
        Obtained::Failed(error) => {
            farewell(&session).await;
            return Ok(not_obtained(&error, &args).report());
        }
        Obtained::Stuck(failure) => {
            farewell(&session).await;
            return Ok(failure.report());
        }
    };
    let supervisor = Supervisor::bind();
    let inside = surroundings(&args, supervisor.as_ref(), lock.id(), lock.token());
    let watch = Watch {
        holder: Holder::Lock(&session, &lock),
        signals: &mut signals,
        supervisor: supervisor.map(|supervisor| (supervisor, Granter::Session(session.clone()))),
        kill_after: args.kill_after,
        quiet: args.is_quiet(),
    };
    let end = watch.run(command(&args), &inside).await;
    let released = timeout(RELEASE_PATIENCE, lock.release()).await;
    farewell(&session).await;
    let released = released.ok();
    Ok(conclude(Conclusion { end, released, ends_with: "its abandon timeout" }, &args))
}

impl Args {
    pub(crate) fn is_quiet(&self) -> bool {
        self.quiet || self.json
    }

    fn options(&self) -> Options {
        let abandon_timeout_ms =
            self.abandon_timeout.map(|span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX));
        Options {
            address: self.server.address.clone(),
            namespace: self.namespace.name.clone(),
            name: Some(self.name.clone().unwrap_or_else(|| default_name(&self.program()))),
            abandon_timeout_ms,
        }
    }

    pub(crate) fn program(&self) -> String {
        self.command.first().map(|program| program.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub(crate) fn request(&self) -> Request {
        let depth = self.depth.and_then(Depth::levels).unwrap_or(Depth::SUBTREE);
        let parts = [
            (&self.read, Mode::Read),
            (&self.write, Mode::Write),
            (&self.update, Mode::Update),
            (&self.list, Mode::List),
            (&self.link, Mode::Link),
        ];
        let resources = parts
            .into_iter()
            .flat_map(|(paths, mode)| paths.iter().map(move |path| Resource::new(path.clone(), mode, depth)))
            .collect();
        Request { resources, wait: self.wait }
    }
}

/// Who, where, which process, what for.
pub(crate) fn default_name(program: &str) -> String {
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "someone".into());
    let system = rustix::system::uname();
    let program = program.rsplit('/').next().unwrap_or(program);
    let name = format!("{user}@{} {} {program}", system.nodename().to_string_lossy(), std::process::id());
    name.chars().take(DEFAULT_NAME_LEN_MAX).collect()
}

/// What a program under a new lock has around it.
pub(crate) fn surroundings(
    args: &Args,
    supervisor: Option<&Supervisor>,
    lock: LockId,
    token: Token,
) -> Surroundings {
    Surroundings::from_env().with(Outer {
        server: args.server.address.clone(),
        namespace: args.namespace.name.clone(),
        socket: supervisor.map(|supervisor| supervisor.name().to_owned()),
        locks: vec![lock.0],
        tokens: vec![token.0],
    })
}

pub(crate) fn command(args: &Args) -> Command {
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    command
}

/// Orders the lock from the `lockwood lock` around this one, if there is one in this namespace.
async fn order(args: &Args) -> Option<Ordered> {
    let inside = Surroundings::from_env();
    let outer = inside.find(&args.server.address, &args.namespace.name)?;
    Ordered::send(outer, &args.request().resources, args.wait).await
}

/// Runs the program under a lock that the surrounding command takes.
async fn run_nested(args: &Args, mut ordered: Ordered, mut signals: Signals) -> anyhow::Result<ExitCode> {
    let mut reporter = Reporter::new(args, &args.request());
    let report_at = Instant::now() + REPORT_AFTER;
    let (lock, token) = loop {
        tokio::select! {
            progress = ordered.next() => match progress {
                Ok(Progress::Granted { lock, token }) => break (lock, token),
                Ok(Progress::Queued(queued)) => reporter.latest = Some(queued),
                Err(failure) => return Ok(failure.report()),
            },
            signal = signals.next() => return Ok(interrupted(signal)),
            () = tokio::time::sleep_until(report_at), if !reporter.reported => reporter.report(),
        }
    };
    let mut inside = Surroundings::from_env();
    if let Some(mut outer) = inside.find(&args.server.address, &args.namespace.name).cloned() {
        outer.locks.push(lock.0);
        outer.tokens.push(token.0);
        inside = inside.with(outer);
    }
    let nested = ordered.held();
    let watch = Watch {
        holder: Holder::Nested(&nested),
        signals: &mut signals,
        supervisor: None,
        kill_after: args.kill_after,
        quiet: args.is_quiet(),
    };
    let end = watch.run(command(args), &inside).await;
    let released = timeout(RELEASE_PATIENCE, nested.release()).await.ok();
    Ok(conclude(Conclusion { end, released, ends_with: "the surrounding one" }, args))
}

/// That a lock around this command is what it waits for: the program inside would wait for itself.
pub(crate) fn waits_for_itself(args: &Args, mut blockers: impl Iterator<Item = u64>) -> Option<Failure> {
    let inside = Surroundings::from_env();
    let outer = inside.find(&args.server.address, &args.namespace.name)?;
    let lock = blockers.find(|blocker| outer.locks.contains(blocker))?;
    Some(Failure::new(
        exit::REFUSED,
        format!(
            "lock {lock} of the `lockwood lock` around this command is in the way, and ends only after this command; \
             that one cannot be asked to share it from here, so take what is needed there"
        ),
    ))
}

enum Obtained {
    Lock(Lock),
    Interrupted(Signal),
    Failed(Error),
    /// It would wait for the command around it.
    Stuck(Failure),
}

async fn obtain(session: &Session, args: &Args, signals: &mut Signals) -> Obtained {
    let request = args.request();
    let mut reporter = Reporter::new(args, &request);
    let mut waiting = session.ask(request);
    let mut report_at = Instant::now() + REPORT_AFTER;
    loop {
        tokio::select! {
            step = waiting.next() => match step {
                Ok(Step::Granted(lock)) => return Obtained::Lock(lock),
                Ok(Step::Queued(queued)) => {
                    if let Some(stuck) = waits_for_itself(args, queued.blockers.iter().map(|blocker| blocker.lock)) {
                        return Obtained::Stuck(stuck);
                    }
                    reporter.latest = Some(queued);
                }
                Err(error) => return Obtained::Failed(error),
            },
            signal = signals.next() => return Obtained::Interrupted(signal),
            () = tokio::time::sleep_until(report_at) => {
                if reporter.reported {
                    reporter.refresh(session, &waiting).await;
                }
                reporter.report();
                report_at = Instant::now() + REPORT_EVERY;
            }
        }
    }
}

/// Tells who is in the way, but nothing twice.
struct Reporter {
    quiet: bool,
    namespace: String,
    wanted: String,
    latest: Option<Queued>,
    /// The place and the locks in the way, as they were told last.
    told: Option<(usize, Vec<u64>)>,
    reported: bool,
    told_away: bool,
}

impl Reporter {
    fn new(args: &Args, request: &Request) -> Reporter {
        let resources: Vec<WireResource> = request.resources.iter().map(WireResource::from).collect();
        Reporter {
            quiet: args.is_quiet(),
            namespace: args.namespace.name.clone(),
            wanted: text::resources(&resources),
            latest: None,
            told: None,
            reported: false,
            told_away: false,
        }
    }

    async fn refresh(&mut self, session: &Session, waiting: &Waiting) {
        if !session.connected() {
            if !self.quiet && !self.told_away {
                exit::warn("the server is out of reach, trying again");
            }
            self.told_away = true;
            return;
        }
        self.told_away = false;
        if let Ok(Ok(place)) = timeout(PLACE_PATIENCE, waiting.place()).await {
            self.latest = Some(place);
        }
    }

    fn report(&mut self) {
        self.reported = true;
        let Some(queued) = self.latest.as_ref().filter(|queued| queued.place > 0 && !self.quiet) else {
            return;
        };
        let gist = (queued.place, queued.blockers.iter().map(|blocker| blocker.lock).collect());
        if self.told.as_ref() != Some(&gist) {
            eprint!("{}", render_wait(&self.namespace, &self.wanted, queued));
            self.told = Some(gist);
        }
    }
}

/// What a waiter is told.
fn render_wait(namespace: &str, wanted: &str, queued: &Queued) -> String {
    let mut out = format!(
        "lockwood: waiting for {wanted} in namespace {}: place {} in line\n",
        text::plain(namespace),
        queued.place
    );
    for blocker in &queued.blockers {
        writeln!(out, "  in the way: {}", text::blocker(blocker)).expect("a string takes all");
    }
    // Only a namespace that grants nothing at all makes a lock wait for nobody.
    if queued.blockers_len == 0 {
        out.push_str(
            "  nobody is in the way, but the namespace is in its grace period; `lockwood grace` shows for how long\n",
        );
    }
    let more = queued.blockers_len.saturating_sub(queued.blockers.len());
    if more > 0 {
        writeln!(out, "  and {more} more").expect("a string takes all");
    }
    out
}

pub(crate) fn not_obtained(error: &Error, args: &Args) -> Failure {
    let mut failure = Failure::from(error);
    if matches!(error.code(), Some(Code::Locked | Code::Timeout)) {
        failure.message = match args.wait {
            Wait::Millis(millis) => {
                format!("not obtained within {}: {}", text::span(millis), failure.message)
            }
            Wait::Never | Wait::Forever => format!("not obtained: {}", failure.message),
        };
    }
    failure
}

pub(crate) fn interrupted(signal: Signal) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX))
}

/// Lets the server end the session now instead of after the abandon timeout.
async fn farewell(session: &Session) {
    // If it does not work, the session ends with the connection a little later.
    let _ = timeout(RELEASE_PATIENCE, session.close()).await;
}

/// How the program and its lock ended.
pub(crate) struct Conclusion {
    pub(crate) end: End,
    /// Nothing if the server did not confirm in time.
    pub(crate) released: Option<Result<(), Error>>,
    /// With what a lock ends that could not be released.
    pub(crate) ends_with: &'static str,
}

/// What the program's end and the lock's end mean together.
pub(crate) fn conclude(conclusion: Conclusion, args: &Args) -> ExitCode {
    let Conclusion { end, released, ends_with } = conclusion;
    match end {
        End::Lost => ExitCode::from(exit::LOST),
        End::NotStarted(error) => {
            let message = format!("cannot run {}: {error}", text::plain(&args.program()));
            Failure::new(child::start_error_code(&error), message).report()
        }
        End::Exited(status) => match released {
            Some(Ok(())) => ExitCode::from(child::exit_code(status)),
            // Nobody can tell whether that was before or after the program's last act.
            Some(Err(error)) if matches!(error, Error::Lost(_)) || error.code() == Some(Code::LockLost) => {
                let message = format!("the lock was lost before it could be released: {error}");
                Failure::new(exit::LOST, message).report()
            }
            Some(Err(_)) | None => {
                exit::warn(&format!(
                    "the program has ended, but the server does not confirm the release; the lock ends with \
                     {ends_with}"
                ));
                ExitCode::from(child::exit_code(status))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_client::{Blocker, LockId};
    use lockwood_wire::{LockState, WirePath};

    #[test]
    fn a_waiter_is_told_who_is_in_the_way() {
        let blocker = Blocker {
            lock: 12,
            state: LockState::Granted,
            session: "s1".into(),
            name: Some("ann@db1 7 vi".into()),
            since: "2026-01-01T00:00:00Z".into(),
            age_ms: 125_000,
            resources: vec![WireResource {
                path: WirePath("user".parse().unwrap()),
                mode: "write".into(),
                depth: None,
            }],
        };
        let queued = Queued { lock: LockId(13), place: 2, blockers_len: 3, blockers: vec![blocker] };
        assert_eq!(
            render_wait("default", "read user/42", &queued),
            "lockwood: waiting for read user/42 in namespace default: place 2 in line\n  \
             in the way: ann@db1 7 vi holds write user since 2026-01-01T00:00:00Z (2m 5s), lock 12\n  \
             and 2 more\n"
        );
    }

    #[test]
    fn the_default_name_says_who_and_what() {
        let name = default_name("/usr/bin/vi");
        assert!(name.contains('@') && name.ends_with(" vi"), "{name}");
    }
}
