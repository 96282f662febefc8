//! Whether a data directory is sound: every record can be read, and the state is what they lead to. Knows
//! nothing of servers.

use lockwood_storage::{Difference, Embedded, OpenError, Store, StoreError, verify as compare};
use std::path::{Path, PathBuf};

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The last record of the log.
    pub records: u64,
    /// Where the state is not what the log leads to, the first few places.
    pub differences: Vec<String>,
}

/// Why it could not be found out.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The data directory cannot be opened.
    #[error("cannot open the data directory {}: {cause}", directory.display())]
    Open {
        /// Which.
        directory: PathBuf,
        /// Why.
        cause: OpenError,
    },
    /// Something in it cannot be read.
    #[error("cannot read the data directory: {0}")]
    Read(#[from] StoreError),
}

/// Rebuilds the state of `data` from its log in `scratch`, an empty directory, and compares. `progress` is
/// told how many of how many records are done.
pub fn verify(
    data: &Path,
    scratch: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, VerifyError> {
    let store = Embedded::open_existing(data).map_err(|cause| failed(data, cause))?;
    verify_store(&store, scratch, progress)
}

/// The same for a store that is open.
pub(crate) fn verify_store(
    store: &Embedded,
    scratch: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verified, VerifyError> {
    let rebuilt = Embedded::open(scratch).map_err(|cause| failed(scratch, cause))?;
    let mut records = 0;
    let mut seen = |done, all| {
        records = all;
        progress(done, all);
    };
    let differences = compare(&*store.snapshot(), &rebuilt, &mut seen)?;
    Ok(Verified { records, differences: differences.iter().map(describe).collect() })
}

fn failed(directory: &Path, cause: OpenError) -> VerifyError {
    VerifyError::Open { directory: directory.to_owned(), cause }
}

fn describe(difference: &Difference) -> String {
    let key = String::from_utf8_lossy(&difference.key);
    let what = match (difference.found, difference.expected) {
        (true, false) => "should not be there",
        (false, true) => "is missing",
        _ => "has another value than the log leads to",
    };
    format!("{}: {key:?} {what}", difference.space.as_str())
}
