//! A PostgreSQL of the test's own, gone with it. Knows nothing of what is kept in it.

use crate::harness::eventually;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The server refuses to run as root; this is who owns it then.
const OWNER: &str = "postgres";

pub(crate) struct Postgres {
    server: Child,
    folder: TempDir,
}

impl Postgres {
    pub(crate) fn start() -> Postgres {
        let folder = TempDir::new().unwrap();
        // The owner of the server must get to what is inside.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        if is_root(&folder) {
            chown(&data, Some(owner_id("-u")), Some(owner_id("-g"))).unwrap();
        }
        let mut initdb = as_owner(&folder, "initdb");
        initdb.args(["--auth", "trust", "--username", OWNER, "--locale", "C", "--encoding", "UTF8"]);
        succeed(initdb.args(["--no-sync", "-D"]).arg(&data));
        let mut server = as_owner(&folder, "postgres");
        server.arg("-D").arg(&data).arg("-k").arg(&data).args(["-c", "listen_addresses=", "-c", "fsync=off"]);
        let server = server.current_dir(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let postgres = Postgres { server, folder };
        eventually("PostgreSQL answers", || {
            let mut ready = Command::new(Path::new(PROGRAMS).join("pg_isready"));
            ready.args(["-q", "-d", &postgres.database()]).status().unwrap().success()
        });
        postgres
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// How clients find it.
    pub(crate) fn database(&self) -> String {
        format!("host={} user={OWNER} dbname={OWNER}", self.data().display())
    }

    /// What psql writes for a script.
    pub(crate) fn sql(&self, script: &str) -> String {
        let file = self.folder.path().join("script.sql");
        fs::write(&file, script).unwrap();
        let mut psql = Command::new("psql");
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "FETCH_COUNT=2", "-d", &self.database()]);
        String::from_utf8(succeed(psql.arg("-f").arg(file)).stdout).unwrap()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn is_root(ours: &TempDir) -> bool {
    fs::metadata(ours.path()).unwrap().uid() == 0
}

/// A program of the server, by somebody it does not refuse.
fn as_owner(ours: &TempDir, program: &str) -> Command {
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
    String::from_utf8_lossy(&said.stdout).trim().parse().unwrap()
}

fn succeed(command: &mut Command) -> Output {
    let said = command.output().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    assert!(said.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said.stderr));
    said
}
