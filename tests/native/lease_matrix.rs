//! Locks on a tree through leases: LOCK_S and LOCK_X with every depth against every other, the announcement of a
//! writer, and unlocking. The rule is written here once more, on sets of nodes, and knows nothing of the server's.

use crate::{harness::Server, leaseholder::Leaseholder};
use serde_json::{Value, json};

/// Enough of a tree to tell any two of the locks below apart.
const NODES: [&str; 12] = [
    "c",
    "c/d",
    "c/d/f",
    "c/d/f/x",
    "c/d/f/x/y",
    "c/d/g",
    "c/d/g/x",
    "c/d/g/x/y",
    "c/e",
    "c/e/f",
    "c/e/f/x",
    "c/e/f/x/y",
];
/// A field and its relatives: the same, parent, grandparent, sibling, field of another document.
const RELATIVES: [&str; 5] = ["c/d/f", "c/d", "c", "c/d/g", "c/e/f"];

#[derive(Clone, Copy)]
struct Lock {
    path: &'static str,
    exclusive: bool,
    depth: Option<usize>,
}

impl Lock {
    fn covers(&self, node: &str) -> bool {
        let is_below = node == self.path || node.starts_with(&format!("{}/", self.path));
        let levels =
            node.matches('/').count() + 1 - self.path.matches('/').count().min(node.matches('/').count());
        is_below && self.depth.is_none_or(|depth| levels <= depth)
    }

    /// Whether somebody else's lock lets this one be.
    fn gets_along(&self, other: &Lock) -> bool {
        let meet = NODES.iter().any(|node| self.covers(node) && other.covers(node));
        !meet || !(self.exclusive || other.exclusive)
    }

    fn text(&self) -> String {
        let mode = if self.exclusive { "write" } else { "read" };
        let depth = self.depth.map(|depth| format!(":{depth}")).unwrap_or_default();
        format!("{mode} {}{depth}", self.path)
    }
}

fn locks_at(path: &'static str) -> Vec<Lock> {
    let depths = [Some(1), Some(2), None];
    [false, true]
        .into_iter()
        .flat_map(|exclusive| depths.into_iter().map(move |depth| Lock { path, exclusive, depth }))
        .collect()
}

#[test]
fn every_pair_of_modes_depths_and_relations() {
    let server = Server::start(&[]);
    let (ann, bob) = (Leaseholder::new(&server, "ann"), Leaseholder::new(&server, "bob"));
    let mut pairs = 0;
    for first in RELATIVES.into_iter().flat_map(locks_at) {
        ann.take(&first.text());
        // One of the two is always the field itself.
        let others = if first.path == RELATIVES[0] { &RELATIVES[..] } else { &RELATIVES[..1] };
        for second in others.iter().copied().flat_map(locks_at) {
            let status = bob.ask(&second.text(), 60_000, 0).status;
            let expected = if first.gets_along(&second) { 201 } else { 423 };
            assert_eq!(status, expected, "{} against {}", second.text(), first.text());
            if status == 201 {
                assert_eq!(bob.unlock(&second.text()).status, 200, "{}", second.text());
            }
            pairs += 1;
        }
        assert_eq!(ann.unlock(&first.text()).status, 200, "{}", first.text());
    }
    assert_eq!(pairs, 6 * 6 * 5 + 4 * 6 * 6);
}

/// The claims on a node: owner, sign, whether it is held.
fn claims(ann: &Leaseholder, path: &str) -> Vec<(String, String, bool)> {
    let tree = ann.store.get(&format!("tree?path={path}"));
    let node = tree["nodes"].as_array().unwrap().iter().find(|node| node["path"] == json!([path])).cloned();
    let claim = |claim: &Value| {
        let text = |name: &str| claim[name].as_str().unwrap().to_owned();
        (text("name"), text("sign"), claim["granted"] == true)
    };
    node.map(|node| node["claims"].as_array().unwrap().iter().map(claim).collect()).unwrap_or_default()
}

fn claim(name: &str, sign: &str, granted: bool) -> (String, String, bool) {
    (name.to_owned(), sign.to_owned(), granted)
}

#[test]
fn a_writer_that_waits_keeps_new_readers_out() {
    let server = Server::start(&[]);
    let holder = |name: &str| Leaseholder::new(&server, name);
    let (ann, bob, eve) = (holder("ann"), holder("bob"), holder("eve"));
    ann.take("read a");
    let write = bob.queue("write a");
    assert_eq!(claims(&ann, "a"), [claim("ann", "S", true), claim("bob", "IX", false)]);
    let problem = eve.is_refused("read a/b");
    assert_eq!(problem["blockers"][0]["name"], "bob", "{problem}");
    let read = eve.queue("read a");
    assert_eq!(claims(&ann, "a")[2], claim("eve", "IS", false));
    ann.unlock("read a");
    assert_eq!(bob.poll(write, 20_000).json()["state"], "granted");
    assert_eq!(claims(&ann, "a"), [claim("bob", "X", true), claim("eve", "IS", false)]);
    bob.unlock("write a");
    assert_eq!(eve.poll(read, 20_000).json()["state"], "granted");
    assert_eq!(claims(&ann, "a"), [claim("eve", "S", true)]);
}

#[test]
fn an_announcement_goes_with_the_wait() {
    let server = Server::start(&[]);
    let holder = |name: &str| Leaseholder::new(&server, name);
    let (ann, bob, eve) = (holder("ann"), holder("bob"), holder("eve"));
    ann.take("read a");
    bob.ask("write a", 60_000, 30).assert_problem(423, "timeout");
    assert_eq!(claims(&ann, "a"), [claim("ann", "S", true)]);
    eve.take("read a");
}

#[test]
fn one_of_two_readers_unlocks_for_itself_only() {
    let server = Server::start(&[]);
    let holder = |name: &str| Leaseholder::new(&server, name);
    let (ann, bob, eve) = (holder("ann"), holder("bob"), holder("eve"));
    ann.take("read a:1");
    bob.take("read a:1");
    assert_eq!(ann.unlock("read a:1").status, 200);
    assert_eq!(eve.is_refused("write a")["blockers"][0]["name"], "bob");
    ann.unlock("read a:1").assert_problem(409, "lock_lost");
    eve.is_refused("write a");
    assert_eq!(bob.unlock("read a:1").status, 200);
    eve.take("write a");
}
