//! Where it takes place: a directory on a real disk and the servers, each started when it is first needed.
//! Knows nothing of what is measured.

pub(crate) mod cluster;
pub(crate) mod disk;
pub(crate) mod document;
#[cfg(feature = "etcd")]
pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod lockwood;
pub(crate) mod nodes;
pub(crate) mod postgres;
pub(crate) mod random;
pub(crate) mod run;
pub(crate) mod tarantool;

use crate::figure::Figure;
use lockwood::Lockwood;
use postgres::Postgres;
use std::{
    cell::{Cell, OnceCell},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use tarantool::Tarantool;
use tempfile::TempDir;

/// How long a stretch of load is; whole seconds, which is what pgbench can.
const SLICE: Duration = Duration::from_secs(2);
const SLICE_QUICK: Duration = Duration::from_secs(1);
/// How many documents there are in what is read.
pub(crate) const DOCUMENTS: u64 = 10_000;
/// How many there are in other collections when there are many.
const OTHERS: u64 = 1_000_000;
const OTHERS_QUICK: u64 = 100_000;
/// What can be measured by itself, and how.
pub(crate) type Part = (&'static str, fn(&Stage) -> Vec<Figure>);

/// The figures of all parts, or of one; `quick` for a first look.
pub(crate) fn measure(parts: &[Part], quick: bool, only: Option<&str>) -> Vec<Figure> {
    let stage = Stage::new(quick);
    let mut figures = vec![stage.machine()];
    for (name, part) in parts.iter().filter(|(name, _)| only.is_none_or(|only| only == *name)) {
        eprintln!("measuring {name}");
        figures.extend(part(&stage));
    }
    figures
}

/// How many keys somebody who asks for fresh ones may use.
pub(crate) const KEYS_LEN: u64 = 10_000_000;

pub(crate) struct Stage {
    quick: bool,
    keys: Cell<u64>,
    // Servers go before their data.
    lockwood: OnceCell<Lockwood>,
    postgres: OnceCell<Postgres>,
    tarantool: OnceCell<Tarantool>,
    #[cfg(feature = "etcd")]
    etcd: OnceCell<etcd::Etcd>,
    #[cfg(feature = "etcd")]
    etcd_of_three: OnceCell<etcd::Etcd>,
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
            #[cfg(feature = "etcd")]
            etcd: OnceCell::new(),
            #[cfg(feature = "etcd")]
            etcd_of_three: OnceCell::new(),
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

    /// Whether this is only a first look.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
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

    #[cfg(feature = "etcd")]
    pub(crate) fn etcd(&self) -> &etcd::Etcd {
        self.etcd.get_or_init(|| etcd::Etcd::start(&self.directory("etcd"), 1))
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn etcd_of_three(&self) -> &etcd::Etcd {
        self.etcd_of_three.get_or_init(|| etcd::Etcd::start(&self.directory("etcd-of-three"), 3))
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
