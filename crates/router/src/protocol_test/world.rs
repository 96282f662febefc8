//! Two shards, one key and those who use it: which steps there are, and what each of them does. Every step is
//! one thing that a node does under its lock, so between any two of them others may act.

use super::{
    guards::Guards,
    history::{Doc, Op, Record, Said, Truth, admitted, written},
};

/// The shard that has the key at first.
pub(super) const P: usize = 0;
/// The shard that it goes to.
pub(super) const C: usize = 1;

/// The maps, by epoch: forth is 0 to 4; back is 0, 1, 2 and 5 to 8; not even begun is 0, 1 and 9.
const PREPARING: u8 = 1;
const RESHARDING: u8 = 2;
const FINISHING: u8 = 3;
const STEADY: u8 = 4;
const BACK_PREPARING: u8 = 5;
const BACK_RESHARDING: u8 = 6;
const BACK_FINISHING: u8 = 7;
const BACK_STEADY: u8 = 8;
const ABORTED: u8 = 9;

pub(super) const THREADS_LEN_MAX: usize = 5;
pub(super) const RECORDS_LEN_MAX: usize = 10;

/// What a map makes of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It serves the key by itself.
    Alone,
    /// It serves the key, and asks the other one for what it does not know.
    Pulls,
    /// It does not serve the key.
    Idle,
}

fn role(node: usize, epoch: u8) -> Role {
    match (epoch, node) {
        (0 | BACK_FINISHING | BACK_STEADY | ABORTED, P) | (FINISHING | STEADY, C) => Role::Alone,
        (RESHARDING, C) | (BACK_RESHARDING, P) => Role::Pulls,
        _ => Role::Idle,
    }
}

/// A shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(super) epoch: u8,
    /// What a crash leaves of it.
    pub(super) epoch_kept: u8,
    pub(super) doc: Option<Doc>,
    /// The transition in which the key became known here, 0 if it did not.
    pub(super) mark: u8,
    pub(super) lease: Option<u8>,
    pub(super) token_last: u8,
    pub(super) position_last: u8,
    /// How many operations have begun here and are not over.
    busy: u8,
    /// The donor's cursor is behind the key.
    copied: bool,
}

/// What happens in a scenario at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum Thread {
    /// A client, one operation after the other.
    Client { ops: &'static [Op], stale: bool, token: Option<u8> },
    /// The donor copies; each copy may arrive again later.
    Copy { twice: bool },
    /// The keeper.
    Keeper(&'static [Work]),
    /// A node loses what it does not keep.
    Crash(usize),
}

/// What the keeper does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Accept(usize, u8),
    /// Waits until the node has said that it stopped.
    Stopped(usize),
    Export(usize),
    Import(usize),
    Purge(usize),
    CopyDone,
    Verify,
    ScanBack,
    InstallBack,
    VerifyBack,
    Clean(usize),
}

/// From the old map to resharding.
pub(super) const START: &[Work] = &[
    Work::Accept(P, PREPARING),
    Work::Stopped(P),
    Work::Accept(C, PREPARING),
    Work::Stopped(C),
    Work::Export(P),
    Work::Import(C),
    Work::Accept(C, RESHARDING),
    Work::Accept(P, RESHARDING),
];

/// The same, with the news in another order.
pub(super) const START_OLD_FIRST: &[Work] = &[
    Work::Accept(C, PREPARING),
    Work::Stopped(C),
    Work::Accept(P, PREPARING),
    Work::Stopped(P),
    Work::Export(P),
    Work::Import(C),
    Work::Accept(P, RESHARDING),
    Work::Accept(C, RESHARDING),
];

/// Back to the old map before anything was served by the new one.
pub(super) const ABORT: &[Work] = &[
    Work::Accept(P, PREPARING),
    Work::Stopped(P),
    Work::Accept(C, PREPARING),
    Work::Export(P),
    Work::Import(C),
    Work::Accept(C, ABORTED),
    Work::Accept(P, ABORTED),
];

/// The same as [`START`], as it would be if every node were told whenever its turn comes.
pub(super) const START_ANYHOW: &[Work] = &[
    Work::Accept(C, PREPARING),
    Work::Export(P),
    Work::Import(C),
    Work::Accept(C, RESHARDING),
    Work::Accept(P, PREPARING),
    Work::Stopped(P),
    Work::Accept(P, RESHARDING),
];

/// From resharding to the new map.
pub(super) const FINISH: &[Work] = &[
    Work::Purge(C),
    Work::CopyDone,
    Work::Verify,
    Work::Accept(C, FINISHING),
    Work::Stopped(C),
    Work::Accept(P, FINISHING),
    Work::Stopped(P),
    Work::Clean(P),
    Work::Accept(C, STEADY),
    Work::Accept(P, STEADY),
];

/// From resharding back to the old functions.
pub(super) const REVERSE: &[Work] = &[
    Work::Accept(C, BACK_PREPARING),
    Work::Stopped(C),
    Work::Accept(P, BACK_PREPARING),
    Work::Stopped(P),
    Work::Export(C),
    Work::Import(P),
    Work::Accept(P, BACK_RESHARDING),
    Work::Accept(C, BACK_RESHARDING),
    Work::ScanBack,
    Work::InstallBack,
    Work::VerifyBack,
    Work::Accept(P, BACK_FINISHING),
    Work::Stopped(P),
    Work::Accept(C, BACK_FINISHING),
    Work::Stopped(C),
    Work::Clean(C),
    Work::Accept(P, BACK_STEADY),
    Work::Accept(C, BACK_STEADY),
];

/// Where a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Ready,
    /// A client was sent on by the old shard.
    Redirected,
    /// Begun at a node that serves the key alone.
    Apply(usize),
    /// Begun at the owner, which asks the donor.
    Pull(usize),
    /// The donor has answered.
    Decide(usize, Pulled),
    /// As the original deletes: at the old shard first, then here.
    DeleteHere(Option<Doc>),
    /// The copy is on its way.
    Install(Option<Doc>),
    Cursor,
    Over,
}

/// What a donor answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pulled {
    Frozen(Option<Doc>),
    /// It never knew the key: the owner's copy of before is right.
    Keep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Progress {
    at: At,
    /// Which of its operations, or works, is next.
    next: u8,
    token: Option<u8>,
}

/// Everything there is at one moment, and what clients were told until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) nodes: [Node; 2],
    /// A copy that arrives late, or never.
    late: Option<Doc>,
    exported: (Option<u8>, u8, u8),
    back: Option<Option<Doc>>,
    progress: [Progress; THREADS_LEN_MAX],
    records: [Record; RECORDS_LEN_MAX],
    records_len: u8,
}

/// What is the same in all schedules of a scenario.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) guards: Guards,
    pub(super) nodes: [Node; 2],
    pub(super) threads: Vec<Thread>,
}

impl Node {
    pub(super) fn new(epoch: u8) -> Node {
        let (lease, token_last) = (None, 0);
        Node {
            epoch,
            epoch_kept: epoch,
            doc: None,
            mark: 0,
            lease,
            token_last,
            position_last: 0,
            busy: 0,
            copied: false,
        }
    }

    fn takes(&mut self, epoch: u8, guards: &Guards) {
        self.epoch = self.epoch.max(epoch);
        if guards.durable_map {
            self.epoch_kept = self.epoch;
        }
        if matches!(self.epoch, STEADY | BACK_STEADY) {
            self.mark = 0;
        }
    }

    /// Whether the key is known here: in the transition, or because the transition is past asking.
    fn knows(&self, transition: u8, guards: &Guards) -> bool {
        let alone = matches!(
            (transition, self.epoch),
            (RESHARDING, FINISHING | STEADY) | (BACK_RESHARDING, BACK_FINISHING | BACK_STEADY)
        );
        if alone && guards.map_of_now {
            return true;
        }
        match (guards.tombstones, guards.marks_only) {
            (false, _) => self.doc.is_some(),
            (true, true) => self.mark == transition,
            (true, false) => self.mark == transition || self.doc.is_some(),
        }
    }

    fn install(&mut self, doc: Option<Doc>, transition: u8) {
        (self.doc, self.mark) = (doc, transition);
    }

    /// What `record` does here, and is told.
    fn apply(&mut self, record: &Record) -> Said {
        if let Err(refused) = admitted(record.op, record.token, self.lease) {
            return refused;
        }
        match record.op {
            Op::Lock => {
                self.token_last += 1;
                self.lease = Some(self.token_last);
                Said::Granted(self.token_last)
            }
            Op::Unlock => {
                self.lease = None;
                Said::Released
            }
            Op::Select => Said::Doc(self.doc),
            _ => self.write(record),
        }
    }

    fn write(&mut self, record: &Record) -> Said {
        let value = match written(record.op, record.tag, self.doc.map(|doc| doc.value)) {
            Ok(value) => value,
            Err(refused) => return refused,
        };
        let before = self.doc;
        if value.is_some() || before.is_some() {
            self.position_last += 1;
        }
        self.doc = value.map(|value| Doc { value, position: self.position_last });
        Said::Doc(if record.op == Op::Delete { before } else { self.doc })
    }
}

impl World {
    pub(super) fn new(scenario: &Scenario) -> World {
        let ready = Progress { at: At::Ready, next: 0, token: None };
        let mut world = World {
            nodes: scenario.nodes,
            late: None,
            exported: (None, 0, 0),
            back: None,
            progress: [ready; THREADS_LEN_MAX],
            records: [Record::new(Op::Select, 0); RECORDS_LEN_MAX],
            records_len: 0,
        };
        for (index, thread) in scenario.threads.iter().enumerate() {
            if let Thread::Client { ops, token, .. } = thread {
                world.progress[index].token = *token;
                ops.iter().for_each(|op| world.plan(*op));
            }
        }
        world
    }

    fn plan(&mut self, op: Op) {
        self.records[usize::from(self.records_len)] = Record::new(op, self.records_len);
        self.records_len += 1;
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records[..usize::from(self.records_len)]
    }

    pub(super) fn is_over(&self, scenario: &Scenario) -> bool {
        self.progress[..scenario.threads.len()].iter().all(|progress| progress.at == At::Over)
    }

    /// The key before anything happens.
    pub(super) fn truth(&self) -> Truth {
        let [p, c] = self.nodes;
        let node = if c.epoch == RESHARDING { c } else { p };
        let doc = if c.epoch == RESHARDING && c.mark == RESHARDING { c.doc } else { p.doc };
        Truth { doc, lease: node.lease, token_last: node.token_last, position_last: node.position_last }
    }

    /// The world after the next step of a thread; none if it is over, or has to wait.
    pub(super) fn step(&self, scenario: &Scenario, thread: usize) -> Option<World> {
        if self.progress[thread].at == At::Over {
            return None;
        }
        let mut world = *self;
        let done = match scenario.threads[thread] {
            Thread::Client { ops, stale, .. } => world.client(scenario, thread, ops, stale),
            Thread::Copy { twice } => world.copy(&scenario.guards, thread, twice),
            Thread::Keeper(works) => world.keeper(scenario, thread, works),
            Thread::Crash(node) => {
                world.crash(scenario, node);
                world.progress[thread].at = At::Over;
                true
            }
        };
        done.then_some(world)
    }

    /// The world in which the late copy arrives.
    pub(super) fn late(&self, scenario: &Scenario) -> Option<World> {
        let mut world = *self;
        let doc = world.late.take()?;
        world.install(&scenario.guards, doc);
        Some(world)
    }

    // A client.

    fn client(&mut self, scenario: &Scenario, thread: usize, ops: &[Op], stale: bool) -> bool {
        let guards = &scenario.guards;
        let record = self.record_of(scenario, thread);
        match self.progress[thread].at {
            At::Ready => self.arrive(guards, thread, record, stale),
            At::Redirected => match self.server() {
                None => return false,
                Some(node) => self.begin(guards, thread, record, node),
            },
            At::Apply(node) => {
                let said = self.nodes[node].apply(&self.records[record]);
                self.answer(thread, record, said, Some(node));
            }
            At::Pull(node) => {
                let pulled = self.donated(guards, 1 - node, self.transition(node));
                self.progress[thread].at = At::Decide(node, pulled);
            }
            At::Decide(node, pulled) => {
                let said = self.decide(guards, record, node, pulled);
                self.answer(thread, record, said, Some(node));
            }
            At::DeleteHere(donated) => {
                let here = self.nodes[C].doc;
                self.nodes[C].install(None, RESHARDING);
                self.answer(thread, record, Said::Doc(here.or(donated)), Some(C));
            }
            At::Install(_) | At::Cursor | At::Over => unreachable!("not of a client"),
        }
        if self.progress[thread].at == At::Ready && usize::from(self.progress[thread].next) == ops.len() {
            self.progress[thread].at = At::Over;
        }
        true
    }

    fn record_of(&self, scenario: &Scenario, thread: usize) -> usize {
        let before = scenario.threads[..thread].iter().map(|thread| match thread {
            Thread::Client { ops, .. } => ops.len(),
            _ => 0,
        });
        before.sum::<usize>() + usize::from(self.progress[thread].next)
    }

    /// The node that serves the key by its own map; the one with the newer map, if both do.
    fn server(&self) -> Option<usize> {
        let serving = [P, C].into_iter().filter(|node| role(*node, self.nodes[*node].epoch) != Role::Idle);
        serving.max_by_key(|node| self.nodes[*node].epoch)
    }

    /// The first step of an operation: by an old map it goes to the old shard.
    fn arrive(&mut self, guards: &Guards, thread: usize, record: usize, stale: bool) {
        let answered = self.records().iter().enumerate().filter(|(_, record)| record.said.is_some());
        let before = answered.fold(0, |mask, (index, _)| mask | 1 << index);
        let token = self.progress[thread].token;
        self.records[record] = Record { begun: true, before, token, ..self.records[record] };
        let serves = role(P, self.nodes[P].epoch) == Role::Alone || !guards.fence;
        match self.server() {
            _ if stale && serves => self.begin_alone(thread, P),
            Some(node) if !stale => self.begin(guards, thread, record, node),
            _ => self.progress[thread].at = At::Redirected,
        }
    }

    fn begin(&mut self, guards: &Guards, thread: usize, record: usize, node: usize) {
        if role(node, self.nodes[node].epoch) == Role::Alone {
            return self.begin_alone(thread, node);
        }
        let (op, transition) = (self.records[record].op, self.transition(node));
        let known = self.nodes[node].knows(transition, guards);
        let admitted = admitted(op, self.records[record].token, self.nodes[node].lease);
        let blind = !guards.pull_before_write && op != Op::Select;
        if op == Op::Delete && admitted.is_ok() && !guards.owner_decides {
            self.nodes[node].busy += 1;
            self.progress[thread].at = At::DeleteHere(self.nodes[P].doc.take());
            return;
        }
        if known || blind || admitted.is_err() || matches!(op, Op::Lock | Op::Unlock) {
            let said = self.nodes[node].apply(&self.records[record]);
            if (known || blind) && admitted.is_ok() && !matches!(op, Op::Lock | Op::Unlock | Op::Select) {
                self.nodes[node].mark = transition;
            }
            return self.answer(thread, record, said, None);
        }
        self.nodes[node].busy += 1;
        self.progress[thread].at = At::Pull(node);
    }

    fn begin_alone(&mut self, thread: usize, node: usize) {
        self.nodes[node].busy += 1;
        self.progress[thread].at = At::Apply(node);
    }

    fn transition(&self, node: usize) -> u8 {
        if node == C { RESHARDING } else { BACK_RESHARDING }
    }

    fn donated(&self, guards: &Guards, donor: usize, transition: u8) -> Pulled {
        let node = &self.nodes[donor];
        let back = transition == BACK_RESHARDING && guards.reverse_keep;
        if back && node.mark != RESHARDING { Pulled::Keep } else { Pulled::Frozen(node.doc) }
    }

    /// What the owner makes of an operation when the donor has answered.
    fn decide(&mut self, guards: &Guards, record: usize, owner: usize, pulled: Pulled) -> Said {
        let (transition, record) = (self.transition(owner), self.records[record]);
        let node = &mut self.nodes[owner];
        let known = node.knows(transition, guards);
        let own = node.doc;
        let frozen = match pulled {
            Pulled::Frozen(doc) => doc,
            Pulled::Keep => own,
        };
        if record.op == Op::Select {
            return Said::Doc(if known && guards.read_recheck { own } else { frozen });
        }
        if !(known && guards.recheck) {
            node.install(frozen, transition);
        }
        let said = node.apply(&record);
        node.mark = transition;
        said
    }

    fn answer(&mut self, thread: usize, record: usize, said: Said, busy: Option<usize>) {
        self.records[record].said = Some(said);
        if let Some(node) = busy {
            self.nodes[node].busy -= 1;
        }
        let progress = &mut self.progress[thread];
        if let Said::Granted(token) = said {
            progress.token = Some(token);
        }
        (progress.at, progress.next) = (At::Ready, progress.next + 1);
    }

    // The donor's copying.

    fn copy(&mut self, guards: &Guards, thread: usize, twice: bool) -> bool {
        let at = self.progress[thread].at;
        self.progress[thread].at = match at {
            At::Ready => {
                let donor = &mut self.nodes[P];
                match donor.doc {
                    _ if donor.epoch < RESHARDING => return false,
                    Some(doc) if donor.epoch == RESHARDING && !donor.copied => {
                        donor.copied = !guards.cursor_after;
                        self.late = twice.then_some(doc);
                        At::Install(Some(doc))
                    }
                    _ => At::Over,
                }
            }
            At::Install(doc) => {
                self.install(guards, doc.expect("only documents are copied"));
                At::Cursor
            }
            At::Cursor => {
                self.nodes[P].copied = true;
                At::Over
            }
            _ => unreachable!("not of a copy"),
        };
        true
    }

    /// A copy arrives at the owner.
    fn install(&mut self, guards: &Guards, doc: Doc) {
        let owner = &mut self.nodes[C];
        // An owner that is behind is given the donor's map first.
        owner.takes(RESHARDING, guards);
        let right_time = owner.epoch == RESHARDING || !guards.copy_epoch;
        if right_time && !(owner.knows(RESHARDING, guards) && guards.only_unknown) {
            owner.install(Some(doc), RESHARDING);
        }
    }

    // The keeper.

    fn keeper(&mut self, scenario: &Scenario, thread: usize, works: &[Work]) -> bool {
        let next = usize::from(self.progress[thread].next);
        if !self.work(scenario, works[next]) {
            return false;
        }
        self.progress[thread].next += 1;
        if next + 1 == works.len() {
            self.progress[thread].at = At::Over;
        }
        true
    }

    fn work(&mut self, scenario: &Scenario, work: Work) -> bool {
        let guards = &scenario.guards;
        match work {
            Work::Accept(node, epoch) => self.nodes[node].takes(epoch, guards),
            Work::Stopped(node) => return self.nodes[node].busy == 0 || !guards.drain,
            Work::Export(node) => {
                let node = &self.nodes[node];
                self.exported = (node.lease, node.token_last, node.position_last);
            }
            Work::Import(node) => self.import(guards, node),
            Work::Purge(node) => self.purge(guards, node),
            Work::CopyDone => return !guards.drop_after_copy || self.is_copied(scenario),
            Work::Verify if guards.verify => self.verify(guards),
            Work::ScanBack => self.scan_back(guards),
            Work::InstallBack => self.install_back(),
            Work::VerifyBack if guards.verify => {
                self.scan_back(guards);
                self.install_back();
            }
            Work::Verify | Work::VerifyBack => {}
            Work::Clean(node) => self.clean(guards, node),
        }
        true
    }

    fn import(&mut self, guards: &Guards, node: usize) {
        let (lease, token_last, position_last) = self.exported;
        let node = &mut self.nodes[node];
        if guards.lease_moves {
            node.lease = lease;
        }
        if guards.floors {
            node.token_last = node.token_last.max(token_last);
            node.position_last = node.position_last.max(position_last);
        }
    }

    /// Removes what was left over; what is known here has come since.
    fn purge(&mut self, guards: &Guards, node: usize) {
        let node = &mut self.nodes[node];
        if guards.purge && node.epoch == RESHARDING && node.mark != RESHARDING {
            node.doc = None;
        }
    }

    fn is_copied(&self, scenario: &Scenario) -> bool {
        let copies = scenario.threads.iter().zip(&self.progress);
        copies
            .filter(|(thread, _)| matches!(thread, Thread::Copy { .. }))
            .all(|(_, copy)| copy.at == At::Over)
    }

    /// Finds what the owner does not know, and copies it.
    fn verify(&mut self, guards: &Guards) {
        if let Some(doc) = self.nodes[P].doc
            && !self.nodes[C].knows(RESHARDING, guards)
        {
            self.install(guards, doc);
        }
    }

    fn scan_back(&mut self, guards: &Guards) {
        let donor = &self.nodes[C];
        let known = donor.mark == RESHARDING && (donor.doc.is_some() || guards.reverse_tombstones);
        self.back = known.then_some(donor.doc);
    }

    fn install_back(&mut self) {
        let owner = &mut self.nodes[P];
        if let Some(doc) = self.back.take()
            && owner.mark != BACK_RESHARDING
        {
            owner.install(doc, BACK_RESHARDING);
        }
    }

    fn clean(&mut self, guards: &Guards, donor: usize) {
        let owner = &self.nodes[1 - donor];
        let confirmed = owner.mark == self.transition(1 - donor) || donor == C;
        if confirmed || !guards.confirm {
            self.nodes[donor].doc = None;
        }
    }

    // Crashes.

    fn crash(&mut self, scenario: &Scenario, node: usize) {
        let guards = &scenario.guards;
        let crashed = &mut self.nodes[node];
        (crashed.epoch, crashed.busy) = (crashed.epoch_kept, 0);
        if !guards.durable_mark {
            crashed.mark = 0;
        }
        if !guards.durable_lease {
            (crashed.lease, crashed.token_last) = (None, 0);
        }
        for (index, thread) in scenario.threads.iter().enumerate() {
            let at = &mut self.progress[index].at;
            match (thread, *at) {
                // Whoever was being served there never learns what became of it.
                (_, At::Apply(there) | At::Pull(there) | At::Decide(there, _)) if there == node => {
                    *at = At::Over;
                }
                (_, At::DeleteHere(_)) if node == C => *at = At::Over,
                // The donor goes on from its cursor, and what was on its way may still arrive.
                (Thread::Copy { .. }, At::Install(doc)) => {
                    self.late = self.late.or(doc.filter(|_| node == P));
                    *at = At::Ready;
                }
                (Thread::Copy { .. }, At::Cursor) if node == P => *at = At::Ready,
                _ => {}
            }
        }
    }

    /// What clients see when everything else is over: now, after the transition, and after the last late copy.
    pub(super) fn conclude(&mut self, scenario: &Scenario) {
        self.select(scenario);
        if self.nodes[C].epoch == RESHARDING {
            if let Some(doc) = self.nodes[P].doc.filter(|_| !self.nodes[P].copied) {
                self.install(&scenario.guards, doc);
            }
            FINISH.iter().for_each(|work| {
                self.work(scenario, *work);
            });
            self.select(scenario);
        }
        if let Some(world) = self.late(scenario) {
            *self = world;
            self.select(scenario);
        }
    }

    fn select(&mut self, scenario: &Scenario) {
        let record = usize::from(self.records_len);
        self.plan(Op::Select);
        let client = scenario.threads.len();
        self.progress[client] = Progress { at: At::Ready, next: 0, token: None };
        let node = self.server().expect("somebody serves the key when everything is over");
        self.records[record].begun = true;
        self.records[record].before = (1 << record) - 1;
        // What was begun and never answered may come before or after.
        let unanswered =
            self.records[..record].iter().enumerate().filter(|(_, record)| record.said.is_none());
        let mask = unanswered.fold(0, |mask, (index, _)| mask | 1 << index);
        self.records[record].before &= !mask;
        self.begin(&scenario.guards, client, record, node);
        while self.records[record].said.is_none() {
            let said = match self.progress[client].at {
                At::Apply(node) => self.nodes[node].apply(&self.records[record]),
                At::Pull(node) => {
                    let pulled = self.donated(&scenario.guards, 1 - node, self.transition(node));
                    self.decide(&scenario.guards, record, node, pulled)
                }
                other => unreachable!("{other:?} of a select"),
            };
            self.answer(client, record, said, Some(node));
        }
    }
}
