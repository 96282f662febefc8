//! Where it takes place: a directory on a real disk and the servers, each started when it is first needed.
//! Knows nothing of what is measured.

use super::{
    DOCUMENTS, OTHERS, OTHERS_QUICK, SLICE, SLICE_QUICK, lockwood::Lockwood, postgres::Postgres,
    tarantool::Tarantool,
};
use crate::figure::Figure;
use std::{
    cell::{Cell, OnceCell},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tempfile::TempDir;

/// How many keys somebody who asks for fresh ones may use.
pub(crate) const KEYS_LEN: u64 = 10_000_000;

pub(crate) struct Stage {
    quick: bool,
    keys: Cell<u64>,
    // Servers go before their data.
    lockwood: OnceCell<Lockwood>,
    postgres: OnceCell<Postgres>,
    tarantool: OnceCell<Tarantool>,
    data: TempDir,
}

impl Stage {
    pub(crate) fn new(quick: bool) -> Stage {
        let data =
            TempDir::with_prefix_in("lockwood-bench-", disk_directory()).expect("a directory for data");
        // PostgreSQL may have to be somebody else.
        fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        Stage {
            quick,
            keys: Cell::new(0),
            lockwood: OnceCell::new(),
            postgres: OnceCell::new(),
            tarantool: OnceCell::new(),
            data,
        }
    }

    /// What everything else is to be seen with.
    pub(crate) fn machine(&self) -> Figure {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let disk = file_system(self.data.path());
        Figure::new("cores that servers and clients share", cores as f64, "")
            .note(format!("all data on {disk}"))
    }

    pub(crate) fn slice(&self) -> Duration {
        if self.quick { SLICE_QUICK } else { SLICE }
    }

    /// How many documents there are in other collections when there are many.
    pub(crate) fn others(&self) -> u64 {
        if self.quick { OTHERS_QUICK } else { OTHERS }
    }

    pub(crate) fn lockwood(&self) -> &Lockwood {
        self.lockwood.get_or_init(|| Lockwood::start(self.directory("lockwood")))
    }

    pub(crate) fn postgres(&self) -> &Postgres {
        self.postgres.get_or_init(|| Postgres::start(self.directory("postgres")))
    }

    pub(crate) fn tarantool(&self) -> &Tarantool {
        self.tarantool.get_or_init(|| Tarantool::start(&self.directory("tarantool"), DOCUMENTS))
    }

    /// A directory of that name, made if it is not there.
    pub(crate) fn directory(&self, name: &str) -> PathBuf {
        let path = self.data.path().join(name);
        fs::create_dir_all(&path).expect("a directory for data");
        path
    }

    /// The first of many keys nobody else uses.
    pub(crate) fn fresh_keys(&self) -> u64 {
        self.keys.set(self.keys.get() + KEYS_LEN);
        self.keys.get()
    }
}

/// The usual place for such things, unless that is memory; then beside this program.
fn disk_directory() -> PathBuf {
    let usual = std::env::temp_dir();
    if !matches!(file_system(&usual).as_str(), "tmpfs" | "ramfs") {
        return usual;
    }
    let program = std::env::current_exe().expect("this program has a path");
    program.parent().expect("it is in a directory").to_owned()
}

fn file_system(path: &Path) -> String {
    let said = Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output().expect("start stat");
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}
