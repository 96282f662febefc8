//! Everything a server keeps as a stream of bytes. Knows nothing of what is in it, or of where it goes.

use crate::{error::Error, transport::Streaming};
use bytes::Bytes;
use lockwood_wire::ABOUT_BYTES_HEADER;

/// A backup that is coming. Whether all of it came is for whoever reads it to check.
pub struct Backup(Streaming);

impl Backup {
    pub(crate) fn new(stream: Streaming) -> Backup {
        Backup(stream)
    }

    /// About how many bytes are coming, if the server can say.
    pub fn about_bytes(&self) -> Option<u64> {
        self.0.number(ABOUT_BYTES_HEADER)
    }

    /// The next bytes; none after the last.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.chunk().await
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").finish_non_exhaustive()
    }
}
