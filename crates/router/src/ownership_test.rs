//! Single steps of ownership: an event, a time, and the whole list of actions.

use crate::{
    NodeName, NodeRow, PolicyError, Preferences, RenewalMark, ShardEpoch, ShardNo, ShardRow, Target, View,
    ownership::{Action, Backoff, ClaimRule, Event, Hold, Monotonic, Ownership, Policy, StepDownReason},
};

const SHARD: ShardNo = ShardNo(1);
const E1: ShardEpoch = ShardEpoch(1);
const E2: ShardEpoch = ShardEpoch(2);

fn at(ms: u64) -> Monotonic {
    Monotonic(ms)
}

fn a() -> NodeName {
    NodeName::from("a")
}

fn b() -> NodeName {
    NodeName::from("b")
}

/// Two live nodes and one shard.
fn view(epoch: ShardEpoch, owner: Option<NodeName>, age_ms: u64) -> View {
    let node = |name: NodeName| NodeRow { address: format!("{name}:1"), name, age_ms: 10, drains: false };
    let row = ShardRow { shard: SHARD, epoch, owner, renewed: RenewalMark(0), age_ms, target: Target::Any };
    View { nodes: vec![node(a()), node(b())], shards: vec![row] }
}

fn renew(sent: u64, shards: &[(ShardNo, ShardEpoch)]) -> Action {
    Action::Renew { sent: at(sent), stops: false, shards: shards.to_vec() }
}

fn renewed(sent: u64, view: View) -> Event {
    Event::Renewed { sent: at(sent), view }
}

#[track_caller]
fn check(node: &mut Ownership, event: Event, now: u64, expected: &[Action]) {
    assert_eq!(node.apply(event, at(now)), expected);
}

/// Node `a`, which has registered at 0, claimed the free shard at 10 and serves it since 30.
fn serving() -> Ownership {
    let mut node = Ownership::new(a(), Policy::default(), Preferences::default()).unwrap();
    check(&mut node, Event::Tick, 0, &[renew(0, &[])]);
    let claim = Action::Claim {
        shard: SHARD,
        sent: at(10),
        expected: ShardEpoch(0),
        rule: ClaimRule::Free(RenewalMark(0)),
    };
    let first = renewed(0, view(ShardEpoch(0), None, 0));
    check(&mut node, first, 10, &[Action::Follow { shard: SHARD }, claim]);
    let claimed = Event::Claimed { shard: SHARD, sent: at(10), epoch: E1 };
    check(&mut node, claimed, 20, &[Action::CatchUp { shard: SHARD, epoch: E1 }]);
    assert!(!node.is_fresh(SHARD, at(20)), "the log is not read yet");
    let caught_up = Event::CaughtUp { shard: SHARD, epoch: E1 };
    check(&mut node, caught_up, 30, &[Action::Serve { shard: SHARD, epoch: E1 }]);
    node
}

#[test]
fn freshness_counts_from_when_the_call_was_sent() {
    let mut node = serving();
    assert_eq!(node.fresh_until(SHARD), Some(at(10 + 2_770)));
    check(&mut node, Event::Tick, 1_000, &[renew(1_000, &[(SHARD, E1)])]);
    check(&mut node, renewed(1_000, view(E1, Some(a()), 0)), 1_900, &[]);
    assert!(node.is_fresh(SHARD, at(3_769)) && node.lease_clock_runs(SHARD, at(3_769)));
    assert!(!node.is_fresh(SHARD, at(3_770)) && !node.lease_clock_runs(SHARD, at(3_770)));
}

#[test]
fn a_shard_is_suspended_without_renewal_and_resumes_with_the_same_epoch() {
    let mut node = serving();
    check(&mut node, Event::Tick, 1_000, &[renew(1_000, &[(SHARD, E1)])]);
    check(&mut node, Event::RenewFailed { sent: at(1_000) }, 1_010, &[]);
    let suspend = Action::Suspend { shard: SHARD, epoch: E1 };
    check(&mut node, Event::Tick, 2_780, &[suspend, renew(2_780, &[(SHARD, E1)])]);
    let resume = Action::Resume { shard: SHARD, epoch: E1 };
    check(&mut node, renewed(2_780, view(E1, Some(a()), 0)), 2_790, &[resume]);
    assert!(node.is_fresh(SHARD, at(2_790)));
}

#[test]
fn a_late_answer_does_not_resume() {
    let mut node = serving();
    check(&mut node, Event::Tick, 1_000, &[renew(1_000, &[(SHARD, E1)])]);
    node.apply(Event::Tick, at(5_000));
    check(&mut node, renewed(1_000, view(E1, Some(a()), 0)), 5_001, &[]);
    assert!(matches!(node.hold(SHARD), Hold::Suspended(_)));
}

#[test]
fn another_epoch_in_the_row_ends_the_tenure() {
    for row in [view(E2, Some(b()), 0), view(E2, Some(a()), 0), view(E1, None, 0)] {
        let mut node = serving();
        node.apply(Event::Tick, at(1_000));
        let why = StepDownReason::Superseded;
        check(&mut node, renewed(1_000, row), 1_010, &[Action::StepDown { shard: SHARD, epoch: E1, why }]);
        assert!(!node.is_fresh(SHARD, at(1_010)));
    }
}

#[test]
fn a_view_from_before_the_claim_does_not_end_the_tenure() {
    let mut node = serving();
    check(&mut node, renewed(0, view(ShardEpoch(0), None, 0)), 40, &[]);
    assert!(node.is_fresh(SHARD, at(40)));
}

/// It did not name the shard, so the row is as old as the claim.
#[test]
fn a_renewal_sent_in_the_millisecond_of_the_claims_answer_does_not_count() {
    let mut node = serving();
    let fresh_until = node.fresh_until(SHARD);
    check(&mut node, renewed(20, view(E1, Some(a()), 10)), 40, &[]);
    assert_eq!(node.fresh_until(SHARD), fresh_until);
}

#[test]
fn an_unknown_append_steps_down_then_claims_as_holder() {
    let mut node = serving();
    let why = StepDownReason::UnknownAppend;
    let step_down = Action::StepDown { shard: SHARD, epoch: E1, why };
    check(&mut node, Event::AppendUnknown { shard: SHARD, epoch: E1 }, 100, &[step_down]);
    check(&mut node, Event::SteppedDown { shard: SHARD, epoch: E1 }, 110, &[]);
    assert_eq!(node.wake_at(), Some(at(210)), "the first wait of the backoff");
    let claim = Action::Claim { shard: SHARD, sent: at(210), expected: E1, rule: ClaimRule::Holder };
    check(&mut node, Event::Tick, 210, &[claim]);
    let claimed = Event::Claimed { shard: SHARD, sent: at(210), epoch: E2 };
    check(&mut node, claimed, 220, &[Action::CatchUp { shard: SHARD, epoch: E2 }]);
}

#[test]
fn a_fenced_append_steps_down_and_an_old_one_does_not() {
    let mut node = serving();
    check(&mut node, Event::AppendFenced { shard: SHARD, epoch: ShardEpoch(0) }, 100, &[]);
    let why = StepDownReason::Fenced;
    let step_down = Action::StepDown { shard: SHARD, epoch: E1, why };
    check(&mut node, Event::AppendFenced { shard: SHARD, epoch: E1 }, 100, &[step_down]);
}

#[test]
fn a_move_stops_admitting_releases_and_names_the_target() {
    let mut node = serving();
    node.apply(Event::Tick, at(1_000));
    let mut moved = view(E1, Some(a()), 0);
    moved.shards[0].target = Target::Pinned(b());
    check(&mut node, renewed(1_000, moved), 1_010, &[Action::StopAdmitting { shard: SHARD, epoch: E1 }]);
    assert!(!node.is_fresh(SHARD, at(1_010)));
    let release = Action::Release { shard: SHARD, epoch: E1, to: Some(b()) };
    check(&mut node, Event::Drained { shard: SHARD, epoch: E1 }, 1_020, &[release]);
    check(&mut node, Event::Released { shard: SHARD, epoch: E1 }, 1_030, &[Action::Follow { shard: SHARD }]);
    let again = Event::Claimed { shard: SHARD, sent: at(10), epoch: E1 };
    check(&mut node, again, 1_040, &[]);
    assert_eq!(node.hold(SHARD), &Hold::Following, "an ended epoch does not begin again");
}

#[test]
fn a_stop_releases_everything_then_deregisters() {
    let mut node = serving();
    let stop_admitting = Action::StopAdmitting { shard: SHARD, epoch: E1 };
    let last = Action::Renew { sent: at(100), stops: true, shards: vec![(SHARD, E1)] };
    check(&mut node, Event::Stop, 100, &[stop_admitting, last]);
    let release = Action::Release { shard: SHARD, epoch: E1, to: Some(b()) };
    check(&mut node, Event::Drained { shard: SHARD, epoch: E1 }, 110, &[release]);
    check(&mut node, Event::Released { shard: SHARD, epoch: E1 }, 120, &[Action::Deregister]);
    assert_eq!(node.wake_at(), None);
}

#[test]
fn a_claim_that_is_no_longer_wanted_is_released() {
    let mut node = serving();
    let stray = Event::Claimed { shard: ShardNo(2), sent: at(1), epoch: E2 };
    let release = Action::Release { shard: ShardNo(2), epoch: E2, to: None };
    check(&mut node, stray, 100, &[release]);
}

#[test]
fn policies_that_cannot_work_are_refused() {
    let check = |policy: Policy, expected: PolicyError| assert_eq!(policy.validate(), Err(expected));
    let usual = Policy::default();
    assert_eq!(usual.validate(), Ok(()));
    check(Policy { renew_every_ms: 0, ..usual }, PolicyError::Zero("renew_every_ms"));
    check(Policy { margin_ms: 1, ..usual }, PolicyError::Margin(1));
    let error = PolicyError::NeverFresh { renew_every_ms: 3_000, fresh_for_ms: 2_770 };
    check(Policy { renew_every_ms: 3_000, ..usual }, error);
}

#[test]
fn backoff_doubles_up_to_its_limit() {
    let backoff = Backoff { first_ms: 100, max_ms: 500 };
    let waits: Vec<u64> = (0..6).map(|failures| backoff.wait_ms(failures)).collect();
    assert_eq!(waits, [0, 100, 200, 400, 500, 500]);
}

#[test]
fn a_tenure_that_is_to_begin_anew_is_drained_and_claimed_without_waiting() {
    let mut node = serving();
    let reopen = Event::Reopen { shard: SHARD, epoch: E1 };
    check(&mut node, reopen.clone(), 40, &[Action::StopAdmitting { shard: SHARD, epoch: E1 }]);
    assert!(!node.is_fresh(SHARD, at(40)), "it serves nothing more");
    let claim = Action::Claim { shard: SHARD, sent: at(50), expected: E1, rule: ClaimRule::Holder };
    check(&mut node, Event::Drained { shard: SHARD, epoch: E1 }, 50, &[claim]);
    let claimed = Event::Claimed { shard: SHARD, sent: at(50), epoch: E2 };
    check(&mut node, claimed, 60, &[Action::CatchUp { shard: SHARD, epoch: E2 }]);
    check(
        &mut node,
        Event::CaughtUp { shard: SHARD, epoch: E2 },
        70,
        &[Action::Serve { shard: SHARD, epoch: E2 }],
    );
    check(&mut node, reopen, 80, &[]);
    assert!(node.is_fresh(SHARD, at(80)), "that was another tenure");
}
