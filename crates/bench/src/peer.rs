//! A server to be measured: started on a free port, asked for its CPU time and memory, ended. Knows nothing
//! of protocols.

use rustix::process::{Pid, Signal};
use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const START_MAX: Duration = Duration::from_secs(60);

/// A running server process; ended when dropped.
pub(crate) struct Peer {
    child: Child,
    /// The signal that ends it.
    farewell: Signal,
    data: Option<tempfile::TempDir>,
}

impl Peer {
    /// Starts what keeps its data elsewhere, on any core.
    pub(crate) fn start(command: &mut Command, farewell: Signal) -> Peer {
        let child = command.spawn().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
        Peer { child, farewell, data: None }
    }

    /// The `lockwood` beside this program; gives its native and its Locktopus address.
    pub(crate) fn lockwood() -> (Peer, SocketAddr, SocketAddr) {
        let data = tempfile::tempdir().expect("a directory for data");
        let (peer, greeting) = Peer::serve(on_first_core(&lockwood_binary()), data.path());
        let peer = peer.with(data);
        (peer, address(&greeting, "native     http://"), address(&greeting, "locktopus  ws://"))
    }

    /// The same on any core, with data that is there before and after; gives its native address.
    pub(crate) fn lockwood_at(data: &Path) -> (Peer, SocketAddr) {
        let (peer, greeting) = Peer::serve(Command::new(lockwood_binary()), data);
        (peer, address(&greeting, "native     http://"))
    }

    /// A node of a cluster, with data that is there before and after.
    pub(crate) fn lockwood_node(data: &Path, listen: SocketAddr, flags: &[String]) -> Peer {
        let mut command = Command::new(lockwood_binary());
        command.args(["serve", "--listen", &listen.to_string(), "--data"]).arg(data).args(flags);
        command.args(std::env::var("LOCKWOOD_BENCH_SERVE").unwrap_or_default().split_whitespace());
        command.stdout(Stdio::null()).env("RUST_LOG", "warn");
        let peer = Peer::start(&mut command, Signal::KILL);
        wait_until("the node answers", || TcpStream::connect(listen).is_ok());
        peer
    }

    /// A Lockwood and what it says once it listens.
    fn serve(mut command: Command, data: &Path) -> (Peer, String) {
        command.args(["serve", "--listen", "127.0.0.1:0", "--locktopus", "127.0.0.1:0", "--data"]);
        command.arg(data).stdout(Stdio::piped()).env("RUST_LOG", "warn");
        // Further flags to try, for example --threads 1.
        command.args(std::env::var("LOCKWOOD_BENCH_SERVE").unwrap_or_default().split_whitespace());
        let mut peer = Peer::start(&mut command, Signal::KILL);
        let mut output = BufReader::new(peer.child.stdout.take().expect("it is piped"));
        let mut greeting = String::new();
        while !greeting.contains("curl ") {
            assert!(output.read_line(&mut greeting).expect("text") > 0, "lockwood ended: {greeting}");
        }
        (peer, greeting)
    }

    /// A Redis that keeps everything in memory only, as fast as it can be.
    pub(crate) fn redis() -> (Peer, SocketAddr) {
        let data = tempfile::tempdir().expect("a directory for data");
        let free = free_address();
        let mut command = on_first_core(Path::new("redis-server"));
        command.args([
            "--bind",
            "127.0.0.1",
            "--port",
            &free.port().to_string(),
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(data.path()).stdout(Stdio::null());
        let peer = Peer::start(&mut command, Signal::KILL).with(data);
        wait_until("redis-server answers", || TcpStream::connect(free).is_ok());
        (peer, free)
    }

    /// Keeps its data for as long as it runs.
    fn with(mut self, data: tempfile::TempDir) -> Peer {
        self.data = Some(data);
        self
    }

    /// Asks for an orderly end and waits for it.
    pub(crate) fn end(&mut self) {
        let _ = rustix::process::kill_process(Pid::from_child(&self.child), Signal::TERM);
        self.child.wait().expect("it is our child");
    }

    /// CPU time of all threads so far.
    pub(crate) fn cpu(&self) -> Duration {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("the process lives");
        let times = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
        let nanos = times.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
        Duration::from_nanos(nanos.sum())
    }

    /// Resident memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("the process lives");
        let pages: u64 =
            text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
        pages * rustix::param::page_size() as u64
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = rustix::process::kill_process(Pid::from_child(&self.child), self.farewell);
            let _ = self.child.wait();
        }
    }
}

/// An address of this machine on which nobody listens.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound")
}

/// Looks again and again; a server that has just been started needs a moment.
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + START_MAX;
    while !reached() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn lockwood_binary() -> PathBuf {
    std::env::current_exe().expect("this program has a path").with_file_name("lockwood")
}

/// Servers run on the first core and the load generator on the others, as far as there are others: where the
/// scheduler puts two processes that wake each other all the time makes more difference than what they do.
fn on_first_core(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]).arg(program);
    command
}

/// The other half of [`on_first_core`], for this process.
pub(crate) fn leave_first_core() {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cores > 1 {
        let others = format!("1-{}", cores - 1);
        let own = std::process::id().to_string();
        let moved =
            Command::new("taskset").args(["-a", "-c", "-p", &others, &own]).stdout(Stdio::null()).status();
        assert!(moved.is_ok_and(|status| status.success()), "taskset works");
    }
}

fn address(greeting: &str, before: &str) -> SocketAddr {
    let start = greeting.find(before).expect("the greeting names the address") + before.len();
    let rest = &greeting[start..];
    let end =
        rest.find(|char: char| char != '.' && char != ':' && !char.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().expect("an address")
}
