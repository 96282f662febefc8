//! The program that runs under a lock: started, watched, and stopped with everything it has started when the lock is
//! lost. Knows nothing of how the lock was obtained.

use crate::{
    exit,
    mark::{self, Run, Runs},
    nested::{Granter, Nested, Supervisor},
    processes::{Family, Kinship, Root},
    surroundings::Surroundings,
    watchdog::Watchdog,
};
use lockwood_client::text;
use lockwood_client::{Draining, Lease, Lock, Loss, Session};
use rustix::process::{Pid, Signal};
use std::{
    io::{ErrorKind, IsTerminal},
    os::unix::process::ExitStatusExt,
    process::ExitStatus,
    time::Duration,
};

use tokio::{
    process::{Child, Command},
    signal::unix::{Signal as SignalStream, SignalKind, signal},
    time::Instant,
};

/// How often what is left of the program is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long processes that were killed hold up the end of this command.
const KILLED_PATIENCE: Duration = Duration::from_secs(5);

/// The signals that end `lockwood lock`, or are passed on.
///
/// Hang-ups are left alone: a terminal sends them to the program as well, and `nohup` must keep working.
pub(crate) struct Signals {
    interrupt: SignalStream,
    terminate: SignalStream,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// The next one; dropping the future loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::INT,
            Some(()) = self.terminate.recv() => Signal::TERM,
            else => std::future::pending().await,
        }
    }
}

/// How it went.
pub(crate) enum End {
    /// The program ended by itself.
    Exited(ExitStatus),
    /// The lock was lost, and the program was stopped.
    Lost,
    /// The program could not be started.
    NotStarted(std::io::Error),
}

/// What protects the program's work.
pub(crate) enum Holder<'a> {
    Lock(&'a Session, &'a Lock),
    Lease(&'a Lease),
    /// A lock that a surrounding `lockwood lock` has taken.
    Nested(&'a Nested),
}

impl Holder<'_> {
    async fn lost(&self) -> Loss {
        match self {
            Holder::Lock(_, lock) => lock.lost().await,
            Holder::Lease(lease) => lease.lost().await,
            Holder::Nested(nested) => nested.lost().await,
        }
    }

    /// A lease does not mind that the server stops.
    async fn draining(&self) -> Draining {
        match self {
            Holder::Lock(session, _) => session.draining().await,
            // The surrounding command is told.
            Holder::Lease(_) | Holder::Nested(_) => std::future::pending().await,
        }
    }
}

/// What goes on while the program runs.
pub(crate) struct Watch<'a> {
    pub(crate) holder: Holder<'a>,
    pub(crate) signals: &'a mut Signals,
    /// What `lockwood lock` inside of the program asks for further locks, if it does.
    pub(crate) supervisor: Option<(Supervisor, Granter)>,
    pub(crate) kill_after: Duration,
    pub(crate) quiet: bool,
}

impl Watch<'_> {
    /// Runs the program to its end.
    pub(crate) async fn run(mut self, mut command: Command, inside: &Surroundings) -> End {
        let run = Run::new();
        command.envs(inside.variables()).env(mark::VARIABLE, Runs::here().with(&run).to_string());
        let kinship = Kinship::here();
        if kinship == Kinship::Group {
            command.process_group(0);
        }
        let mut watchdog = match self.start_watchdog(&run).await {
            Ok(watchdog) => Some(watchdog),
            Err(error) => self.warn_unguarded(&error),
        };
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                dismiss(watchdog).await;
                return End::NotStarted(error);
            }
        };
        let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) else {
            return End::NotStarted(ErrorKind::NotFound.into());
        };
        let root = Root { id, kinship };
        if let Some(started) = &mut watchdog
            && let Err(error) = started.watch(root).await
        {
            watchdog = self.warn_unguarded(&error);
        }
        let end = self.follow(child, &mut Family::new(run, Some(root))).await;
        dismiss(watchdog).await;
        end
    }

    async fn start_watchdog(&self, run: &Run) -> std::io::Result<Watchdog> {
        let mut watchdog = Watchdog::start()?;
        watchdog.expect(run, self.kill_after).await?;
        Ok(watchdog)
    }

    fn warn_unguarded(&self, error: &std::io::Error) -> Option<Watchdog> {
        if !self.quiet {
            exit::warn(&format!("the program would outlive a kill -9 of this command: {error}"));
        }
        None
    }

    async fn follow(&mut self, mut child: Child, family: &mut Family) -> End {
        let (mut drain_noticed, mut signalled) = (false, false);
        loop {
            tokio::select! {
                status = child.wait() => {
                    // What it had started may still be at work, and must not be when the lock is released.
                    if signalled {
                        self.clear(family).await;
                    }
                    return ended(status);
                }
                loss = self.holder.lost() => return self.stop(child, family, &loss).await,
                signal = self.signals.next() => signalled |= pass_on(family, signal),
                draining = self.holder.draining(), if !drain_noticed => {
                    drain_noticed = true;
                    if !self.quiet {
                        exit::warn(&text::plain(&draining.message));
                    }
                }
                () = serve(self.supervisor.as_ref()) => {}
            }
        }
    }

    /// Ends the program: nothing protects its work any more.
    async fn stop(&mut self, mut child: Child, family: &mut Family, loss: &Loss) -> End {
        exit::warn(&format!("the lock is lost, stopping the program: {loss}"));
        family.signal(Signal::TERM);
        let kill_at = Instant::now() + self.kill_after;
        let mut killed = false;
        loop {
            tokio::select! {
                _ = child.wait() => break,
                () = tokio::time::sleep_until(kill_at), if !killed => {
                    killed = true;
                    exit::warn("the program does not stop, killing it");
                    family.kill();
                }
                signal = self.signals.next() => {
                    pass_on(family, signal);
                }
            }
        }
        self.clear_until(family, kill_at).await;
        End::Lost
    }

    /// Waits for what a program that has ended had started, and ends it.
    async fn clear(&mut self, family: &mut Family) {
        self.clear_until(family, Instant::now() + self.kill_after).await;
    }

    async fn clear_until(&mut self, family: &mut Family, kill_at: Instant) {
        let give_up_at = kill_at.max(Instant::now()) + KILLED_PATIENCE;
        while !family.is_gone() {
            if Instant::now() >= kill_at {
                // Again and again: what is killed may have started something in between.
                family.kill();
            }
            if Instant::now() >= give_up_at {
                return exit::warn(
                    "some processes of the program cannot be killed, and go on without the lock",
                );
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                signal = self.signals.next() => {
                    pass_on(family, signal);
                }
            }
        }
    }
}

async fn dismiss(watchdog: Option<Watchdog>) {
    if let Some(watchdog) = watchdog {
        watchdog.dismiss().await;
    }
}

async fn serve(supervisor: Option<&(Supervisor, Granter)>) {
    match supervisor {
        Some((supervisor, granter)) => supervisor.serve(granter).await,
        None => std::future::pending().await,
    }
}

fn ended(status: std::io::Result<ExitStatus>) -> End {
    match status {
        Ok(status) => End::Exited(status),
        Err(error) => End::NotStarted(error),
    }
}

/// Says whether it was passed on: an interrupt typed at a terminal reaches the program by itself, and twice would be
/// once too often.
fn pass_on(family: &mut Family, signal: Signal) -> bool {
    let typed = signal == Signal::INT
        && (std::io::stdin().is_terminal()
            || std::io::stdout().is_terminal()
            || std::io::stderr().is_terminal());
    if !typed {
        family.signal(signal);
    }
    !typed
}

/// The exit code for a program's end, as a shell would give it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// The exit code for a program that could not be started, as a shell would give it.
pub(crate) fn start_error_code(error: &std::io::Error) -> u8 {
    if error.kind() == ErrorKind::NotFound { exit::NOT_FOUND } else { exit::CANNOT_RUN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
        assert_eq!(start_error_code(&ErrorKind::NotFound.into()), 127);
        assert_eq!(start_error_code(&ErrorKind::PermissionDenied.into()), 126);
    }
}
