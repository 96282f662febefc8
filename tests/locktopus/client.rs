//! A well-behaved Locktopus client on top of raw frames: every reply must be, byte for byte, one the protocol
//! has. Knows nothing of faults.

use crate::{harness::Server, raw::Raw, raw::get};
use std::ops::{Deref, DerefMut};

/// One connection; what it has locked last decides what replies it takes.
pub(crate) struct Client {
    raw: Raw,
    id: u64,
}

impl Client {
    /// Connects to a namespace; the locks it leaves behind are free at once.
    pub(crate) fn connect(server: &Server, namespace: &str) -> Client {
        Client::connect_for(server, namespace, 0)
    }

    /// Connects with an abandon timeout.
    pub(crate) fn connect_for(server: &Server, namespace: &str, abandon_timeout_ms: u64) -> Client {
        let query = format!("namespace={namespace}&abandon-timeout-ms={abandon_timeout_ms}");
        Client::connect_with(server, &query)
    }

    /// Connects with a query.
    pub(crate) fn connect_with(server: &Server, query: &str) -> Client {
        Client { raw: Raw::open(server.locktopus, &format!("/v1?{query}"), ""), id: 0 }
    }

    /// Locks resources written like `w a/b, r c`; says `acquired` or `enqueued`.
    #[track_caller]
    pub(crate) fn lock(&mut self, resources: &str) -> &'static str {
        self.say_lock(&lock(resources))
    }

    /// The same with a message of the caller's.
    #[track_caller]
    pub(crate) fn say_lock(&mut self, message: &str) -> &'static str {
        self.send(message);
        self.locked()
    }

    /// The reply to a lock.
    #[track_caller]
    pub(crate) fn locked(&mut self) -> &'static str {
        let text = self.text();
        let id = id_of(&text);
        self.id = id;
        let states = ["acquired", "enqueued"];
        let state = states.into_iter().find(|state| text == reply(id, "lock", state));
        state.unwrap_or_else(|| panic!("not a reply to a lock: {text:?}"))
    }

    /// The number of the last lock.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Waits until the enqueued lock is acquired.
    #[track_caller]
    pub(crate) fn granted(&mut self) {
        assert_eq!(self.text(), reply(self.id, "lock", "acquired"));
    }

    /// Releases; a grant that crosses the release is skipped, as the official clients do.
    #[track_caller]
    pub(crate) fn release(&mut self) {
        self.send(r#"{"action":"release"}"#);
        let mut text = self.text();
        if text == reply(self.id, "lock", "acquired") {
            text = self.text();
        }
        assert_eq!(text, reply(self.id, "release", "ready"));
    }

    /// The server gives up on this client, as it does on every mistake; says why.
    #[track_caller]
    pub(crate) fn given_up(&mut self) -> String {
        let text = self.text();
        let reason = text.strip_prefix("communication error: ");
        let reason = reason.unwrap_or_else(|| panic!("not an error: {text:?}")).to_owned();
        assert!(!reason.is_empty() && !reason.ends_with('\n'), "{reason:?}");
        self.expect_close(3000);
        reason
    }
}

impl Deref for Client {
    type Target = Raw;
    fn deref(&self) -> &Raw {
        &self.raw
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Raw {
        &mut self.raw
    }
}

/// The only form of message a Locktopus server sends, besides errors.
pub(crate) fn reply(id: u64, action: &str, state: &str) -> String {
    format!("{{\"id\":\"{id}\",\"action\":\"{action}\",\"state\":\"{state}\"}}\n")
}

/// A lock message for resources written like `w a/b, r c`; `w /` is the whole namespace.
pub(crate) fn lock(resources: &str) -> String {
    let resources = resources.split(", ").map(|resource| {
        let (kind, path) = resource.split_once(' ').unwrap();
        let path: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        serde_json::json!({ "type": kind, "path": path })
    });
    serde_json::json!({ "action": "lock", "resources": resources.collect::<Vec<_>>() }).to_string()
}

/// One of the numbers of `/stats_v1`.
#[track_caller]
pub(crate) fn stat(server: &Server, namespace: &str, name: &str) -> u64 {
    let response = get(server.locktopus, &format!("/stats_v1?namespace={namespace}"));
    assert_eq!(response.status, 200, "{response:?}");
    let stats: serde_json::Value = serde_json::from_str(&response.body).unwrap();
    stats[name].as_u64().unwrap()
}

/// How many locks of a namespace are (held, waiting).
#[track_caller]
pub(crate) fn groups(server: &Server, namespace: &str) -> (u64, u64) {
    (stat(server, namespace, "GroupsAcquired"), stat(server, namespace, "GroupsPending"))
}

/// Whatever happened, the next client finds a working server and a working namespace.
#[track_caller]
pub(crate) fn check_usable(server: &Server, namespace: &str) {
    let mut client = Client::connect(server, namespace);
    assert_eq!(client.lock("w still/usable"), "acquired");
    client.release();
    client.close(1000);
}

#[track_caller]
fn id_of(text: &str) -> u64 {
    let digits = text.strip_prefix("{\"id\":\"").and_then(|rest| rest.split_once('"'));
    digits.and_then(|(digits, _)| digits.parse().ok()).unwrap_or_else(|| panic!("no id in {text:?}"))
}
