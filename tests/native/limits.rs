//! Every limit: what is at the limit is taken, what is one past it is refused by the limit's name.

use crate::{
    harness::Server,
    http::{self, get},
    peer::{Peer, assert_error, resources},
};
use lockwood_server::Limits;
use serde_json::{Value, json};

/// One test for each limit, named after it; the list shows if one is missing.
macro_rules! limits {
    ($($name:ident = $value:literal, $check:expr;)*) => {
        pub(crate) const COVERED: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let flag = format!("--{}", stringify!($name).replace('_', "-"));
            let server = Server::start(&[&flag, stringify!($value)]);
            let limit = $crate::limits::Limit { name: stringify!($name), value: $value };
            let check: fn(&Server, &$crate::limits::Limit) = $check;
            check(&server, &limit);
        })*
    };
}

pub(crate) use limits;

pub(crate) struct Limit {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
}

impl Limit {
    /// That a message is the refusal this limit brings.
    #[track_caller]
    fn assert_refused(&self, message: &Value, code: &str) {
        assert_error(message, code);
        self.assert_named(message["message"].as_str().unwrap());
    }

    #[track_caller]
    pub(crate) fn assert_named(&self, text: &str) {
        let flag = format!("--{}", self.name.replace('_', "-"));
        let named = format!("{} is {}", self.name, self.value);
        assert!(text.contains(&named) && text.contains(&flag), "{text}");
    }

    /// Text of the limit's length, and of one more.
    pub(crate) fn texts(&self) -> (String, String) {
        ("x".repeat(self.value as usize), "x".repeat(self.value as usize + 1))
    }
}

#[test]
fn every_limit_has_a_test() {
    let mut covered = [
        COVERED,
        crate::budgets::COVERED,
        crate::document_limits::COVERED,
        crate::lease_limits::COVERED,
        crate::elasticsearch_limits::COVERED,
        crate::backup::COVERED,
        crate::held_memory::COVERED,
    ]
    .concat();
    let mut limits: Vec<&str> = Limits::SPECS.iter().map(|spec| spec.name).collect();
    covered.sort_unstable();
    limits.sort_unstable();
    assert_eq!(covered, limits);
}

limits! {
    path_segments_max = 3, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        ann.hold("write a/b/c");
        limit.assert_refused(&ann.lock("write a/b/c/d", 0), "over_limit");
        ann.hold("write x");
    };
    segment_bytes_max = 4, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        ann.hold("write aaaa/bbbb");
        limit.assert_refused(&ann.lock("write a/bbbbb", 0), "over_limit");
        // Bytes are counted, not characters.
        ann.hold("write üü");
        limit.assert_refused(&ann.lock("write aüü", 0), "over_limit");
    };
    resources_per_lock_max = 2, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        ann.hold("write a, write b");
        limit.assert_refused(&ann.lock("write a, write b, write c", 0), "over_limit");
    };
    message_bytes_max = 1024, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        let message = json!({ "type": "lock", "id": 1, "resources": resources("write a") }).to_string();
        ann.send_text(&format!("{message:<1024}"));
        ann.granted();
        ann.send_text(&format!("{message:<1025}"));
        limit.assert_refused(&ann.next(), "over_limit");
        assert_eq!(ann.closed(), 1009);
        // In the first message too.
        let mut bob = Peer::connect(server, "default");
        bob.send_text(&format!("{:<1025}", r#"{"type":"hello","id":1}"#));
        limit.assert_refused(&bob.next(), "over_limit");
    };
    locks_per_session_max = 2, |server, limit| {
        let (mut ann, mut bob) = (Peer::open(server, "ann"), Peer::open(server, "bob"));
        let held = ann.hold("write a");
        bob.hold("write b");
        // One that waits counts as well.
        ann.queue("write b");
        limit.assert_refused(&ann.lock("write c", 0), "over_limit");
        ann.release(&held);
        ann.hold("write c");
        bob.hold("write d");
    };
    resources_per_session_max = 3, |server, limit| {
        let (mut ann, mut bob) = (Peer::open(server, "ann"), Peer::open(server, "bob"));
        let held = ann.hold("write a, write b");
        limit.assert_refused(&ann.lock("write c, write d", 0), "over_limit");
        ann.hold("write c");
        ann.release(&held);
        ann.hold("write d, write e");
        bob.hold("write f, write g, write h");
    };
    resources_per_namespace_max = 3, |server, limit| {
        let (mut ann, mut bob) = (Peer::open(server, "ann"), Peer::open(server, "bob"));
        let held = ann.hold("write a, write b");
        limit.assert_refused(&bob.lock("write c, write d", 0), "too_many");
        bob.hold("write c");
        ann.release(&held);
        bob.hold("write d, write e");
        Peer::open_with(server, "elsewhere", json!({})).hold("write a, write b, write c");
    };
    nodes_per_namespace_max = 5, |server, limit| {
        let (mut ann, mut bob) = (Peer::open(server, "ann"), Peer::open(server, "bob"));
        let held = ann.hold("write a/b");
        limit.assert_refused(&bob.lock("write c/d/e", 0), "too_many");
        bob.hold("write c/d");
        ann.release(&held);
        Peer::open_with(server, "elsewhere", json!({})).hold("write a/b/c/d");
    };
    queue_len_max = 2, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        let held = ann.hold("write a");
        let [mut bob, mut eve, mut joe] = ["bob", "eve", "joe"].map(|name| Peer::open(server, name));
        bob.queue("write a");
        eve.queue("write a");
        limit.assert_refused(&joe.lock("write a", "forever"), "too_many");
        // Nothing stops those who need not wait.
        joe.hold("write b");
        ann.release(&held);
        bob.granted();
        joe.queue("write a");
    };
    namespaces_max = 2, |server, limit| {
        let one = Peer::open_with(server, "one", json!({}));
        let _two = Peer::open_with(server, "two", json!({}));
        Peer::open_with(server, "two", json!({}));
        let mut three = Peer::connect(server, "three");
        limit.assert_refused(&three.ask(json!({ "type": "hello" })), "too_many");
        assert_eq!(three.closed(), 4000);
        one.bye();
        Peer::open_with(server, "three", json!({})).hold("write a");
    };
    namespace_bytes_max = 4, |server, limit| {
        let (fits, too_long) = limit.texts();
        Peer::open_with(server, &fits, json!({})).hold("write a");
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let target = format!("/v1/{too_long}/session");
        let problem = http::request(server.native, "GET", &target, &headers).assert_problem(400, "over_limit");
        limit.assert_named(problem["detail"].as_str().unwrap());
    };
    session_name_bytes_max = 4, |server, limit| {
        let (fits, too_long) = limit.texts();
        Peer::open(server, &fits).hold("write a");
        let mut peer = Peer::connect(server, "default");
        limit.assert_refused(&peer.ask(json!({ "type": "hello", "name": too_long })), "over_limit");
        assert_eq!(peer.closed(), 4000);
    };
    abandon_timeout_ms_max = 60000, |server, limit| {
        Peer::open_for(server, "ann", 60_000).hold("write a");
        let mut peer = Peer::connect(server, "default");
        let hello = json!({ "type": "hello", "abandon_timeout_ms": 60_001 });
        limit.assert_refused(&peer.ask(hello), "over_limit");
        assert_eq!(peer.closed(), 4000);
    };
    sessions_max = 2, |server, limit| {
        let ann = Peer::open(server, "ann");
        let _bob = Peer::open(server, "bob");
        // One that is away still counts.
        drop(ann);
        let mut peer = Peer::connect(server, "default");
        limit.assert_refused(&peer.ask(json!({ "type": "hello" })), "too_many");
        assert_eq!(peer.closed(), 4000);
    };
    connections_max = 2, |server, limit| {
        let ann = Peer::open(server, "ann");
        let _bob = Peer::open(server, "bob");
        let reply = get(server, "/healthz");
        assert_eq!(reply.header("retry-after"), Some("5"));
        let problem = reply.assert_problem(503, "too_many");
        limit.assert_named(problem["detail"].as_str().unwrap());
        drop(ann);
        crate::harness::eventually("there is room again", || get(server, "/healthz").status == 200);
    };
    page_len_max = 3, |server, limit| {
        let mut ann = Peer::open(server, "ann");
        for n in 0..5 {
            ann.hold(&format!("write a/{n}"));
        }
        let len = |query: &str| http::get_json(server, query)["locks"].as_array().unwrap().len();
        assert_eq!(len("/v1/default/locks?limit=3"), 3);
        assert_eq!(len("/v1/default/locks"), 3);
        let problem = get(server, "/v1/default/locks?limit=4").assert_problem(400, "over_limit");
        limit.assert_named(problem["detail"].as_str().unwrap());
    };
}

#[test]
fn a_message_far_over_the_limit_is_explained_too() {
    let server = Server::start(&["--message-bytes-max", "1024"]);
    let mut ann = Peer::open(&server, "ann");
    ann.send_text(&" ".repeat(1024 * 1024));
    let limit = Limit { name: "message_bytes_max", value: 1024 };
    limit.assert_refused(&ann.next(), "over_limit");
    assert_eq!(ann.closed(), 1009);
}

#[test]
fn a_limit_out_of_its_bounds_is_wrong_usage() {
    for flags in [["--path-segments-max", "0"], ["--page-len-max", "10001"], ["--queue-len-max", "x"]] {
        let output = std::process::Command::new(crate::harness::BINARY).arg("serve").args(flags).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(flags[0]), "{output:?}");
    }
}
