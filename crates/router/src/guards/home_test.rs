//! What a home does, event by event: the whole list of actions.

use super::{
    Action, Covered, Decision, DefinitionsNo, Guard, GuardId, GuardNo, GuardState, Home, HomeContent,
    HomeEpoch, HomeMessage, JoinNo, MapEpoch, MemberContent, MemberMessage, Ownership, Phase, SequenceNo,
    Stream, scenario_test::resources,
};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{LockId, OwnerId, Resource, Token};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

const HOME: HomeEpoch = HomeEpoch(3);
const MAP: MapEpoch = MapEpoch(1);

fn all(_: &[Resource]) -> Covered {
    Covered::All
}

fn only(shard: u32) -> impl Fn(&[Resource]) -> Covered {
    move |_| Covered::Shards(BTreeSet::from([ShardNo(shard)]))
}

fn stream(shard: u32, epoch: u64, join: u64) -> Stream {
    Stream { home: HOME, shard: ShardNo(shard), shard_epoch: ShardEpoch(epoch), join: JoinNo(join) }
}

fn says(stream: Stream, content: MemberContent) -> MemberMessage {
    MemberMessage { stream, content }
}

fn sent(stream: Stream, sequence: u64, content: HomeContent) -> Action {
    Action::Send(HomeMessage { stream, sequence: SequenceNo(sequence), content })
}

fn decision(lock: u64, texts: &[&str]) -> Decision {
    Decision { lock: LockId(lock), owner: OwnerId(1), token: Token(lock), resources: resources(texts) }
}

fn guard(number: u64, lock: u64, texts: &[&str], state: GuardState) -> Guard {
    let id = GuardId { home: HOME, number: GuardNo(number) };
    let (owner, token) = (OwnerId(1), Token(lock));
    Guard { id, lock: LockId(lock), owner, token, resources: Arc::from(resources(texts)), state }
}

fn granted(lock: u64) -> Action {
    Action::Granted { lock: LockId(lock), token: Token(lock) }
}

fn snapshot(phase: Phase, guards: Vec<Guard>) -> HomeContent {
    HomeContent::Snapshot { phase, map: MAP, definitions: DefinitionsNo(0), guards }
}

/// A home that serves, with these members.
fn serving(shards: &[u32]) -> Home {
    let mut home = Home::first(HOME, MAP);
    for shard in shards {
        home.receive(&says(stream(*shard, 1, 1), MemberContent::Join));
    }
    home.actions(Ownership::Fresh);
    home
}

#[track_caller]
fn check(home: &mut Home, expected: &[Action]) {
    home.check_invariants();
    assert_eq!(home.actions(Ownership::Fresh), expected);
    home.check_invariants();
}

#[test]
fn without_members_a_lock_costs_no_messages() {
    let mut home = serving(&[]);
    home.decided(decision(1, &["write k"]), &all);
    check(&mut home, &[granted(1)]);
    home.released(LockId(1));
    check(&mut home, &[]);
}

#[test]
fn lock_is_granted_when_all_covered_members_have_acknowledged() {
    let mut home = serving(&[1, 2, 3]);
    let covers = |_: &[Resource]| Covered::Shards(BTreeSet::from([ShardNo(1), ShardNo(2), ShardNo(7)]));
    home.decided(decision(1, &["write k/1"]), &covers);
    let pending = HomeContent::Guard(guard(1, 1, &["write k/1"], GuardState::Pending));
    check(&mut home, &[sent(stream(1, 1, 1), 1, pending.clone()), sent(stream(2, 1, 1), 1, pending)]);
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    check(&mut home, &[]);
    assert_eq!(home.awaited(LockId(1)), BTreeSet::from([ShardNo(2)]));
    home.receive(&says(stream(2, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    check(&mut home, &[granted(1)]);
    home.released(LockId(1));
    let lift = HomeContent::Lift(GuardNo(1));
    check(&mut home, &[sent(stream(1, 1, 1), 2, lift.clone()), sent(stream(2, 1, 1), 2, lift)]);
}

#[test]
fn acknowledgement_of_another_guard_or_membership_does_not_count() {
    let mut home = serving(&[1]);
    home.decided(decision(1, &["write k/1"]), &all);
    home.actions(Ownership::Fresh);
    let acknowledge = MemberContent::Acknowledge(GuardNo(1));
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(0))));
    home.receive(&says(stream(1, 1, 2), acknowledge.clone()));
    home.receive(&says(stream(1, 2, 1), acknowledge.clone()));
    home.receive(&says(Stream { home: HomeEpoch(2), ..stream(1, 1, 1) }, acknowledge.clone()));
    check(&mut home, &[]);
    home.receive(&says(stream(1, 1, 1), acknowledge));
    check(&mut home, &[granted(1)]);
}

#[test]
fn joining_shard_acknowledges_pending_guards_too() {
    let mut home = serving(&[1]);
    home.decided(decision(1, &["write k"]), &all);
    home.actions(Ownership::Fresh);
    home.receive(&says(stream(2, 1, 5), MemberContent::Join));
    let pending = guard(1, 1, &["write k"], GuardState::Pending);
    check(&mut home, &[sent(stream(2, 1, 5), 0, snapshot(Phase::Serving, vec![pending]))]);
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    check(&mut home, &[]);
    home.receive(&says(stream(2, 1, 5), MemberContent::Acknowledge(GuardNo(1))));
    check(&mut home, &[granted(1)]);
}

#[test]
fn repeated_and_late_joins_are_not_answered_again() {
    let mut home = serving(&[]);
    home.receive(&says(stream(1, 1, 2), MemberContent::Join));
    check(&mut home, &[sent(stream(1, 1, 2), 0, snapshot(Phase::Serving, vec![]))]);
    home.receive(&says(stream(1, 1, 2), MemberContent::Join));
    home.receive(&says(stream(1, 1, 1), MemberContent::Leave));
    check(&mut home, &[]);
}

#[test]
fn joins_of_previous_owners_and_to_other_homes_are_rejected() {
    let mut home = serving(&[]);
    home.owner_changed(ShardNo(1), ShardEpoch(2));
    home.receive(&says(stream(1, 1, 1), MemberContent::Join));
    let other = Stream { home: HomeEpoch(4), ..stream(1, 2, 1) };
    home.receive(&says(other, MemberContent::Join));
    check(&mut home, &[Action::Reject(stream(1, 1, 1)), Action::Reject(other)]);
}

#[test]
fn stale_home_does_nothing_until_it_is_fresh_again() {
    let mut home = serving(&[1]);
    home.decided(decision(1, &["write k/1"]), &only(1));
    home.decided(decision(2, &["write k/2"]), &only(2));
    assert_eq!(home.actions(Ownership::Stale), []);
    assert!(home.is_held_up());
    let pending = HomeContent::Guard(guard(1, 1, &["write k/1"], GuardState::Pending));
    check(&mut home, &[sent(stream(1, 1, 1), 1, pending), granted(2)]);
    assert!(!home.is_held_up());
    // Also a lift, of which nobody may be told meanwhile.
    home.released(LockId(1));
    assert_eq!(home.actions(Ownership::Stale), []);
    assert!(home.is_held_up());
    check(&mut home, &[sent(stream(1, 1, 1), 2, HomeContent::Lift(GuardNo(1)))]);
    assert!(!home.is_held_up());
}

#[test]
fn grant_does_not_wait_for_a_previous_owner_or_a_shard_that_has_left() {
    let mut home = serving(&[1, 2]);
    home.decided(decision(1, &["write k"]), &all);
    home.actions(Ownership::Fresh);
    home.owner_changed(ShardNo(1), ShardEpoch(2));
    check(&mut home, &[]);
    home.receive(&says(stream(2, 1, 2), MemberContent::Leave));
    check(&mut home, &[granted(1)]);
}

#[test]
fn upgrade_is_guarded_first_and_downgrade_granted_first() {
    let mut home = serving(&[1]);
    home.decided(decision(1, &["read k/1"]), &all);
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    home.actions(Ownership::Fresh);
    home.converted(decision(1, &["write k/1"]), &all);
    let stronger = HomeContent::Guard(guard(2, 1, &["write k/1"], GuardState::Pending));
    check(&mut home, &[sent(stream(1, 1, 1), 2, stronger)]);
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(2))));
    check(&mut home, &[granted(1), sent(stream(1, 1, 1), 3, HomeContent::Lift(GuardNo(1)))]);
    home.converted(decision(1, &["read k/1"]), &all);
    let weaker = HomeContent::Guard(guard(3, 1, &["read k/1"], GuardState::Held));
    let lift = HomeContent::Lift(GuardNo(2));
    check(&mut home, &[granted(1), sent(stream(1, 1, 1), 4, weaker), sent(stream(1, 1, 1), 5, lift)]);
}

#[test]
fn lock_that_ends_while_it_is_upgraded_lifts_both_guards() {
    let mut home = serving(&[1]);
    home.decided(decision(1, &["read k/1"]), &all);
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    home.actions(Ownership::Fresh);
    home.converted(decision(1, &["write k/1"]), &all);
    home.conversion_cancelled(LockId(1));
    home.converted(decision(1, &["write k/1"]), &all);
    home.actions(Ownership::Fresh);
    home.released(LockId(1));
    let lift = |number| HomeContent::Lift(GuardNo(number));
    check(&mut home, &[sent(stream(1, 1, 1), 5, lift(1)), sent(stream(1, 1, 1), 6, lift(3))]);
}

#[test]
fn grace_ends_when_every_current_owner_has_been_heard_from() {
    let owners = BTreeMap::from([1, 2, 3].map(|shard| (ShardNo(shard), ShardEpoch(1))));
    let mut home = Home::takeover(HOME, MAP, owners);
    home.receive(&says(stream(1, 1, 1), MemberContent::Join));
    check(&mut home, &[sent(stream(1, 1, 1), 0, snapshot(Phase::Grace, vec![]))]);
    home.restored(decision(1, &["write k"]), &all);
    let held = guard(1, 1, &["write k"], GuardState::Held);
    check(&mut home, &[sent(stream(1, 1, 1), 1, HomeContent::Guard(held.clone()))]);
    home.sessions_over();
    home.receive(&says(stream(2, 1, 1), MemberContent::Leave));
    home.owner_changed(ShardNo(3), ShardEpoch(2));
    check(&mut home, &[]);
    assert_eq!(home.unheard().collect::<Vec<_>>(), [(ShardNo(3), ShardEpoch(2))]);
    home.receive(&says(stream(3, 2, 1), MemberContent::Join));
    let expected = [
        sent(stream(3, 2, 1), 0, snapshot(Phase::Grace, vec![held.clone()])),
        sent(stream(1, 1, 1), 2, snapshot(Phase::Serving, vec![held.clone()])),
        sent(stream(3, 2, 1), 1, snapshot(Phase::Serving, vec![held])),
        Action::GraceEnded,
    ];
    check(&mut home, &expected);
    assert_eq!(home.phase(), Phase::Serving);
}

#[test]
fn large_snapshot_is_sent_in_parts() {
    let mut home = serving(&[]);
    // Each weighs more than half of what a part may.
    let path = |lock: u64| format!("write k/{lock}{}", "x".repeat(100_000));
    let guards = [1, 2, 3].map(|lock| guard(lock, lock, &[&path(lock)], GuardState::Held));
    for lock in 1..=3 {
        home.decided(decision(lock, &[&path(lock)]), &all);
    }
    home.decided(decision(4, &["write k/4"]), &all);
    home.actions(Ownership::Fresh);
    home.receive(&says(stream(1, 1, 1), MemberContent::Join));
    let [first, second, third] = guards;
    let small = guard(4, 4, &["write k/4"], GuardState::Held);
    let expected = [
        sent(stream(1, 1, 1), 0, HomeContent::Part(vec![first])),
        sent(stream(1, 1, 1), 1, HomeContent::Part(vec![second])),
        sent(stream(1, 1, 1), 2, snapshot(Phase::Serving, vec![third, small])),
    ];
    check(&mut home, &expected);
}

#[test]
fn ends_of_locks_are_held_up_until_grace_is_over() {
    let owners = BTreeMap::from([(ShardNo(1), ShardEpoch(1))]);
    let mut home = Home::takeover(HOME, MAP, owners);
    home.restored(decision(1, &["write k"]), &all);
    home.released(LockId(1));
    check(&mut home, &[]);
    // The member has the guard of an earlier home, and no lift of this one concerns it.
    home.receive(&says(stream(1, 1, 1), MemberContent::Join));
    check(&mut home, &[sent(stream(1, 1, 1), 0, snapshot(Phase::Grace, vec![]))]);
    assert!(home.is_held_up());
    home.sessions_over();
    let complete = sent(stream(1, 1, 1), 1, snapshot(Phase::Serving, vec![]));
    check(&mut home, &[complete, Action::GraceEnded]);
    assert!(!home.is_held_up());
}

#[test]
fn guards_of_arriving_keys_come_before_the_map() {
    let mut home = serving(&[1, 2]);
    home.decided(decision(1, &["write k/1"]), &only(1));
    home.receive(&says(stream(1, 1, 1), MemberContent::Acknowledge(GuardNo(1))));
    home.actions(Ownership::Fresh);
    home.map_changed(MapEpoch(2), &only(2));
    let held = HomeContent::Guard(guard(1, 1, &["write k/1"], GuardState::Held));
    let map = HomeContent::Map(MapEpoch(2));
    let expected = [
        sent(stream(2, 1, 1), 1, held),
        sent(stream(1, 1, 1), 2, map.clone()),
        sent(stream(2, 1, 1), 2, map),
    ];
    check(&mut home, &expected);
    home.released(LockId(1));
    let lift = HomeContent::Lift(GuardNo(1));
    check(&mut home, &[sent(stream(1, 1, 1), 3, lift.clone()), sent(stream(2, 1, 1), 3, lift)]);
}

#[test]
fn registration_waits_for_members_and_not_for_owners_that_were_replaced() {
    let mut home = serving(&[1, 2]);
    home.redefined(DefinitionsNo(7));
    let announced = HomeContent::Definitions(DefinitionsNo(7));
    check(&mut home, &[sent(stream(1, 1, 1), 1, announced.clone()), sent(stream(2, 1, 1), 1, announced)]);
    assert_eq!(home.defined(), Some(DefinitionsNo(0)));
    home.receive(&says(stream(1, 1, 1), MemberContent::Defined(DefinitionsNo(6))));
    home.receive(&says(stream(2, 1, 9), MemberContent::Defined(DefinitionsNo(7))));
    assert_eq!(home.undefined(DefinitionsNo(7)), BTreeSet::from([ShardNo(1), ShardNo(2)]));
    home.receive(&says(stream(1, 1, 1), MemberContent::Defined(DefinitionsNo(8))));
    assert_eq!(home.defined(), Some(DefinitionsNo(0)));
    home.owner_changed(ShardNo(2), ShardEpoch(2));
    assert_eq!(home.defined(), Some(DefinitionsNo(7)));
    home.receive(&says(stream(2, 2, 1), MemberContent::Join));
    assert_eq!(home.undefined(DefinitionsNo(7)), BTreeSet::from([ShardNo(2)]));
}
