//! Proofs that a call comes from a node of the cluster: a MAC over everything the call says, bound to one receiver and
//! good for one use. Knows nothing of sockets, nor of what the calls ask for.
//!
//! ```text
//!   caller                                   receiver (incarnation R)
//!     │ call, proof for R, number n ───────────► MAC right? for R? n not seen? ──► handled
//!     │ ◄─── 401, "I am R" ──────────────────── proof for another incarnation
//! ```
//!
//! A receiver draws its incarnation at its start, so a recorded call is useless at another node and useless after a
//! restart; the number makes it useless twice. The time in a proof only bounds how long a stalled call stays valid.

use hmac::{Hmac, KeyInit, Mac};
use hyper::{HeaderMap, Method, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

/// The header that carries a proof.
pub const PROOF: &str = "lockwood-proof";
/// The header in which a receiver names its incarnation to a caller that does not know it.
pub const INCARNATION: &str = "lockwood-incarnation";

/// A proof older or newer than this is rejected. Clocks of nodes may differ by as much.
const AGE_MS_MAX: u64 = 300_000;
/// Calls of one caller may overtake each other by this many numbers.
const WINDOW_LEN: u64 = 1 << 16;
/// Incarnations of callers that are remembered; more than a cluster has nodes.
const CALLERS_LEN_MAX: usize = 4096;

/// One run of a node.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Incarnation([u8; 16]);

impl Incarnation {
    /// That of no node: a proof for it is valid nowhere.
    pub(crate) const NOBODY: Incarnation = Incarnation([0; 16]);

    /// A new, unique one.
    #[must_use]
    pub fn draw() -> Incarnation {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system has a random source");
        Incarnation(bytes)
    }

    /// Reads what [`fmt::Display`] writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Incarnation> {
        unhex(text).map(Incarnation)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// What a proof covers.
#[derive(Debug, Clone, Copy)]
pub struct Covered<'a> {
    /// The method of the call.
    pub method: &'a Method,
    /// Its path and query.
    pub target: &'a str,
    /// All headers; those between two hops only are left out.
    pub headers: &'a HeaderMap,
}

/// The digest of the body that goes with a proof. A receiver checks the proof before it reads the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the body has to be compared with it"]
pub struct BodyDigest([u8; 32]);

impl BodyDigest {
    /// That of a body.
    pub fn of(body: &[u8]) -> BodyDigest {
        BodyDigest(Sha256::digest(body).into())
    }
}

/// Why a call is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// There is no proof, or not one that can be read.
    #[error("the call carries no proof that it comes from a node of this cluster")]
    Missing,
    /// It is for another node, or for this one before its last restart.
    #[error("the proof is for another incarnation of this node")]
    OtherReceiver,
    /// The key or what it covers is another one.
    #[error("the proof does not fit the call; do all nodes use the same database?")]
    Wrong,
    /// It was shown before, or is too old to tell.
    #[error("the proof was used before")]
    Used,
    /// Its time is not now.
    #[error("the proof is from another time; are the clocks of the nodes right?")]
    Stale,
}

/// Makes and checks proofs for one run of one node.
pub struct Prover {
    key: [u8; 32],
    own: Incarnation,
    next: AtomicU64,
    seen: Mutex<HashMap<Incarnation, Window>>,
}

impl Prover {
    /// For a cluster with this key.
    #[must_use]
    pub fn new(key: [u8; 32], own: Incarnation) -> Prover {
        Prover { key, own, next: AtomicU64::new(1), seen: Mutex::default() }
    }

    /// This run.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.own
    }

    /// A proof for one receiver.
    #[must_use]
    pub fn prove(
        &self,
        covered: Covered<'_>,
        body: BodyDigest,
        receiver: Incarnation,
        now_ms: u64,
    ) -> String {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let said = format!("1.{}.{receiver}.{now_ms}.{number}.{}", self.own, hex(&body.0));
        let mac = self.mac(&said, covered).finalize().into_bytes();
        format!("{said}.{}", hex(&mac))
    }

    /// Checks the proof of a call to this node; gives the digest that its body must have. A proof that passes is used up.
    pub fn check(&self, covered: Covered<'_>, now_ms: u64) -> Result<BodyDigest, ProofError> {
        let proof = covered.headers.get(PROOF).and_then(|proof| proof.to_str().ok());
        let proof = proof.ok_or(ProofError::Missing)?;
        let (said, mac) = proof.rsplit_once('.').ok_or(ProofError::Missing)?;
        let parts = Said::parse(said).ok_or(ProofError::Missing)?;
        let mac: [u8; 32] = unhex(mac).ok_or(ProofError::Missing)?;
        if parts.receiver != self.own {
            return Err(ProofError::OtherReceiver);
        }
        self.mac(said, covered).verify_slice(&mac).map_err(|_| ProofError::Wrong)?;
        if parts.at_ms.abs_diff(now_ms) > AGE_MS_MAX {
            return Err(ProofError::Stale);
        }
        match self.use_up(parts.caller, parts.number, now_ms) {
            true => Ok(parts.body),
            false => Err(ProofError::Used),
        }
    }

    fn use_up(&self, caller: Incarnation, number: u64, now_ms: u64) -> bool {
        let mut seen = self.seen.lock();
        if seen.len() >= CALLERS_LEN_MAX && !seen.contains_key(&caller) {
            // What a caller proved longer ago is rejected for its age.
            seen.retain(|_, window| window.used_ms.abs_diff(now_ms) <= 2 * AGE_MS_MAX);
            if seen.len() >= CALLERS_LEN_MAX {
                return false;
            }
        }
        let window = seen.entry(caller).or_default();
        window.used_ms = now_ms;
        window.use_up(number)
    }

    fn mac(&self, said: &str, covered: Covered<'_>) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        let mut part = |bytes: &[u8]| {
            mac.update(&(bytes.len() as u64).to_be_bytes());
            mac.update(bytes);
        };
        part(said.as_bytes());
        part(covered.method.as_str().as_bytes());
        part(covered.target.as_bytes());
        let mut headers: Vec<_> = covered.headers.iter().filter(|(name, _)| is_covered(name)).collect();
        headers.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
        part(&(headers.len() as u64).to_be_bytes());
        for (name, value) in headers {
            part(name.as_str().as_bytes());
            part(value.as_bytes());
        }
        mac
    }
}

/// The readable part of a proof.
struct Said {
    caller: Incarnation,
    receiver: Incarnation,
    at_ms: u64,
    number: u64,
    body: BodyDigest,
}

impl Said {
    fn parse(text: &str) -> Option<Said> {
        let mut parts = text.split('.');
        (parts.next()? == "1").then_some(())?;
        let said = Said {
            caller: Incarnation::parse(parts.next()?)?,
            receiver: Incarnation::parse(parts.next()?)?,
            at_ms: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
            body: BodyDigest(unhex(parts.next()?)?),
        };
        parts.next().is_none().then_some(said)
    }
}

/// Which numbers of a caller were used: all below the window, and those marked in it.
struct Window {
    /// One above the largest number so far.
    end: u64,
    /// By number modulo the length.
    used: Box<[u64]>,
    /// When it was used last.
    used_ms: u64,
}

impl Default for Window {
    fn default() -> Window {
        Window { end: 0, used: vec![0; (WINDOW_LEN / 64) as usize].into_boxed_slice(), used_ms: 0 }
    }
}

impl Window {
    fn use_up(&mut self, number: u64) -> bool {
        if number + WINDOW_LEN < self.end {
            return false;
        }
        if number >= self.end {
            // Numbers that enter the window were not used yet.
            let from = self.end.max((number + 1).saturating_sub(WINDOW_LEN));
            (from..=number).for_each(|entering| self.clear(entering));
            self.end = number + 1;
        }
        let (word, bit) = place(number);
        let is_new = self.used[word] & bit == 0;
        self.used[word] |= bit;
        is_new
    }

    fn clear(&mut self, number: u64) {
        let (word, bit) = place(number);
        self.used[word] &= !bit;
    }
}

fn place(number: u64) -> (usize, u64) {
    let at = number % WINDOW_LEN;
    ((at / 64) as usize, 1 << (at % 64))
}

/// Headers that belong to one connection, or that the proof itself is in, are not covered.
fn is_covered(name: &header::HeaderName) -> bool {
    let left_out = [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::DATE,
    ];
    !left_out.contains(name) && name.as_str() != PROOF
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = text.as_bytes();
    if bytes.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| (byte as char).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut read = [0; N];
    for (byte, pair) in read.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000_000_000;

    struct Call {
        method: Method,
        target: String,
        headers: HeaderMap,
        body: Vec<u8>,
    }

    impl Call {
        fn new() -> Call {
            let mut headers = HeaderMap::new();
            headers.insert("content-type", "application/json".parse().unwrap());
            Call {
                method: Method::POST,
                target: "/native/v1/a/write?x=1".into(),
                headers,
                body: b"{}".to_vec(),
            }
        }

        fn covered(&self) -> Covered<'_> {
            Covered { method: &self.method, target: &self.target, headers: &self.headers }
        }

        fn check(&self, receiver: &Prover, now: u64) -> Result<(), ProofError> {
            let body = receiver.check(self.covered(), now)?;
            if body == BodyDigest::of(&self.body) { Ok(()) } else { Err(ProofError::Wrong) }
        }

        fn proved(caller: &Prover, receiver: &Prover) -> Call {
            let mut call = Call::new();
            let proof = caller.prove(call.covered(), BodyDigest::of(&call.body), receiver.incarnation(), NOW);
            call.headers.insert(PROOF, proof.parse().unwrap());
            call
        }
    }

    fn node(key: u8) -> Prover {
        Prover::new([key; 32], Incarnation::draw())
    }

    #[test]
    fn a_proof_is_good_once() {
        let (caller, receiver) = (node(1), node(1));
        let call = Call::proved(&caller, &receiver);
        assert_eq!(call.check(&receiver, NOW), Ok(()));
        assert_eq!(call.check(&receiver, NOW), Err(ProofError::Used));
    }

    #[test]
    fn a_proof_is_useless_at_another_node_and_after_a_restart() {
        let (caller, receiver) = (node(1), node(1));
        let call = Call::proved(&caller, &receiver);
        for other in [node(1), node(1)] {
            assert_eq!(call.check(&other, NOW), Err(ProofError::OtherReceiver));
        }
        // Sent back to the node that made it.
        assert_eq!(call.check(&caller, NOW), Err(ProofError::OtherReceiver));
    }

    /// A call to a node that was never heard of is sent with a proof that is valid nowhere, its own sender included.
    #[test]
    fn a_proof_for_nobody_is_useless_everywhere() {
        let (caller, receiver) = (node(1), node(1));
        let mut call = Call::new();
        let proof = caller.prove(call.covered(), BodyDigest::of(&call.body), Incarnation::NOBODY, NOW);
        call.headers.insert(PROOF, proof.parse().unwrap());
        for other in [&caller, &receiver] {
            assert_eq!(call.check(other, NOW), Err(ProofError::OtherReceiver));
        }
    }

    #[test]
    fn callers_of_long_ago_make_room_for_new_ones() {
        let receiver = node(1);
        for _ in 0..CALLERS_LEN_MAX {
            assert!(receiver.use_up(Incarnation::draw(), 1, NOW));
        }
        assert!(!receiver.use_up(Incarnation::draw(), 1, NOW + AGE_MS_MAX));
        assert!(receiver.use_up(Incarnation::draw(), 1, NOW + 3 * AGE_MS_MAX));
    }

    #[test]
    fn a_proof_covers_everything_the_call_says() {
        let (caller, receiver) = (node(1), node(1));
        let changes: [fn(&mut Call); 6] = [
            |call| call.method = Method::PUT,
            |call| call.target.push('1'),
            |call| call.body.push(b' '),
            |call| drop(call.headers.insert("content-type", "text/plain".parse().unwrap())),
            |call| drop(call.headers.insert("if-match", "\"1\"".parse().unwrap())),
            |call| drop(call.headers.remove("content-type")),
        ];
        for change in changes {
            let mut call = Call::proved(&caller, &receiver);
            change(&mut call);
            assert_eq!(call.check(&receiver, NOW), Err(ProofError::Wrong));
        }
    }

    #[test]
    fn another_key_or_another_time_is_rejected() {
        let receiver = node(1);
        let call = Call::proved(&node(2), &receiver);
        assert_eq!(call.check(&receiver, NOW), Err(ProofError::Wrong));
        let call = Call::proved(&node(1), &receiver);
        for now in [NOW - AGE_MS_MAX - 1, NOW + AGE_MS_MAX + 1] {
            assert_eq!(call.check(&receiver, now), Err(ProofError::Stale));
        }
        assert_eq!(Call::new().check(&receiver, NOW), Err(ProofError::Missing));
        for nonsense in ["", ".", "1.2.3.4.5.6", "1..", "\u{7f}"] {
            let mut call = Call::new();
            let Ok(proof) = nonsense.parse() else { continue };
            call.headers.insert(PROOF, proof);
            assert_eq!(call.check(&receiver, NOW), Err(ProofError::Missing), "{nonsense:?}");
        }
    }

    #[test]
    fn calls_may_overtake_each_other_but_none_passes_twice() {
        let mut window = Window::default();
        let numbers = [5, 3, 4, 1, 70_000, 69_999, 4465];
        let first: Vec<bool> = numbers.iter().map(|number| window.use_up(*number)).collect();
        assert_eq!(first, [true; 7]);
        assert!(numbers.iter().all(|number| !window.use_up(*number)));
        assert!(!window.use_up(6), "too old to tell");
        assert!(window.use_up(1 << 40), "a jump clears the window");
        assert!(window.use_up((1 << 40) - 5));
    }
}
