//! Leases as they are kept, in the log and in the state. Knows nothing of whether they still hold.

use lockwood_model::{Depth, Json, Lease, LeaseVia, LockId, Path, Resource, Timestamp, Token};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredLease<'a> {
    lock: u64,
    token: u64,
    #[serde(borrow)]
    owner: &'a str,
    elasticsearch: bool,
    /// Segments, mode, depth.
    resources: Vec<(Vec<&'a str>, &'a str, u8)>,
    granted_at: u64,
    expires_at: Option<u64>,
    note: Option<&'a str>,
    version: u64,
}

impl<'a> From<&'a Lease> for StoredLease<'a> {
    fn from(lease: &'a Lease) -> StoredLease<'a> {
        let resource = |resource: &'a Resource| {
            (resource.path.segments().collect(), resource.mode.as_str(), resource.depth.raw())
        };
        StoredLease {
            lock: lease.lock.0,
            token: lease.token.0,
            owner: &lease.owner,
            elasticsearch: lease.via == LeaseVia::Elasticsearch,
            resources: lease.resources.iter().map(resource).collect(),
            granted_at: lease.granted_at.0,
            expires_at: lease.expires_at.map(|at| at.0),
            note: lease.note.as_ref().map(Json::as_str),
            version: lease.version,
        }
    }
}

impl StoredLease<'_> {
    /// None if it is not what was written.
    pub(crate) fn to_lease(&self) -> Option<Lease> {
        let resource = |(segments, mode, depth): &(Vec<&str>, &str, u8)| {
            let path = Path::from_segments(segments.iter().copied());
            Some(Resource::new(path, mode.parse().ok()?, Depth::levels(u64::from(*depth))?))
        };
        Some(Lease {
            lock: LockId(self.lock),
            token: Token(self.token),
            owner: self.owner.into(),
            via: if self.elasticsearch { LeaseVia::Elasticsearch } else { LeaseVia::Native },
            resources: self.resources.iter().map(resource).collect::<Option<_>>()?,
            granted_at: Timestamp(self.granted_at),
            expires_at: self.expires_at.map(Timestamp),
            note: self.note.map(Json::trusted),
            version: self.version,
        })
    }
}
