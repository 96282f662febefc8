//! Starts the real binary on free ports and a data directory of its own, and ends it. Knows nothing of
//! protocols.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]
#![expect(dead_code, reason = "shared by several test binaries, none of which needs all of it")]

pub(crate) mod npm;
pub(crate) mod python;

use std::{
    fmt,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_lockwood");

/// So many lines of a server's log are shown when its test fails.
const LOG_LINES_SHOWN: usize = 150;

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) native: SocketAddr,
    pub(crate) locktopus: SocketAddr,
    pub(crate) greeting: String,
    data: Arc<TempDir>,
    log: thread::JoinHandle<String>,
}

/// What is left of a server that ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) log: String,
    data: Arc<TempDir>,
}

impl Server {
    /// A server with extra flags, on fresh data.
    pub(crate) fn start(flags: &[&str]) -> Server {
        Server::start_on(Arc::new(TempDir::new().unwrap()), flags, &[])
    }

    /// A server on data that is there.
    pub(crate) fn start_in(data: TempDir, flags: &[&str]) -> Server {
        Server::start_on(Arc::new(data), flags, &[])
    }

    /// The same with environment variables.
    pub(crate) fn start_with_env(flags: &[&str], env: &[(&str, &str)]) -> Server {
        Server::start_on(Arc::new(TempDir::new().unwrap()), flags, env)
    }

    fn start_on(data: Arc<TempDir>, flags: &[&str], env: &[(&str, &str)]) -> Server {
        let mut command = command(data.path(), flags);
        command.envs(env.iter().copied());
        Server::spawned(command, data)
    }

    /// A server on an address of the caller's choice, on fresh data.
    pub(crate) fn start_at(listen: &str, flags: &[&str]) -> Server {
        let data = Arc::new(TempDir::new().unwrap());
        Server::spawned(command_at(data.path(), listen, flags), data)
    }

    /// A server with nothing but the native interface, on an address of the caller's choice, on fresh data.
    pub(crate) fn plain_at(listen: &str, flags: &[&str]) -> Server {
        let data = Arc::new(TempDir::new().unwrap());
        Server::spawned(plain_command_at(data.path(), listen, flags), data)
    }

    /// Starts it and reads where it listens.
    fn spawned(mut command: Command, data: Arc<TempDir>) -> Server {
        let mut child = command.spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let log = thread::spawn(move || {
            let lines = BufReader::new(stderr).lines().map_while(Result::ok);
            lines.map(|line| line + "\n").collect::<String>()
        });
        let mut greeting = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        while !greeting.contains("curl ") {
            if stdout.read_line(&mut greeting).unwrap() == 0 {
                panic!("the server ended: {:?}\n{greeting}\n{}", child.wait(), log.join().unwrap());
            }
        }
        let native = address(&greeting, "native     http://");
        let facade = greeting.contains("locktopus  ws://");
        let locktopus = if facade { address(&greeting, "locktopus  ws://") } else { native };
        Server { child, native, locktopus, greeting, data, log }
    }

    /// Where its data is.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Where the reader of the OpenSlides facade is; only if it was asked for.
    pub(crate) fn openslides_reader(&self) -> SocketAddr {
        address(&self.greeting, "openslides reader http://")
    }

    /// The same for its writer.
    pub(crate) fn openslides_writer(&self) -> SocketAddr {
        address(&self.greeting, "openslides writer http://")
    }

    /// Where the Elasticsearch facade is; only if it was asked for.
    pub(crate) fn elasticsearch(&self) -> SocketAddr {
        address(&self.greeting, "elasticsearch http://")
    }

    /// Where the Schema Registry facade is; only if it was asked for.
    pub(crate) fn schema_registry(&self) -> SocketAddr {
        address(&self.greeting, "schemas    http://")
    }

    /// The process id, to measure or to signal.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        let status = wait_for(&mut self.child);
        let Server { data, .. } = &self;
        let data = Arc::clone(data);
        // The handle cannot be moved out of something with a destructor; an ended thread takes its place.
        let log = std::mem::replace(&mut self.log, thread::spawn(String::new)).join().unwrap();
        Ended { status, log, data }
    }

    /// Asks it to stop and waits.
    pub(crate) fn stop(self) -> Ended {
        self.signal("-TERM");
        self.wait()
    }

    /// Ends it without warning.
    pub(crate) fn kill(self) -> Ended {
        self.signal("-KILL");
        self.wait()
    }
}

impl Ended {
    /// Where its data is.
    pub(crate) fn data(&self) -> &Path {
        self.data.path()
    }

    /// Starts another server on the same data.
    pub(crate) fn restart(self, flags: &[&str]) -> Server {
        Server::start_on(self.data, flags, &[])
    }

    /// The same on an address of the caller's choice.
    pub(crate) fn restart_at(self, listen: &str, flags: &[&str]) -> Server {
        Server::spawned(command_at(self.data.path(), listen, flags), self.data)
    }

    /// The same with nothing but the native interface.
    pub(crate) fn restart_plain_at(self, listen: &str, flags: &[&str]) -> Server {
        Server::spawned(plain_command_at(self.data.path(), listen, flags), self.data)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            let log = std::mem::replace(&mut self.log, thread::spawn(String::new)).join();
            show_end(self.native, &log.unwrap_or_default());
        }
    }
}

/// Shows what a server logged last: its test has failed.
fn show_end(native: SocketAddr, log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    let end = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
    println!("---- the log of the server at {native}, its last {} lines ----\n{}", end.len(), end.join("\n"));
}

fn command(data: &Path, flags: &[&str]) -> Command {
    command_at(data, "127.0.0.1:0", flags)
}

fn command_at(data: &Path, listen: &str, flags: &[&str]) -> Command {
    let mut command = plain_command_at(data, listen, flags);
    command.args(["--locktopus", "127.0.0.1:0"]);
    command
}

fn plain_command_at(data: &Path, listen: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(["serve", "--listen", listen, "--data"]);
    command.arg(data).args(flags);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn wait_for(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "the server does not end");
        thread::sleep(Duration::from_millis(10));
    }
}

fn address(greeting: &str, before: &str) -> SocketAddr {
    let start = greeting.find(before).unwrap_or_else(|| panic!("no {before:?} in {greeting}")) + before.len();
    let rest = &greeting[start..];
    let end = rest.find(|char: char| char != '.' && char != ':' && !char.is_ascii_digit()).unwrap();
    rest[..end].parse().unwrap()
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Tries until it is true; panics after two minutes.
#[track_caller]
pub(crate) fn eventually(what: &str, is_true: impl FnMut() -> bool) {
    eventually_is(what, is_true, |is_true| *is_true);
}

/// The same for something that can be looked at, and is shown if it never becomes right.
pub(crate) fn eventually_is<T: fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_right: impl Fn(&T) -> bool,
) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let seen = look();
        if is_right(&seen) {
            return;
        }
        assert!(Instant::now() < deadline, "never happened: {what}; last seen: {seen:?}");
        thread::sleep(Duration::from_millis(5));
    }
}
