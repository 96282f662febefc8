//! A server to be measured: started on a free port, asked for its CPU time and memory, ended. Knows nothing
//! of protocols.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A running server process; ended when dropped.
pub(crate) struct Peer {
    child: Child,
    _data: tempfile::TempDir,
}

impl Peer {
    /// The `lockwood` beside this program; gives its native and its Locktopus address.
    pub(crate) fn lockwood() -> (Peer, SocketAddr, SocketAddr) {
        let data = tempfile::tempdir().expect("a directory for data");
        let binary = std::env::current_exe().expect("this program has a path").with_file_name("lockwood");
        let mut command = on_first_core(&binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--locktopus", "127.0.0.1:0", "--data"]);
        command.arg(data.path()).stdout(Stdio::piped()).env("RUST_LOG", "warn");
        // Further flags to try, for example --threads 1.
        command.args(std::env::var("LOCKWOOD_BENCH_SERVE").unwrap_or_default().split_whitespace());
        let mut child = command.spawn().expect("start lockwood: cargo build --release -p lockwood");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut greeting = String::new();
        while !greeting.contains("curl ") {
            assert!(output.read_line(&mut greeting).expect("text") > 0, "lockwood ended: {greeting}");
        }
        let peer = Peer { child, _data: data };
        (peer, address(&greeting, "native     http://"), address(&greeting, "locktopus  ws://"))
    }

    /// A Redis that keeps everything in memory only, as fast as it can be.
    pub(crate) fn redis() -> (Peer, SocketAddr) {
        let data = tempfile::tempdir().expect("a directory for data");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
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
        let child = command.spawn().expect("start redis-server: make deps installs it");
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(free).is_err() {
            assert!(Instant::now() < deadline, "redis-server does not answer");
            thread::sleep(Duration::from_millis(20));
        }
        (Peer { child, _data: data }, free)
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
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
