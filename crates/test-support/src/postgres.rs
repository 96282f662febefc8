//! A PostgreSQL server for the tests of one process, gone with it. Knows nothing of what is kept in it.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Output, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread::sleep,
    time::{Duration, Instant},
};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses to run as root; this is who owns it then.
const OWNER: &str = "postgres";
const PATIENCE: Duration = Duration::from_secs(60);
/// Stops the server and deletes its folder when the process that started it is gone, however it ended: its end of the
/// pipe is closed then. The first line that comes through the pipe is the id of the server.
const KEEPER: &str = r#"trap "" INT TERM HUP
read -r server
while read -r line; do :; done
kill -QUIT "$server" 2>/dev/null
while kill -0 "$server" 2>/dev/null; do sleep 0.05; done
rm -rf "$1""#;

/// A server. Clients reach it by a socket of the file system and by a port.
pub struct Postgres {
    folder: PathBuf,
    port: u16,
    server: Child,
    keeper: Child,
    /// The keeper waits for its end.
    pipe: Option<ChildStdin>,
}

impl Postgres {
    /// The server that all tests of a process share. Syncs nothing.
    pub fn shared() -> &'static Postgres {
        static SHARED: OnceLock<Postgres> = OnceLock::new();
        SHARED.get_or_init(|| Postgres::start(&["fsync=off"]))
    }

    /// Whose certificates the server has if `ssl` is on; they are for the name `localhost`.
    pub fn authority() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("certs/authority.pem")
    }

    /// A server of its own, with these settings.
    pub fn start(settings: &[&str]) -> Postgres {
        let folder = tempfile::tempdir().expect("make a folder").keep();
        // The owner of the server must get to what is inside.
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("open the folder");
        let data = folder.join("data");
        fs::create_dir(&data).expect("make a folder");
        if is_root(&folder) {
            chown(&data, Some(owner_id("-u")), Some(owner_id("-g"))).expect("give the folder away");
        }
        let mut initdb = as_owner(&folder, "initdb");
        initdb.args(["--auth", "trust", "--username", OWNER, "--locale", "C", "--encoding", "UTF8"]);
        succeed(initdb.args(["--no-sync", "-D"]).arg(&data));
        write_private(&data, "server.crt", include_str!("../certs/server.pem"));
        write_private(&data, "server.key", include_str!("../certs/server.key"));
        Postgres::launch(folder, free_port(), settings)
    }

    /// A standby of this server, with these settings. It follows at once; whether it is waited for is for this server's
    /// settings to say.
    pub fn standby(&self, settings: &[&str]) -> Postgres {
        let folder = tempfile::tempdir().expect("make a folder").keep();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("open the folder");
        let mut copy = as_owner(&folder, "pg_basebackup");
        copy.args([
            "-h",
            "127.0.0.1",
            "-p",
            &self.port.to_string(),
            "-U",
            OWNER,
            "--no-sync",
            "-c",
            "fast",
            "-R",
            "-D",
        ]);
        succeed(copy.arg(folder.join("data")));
        Postgres::launch(folder, free_port(), settings)
    }

    /// Makes a standby a server that takes writes.
    pub fn promote(&self) {
        self.sql(OWNER, "select pg_promote()");
    }

    /// Ends the server at once, as a crash of its machine does.
    pub fn crash(&mut self) {
        self.end("-QUIT");
    }

    /// Ends the server as planned: connections are closed, and what was written is on disk.
    pub fn stop(&mut self) {
        self.end("-INT");
    }

    /// Kills the server and all its processes, none of which learns of it.
    pub fn kill(&mut self) {
        let server = self.server.id().to_string();
        // A stopped server starts no more processes.
        signal("-STOP", &server);
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &server]).output();
        let children = String::from_utf8_lossy(&children.expect("run ps").stdout).into_owned();
        for child in children.split_whitespace() {
            // One that has ended by itself is no matter.
            let _ = kill("-KILL", child);
        }
        self.end("-KILL");
        self.free_memory();
    }

    fn end(&mut self, how: &str) {
        signal(how, &self.server.id().to_string());
        let _ = self.server.wait();
    }

    /// Frees the shared memory of a server that was killed: its last line but one in the file names it.
    fn free_memory(&self) {
        let file = fs::read_to_string(self.folder.join("data/postmaster.pid")).unwrap_or_default();
        let id = file.lines().nth(6).and_then(|line| line.split_whitespace().nth(1));
        if let Some(id) = id {
            let _ = Command::new("ipcrm").args(["-m", id]).stderr(Stdio::null()).status();
        }
    }

    /// Starts a server that has ended on what it left.
    pub fn recover(self, settings: &[&str]) -> Postgres {
        let (folder, port) = (self.folder.clone(), self.port);
        let kept = folder.with_extension("kept");
        fs::rename(&folder, &kept).expect("keep the folder");
        drop(self);
        fs::rename(&kept, &folder).expect("put the folder back");
        let _ = fs::remove_file(folder.join("data/postmaster.pid"));
        Postgres::launch(folder, port, settings)
    }

    /// Starts a server on what is in `folder`.
    fn launch(folder: PathBuf, port: u16, settings: &[&str]) -> Postgres {
        let data = folder.join("data");
        let mut server = as_owner(&folder, "postgres");
        server.arg("-D").arg(&data).arg("-k").arg(&data);
        let addresses = format!("listen_addresses=127.0.0.1,{}", own_address());
        server.args(["-c", &addresses, "-c", "max_connections=200", "-p"]).arg(port.to_string());
        server.args(settings.iter().flat_map(|setting| ["-c", *setting]));
        let log = fs::File::create(folder.join("log")).expect("make a file");
        server.current_dir(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let server = server.spawn().expect("start the server");
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start a shell");
        let mut pipe = keeper.stdin.take().expect("it is a pipe");
        writeln!(pipe, "{}", server.id()).expect("tell the keeper");
        let postgres = Postgres { folder, port, server, keeper, pipe: Some(pipe) };
        let begun = Instant::now();
        while !postgres.is_ready() {
            assert!(begun.elapsed() < PATIENCE, "PostgreSQL does not answer: {}", postgres.log());
            sleep(Duration::from_millis(20));
        }
        postgres
    }

    fn is_ready(&self) -> bool {
        let mut ready = Command::new(Path::new(PROGRAMS).join("pg_isready"));
        ready.args(["-q", "-d", &self.socket(OWNER)]).status().expect("run pg_isready").success()
    }

    /// What the server has written about itself.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// The id of the server's process.
    pub fn process(&self) -> u32 {
        self.server.id()
    }

    /// Where the server listens besides 127.0.0.1. No connection takes this port while the server is down.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((own_address(), self.port))
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How clients find a database by the socket.
    pub fn socket(&self, database: &str) -> String {
        format!(
            "host={} port={} user={OWNER} dbname={database}",
            self.folder.join("data").display(),
            self.port
        )
    }

    /// How clients find a database by a port: that of the server, or of a proxy before it.
    pub fn url(&self, database: &str, port: u16) -> String {
        format!("postgres://{OWNER}@localhost:{port}/{database}")
    }

    /// Makes an empty database; gives its name.
    pub fn create_database(&self) -> String {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let name = format!("test{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.sql(OWNER, &format!("create database {name}"));
        name
    }

    /// What psql writes for a script.
    pub fn sql(&self, database: &str, script: &str) -> String {
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-d", &self.socket(database), "-c", script]);
        String::from_utf8(succeed(&mut psql).stdout).expect("UTF-8").trim_end().to_owned()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = (self.server.wait(), self.keeper.wait());
    }
}

/// A file that only the owner of the server can read, or the server does not take it.
fn write_private(data: &Path, name: &str, content: &str) {
    let path = data.join(name);
    fs::write(&path, content).expect("write a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("close a file");
    let owner = fs::metadata(data).expect("it is there");
    chown(&path, Some(owner.uid()), Some(owner.gid())).expect("give a file away");
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a port");
    listener.local_addr().expect("it has an address").port()
}

/// A loopback address of this process.
fn own_address() -> Ipv4Addr {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 78, high, low)
}

fn signal(signal: &str, process: &str) {
    assert!(kill(signal, process), "the server is there");
}

fn kill(signal: &str, process: &str) -> bool {
    let mut command = Command::new("kill");
    command.args([signal, process]).stderr(Stdio::null()).status().expect("run kill").success()
}

fn is_root(ours: &Path) -> bool {
    fs::metadata(ours).expect("it is there").uid() == 0
}

/// A program of the server, run as a user that it accepts.
fn as_owner(ours: &Path, program: &str) -> Command {
    let path = Path::new(PROGRAMS).join(program);
    if !is_root(ours) {
        return Command::new(path);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", OWNER, "--regid", OWNER, "--clear-groups", "--"]).arg(path);
    command
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
