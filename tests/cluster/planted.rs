//! Faults planted in real nodes, one at a time: the checks of the register storm notice each of them, and find nothing when
//! the same schedule is played without. They are tests only where nodes are built with the feature `planted`, and always compiled.
//!
//! | planted fault | what is omitted | caught by |
//! | --- | --- | --- |
//! | `no-fence` | the epoch in the guard of an append | registers: the next owner misses an acknowledged write |
//! | `answer-before-commit` | sending a commit before it is acknowledged | registers: an acknowledged write is gone |
//! | `no-self-stop` | the end of a fresh ownership | registers: a read misses an acknowledged write |
//! | | | locks: two clients hold one at a time |
//! | `early-ack` | draining before a guard is acknowledged | registers: an update under a lease undoes a write |
//! | `lost-guard` | keeping an acknowledged guard | registers: an update under a lease undoes a write |
//! | `follower-for-owner` | leaving reads without a lag to the owner | registers: a read misses an acknowledged write |
//!
//! Each schedule brings about the moment at which nothing but the omitted step protects a client.

use crate::{
    faults::Faults,
    followers::await_follower,
    linear::Action::{Get, Insert, Replace},
    planted_stage::Stage,
};
use lockwood_planted::Fault::{self, *};
use lockwood_test_support::Fault::{HoldRequests, None as Nothing, Refuse};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{sync::Notify, time::timeout};

/// What the checks say of a history of registers that is not linearizable, and of a lock that two clients held.
const UNEXPLAINED: &str = "cannot be explained";
const SHARED: &str = "held it";
/// A fault is to be noticed in one of so many attempts.
const ATTEMPTS_MAX: u64 = 3;
/// How long a client under a lease lets another one try to write.
const INTRUSION: Duration = Duration::from_millis(300);

/// Plays a schedule with a fault until the checks say this, and as often without.
fn is_noticed(fault: Fault, told: &str, shards: usize, play: fn(&mut Stage)) {
    let first = Faults::from_environment("planted", 1).seed;
    for seed in first..first + ATTEMPTS_MAX {
        let (wrong, answers) = played(None, shards, seed, play).judged();
        assert_eq!(wrong, Vec::<String>::new(), "seed {seed}, without a fault");
        assert!(answers > 2, "seed {seed}: the clients came to nothing");
        let begun = Instant::now();
        let stage = played(Some(fault), shards, seed, play);
        let (wrong, _) = stage.judged();
        let (name, passed, wrong) = (fault.name(), begun.elapsed(), wrong.join("\n"));
        println!("{name} with seed {seed} after {passed:.1?}: {wrong}");
        if wrong.contains(told) {
            return;
        }
    }
    panic!("{} is not noticed with the seeds from {first} on", fault.name());
}

fn played(fault: Option<Fault>, shards: usize, seed: u64, play: fn(&mut Stage)) -> Stage {
    let mut stage = Stage::start(fault, shards, seed);
    play(&mut stage);
    stage
}

#[cfg_attr(feature = "planted", test)]
fn an_append_of_a_previous_owner_is_noticed() {
    is_noticed(NoFence, UNEXPLAINED, 1, |stage| {
        let (hot, first, second) = (stage.below(40), stage.client(1), stage.client(2));
        stage.wait(first.act(hot, Insert(1)));
        stage.proxies[0].set(HoldRequests);
        let writing = stage.spawn(async move { first.act(hot, Replace(2)).await });
        stage.await_takeover();
        stage.wait(second.act(hot, Get));
        // Before the append is given up.
        stage.proxies[0].set(Nothing);
        stage.wait(writing).unwrap();
        stage.wait(second.act(hot, Get));
    });
}

#[cfg_attr(feature = "planted", test)]
fn an_answer_before_the_commit_is_noticed() {
    is_noticed(AnswerBeforeCommit, UNEXPLAINED, 1, |stage| {
        let (hot, first, second) = (stage.below(40), stage.client(1), stage.client(2));
        for value in 1..=3 {
            stage.wait(first.act(hot, Replace(value)));
        }
        // What PostgreSQL does not have yet gets there within this time.
        stage.pause(500, 700);
        stage.proxies[0].set(HoldRequests);
        let writing = stage.spawn(async move { first.act(hot, Replace(4)).await });
        stage.pause(200, 400);
        stage.spread.nodes.kill(1);
        stage.proxies[0].set(Refuse);
        stage.wait(writing).unwrap();
        stage.await_takeover();
        stage.wait(second.act(hot, Get));
    });
}

#[cfg_attr(feature = "planted", test)]
fn a_read_of_a_stale_owner_is_noticed() {
    is_noticed(NoSelfStop, UNEXPLAINED, 1, |stage| {
        let (hot, first, second) = (stage.below(40), stage.client(1), stage.client(2));
        stage.wait(first.act(hot, Insert(1)));
        stage.proxies[0].set(HoldRequests);
        stage.await_takeover();
        stage.wait(second.act(hot, Replace(2)));
        let reading = stage.spawn(async move { first.act(hot, Get).await });
        stage.pause(300, 600);
        stage.proxies[0].set(Nothing);
        stage.wait(reading).unwrap();
    });
}

#[cfg_attr(feature = "planted", test)]
fn a_grant_of_a_stale_owner_is_noticed() {
    is_noticed(NoSelfStop, SHARED, 1, |stage| {
        let (hot, first, second) = (stage.below(40), stage.client(1), stage.client(2));
        stage.wait(first.act(hot, Insert(1)));
        let session = stage.wait(first.session());
        // As long as it has this one, no other lock of it needs PostgreSQL.
        let _kept = stage.wait(first.lock(&session, hot + 1)).unwrap();
        stage.proxies[0].set(HoldRequests);
        stage.await_takeover();
        let counted = Arc::new(Notify::new());
        let seen = Arc::clone(&counted);
        let holding = stage.spawn(async move { first.hold(&session, hot, seen.notified()).await });
        stage.wait(second.count(hot, async {}));
        counted.notify_one();
        // Without the fault it has nothing to give back.
        let _ = stage.wait(async { timeout(INTRUSION, holding).await });
        stage.proxies[0].set(Nothing);
        stage.wait(second.act(hot, Get));
    });
}

#[cfg_attr(feature = "planted", test)]
fn an_early_acknowledgement_is_noticed() {
    is_noticed(EarlyAck, UNEXPLAINED, 2, |stage| {
        stage.wait(stage.client(1).act(100, Insert(1)));
        let (hot, member, home) = stage.remote_document();
        let (writer, locker) = (stage.client(member), stage.client(home));
        stage.wait(writer.act(hot, Insert(10)));
        stage.wait(locker.count(hot, async {}));
        stage.proxies[member - 1].set(HoldRequests);
        let written = Arc::new(Notify::new());
        let seen = Arc::clone(&written);
        let writing = stage.spawn(async move {
            writer.act(hot, Replace(20)).await;
            written.notify_one();
        });
        stage.pause(100, 200);
        let counting = stage.spawn(async move { locker.count(hot, seen.notified()).await });
        // Less than the ownership of the member lasts.
        stage.pause(600, 900);
        stage.proxies[member - 1].set(Nothing);
        stage.wait(writing).unwrap();
        stage.wait(counting).unwrap();
    });
}

#[cfg_attr(feature = "planted", test)]
fn a_lost_guard_is_noticed() {
    is_noticed(LostGuard, UNEXPLAINED, 2, |stage| {
        stage.wait(stage.client(1).act(100, Insert(1)));
        let (hot, member, home) = stage.remote_document();
        let (writer, locker) = (stage.client(member), stage.client(home));
        stage.wait(writer.act(hot, Insert(10)));
        let done = Arc::new(Notify::new());
        let intrusion = {
            let done = Arc::clone(&done);
            async move {
                let writing = async move {
                    writer.act(hot, Replace(20)).await;
                    done.notify_one();
                };
                // Without the fault it waits for the lease.
                let mut writing = tokio::spawn(writing);
                let _ = timeout(INTRUSION, &mut writing).await;
            }
        };
        stage.wait(locker.count(hot, intrusion));
        stage.wait(done.notified());
    });
}

#[cfg_attr(feature = "planted", test)]
fn a_copy_that_answers_for_the_owner_is_noticed() {
    is_noticed(FollowerForOwner, UNEXPLAINED, 1, |stage| {
        let (hot, first, second) = (stage.below(40), stage.client(1), stage.client(2));
        stage.wait(first.act(hot, Insert(1)));
        await_follower(&stage.spread.nodes, 2);
        // From then on it knows where the namespace is.
        stage.wait(second.act(hot, Get));
        stage.proxies[1].set(HoldRequests);
        stage.wait(first.act(hot, Replace(2)));
        stage.wait(second.act(hot, Get));
        stage.proxies[1].set(Nothing);
    });
}
