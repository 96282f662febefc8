//! The tree of locks as text. Knows nothing of where the data comes from.

use crate::lease::is_lease;
use lockwood_client::text;
use lockwood_model::Path;
use lockwood_wire::{Intents, LockInfo, LockState, NodeClaim, NodeInfo, Tree};
use std::{collections::HashMap, fmt::Write};

/// A name or note longer than this is cut.
const NAME_LEN_MAX: usize = 48;
/// More blockers than this are only counted.
const BLOCKERS_SHOWN_MAX: usize = 3;

/// What is known of the locks of a namespace. Tree and locks are fetched one after the other, so one may
/// have a lock that the other lacks.
pub(crate) struct Listing {
    pub(crate) namespace: String,
    /// What the tree was asked for, if not all.
    pub(crate) path: Option<Path>,
    pub(crate) tree: Tree,
    pub(crate) locks: Vec<LockInfo>,
    /// Only claims of `locks` are to be shown.
    pub(crate) filtered: bool,
}

/// ```text
/// namespace default: 1 held, 1 waiting
/// /  IX 1
///   user  IX 1
///     42
///       X   write          lock 12  ann@db1 7 vi, held for 2m 5s, token 120
///       IS  read, depth 2  lock 13  bob, waiting for 3.2s, place 1, behind 12 (ann@db1 7 vi)
///     43
///       X   write  lock 14  importer, held for 3.0s, token 140, lease, ends in 27.0s, note night run
/// ```
pub(crate) fn render(listing: &Listing) -> String {
    let infos: HashMap<u64, &LockInfo> = listing.locks.iter().map(|info| (info.lock, info)).collect();
    let nodes = visible(listing, &infos);
    let namespace = text::plain(&listing.namespace);
    if nodes.iter().all(|node| node.claims.is_empty()) {
        let filtered = if listing.filtered { " that match" } else { "" };
        let path = match listing.path.as_ref().filter(|path| !path.is_empty()) {
            Some(path) => format!(" at {path}"),
            None => String::new(),
        };
        return format!("no locks{filtered}{path} in namespace {namespace}\n");
    }
    let waiting = listing.locks.iter().filter(|info| info.state == LockState::Waiting).count();
    let held = listing.locks.len() - waiting;
    let mut out = format!("namespace {namespace}: {held} held, {waiting} waiting\n");
    // The nodes above the current one that have a line of their own.
    let mut above: Vec<&Path> = Vec::new();
    for node in nodes {
        while above.last().is_some_and(|path| !path.is_prefix_of(node.path)) {
            above.pop();
        }
        let indent = above.len() * 2;
        let label = label(node.path, above.last().copied());
        writeln!(out, "{:indent$}{label}{}", "", intents(node.intents)).expect("a string takes all");
        render_claims(&mut out, indent + 2, &node.claims, &infos);
        above.push(node.path);
    }
    if listing.tree.truncated {
        out.push_str("there is more than can be shown; name a path to see what is below it\n");
    }
    out
}

/// A node with those of its claims that are to be shown.
struct Visible<'a> {
    path: &'a Path,
    claims: Vec<&'a NodeClaim>,
    intents: Intents,
}

/// Without a filter every node; otherwise those with a claim to be shown, and their ancestors.
fn visible<'a>(listing: &'a Listing, infos: &HashMap<u64, &LockInfo>) -> Vec<Visible<'a>> {
    let shown = |claim: &&NodeClaim| !listing.filtered || infos.contains_key(&claim.lock);
    let node = |node: &'a NodeInfo| Visible {
        path: &node.path.0,
        claims: node.claims.iter().filter(shown).collect(),
        intents: node.intents,
    };
    let mut nodes: Vec<Visible<'a>> = Vec::new();
    // Backwards, because a node's descendants follow it and the first of them is the one kept last.
    for node in listing.tree.nodes.iter().rev().map(node) {
        let leads_on = nodes.last().is_some_and(|next| node.path.is_prefix_of(next.path));
        if !listing.filtered || !node.claims.is_empty() || leads_on {
            nodes.push(node);
        }
    }
    nodes.reverse();
    nodes
}

/// The part of a path that the lines above it do not say already.
fn label(path: &Path, above: Option<&Path>) -> String {
    let said = above.map_or(0, Path::len);
    Path::from_segments(path.segments().skip(said)).to_string()
}

fn intents(intents: Intents) -> String {
    let mut out = String::new();
    for (name, count) in [("IS", intents.read), ("IX", intents.change)] {
        if count > 0 {
            write!(out, "  {name} {count}").expect("a string takes all");
        }
    }
    out
}

fn render_claims(out: &mut String, indent: usize, claims: &[&NodeClaim], infos: &HashMap<u64, &LockInfo>) {
    let modes: Vec<String> = claims.iter().map(|claim| mode(claim)).collect();
    let mode_width = modes.iter().map(String::len).max().unwrap_or(0);
    let lock_width = claims.iter().map(|claim| claim.lock.to_string().len()).max().unwrap_or(0);
    for (claim, mode) in claims.iter().zip(&modes) {
        let about = match infos.get(&claim.lock) {
            Some(info) => about(claim, info, infos),
            None => owner(claim.name.as_deref(), &claim.session),
        };
        let (sign, lock) = (text::plain(&claim.sign), claim.lock);
        writeln!(out, "{:indent$}{sign:<2}  {mode:<mode_width$}  lock {lock:<lock_width$}  {about}", "")
            .expect("a string takes all");
    }
}

fn mode(claim: &NodeClaim) -> String {
    match claim.depth {
        Some(depth) => format!("{}, depth {depth}", text::plain(&claim.mode)),
        None => text::plain(&claim.mode),
    }
}

/// Whose claim, since when, and what it waits for.
fn about(claim: &NodeClaim, info: &LockInfo, infos: &HashMap<u64, &LockInfo>) -> String {
    let mut out = owner(info.owner.name.as_deref(), &info.owner.session);
    let age = text::span(info.age_ms);
    let mut add = |part: String| {
        out.push_str(", ");
        out.push_str(&part);
    };
    match (claim.granted, info.state) {
        (true, _) => {
            add(format!("held for {age}"));
            if let Some(token) = info.token {
                add(format!("token {token}"));
            }
        }
        (false, LockState::Converting) => add("waiting for its conversion".into()),
        (false, _) => add(format!("waiting for {age}")),
    }
    if !claim.granted {
        if let Some(place) = info.place.filter(|place| *place > 0) {
            add(format!("place {place}"));
        }
        if let Some(left) = info.wait_left_ms {
            add(format!("gives up in {}", text::span(left)));
        }
        if let Some(behind) = behind(info, infos) {
            add(behind);
        }
    }
    if is_lease(&info.owner.via) {
        add(if info.owner.via == "lease" { "lease".into() } else { format!("lease ({})", info.owner.via) });
    }
    if let Some(left) = info.expires_in_ms {
        add(format!("ends in {}", text::span(left)));
    }
    if let Some(note) = &info.note {
        add(format!("note {}", cut(&text::value(note))));
    }
    match info.abandoned_in_ms {
        Some(left) => add(format!("connection lost, ends in {}", text::span(left))),
        None if !info.owner.connected => add("connection lost".into()),
        None => {}
    }
    out
}

fn behind(info: &LockInfo, infos: &HashMap<u64, &LockInfo>) -> Option<String> {
    let shown: Vec<String> = info
        .blockers
        .iter()
        .take(BLOCKERS_SHOWN_MAX)
        .map(|lock| match infos.get(lock) {
            Some(blocker) => {
                format!("{lock} ({})", owner(blocker.owner.name.as_deref(), &blocker.owner.session))
            }
            None => lock.to_string(),
        })
        .collect();
    if shown.is_empty() {
        return None;
    }
    let more = info.blockers_len.unwrap_or(info.blockers.len()).saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(format!("behind {}{more}", shown.join(", ")))
}

fn owner(name: Option<&str>, session: &str) -> String {
    cut(&text::owner(name, session))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(NAME_LEN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::{Owner, WirePath, WireResource};

    fn info(lock: u64, name: &str, state: LockState) -> LockInfo {
        let granted = state != LockState::Waiting;
        LockInfo {
            lock,
            state,
            token: granted.then_some(lock * 10),
            owner: Owner {
                session: format!("s{lock}"),
                name: (!name.is_empty()).then(|| name.to_owned()),
                via: "native".into(),
                peer: None,
                connected: true,
            },
            resources: vec![WireResource {
                path: WirePath("user/42".parse().unwrap()),
                mode: "write".into(),
                depth: None,
            }],
            converting_to: None,
            requested_at: "2026-01-01T00:00:00Z".into(),
            granted_at: None,
            age_ms: 125_000,
            wait_left_ms: None,
            abandoned_in_ms: None,
            expires_at: None,
            expires_in_ms: None,
            note: None,
            place: None,
            blockers_len: None,
            blockers: Vec::new(),
        }
    }

    fn node(path: &str, intents: (usize, usize), claims: Vec<NodeClaim>) -> NodeInfo {
        NodeInfo {
            path: WirePath(path.parse().unwrap()),
            claims,
            intents: Intents { read: intents.0, change: intents.1 },
        }
    }

    /// `X write 12`, `IS read:2 13 waits`.
    fn claim(text: &str) -> NodeClaim {
        let words: Vec<&str> = text.split(' ').collect();
        let (mode, depth) = words[1].split_once(':').unwrap_or((words[1], ""));
        let lock = words[2].parse().unwrap();
        NodeClaim {
            lock,
            session: format!("s{lock}"),
            name: None,
            mode: mode.into(),
            depth: depth.parse().ok(),
            sign: words[0].into(),
            granted: words.len() == 3,
        }
    }

    fn busy() -> Listing {
        let nodes = vec![
            node("/", (0, 2), vec![]),
            node("bill", (0, 0), vec![claim("X write 9")]),
            node("user", (0, 1), vec![]),
            node("user/42", (0, 0), vec![claim("X write 12"), claim("IS read:2 13 waits")]),
        ];
        let waiter = LockInfo {
            age_ms: 3_249,
            place: Some(1),
            blockers_len: Some(4),
            blockers: vec![12, 9, 99],
            wait_left_ms: Some(6_800),
            ..info(13, "", LockState::Waiting)
        };
        let mut abandoned = info(9, "evil\x1b[2J", LockState::Granted);
        abandoned.owner.connected = false;
        abandoned.abandoned_in_ms = Some(42_000);
        Listing {
            namespace: "default".into(),
            path: None,
            tree: Tree { nodes, truncated: false },
            locks: vec![abandoned, info(12, "ann@db1 7 vi", LockState::Granted), waiter],
            filtered: false,
        }
    }

    #[test]
    fn the_tree_shows_holders_waiters_and_intents() {
        assert_eq!(
            render(&busy()),
            "namespace default: 2 held, 1 waiting\n\
             /  IX 2\n  \
             bill\n    \
             X   write  lock 9  evil\\u{1b}[2J, held for 2m 5s, token 90, connection lost, ends in 42.0s\n  \
             user  IX 1\n    \
             42\n      \
             X   write          lock 12  ann@db1 7 vi, held for 2m 5s, token 120\n      \
             IS  read, depth 2  lock 13  session s13, waiting for 3.2s, place 1, gives up in 6.8s, \
             behind 12 (ann@db1 7 vi), 9 (evil\\u{1b}[2J), 99 and 1 more\n"
        );
    }

    #[test]
    fn a_filter_leaves_the_way_to_what_matches() {
        let mut listing = busy();
        listing.filtered = true;
        listing.locks.retain(|info| info.lock == 12);
        assert_eq!(
            render(&listing),
            "namespace default: 1 held, 0 waiting\n\
             /  IX 2\n  \
             user  IX 1\n    \
             42\n      \
             X   write  lock 12  ann@db1 7 vi, held for 2m 5s, token 120\n"
        );
        listing.locks.clear();
        assert_eq!(render(&listing), "no locks that match in namespace default\n");
    }

    #[test]
    fn a_part_of_the_tree_begins_with_its_whole_path() {
        let listing = Listing {
            tree: Tree {
                truncated: false,
                nodes: vec![node("user/42", (0, 0), vec![claim("X write 12"), claim("X write 7")])],
            },
            ..busy()
        };
        let expected = "user/42\n  \
             X   write  lock 12  ann@db1 7 vi, held for 2m 5s, token 120\n  \
             X   write  lock 7   session s7\n";
        assert_eq!(
            render(&listing).split_once('\n').unwrap().1,
            expected,
            "a lock only the tree has is shown"
        );
    }

    #[test]
    fn a_lease_shows_its_end_and_its_note() {
        let mut lease = info(7, "importer", LockState::Granted);
        lease.owner = Owner { session: String::new(), via: "lease".into(), ..lease.owner };
        lease.expires_in_ms = Some(27_000);
        lease.note = Some(serde_json::from_str("\"night run\"").unwrap());
        let tree = Tree { truncated: false, nodes: vec![node("user/42", (0, 0), vec![claim("X write 7")])] };
        let listing = Listing { tree, locks: vec![lease], ..busy() };
        assert_eq!(
            render(&listing),
            "namespace default: 1 held, 0 waiting\nuser/42\n  X   write  lock 7  importer, held for 2m 5s, \
             token 70, lease, ends in 27.0s, note night run\n"
        );
    }

    #[test]
    fn nothing() {
        let listing = Listing { tree: Tree { nodes: vec![], truncated: false }, locks: vec![], ..busy() };
        assert_eq!(render(&listing), "no locks in namespace default\n");
        let listing = Listing { path: Some("a/b".parse().unwrap()), ..listing };
        assert_eq!(render(&listing), "no locks at a/b in namespace default\n");
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(owner(Some(&"é".repeat(60)), "s").chars().count(), NAME_LEN_MAX + 1);
    }
}
