//! The session protocol: every message, every answer, every mistake.

use crate::{
    harness::Server,
    peer::{Peer, assert_error, resources},
};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::protocol::frame::coding::Data;

// Opening and closing.

#[test]
fn a_session_opens_with_hello() {
    let server = Server::start(&[]);
    let mut peer = Peer::connect(&server, "default");
    let welcome = peer.ask(json!({ "type": "hello", "id": 41 }));
    assert_eq!(welcome["type"], "welcome", "{welcome}");
    assert_eq!(welcome["id"], 41);
    assert_eq!(welcome["abandon_timeout_ms"], 60_000);
    assert_eq!(welcome["grace_ms"], 0);
    assert_eq!(welcome["locks"], json!([]));
    assert!(welcome["session"].as_str().unwrap().len() >= 16, "{welcome}");
    assert!(welcome["secret"].as_str().unwrap().len() >= 32, "{welcome}");
}

#[test]
fn a_session_chooses_its_abandon_timeout() {
    let server = Server::start(&["--abandon-timeout", "7s"]);
    let open = |hello: Value| Peer::connect(&server, "default").ask(hello)["abandon_timeout_ms"].clone();
    assert_eq!(open(json!({ "type": "hello", "abandon_timeout_ms": 1234 })), 1234);
    assert_eq!(open(json!({ "type": "hello", "abandon_timeout_ms": 0 })), 0);
    assert_eq!(open(json!({ "type": "hello" })), 7000);
}

#[test]
fn sessions_differ_in_id_and_secret() {
    let server = Server::start(&[]);
    let (ann, bob) = (Peer::open(&server, "ann"), Peer::open(&server, "ann"));
    assert_ne!(ann.session, bob.session);
    assert_ne!(ann.secret, bob.secret);
}

#[test]
fn the_first_message_must_open_a_session() {
    let server = Server::start(&[]);
    let mut peer = Peer::connect(&server, "default");
    let answer = peer.ask(json!({ "type": "lock", "id": 3, "resources": resources("write a") }));
    assert_error(&answer, "hello_first");
    assert_eq!(peer.closed(), 4000);
}

#[test]
fn a_first_message_that_is_none_ends_the_connection() {
    let server = Server::start(&[]);
    let mut peer = Peer::connect(&server, "default");
    peer.send_text("hello");
    let answer = peer.next();
    assert_error(&answer, "bad_message");
    assert_eq!(answer["id"], Value::Null);
    assert_eq!(peer.closed(), 4000);
}

#[test]
fn a_second_hello_or_attach_is_refused_and_harmless() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    assert_error(&ann.ask(json!({ "type": "hello" })), "already_open");
    assert_error(&ann.ask(ann.attach_message(&json!([]))), "already_open");
    ann.release(&held);
}

#[test]
fn bye_ends_all_locks_at_once() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("write a");
    ann.hold("write b");
    bob.queue("write a, write b");
    ann.bye();
    bob.granted();
}

#[test]
fn a_session_that_said_bye_cannot_be_taken_up_again() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let attach = ann.attach_message(&json!([]));
    let answer = ann.ask(json!({ "type": "bye" }));
    assert_eq!(answer["type"], "bye");
    assert_error(&Peer::connect(&server, "default").ask(attach), "unknown_session");
}

// Locks and tokens.

#[test]
fn answers_carry_the_numbers_of_the_requests() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let ids = [9, 7, u64::MAX, 0];
    for (index, id) in ids.into_iter().enumerate() {
        let resources = resources(&format!("write a/{index}"));
        ann.send(json!({ "type": "lock", "id": id, "resources": resources }));
    }
    let mut locks = Vec::new();
    for id in ids {
        let answer = ann.next_of("granted");
        assert_eq!(answer["id"], id);
        locks.push(answer["lock"].clone());
    }
    locks.dedup();
    assert_eq!(locks.len(), ids.len(), "every lock has a number of its own");
}

#[test]
fn the_late_answer_to_a_waiting_lock_carries_its_number_too() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.ask(json!({ "type": "lock", "id": 77, "resources": resources("write a") }));
    assert_eq!(queued["type"], "queued");
    ann.release(&held);
    let granted = bob.next_of("granted");
    assert_eq!((&granted["id"], &granted["lock"]), (&json!(77), &queued["lock"]));
}

#[test]
fn tokens_strictly_increase() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut last = 0;
    for _ in 0..20 {
        for peer in [&mut ann, &mut bob] {
            let held = peer.hold("write a");
            assert!(held.token > last, "{} after {last}", held.token);
            last = held.token;
            peer.release(&held);
        }
    }
}

#[test]
fn tokens_increase_when_a_namespace_comes_back() {
    let server = Server::start(&[]);
    let mut last = 0;
    for _ in 0..5 {
        let mut ann = Peer::open(&server, "ann");
        let held = ann.hold("write a");
        assert!(held.token > last, "{} after {last}", held.token);
        last = held.token;
        ann.bye();
    }
}

#[test]
fn readers_share_and_writers_do_not() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("read a/b");
    bob.hold("read a");
    assert_error(&bob.lock("write a/b/c", 0), "locked");
    bob.hold("write a/c");
}

#[test]
fn depth_limits_what_a_lock_covers() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("write a:2");
    assert_error(&bob.lock("write a/b", 0), "locked");
    bob.hold("write a/b/c");
}

#[test]
fn the_empty_path_is_the_whole_namespace_and_no_other() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("write /");
    assert_error(&bob.lock("read a/b", 0), "locked");
    Peer::open_with(&server, "other", json!({})).hold("write /");
}

#[test]
fn a_path_is_a_list_of_segments_or_text() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    ann.hold("write user/4%2F2");
    let resources = json!([{ "path": ["user", "4/2"], "mode": "write" }]);
    assert_error(&bob.ask(json!({ "type": "lock", "resources": resources, "wait": 0 })), "locked");
    let resources = json!([{ "path": ["user", "4", "2"], "mode": "write" }]);
    assert_eq!(bob.ask(json!({ "type": "lock", "resources": resources, "wait": 0 }))["type"], "granted");
}

#[test]
fn adding_a_child_waits_for_a_search_over_the_children() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let search = ann.hold("list user");
    bob.queue("write user/1, link user");
    ann.release(&search);
    bob.granted();
}

#[test]
fn a_session_never_waits_for_itself() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let first = ann.hold("write a");
    let second = ann.hold("write a/b, read a");
    assert_ne!(first.lock, second.lock);
    ann.release(&first);
    assert_error(&bob.lock("write a/b", 0), "locked");
    ann.release(&second);
    bob.hold("write a/b");
}

// Waiting.

#[test]
fn a_try_is_refused_and_names_who_is_in_the_way() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write user/42:3");
    let refusal = bob.lock("read user", 0);
    assert_error(&refusal, "locked");
    assert_eq!(refusal["blockers"].as_array().unwrap().len(), 1, "{refusal}");
    let blocker = &refusal["blockers"][0];
    assert_eq!(blocker["session"], ann.session);
    assert_eq!(blocker["name"], "ann");
    assert_eq!(blocker["lock"], held.lock);
    assert_eq!(blocker["state"], "granted");
    assert_eq!(
        blocker["resources"],
        json!([{ "path": ["user", "42"], "mode": "write", "depth": 3 }]),
        "{blocker}"
    );
    assert!(is_moment(&blocker["since"]), "{blocker}");
    assert!(refusal["message"].as_str().unwrap().contains("ann"), "{refusal}");
}

#[test]
fn a_refused_try_leaves_nothing_behind() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    assert_error(&bob.lock("write a, write b", 0), "locked");
    ann.hold("write b");
    ann.release(&held);
    Peer::open(&server, "eve").hold("write a");
}

#[test]
fn a_wait_that_runs_out_names_who_was_in_the_way() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let start = std::time::Instant::now();
    let queued = bob.lock("write a", 150);
    assert_eq!(queued["type"], "queued", "{queued}");
    let refusal = bob.next();
    assert!(start.elapsed().as_millis() >= 150, "too early: {:?}", start.elapsed());
    assert_error(&refusal, "timeout");
    assert_eq!(refusal["id"], queued["id"]);
    assert_eq!(refusal["lock"], queued["lock"]);
    assert_eq!(refusal["blockers"][0]["lock"], held.lock, "{refusal}");
    assert_eq!(refusal["blockers"][0]["name"], "ann");
    assert_error(&bob.ask(json!({ "type": "place", "lock": queued["lock"] })), "unknown_lock");
}

#[test]
fn a_wait_that_runs_out_lets_those_behind_pass() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    ann.hold("read a");
    assert_eq!(bob.lock("write a", 100)["type"], "queued");
    eve.queue("read a");
    eve.granted();
    assert_error(&bob.next(), "timeout");
}

#[test]
fn without_a_wait_a_lock_waits_for_ever() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.ask(json!({ "type": "lock", "resources": resources("write a") }));
    assert_eq!(queued["type"], "queued", "{queued}");
    ann.release(&held);
    bob.granted();
}

#[test]
fn who_has_to_queue_is_told_the_place_and_who_is_in_the_way() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    let held = ann.hold("write a");
    let first = bob.queue("write a");
    assert_eq!(first["place"], 1, "{first}");
    assert_eq!(first["blockers_len"], 1);
    assert_eq!(first["blockers"][0]["lock"], held.lock);
    let second = eve.queue("write a");
    assert_eq!(second["place"], 2, "{second}");
    assert_eq!(second["blockers_len"], 2);
    let states: Vec<_> = second["blockers"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["granted", "waiting"], "holders come first");
    let names: Vec<_> = second["blockers"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["ann", "bob"]);
}

#[test]
fn a_waiter_can_ask_its_place() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    let held = ann.hold("write a");
    bob.queue("write a");
    let queued = eve.queue("write a");
    assert_eq!(eve.place(&queued["lock"])["place"], 2);
    ann.release(&held);
    let held = bob.granted();
    let place = eve.place(&queued["lock"]);
    assert_eq!(place["place"], 1);
    assert_eq!(place["blockers"][0]["name"], "bob", "{place}");
    bob.release(&held);
    let granted = eve.granted();
    assert_eq!(eve.place(&json!(granted.lock))["place"], 0, "what is held waits for nothing");
}

#[test]
fn a_wait_can_be_cancelled() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    ann.hold("read a");
    let queued = bob.queue("write a");
    eve.queue("read a");
    let answer = bob.ask(json!({ "type": "cancel", "lock": queued["lock"] }));
    assert_eq!(answer["type"], "cancelled", "{answer}");
    assert_eq!((&answer["lock"], &answer["held"]), (&queued["lock"], &json!(false)));
    eve.granted();
    assert_error(&bob.ask(json!({ "type": "release", "lock": queued["lock"] })), "unknown_lock");
}

#[test]
fn a_wait_ends_by_release_as_well() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let queued = bob.queue("write a");
    let answer = bob.ask(json!({ "type": "release", "lock": queued["lock"] }));
    assert_eq!(answer["type"], "released", "{answer}");
    ann.release(&held);
    Peer::open(&server, "eve").hold("write a");
}

#[test]
fn what_is_held_cannot_be_cancelled() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    let answer = ann.ask(json!({ "type": "cancel", "lock": held.lock }));
    assert_error(&answer, "already_granted");
    assert_eq!(answer["lock"], held.lock);
    ann.release(&held);
}

#[test]
fn there_is_nothing_to_do_with_a_lock_that_is_not_there() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    for kind in ["release", "cancel", "place"] {
        let answer = ann.ask(json!({ "type": kind, "lock": 999_999_999 }));
        assert_error(&answer, "unknown_lock");
        assert_eq!(answer["lock"], 999_999_999);
    }
    let answer = ann.ask(json!({ "type": "convert", "lock": 999_999_999, "mode": "read" }));
    assert_error(&answer, "unknown_lock");
}

#[test]
fn the_lock_of_another_session_is_not_there() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    for kind in ["release", "cancel", "place"] {
        assert_error(&bob.ask(json!({ "type": kind, "lock": held.lock })), "unknown_lock");
    }
    assert_error(&bob.convert(&held, "read", 0), "unknown_lock");
    ann.release(&held);
}

#[test]
fn a_lock_is_released_once() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    ann.release(&held);
    assert_error(&ann.ask(json!({ "type": "release", "lock": held.lock })), "unknown_lock");
}

// Conversions.

#[test]
fn a_read_becomes_a_write_when_the_other_readers_are_gone() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    let queued = ann.convert(&mine, "write", "forever");
    assert_eq!(queued["type"], "queued", "{queued}");
    assert_eq!(queued["lock"], mine.lock);
    assert_eq!(queued["blockers"][0]["lock"], other.lock);
    bob.release(&other);
    let converted = ann.next_of("converted");
    assert_eq!(converted["id"], queued["id"]);
    assert_eq!(converted["lock"], mine.lock);
    assert!(converted["token"].as_u64().unwrap() > mine.token, "{converted}");
    assert_error(&bob.lock("read a", 0), "locked");
}

#[test]
fn a_conversion_goes_ahead_of_waiting_writers() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mut eve = Peer::open(&server, "eve");
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    let waiting = eve.queue("write a");
    assert_eq!(ann.convert(&mine, "write", "forever")["type"], "queued");
    bob.release(&other);
    ann.next_of("converted");
    eve.still_waits(&waiting["lock"]);
    ann.release(&mine);
    eve.granted();
}

#[test]
fn a_write_that_becomes_a_read_lets_readers_in() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    bob.queue("read a");
    assert_eq!(ann.convert(&held, "read", 0)["type"], "converted");
    bob.granted();
}

#[test]
fn an_update_lock_becomes_a_write_without_a_deadlock() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("update a");
    assert_error(&bob.lock("update a", 0), "locked");
    let reading = bob.hold("read a");
    assert_eq!(ann.convert(&held, "write", "forever")["type"], "queued");
    bob.release(&reading);
    ann.next_of("converted");
}

#[test]
fn some_paths_of_a_lock_are_converted() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("read a, read b");
    let to = json!({ "type": "convert", "lock": held.lock, "resources": resources("write b"), "wait": 0 });
    assert_eq!(ann.ask(to)["type"], "converted");
    bob.hold("read a");
    assert_error(&bob.lock("read b", 0), "locked");
}

#[test]
fn a_conversion_that_is_not_waited_for_changes_nothing() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    let refusal = ann.convert(&mine, "write", 0);
    assert_error(&refusal, "locked");
    assert_eq!(refusal["blockers"][0]["name"], "bob", "{refusal}");
    let refusal = match ann.convert(&mine, "write", 100) {
        queued if queued["type"] == "queued" => ann.next(),
        other => panic!("{other}"),
    };
    assert_error(&refusal, "timeout");
    bob.release(&other);
    bob.hold("read a");
}

#[test]
fn a_waiting_conversion_can_be_cancelled_and_the_lock_is_kept() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let mine = ann.hold("read a");
    bob.hold("read a");
    assert_eq!(ann.convert(&mine, "write", "forever")["type"], "queued");
    assert_error(&ann.convert(&mine, "write", "forever"), "already_converting");
    let answer = ann.ask(json!({ "type": "cancel", "lock": mine.lock }));
    assert_eq!((&answer["type"], &answer["held"]), (&json!("cancelled"), &json!(true)), "{answer}");
    assert_error(&bob.lock("write a", 0), "locked");
    ann.release(&mine);
}

#[test]
fn only_what_is_held_can_be_converted() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let held = ann.hold("write a");
    let to = json!({ "type": "convert", "lock": held.lock, "resources": resources("read b") });
    assert_error(&ann.ask(to), "no_such_resource");
    let queued = bob.queue("write a");
    let to = json!({ "type": "convert", "lock": queued["lock"], "mode": "read" });
    assert_error(&bob.ask(to), "not_granted");
}

#[test]
fn a_conversion_needs_one_goal() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let held = ann.hold("write a");
    assert_error(&ann.ask(json!({ "type": "convert", "lock": held.lock })), "bad_message");
    let both =
        json!({ "type": "convert", "lock": held.lock, "mode": "read", "resources": resources("read a") });
    assert_error(&ann.ask(both), "bad_message");
    assert_error(&ann.convert(&held, "owner", 0), "bad_mode");
    assert_error(&ann.convert(&held, "list", 0), "bad_mode");
}

// Deadlocks.

#[test]
fn a_wait_that_would_never_end_is_refused_with_the_cycle() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (a, b) = (ann.hold("write a"), bob.hold("write b"));
    ann.queue("write b");
    let refusal = bob.lock("write a", "forever");
    assert_error(&refusal, "deadlock");
    let cycle = refusal["cycle"].as_array().unwrap();
    let sessions: Vec<_> = cycle.iter().map(|step| step["session"].as_str().unwrap()).collect();
    assert_eq!(sessions.len(), 2, "{refusal}");
    assert!(sessions.contains(&ann.session.as_str()) && sessions.contains(&bob.session.as_str()));
    let step = cycle.iter().find(|step| step["name"] == "bob").unwrap();
    assert_eq!(step["wants"], json!({ "path": ["a"], "mode": "write" }));
    assert_eq!((&step["holder"], &step["holder_name"]), (&json!(ann.session), &json!("ann")));
    assert_eq!((&step["lock"], &step["has"]["path"]), (&json!(a.lock), &json!(["a"])));
    let step = cycle.iter().find(|step| step["name"] == "ann").unwrap();
    assert_eq!((&step["lock"], &step["wants"]["path"]), (&json!(b.lock), &json!(["b"])));
    bob.release(&b);
    ann.granted();
}

#[test]
fn a_ring_of_three_is_a_deadlock_too() {
    let server = Server::start(&[]);
    let names = ["ann", "bob", "eve"];
    let [mut ann, mut bob, mut eve] = names.map(|name| Peer::open(&server, name));
    ann.hold("write a");
    bob.hold("write b");
    eve.hold("write c");
    ann.queue("write b");
    bob.queue("write c");
    let refusal = eve.lock("write a", "forever");
    assert_error(&refusal, "deadlock");
    let mut cycle: Vec<_> =
        refusal["cycle"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
    cycle.sort_unstable();
    assert_eq!(cycle, names);
}

#[test]
fn two_readers_that_both_want_to_write_are_a_deadlock() {
    let server = Server::start(&[]);
    let (mut ann, mut bob) = (Peer::open(&server, "ann"), Peer::open(&server, "bob"));
    let (mine, other) = (ann.hold("read a"), bob.hold("read a"));
    assert_eq!(ann.convert(&mine, "write", "forever")["type"], "queued");
    let refusal = bob.convert(&other, "write", "forever");
    assert_error(&refusal, "deadlock");
    assert_eq!(refusal["lock"], other.lock);
    bob.release(&other);
    ann.next_of("converted");
}

// Mistakes.

/// Sends something wrong, and checks that the connection takes a right message afterwards.
#[track_caller]
fn check_mistake(peer: &mut Peer, text: &str, id: Option<u64>, code: &str, part: &str) {
    peer.send_text(text);
    let answer = peer.next();
    assert_error(&answer, code);
    assert_eq!(answer["id"].as_u64(), id, "{text}: {answer}");
    assert!(answer["message"].as_str().unwrap().contains(part), "{text}: {answer}");
    let held = peer.hold("write still/usable");
    peer.release(&held);
}

#[test]
fn a_message_that_is_none_is_explained_and_the_connection_stays() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let mut check = |text: &str, id, part| check_mistake(&mut ann, text, id, "bad_message", part);
    check("", None, "JSON object");
    check("lock", None, "JSON object");
    check("[1,2]", None, "JSON object");
    check("{", None, "not a message");
    check(r#"{"id":1}{"id":2}"#, None, "trailing");
    check("{}", None, "id");
    check(r#"{"type":"lock"}"#, None, "id");
    check(r#"{"type":"lock","id":-1}"#, None, "id");
    check(r#"{"type":"lock","id":"5"}"#, None, "`id` must be a whole number from 0");
    check(r#"{"id":5}"#, Some(5), "type is missing");
    check(r#"{"type":"lokc","id":5}"#, Some(5), "lokc");
    check(r#"{"type":7,"id":5}"#, Some(5), "string");
    check(r#"{"type":"lock","id":5}"#, Some(5), "resources is missing");
    check(r#"{"type":"lock","id":5,"resources":{}}"#, Some(5), "`resources` must be an array");
    check(r#"{"type":"lock","id":5,"resource":[]}"#, Some(5), "unknown field");
    check(r#"{"type":"lock","id":5,"resources":[{"path":"a"}]}"#, Some(5), "mode");
    check(r#"{"type":"lock","id":5,"resources":[{"mode":"read"}]}"#, Some(5), "path");
    check(r#"{"type":"lock","id":5,"resources":[{"path":1,"mode":"read"}]}"#, Some(5), "a path");
    check(r#"{"type":"lock","id":5,"resources":[{"path":"a//b","mode":"read"}]}"#, Some(5), "empty segment");
    check(r#"{"type":"lock","id":5,"resources":[{"path":"a%zz","mode":"read"}]}"#, Some(5), "%25");
    check(
        r#"{"type":"lock","id":5,"resources":[{"path":"a","mode":"read","deep":1}]}"#,
        Some(5),
        "unknown field",
    );
    check(r#"{"type":"lock","id":5,"resources":[],"wait":-1}"#, Some(5), "a wait");
    check(r#"{"type":"lock","id":5,"resources":[],"wait":"never"}"#, Some(5), "a wait");
    check(r#"{"type":"release","id":5}"#, Some(5), "lock is missing");
    check(r#"{"type":"release","id":5,"lock":"x"}"#, Some(5), "`lock` must be a whole number");
    check(r#"{"type":"convert","id":5,"mode":"read"}"#, Some(5), "lock is missing");
    check(&"[".repeat(100_000), None, "JSON object");
    check(&format!(r#"{{"id":5,"type":{}"#, "[".repeat(100_000)), None, "not a message");
}

#[test]
fn resources_that_cannot_be_are_refused_with_a_code_of_their_own() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let mut check = |resources, code| {
        let text = format!(r#"{{"type":"lock","id":5,"resources":{resources}}}"#);
        check_mistake(&mut ann, &text, Some(5), code, "");
    };
    check("[]", "no_resources");
    check(r#"[{"path":"a","mode":"x"}]"#, "bad_mode");
    check(r#"[{"path":"a","mode":""}]"#, "bad_mode");
    check(r#"[{"path":"a","mode":"read","depth":0}]"#, "bad_depth");
}

#[test]
fn a_binary_frame_with_a_message_is_as_good_as_text() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let message = json!({ "type": "lock", "id": 12, "resources": resources("write a") });
    ann.send_binary(message.to_string().as_bytes());
    assert_eq!(ann.next_of("granted")["id"], 12);
    ann.send_binary(b"\xff\xfe");
    assert_error(&ann.next(), "bad_message");
    ann.hold("write b");
}

#[test]
fn a_text_frame_that_is_not_text_is_no_message() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    ann.send_frame(b"{\"id\":7,\"type\":\"\xff\"}", Data::Text, true);
    assert_error(&ann.next(), "bad_message");
    let path = b"{\"id\":7,\"type\":\"lock\",\"resources\":[{\"path\":[\"\xff\"],\"mode\":\"read\"}]}";
    ann.send_frame(path, Data::Text, true);
    assert_error(&ann.next(), "bad_message");
    ann.hold("write a");
}

#[test]
fn a_message_may_come_in_fragments_with_a_ping_in_between() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let message = json!({ "type": "lock", "id": 12, "resources": resources("write a") }).to_string();
    let (one, two) = message.as_bytes().split_at(20);
    ann.send_frame(one, Data::Text, false);
    ann.send_frame(b"", Data::Continue, false);
    ann.ping(b"are you there");
    assert_eq!(ann.pong(), b"are you there");
    ann.send_frame(two, Data::Continue, true);
    assert_eq!(ann.next_of("granted")["id"], 12);
}

#[test]
fn a_thousand_requests_at_once_are_answered_in_order() {
    let server = Server::start(&[]);
    let mut ann = Peer::open(&server, "ann");
    let ids: Vec<u64> = (0..1000)
        .map(|n| ann.send(json!({ "type": "lock", "resources": resources(&format!("write a/{n}")) })))
        .collect();
    for id in ids {
        assert_eq!(ann.next_of("granted")["id"], id);
    }
}

/// 2026-01-01T00:00:00.000Z
fn is_moment(value: &Value) -> bool {
    let text = value.as_str().unwrap_or_default();
    text.len() == 24 && text.starts_with("20") && text.as_bytes()[10] == b'T' && text.ends_with('Z')
}
