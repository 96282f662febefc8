//! What a table does, one behaviour at a time: short histories with every answer and effect written down.

use crate::scene::*;
use crate::{
    BLOCKERS_LEN_MAX, CancelOutcome, Change, ConvertError, ConvertOutcome, Counts, Cycle, Effect, Ended,
    LockTable, Outcome, Refusal, Request, Standing, UnknownLock, Waiters,
};
use lockwood_model::{LockId, Mode, OwnerId, Token, Wait};

// The queue.

#[test]
fn what_is_free_is_granted_at_once() {
    let mut scene = Scene::new();
    assert_eq!(scene.lock(A, "write a"), granted(1, 1));
    assert_eq!(scene.lock(B, "write b"), granted(2, 2));
}

#[test]
fn readers_share() {
    let mut scene = Scene::new().held(A, "read a");
    assert_eq!(scene.lock(B, "read a"), granted(2, 2));
    assert_eq!(scene.lock(C, "read a/b"), granted(3, 3));
}

#[test]
fn writers_are_served_in_the_order_they_came() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a/b").waits(C, "write a");
    assert_eq!(scene.release(A, 1), [given(B, 2, 2)]);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
    assert_eq!(scene.release(C, 3), []);
    assert_eq!(scene.table.counts(), nothing());
}

#[test]
fn readers_do_not_overtake_a_waiting_writer() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a");
    assert_eq!(scene.lock(C, "read a"), queued(3));
    assert_eq!(scene.release(A, 1), [given(B, 2, 2)]);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn a_request_that_conflicts_with_nothing_passes_the_queue() {
    let mut scene = Scene::new().held(A, "write a/b").waits(B, "write a/b");
    assert_eq!(scene.lock(C, "write a/c"), granted(3, 2));
    assert_eq!(scene.lock(D, "read a:1"), granted(4, 3));
}

#[test]
fn compatible_waiters_are_granted_together() {
    let scene = Scene::new().held(A, "write a").waits(B, "read a").waits(C, "read a/b");
    let mut scene = scene.waits(D, "write a").waits(E, "read a");
    assert_eq!(scene.release(A, 1), [given(B, 2, 2), given(C, 3, 3)]);
    assert_eq!(scene.release(C, 3), []);
    assert_eq!(scene.release(B, 2), [given(D, 4, 4)]);
    assert_eq!(scene.release(D, 4), [given(E, 5, 5)]);
}

#[test]
fn a_waiting_update_lets_readers_pass() {
    let mut scene = Scene::new().held(A, "update a").waits(B, "update a");
    assert_eq!(scene.lock(C, "read a"), granted(3, 2));
    assert_eq!(scene.release(A, 1), [given(B, 2, 3)]);
}

#[test]
fn a_waiter_below_and_a_waiter_above_are_one_queue() {
    let mut scene = Scene::new().held(A, "write a/b/c").waits(B, "write a").waits(C, "write a/d");
    assert_eq!(scene.release(A, 1), [given(B, 2, 2)]);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn ten_thousand_writers_on_one_node_are_served_in_order() {
    const WRITERS: u64 = 10_000;
    let (mut table, mut effects) = (LockTable::new(1, 1), Vec::new());
    for writer in 1..=WRITERS {
        let request = Request {
            owner: OwnerId(writer),
            resources: resources("write a/b/c"),
            wait: Wait::Forever,
            ttl_ms: None,
            rank: crate::Rank::Ordinary,
        };
        let expected = if writer == 1 { granted(1, 1) } else { queued(writer) };
        assert_eq!(table.lock(request, START), expected);
    }
    for writer in 1..=WRITERS {
        assert!(table.release(OwnerId(writer), LockId(writer), START, &mut effects).is_ok());
    }
    let expected: Vec<Effect> = (2..=WRITERS).map(|writer| given(OwnerId(writer), writer, writer)).collect();
    assert_eq!(effects, expected);
    assert_eq!(table.counts(), nothing());
}

#[test]
fn readers_that_come_and_go_beside_a_held_read_leave_nothing_behind() {
    let mut scene = Scene::new().held(A, "read a/b");
    let before = scene.table.counts();
    let mut effects = Vec::new();
    for pair in 2..50_002 {
        let request = Request {
            owner: B,
            resources: resources("read a/b"),
            wait: Wait::Forever,
            ttl_ms: None,
            rank: crate::Rank::Ordinary,
        };
        assert_eq!(scene.table.lock(request, START), granted(pair, pair));
        assert!(scene.table.release(B, LockId(pair), START, &mut effects).is_ok());
    }
    assert_eq!(effects, []);
    assert_eq!(scene.table.counts(), before);
    assert_eq!(
        before,
        Counts { locks_granted: 1, resources_granted: 1, nodes: 3, owners: 1, ..Counts::default() }
    );
}

// The two reads that the original Locktopus grants too late.

#[test]
fn a_read_waits_for_the_write_below_it_and_not_for_the_read() {
    let mut scene = Scene::new().held(A, "read x/1").held(B, "write x/2").waits(C, "read x");
    assert_eq!(scene.standing(3), Some(standing(1, &[2])));
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn a_read_does_not_inherit_the_wait_of_another_read() {
    let mut scene = Scene::new().held(A, "write x").waits(B, "read x, read y");
    assert_eq!(scene.lock(C, "read y"), granted(3, 2));
}

#[test]
fn a_read_behind_a_write_that_gives_up_does_not_inherit_the_wait_of_an_earlier_read() {
    let scene = Scene::new().held(A, "write x").waits(B, "read x, read y");
    let mut scene = scene.waits(C, "write y").waits(D, "read y");
    assert_eq!(scene.cancel(C, 3), (CancelOutcome::Cancelled, vec![given(D, 4, 2)]));
}

// Sets.

#[test]
fn a_set_waits_until_every_part_is_free() {
    let mut scene = Scene::new().held(A, "write a").held(B, "write b").waits(C, "write a, write b");
    assert_eq!(scene.release(A, 1), []);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn the_free_parts_of_a_waiting_set_are_reserved() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a, write b");
    assert_eq!(scene.lock(C, "write b"), queued(3));
    assert_eq!(scene.standing(3), Some(standing(2, &[2])));
    assert_eq!(scene.release(A, 1), [given(B, 2, 2)]);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn a_waiting_set_that_gives_up_frees_what_it_reserved() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a, write b").waits(C, "write b");
    assert_eq!(scene.cancel(B, 2), (CancelOutcome::Cancelled, vec![given(C, 3, 2)]));
}

#[test]
fn sets_named_in_opposite_orders_do_not_deadlock() {
    let mut scene = Scene::new().held(A, "write a, write b").waits(B, "write b, write a");
    assert_eq!(scene.lock(C, "write a, write b"), queued(3));
    assert_eq!(scene.release(A, 1), [given(B, 2, 2)]);
    assert_eq!(scene.release(B, 2), [given(C, 3, 3)]);
}

#[test]
fn redundant_resources_are_merged_and_do_no_harm() {
    let mut scene = Scene::new();
    let asked = "read a, write a, read b, write a, read b, read a/c, list a, write b:1";
    assert_eq!(scene.lock(A, asked), granted(1, 1));
    let kept = resources("list a, write a, read a/c, write b:1, read b");
    assert_eq!(scene.view(1).resources, kept);
    assert_eq!(scene.release(A, 1), []);
    assert_eq!(scene.table.counts(), nothing());
}

#[test]
fn the_empty_set_is_granted_at_once_and_blocks_nothing() {
    let mut scene = Scene::new().held(A, "write /");
    assert_eq!(scene.lock(B, ""), granted(2, 2));
    assert_eq!(scene.release(A, 1), []);
    assert_eq!(scene.lock(C, "write /"), granted(3, 3));
    assert_eq!(scene.release(B, 2), []);
    assert_eq!(scene.release(C, 3), []);
    assert_eq!(scene.table.counts(), nothing());
}

// Endings.

#[test]
fn cancelling_a_waiter_wakes_those_it_blocked() {
    let mut scene =
        Scene::new().held(A, "read a").waits(B, "write a").waits(C, "read a").waits(D, "read a/b");
    assert_eq!(scene.cancel(B, 2), (CancelOutcome::Cancelled, vec![given(C, 3, 2), given(D, 4, 3)]));
}

#[test]
fn those_behind_a_cancelled_waiter_still_wait_for_the_holder() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a").waits(C, "write a");
    assert_eq!(scene.cancel(B, 2), (CancelOutcome::Cancelled, vec![]));
    assert_eq!(scene.release(A, 1), [given(C, 3, 2)]);
}

#[test]
fn releasing_a_waiter_is_cancelling_it() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a").waits(C, "read a");
    let (ended, effects) = scene.act(|table, now, effects| table.release(B, LockId(2), now, effects));
    assert_eq!(ended, Ok(Ended { owner: B, held_ms: None }));
    assert_eq!(effects, [given(C, 3, 2)]);
}

#[test]
fn cancelling_what_is_held_comes_too_late() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.cancel(A, 1), (CancelOutcome::AlreadyGranted, vec![]));
    assert_eq!(scene.view(1).token, Some(Token(1)));
}

#[test]
fn nobody_can_end_or_change_the_lock_of_another() {
    let mut scene = Scene::new().held(A, "write a");
    let (released, effects) = scene.act(|table, now, effects| table.release(B, LockId(1), now, effects));
    assert_eq!((released, effects), (Err(UnknownLock), vec![]));
    assert_eq!(scene.cancel(B, 1), (CancelOutcome::UnknownLock, vec![]));
    let invalid = ConvertOutcome::Invalid(ConvertError::UnknownLock);
    assert_eq!(scene.convert(B, 1, Mode::Read), (invalid, vec![]));
    assert_eq!(scene.view(1).token, Some(Token(1)));
}

#[test]
fn a_lock_ends_once() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.release(A, 1), []);
    let (again, _) = scene.act(|table, now, effects| table.release(A, LockId(1), now, effects));
    assert_eq!(again, Err(UnknownLock));
}

#[test]
fn an_ended_lock_tells_how_long_it_was_held() {
    let mut scene = Scene::new().held(A, "write a");
    scene.pass(70);
    let (ended, _) = scene.act(|table, now, effects| table.release(A, LockId(1), now, effects));
    assert_eq!(ended, Ok(Ended { owner: A, held_ms: Some(70) }));
}

#[test]
fn a_revoked_lock_is_handed_over_whoever_owned_it() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a");
    let (ended, effects) = scene.act(|table, now, effects| table.revoke(LockId(1), now, effects));
    assert_eq!(ended, Ok(Ended { owner: A, held_ms: Some(0) }));
    assert_eq!(effects, [given(B, 2, 2)]);
    let (again, effects) = scene.act(|table, now, effects| table.revoke(LockId(1), now, effects));
    assert_eq!((again, effects), (Err(UnknownLock), vec![]));
}

#[test]
fn releasing_all_ends_what_is_held_and_what_waits() {
    let scene = Scene::new().held(A, "write a").held(A, "write b").held(D, "read c");
    let mut scene = scene.waits(A, "write c").waits(B, "write a").waits(C, "read c, write b");
    let (ended, effects) = scene.act(|table, now, effects| table.release_all(A, now, effects));
    let held_ms = Some(0);
    let expected = [(A, held_ms), (A, held_ms), (A, None)].map(|(owner, held_ms)| Ended { owner, held_ms });
    assert_eq!(ended, expected);
    assert_eq!(effects, [given(B, 5, 4), given(C, 6, 5)]);
    assert_eq!(scene.table.owned_len(A), 0);
}

// Re-entrance.

#[test]
fn asking_again_is_granted_at_once_though_others_wait() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a");
    assert_eq!(scene.lock(A, "write a"), granted(3, 2));
    assert_eq!(scene.lock(A, "read a/b:1"), granted(4, 3));
    assert_eq!(scene.lock(A, "link a"), granted(5, 4));
}

#[test]
fn releasing_the_outer_lock_keeps_the_inner_one_protecting() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a").held(A, "read a/b");
    assert_eq!(scene.release(A, 1), []);
    assert_eq!(scene.lock(C, "write a/b"), queued(4));
    assert_eq!(scene.release(A, 3), [given(B, 2, 3)]);
    assert_eq!(scene.release(B, 2), [given(C, 4, 4)]);
}

#[test]
fn releasing_the_inner_lock_keeps_the_outer_one_protecting() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a").held(A, "read a");
    assert_eq!(scene.release(A, 3), []);
    assert_eq!(scene.release(A, 1), [given(B, 2, 3)]);
}

#[test]
fn a_second_lock_of_the_same_owner_does_not_wait_for_the_first() {
    let mut scene = Scene::new().held(A, "read a");
    assert_eq!(scene.lock(A, "write a/b"), granted(2, 2));
    assert_eq!(scene.lock(B, "read a"), queued(3));
    assert_eq!(scene.release(A, 2), [given(B, 3, 3)]);
}

#[test]
fn a_set_waits_only_for_what_its_owner_does_not_hold_yet() {
    let mut scene = Scene::new().held(A, "write a").held(B, "write b").waits(C, "write a");
    assert_eq!(scene.lock(A, "write a, write b"), queued(4));
    assert_eq!(scene.standing(4), Some(standing(1, &[2])));
    assert_eq!(scene.release(A, 1), [], "the waiting set keeps what its owner held");
    assert_eq!(scene.release(B, 2), [given(A, 4, 3)]);
    assert_eq!(scene.release(A, 4), [given(C, 3, 4)]);
}

#[test]
fn asking_for_more_than_is_held_behind_a_waiter_is_a_deadlock() {
    let mut scene = Scene::new().held(A, "write a/b").waits(B, "write a");
    let cycle = [step(A, "write a", B, 2, "write a"), step(B, "write a", A, 1, "write a/b")];
    assert_eq!(scene.lock(A, "write a"), deadlock(&cycle));
}

// Conversions.

#[test]
fn a_lone_reader_becomes_a_writer_at_once_ahead_of_queued_writers() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (converted(2), vec![]));
    assert_eq!(scene.view(1).resources, resources("write a"));
    assert_eq!(scene.release(A, 1), [given(B, 2, 3)]);
}

#[test]
fn a_reader_that_becomes_a_writer_waits_for_other_readers_only() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a/b").waits(C, "write a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    assert_eq!(scene.standing(1), Some(standing(1, &[2])));
    assert_eq!(scene.view(1).resources, resources("read a"), "it keeps its old mode meanwhile");
    assert_eq!(scene.release(B, 2), [Effect::Converted { owner: A, lock: LockId(1), token: Token(3) }]);
    assert_eq!(scene.release(A, 1), [given(C, 3, 4)]);
}

#[test]
fn an_update_becomes_a_write_when_the_readers_beside_it_are_gone() {
    let mut scene = Scene::new().held(A, "update a").held(B, "read a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    assert_eq!(scene.release(B, 2), [Effect::Converted { owner: A, lock: LockId(1), token: Token(3) }]);
    assert_eq!(scene.view(1).resources, resources("write a"));
}

#[test]
fn new_readers_do_not_pass_a_waiting_conversion() {
    let mut scene = Scene::new().held(A, "update a").held(B, "read a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    assert_eq!(scene.lock(C, "read a"), queued(3));
    assert_eq!(scene.cancel(A, 1), (CancelOutcome::ConversionCancelled, vec![given(C, 3, 3)]));
    assert_eq!(scene.view(1).resources, resources("update a"));
}

#[test]
fn a_writer_that_becomes_a_reader_wakes_the_readers_up_to_the_next_writer() {
    let scene = Scene::new().held(A, "write a").waits(B, "read a").waits(C, "update a");
    let mut scene = scene.waits(D, "write a").waits(E, "read a");
    assert_eq!(scene.convert(A, 1, Mode::Read), (converted(1), vec![given(B, 2, 2), given(C, 3, 3)]));
}

#[test]
fn the_second_of_two_converting_readers_is_refused() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    let cycle = [step(B, "write a", A, 1, "read a"), step(A, "write a", B, 2, "read a")];
    let refusal = Refusal::Deadlock(Cycle(cycle.to_vec()));
    assert_eq!(scene.convert(B, 2, Mode::Write), (ConvertOutcome::Refused(refusal), vec![]));
    assert_eq!(scene.view(2).resources, resources("read a"));
    assert_eq!(scene.release(B, 2), [Effect::Converted { owner: A, lock: LockId(1), token: Token(3) }]);
}

#[test]
fn a_conversion_that_dooms_another_one_ends_it() {
    let mut scene = Scene::new().held(A, "read y/1").held(B, "read y").held(C, "update y/2");
    scene = scene.held(B, "write q").waits(A, "write q");
    assert_eq!(scene.convert(B, 2, Mode::Update), (ConvertOutcome::Queued, vec![]));
    let cycle = [step(B, "update y", A, 1, "update y/1"), step(A, "write q", B, 4, "write q")];
    let doomed = Effect::ConversionDeadlocked { owner: B, lock: LockId(2), cycle: Cycle(cycle.to_vec()) };
    assert_eq!(scene.convert(A, 1, Mode::Update), (converted(5), vec![doomed]));
    assert_eq!(scene.view(2).converting_to, None);
}

#[test]
fn a_conversion_changes_only_the_paths_it_names() {
    let mut scene = Scene::new().held(A, "read a, read b");
    let change = Change::Paths(vec![(path("a"), Mode::Write)]);
    assert_eq!(scene.convert_within(A, 1, &change, Wait::Forever), (converted(2), vec![]));
    assert_eq!(scene.view(1).resources, resources("write a, read b"));
    let missing = Change::Paths(vec![(path("a"), Mode::Read), (path("c"), Mode::Read)]);
    let invalid = ConvertOutcome::Invalid(ConvertError::NoResourceAt(path("c")));
    assert_eq!(scene.convert_within(A, 1, &missing, Wait::Forever), (invalid, vec![]));
    assert_eq!(scene.view(1).resources, resources("write a, read b"));
}

#[test]
fn a_conversion_that_is_weaker_here_and_stronger_there_happens_in_one_step() {
    let mut scene = Scene::new().held(A, "read a, write b").held(B, "read a").waits(C, "read b");
    let change = Change::Paths(vec![(path("a"), Mode::Write), (path("b"), Mode::Read)]);
    assert_eq!(scene.convert_within(A, 1, &change, Wait::Forever), (ConvertOutcome::Queued, vec![]));
    let done = Effect::Converted { owner: A, lock: LockId(1), token: Token(3) };
    assert_eq!(scene.release(B, 2), [done, given(C, 3, 4)]);
}

#[test]
fn a_conversion_overtakes_the_free_part_of_a_waiting_set() {
    let mut scene = Scene::new().held(A, "read a").held(B, "write b").waits(C, "read a, read b");
    assert_eq!(scene.convert(A, 1, Mode::Write), (converted(3), vec![]));
    assert_eq!(scene.release(B, 2), []);
    assert_eq!(scene.release(A, 1), [given(C, 3, 4)]);
}

#[test]
fn a_conversion_that_may_not_wait_leaves_no_trace() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a");
    let before = (scene.table.counts(), scene.view(1));
    let busy = Refusal::Busy { blockers: ids(&[2]) };
    let answer = scene.convert_within(A, 1, &Change::All(Mode::Write), Wait::Never);
    assert_eq!(answer, (ConvertOutcome::Refused(busy), vec![]));
    assert_eq!((scene.table.counts(), scene.view(1)), before);
    assert_eq!(scene.lock(C, "read a"), granted(3, 3));
}

#[test]
fn a_conversion_whose_patience_ends_keeps_the_old_modes() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a");
    let answer = scene.convert_within(A, 1, &Change::All(Mode::Write), Wait::Millis(50));
    assert_eq!(answer, (ConvertOutcome::Queued, vec![]));
    scene = scene.waits(C, "read a");
    assert_eq!(scene.pass(49), []);
    let timed_out = Effect::ConversionTimedOut { owner: A, lock: LockId(1), blockers: ids(&[2]) };
    assert_eq!(scene.pass(1), [timed_out, given_after(50, C, 3, 3)]);
    assert_eq!(scene.view(1).resources, resources("read a"));
}

#[test]
fn conversions_that_make_no_sense_are_told_so() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a").waits(C, "write a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    let mut check = |owner, lock, mode, error| {
        assert_eq!(scene.convert(owner, lock, mode), (ConvertOutcome::Invalid(error), vec![]));
    };
    check(A, 1, Mode::Read, ConvertError::AlreadyConverting);
    check(B, 2, Mode::Link, ConvertError::ChildListMode);
    check(C, 3, Mode::Read, ConvertError::NotGranted);
    check(D, 9, Mode::Read, ConvertError::UnknownLock);
}

#[test]
fn converting_to_what_is_held_changes_nothing() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a");
    assert_eq!(scene.convert(A, 1, Mode::Read), (converted(1), vec![]));
}

// Deadlocks.

#[test]
fn the_request_that_would_close_a_cycle_is_refused_with_the_cycle() {
    let scene = Scene::new().held(A, "write a").held(B, "write b").held(C, "write c");
    let mut scene = scene.waits(A, "read b/1").waits(B, "write c");
    let before = scene.table.counts();
    let cycle = [
        step(C, "read a/1:1", A, 1, "write a"),
        step(A, "read b/1", B, 2, "write b"),
        step(B, "write c", C, 3, "write c"),
    ];
    assert_eq!(scene.lock(C, "read a/1:1"), deadlock(&cycle));
    assert_eq!(scene.table.counts(), before, "the refused request is gone");
    assert_eq!(scene.release(C, 3), [given(B, 5, 4)]);
    assert_eq!(scene.release(B, 5), []);
    assert_eq!(scene.release(B, 2), [given(A, 4, 5)]);
}

#[test]
fn a_cycle_through_a_waiting_request_is_a_cycle_too() {
    let mut scene = Scene::new().held(A, "write a").held(B, "read b").waits(C, "write a, write b");
    let cycle = [step(A, "read b", C, 3, "write b"), step(C, "write a", A, 1, "write a")];
    assert_eq!(scene.lock(A, "read b"), deadlock(&cycle));
}

#[test]
fn a_long_chain_without_a_cycle_waits() {
    let scene = Scene::new().held(A, "write a").held(B, "write b").held(C, "write c");
    let mut scene = scene.waits(A, "write b").waits(B, "write c");
    assert_eq!(scene.lock(D, "write a, write c"), queued(6));
}

/// B's wait for `y` starts without a request of B's, when A's lock there becomes stronger.
#[test]
fn a_conversion_that_would_close_a_cycle_is_refused_though_nothing_is_in_its_way() {
    let scene = Scene::new().held(A, "read y").held(B, "write x").held(C, "write z");
    let mut scene = scene.waits(A, "write x").waits(B, "read y, read z");
    let cycle = [step(A, "write x", B, 2, "write x"), step(B, "read y", A, 1, "write y")];
    let refusal = Refusal::Deadlock(Cycle(cycle.to_vec()));
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Refused(refusal), vec![]));
}

#[test]
fn nobody_waits_for_itself_after_a_thaw() {
    let mut scene = Scene::starting_at(100).frozen().waits(A, "write x").waits(B, "write y");
    assert_eq!(scene.restore(A, "write y", 7), Ok(LockId(102)));
    assert_eq!(scene.restore(B, "write x", 8), Ok(LockId(103)));
    assert_ne!(scene.thaw(), [], "A waits for B and B for A: one of them must hear of it");
}

/// What its holder does is short, and waits for the thaw alone: nobody in line may keep it from ending.
#[test]
fn an_operation_of_a_holder_goes_ahead_of_those_in_line_after_a_thaw() {
    let mut scene = Scene::starting_at(100).frozen();
    assert_eq!(scene.restore(A, "write a/1", 7), Ok(LockId(100)));
    let mut scene = scene.waits(B, "write a");
    let operation = Request {
        owner: A,
        resources: resources("write a/1, link a:1"),
        wait: Wait::Forever,
        ttl_ms: None,
        rank: crate::Rank::HolderOperation,
    };
    let queued = scene.act(|table, now, _| table.lock(operation, now)).0;
    assert_eq!(queued, Outcome::Queued { lock: LockId(102) });
    assert_eq!(scene.thaw(), [given(A, 102, 100)]);
    assert_eq!(scene.release(A, 102), []);
    assert_eq!(scene.release(A, 100), [given(B, 101, 101)]);
}

// Patience.

#[test]
fn a_try_that_fails_leaves_no_trace() {
    let mut scene = Scene::new().held(A, "write a");
    let before = (scene.table.counts(), scene.table.next_number());
    let answer = scene.lock_within(B, "read a/b/c, write d", Wait::Never);
    assert_eq!(answer, busy(&[1]));
    assert_eq!((scene.table.counts(), scene.table.next_number()), before);
    assert_eq!(scene.lock(C, "write d"), granted(2, 2));
}

#[test]
fn a_try_that_finds_the_way_free_is_granted() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.lock_within(B, "write b", Wait::Never), granted(2, 2));
}

#[test]
fn a_try_does_not_overtake_and_names_holders_before_waiters() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a").held(C, "read b");
    assert_eq!(scene.lock_within(D, "read a", Wait::Never), busy(&[2]));
    assert_eq!(scene.lock_within(D, "write a, write b", Wait::Never), busy(&[1, 3, 2]));
}

#[test]
fn only_the_first_few_in_the_way_are_named() {
    let mut scene = Scene::new();
    for reader in 1..=30 {
        scene = scene.held(OwnerId(100 + reader), "read a");
    }
    let named: Vec<u64> = (1..=BLOCKERS_LEN_MAX as u64).collect();
    assert_eq!(scene.lock_within(A, "write a", Wait::Never), busy(&named));
    scene = scene.waits(A, "write a");
    assert_eq!(scene.standing(31), Some(Standing { blockers_len: 30, ..standing(1, &named) }));
}

#[test]
fn a_wait_ends_at_the_exact_moment_and_wakes_those_behind() {
    let mut scene = Scene::new().held(A, "read a");
    assert_eq!(scene.lock_within(B, "write a", Wait::Millis(50)), queued(2));
    scene = scene.waits(C, "read a");
    assert_eq!(scene.table.next_deadline(), Some(START.after(50)));
    assert_eq!(scene.pass(49), []);
    assert_eq!(scene.pass(1), [timed_out(B, 2, &[1]), given_after(50, C, 3, 2)]);
    assert_eq!(scene.table.next_deadline(), None);
}

#[test]
fn waits_end_in_the_order_they_are_due_however_late_it_is_noticed() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.lock_within(B, "write a", Wait::Millis(30)), queued(2));
    assert_eq!(scene.lock_within(C, "write a", Wait::Millis(10)), queued(3));
    assert_eq!(scene.lock_within(D, "write a", Wait::Millis(20)), queued(4));
    assert_eq!(scene.pass(500), [timed_out(C, 3, &[1, 2]), timed_out(D, 4, &[1, 2]), timed_out(B, 2, &[1])]);
}

#[test]
fn what_was_granted_in_time_is_not_timed_out() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.lock_within(B, "write a", Wait::Millis(50)), queued(2));
    scene.pass(20);
    assert_eq!(scene.release(A, 1), [given_after(20, B, 2, 2)]);
    assert_eq!(scene.table.next_deadline(), None);
    assert_eq!(scene.pass(100), []);
}

// Owners that go away.

#[test]
fn the_waiters_of_an_owner_that_left_make_way_and_its_locks_stay_until_the_timeout() {
    let scene = Scene::new().held(A, "read a").held(B, "write b");
    let mut scene = scene.waits(B, "write a").waits(C, "read a").waits(D, "write b");
    assert_eq!(scene.leave(B, Waiters::Leave, 100), [given(C, 4, 3)]);
    assert_eq!(scene.table.next_deadline(), Some(START.after(100)));
    assert_eq!(scene.pass(99), []);
    assert_eq!(scene.pass(1), [abandoned(B, 2, Some(100)), given_after(100, D, 5, 4)]);
}

#[test]
fn the_waiting_conversion_of_an_owner_that_left_makes_way() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a");
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    scene = scene.waits(C, "read a");
    assert_eq!(scene.leave(A, Waiters::Leave, 100), [given(C, 3, 3)]);
    assert_eq!(scene.view(1).resources, resources("read a"));
}

#[test]
fn a_dead_waiter_that_stays_is_granted_and_holds_until_the_timeout() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a").waits(C, "write a");
    assert_eq!(scene.leave(B, Waiters::Stay, 100), []);
    scene.pass(30);
    assert_eq!(scene.release(A, 1), [given_after(30, B, 2, 2)]);
    assert_eq!(scene.pass(69), []);
    assert_eq!(scene.pass(1), [abandoned(B, 2, Some(70)), given_after(100, C, 3, 3)]);
}

#[test]
fn a_dead_waiter_that_is_never_granted_is_abandoned_too() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a").waits(C, "read a");
    assert_eq!(scene.leave(B, Waiters::Stay, 100), []);
    assert_eq!(scene.pass(100), [abandoned(B, 2, None), given_after(100, C, 3, 2)]);
}

#[test]
fn an_owner_that_returns_in_time_keeps_everything() {
    let mut scene = Scene::new().held(A, "write a").held(B, "write b").waits(B, "write a");
    assert_eq!(scene.leave(B, Waiters::Stay, 100), []);
    assert_eq!(scene.view(2).away_until, Some(START.after(100)));
    scene.pass(99);
    assert_eq!(scene.table.owner_returned(B), 2);
    assert_eq!(scene.view(2).away_until, None);
    assert_eq!(scene.pass(1000), []);
    assert_eq!(scene.release(A, 1), [given_after(1099, B, 3, 3)]);
}

#[test]
fn an_owner_that_returns_too_late_has_nothing() {
    let mut scene = Scene::new().held(A, "write a");
    scene.leave(A, Waiters::Leave, 100);
    assert_eq!(scene.pass(100), [abandoned(A, 1, Some(100))]);
    assert_eq!(scene.table.owner_returned(A), 0);
    assert_eq!(scene.table.counts(), nothing());
}

#[test]
fn leaving_again_moves_the_timeout() {
    let mut scene = Scene::new().held(A, "write a");
    assert_eq!(scene.leave(A, Waiters::Leave, 100), []);
    assert_eq!(scene.leave(A, Waiters::Leave, 300), []);
    assert_eq!(scene.pass(299), []);
    assert_eq!(scene.pass(1), [abandoned(A, 1, Some(300))]);
}

#[test]
fn without_a_timeout_everything_is_given_up_at_once() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a");
    assert_eq!(scene.leave(A, Waiters::Leave, 0), [abandoned(A, 1, Some(0)), given(B, 2, 2)]);
}

#[test]
fn an_owner_without_locks_leaves_without_a_trace() {
    let mut scene = Scene::new();
    assert_eq!(scene.leave(A, Waiters::Stay, 100), []);
    assert_eq!(scene.table.next_deadline(), None);
    assert_eq!(scene.table.owner_returned(A), 0);
}

/// Leases: locks that end by themselves.
mod lease {
    use super::*;
    use crate::{Outcome, Recorded};
    use lockwood_model::Timestamp;

    fn lease(scene: &mut Scene, owner: OwnerId, text: &str, ttl_ms: u64) -> Outcome {
        let request = Request {
            owner,
            resources: resources(text),
            wait: Wait::Forever,
            ttl_ms: Some(ttl_ms),
            rank: crate::Rank::Ordinary,
        };
        scene.act(|table, now, _| table.lock(request, now)).0
    }

    #[test]
    fn it_ends_when_its_time_is_over_and_is_handed_over() {
        let mut scene = Scene::new();
        assert_eq!(lease(&mut scene, A, "write a", 10), granted(1, 1));
        assert_eq!(lease(&mut scene, B, "write a", 10), queued(2));
        assert_eq!(scene.pass(9), []);
        let expired = Effect::Expired { owner: A, lock: LockId(1), held_ms: 10 };
        assert_eq!(scene.pass(1), [expired, given_after(10, B, 2, 2)]);
        assert_eq!(scene.view(2).expires_at, Some(START.after(20)), "its time runs from the grant");
    }

    #[test]
    fn renewing_moves_its_end() {
        let mut scene = Scene::new();
        lease(&mut scene, A, "write a", 10);
        let until = START.after(30);
        assert!(scene.table.renew(A, LockId(1), Some(until)).is_ok());
        assert!(scene.table.renew(B, LockId(1), Some(until)).is_err(), "it is not B's");
        assert_eq!(scene.pass(29), []);
        assert_eq!(scene.pass(1).len(), 1);
        assert!(scene.table.renew(A, LockId(1), Some(until)).is_err(), "it is over");
    }

    #[test]
    fn time_that_stood_still_postpones_ends_and_no_waits() {
        let mut scene = Scene::new();
        lease(&mut scene, A, "write a", 10);
        lease(&mut scene, B, "write b", 10);
        scene.lock(C, "write c");
        scene.leave(C, Waiters::Leave, 12);
        scene.lock_within(D, "write a", Wait::Millis(20));
        scene.act(|table, _, _| table.postpone_ends(100));
        assert_eq!(scene.view(1).expires_at, Some(START.after(110)));
        assert!(scene.table.renew(B, LockId(2), Some(START.after(30))).is_ok());
        assert_eq!(scene.pass(20), [timed_out(D, 4, &[1])]);
        let expired = |owner, lock, held_ms| Effect::Expired { owner, lock: LockId(lock), held_ms };
        assert_eq!(scene.pass(10), [expired(B, 2, 30)]);
        assert_eq!(scene.pass(79), []);
        assert_eq!(scene.pass(1), [expired(A, 1, 110)]);
        assert_eq!(scene.pass(2), [abandoned(C, 3, Some(112))]);
        assert_eq!(scene.table.next_deadline(), None);
    }

    #[test]
    fn it_comes_back_with_its_number_its_token_and_its_end() {
        let mut scene = Scene::starting_at(100).frozen();
        let recorded = Recorded {
            lock: LockId(7),
            token: Token(8),
            owner: A,
            resources: resources("write a"),
            granted_at: Timestamp(900),
            expires_at: Some(Timestamp(1010)),
        };
        assert_eq!(scene.table.restore_recorded(recorded.clone()), Ok(()));
        let other = Recorded { lock: LockId(9), token: Token(10), owner: B, ..recorded };
        assert_eq!(scene.table.restore_recorded(other), Err(ids(&[7])));
        scene.thaw();
        assert_eq!(scene.table.granted(Token(8)), Some((LockId(7), A)));
        assert_eq!(scene.lock(B, "read b"), granted(100, 100));
        assert_eq!(scene.pass(10).len(), 1);
        assert_eq!(scene.table.granted(Token(8)), None);
    }

    #[test]
    fn a_repeated_request_finds_the_lock_that_has_it_all() {
        let mut scene = Scene::new();
        lease(&mut scene, A, "write a, read b", 10);
        assert_eq!(scene.table.holding(A, &resources("read a/x, read b:1")), Some(LockId(1)));
        assert_eq!(scene.table.holding(A, &resources("write b")), None);
        assert_eq!(scene.table.holding(B, &resources("read a")), None);
    }

    #[test]
    fn of_many_that_are_due_some_can_be_ended_at_a_time() {
        let mut scene = Scene::new();
        (0..5).for_each(|n| drop(lease(&mut scene, A, &format!("write a/{n}"), 10)));
        scene.now = scene.now.after(10);
        let (_, effects) = scene.act(|table, now, effects| table.expire_some(now, 3, effects));
        assert_eq!((effects.len(), scene.table.len()), (3, 2));
        assert_eq!(scene.table.next_deadline(), Some(scene.now));
    }

    #[test]
    fn a_holder_that_asks_for_more_goes_ahead_of_those_who_wait_for_it() {
        let mut scene = Scene::new().held(A, "update a").waits(B, "write a");
        assert!(scene.table.stands_at(A, &resources("write a")));
        assert!(!scene.table.stands_at(A, &resources("write a, write b")));
        assert!(!scene.table.stands_at(B, &resources("write a")), "it only waits");
        let request = Request {
            owner: A,
            resources: resources("write a"),
            wait: Wait::Never,
            ttl_ms: None,
            rank: crate::Rank::Upgrade,
        };
        assert_eq!(scene.act(|table, now, _| table.lock(request, now)).0, granted(3, 2));
    }
}
