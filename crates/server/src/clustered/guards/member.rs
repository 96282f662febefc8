//! A shard's side: what it keeps of the locks that other shards decide, by namespace. Knows nothing of what operations do,
//! nor of how messages are delivered.

use super::{
    Membership,
    message::{Hear, ToMember},
};
use lockwood_node::trouble::Trouble;
use lockwood_router::{
    ShardEpoch, ShardNo,
    guards::{
        Admission, DefinitionsNo, HomeEpoch, Member, MemberContent, MemberMessage, MemberState, Operation,
        OperationId,
    },
};
use lockwood_wire::Code;
use parking_lot::{Mutex, RwLock};
use std::{collections::HashMap, sync::Arc};
use tokio::sync::watch;

/// The memberships of a shard under one owner.
#[derive(Default)]
pub(super) struct Members(RwLock<HashMap<Arc<str>, Arc<MemberOf>>>);

/// A shard's membership in one namespace.
pub(super) struct MemberOf {
    pub(super) namespace: Arc<str>,
    state: Mutex<State>,
    /// Changes when an operation that was not admitted may be by now.
    changes: watch::Sender<()>,
}

/// A membership, and the shard of the newest home that it knows.
struct State {
    home: ShardNo,
    member: Member,
}

impl State {
    /// There is another home, or another owner of it, if it is later than the one that is known.
    fn home_changed(&mut self, home: ShardNo, epoch: HomeEpoch) -> bool {
        let is_news = epoch > self.member.home();
        if is_news {
            self.home = home;
            self.member.home_changed(epoch);
        }
        is_news
    }
}

impl MemberOf {
    /// Admits an operation, or says what comes first.
    pub(super) fn admit(&self, operation: Operation) -> Admission {
        self.state.lock().member.admit(operation)
    }

    /// The shard of the newest home that is known.
    pub(super) fn home(&self) -> ShardNo {
        self.state.lock().home
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The newest home that is known.
    pub(super) fn home_epoch(&self) -> HomeEpoch {
        self.state.lock().member.home()
    }

    /// Whether it knows what is registered.
    pub(super) fn is_defined(&self) -> bool {
        self.state.lock().member.is_defined()
    }

    /// Whether the home has announced something that it does not know yet.
    pub(super) fn is_behind(&self) -> bool {
        self.state.lock().member.behind().is_some()
    }

    /// It goes by what is registered as of a record of the home's log.
    pub(super) fn caught_up(&self, membership: &Membership, definitions: DefinitionsNo) {
        let mut state = self.state.lock();
        if let Some(message) = state.member.caught_up(definitions) {
            membership.send_to_home(state.home, &self.namespace, message);
        }
        drop(state);
        self.changes.send_replace(());
    }

    /// Asks the home for membership if it has not, and is none.
    pub(super) fn join_first(&self, membership: &Membership) {
        let has_joined = self.state.lock().member.state() != MemberState::Outside;
        if !has_joined {
            self.join(membership);
        }
    }

    /// Asks the home for membership, unless that was done.
    pub(super) fn join(&self, membership: &Membership) {
        let mut state = self.state.lock();
        if !state.member.is_joining() {
            let message = state.member.join();
            membership.send_to_home(state.home, &self.namespace, message);
        }
    }

    /// An operation is durable or rejected.
    pub(super) fn finished(&self, membership: &Membership, operation: OperationId) {
        let mut state = self.state.lock();
        for message in state.member.finished(operation) {
            membership.send_to_home(state.home, &self.namespace, message);
        }
    }

    /// Says again where this shard stands.
    fn say_again(&self, membership: &Membership) {
        let mut state = self.state.lock();
        let message = state.member.reconnected();
        membership.send_to_home(state.home, &self.namespace, message);
    }

    /// Tells a later home where this shard stands.
    fn follow(&self, membership: &Membership, (home, epoch): (ShardNo, HomeEpoch)) {
        let mut state = self.state.lock();
        if state.home_changed(home, epoch) {
            let message = state.member.reconnected();
            membership.send_to_home(home, &self.namespace, message);
        }
        drop(state);
        self.changes.send_replace(());
    }
}

impl Members {
    fn get(&self, namespace: &str) -> Option<Arc<MemberOf>> {
        self.0.read().get(namespace).cloned()
    }
}

impl Membership {
    /// This shard's membership in a namespace, which may have to join yet.
    pub(super) fn member_of(&self, namespace: &str, home: ShardNo) -> Arc<MemberOf> {
        if let Some(member) = self.members.get(namespace) {
            return member;
        }
        let mut all = self.members.0.write();
        if let Some(member) = all.get(namespace) {
            return Arc::clone(member);
        }
        let epoch = self.node.topology.view().shard(home).map_or(ShardEpoch(0), |row| row.epoch);
        let placed = self.node.homes.remembered(namespace).filter(|placed| placed.home == home);
        let epoch = HomeEpoch::new(placed.map_or(0, |placed| placed.moved), epoch);
        let namespace: Arc<str> = namespace.into();
        let member = Member::new(self.shard, self.epoch, epoch);
        let (state, changes) = (Mutex::new(State { home, member }), watch::Sender::new(()));
        let member = Arc::new(MemberOf { namespace: Arc::clone(&namespace), state, changes });
        all.insert(namespace, Arc::clone(&member));
        member
    }

    /// A home has sent something; gives what is to be answered, and whether it was taken in.
    pub(super) fn receive_of_home(&self, sent: ToMember) -> Result<(Vec<MemberMessage>, bool), Trouble> {
        let from = ShardNo(sent.from);
        let member = self.member_of(&sent.namespace, from);
        let message = sent.message()?;
        let mut state = member.state.lock();
        // It knows of its own takeover before PostgreSQL's word gets here.
        let is_news = state.home_changed(from, message.stream.home);
        let (stream, sequence) = (message.stream, message.sequence);
        let mut answers = state.member.receive(message);
        let is_taken_in = state.member.has_taken_in(&stream, sequence);
        if is_news {
            answers.push(state.member.reconnected());
        }
        // A call that its sender has given up may be carried out late: a join that is only in its answer would be lost.
        let joins = answers.iter().filter(|said| said.content == MemberContent::Join);
        joins.for_each(|said| self.send_to_home(state.home, &member.namespace, said.clone()));
        let is_behind = state.member.behind().is_some();
        drop(state);
        member.changes.send_replace(());
        if is_behind {
            self.catch_ups.ask(&member);
        }
        Ok((answers, is_taken_in))
    }

    /// A home asks what this shard is to a namespace.
    pub(super) fn hear(&self, asked: &Hear, home: ShardNo) -> Result<MemberMessage, Trouble> {
        let member = self.member_of(&asked.namespace, home);
        let mut state = member.state.lock();
        state.home_changed(home, HomeEpoch(asked.home));
        if state.member.home() > HomeEpoch(asked.home) {
            let message = format!("shard {} has another owner by now, or is the home no longer", home.0);
            return Err(Trouble::new(Code::ShardUnreachable, message));
        }
        let message = state.member.reconnected();
        // An answer may be lost, and nothing would tell; what was said twice does no harm.
        self.send_to_home(home, &member.namespace, message.clone());
        drop(state);
        member.changes.send_replace(());
        Ok(message)
    }

    /// Says again where this shard stands, to a home that may have lost it. Not in an answer: that of a call which its sender
    /// has given up is lost, and a member that waits for the answer to its join ignores everything else.
    pub(super) fn say_again(&self, namespace: &str, home: ShardNo) {
        self.member_of(namespace, home).say_again(self);
    }

    /// PostgreSQL names the owner of a home.
    pub(super) fn home_changed(&self, home: ShardNo, epoch: ShardEpoch) {
        for member in self.all_members().iter().filter(|member| member.home() == home) {
            let moved = member.home_epoch().moved();
            member.follow(self, (home, HomeEpoch::new(moved, epoch)));
        }
    }

    /// Homes may have been moved, says PostgreSQL.
    pub(super) fn homes_moved(&self) {
        let view = self.node.topology.view();
        for member in self.all_members() {
            let Some(placed) = self.node.homes.remembered(&member.namespace) else { continue };
            let Some(row) = view.shard(placed.home).filter(|row| row.shard != self.shard) else { continue };
            if placed.moved > member.home_epoch().moved() {
                member.follow(self, (placed.home, HomeEpoch::new(placed.moved, row.epoch)));
            }
        }
    }

    fn all_members(&self) -> Vec<Arc<MemberOf>> {
        self.members.0.read().values().cloned().collect()
    }
}
