//! The locks around a command: what `lockwood lock` tells the program it runs, and what a command inside finds. Knows
//! nothing of how locks are taken.
//!
//! | variable | for |
//! | --- | --- |
//! | `LOCKWOOD_SERVER`, `LOCKWOOD_NAMESPACE` | the server and the namespace of the innermost lock |
//! | `LOCKWOOD_LOCK`, `LOCKWOOD_TOKEN` | its number and its token |
//! | `LOCKWOOD_OUTER` | this file: all surrounding locks, as JSON |

use serde::{Deserialize, Serialize};
use std::net::{SocketAddr, ToSocketAddrs};

pub(crate) const OUTER: &str = "LOCKWOOD_OUTER";
const TOKEN: &str = "LOCKWOOD_TOKEN";

/// The locks that surround a command, those of one namespace together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Surroundings(Vec<Outer>);

/// The surrounding locks in one namespace of one server, all of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outer {
    pub(crate) server: String,
    pub(crate) namespace: String,
    /// Where the outermost `lockwood lock` takes orders for further locks, if it does.
    pub(crate) socket: Option<String>,
    /// The locks, outermost first.
    pub(crate) locks: Vec<u64>,
    /// Their tokens.
    pub(crate) tokens: Vec<u64>,
}

impl Surroundings {
    pub(crate) fn from_env() -> Surroundings {
        let text = std::env::var(OUTER).unwrap_or_default();
        // What cannot be read was not written by `lockwood lock`.
        Surroundings(serde_json::from_str(&text).unwrap_or_default())
    }

    /// The locks around this command in a namespace.
    pub(crate) fn find(&self, server: &str, namespace: &str) -> Option<&Outer> {
        self.0.iter().rev().find(|outer| outer.namespace == namespace && is_same(&outer.server, server))
    }

    /// The same with one more lock inside.
    pub(crate) fn with(mut self, inner: Outer) -> Surroundings {
        self.0.retain(|outer| (&outer.server, &outer.namespace) != (&inner.server, &inner.namespace));
        self.0.push(inner);
        self
    }

    /// What the program inside finds in its environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let Some(inner) = self.0.last() else { return Vec::new() };
        let last = |numbers: &[u64]| numbers.last().map(u64::to_string).unwrap_or_default();
        vec![
            ("LOCKWOOD_SERVER", inner.server.clone()),
            ("LOCKWOOD_NAMESPACE", inner.namespace.clone()),
            ("LOCKWOOD_LOCK", last(&inner.locks)),
            (TOKEN, last(&inner.tokens)),
            (OUTER, self.text()),
        ]
    }

    /// As one line.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(&self.0).expect("numbers and names are valid JSON")
    }

    /// The tokens with which a command in this namespace shows that it is inside. `LOCKWOOD_TOKEN` decides: one that
    /// was set by hand counts alone. It is never overlooked, or a holder whose lock is over would write without it, but
    /// where `LOCKWOOD_NAMESPACE` says that it is another namespace's.
    fn tokens(&self, server: &str, namespace: &str, given: Given<'_>) -> Vec<u64> {
        let Some(token) = given.token else { return Vec::new() };
        let innermost = self.0.last().and_then(|outer| outer.tokens.last());
        if innermost == Some(&token) {
            return self.find(server, namespace).map(|outer| outer.tokens.clone()).unwrap_or_default();
        }
        let is_elsewhere = given.namespace.is_some_and(|given| given != namespace);
        Some(token).filter(|_| !is_elsewhere).into_iter().collect()
    }
}

/// What the environment says of the innermost lock.
#[derive(Clone, Copy)]
struct Given<'a> {
    token: Option<u64>,
    namespace: Option<&'a str>,
}

/// `LOCKWOOD_TOKEN`; an empty one means none.
fn given_token() -> Result<Option<u64>, String> {
    let Some(text) = std::env::var_os(TOKEN).filter(|text| !text.is_empty()) else { return Ok(None) };
    let token = text.to_str().and_then(|text| text.parse().ok());
    token.map(Some).ok_or_else(|| {
        format!(
            "{TOKEN} is {text:?}, which is no token; set it to the number that the lock has, or to nothing"
        )
    })
}

/// Whether the environment can be understood. A token that cannot be read must not count as none.
pub(crate) fn check() -> Result<(), String> {
    given_token().map(drop)
}

/// The tokens of the locks around this command, for what it does in a namespace.
pub(crate) fn tokens(server: &str, namespace: &str) -> Vec<u64> {
    let token = given_token().unwrap_or_default();
    let in_env = std::env::var("LOCKWOOD_NAMESPACE").ok().filter(|name| !name.is_empty());
    Surroundings::from_env().tokens(server, namespace, Given { token, namespace: in_env.as_deref() })
}

/// Whether two addresses are of one server, as `localhost:7117` and `127.0.0.1:7117`.
fn is_same(one: &str, other: &str) -> bool {
    let resolved = |text: &str| -> Vec<SocketAddr> {
        text.split(',').flat_map(|node| node.to_socket_addrs().into_iter().flatten()).collect()
    };
    one == other || resolved(one).iter().any(|address| resolved(other).contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outer(namespace: &str, tokens: &[u64]) -> Outer {
        let (server, namespace) = ("127.0.0.1:7117".to_owned(), namespace.to_owned());
        Outer { server, namespace, socket: None, locks: tokens.to_vec(), tokens: tokens.to_vec() }
    }

    #[test]
    fn a_program_finds_the_innermost_lock_in_its_environment() {
        let inside = Surroundings::default().with(outer("a", &[3])).with(outer("b", &[4, 5]));
        let variables = inside.variables();
        let value = |name| variables.iter().find(|(found, _)| *found == name).unwrap().1.as_str();
        assert_eq!((value("LOCKWOOD_NAMESPACE"), value("LOCKWOOD_LOCK"), value(TOKEN)), ("b", "5", "5"));
        let read: Vec<Outer> = serde_json::from_str(value(OUTER)).unwrap();
        assert_eq!(Surroundings(read), inside);
    }

    #[test]
    fn tokens_are_shown_where_they_belong() {
        let inside = Surroundings::default().with(outer("a", &[3])).with(outer("b", &[4, 5]));
        let check = |server: &str, namespace: &str, token: Option<u64>, tokens: &[u64]| {
            let given = Given { token, namespace: Some("b") };
            assert_eq!(inside.tokens(server, namespace, given), tokens, "{server} {namespace} {token:?}");
        };
        check("127.0.0.1:7117", "b", Some(5), &[4, 5]);
        check("localhost:7117", "a", Some(5), &[3]);
        check("127.0.0.1:7118", "a", Some(5), &[]);
        check("127.0.0.1:7117", "c", Some(5), &[]);
        check("127.0.0.1:7117", "b", Some(6), &[6]);
        check("127.0.0.1:7117", "a", Some(6), &[]);
        check("127.0.0.1:7117", "b", None, &[]);
        let alone = Given { token: Some(6), namespace: None };
        assert_eq!(Surroundings::default().tokens("127.0.0.1:7117", "a", alone), [6]);
    }
}
