//! The seal that every commit carries: its number, and a digest of the spaces that nothing else can vouch for.
//! Knows nothing of where it is kept.

use crate::store::Space;
use xxhash_rust::xxh3::Xxh3Default;

/// The spaces under the seal: what cannot be made again from the log.
pub(crate) const SEALED: [Space; 2] = [Space::Numbers, Space::Actions];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Seal {
    /// The number of the commit; there are no gaps.
    pub(crate) commits: u64,
    /// The last commit that was durable when this one was written.
    pub(crate) synced: u64,
    /// The sum of the digests of all keys with their values, so that it can follow every change.
    pub(crate) digest: u64,
}

impl Seal {
    pub(crate) fn add(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.digest = self.digest.wrapping_add(digest(space, key, value));
    }

    pub(crate) fn remove(&mut self, space: Space, key: &[u8], value: &[u8]) {
        self.digest = self.digest.wrapping_sub(digest(space, key, value));
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [self.commits.to_be_bytes(), self.digest.to_be_bytes(), self.synced.to_be_bytes()].concat()
    }

    pub(crate) fn read(bytes: &[u8]) -> Option<Seal> {
        Seal::read_numbered(bytes).or_else(|| Seal::read_unnumbered(bytes))
    }

    /// A seal with the number of its commit.
    pub(crate) fn read_numbered(bytes: &[u8]) -> Option<Seal> {
        let (rest, synced) = bytes.split_last_chunk::<8>()?;
        Some(Seal { synced: u64::from_be_bytes(*synced), ..Seal::read_unnumbered(rest)? })
    }

    /// Up to format 2 only commits that changed a sealed space were counted and had a seal.
    fn read_unnumbered(bytes: &[u8]) -> Option<Seal> {
        let (commits, digest) = bytes.split_first_chunk::<8>()?;
        let digest = u64::from_be_bytes(digest.try_into().ok()?);
        Some(Seal { commits: u64::from_be_bytes(*commits), synced: 0, digest })
    }
}

fn digest(space: Space, key: &[u8], value: &[u8]) -> u64 {
    let mut hasher = Xxh3Default::new();
    hasher.update(space.as_str().as_bytes());
    hasher.update(&(key.len() as u64).to_be_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.digest()
}
