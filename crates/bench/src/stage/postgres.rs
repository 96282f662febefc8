//! A PostgreSQL with default settings, fsync on, in a directory of its own, and pgbench as its client. Knows
//! nothing of what is compared with it.

use super::{document, run::Run};
use crate::peer::{self, Peer};
use rustix::process::Signal;
use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses to run as root; this is who owns it then.
const OWNER: &str = "postgres";

pub(crate) struct Postgres {
    _peer: Peer,
    port: String,
    directory: PathBuf,
}

/// What pgbench does: a script, how many do it, and the variables they begin with.
pub(crate) struct Script<'a> {
    pub(crate) text: &'a str,
    pub(crate) clients: usize,
    pub(crate) variables: &'a [String],
    /// Prepared statements, or text that is sent as it is.
    pub(crate) prepared: bool,
}

impl Postgres {
    pub(crate) fn start(directory: PathBuf) -> Postgres {
        let data = directory.join("data");
        fs::create_dir(&data).expect("a directory for data");
        give_away(&data);
        let mut initdb = as_owner("initdb");
        initdb.args(["--auth", "trust", "--username", OWNER, "--locale", "C", "--encoding", "UTF8", "-D"]);
        succeed(initdb.arg(&data));
        let port = peer::free_address().port().to_string();
        let mut server = as_owner("postgres");
        server.arg("-D").arg(&data).arg("-k").arg(&data).args([
            "-p",
            &port,
            "-c",
            "listen_addresses=127.0.0.1",
        ]);
        let log = fs::File::create(directory.join("log")).expect("a file for what it says");
        let peer =
            Peer::start(server.current_dir(&directory).stderr(log).stdout(Stdio::null()), Signal::QUIT);
        let postgres = Postgres { _peer: peer, port, directory };
        let mut ready = postgres.client("pg_isready");
        ready.stdout(Stdio::null());
        peer::wait_until("postgres answers", || ready.status().is_ok_and(|status| status.success()));
        postgres
    }

    /// Makes an empty database; gives how it is reached.
    pub(crate) fn url(&self, database: &str) -> String {
        self.sql(&format!("CREATE DATABASE {database}"));
        format!("postgres://{OWNER}@127.0.0.1:{}/{database}", self.port)
    }

    pub(crate) fn sql(&self, text: &str) {
        succeed(self.client("psql").args(["-q", "-v", "ON_ERROR_STOP=1", "-c", text, "-d", OWNER]));
    }

    /// A table of documents numbered from 1 to `count`.
    pub(crate) fn fill(&self, table: &str, count: u64) {
        let padding = document::PADDING_LEN;
        self.sql(&format!(
            "CREATE TABLE {table} (id bigint PRIMARY KEY, version bigint NOT NULL DEFAULT 0, doc jsonb NOT NULL); \
             INSERT INTO {table} (id, doc) SELECT i, jsonb_build_object('name', 'name-' || i, 'number', i, \
             'city', 'city-' || i, 'padding', repeat('x', {padding})) FROM generate_series(1, {count}) i"
        ));
        self.sql(&format!("VACUUM ANALYZE {table}"));
    }

    /// Runs a script again and again for a while.
    pub(crate) fn bench(&self, slice: Duration, script: &Script) -> Run {
        let logs = tempfile::tempdir_in(&self.directory).expect("a directory for logs");
        let file = logs.path().join("script");
        fs::write(&file, script.text).expect("a file for the script");
        let mut pgbench = self.client("pgbench");
        pgbench.args([
            "-n",
            "-j",
            "1",
            "-c",
            &script.clients.to_string(),
            "-T",
            &slice.as_secs().to_string(),
        ]);
        pgbench.args(["-M", if script.prepared { "prepared" } else { "simple" }, "-l", "--log-prefix"]);
        pgbench.arg(logs.path().join("latencies")).arg("-f").arg(file);
        pgbench.args(script.variables.iter().flat_map(|variable| ["-D", variable])).arg(OWNER);
        let said = succeed(&mut pgbench);
        Run { rate: rate(&said), ..Run::new(latencies(logs.path()), slice) }
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join(program));
        command.args(["-h", "127.0.0.1", "-p", &self.port, "-U", OWNER]);
        command
    }
}

/// The third word of each line of the log is a latency.
fn latencies(logs: &Path) -> Vec<f64> {
    let files = fs::read_dir(logs).expect("the logs are there").map(|entry| entry.expect("an entry").path());
    let logs = files.filter(|path| path.file_name().is_some_and(|name| name != "script"));
    let text: String = logs.map(|path| fs::read_to_string(path).expect("a log")).collect();
    text.lines().filter_map(|line| line.split(' ').nth(2)?.parse().ok()).collect()
}

/// Transactions per second without the time to connect.
fn rate(said: &Output) -> f64 {
    let text = String::from_utf8_lossy(&said.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.unwrap_or_else(|| panic!("no rate in {text}"))
}

/// A program of the server, run as a user that it accepts.
fn as_owner(program: &str) -> Command {
    let path = Path::new(PROGRAMS).join(program);
    if !rustix::process::getuid().is_root() {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OWNER, "--regid", OWNER, "--clear-groups", "--"]).arg(path);
    command
}

fn give_away(directory: &Path) {
    if rustix::process::getuid().is_root() {
        chown(directory, Some(owner_id("-u")), Some(owner_id("-g"))).expect("root may do that");
    }
}

fn owner_id(which: &str) -> u32 {
    let said = succeed(Command::new("id").args([which, OWNER]));
    String::from_utf8_lossy(&said.stdout).trim().parse().expect("a number")
}

fn succeed(command: &mut Command) -> Output {
    let said = command.output().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(said.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said.stderr));
    said
}
