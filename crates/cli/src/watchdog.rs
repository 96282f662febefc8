//! The process that ends a program when the `lockwood lock` above it dies without a chance to do so itself. Knows
//! nothing of locks.
//!
//! `lockwood lock` starts it and holds the only other end of its standard input. These lines come there, until one does
//! not because `lockwood lock` is gone:
//!
//! | line | when | without the next one |
//! | --- | --- | --- |
//! | how long ending may take, and the run | before the program is started | whatever has the mark of the run is ended |
//! | where its processes begin | once it runs | they are ended as well |
//! | `done` | when it has ended | |
//!
//! The end of the input is not seen before a program that is just being started has its mark: until then it holds the
//! other end as well.

use crate::{
    mark::{self, Run, Runs},
    processes::{Family, Root},
};
use rustix::process::Signal;
use std::{
    io::BufRead,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
};

const DONE: &str = "done";
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long processes that were killed are waited for.
const KILLED_PATIENCE: Duration = Duration::from_secs(5);

/// The watchdog as `lockwood lock` sees it. Dropped without [`Watchdog::dismiss`] it bites.
pub(crate) struct Watchdog(Child);

impl Watchdog {
    pub(crate) fn start() -> std::io::Result<Watchdog> {
        let mut command = std::process::Command::new(this_program());
        // In a group of its own, so that what is typed at the terminal does not reach it.
        command.arg("watchdog").process_group(0).stdin(Stdio::piped()).stdout(Stdio::null());
        command.env(mark::VARIABLE, Runs::here().with_watchdog().to_string());
        Command::from(command).spawn().map(Watchdog)
    }

    /// From now on whatever is started with the mark of this run dies with this process.
    pub(crate) async fn expect(&mut self, run: &Run, kill_after: Duration) -> std::io::Result<()> {
        self.say(&format!("{} {run}\n", kill_after.as_millis())).await
    }

    /// From now on this program dies with this process.
    pub(crate) async fn watch(&mut self, root: Root) -> std::io::Result<()> {
        self.say(&format!("{root}\n")).await
    }

    /// The program has ended, or does not matter any more.
    pub(crate) async fn dismiss(mut self) {
        // Without it the program is not signalled twice: there is none.
        if self.say(&format!("{DONE}\n")).await.is_ok() {
            let _ = self.0.wait().await;
        }
    }

    async fn say(&mut self, text: &str) -> std::io::Result<()> {
        match &mut self.0.stdin {
            Some(stdin) => stdin.write_all(text.as_bytes()).await,
            None => Err(std::io::ErrorKind::BrokenPipe.into()),
        }
    }
}

/// Also if the file was replaced meanwhile.
fn this_program() -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or_else(|_| "lockwood".into()) }
}

/// The watchdog itself.
pub(crate) fn run() -> ExitCode {
    let mut lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let Some(expected) = lines.next() else { return ExitCode::SUCCESS };
    let Some((kill_after, run)) = expected.split_once(' ') else { return ExitCode::FAILURE };
    let Ok(kill_after) = kill_after.parse() else { return ExitCode::FAILURE };
    let run = Run::read(run);
    let mut family = match lines.next().as_deref() {
        Some(DONE) => return ExitCode::SUCCESS,
        Some(root) => {
            let Ok(root) = root.parse::<Root>() else { return ExitCode::FAILURE };
            let family = Family::new(run, Some(root));
            if lines.next().is_some() {
                return ExitCode::SUCCESS;
            }
            family
        }
        None => Family::new(run, None),
    };
    if family.is_gone() {
        return ExitCode::SUCCESS;
    }
    eprintln!("lockwood: `lockwood lock` was killed, so its program is stopped");
    end(&mut family, Duration::from_millis(kill_after));
    ExitCode::SUCCESS
}

fn end(family: &mut Family, kill_after: Duration) {
    family.signal(Signal::TERM);
    let kill_at = Instant::now() + kill_after;
    while !family.is_gone() {
        if Instant::now() >= kill_at {
            family.kill();
        }
        if Instant::now() >= kill_at + KILLED_PATIENCE {
            return eprintln!("lockwood: some processes of the program cannot be killed");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
