//! Random histories against the reference: after every step each answer, each grant and each non-grant must
//! be the same.
//!
//! `LOCKWOOD_MODEL_HISTORIES` and `LOCKWOOD_MODEL_SEED` make it longer or start it elsewhere. A history
//! that fails is reduced to the fewest steps that still fail, and printed with its seed.

use crate::{
    LockTable,
    fault::Fault,
    outcome::{Change, ConvertOutcome, Cycle, Effect, Outcome, Rank, Refusal, Request, Waiters},
    reference::Reference,
};
use lockwood_model::{Depth, LockId, Mode, OwnerId, Path, Resource, Timestamp, Token, Wait};
use std::panic::{AssertUnwindSafe, catch_unwind};

const HISTORIES: u64 = 20_000;
const STEPS: usize = 40;
const OWNERS: u64 = 5;
const PATHS: [&str; 9] = ["/", "a", "b", "a/b", "a/c", "a/b/c", "a/b/d", "a/b/c/e", "b/a"];

/// Seeds that once found something; kept so that they always run.
const KEPT_SEEDS: [u64; 5] = [0, 1, 7, 33, 17446];

/// Locks are named by a number that picks one of those there are, so that a step still means something
/// when others before it are left out.
#[derive(Debug, Clone)]
enum Step {
    Lock {
        owner: OwnerId,
        resources: Vec<Resource>,
        wait: Wait,
        ttl_ms: Option<u64>,
        rank: Rank,
    },
    Admit {
        owner: OwnerId,
        resources: Vec<Resource>,
        rank: Rank,
    },
    Hold {
        owner: OwnerId,
        resources: Vec<Resource>,
    },
    Renew {
        pick: usize,
        ttl_ms: u64,
    },
    Release {
        pick: usize,
    },
    Revoke {
        pick: usize,
    },
    Cancel {
        pick: usize,
    },
    Convert {
        pick: usize,
        change: Change,
        wait: Wait,
    },
    Leave {
        owner: OwnerId,
        waiters: Waiters,
        for_ms: u64,
    },
    Return {
        owner: OwnerId,
    },
    ReleaseAll {
        owner: OwnerId,
    },
    Pass {
        millis: u64,
    },
    Restore {
        owner: OwnerId,
        resources: Vec<Resource>,
    },
    /// A lock is put back beside others.
    MoveIn {
        owner: OwnerId,
        resources: Vec<Resource>,
    },
    Thaw,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

fn history(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let frozen = random.below(8) == 0;
    let mut steps = Vec::new();
    let thaw = STEPS / 4;
    for at in 0..STEPS {
        if frozen && at == thaw {
            steps.push(Step::Thaw);
        }
        if frozen && at < thaw && random.below(2) == 0 {
            let (owner, resources) = (owner(&mut random), resources(&mut random));
            steps.push(Step::Restore { owner, resources });
        }
        steps.push(step(&mut random));
    }
    steps
}

fn step(random: &mut Random) -> Step {
    let pick = random.below(64) as usize;
    match random.below(23) {
        0..=8 => {
            let (owner, resources, wait) = (owner(random), resources(random), wait(random));
            Step::Lock { owner, resources, wait, ttl_ms: ttl(random), rank: rank(random) }
        }
        9..=11 => Step::Release { pick },
        12 => Step::Cancel { pick },
        13..=15 => Step::Convert { pick, change: change(random), wait: wait(random) },
        16 => {
            let waiters = random.pick(&[Waiters::Leave, Waiters::Stay]);
            Step::Leave { owner: owner(random), waiters, for_ms: random.below(30) }
        }
        17 => random.pick(&[Step::Return { owner: OwnerId(pick as u64 % OWNERS) }, Step::Revoke { pick }]),
        18 => match random.below(4) {
            0 => Step::ReleaseAll { owner: owner(random) },
            _ => Step::Release { pick },
        },
        19 if pick.is_multiple_of(2) => Step::Hold { owner: owner(random), resources: resources(random) },
        19 => Step::Admit { owner: owner(random), resources: resources(random), rank: rank(random) },
        20 => Step::Renew { pick, ttl_ms: random.below(40) },
        22 => Step::MoveIn { owner: owner(random), resources: resources(random) },
        _ => Step::Pass { millis: random.below(20) },
    }
}

fn owner(random: &mut Random) -> OwnerId {
    OwnerId(random.below(OWNERS))
}

fn wait(random: &mut Random) -> Wait {
    let millis = Wait::Millis(random.below(40));
    random.pick(&[Wait::Never, millis, Wait::Forever, Wait::Forever, Wait::Forever])
}

fn rank(random: &mut Random) -> Rank {
    use Rank::{HolderOperation, Operation, Ordinary, Upgrade};
    random.pick(&[Ordinary, Ordinary, Ordinary, Ordinary, Ordinary, Operation, HolderOperation, Upgrade])
}

fn ttl(random: &mut Random) -> Option<u64> {
    let ttl_ms = random.below(60);
    random.pick(&[None, None, Some(ttl_ms)])
}

fn mode(random: &mut Random) -> Mode {
    use Mode::{Link, List, Read, Update, Write};
    random.pick(&[Read, Read, Read, Write, Write, Update, Update, List, Link])
}

fn resources(random: &mut Random) -> Vec<Resource> {
    let len = random.pick(&[1, 1, 1, 2, 2, 3, 4]);
    let depths =
        [Depth::SUBTREE, Depth::SUBTREE, Depth::NODE, Depth::levels(2).unwrap(), Depth::levels(3).unwrap()];
    (0..len).map(|_| Resource::new(path(random), mode(random), random.pick(&depths))).collect()
}

fn path(random: &mut Random) -> Path {
    random.pick(&PATHS).parse().unwrap()
}

fn change(random: &mut Random) -> Change {
    let modes = [Mode::Read, Mode::Update, Mode::Write, Mode::Write];
    match random.below(4) {
        0 => Change::Paths((0..=random.below(2)).map(|_| (path(random), random.pick(&modes))).collect()),
        1 => Change::Modes(
            (0..=random.below(2))
                .map(|_| {
                    let depth = random.pick(&[Depth::SUBTREE, Depth::SUBTREE, Depth::NODE]);
                    Resource::new(path(random), random.pick(&modes), depth)
                })
                .collect(),
        ),
        _ => Change::All(random.pick(&modes)),
    }
}

/// Both of them side by side.
struct Pair {
    table: LockTable,
    reference: Reference,
    now: Timestamp,
    token_max: Option<Token>,
}

impl Pair {
    fn new(steps: &[Step], fault: Option<Fault>) -> Pair {
        let mut table = LockTable::new(0, 1);
        table.tree.faults.planted = fault;
        let mut reference = Reference::new();
        if steps.iter().any(|step| matches!(step, Step::Thaw)) {
            table.freeze();
            reference.frozen = true;
        }
        Pair { table, reference, now: Timestamp(1000), token_max: None }
    }

    fn take(&mut self, step: &Step) -> Result<(), String> {
        let now = self.now;
        let (mut real, mut naive) = (Vec::new(), Vec::new());
        match step {
            Step::Lock { owner, resources, wait, ttl_ms, rank } => {
                let (owner, wait, ttl_ms, rank) = (*owner, *wait, *ttl_ms, *rank);
                let request = Request { owner, resources: resources.clone(), wait, ttl_ms, rank };
                let answer = self.table.lock(request, now);
                if let Outcome::Granted { token, .. } = answer {
                    self.check_token(token)?;
                }
                let plain = plain_outcome(answer)?;
                same("lock", &plain, &self.reference.lock(owner, resources, wait, (ttl_ms, rank), now))?;
            }
            Step::Hold { owner, resources } => {
                let found = self.table.holding(*owner, resources);
                same("hold", &found.is_some(), &self.reference.holds(*owner, resources, found))?;
            }
            Step::Admit { owner, resources, rank } => {
                let admitted = self.table.admits(*owner, resources, *rank).is_ok();
                same("admit", &admitted, &self.reference.admits(*owner, resources, *rank))?;
            }
            Step::Renew { pick, ttl_ms } => {
                if let Some((owner, id)) = self.choose(*pick) {
                    let until = Some(now.after(*ttl_ms)).filter(|_| pick % 4 > 0);
                    let renewed = self.table.renew(owner, id, until).is_ok();
                    same("renew", &renewed, &self.reference.renew(id, until))?;
                }
            }
            Step::Release { pick } => {
                if let Some((owner, id)) = self.choose(*pick) {
                    self.table.release(owner, id, now, &mut real).map_err(|_| "release: unknown")?;
                    self.reference.release(id, now, &mut naive);
                }
            }
            Step::Revoke { pick } => {
                if let Some((_, id)) = self.choose(*pick) {
                    self.table.revoke(id, now, &mut real).map_err(|_| "revoke: unknown")?;
                    self.reference.release(id, now, &mut naive);
                }
            }
            Step::Cancel { pick } => {
                if let Some((owner, id)) = self.choose(*pick) {
                    let answer = self.table.cancel(owner, id, now, &mut real);
                    same("cancel", &answer, &self.reference.cancel(id, now, &mut naive))?;
                }
            }
            Step::Convert { pick, change, wait } => {
                if let Some((owner, id)) = self.choose(*pick) {
                    let answer = self.table.convert(owner, id, change, *wait, now, &mut real);
                    let plain = plain_conversion(answer)?;
                    same("convert", &plain, &self.reference.convert(id, change, *wait, now, &mut naive))?;
                }
            }
            Step::Leave { owner, waiters, for_ms } => {
                let until = now.after(*for_ms);
                self.table.owner_left(*owner, *waiters, until, now, &mut real);
                self.reference.left(*owner, *waiters, until, now, &mut naive);
            }
            Step::Return { owner } => {
                self.table.owner_returned(*owner);
                self.reference.returned(*owner);
            }
            Step::ReleaseAll { owner } => {
                self.table.release_all(*owner, now, &mut real);
                self.reference.locks.retain(|lock| lock.owner != *owner || lock.rank.is_operation());
                self.reference.release(LockId(u64::MAX), now, &mut naive);
            }
            Step::Pass { millis } => {
                self.now = now.after(*millis);
                self.table.expire(self.now, &mut real);
                self.reference.expire(self.now, &mut naive);
            }
            Step::Restore { owner, resources } => {
                if self.reference.frozen {
                    let answer = self.table.restore(*owner, resources.clone(), Token(0), now).ok();
                    same("restore", &answer, &self.reference.restore(*owner, resources, now))?;
                }
            }
            Step::MoveIn { owner, resources } => {
                if !self.reference.frozen {
                    self.table.freeze();
                    self.reference.frozen = true;
                    let answer = self.table.restore(*owner, resources.clone(), Token(0), now).ok();
                    same("move in", &answer, &self.reference.restore(*owner, resources, now))?;
                    self.table.thaw(now, &mut real);
                    self.reference.thaw(now, &mut naive);
                }
            }
            Step::Thaw => {
                self.table.thaw(now, &mut real);
                self.reference.thaw(now, &mut naive);
            }
        }
        for effect in &real {
            if let Effect::Granted { token, .. } = effect {
                self.check_token(*token)?;
            }
        }
        let real = real.into_iter().map(plain_effect).collect::<Result<Vec<_>, _>>()?;
        let naive = naive.into_iter().map(sort_blockers).collect();
        same("effects", &sorted(real), &sorted(naive))?;
        self.compare()
    }

    fn check_token(&mut self, token: Token) -> Result<(), String> {
        if self.token_max.is_some_and(|max| token <= max) {
            return Err(format!("token {token} after {:?}", self.token_max));
        }
        self.token_max = Some(token);
        Ok(())
    }

    fn choose(&self, pick: usize) -> Option<(OwnerId, LockId)> {
        let locks = &self.reference.locks;
        (!locks.is_empty()).then(|| &locks[pick % locks.len()]).map(|lock| (lock.owner, lock.id))
    }

    /// Every lock: granted or not, with what, and who is in its way.
    fn compare(&self) -> Result<(), String> {
        self.table.check_invariants();
        same("number of locks", &self.table.len(), &self.reference.locks.len())?;
        for naive in &self.reference.locks {
            let real = self.table.view(naive.id).ok_or(format!("lock {} is gone", naive.id))?;
            same("token", &real.token, &naive.token)?;
            same("end", &real.expires_at, &naive.expires_at)?;
            if let Some(token) = naive.token.filter(|token| token.0 > 0) {
                same("by token", &self.table.granted(token), &Some((naive.id, naive.owner)))?;
            }
            let resources: Vec<Resource> = naive.parts.iter().map(|part| part.resource.clone()).collect();
            same("resources", &sorted(real.resources), &sorted(resources))?;
            same("converting", &real.converting_to.is_some(), &naive.conversion.is_some())?;
            let blockers = match naive.token {
                None => self.reference.blockers(naive.id),
                Some(_) => self.reference.conversion_blockers(naive.id),
            };
            let standing = self.table.standing(naive.id).unwrap_or_default();
            same("number of blockers", &standing.blockers_len, &blockers.len())?;
            if blockers.len() <= crate::BLOCKERS_LEN_MAX {
                let ids: Vec<LockId> = blockers.iter().map(|(_, id)| *id).collect();
                same("blockers", &sorted(standing.blockers), &sorted(ids))?;
            }
        }
        self.compare_intents()
    }

    fn compare_intents(&self) -> Result<(), String> {
        let root = self.table.nodes(&Path::root(), usize::MAX).into_iter().next();
        let held = self.reference.locks.iter().flat_map(|lock| {
            lock.parts.iter().filter(|part| part.held || lock.token.is_some()).map(|part| &part.resource)
        });
        let below = held.filter(|resource| !resource.path.is_empty() || resource.mode.on_child_list());
        let change = below.clone().filter(|resource| resource.mode.intends_change()).count();
        let (read, all) = (below.clone().count() - change, below.count());
        match root {
            None => same("intents without nodes", &all, &0),
            Some(root) => same("intents", &(root.intent_read, root.intent_change), &(read, change)),
        }
    }
}

/// The reference names no cycles and no blockers in its answers; the rest must be equal. That a cycle is
/// one is checked here.
fn plain_outcome(outcome: Outcome) -> Result<Outcome, String> {
    Ok(match outcome {
        Outcome::Refused(refusal) => Outcome::Refused(plain_refusal(refusal)?),
        other => other,
    })
}

fn plain_conversion(outcome: ConvertOutcome) -> Result<ConvertOutcome, String> {
    Ok(match outcome {
        ConvertOutcome::Refused(refusal) => ConvertOutcome::Refused(plain_refusal(refusal)?),
        other => other,
    })
}

fn plain_refusal(refusal: Refusal) -> Result<Refusal, String> {
    match refusal {
        Refusal::Busy { blockers } if blockers.is_empty() => Err("busy without blockers".into()),
        Refusal::Busy { .. } => Ok(Refusal::Busy { blockers: vec![] }),
        Refusal::Deadlock(cycle) => check_cycle(&cycle).map(|()| Refusal::Deadlock(Cycle(vec![]))),
        Refusal::Frozen => Ok(Refusal::Frozen),
    }
}

fn plain_effect(effect: Effect) -> Result<Effect, String> {
    Ok(match effect {
        Effect::ConversionDeadlocked { owner, lock, cycle } => {
            check_cycle(&cycle)?;
            Effect::ConversionDeadlocked { owner, lock, cycle: Cycle(vec![]) }
        }
        Effect::Deadlocked { owner, lock, cycle } => {
            check_cycle(&cycle)?;
            Effect::Deadlocked { owner, lock, cycle: Cycle(vec![]) }
        }
        other => sort_blockers(other),
    })
}

fn sort_blockers(mut effect: Effect) -> Effect {
    if let Effect::TimedOut { blockers, .. } | Effect::ConversionTimedOut { blockers, .. } = &mut effect {
        blockers.sort_unstable();
    }
    effect
}

fn check_cycle(Cycle(steps): &Cycle) -> Result<(), String> {
    for (index, step) in steps.iter().enumerate() {
        let next = &steps[(index + 1) % steps.len()];
        if step.holder != next.waiter || !step.wants.conflicts(&step.has) {
            return Err(format!("not a cycle: {steps:?}"));
        }
    }
    if steps.len() < 2 { Err(format!("too short a cycle: {steps:?}")) } else { Ok(()) }
}

fn sorted<T: std::fmt::Debug>(mut list: Vec<T>) -> Vec<T> {
    list.sort_by_key(|item| format!("{item:?}"));
    list
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, naive: &T) -> Result<(), String> {
    if real == naive { Ok(()) } else { Err(format!("{what}: table {real:?}, reference {naive:?}")) }
}

fn run(steps: &[Step], fault: Option<Fault>) -> Result<(), String> {
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let mut pair = Pair::new(steps, fault);
        steps
            .iter()
            .enumerate()
            .try_for_each(|(at, step)| pair.take(step).map_err(|error| format!("step {at}: {error}")))
    }));
    attempt.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

/// Leaves out steps as long as what remains still fails.
fn reduce(mut steps: Vec<Step>, fault: Option<Fault>) -> Vec<Step> {
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(start..(start + size).min(steps.len()));
            if run(&fewer, fault).is_err() { steps = fewer } else { start += size }
        }
        size /= 2;
    }
    steps
}

/// Panics are how the table says that it contradicts itself; here they are results, not news.
fn silence_panics() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let planted = panic.location().is_some_and(|at| !at.file().ends_with("_test.rs"));
            let mine = std::thread::current().name().is_some_and(|name| name.starts_with("model_test"));
            if !(planted && mine) {
                usual(panic);
            }
        }));
    });
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn the_table_does_what_the_reference_does() {
    let first = setting("LOCKWOOD_MODEL_SEED", 0);
    let histories = setting("LOCKWOOD_MODEL_HISTORIES", HISTORIES);
    silence_panics();
    for seed in KEPT_SEEDS.into_iter().chain(first..first + histories) {
        let steps = history(seed);
        if run(&steps, None).is_err() {
            let reduced = reduce(steps, None);
            let error = run(&reduced, None).unwrap_err();
            let steps: Vec<String> = reduced.iter().map(|step| format!("{step:?}\n")).collect();
            let again = format!("LOCKWOOD_MODEL_SEED={seed} LOCKWOOD_MODEL_HISTORIES=1");
            panic!("seed {seed}: {error}\n{again}\n{}", steps.concat());
        }
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    silence_panics();
    let missed: Vec<Fault> = Fault::ALL
        .into_iter()
        .filter(|fault| (0..HISTORIES).all(|seed| run(&history(seed), Some(*fault)).is_ok()))
        .collect();
    assert_eq!(missed, [], "faults that no history noticed");
}
