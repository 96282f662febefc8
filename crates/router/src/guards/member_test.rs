//! What a member admits, acknowledges and ignores.

use super::{
    Admission, Caller, DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HoldReason, HomeContent,
    HomeEpoch, HomeMessage, JoinNo, MapEpoch, Member, MemberContent, MemberMessage, MemberState, Operation,
    OperationId, Phase, SequenceNo, Stream, scenario_test::resources,
};
use crate::{ShardEpoch, ShardNo};
use lockwood_model::{LockId, OwnerId, Token};
use std::sync::Arc;

const HOME: HomeEpoch = HomeEpoch(3);

fn stream(home: HomeEpoch, join: u64) -> Stream {
    Stream { home, shard: ShardNo(1), shard_epoch: ShardEpoch(1), join: JoinNo(join) }
}

fn from_home(join: u64, sequence: u64, content: HomeContent) -> HomeMessage {
    HomeMessage { stream: stream(HOME, join), sequence: SequenceNo(sequence), content }
}

fn to_home(join: u64, content: MemberContent) -> MemberMessage {
    MemberMessage { stream: stream(HOME, join), content }
}

fn acknowledged(number: u64) -> Vec<MemberMessage> {
    vec![to_home(1, MemberContent::Acknowledge(GuardNo(number)))]
}

/// A guard whose lock, owner and token have its number.
fn guard(home: HomeEpoch, number: u64, texts: &[&str], state: GuardState) -> Guard {
    let id = GuardId { home, number: GuardNo(number) };
    let (lock, owner, token) = (LockId(number), OwnerId(number), Token(number));
    Guard { id, lock, owner, token, resources: Arc::from(resources(texts)), state }
}

fn pending(number: u64, texts: &[&str]) -> HomeContent {
    HomeContent::Guard(guard(HOME, number, texts, GuardState::Pending))
}

fn snapshot(phase: Phase, guards: Vec<Guard>) -> HomeContent {
    HomeContent::Snapshot { phase, map: MapEpoch(1), definitions: DefinitionsNo(0), guards }
}

fn operation(id: u64, caller: Caller, texts: &[&str]) -> Operation {
    Operation { id: OperationId(id), caller, resources: resources(texts), map: MapEpoch(1) }
}

fn anonymous(id: u64, texts: &[&str]) -> Operation {
    operation(id, Caller::Anonymous, texts)
}

/// A member that serves with these guards.
fn serving(guards: Vec<Guard>) -> Member {
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    assert_eq!(member.join(), to_home(1, MemberContent::Join));
    member.receive(from_home(1, 0, snapshot(Phase::Serving, guards)));
    member
}

fn behind(number: u64) -> Admission {
    Admission::QueueAtHome { guard: GuardId { home: HOME, number: GuardNo(number) }, lock: LockId(number) }
}

#[test]
fn shard_joins_before_it_serves() {
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    assert_eq!(member.admit(anonymous(1, &["read k/1"])), Admission::MustJoin);
    member.join();
    assert_eq!(member.admit(anonymous(1, &["read k/1"])), Admission::MustJoin);
    member.receive(from_home(1, 0, snapshot(Phase::Serving, vec![])));
    assert_eq!(member.admit(anonymous(1, &["read k/1"])), Admission::Admitted);
}

#[test]
fn snapshot_in_parts_counts_when_it_is_complete() {
    let held = |number, text| guard(HOME, number, &[text], GuardState::Held);
    let part = |number, text| HomeContent::Part(vec![held(number, text)]);
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    member.join();
    assert_eq!(member.receive(from_home(1, 0, part(1, "write k/1"))), []);
    assert!(member.is_joining() && !member.has_joined());
    assert_eq!(member.admit(anonymous(1, &["write k/3"])), Admission::MustJoin);
    // One that is missing is noticed, and what came before it does not count.
    let gap = from_home(1, 2, snapshot(Phase::Serving, vec![]));
    assert_eq!(member.receive(gap), [to_home(2, MemberContent::Join)]);
    assert_eq!(member.receive(from_home(2, 0, part(2, "write k/2"))), []);
    let pending = guard(HOME, 3, &["write k/4"], GuardState::Pending);
    let acknowledged = to_home(2, MemberContent::Acknowledge(GuardNo(3)));
    let last = snapshot(Phase::Serving, vec![pending]);
    assert_eq!(member.receive(from_home(2, 1, last)), [acknowledged]);
    assert_eq!(member.admit(anonymous(2, &["write k/1"])), Admission::Admitted);
    assert_eq!(member.admit(anonymous(3, &["write k/2"])), behind(2));
    assert_eq!(member.admit(anonymous(4, &["write k/4"])), behind(3));
    // The next one takes the place of all of it.
    assert_eq!(member.receive(from_home(2, 2, part(4, "write k/5"))), []);
    assert_eq!(member.admit(anonymous(5, &["write k/2"])), behind(2));
    assert_eq!(member.receive(from_home(2, 3, snapshot(Phase::Serving, vec![]))), []);
    assert_eq!(member.admit(anonymous(6, &["write k/2"])), Admission::Admitted);
    assert_eq!(member.admit(anonymous(7, &["write k/5"])), behind(4));
    member.check_invariants();
}

#[test]
fn conflicts_are_those_of_locks() {
    let guards = [&["read k:2"][..], &["write a/1:1"], &["list b"], &["update c"]];
    let held = |(index, texts): (usize, &&[&str])| guard(HOME, index as u64 + 1, texts, GuardState::Held);
    let mut member = serving(guards.iter().enumerate().map(held).collect());
    let cases: [(&str, Option<u64>); 12] = [
        ("read k/1", None),
        ("write k/1:1", Some(1)),
        ("write k/1/f", None),
        ("link k", Some(1)),
        ("write a/1/f", None),
        ("read a/1", Some(2)),
        ("read a", Some(2)),
        ("write b/1", None),
        ("link b", Some(3)),
        ("read c/1", None),
        ("update c/1", Some(4)),
        ("read /", Some(2)),
    ];
    for (index, (text, expected)) in cases.iter().enumerate() {
        let admission = member.admit(anonymous(index as u64, &[text]));
        assert_eq!(admission, expected.map_or(Admission::Admitted, behind), "{text}");
    }
    member.check_invariants();
}

#[test]
fn owner_passes_its_own_guards_only() {
    let guards = [&["write k/1"], &["write k/2"]];
    let held = |(index, texts): (usize, &&[&str; 1])| guard(HOME, index as u64 + 1, *texts, GuardState::Held);
    let mut member = serving(guards.iter().enumerate().map(held).collect());
    let tokens = |tokens: &[u64]| Caller::Tokens(tokens.iter().map(|token| Token(*token)).collect());
    let mut check = |id, caller, text, expected| {
        assert_eq!(member.admit(operation(id, caller, &[text])), expected, "{text}");
    };
    check(1, tokens(&[1]), "write k/1", Admission::Admitted);
    check(2, tokens(&[1]), "write k/2", behind(2));
    check(3, tokens(&[7]), "write k/3", Admission::VerifyTokenAtHome(Token(7)));
    check(4, tokens(&[1, 2]), "write k/1", Admission::ForeignToken(Token(2)));
    check(5, Caller::Owner(HOME, OwnerId(2)), "write k/2", Admission::Admitted);
    check(6, Caller::Owner(HomeEpoch(2), OwnerId(2)), "write k/2", behind(2));
}

#[test]
fn guard_closes_at_once_and_is_acknowledged_when_drained() {
    let mut member = serving(vec![]);
    member.admit(anonymous(1, &["write k/1"]));
    member.admit(anonymous(2, &["write k/2"]));
    member.admit(operation(3, Caller::Owner(HOME, OwnerId(1)), &["write k/1"]));
    assert_eq!(member.receive(from_home(1, 1, pending(1, &["write k/1"]))), []);
    member.check_invariants();
    assert_eq!(member.admit(anonymous(4, &["read k/1"])), behind(1));
    // Another guard does not wait for the operations of this one.
    assert_eq!(member.receive(from_home(1, 2, pending(2, &["write k/3"]))), acknowledged(2));
    assert_eq!(member.finished(OperationId(2)), []);
    assert_eq!(member.finished(OperationId(1)), acknowledged(1));
    assert_eq!(member.receive(from_home(1, 3, HomeContent::Lift(GuardNo(1)))), []);
    assert_eq!(member.admit(anonymous(4, &["read k/1"])), Admission::Admitted);
}

#[test]
fn held_guards_are_not_acknowledged_and_pending_ones_of_a_snapshot_are() {
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    member.join();
    let guards = vec![
        guard(HOME, 1, &["write k/1"], GuardState::Held),
        guard(HOME, 2, &["write k/2"], GuardState::Pending),
    ];
    assert_eq!(member.receive(from_home(1, 0, snapshot(Phase::Serving, guards))), acknowledged(2));
}

#[test]
fn gap_makes_a_member_join_again_and_keep_its_guards() {
    let mut member = serving(vec![guard(HOME, 1, &["write k/1"], GuardState::Held)]);
    let join = vec![to_home(2, MemberContent::Join)];
    assert_eq!(member.receive(from_home(1, 2, HomeContent::Lift(GuardNo(1)))), join);
    assert_eq!(member.admit(anonymous(1, &["write k/1"])), behind(1));
    assert_eq!(member.admit(anonymous(1, &["write k/2"])), Admission::Admitted);
    // The earlier stream is over.
    assert_eq!(member.receive(from_home(1, 1, HomeContent::Lift(GuardNo(1)))), []);
    assert_eq!(member.admit(anonymous(2, &["write k/1"])), behind(1));
    member.receive(from_home(2, 0, snapshot(Phase::Serving, vec![])));
    assert_eq!(member.admit(anonymous(2, &["write k/1"])), Admission::Admitted);
}

#[test]
fn repeated_messages_and_messages_of_others_are_ignored() {
    let mut member = serving(vec![guard(HOME, 1, &["write k/1"], GuardState::Held)]);
    let before = member.clone();
    let lift = HomeContent::Lift(GuardNo(1));
    let mut others = vec![from_home(1, 0, snapshot(Phase::Serving, vec![]))];
    for other in [
        stream(HomeEpoch(2), 1),
        Stream { shard: ShardNo(2), ..stream(HOME, 1) },
        Stream { shard_epoch: ShardEpoch(2), ..stream(HOME, 1) },
        stream(HOME, 2),
    ] {
        others.push(HomeMessage { stream: other, sequence: SequenceNo(1), content: lift.clone() });
    }
    for other in others {
        assert_eq!(member.receive(other), []);
        assert_eq!(member, before);
    }
}

#[test]
fn new_owner_holds_while_the_home_is_in_grace() {
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    member.join();
    member.receive(from_home(1, 0, snapshot(Phase::Grace, vec![])));
    assert_eq!(member.admit(anonymous(1, &["read k/1"])), Admission::Hold(HoldReason::Grace));
    member.join();
    member.receive(from_home(2, 0, snapshot(Phase::Grace, vec![])));
    assert_eq!(member.state(), MemberState::Holding, "a repeated join changes nothing");
    member.receive(from_home(2, 1, snapshot(Phase::Serving, vec![])));
    assert_eq!(member.admit(anonymous(1, &["read k/1"])), Admission::Admitted);
}

#[test]
fn member_keeps_its_guards_while_the_next_home_is_in_grace() {
    let next = HomeEpoch(4);
    let says =
        |sequence, content| HomeMessage { stream: stream(next, 2), sequence: SequenceNo(sequence), content };
    let kept = [&["write k/1"], &["write k/2"]];
    let held = |(index, texts): (usize, &&[&str; 1])| guard(HOME, index as u64 + 1, *texts, GuardState::Held);
    let mut member = serving(kept.iter().enumerate().map(held).collect());
    member.home_changed(next);
    assert_eq!(member.receive(from_home(1, 1, HomeContent::Lift(GuardNo(1)))), []);
    member.join();
    member.receive(says(0, snapshot(Phase::Grace, vec![])));
    assert_eq!(member.admit(anonymous(1, &["write k/1"])), behind(1));
    assert_eq!(member.admit(anonymous(1, &["write k/3"])), Admission::Admitted);
    // The session re-attaches: another number, another owner, the same token.
    let again = Guard { token: Token(1), ..guard(next, 5, &["write k/1"], GuardState::Held) };
    member.receive(says(1, HomeContent::Guard(again)));
    let session = Caller::Owner(next, OwnerId(5));
    assert_eq!(member.admit(operation(2, session, &["write k/1"])), Admission::Admitted);
    member.receive(says(2, HomeContent::Lift(GuardNo(5))));
    assert_eq!(member.admit(anonymous(3, &["write k/1"])), Admission::Admitted);
    assert_eq!(member.admit(anonymous(4, &["write k/2"])), behind(2));
    member.receive(says(3, snapshot(Phase::Serving, vec![])));
    assert_eq!(member.admit(anonymous(4, &["write k/2"])), Admission::Admitted);
    member.check_invariants();
}

#[test]
fn arriving_keys_wait_for_the_map() {
    let mut member = serving(vec![]);
    let arriving = Operation { map: MapEpoch(2), ..anonymous(1, &["write k/1"]) };
    assert_eq!(member.admit(arriving.clone()), Admission::Hold(HoldReason::Map { has: MapEpoch(1) }));
    member.receive(from_home(1, 1, HomeContent::Map(MapEpoch(2))));
    assert_eq!(member.admit(arriving), Admission::Admitted);
}

#[test]
fn arriving_keys_wait_for_the_end_of_grace() {
    let next = HomeEpoch(4);
    let says = |sequence, phase| HomeMessage {
        stream: stream(next, 2),
        sequence: SequenceNo(sequence),
        content: HomeContent::Snapshot {
            phase,
            map: MapEpoch(2),
            definitions: DefinitionsNo(0),
            guards: vec![],
        },
    };
    let mut member = serving(vec![]);
    member.home_changed(next);
    member.join();
    member.receive(says(0, Phase::Grace));
    let arriving = Operation { map: MapEpoch(2), ..anonymous(1, &["write k/1"]) };
    assert_eq!(member.admit(arriving.clone()), Admission::Hold(HoldReason::Map { has: MapEpoch(1) }));
    member.receive(says(1, Phase::Serving));
    assert_eq!(member.admit(arriving), Admission::Admitted);
}

#[test]
fn connection_lost_after_leaving_leaves_again() {
    let mut member = serving(vec![]);
    assert_eq!(member.reconnected(), to_home(2, MemberContent::Join));
    member.leave();
    assert_eq!(member.reconnected(), to_home(4, MemberContent::Leave));
}

#[test]
fn member_leaves_when_nothing_is_running() {
    let mut member = serving(vec![guard(HOME, 1, &["write k/1"], GuardState::Held)]);
    member.admit(anonymous(1, &["write k/2"]));
    assert_eq!(member.leave(), None);
    member.finished(OperationId(1));
    assert_eq!(member.leave(), Some(to_home(2, MemberContent::Leave)));
    assert_eq!(member.admit(anonymous(1, &["write k/2"])), Admission::MustJoin);
    assert_eq!(member.guards().count(), 0);
}

#[test]
fn new_owner_serves_when_it_knows_what_is_registered_and_goes_on_while_it_catches_up() {
    let joined = |definitions| HomeContent::Snapshot {
        phase: Phase::Serving,
        map: MapEpoch(1),
        definitions: DefinitionsNo(definitions),
        guards: vec![],
    };
    let confirmed = |join, definitions| to_home(join, MemberContent::Defined(DefinitionsNo(definitions)));
    let mut member = Member::new(ShardNo(1), ShardEpoch(1), HOME);
    member.join();
    assert_eq!(member.receive(from_home(1, 0, joined(5))), vec![]);
    assert_eq!((member.is_defined(), member.behind()), (false, Some(DefinitionsNo(5))));
    assert_eq!(member.admit(anonymous(1, &["write k/1"])), Admission::Hold(HoldReason::Definitions));
    assert_eq!(member.caught_up(DefinitionsNo(6)), Some(confirmed(1, 6)));
    assert_eq!(member.admit(anonymous(1, &["write k/1"])), Admission::Admitted);
    assert_eq!(member.receive(from_home(1, 1, HomeContent::Definitions(DefinitionsNo(8)))), vec![]);
    assert_eq!((member.is_defined(), member.behind()), (true, Some(DefinitionsNo(8))));
    assert_eq!(member.admit(anonymous(2, &["write k/2"])), Admission::Admitted);
    assert_eq!(member.caught_up(DefinitionsNo(7)), None);
    assert_eq!(member.caught_up(DefinitionsNo(8)), Some(confirmed(1, 8)));
    // What it has is said anew in each membership.
    member.join();
    assert_eq!(member.receive(from_home(2, 0, joined(8))), vec![confirmed(2, 8)]);
}

#[test]
fn member_says_which_messages_it_has_taken_in() {
    let mut member = serving(vec![]);
    let has =
        |member: &Member, join, sequence| member.has_taken_in(&stream(HOME, join), SequenceNo(sequence));
    assert!(has(&member, 1, 0) && !has(&member, 1, 1));
    let lift = |join, sequence| from_home(join, sequence, HomeContent::Lift(GuardNo(7)));
    member.receive(lift(1, 1));
    assert!(has(&member, 1, 1));
    // It joins anew, so what is on its way of the earlier membership is ignored.
    member.join();
    member.receive(lift(1, 2));
    assert!(!has(&member, 1, 2));
    member.receive(from_home(2, 0, snapshot(Phase::Serving, vec![])));
    assert!(has(&member, 2, 0) && !has(&member, 1, 2));
    // A gap: it joins anew.
    member.receive(lift(2, 5));
    assert!(!has(&member, 2, 5));
    assert!(!member.has_taken_in(&stream(HomeEpoch(2), 3), SequenceNo(0)));
}
