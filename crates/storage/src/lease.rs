//! Leases as they are kept, in the log and in the state. Knows nothing of whether they still hold.

use lockwood_model::{Depth, Json, Lease, LeaseVia, LockId, Path, Resource, Timestamp, Token};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub(crate) struct StoredLease<'a> {
    lock: u64,
    token: u64,
    #[serde(borrow)]
    owner: &'a str,
    kind: StoredKind<'a>,
    resources: Vec<StoredResource<'a>>,
    granted_at: u64,
    expires_at: Option<u64>,
    note: Option<&'a str>,
    version: u64,
}

/// Segments, mode, depth.
type StoredResource<'a> = (Vec<&'a str>, &'a str, u8);

/// The first two are written as false and true are, which is what earlier versions wrote.
#[derive(Serialize, Deserialize)]
enum StoredKind<'a> {
    Native,
    Elasticsearch,
    /// A part of a lock on several shards, which earlier versions had; what it was a part of is of no use any more.
    Part {
        #[serde(borrow)]
        whole: Vec<StoredResource<'a>>,
        settled: bool,
    },
    /// What ends by itself, with how long it lasts.
    Timed {
        elasticsearch: bool,
        ttl_ms: u64,
    },
}

impl<'a> From<&'a Lease> for StoredLease<'a> {
    fn from(lease: &'a Lease) -> StoredLease<'a> {
        let kind = match (lease.via, lease.ttl_ms) {
            (via, Some(ttl_ms)) => {
                StoredKind::Timed { elasticsearch: via == LeaseVia::Elasticsearch, ttl_ms }
            }
            (LeaseVia::Native, None) => StoredKind::Native,
            (LeaseVia::Elasticsearch, None) => StoredKind::Elasticsearch,
        };
        StoredLease {
            lock: lease.lock.0,
            token: lease.token.0,
            owner: &lease.owner,
            kind,
            resources: stored(&lease.resources),
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
        let (via, ttl_ms) = match self.kind {
            StoredKind::Native | StoredKind::Part { .. } => (LeaseVia::Native, None),
            StoredKind::Elasticsearch => (LeaseVia::Elasticsearch, None),
            StoredKind::Timed { elasticsearch: false, ttl_ms } => (LeaseVia::Native, Some(ttl_ms)),
            StoredKind::Timed { elasticsearch: true, ttl_ms } => (LeaseVia::Elasticsearch, Some(ttl_ms)),
        };
        Some(Lease {
            lock: LockId(self.lock),
            token: Token(self.token),
            owner: self.owner.into(),
            via,
            resources: read(&self.resources)?,
            granted_at: Timestamp(self.granted_at),
            expires_at: self.expires_at.map(Timestamp),
            ttl_ms,
            note: self.note.map(Json::trusted),
            version: self.version,
        })
    }
}

fn stored(resources: &[Resource]) -> Vec<StoredResource<'_>> {
    resources
        .iter()
        .map(|resource| (resource.path.segments().collect(), resource.mode.as_str(), resource.depth.raw()))
        .collect()
}

fn read(stored: &[StoredResource<'_>]) -> Option<Vec<Resource>> {
    let resource = |(segments, mode, depth): &StoredResource<'_>| {
        let path = Path::from_segments(segments.iter().copied());
        Some(Resource::new(path, mode.parse().ok()?, Depth::levels(u64::from(*depth))?))
    };
    stored.iter().map(resource).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the first versions wrote.
    #[derive(Serialize)]
    struct Before<'a> {
        lock: u64,
        token: u64,
        owner: &'a str,
        elasticsearch: bool,
        resources: Vec<StoredResource<'a>>,
        granted_at: u64,
        expires_at: Option<u64>,
        note: Option<&'a str>,
        version: u64,
    }

    #[test]
    fn leases_of_earlier_versions_are_read() {
        for elasticsearch in [false, true] {
            let before = Before {
                lock: 7,
                token: 9,
                owner: "p",
                elasticsearch,
                resources: vec![(vec!["a", "1"], "write", 255)],
                granted_at: 5,
                expires_at: Some(6),
                note: Some("{}"),
                version: 2,
            };
            let bytes = postcard::to_allocvec(&before).unwrap();
            let lease = postcard::from_bytes::<StoredLease<'_>>(&bytes).unwrap().to_lease().unwrap();
            let via = if elasticsearch { LeaseVia::Elasticsearch } else { LeaseVia::Native };
            assert_eq!((lease.lock, lease.via, lease.version), (LockId(7), via, 2));
            assert_eq!(postcard::to_allocvec(&StoredLease::from(&lease)).unwrap(), bytes);
        }
    }

    #[test]
    fn a_part_of_a_lock_on_several_shards_is_read_as_what_was_here_of_it() {
        let part = StoredLease {
            lock: 7,
            token: 9,
            owner: "p",
            kind: StoredKind::Part { whole: vec![(vec!["a"], "read", 255)], settled: true },
            resources: vec![(vec!["a", "1"], "write", 255)],
            granted_at: 5,
            expires_at: Some(6),
            note: None,
            version: 2,
        };
        let bytes = postcard::to_allocvec(&part).unwrap();
        let lease = postcard::from_bytes::<StoredLease<'_>>(&bytes).unwrap().to_lease().unwrap();
        let path = Path::from_segments(["a", "1"]);
        assert_eq!(lease.resources, [Resource::new(path, lockwood_model::Mode::Write, Depth::SUBTREE)]);
    }
}
