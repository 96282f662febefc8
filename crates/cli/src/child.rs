//! The program that runs under a lock: started, watched, and stopped when the lock is lost. Knows nothing of
//! how the lock was obtained.

use crate::exit;
use lockwood_client::text;
use lockwood_client::{Draining, Lease, Lock, Loss, Session};
use rustix::process::{Pid, Signal, kill_process};
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
}

impl Holder<'_> {
    async fn lost(&self) -> Loss {
        match self {
            Holder::Lock(_, lock) => lock.lost().await,
            Holder::Lease(lease) => lease.lost().await,
        }
    }

    /// A lease does not mind that the server stops.
    async fn draining(&self) -> Draining {
        match self {
            Holder::Lock(session, _) => session.draining().await,
            Holder::Lease(_) => std::future::pending().await,
        }
    }
}

/// What goes on while the program runs.
pub(crate) struct Watch<'a> {
    pub(crate) holder: Holder<'a>,
    pub(crate) signals: &'a mut Signals,
    pub(crate) kill_after: Duration,
    pub(crate) quiet: bool,
}

impl Watch<'_> {
    /// Runs the program to its end.
    pub(crate) async fn run(mut self, mut command: Command) -> End {
        match command.spawn() {
            Ok(child) => self.follow(child).await,
            Err(error) => End::NotStarted(error),
        }
    }

    async fn follow(&mut self, mut child: Child) -> End {
        let mut drain_noticed = false;
        loop {
            tokio::select! {
                status = child.wait() => return ended(status),
                loss = self.holder.lost() => return self.stop(child, &loss).await,
                signal = self.signals.next() => pass_on(&child, signal),
                draining = self.holder.draining(), if !drain_noticed => {
                    drain_noticed = true;
                    if !self.quiet {
                        eprintln!("lockwood: {}", text::plain(&draining.message));
                    }
                }
            }
        }
    }

    /// Ends the program: nothing protects its work any more.
    async fn stop(&mut self, mut child: Child, loss: &Loss) -> End {
        eprintln!("lockwood: the lock is lost, stopping the program: {loss}");
        kill(&child, Signal::TERM);
        let kill_at = Instant::now() + self.kill_after;
        let mut killed = false;
        loop {
            tokio::select! {
                _ = child.wait() => return End::Lost,
                () = tokio::time::sleep_until(kill_at), if !killed => {
                    killed = true;
                    eprintln!("lockwood: the program does not stop, killing it");
                    kill(&child, Signal::KILL);
                }
                signal = self.signals.next() => pass_on(&child, signal),
            }
        }
    }
}

fn ended(status: std::io::Result<ExitStatus>) -> End {
    match status {
        Ok(status) => End::Exited(status),
        Err(error) => End::NotStarted(error),
    }
}

/// An interrupt typed at a terminal reaches the program by itself; twice would be once too often.
fn pass_on(child: &Child, signal: Signal) {
    let typed = signal == Signal::INT
        && (std::io::stdin().is_terminal()
            || std::io::stdout().is_terminal()
            || std::io::stderr().is_terminal());
    if !typed {
        kill(child, signal);
    }
}

fn kill(child: &Child, signal: Signal) {
    // It has no number any more once its end was noticed, so nobody else can be hit.
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
        // The only way to fail is that it ended just now.
        let _ = kill_process(pid, signal);
    }
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
