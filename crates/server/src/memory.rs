//! The account of the memory that clients make the server hold: bodies that have not arrived completely and answers that
//! have not been read. Each is small, but there are many connections. Knows nothing of sockets or HTTP.
//!
//! What fits into [`FREE_BYTES`] is not counted, so requests for locks, releases and health checks cost nothing here and
//! are answered also while the account is used up.

use bytes::Bytes;
use lockwood_node::{metrics::Counter, trouble::Trouble};
use lockwood_wire::Code;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A body or an answer up to this size is not counted.
pub(crate) const FREE_BYTES: usize = 16 * 1024;
/// How often a stream that waits for room looks again.
const ROOM_INTERVAL: Duration = Duration::from_millis(20);
/// What a piece of a stream is counted as while it is made.
const PIECE_BYTES: usize = 256 * 1024;
/// At most so many pieces are made at the same time, or as many as there are processors.
const MADE_LEN_MAX: usize = 8;

/// How much is held, and how much may be.
#[derive(Debug)]
pub(crate) struct Account {
    held: AtomicU64,
    limit: u64,
    refusals: Counter,
    /// One permit for each piece of a stream that is made. How much such a piece holds is known only then, and making
    /// it takes several times as much.
    turns: Arc<Semaphore>,
}

/// A turn to make a piece of a stream.
pub(crate) type Turn = OwnedSemaphorePermit;

/// A turn to make a piece, and a share for it.
#[derive(Debug)]
pub(crate) struct Making {
    share: Share,
    _turn: Turn,
}

impl Making {
    /// The piece, counted as what it holds. The next one may be made.
    pub(crate) fn made(mut self, mut piece: Vec<u8>) -> Bytes {
        piece.shrink_to_fit();
        self.share.set(piece.len());
        self.share.attach(piece)
    }
}

impl Account {
    pub(crate) fn new(limit: u64) -> Arc<Account> {
        let turns = thread::available_parallelism().map_or(2, usize::from).clamp(2, MADE_LEN_MAX);
        let (held, turns) = (AtomicU64::new(0), Arc::new(Semaphore::new(turns)));
        Arc::new(Account { held, limit, refusals: Counter::default(), turns })
    }

    /// Waits for a turn to make a piece of a stream.
    pub(crate) async fn turn(&self) -> Turn {
        Arc::clone(&self.turns).acquire_owned().await.expect("the semaphore is never closed")
    }

    /// Waits for room for another piece of a stream, and for a turn to make it.
    pub(crate) async fn making(self: &Arc<Account>) -> Making {
        loop {
            self.room().await;
            let turn = self.turn().await;
            if self.has_room() {
                return Making { share: self.charge(PIECE_BYTES), _turn: turn };
            }
        }
    }

    /// A share for so many bytes, refused if there is no room for them.
    pub(crate) fn take(self: &Arc<Account>, bytes: usize) -> Result<Share, Trouble> {
        let mut share = self.charge(0);
        share.grow(bytes)?;
        Ok(share)
    }

    /// A share for bytes that are held already, whether there is room for them or not.
    pub(crate) fn charge(self: &Arc<Account>, bytes: usize) -> Share {
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
        Share { account: Arc::clone(self), bytes: bytes as u64 }
    }

    /// Refuses something new while the account is used up.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if self.has_room() { Ok(()) } else { Err(self.refuse()) }
    }

    /// Waits until something that was held is let go, if the account is used up.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            tokio::time::sleep(ROOM_INTERVAL).await;
        }
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.get()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.held() < self.limit
    }

    fn refuse(&self) -> Trouble {
        self.refusals.add(1);
        let message = format!(
            "requests that have not arrived completely and answers that have not been read hold as much memory as they \
             may; the limit held_bytes_max is {} (flag --held-bytes-max); read the answers you asked for, and try again",
            self.limit
        );
        Trouble::new(Code::MemoryInUse, message)
    }
}

/// A part of the account; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    account: Arc<Account>,
    bytes: u64,
}

impl Share {
    /// Takes more, or refuses and stays as it is.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Trouble> {
        let (account, bytes) = (&self.account, bytes as u64);
        let before = account.held.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > account.limit {
            account.held.fetch_sub(bytes, Ordering::Relaxed);
            return Err(account.refuse());
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Takes more or gives some back, whether there is room or not.
    fn set(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.account.held.fetch_add(bytes, Ordering::Relaxed);
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
        self.bytes = bytes;
    }

    /// Takes more or gives some back, or refuses and stays as it is.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), Trouble> {
        let bytes = bytes as u64;
        if bytes > self.bytes {
            return self.grow((bytes - self.bytes) as usize);
        }
        self.account.held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        self.bytes = bytes;
        Ok(())
    }

    /// The same bytes, which hold the share until the last copy of them is dropped.
    pub(crate) fn attach(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(Held { bytes, _share: self })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

struct Held<B> {
    bytes: B,
    _share: Share,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Held<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// A buffer that grows with what arrives, counted as soon as it is larger than [`FREE_BYTES`].
#[derive(Debug)]
pub(crate) struct Buffer {
    account: Arc<Account>,
    bytes: Vec<u8>,
    share: Option<Share>,
}

impl Buffer {
    pub(crate) fn new(account: &Arc<Account>) -> Buffer {
        Buffer { account: Arc::clone(account), bytes: Vec::new(), share: None }
    }

    pub(crate) fn extend(&mut self, more: &[u8]) -> Result<(), Trouble> {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            self.reserve(needed.max(self.bytes.capacity() * 2))?;
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }

    fn reserve(&mut self, capacity: usize) -> Result<(), Trouble> {
        if capacity > FREE_BYTES {
            let more = capacity - self.bytes.capacity();
            match &mut self.share {
                Some(share) => share.grow(more)?,
                None => self.share = Some(self.account.take(capacity)?),
            }
        }
        self.bytes.reserve_exact(capacity - self.bytes.len());
        Ok(())
    }

    /// Forgets everything; memory that a large content needed is given back.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.share.take().is_some() {
            self.bytes = Vec::new();
        }
    }

    /// The content, with its share.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self.share {
            Some(share) => share.attach(self.bytes),
            None => self.bytes.into(),
        }
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_that_does_not_fit_is_refused_and_takes_nothing() {
        let account = Account::new(100);
        let first = account.take(60).unwrap();
        assert_eq!(account.take(41).unwrap_err().code, Code::MemoryInUse);
        assert_eq!((account.held(), account.refusals()), (60, 1));
        drop(first);
        assert_eq!(account.held(), 0);
        drop(account.take(100).unwrap());
    }

    #[test]
    fn bytes_hold_their_share_until_the_last_copy_is_gone() {
        let account = Account::new(100);
        let bytes = account.take(3).unwrap().attach(vec![1, 2, 3]);
        let copy = bytes.slice(1..2);
        drop(bytes);
        assert_eq!((account.held(), &copy[..]), (3, &[2][..]));
        drop(copy);
        assert_eq!(account.held(), 0);
    }

    #[test]
    fn a_buffer_counts_only_what_is_large() {
        let account = Account::new(3 * FREE_BYTES as u64);
        let mut buffer = Buffer::new(&account);
        buffer.extend(&vec![0; FREE_BYTES]).unwrap();
        assert_eq!(account.held(), 0);
        buffer.extend(b"x").unwrap();
        assert_eq!(account.held(), 2 * FREE_BYTES as u64);
        assert_eq!(buffer.extend(&vec![0; 2 * FREE_BYTES]).unwrap_err().code, Code::MemoryInUse);
        assert_eq!(account.held(), 2 * FREE_BYTES as u64, "what was refused is not held");
        buffer.clear();
        assert_eq!(account.held(), 0);
        buffer.extend(&vec![7; FREE_BYTES + 1]).unwrap();
        let bytes = buffer.into_bytes();
        assert_eq!((bytes.len(), account.held()), (FREE_BYTES + 1, FREE_BYTES as u64 + 1));
        drop(bytes);
        assert_eq!(account.held(), 0);
    }

    #[tokio::test]
    async fn a_piece_is_counted_before_it_is_made() {
        let account = Account::new(2 * PIECE_BYTES as u64);
        let making = account.making().await;
        assert_eq!(account.held(), PIECE_BYTES as u64);
        let piece = making.made(vec![7; 3 * PIECE_BYTES]);
        assert_eq!(account.held(), 3 * PIECE_BYTES as u64);
        let next = tokio::time::timeout(Duration::from_millis(50), account.making()).await;
        assert!(next.is_err(), "there is no room for another piece");
        drop(piece);
        drop(account.making().await);
        assert_eq!(account.held(), 0);
    }

    #[tokio::test]
    async fn few_pieces_are_made_at_the_same_time() {
        let account = Account::new(u64::MAX);
        let mut turns = Vec::new();
        while let Ok(making) = tokio::time::timeout(Duration::from_millis(50), account.making()).await {
            turns.push(making);
        }
        assert!((2..=MADE_LEN_MAX).contains(&turns.len()), "{}", turns.len());
        turns.pop();
        drop(account.making().await);
    }

    #[test]
    fn what_is_charged_counts_against_new_requests() {
        let account = Account::new(100);
        let share = account.charge(150);
        assert_eq!(account.check().unwrap_err().code, Code::MemoryInUse);
        drop(share);
        account.check().unwrap();
    }
}
