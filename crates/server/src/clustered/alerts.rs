//! What is wrong with a cluster, and what an operator can do about it: by the rows as they were read last. Knows nothing of
//! how they are read, nor of how alerts are told.

use lockwood_router::{NodeName, NodeRow, ShardRow, Target, View};
use lockwood_storage::postgres::DurabilityReport;
use std::collections::BTreeSet;

/// A node whose row is older than this does not renew it; the same for an owner.
pub(super) const STALE_MS: u64 = 3_000;
/// A shard without an owner for this time does not just change hands.
const UNOWNED_MS: u64 = 10_000;
/// The database has not answered for this time.
const SILENT_MS: u64 = 5_000;

/// Something that is wrong. It is the same alert for as long as it has the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alert {
    pub(super) key: String,
    pub(super) text: String,
}

/// What alerts are made of.
pub(super) struct Seen<'a> {
    pub(super) own: &'a NodeName,
    pub(super) view: &'a View,
    /// How long ago the rows were read; the largest number if never.
    pub(super) since_ms: u64,
    pub(super) durability: Option<&'a DurabilityReport>,
}

impl Seen<'_> {
    /// All alerts: of the database, of nodes, of shards.
    pub(super) fn alerts(&self) -> Vec<Alert> {
        let mut all = Vec::new();
        if self.since_ms > SILENT_MS {
            let text = format!(
                "the database does not answer {}, which therefore grants and reads nothing; look whether PostgreSQL runs and \
                 can be reached from there",
                self.own
            );
            all.push(alert("database", text));
        }
        all.extend(self.durability.and_then(one_machine));
        all.extend(self.view.nodes.iter().filter_map(|node| self.stale(node)));
        all.extend(self.view.nodes.iter().filter_map(|node| self.stuck(node)));
        all.extend(self.view.shards.iter().filter_map(|shard| self.unowned(shard)));
        all.extend(self.view.shards.iter().filter_map(|shard| self.unpinned(shard)));
        all
    }

    fn age_ms(&self, age_ms: u64) -> u64 {
        age_ms.saturating_add(if self.since_ms == u64::MAX { 0 } else { self.since_ms })
    }

    fn is_live(&self, node: &NodeRow) -> bool {
        self.age_ms(node.age_ms) <= STALE_MS
    }

    fn stale(&self, node: &NodeRow) -> Option<Alert> {
        // If the database is silent, that is what is wrong.
        if self.is_live(node) || self.since_ms > SILENT_MS {
            return None;
        }
        let (name, age_s) = (&node.name, self.age_ms(node.age_ms) / 1000);
        let text = format!(
            "{name} has not renewed its row for {age_s} s: start it again, or look whether it reaches the database; if it does \
             not come back, `lockwood cluster forget {name}`"
        );
        Some(alert(&format!("stale {name}"), text))
    }

    /// A node that is to give its shards away, and finds no other.
    fn stuck(&self, node: &NodeRow) -> Option<Alert> {
        let takers = self.view.nodes.iter().filter(|other| !other.drains && self.is_live(other)).count();
        let owned = self.view.shards.iter().filter(|shard| shard.owner.as_ref() == Some(&node.name)).count();
        if !node.drains || takers > 0 || owned == 0 {
            return None;
        }
        let name = &node.name;
        let text = format!(
            "{name} drains, and no other node can take its {owned} shards: start one, or `lockwood cluster undrain {name}`"
        );
        Some(alert(&format!("stuck {name}"), text))
    }

    fn unowned(&self, shard: &ShardRow) -> Option<Alert> {
        let age_ms = self.age_ms(shard.age_ms);
        // The row of an owner that does not renew is as old as its last renewal.
        let since_ms = match shard.owner {
            None => age_ms,
            Some(_) => age_ms.checked_sub(STALE_MS)?,
        };
        if since_ms < UNOWNED_MS || self.since_ms > SILENT_MS {
            return None;
        }
        let number = shard.shard.0;
        let text = format!(
            "shard {number} has had no owner for {} s, so its namespaces wait: start a node that does not drain; if there is one, \
             its log says why it does not claim the shard",
            since_ms / 1000
        );
        Some(alert(&format!("unowned {number}"), text))
    }

    /// A shard that an operator moved to a node that does not have it.
    fn unpinned(&self, shard: &ShardRow) -> Option<Alert> {
        let Target::Pinned(name) = &shard.target else { return None };
        let is_there = self.view.node(name).is_some_and(|node| self.is_live(node) && !node.drains);
        if is_there || self.since_ms > SILENT_MS {
            return None;
        }
        let number = shard.shard.0;
        let text = format!(
            "shard {number} was moved to {name}, which is away or drains, so another node has it: start {name}, or \
             `lockwood cluster unmove {number}`"
        );
        Some(alert(&format!("unpinned {number}"), text))
    }
}

fn one_machine(report: &DurabilityReport) -> Option<Alert> {
    if report.machines > 1 {
        return None;
    }
    let text = "an acknowledged write is on one machine only, and lost with it: give PostgreSQL a standby, and name it in \
                synchronous_standby_names, unless the storage below replicates";
    Some(alert("one machine", text.to_owned()))
}

/// What is wrong between a node and others: those that it cannot talk to although the network works, and why; those that do not
/// answer although they are live; and its own certificate.
pub(super) fn connections(
    own: &NodeName,
    misfits: &[(NodeName, String)],
    silent: &[NodeRow],
    certificate: Option<String>,
) -> Vec<Alert> {
    let misfits = misfits.iter().map(|(name, cause)| {
        let text = format!(
            "{own} cannot call {name}, so requests through one for shards of the other fail: {cause}"
        );
        alert(&format!("misfit {name}"), text)
    });
    let silent = silent.iter().map(|NodeRow { name, address, .. }| {
        let text = format!(
            "{own} cannot reach {name} at {address}, although both reach the database, so requests through one for shards of \
             the other fail: look whether the network lets nodes connect to each other and answer; until then \
             `lockwood cluster drain {name}` gives its shards to nodes that can be reached"
        );
        alert(&format!("silent {name}"), text)
    });
    let certificate = certificate.map(|problem| alert("certificate", format!("on {own} {problem}")));
    misfits.chain(silent).chain(certificate).collect()
}

fn alert(key: &str, text: String) -> Alert {
    Alert { key: key.to_owned(), text }
}

/// Logs alerts once, when they begin.
#[derive(Default)]
pub(super) struct Told(BTreeSet<String>);

impl Told {
    pub(super) fn tell(&mut self, alerts: &[Alert]) {
        for Alert { key, text } in alerts.iter().filter(|alert| !self.0.contains(&alert.key)) {
            tracing::warn!(alert = key, "{text}");
        }
        for key in self.0.iter().filter(|key| !alerts.iter().any(|alert| alert.key == **key)) {
            tracing::info!(alert = key, "this is over");
        }
        self.0 = alerts.iter().map(|alert| alert.key.clone()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_router::{RenewalMark, ShardEpoch, ShardNo};

    fn node(name: &str, age_ms: u64, drains: bool) -> NodeRow {
        NodeRow { name: NodeName::from(name), address: format!("{name}:1"), age_ms, drains }
    }

    fn shard(owner: Option<&str>, age_ms: u64, target: Target) -> ShardRow {
        let owner = owner.map(NodeName::from);
        ShardRow { shard: ShardNo(1), epoch: ShardEpoch(1), owner, renewed: RenewalMark(0), age_ms, target }
    }

    #[track_caller]
    fn check(nodes: Vec<NodeRow>, shard: ShardRow, since_ms: u64, expected: &[&str]) {
        let (own, view) = (NodeName::from("a"), View { nodes, shards: vec![shard] });
        let alerts = Seen { own: &own, view: &view, since_ms, durability: None }.alerts();
        let keys: Vec<&str> = alerts.iter().map(|alert| alert.key.as_str()).collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn every_alert_has_its_cause() {
        let live = || vec![node("a", 100, false), node("b", 900, false)];
        let owned = |age_ms| shard(Some("a"), age_ms, Target::Any);
        check(live(), owned(100), 500, &[]);
        check(live(), owned(4_000), 500, &[]);
        check(live(), owned(12_600), 500, &["unowned 1"]);
        check(live(), shard(None, 9_000, Target::Any), 500, &[]);
        check(live(), shard(None, 9_600, Target::Any), 500, &["unowned 1"]);
        check(vec![node("a", 100, false), node("b", 2_600, false)], owned(100), 500, &["stale b"]);
        check(live(), shard(None, 90_000, Target::Any), 6_000, &["database"]);
        check(live(), shard(Some("a"), 100, Target::Pinned("b".into())), 0, &[]);
        check(live(), shard(Some("a"), 100, Target::Pinned("c".into())), 0, &["unpinned 1"]);
        check(vec![node("a", 100, true), node("b", 900, false)], owned(100), 0, &[]);
        check(vec![node("a", 100, true), node("b", 900, true)], owned(100), 0, &["stuck a"]);
    }

    #[test]
    fn a_node_that_cannot_be_called_is_named_with_the_cause() {
        let misfits = [(NodeName::from("b"), "it does not speak TLS".to_owned())];
        let silent = [node("c", 100, false)];
        let certificate = Some("the certificate has expired".to_owned());
        let alerts = connections(&NodeName::from("a"), &misfits, &silent, certificate);
        let keys: Vec<&str> = alerts.iter().map(|alert| alert.key.as_str()).collect();
        assert_eq!(keys, ["misfit b", "silent c", "certificate"]);
        assert!(alerts[0].text.contains("a cannot call b") && alerts[0].text.contains("does not speak TLS"));
        assert!(alerts[1].text.contains("a cannot reach c at c:1") && alerts[1].text.contains("network"));
        assert_eq!(connections(&NodeName::from("a"), &[], &[], None), []);
    }

    #[test]
    fn one_machine_is_an_alert_and_two_are_none() {
        let report = |machines| DurabilityReport {
            synchronous_commit: "on".into(),
            synchronous_standby_names: String::new(),
            machines,
            server_version: "15".into(),
            in_recovery: false,
        };
        assert!(
            one_machine(&report(1)).is_some_and(|alert| alert.text.contains("synchronous_standby_names"))
        );
        assert_eq!(one_machine(&report(2)), None);
    }
}
