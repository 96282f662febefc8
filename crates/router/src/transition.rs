//! A transition from one function to another, step by step: what is known, and what is to be done next. Knows
//! nothing of how it is done, and keeps nothing by itself: whoever drives it keeps it durably after every
//! event, before the actions that follow, and only then acts.

use crate::{Epoch, Host, Phase, ShardMap, ShardNo, TransitionError};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, collections::BTreeSet, fmt};

/// How far a transition is.
///
/// | step | map | goes on when |
/// | --- | --- | --- |
/// | `Prepare` | `Preparing` | every node has the map: old shards have stopped for what moves |
/// | `Import` | | every shard has the floors, and the leases of what comes to it |
/// | `Activate` | `Resharding` | every node has the map: new shards serve what moves |
/// | `Copy` | | every donor has copied, and its digests were found equal |
/// | `Finish` | `Finishing` | every node has the map: nobody asks donors any more |
/// | `Clean` | | every donor has removed what owners confirm |
/// | `Settle` | `Steady` | every node has the map |
/// | `Done` | | |
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// Old shards stop.
    Prepare,
    /// Leases and floors arrive.
    Import,
    /// New shards begin.
    Activate,
    /// Donors copy, and verify.
    Copy,
    /// `prev` is dropped.
    Finish,
    /// Donors clean up.
    Clean,
    /// The last map.
    Settle,
    /// Over.
    Done,
}

/// Who says when to go on.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Drive {
    /// The transition itself, from end to end.
    Whole,
    /// [`Transition::copy`], [`Transition::drop_prev`] and [`Transition::cleanup`], as in the original.
    ByHand,
}

/// A transition, as it is kept.
///
/// Holds at all times: a map is only made when what the step before waits for is here, so no node ever has
/// a `Resharding` map while another could still serve by the map before `Preparing`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transition {
    /// The map that every node is to have now.
    pub map: ShardMap,
    /// How far it is.
    pub step: Step,
    /// The map to go back to; none if it goes back already.
    pub before: Option<ShardMap>,
    /// How many shards remain when it is over.
    pub keep: usize,
    /// The addresses of all nodes that take part.
    pub nodes: BTreeSet<String>,
    /// Those that have `map`.
    pub acknowledged: BTreeSet<String>,
    /// Those whose floors and leases are at hand. Not kept: they are asked again after a crash.
    #[serde(skip)]
    pub exported: BTreeSet<String>,
    /// Those that have taken theirs.
    pub imported: BTreeSet<String>,
    /// The shards that give keys away.
    pub donors: Vec<Donor>,
    /// Whether copying, verifying and cleaning rest. The steps in which keys are not served never do.
    pub paused: bool,
    /// How many records a donor copies in a second, at most.
    pub throttle: Option<u64>,
    /// Whether `prev` may be dropped as soon as everything is verified.
    pub drop_asked: bool,
    /// Whether `prev` was dropped without that.
    pub forced: bool,
    /// Whether this goes back to the functions of before.
    pub aborting: bool,
    /// What went wrong last, by node or donor, until it goes well.
    pub errors: BTreeMap<String, String>,
}

/// A shard that gives keys away, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Donor {
    /// Which one.
    pub shard: ShardNo,
    /// Counts the times that verifying found something missing, and copying began anew.
    pub round: u32,
    /// How many records it has copied.
    pub copied: u64,
    /// How many there are to copy, when it knows.
    pub total: Option<u64>,
    /// Whether that is all.
    pub done: bool,
    /// Whether the digests of both sides are equal.
    pub verified: bool,
    /// How many records it has removed.
    pub removed: u64,
    /// Whether that is all.
    pub cleaned: bool,
    /// Whether it is to copy.
    pub copy_asked: bool,
    /// Whether it is to clean up, when its time comes.
    pub clean_asked: bool,
}

/// What has happened. Events may be lost, repeated or late: those of another epoch, transition or round
/// change nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// A node has durably taken the map with this epoch, and has finished what it began under an older one.
    Acknowledged {
        /// Its address.
        node: String,
        /// Of the map.
        epoch: Epoch,
    },
    /// A node's floors, and the leases of what leaves it, are at hand.
    Exported {
        /// Its address.
        node: String,
        /// Of the `Preparing` map.
        epoch: Epoch,
    },
    /// A node has durably taken its floors and leases.
    Imported {
        /// Its address.
        node: String,
        /// Of the `Preparing` map.
        epoch: Epoch,
    },
    /// A donor has copied so many records in all.
    Copied {
        /// Which one.
        donor: ShardNo,
        /// In which transition.
        transition: Epoch,
        /// In which round.
        round: u32,
        /// So many.
        copied: u64,
        /// Of so many, if it knows.
        total: Option<u64>,
        /// Whether that is all.
        done: bool,
    },
    /// The digests of a donor and of its owners are equal.
    Verified {
        /// Which one.
        donor: ShardNo,
        /// In which transition.
        transition: Epoch,
        /// In which round.
        round: u32,
    },
    /// They are not: it copies again.
    Differs {
        /// Which one.
        donor: ShardNo,
        /// In which transition.
        transition: Epoch,
        /// In which round.
        round: u32,
        /// What differs.
        problem: String,
    },
    /// A donor has removed so many records in all.
    Cleaned {
        /// Which one.
        donor: ShardNo,
        /// In which transition.
        transition: Epoch,
        /// So many.
        removed: u64,
        /// Whether that is all.
        done: bool,
    },
    /// An action failed; it is to be tried again.
    Failed {
        /// A node's address, or `shard N` for a donor.
        node: String,
        /// Why.
        problem: String,
    },
}

/// What is to be done now. Doing it twice is as good as once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Give these nodes the map.
    Publish {
        /// The map.
        map: Box<ShardMap>,
        /// Their addresses.
        to: Vec<String>,
    },
    /// Ask a node for its floors and for the leases of what leaves it.
    Export {
        /// Its address.
        from: String,
    },
    /// Give a node the highest floors, and the leases of what comes to it.
    Import {
        /// Its address.
        to: String,
    },
    /// Let a donor copy.
    Copy {
        /// Which one.
        donor: ShardNo,
        /// In which round; a higher one begins anew.
        round: u32,
    },
    /// Compare the digests of a donor with those of the owners.
    Verify {
        /// Which one.
        donor: ShardNo,
        /// In which round.
        round: u32,
    },
    /// Let a donor remove what its owners confirm.
    Clean {
        /// Which one.
        donor: ShardNo,
    },
    /// Nothing is left to do.
    Done,
}

impl Transition {
    /// A transition from `before` that begins with the map `preparing`; both as
    /// [`Change::apply`](crate::Change::apply) has them.
    pub fn start(before: &ShardMap, preparing: ShardMap, keep: usize, drive: Drive) -> Transition {
        Transition::of(Some(before.clone()), preparing, keep, drive)
    }

    fn of(before: Option<ShardMap>, preparing: ShardMap, keep: usize, drive: Drive) -> Transition {
        assert_eq!(preparing.phase, Phase::Preparing, "a transition begins with old shards that stop");
        Transition {
            step: Step::Prepare,
            keep,
            nodes: preparing.addresses().map(str::to_owned).collect(),
            acknowledged: BTreeSet::new(),
            exported: BTreeSet::new(),
            imported: BTreeSet::new(),
            donors: donors(&preparing, drive == Drive::Whole),
            paused: false,
            throttle: None,
            drop_asked: drive == Drive::Whole,
            forced: false,
            aborting: before.is_none(),
            errors: BTreeMap::new(),
            before,
            map: preparing,
        }
    }

    /// Takes in what has happened, and answers what is to be done now.
    pub fn apply(&mut self, event: Event) -> Vec<Action> {
        self.take(event);
        self.advance();
        self.actions()
    }

    /// What is to be done now: all of it can be done at once, and again after a crash.
    pub fn actions(&self) -> Vec<Action> {
        let donors = self.donors.iter().filter(|_| !self.paused);
        match self.step {
            Step::Prepare | Step::Activate | Step::Finish | Step::Settle => {
                let to = self.nodes.difference(&self.acknowledged).cloned().collect();
                vec![Action::Publish { map: Box::new(self.map.clone()), to }]
            }
            Step::Import => self.handing_over(),
            Step::Copy => donors.filter_map(Donor::copying).collect(),
            Step::Clean => donors.filter_map(Donor::cleaning).collect(),
            Step::Done => vec![Action::Done],
        }
    }

    /// Whom it waits for, and what went wrong there last.
    pub fn waits(&self) -> Vec<(String, Option<&str>)> {
        let donors = |over: fn(&Donor) -> bool| -> Vec<String> {
            self.donors.iter().filter(|donor| !over(donor)).map(Donor::name).collect()
        };
        let names = match self.step {
            Step::Prepare | Step::Activate | Step::Finish | Step::Settle => {
                self.nodes.difference(&self.acknowledged).cloned().collect()
            }
            Step::Import => self.writers().difference(&self.imported).cloned().collect(),
            Step::Copy => donors(|donor| donor.verified),
            Step::Clean => donors(|donor| donor.cleaned),
            Step::Done => Vec::new(),
        };
        let why = |name: String| {
            let error = self.errors.get(&name).map(String::as_str);
            (name, error)
        };
        names.into_iter().map(why).collect()
    }

    /// Whether nothing is left to do, and another transition may begin.
    pub fn is_over(&self) -> bool {
        self.step == Step::Done
    }

    /// Lets copying, verifying and cleaning rest.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Lets them go on.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Lets a donor, or all of them, copy.
    pub fn copy(&mut self, donor: Option<ShardNo>) -> Result<(), TransitionError> {
        if self.step >= Step::Finish {
            return Err(TransitionError::PrevGone(self.step));
        }
        self.asked(donor)?.for_each(|donor| donor.copy_asked = true);
        Ok(())
    }

    /// Lets a donor, or all of them, clean up.
    pub fn cleanup(&mut self, donor: Option<ShardNo>) -> Result<(), TransitionError> {
        if self.step < Step::Finish {
            return Err(TransitionError::PrevSet(self.step));
        }
        self.asked(donor)?.for_each(|donor| donor.clean_asked = true);
        Ok(())
    }

    /// Drops `prev`: from then on owners are on their own. Refused before everything is copied and verified,
    /// unless forced, which loses what is not.
    pub fn drop_prev(&mut self, force: bool) -> Result<(), TransitionError> {
        match self.step {
            Step::Prepare | Step::Import => return Err(TransitionError::NotBegun(self.step)),
            Step::Activate | Step::Copy => {}
            Step::Finish | Step::Clean | Step::Settle | Step::Done => return Ok(()),
        }
        let left: Vec<String> = self.donors.iter().filter_map(Donor::left).collect();
        if !left.is_empty() && !force {
            return Err(TransitionError::NotFinished(left.join(", ")));
        }
        self.drop_asked = true;
        if left.is_empty() {
            self.advance();
        } else {
            self.forced = true;
            self.finish();
        }
        Ok(())
    }

    /// Goes back to the functions of before.
    ///
    /// Before new shards serve anything, that is the old map at a higher epoch. Afterwards it is a transition
    /// of its own, in which owners and donors change places.
    pub fn abort(&mut self) -> Result<(), TransitionError> {
        let Some(before) = &self.before else { return Err(TransitionError::GoingBack) };
        match self.step {
            Step::Prepare | Step::Import => {
                let map = ShardMap { epoch: self.map.epoch + 1, ..before.clone() };
                (self.before, self.aborting) = (None, true);
                self.publish(Step::Settle, map);
            }
            Step::Activate | Step::Copy if self.map.keeps => return Err(TransitionError::ByHand),
            Step::Activate | Step::Copy => {
                let (map, keep, throttle) = (reversed(&self.map), before.shards.len(), self.throttle);
                *self = Transition { throttle, ..Transition::of(None, map, keep, Drive::Whole) };
            }
            Step::Finish | Step::Clean | Step::Settle | Step::Done => {
                return Err(TransitionError::PrevGone(self.step));
            }
        }
        Ok(())
    }

    /// Goes on with other hosts, which are given the map of the same phase at a higher epoch.
    pub fn rehost(&mut self, shards: Vec<Vec<Host>>) {
        if let Some(before) = &mut self.before {
            before.shards.iter_mut().zip(&shards).for_each(|(old, new)| old.clone_from(new));
        }
        let map = self.map.rehosted(shards);
        // Shards that are not in the last map any more still have to learn that they are not.
        self.map.addresses().for_each(|gone| {
            self.nodes.remove(gone);
        });
        self.nodes.extend(map.addresses().map(str::to_owned));
        let step = match self.step {
            Step::Prepare | Step::Import => Step::Prepare,
            Step::Activate | Step::Copy => Step::Activate,
            Step::Finish | Step::Clean => Step::Finish,
            Step::Settle | Step::Done => Step::Settle,
        };
        self.errors.clear();
        self.publish(step, map);
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Acknowledged { node, epoch } => {
                if epoch == self.map.epoch && self.nodes.contains(&node) {
                    self.errors.remove(&node);
                    self.acknowledged.insert(node);
                }
            }
            Event::Exported { node, epoch } => {
                if self.imports(epoch) {
                    self.errors.remove(&node);
                    self.exported.insert(node);
                }
            }
            Event::Imported { node, epoch } => {
                if self.imports(epoch) {
                    self.errors.remove(&node);
                    self.imported.insert(node);
                }
            }
            Event::Failed { node, problem } => {
                if self.nodes.contains(&node) || self.donors.iter().any(|donor| donor.name() == node) {
                    self.errors.insert(node, problem);
                }
            }
            Event::Copied { donor, transition, round, copied, total, done } => {
                if let Some(donor) =
                    self.donor(donor, transition, Step::Copy).filter(|donor| donor.round == round)
                {
                    donor.copied = donor.copied.max(copied);
                    donor.total = total.or(donor.total);
                    donor.done |= done;
                }
            }
            Event::Verified { donor, transition, round } => {
                if let Some(donor) =
                    self.donor(donor, transition, Step::Copy).filter(|donor| donor.round == round)
                {
                    donor.verified |= donor.done;
                }
            }
            Event::Differs { donor, transition, round, problem } => {
                let found = self.donor(donor, transition, Step::Copy);
                if let Some(found) = found.filter(|donor| donor.round == round && !donor.verified) {
                    (found.round, found.done, found.copied) = (round + 1, false, 0);
                    let name = found.name();
                    self.errors.insert(name, problem);
                }
            }
            Event::Cleaned { donor, transition, removed, done } => {
                if let Some(donor) = self.donor(donor, transition, Step::Clean) {
                    donor.removed = donor.removed.max(removed);
                    donor.cleaned |= done;
                }
            }
        }
    }

    fn advance(&mut self) {
        let all_have_it = self.acknowledged.is_superset(&self.nodes);
        match self.step {
            Step::Prepare if all_have_it => self.step = Step::Import,
            Step::Import if self.writers().is_subset(&self.imported) => self.activate(),
            Step::Activate if all_have_it => self.step = Step::Copy,
            Step::Copy if self.drop_asked && self.donors.iter().all(|donor| donor.verified) => self.finish(),
            Step::Finish if all_have_it => self.step = Step::Clean,
            Step::Clean if self.donors.iter().all(|donor| donor.cleaned) => self.settle(),
            Step::Settle if all_have_it => self.step = Step::Done,
            _ => {}
        }
    }

    fn activate(&mut self) {
        let map = ShardMap { phase: Phase::Resharding, epoch: self.map.transition, ..self.map.clone() };
        self.publish(Step::Activate, map);
    }

    fn finish(&mut self) {
        let (phase, epoch) = (Phase::Finishing, self.map.epoch + 1);
        self.publish(Step::Finish, ShardMap { phase, epoch, prev: None, ..self.map.clone() });
    }

    fn settle(&mut self) {
        let map = ShardMap::steady(self.map.epoch + 1, self.map.shards.clone(), self.map.curr.clone());
        self.publish(Step::Settle, map.trimmed(self.keep));
    }

    fn publish(&mut self, step: Step, map: ShardMap) {
        self.acknowledged.clear();
        if step == Step::Prepare {
            self.exported.clear();
            self.imported.clear();
        }
        (self.step, self.map) = (step, map);
    }

    /// Exports first, all of them: a floor has to be the highest of all, and a lease may come from anywhere.
    fn handing_over(&self) -> Vec<Action> {
        let writers = self.writers();
        if writers.is_subset(&self.exported) {
            let missing = writers.into_iter().filter(|node| !self.imported.contains(node));
            return missing.map(|to| Action::Import { to }).collect();
        }
        let missing = writers.into_iter().filter(|node| !self.exported.contains(node));
        missing.map(|from| Action::Export { from }).collect()
    }

    /// The hosts that write, one for each shard.
    fn writers(&self) -> BTreeSet<String> {
        let hosts = self.map.shard_numbers().filter_map(|shard| self.map.rw_host(shard));
        hosts.map(|host| host.address.clone()).collect()
    }

    fn imports(&self, epoch: Epoch) -> bool {
        self.step == Step::Import && epoch == self.map.epoch
    }

    fn asked(&mut self, donor: Option<ShardNo>) -> Result<impl Iterator<Item = &mut Donor>, TransitionError> {
        if let Some(shard) = donor.filter(|shard| self.donors.iter().all(|donor| donor.shard != *shard)) {
            return Err(TransitionError::NoDonor(shard));
        }
        Ok(self.donors.iter_mut().filter(move |found| donor.is_none_or(|shard| found.shard == shard)))
    }

    /// The donor that an event is about, if the event is of this transition and step.
    fn donor(&mut self, shard: ShardNo, transition: Epoch, step: Step) -> Option<&mut Donor> {
        if transition != self.map.transition || step != self.step {
            return None;
        }
        let donor = self.donors.iter_mut().find(|donor| donor.shard == shard)?;
        self.errors.remove(&donor.name());
        Some(donor)
    }
}

/// The shards that `prev` can name.
fn donors(map: &ShardMap, asked: bool) -> Vec<Donor> {
    let max = map.prev.as_ref().and_then(crate::Function::shard_max).unwrap_or(u32::MAX);
    let shards = map.shard_numbers().filter(|shard| shard.0 <= max);
    shards.map(|shard| Donor::new(shard, asked)).collect()
}

/// The first map of the way back from `map`, in which new shards serve already.
fn reversed(map: &ShardMap) -> ShardMap {
    let prev = map.prev.clone().expect("a map in which keys move has prev");
    ShardMap {
        epoch: map.epoch + 1,
        phase: Phase::Preparing,
        shards: map.shards.clone(),
        curr: prev,
        prev: Some(map.curr.clone()),
        transition: map.epoch + 2,
        reverses: map.transition,
        keeps: false,
    }
}

impl Donor {
    fn new(shard: ShardNo, asked: bool) -> Donor {
        Donor {
            shard,
            round: 0,
            copied: 0,
            total: None,
            done: false,
            verified: false,
            removed: 0,
            cleaned: false,
            copy_asked: asked,
            clean_asked: asked,
        }
    }

    /// What it is called among the errors.
    pub fn name(&self) -> String {
        format!("shard {}", self.shard)
    }

    fn copying(&self) -> Option<Action> {
        let (donor, round) = (self.shard, self.round);
        match self {
            _ if self.verified => None,
            _ if self.done => Some(Action::Verify { donor, round }),
            _ => self.copy_asked.then_some(Action::Copy { donor, round }),
        }
    }

    fn cleaning(&self) -> Option<Action> {
        (self.clean_asked && !self.cleaned).then_some(Action::Clean { donor: self.shard })
    }

    /// What is left to do before `prev` can be dropped.
    fn left(&self) -> Option<String> {
        let what = match self {
            _ if self.verified => return None,
            _ if self.done => "has copied but is not verified",
            _ => "has not finished copying",
        };
        Some(format!("{} {what}", self.name()))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Prepare => "prepare",
            Step::Import => "import",
            Step::Activate => "activate",
            Step::Copy => "copy",
            Step::Finish => "finish",
            Step::Clean => "clean",
            Step::Settle => "settle",
            Step::Done => "done",
        })
    }
}
