//! Session ids and the secrets that go with them. Keeps neither: a secret is computed from the id and the
//! server's key, so that it can be checked after a restart too.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Makes and checks the secrets of sessions.
pub struct Secrets {
    key: [u8; 32],
}

impl Secrets {
    /// Secrets made with a key, which is kept on record.
    pub fn new(key: [u8; 32]) -> Secrets {
        Secrets { key }
    }

    /// A session id nobody can guess and nobody has had.
    pub fn new_session_id() -> String {
        hex(&random::<16>())
    }

    /// The secret of a session.
    pub fn of(&self, namespace: &str, session: &str) -> String {
        hex(&self.mac(namespace, session).finalize().into_bytes())
    }

    /// True if `secret` is the session's; takes the same time for every wrong one.
    pub fn matches(&self, namespace: &str, session: &str, secret: &str) -> bool {
        let Some(bytes) = unhex(secret) else { return false };
        self.mac(namespace, session).verify_slice(&bytes).is_ok()
    }

    fn mac(&self, namespace: &str, session: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key may have any length");
        mac.update(&(namespace.len() as u64).to_be_bytes());
        mac.update(namespace.as_bytes());
        mac.update(session.as_bytes());
        mac
    }
}

/// Unpredictable bytes.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system has a random source");
    bytes
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hexadecimal digits; none if they are not.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_fits_one_session_of_one_namespace_and_one_key() {
        let secrets = Secrets::new([1; 32]);
        let secret = secrets.of("shop", "abc");
        assert!(secrets.matches("shop", "abc", &secret));
        assert!(!secrets.matches("shop", "abd", &secret));
        assert!(!secrets.matches("shopa", "bc", &secret));
        assert!(!Secrets::new([2; 32]).matches("shop", "abc", &secret));
        for wrong in ["", "zz", "abc", "ü", &secret[..62]] {
            assert!(!secrets.matches("shop", "abc", wrong), "{wrong}");
        }
    }
}
