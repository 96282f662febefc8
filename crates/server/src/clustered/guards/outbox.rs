//! What waits to be delivered to another shard: for each namespace in the order in which it was said, within a limit. What
//! one namespace has too much of is dropped, and its two sides join anew. Knows nothing of calls, nor of who is reachable.
//!
//! ```text
//!   home, member ──post──► lanes, one for each namespace and side ──take──► calls of limited size
//!                              │ too much waits, or the receiver refuses
//!                              ▼
//!                          lost: nothing is kept until it is time to join anew
//! ```

use lockwood_router::{
    ShardNo,
    guards::{HomeContent, HomeMessage, MemberMessage, Stream},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Notify, oneshot};

/// About how many bytes wait for one shard at the most. A snapshot counts little, as its guards are those of the home.
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How soon a namespace whose messages were lost joins anew, and how long that takes at the most if it fails again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// About how many bytes a message has besides guards.
const MESSAGE_BYTES: usize = 128;

/// The queues of a shard's tenure, one for each shard that it tells something.
pub(super) struct Outbox {
    queues: Mutex<BTreeMap<ShardNo, Arc<Queue>>>,
    /// Rung when there is another queue.
    pub(super) grown: Notify,
}

/// One shard's messages to another one.
#[derive(Default)]
pub(super) struct Queue {
    lanes: Mutex<Lanes>,
    /// Rung when there is something to take.
    ready: Notify,
}

/// The messages of one namespace to one of its sides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneName {
    pub(super) namespace: Arc<str>,
    pub(super) to: Side,
}

/// Which side of a namespace is told something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Side {
    Member,
    Home,
}

/// What is in a lane.
#[derive(Debug)]
pub(super) enum Letter {
    ToMember(HomeMessage),
    ToHome(MemberMessage),
    /// Everything before it in its lane has arrived.
    Mark(oneshot::Sender<()>),
}

/// Between two calls these hold:
/// - `turns` names each lane that is listed once, among them all with letters;
/// - `lost` names the lanes that are lost, which have no letters;
/// - `bytes` is the weight of all letters.
#[derive(Default)]
struct Lanes {
    by_name: HashMap<LaneName, Lane>,
    /// Those that may have letters, the next one first.
    turns: VecDeque<LaneName>,
    /// When lost ones are to join anew.
    lost: BTreeSet<(Instant, LaneName)>,
    bytes: usize,
}

#[derive(Default)]
struct Lane {
    letters: VecDeque<Letter>,
    is_listed: bool,
    /// The latest membership of the letters to a member. Joins are numbered by each owner of the shard anew, so a membership is
    /// compared as a whole.
    stream: Option<Stream>,
    /// When it is to join anew, if it is lost.
    lost_until: Option<Instant>,
    /// How long that took when it was lost last, if nothing has arrived since.
    pause: Duration,
    /// What they wait for was dropped, so they wait for the next snapshot.
    marks: Vec<oneshot::Sender<()>>,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { queues: Mutex::default(), grown: Notify::new() }
    }

    pub(super) fn post(&self, shard: ShardNo, name: LaneName, letter: Letter) {
        let queue = {
            let mut queues = self.queues.lock();
            let queue = queues.entry(shard).or_insert_with(|| {
                self.grown.notify_one();
                Arc::default()
            });
            Arc::clone(queue)
        };
        queue.post(name, letter);
    }

    pub(super) fn queues(&self) -> Vec<(ShardNo, Arc<Queue>)> {
        self.queues.lock().iter().map(|(shard, queue)| (*shard, Arc::clone(queue))).collect()
    }
}

impl Letter {
    /// The membership that it belongs to.
    pub(super) fn stream(&self) -> Option<Stream> {
        match self {
            Letter::ToMember(message) => Some(message.stream),
            Letter::ToHome(message) => Some(message.stream),
            Letter::Mark(_) => None,
        }
    }

    pub(super) fn is_snapshot(&self) -> bool {
        matches!(self, Letter::ToMember(HomeMessage { content: HomeContent::Snapshot { .. }, .. }))
    }

    fn weight(&self) -> usize {
        match self {
            Letter::ToMember(HomeMessage { content: HomeContent::Guard(guard), .. }) => {
                MESSAGE_BYTES + guard.weight()
            }
            _ => MESSAGE_BYTES,
        }
    }
}

impl Queue {
    fn post(&self, name: LaneName, letter: Letter) {
        self.lanes.lock().post(name, letter, Instant::now());
        self.ready.notify_one();
    }

    /// Waits until there is something to take, or to join anew.
    pub(super) async fn ready(&self) {
        loop {
            let next = {
                let lanes = self.lanes.lock();
                if !lanes.turns.is_empty() {
                    return;
                }
                lanes.lost.first().map(|(at, _)| *at)
            };
            match next {
                Some(at) if at <= Instant::now() => return,
                Some(at) => drop(tokio::time::timeout_at(at.into(), self.ready.notified()).await),
                None => self.ready.notified().await,
            }
        }
    }

    /// Some of the lanes that are to join anew now. From here on their letters are kept again.
    pub(super) fn take_lost(&self, len_max: usize) -> Vec<LaneName> {
        self.lanes.lock().take_lost(Instant::now(), len_max)
    }

    /// The next letter.
    pub(super) fn take(&self) -> Option<(LaneName, Letter)> {
        self.lanes.lock().take()
    }

    /// Gives back what was taken last.
    pub(super) fn put_back(&self, name: &LaneName, letter: Letter) {
        self.lanes.lock().put_back(name, letter);
    }

    /// Another lane is next.
    pub(super) fn next_turn(&self) {
        let turns = &mut self.lanes.lock().turns;
        if !turns.is_empty() {
            turns.rotate_left(1);
        }
    }

    /// What a mark waits for was ignored by the member, which has joined anew: the mark waits for the next snapshot.
    pub(super) fn keep_mark(&self, name: LaneName, mark: oneshot::Sender<()>) {
        self.lanes.lock().by_name.entry(name).or_default().keep_mark(mark);
    }

    /// Something of a lane has arrived.
    pub(super) fn arrived(&self, name: &LaneName, is_snapshot: bool) {
        self.lanes.lock().arrived(name, is_snapshot);
    }

    /// A lane is lost: the receiver does not take in what it is told.
    pub(super) fn lose(&self, name: LaneName) {
        self.lanes.lock().lose(name, Instant::now());
        self.ready.notify_one();
    }
}

impl Lanes {
    fn post(&mut self, name: LaneName, letter: Letter, now: Instant) {
        let lane = self.by_name.entry(name.clone()).or_default();
        let letter = match letter {
            Letter::Mark(mark) if lane.lost_until.is_some() => return lane.keep_mark(mark),
            _ if lane.lost_until.is_some() => return,
            letter => letter,
        };
        let stream = letter.stream().filter(|_| name.to == Side::Member);
        if stream > lane.stream {
            // A member that has joined again ignores what came before.
            if lane.stream.is_some() {
                self.bytes -= lane.drop_letters();
            }
            lane.stream = stream;
        }
        let weight = letter.weight();
        if self.bytes + weight > WAITING_BYTES_MAX {
            tracing::warn!(namespace = %name.namespace, "too much waits to be told about guards; the shard joins anew");
            if let Letter::Mark(mark) = letter {
                lane.keep_mark(mark);
            }
            return self.lose(name, now);
        }
        self.bytes += weight;
        lane.letters.push_back(letter);
        if !std::mem::replace(&mut lane.is_listed, true) {
            self.turns.push_back(name);
        }
    }

    fn take(&mut self) -> Option<(LaneName, Letter)> {
        loop {
            let name = self.turns.front()?.clone();
            let lane = self.by_name.get_mut(&name).expect("a listed lane is known");
            if let Some(letter) = lane.letters.pop_front() {
                self.bytes -= letter.weight();
                return Some((name, letter));
            }
            lane.is_listed = false;
            self.turns.pop_front();
            self.drop_if_idle(&name);
        }
    }

    /// The lane is listed still, as only an empty one is not.
    fn put_back(&mut self, name: &LaneName, letter: Letter) {
        let lane = self.by_name.get_mut(name).expect("a listed lane is known");
        let is_earlier = |stream: Stream| name.to == Side::Member && Some(stream) < lane.stream;
        if lane.lost_until.is_none() && !letter.stream().is_some_and(is_earlier) {
            self.bytes += letter.weight();
            lane.letters.push_front(letter);
        }
    }

    fn take_lost(&mut self, now: Instant, len_max: usize) -> Vec<LaneName> {
        let mut taken = Vec::new();
        while taken.len() < len_max {
            if self.lost.first().is_none_or(|(at, _)| *at > now) {
                break;
            }
            let Some((_, name)) = self.lost.pop_first() else { break };
            self.by_name.get_mut(&name).expect("a lost lane is known").lost_until = None;
            taken.push(name);
        }
        taken
    }

    fn arrived(&mut self, name: &LaneName, is_snapshot: bool) {
        let Some(lane) = self.by_name.get_mut(name) else { return };
        lane.pause = Duration::ZERO;
        if is_snapshot {
            for mark in lane.marks.drain(..) {
                let _ = mark.send(());
            }
        }
        self.drop_if_idle(name);
    }

    fn lose(&mut self, name: LaneName, now: Instant) {
        let lane = self.by_name.entry(name.clone()).or_default();
        self.bytes -= lane.drop_letters();
        if lane.lost_until.is_none() {
            lane.pause = (lane.pause * 2).clamp(PAUSE, PAUSE_MAX);
            let until = now + lane.pause;
            lane.lost_until = Some(until);
            self.lost.insert((until, name));
        }
    }

    fn drop_if_idle(&mut self, name: &LaneName) {
        if self.by_name.get(name).is_some_and(Lane::is_idle) {
            self.by_name.remove(name);
        }
    }
}

impl Lane {
    /// Drops all letters, and says how much they weighed.
    fn drop_letters(&mut self) -> usize {
        let mut weight = 0;
        for letter in std::mem::take(&mut self.letters) {
            weight += letter.weight();
            if let Letter::Mark(mark) = letter {
                self.keep_mark(mark);
            }
        }
        weight
    }

    fn keep_mark(&mut self, mark: oneshot::Sender<()>) {
        self.marks.retain(|mark| !mark.is_closed());
        self.marks.push(mark);
    }

    fn is_idle(&self) -> bool {
        !self.is_listed
            && self.letters.is_empty()
            && self.lost_until.is_none()
            && self.pause == Duration::ZERO
            && self.marks.iter().all(oneshot::Sender::is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::{Depth, LockId, Mode, OwnerId, Resource, Token};
    use lockwood_router::{
        ShardEpoch,
        guards::{
            DefinitionsNo, Guard, GuardId, GuardNo, GuardState, HomeEpoch, JoinNo, MapEpoch, Phase,
            SequenceNo,
        },
    };

    fn name(namespace: &str) -> LaneName {
        LaneName { namespace: namespace.into(), to: Side::Member }
    }

    fn letter(join: u64, sequence: u64, content: HomeContent) -> Letter {
        letter_to(ShardEpoch(1), join, sequence, content)
    }

    fn letter_to(shard_epoch: ShardEpoch, join: u64, sequence: u64, content: HomeContent) -> Letter {
        let stream = Stream { home: HomeEpoch(1), shard: ShardNo(2), shard_epoch, join: JoinNo(join) };
        Letter::ToMember(HomeMessage { stream, sequence: SequenceNo(sequence), content })
    }

    fn lift(sequence: u64) -> Letter {
        letter(1, sequence, HomeContent::Lift(GuardNo(sequence)))
    }

    fn snapshot(join: u64) -> Letter {
        letter(join, 0, empty_snapshot())
    }

    fn empty_snapshot() -> HomeContent {
        let (phase, map, definitions) = (Phase::Serving, MapEpoch(1), DefinitionsNo(0));
        HomeContent::Snapshot { phase, map, definitions, guards: Vec::new() }
    }

    /// A guard of which a few are too much.
    fn large(sequence: u64) -> Letter {
        let path = format!("user/{}", "x".repeat(WAITING_BYTES_MAX / 4)).parse().unwrap();
        let guard = Guard {
            id: GuardId { home: HomeEpoch(1), number: GuardNo(sequence) },
            lock: LockId(1),
            owner: OwnerId(1),
            token: Token(1),
            resources: [Resource::new(path, Mode::Write, Depth::SUBTREE)].into(),
            state: GuardState::Pending,
        };
        letter(1, sequence, HomeContent::Guard(guard))
    }

    fn mark() -> (Letter, oneshot::Receiver<()>) {
        let (mark, arrived) = oneshot::channel();
        (Letter::Mark(mark), arrived)
    }

    /// What is taken: the namespaces and numbers of messages, in order.
    fn taken(lanes: &mut Lanes) -> Vec<(String, u64)> {
        let mut taken = Vec::new();
        while let Some((name, letter)) = lanes.take() {
            match letter {
                Letter::ToMember(message) => taken.push((name.namespace.to_string(), message.sequence.0)),
                Letter::Mark(mark) => drop(mark.send(())),
                Letter::ToHome(_) => unreachable!("none was posted"),
            }
        }
        assert_eq!(lanes.bytes, 0);
        taken
    }

    fn expected(list: &[(&str, u64)]) -> Vec<(String, u64)> {
        list.iter().map(|(namespace, sequence)| ((*namespace).to_owned(), *sequence)).collect()
    }

    #[test]
    fn letters_of_a_namespace_keep_their_order() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        for (namespace, sequence) in [("a", 1), ("b", 1), ("a", 2)] {
            lanes.post(name(namespace), lift(sequence), now);
        }
        let (first, letter) = lanes.take().unwrap();
        lanes.put_back(&first, letter);
        assert_eq!(taken(&mut lanes), expected(&[("a", 1), ("a", 2), ("b", 1)]));
        lanes.arrived(&name("a"), false);
        lanes.arrived(&name("b"), false);
        assert!(lanes.by_name.is_empty() && lanes.turns.is_empty());
    }

    #[test]
    fn a_namespace_with_too_much_is_lost_and_no_other_one() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.post(name("b"), lift(1), now);
        for sequence in 1..=9 {
            lanes.post(name("a"), large(sequence), now);
            assert!(lanes.bytes <= WAITING_BYTES_MAX);
        }
        assert_eq!(taken(&mut lanes), expected(&[("b", 1)]));
        assert_eq!(lanes.take_lost(now, 9), []);
        assert_eq!(lanes.take_lost(now + PAUSE, 9), [name("a")]);
        lanes.post(name("a"), snapshot(2), now);
        assert_eq!(taken(&mut lanes), expected(&[("a", 0)]));
    }

    #[test]
    fn a_lane_that_is_lost_again_waits_longer_until_something_arrives() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let until = |lanes: &Lanes| lanes.lost.first().unwrap().0 - now;
        let mut pause = PAUSE;
        for _ in 0..20 {
            lanes.lose(name("a"), now);
            assert_eq!(until(&lanes), pause);
            assert_eq!(lanes.take_lost(now + pause, 9).len(), 1);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        lanes.arrived(&name("a"), true);
        lanes.lose(name("a"), now);
        assert_eq!(until(&lanes), PAUSE);
    }

    #[test]
    fn a_newer_membership_takes_the_place_of_what_waits() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let (waits, mut arrived) = mark();
        for letter in [snapshot(1), lift(1), waits, snapshot(2)] {
            lanes.post(name("a"), letter, now);
        }
        assert_eq!(taken(&mut lanes), expected(&[("a", 0)]));
        assert!(arrived.try_recv().is_err(), "the snapshot has to arrive");
        lanes.arrived(&name("a"), true);
        assert!(arrived.try_recv().is_ok());
    }

    #[test]
    fn a_letter_to_a_new_owner_is_kept_although_its_joins_begin_anew() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        lanes.post(name("a"), snapshot(5), now);
        lanes.post(name("a"), letter_to(ShardEpoch(2), 1, 7, empty_snapshot()), now);
        let (first, letter) = lanes.take().unwrap();
        lanes.put_back(&first, letter);
        assert_eq!(taken(&mut lanes), expected(&[("a", 7)]));
    }

    #[test]
    fn a_mark_does_not_wait_for_what_comes_after_it() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let (before, mut arrived) = mark();
        for letter in [before, lift(7)] {
            lanes.post(name("a"), letter, now);
        }
        assert_eq!(taken(&mut lanes), expected(&[("a", 7)]));
        assert!(arrived.try_recv().is_ok());
    }

    #[test]
    fn marks_of_a_lost_lane_wait_for_the_next_snapshot() {
        let (mut lanes, now) = (Lanes::default(), Instant::now());
        let ((before, mut first), (after, mut second)) = (mark(), mark());
        for letter in [lift(1), before] {
            lanes.post(name("a"), letter, now);
        }
        lanes.lose(name("a"), now);
        lanes.post(name("a"), after, now);
        assert_eq!(lanes.take_lost(now + PAUSE, 9).len(), 1);
        lanes.arrived(&name("a"), false);
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        lanes.arrived(&name("a"), true);
        assert!(first.try_recv().is_ok() && second.try_recv().is_ok());
    }

    #[test]
    fn a_mark_whose_message_was_ignored_waits_for_the_next_snapshot() {
        let queue = Queue::default();
        let (kept, mut arrived) = oneshot::channel();
        queue.keep_mark(name("a"), kept);
        queue.arrived(&name("a"), false);
        assert!(arrived.try_recv().is_err());
        queue.arrived(&name("a"), true);
        assert!(arrived.try_recv().is_ok());
        assert!(queue.lanes.lock().by_name.is_empty());
    }
}
