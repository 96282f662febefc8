//! What a table shows, and how it starts again after a restart: short histories, everything written down.

use crate::scene::*;
use crate::{CancelOutcome, Change, ConvertOutcome, Counts, Effect, LockView, Outcome, Refusal, Waiters};
use lockwood_model::{Depth, LockId, Mode, Path, Token, Wait};

// Freezing.

#[test]
fn a_frozen_table_queues_and_refuses_those_that_do_not_wait() {
    let mut scene = Scene::new().frozen();
    assert_eq!(scene.lock(A, "write a"), queued(1));
    assert_eq!(scene.lock(B, ""), queued(2));
    assert_eq!(scene.lock_within(C, "write b", Wait::Never), Outcome::Refused(Refusal::Frozen));
    assert!(scene.table.is_frozen());
}

#[test]
fn what_queued_during_a_freeze_is_granted_in_order_at_the_thaw() {
    let scene = Scene::new().frozen().waits(A, "write a").waits(B, "write a");
    let mut scene = scene.waits(C, "read b").waits(D, "read b");
    scene.pass(10);
    assert_eq!(scene.thaw(), [given_after(10, A, 1, 1), given_after(10, C, 3, 2), given_after(10, D, 4, 3)]);
    assert_eq!(scene.release(A, 1), [given_after(10, B, 2, 4)]);
}

#[test]
fn a_restored_lock_keeps_its_token_and_goes_ahead_of_what_queued_before_it() {
    let mut scene = Scene::starting_at(100).frozen().waits(A, "write a");
    assert_eq!(scene.restore(B, "write a/b", 7), Ok(LockId(101)));
    assert_eq!(scene.view(101).token, Some(Token(7)));
    assert_eq!(scene.thaw(), []);
    assert_eq!(scene.release(B, 101), [given(A, 100, 100)]);
}

#[test]
fn a_lock_that_conflicts_with_a_restored_one_is_not_restored() {
    let mut scene = Scene::starting_at(100).frozen();
    assert_eq!(scene.restore(A, "write a", 7), Ok(LockId(100)));
    let before = scene.table.counts();
    assert_eq!(scene.restore(B, "read c, read a/b", 8), Err(ids(&[100])));
    assert_eq!(scene.table.counts(), before, "it leaves no trace");
    assert_eq!(scene.restore(A, "read a/b", 9), Ok(LockId(101)), "an owner is not in its own way");
}

#[test]
fn what_a_release_frees_during_a_freeze_is_granted_at_the_thaw() {
    let mut scene = Scene::new().held(A, "write a").waits(B, "write a").frozen();
    assert_eq!(scene.release(A, 1), []);
    assert_eq!(scene.thaw(), [given(B, 2, 2)]);
}

#[test]
fn a_conversion_asked_for_during_a_freeze_is_done_at_the_thaw() {
    let mut scene = Scene::new().held(A, "read a").waits(B, "write a").frozen();
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    let frozen = ConvertOutcome::Refused(Refusal::Frozen);
    scene = scene.waits(C, "read b");
    assert_eq!(scene.cancel(A, 1), (CancelOutcome::ConversionCancelled, vec![]));
    assert_eq!(scene.convert_within(A, 1, &Change::All(Mode::Write), Wait::Never), (frozen, vec![]));
    assert_eq!(scene.convert(A, 1, Mode::Write), (ConvertOutcome::Queued, vec![]));
    let done = Effect::Converted { owner: A, lock: LockId(1), token: Token(2) };
    assert_eq!(scene.thaw(), [done, given(C, 3, 3)]);
}

#[test]
fn patience_ends_during_a_freeze_too() {
    let mut scene = Scene::new().frozen();
    assert_eq!(scene.lock_within(A, "write a", Wait::Millis(50)), queued(1));
    assert_eq!(scene.pass(50), [timed_out(A, 1, &[])]);
    assert_eq!(scene.thaw(), []);
}

// Tokens.

#[test]
fn every_grant_gets_a_larger_token_than_all_before_it() {
    let mut scene = Scene::starting_at(500).held(A, "read a").waits(B, "write a").held(C, "write c");
    assert_eq!(scene.convert(A, 500, Mode::Write), (converted(502), vec![]));
    assert_eq!(scene.lock(A, "read a"), granted(503, 503), "a repeated request is a grant too");
    assert_eq!(scene.release(A, 503), []);
    assert_eq!(scene.release(A, 500), [given(B, 501, 504)]);
    assert_eq!(scene.lock(D, "write d"), granted(504, 505));
    assert_eq!((scene.table.first_number(), scene.table.next_number()), (500, 506));
}

#[test]
fn a_lock_that_becomes_weaker_keeps_its_token() {
    let mut scene = Scene::new().held(A, "write a").held(B, "write b");
    assert_eq!(scene.convert(A, 1, Mode::Read), (converted(1), vec![]));
    assert_eq!(scene.convert(A, 1, Mode::Update), (converted(3), vec![]));
}

// Listings.

#[test]
fn a_view_shows_a_held_lock() {
    let mut scene = Scene::new();
    scene.pass(5);
    scene = scene.held(A, "write a/b:2, list a");
    let expected = LockView {
        id: LockId(1),
        owner: A,
        token: Some(Token(1)),
        rank: crate::Rank::Ordinary,
        resources: resources("list a, write a/b:2"),
        converting_to: None,
        requested_at: START.after(5),
        granted_at: Some(START.after(5)),
        expires_at: None,
        wait_until: None,
        away_until: None,
    };
    assert_eq!(scene.table.view(LockId(1)), Some(expected));
    assert_eq!(scene.table.view(LockId(2)), None);
    assert_eq!(scene.table.owner_of(LockId(1)), Some(A));
}

#[test]
fn a_view_shows_a_waiting_lock_whose_owner_is_away() {
    let mut scene = Scene::new().held(A, "write a");
    scene.lock_within(B, "read a", Wait::Millis(70));
    scene.leave(B, Waiters::Stay, 90);
    let expected = LockView {
        id: LockId(2),
        owner: B,
        token: None,
        rank: crate::Rank::Ordinary,
        resources: resources("read a"),
        converting_to: None,
        requested_at: START,
        granted_at: None,
        expires_at: None,
        wait_until: Some(START.after(70)),
        away_until: Some(START.after(90)),
    };
    assert_eq!(scene.view(2), expected);
}

#[test]
fn a_view_shows_what_a_lock_wants_to_become() {
    let mut scene = Scene::new().held(A, "read a, write b").held(B, "read a");
    let change = Change::Paths(vec![(path("a"), Mode::Write), (path("b"), Mode::Read)]);
    scene.convert_within(A, 1, &change, Wait::Millis(40));
    let expected = LockView {
        id: LockId(1),
        owner: A,
        token: Some(Token(1)),
        rank: crate::Rank::Ordinary,
        resources: resources("read a, write b"),
        converting_to: Some(resources("write a, read b")),
        requested_at: START,
        granted_at: Some(START),
        expires_at: None,
        wait_until: Some(START.after(40)),
        away_until: None,
    };
    assert_eq!(scene.view(1), expected);
}

#[test]
fn views_go_on_after_the_last_one_seen_even_if_it_is_gone() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a").held(A, "read b").held(C, "read c");
    scene.release(B, 2);
    let ids = |after| scene.table.views(after).map(|view| view.id.0).collect::<Vec<u64>>();
    assert_eq!(ids(None), [1, 3, 4]);
    assert_eq!(ids(Some(LockId(1))), [3, 4]);
    assert_eq!(ids(Some(LockId(2))), [3, 4]);
    assert_eq!(ids(Some(LockId(4))), [0u64; 0]);
    assert_eq!(scene.table.owned(A).map(|view| view.id.0).collect::<Vec<u64>>(), [1, 3]);
    assert_eq!(scene.table.owned(B).count(), 0);
}

#[test]
fn a_waiter_can_ask_where_it_stands() {
    let scene = Scene::new().held(A, "read a").held(B, "read a/b").waits(C, "write a");
    let mut scene = scene.waits(D, "read a").waits(E, "write a");
    assert_eq!(scene.standing(1), None, "a holder stands nowhere");
    assert_eq!(scene.standing(9), None);
    assert_eq!(scene.standing(3), Some(standing(1, &[1, 2])));
    assert_eq!(scene.standing(4), Some(standing(2, &[3])));
    assert_eq!(scene.standing(5), Some(standing(3, &[1, 2, 3, 4])));
    scene.release(A, 1);
    scene.cancel(C, 3);
    assert_eq!(scene.standing(4), None);
    assert_eq!(scene.standing(5), Some(standing(1, &[2, 4])));
}

#[test]
fn waits_are_pairs_of_a_waiter_and_what_it_waits_for() {
    let mut scene = Scene::new().held(A, "read a").held(B, "read a").waits(C, "write a").waits(D, "read a");
    let pairs = |scene: &Scene, len| {
        scene.table.waits(len).iter().map(|(waiter, holder)| (waiter.0, holder.0)).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&scene, 100), [(3, 1), (3, 2), (4, 3)]);
    assert_eq!(pairs(&scene, 2), [(3, 1), (3, 2)]);
    scene.convert(A, 1, Mode::Write);
    assert_eq!(pairs(&scene, 100), [(1, 2), (3, 1), (3, 2), (4, 1), (4, 3)]);
}

#[test]
fn nodes_show_claims_and_the_intents_above_them() {
    let scene = Scene::new().held(A, "read user/42/name").held(B, "write user/43:1");
    let mut scene = scene.held(D, "update user/42:1").waits(C, "write user/42:2");
    let whole = Depth::SUBTREE;
    let two = Depth::levels(2).unwrap();
    let pending = claim(C, 4, Mode::Write, two, false);
    let expected = [
        node("/", (1, 2), &[]),
        node("user", (1, 2), &[]),
        node("user/42", (1, 0), &[claim(D, 3, Mode::Update, Depth::NODE, true), pending]),
        node("user/42/name", (0, 0), &[claim(A, 1, Mode::Read, whole, true)]),
        node("user/43", (0, 0), &[claim(B, 2, Mode::Write, Depth::NODE, true)]),
    ];
    assert_eq!(scene.table.nodes(&Path::root(), 100), expected);
    assert_eq!(scene.table.nodes(&path("user/42"), 100), expected[..4], "with all ancestors");
    assert_eq!(scene.table.nodes(&path("nobody"), 100), []);

    scene.release(D, 3);
    scene.release(A, 1);
    let expected = [
        node("/", (0, 2), &[]),
        node("user", (0, 2), &[]),
        node("user/42", (0, 0), &[claim(C, 4, Mode::Write, two, true)]),
    ];
    assert_eq!(scene.table.nodes(&path("user/42"), 100), expected, "the pending intent became a lock");
}

#[test]
fn nodes_show_a_claim_on_a_child_list_at_the_node_whose_list_it_is() {
    let scene = Scene::new().held(A, "link user").held(B, "read user:1").waits(C, "list user");
    let expected = [
        node("/", (1, 1), &[]),
        node(
            "user",
            (0, 1),
            &[
                claim(A, 1, Mode::Link, Depth::NODE, true),
                claim(B, 2, Mode::Read, Depth::NODE, true),
                claim(C, 3, Mode::List, Depth::NODE, false),
            ],
        ),
    ];
    assert_eq!(scene.table.nodes(&Path::root(), 100), expected);
}

#[test]
fn nodes_show_a_waiting_conversion_beside_what_is_held() {
    let mut scene = Scene::new().held(A, "read a:1").held(B, "read a:1");
    scene.convert(A, 1, Mode::Write);
    let claims = [
        claim(A, 1, Mode::Read, Depth::NODE, true),
        claim(B, 2, Mode::Read, Depth::NODE, true),
        claim(A, 1, Mode::Write, Depth::NODE, false),
    ];
    assert_eq!(scene.table.nodes(&path("a"), 100), [node("/", (2, 0), &[]), node("a", (0, 0), &claims)]);
}

#[test]
fn nodes_stop_at_the_limit_but_count_every_intent() {
    let scene = Scene::new().held(A, "read a/1").held(A, "read a/2").held(A, "read a/3");
    let read = claim(A, 1, Mode::Read, Depth::SUBTREE, true);
    let expected = [node("/", (3, 0), &[]), node("a", (3, 0), &[]), node("a/1", (0, 0), &[read])];
    assert_eq!(scene.table.nodes(&Path::root(), 1), expected);
}

#[test]
fn counts_tell_locks_resources_nodes_and_owners() {
    let mut scene =
        Scene::new().held(A, "read a/x, read b/x").held(A, "read a/y").waits(B, "write a, write c");
    let expected = Counts {
        locks_granted: 2,
        locks_waiting: 1,
        resources_granted: 3,
        resources_waiting: 2,
        nodes: 7,
        owners: 2,
    };
    assert_eq!(scene.table.counts(), expected);
    assert_eq!((scene.table.len(), scene.table.waiting_len(), scene.table.owned_len(A)), (3, 1, 2));
    scene.act(|table, now, effects| table.release_all(A, now, effects));
    scene.release(B, 3);
    assert_eq!(scene.table.counts(), nothing());
    assert!(scene.table.is_empty());
}
