//! Random histories against the reference: every call must have the same outcome, every lock must be judged
//! alike, and every document must be the same afterwards.
//!
//! `LOCKWOOD_MODEL_HISTORIES` and `LOCKWOOD_MODEL_SEED` make it longer or start it elsewhere. A history
//! that fails is reduced to the fewest steps that still fail, and printed with its seed.

use crate::{
    Broken, BrokenBy, Limits, NoRules, PositionLock, Recent, Refused, Request, Target, View, decide,
    fault::{Fault, plant},
    reference::{Reference, Refusal, Why},
    scene::{NO_LIMITS, NOW, Scene},
    writer::{AHEAD, COLLECTIONS, NAMES, Random, Step, Writer},
};
use lockwood_model::{Change, Commit, Document, DocumentKey, Json, META_DELETED, Position};
use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, catch_unwind},
};

const HISTORIES: u64 = 20_000;
/// So many histories are enough to notice any planted fault.
const HISTORIES_TO_NOTICE: u64 = 2_000;
const STEPS: usize = 16;
/// Seeds that once found something; kept so that they always run.
const KEPT_SEEDS: [u64; 5] = [9, 21, 33, 52, 298];

/// How often something happened, to show that the histories reach everything.
type Reached = BTreeMap<String, u64>;

/// Both of them side by side.
struct Pair {
    scene: Scene,
    reference: Reference,
    limits: Limits,
    reached: Reached,
}

impl Pair {
    fn new() -> Pair {
        let (scene, reference) = (Scene::default(), Reference::default());
        Pair { scene, reference, limits: NO_LIMITS, reached: Reached::new() }
    }

    fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Call(requests) => self.call(requests),
            Step::Probe(locks) => {
                let request = Request { locks: self.placed(locks), ..Request::default() };
                let Ok(real) = decide(&request, &self.scene, self.limits, &NoRules, NOW);
                let naive = self.reference.broken(&request.locks);
                match real {
                    Ok(_) => same("broken", &BTreeMap::new(), &naive),
                    Err(Refused::Locked(broken)) => self.same_broken(&request.locks, &broken, &naive),
                    Err(other) => Err(format!("a probe was refused: {other}")),
                }
            }
            Step::Horizon(back) => {
                let horizon = self.place(*back).min(self.reference.position()).max(self.reference.horizon);
                self.scene.forget_before(horizon);
                self.reference.horizon = horizon;
                Ok(())
            }
            Step::Restart => {
                self.scene.recent = Recent::default();
                Ok(())
            }
            Step::Limit(limits) => {
                self.limits = *limits;
                Ok(())
            }
        }
    }

    fn place(&self, back: Position) -> Position {
        Position((self.reference.position().0 + AHEAD).saturating_sub(back.0))
    }

    fn placed(&self, locks: &[PositionLock]) -> Vec<PositionLock> {
        let place =
            |lock: &PositionLock| PositionLock { position: self.place(lock.position), ..lock.clone() };
        locks.iter().map(place).collect()
    }

    fn call(&mut self, requests: &[Request]) -> Result<(), String> {
        let place = |request: &Request| Request { locks: self.placed(&request.locks), ..request.clone() };
        let requests: Vec<Request> = requests.iter().map(place).collect();
        let naive = self.reference.call(&requests, self.limits, NOW);
        let real = self.scene.call(&requests, self.limits);
        match (real, naive) {
            (Ok(real), Ok(naive)) => {
                let real: Vec<Commit> = real.into_iter().map(in_order).collect();
                same("commits", &real, &naive)?;
                self.reach("committed");
                real.iter()
                    .flat_map(|commit| &commit.events)
                    .for_each(|event| self.reach(event.change.name()));
                let changed: BTreeSet<&DocumentKey> =
                    real.iter().flat_map(|commit| &commit.events).map(|event| &event.at).collect();
                changed.into_iter().try_for_each(|at| self.compare(at))
            }
            (Err(Refused::Locked(real)), Err(Refusal::Locked(naive))) => {
                let locks = requests.iter().map(|request| &request.locks);
                let mut locks = locks.filter(|locks| {
                    real.iter().all(|broken| locks.get(broken.index).is_some_and(|lock| *lock == broken.lock))
                });
                let locks = locks.next_back().ok_or("broken locks are not those of a request")?;
                self.same_broken(locks, &real, &naive)
            }
            (Err(real), Err(Refusal::Other(naive))) => {
                self.reach(format!("{real:?}").split_once([' ', '(']).map_or("", |(name, _)| name));
                same("refusal", &real, &naive)
            }
            (real, naive) => Err(format!("outcome: engine {real:?}, reference {naive:?}")),
        }
    }

    fn reach(&mut self, what: &str) {
        match self.reached.get_mut(what) {
            Some(times) => *times += 1,
            None => drop(self.reached.insert(what.to_owned(), 1)),
        }
    }

    /// The same locks are broken, and each by something that breaks it.
    fn same_broken(
        &mut self,
        locks: &[PositionLock],
        real: &[Broken],
        naive: &BTreeMap<usize, Why>,
    ) -> Result<(), String> {
        let indices: Vec<usize> = real.iter().map(|broken| broken.index).collect();
        if indices != naive.keys().copied().collect::<Vec<_>>() {
            return Err(format!("broken: engine {real:?}, reference {naive:?} of {locks:?}"));
        }
        for broken in real {
            same("lock", &broken.lock, &locks[broken.index])?;
            match (&broken.by, &naive[&broken.index]) {
                (BrokenBy::TooOld { horizon }, Why::TooOld) => {
                    same("horizon", horizon, &self.reference.horizon)?;
                    self.reach("too old");
                }
                (BrokenBy::Write { position, origin }, Why::Writes(writes))
                    if writes.contains_key(position) =>
                {
                    same("origin", origin, &writes[position])?;
                    self.reach(kind(&broken.lock.target));
                }
                (by, why) => return Err(format!("broken: engine {by:?}, reference {why:?}")),
            }
        }
        Ok(())
    }

    /// A document is what it should be, and remembers when each of its fields was touched.
    fn compare(&self, at: &DocumentKey) -> Result<(), String> {
        let naive = self.reference.version(at).ok_or("a document too many")?;
        let real = self.scene.state.documents.get(at).ok_or("a document too few")?;
        let created = self.reference.created(at);
        same("deleted", &real.deleted, &naive.deleted)?;
        same("positions", &(real.position, real.created), &(naive.position, created))?;
        same("existence", &real.existence, &self.reference.last_touched(at, &[META_DELETED]))?;
        let content: BTreeMap<&str, &Json> = real.present().collect();
        same("content", &content, &naive.fields.iter().map(|(name, held)| (&**name, &held.text)).collect())?;
        for name in NAMES {
            same("touched", &(name, real.touched(name)), &(name, self.reference.last_touched(at, &[name])))?;
        }
        Ok(())
    }

    fn compare_all(&self) -> Result<(), String> {
        let keys: Vec<DocumentKey> = self.reference.versions().into_keys().collect();
        same("documents", &self.scene.state.documents.keys().cloned().collect(), &keys)?;
        same("position", &self.scene.state.position, &self.reference.position())?;
        for (collection, name) in COLLECTIONS.iter().flat_map(|at| NAMES.map(|name| (at, name))) {
            let Ok(real) = self.scene.touched(collection, name);
            let naive = self.reference.last_touched_in(collection, name);
            same("touched in any", &(collection, name, real), &(collection, name, naive))?;
        }
        keys.iter().try_for_each(|at| self.compare(at))
    }
}

fn kind(target: &Target) -> &'static str {
    match target {
        Target::Document(_) => "document lock",
        Target::Field(..) => "field lock",
        Target::CollectionField { filter: None, .. } => "collection field lock",
        Target::CollectionField { filter: Some(_), .. } => "filtered lock",
    }
}

/// The order of fields within an event means nothing.
fn in_order(mut commit: Commit) -> Commit {
    for event in &mut commit.events {
        match &mut event.change {
            Change::Created { fields } | Change::Restored { fields } => fields.sort_by(|a, b| a.0.cmp(&b.0)),
            Change::Updated { set, removed } | Change::Recreated { fields: set, removed } => {
                set.sort_by(|a, b| a.0.cmp(&b.0));
                removed.sort();
            }
            Change::Deleted { fields } => fields.sort(),
        }
    }
    commit
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: &T, naive: &T) -> Result<(), String> {
    if real == naive { Ok(()) } else { Err(format!("{what}: engine {real:?}, reference {naive:?}")) }
}

/// Makes a history up as it goes. Fails with its steps and what was wrong with the last of them.
fn explore(seed: u64) -> Result<Reached, (Vec<Step>, String)> {
    let mut writer = Writer::new(seed);
    let mut steps = Vec::new();
    let attempt = caught(|| {
        let mut pair = Pair::new();
        for at in 0..STEPS {
            steps.push(writer.step(&pair.reference));
            pair.take(&steps[at]).map_err(|error| format!("step {at}: {error}"))?;
        }
        pair.compare_all()?;
        Ok(pair.reached)
    });
    attempt.map_err(|error| (steps, error))
}

fn run(steps: &[Step]) -> Result<(), String> {
    caught(|| {
        let mut pair = Pair::new();
        for (at, step) in steps.iter().enumerate() {
            pair.take(step).map_err(|error| format!("step {at}: {error}"))?;
        }
        pair.compare_all()
    })
}

fn caught<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default())
    })
}

/// Leaves out steps as long as what remains still fails, then requests, intents and locks of those that
/// remain.
fn reduce(steps: Vec<Step>) -> Vec<Step> {
    let mut steps = fewer(steps, &|steps| steps);
    for at in 0..steps.len() {
        let before = steps.clone();
        let with = |step: Step| -> Vec<Step> {
            let mut steps = before.clone();
            steps[at] = step;
            steps
        };
        match steps[at].clone() {
            Step::Probe(locks) => steps[at] = Step::Probe(fewer(locks, &|locks| with(Step::Probe(locks)))),
            Step::Call(requests) => {
                let mut requests = fewer(requests, &|requests| with(Step::Call(requests)));
                for index in 0..requests.len() {
                    let call = |request: Request| {
                        let mut requests = requests.clone();
                        requests[index] = request;
                        with(Step::Call(requests))
                    };
                    let mut request = requests[index].clone();
                    let whole = request.clone();
                    request.locks = fewer(request.locks, &|locks| call(Request { locks, ..whole.clone() }));
                    let whole = request.clone();
                    request.intents =
                        fewer(request.intents, &|intents| call(Request { intents, ..whole.clone() }));
                    requests[index] = request;
                }
                steps[at] = Step::Call(requests);
            }
            Step::Horizon(_) | Step::Restart | Step::Limit(_) => {}
        }
    }
    steps
}

fn fewer<T: Clone>(mut list: Vec<T>, whole: &dyn Fn(Vec<T>) -> Vec<Step>) -> Vec<T> {
    let mut size = list.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < list.len() {
            let mut fewer = list.clone();
            fewer.drain(start..(start + size).min(list.len()));
            if run(&whole(fewer.clone())).is_err() { list = fewer } else { start += size }
        }
        size /= 2;
    }
    list
}

/// Panics are how documents and the engine say that they contradict themselves; here they are results.
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
fn the_engine_does_what_the_reference_does() {
    let first = setting("LOCKWOOD_MODEL_SEED", 0);
    let histories = setting("LOCKWOOD_MODEL_HISTORIES", HISTORIES);
    silence_panics();
    for seed in KEPT_SEEDS.into_iter().chain(first..first + histories) {
        if let Err((steps, _)) = explore(seed) {
            let reduced = reduce(steps);
            let error = run(&reduced).unwrap_err();
            let steps: Vec<String> = reduced.iter().map(|step| format!("{step:?}\n")).collect();
            let again = format!("LOCKWOOD_MODEL_SEED={seed} LOCKWOOD_MODEL_HISTORIES=1");
            panic!("seed {seed}: {error}\n{again}\n{}", steps.concat());
        }
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    silence_panics();
    let mut missed = Vec::new();
    for fault in Fault::ALL {
        plant(Some(fault));
        let noticed = (0..HISTORIES_TO_NOTICE).find_map(|seed| Some((seed, explore(seed).err()?.1)));
        plant(None);
        match noticed {
            Some((seed, error)) => {
                println!("{fault:?}: seed {seed}: {}", error.chars().take(160).collect::<String>());
            }
            None => missed.push(fault),
        }
    }
    assert_eq!(missed, [], "faults that no history noticed");
}

/// What never happens in any history is not tested by them.
#[test]
fn the_histories_reach_every_outcome() {
    let mut reached = Reached::new();
    for seed in 0..HISTORIES_TO_NOTICE {
        for (what, times) in explore(seed).unwrap() {
            *reached.entry(what).or_default() += times;
        }
    }
    println!("{reached:?}");
    let wanted = [
        "committed",
        "created",
        "updated",
        "deleted",
        "restored",
        "NoDocument",
        "Exists",
        "NotDeleted",
        "NotAList",
        "NoNode",
        "NoContainer",
        "OverLimit",
        "too old",
        "document lock",
        "field lock",
        "collection field lock",
        "filtered lock",
    ];
    let missing: Vec<&str> = wanted.into_iter().filter(|what| !reached.contains_key(*what)).collect();
    assert_eq!(missing, [""; 0], "outcomes that no history has");
}

/// A document forgets when the oldest of many removed fields were touched. What it says of them may be too
/// late, never too early, and of every field it has it is exact.
#[test]
fn forgotten_fields_are_judged_carefully() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let mut document = Document::unborn();
        let mut exact: BTreeMap<Box<str>, Position> = BTreeMap::new();
        document.apply(&Change::Created { fields: Vec::new() }, Position(1));
        for position in (2..200).map(Position) {
            let mut names = || -> BTreeSet<Box<str>> {
                (0..random.below(12)).map(|_| format!("f{}", random.below(200)).into()).collect()
            };
            let set: Vec<_> = names().into_iter().map(|name| (name, Json::trusted("1"))).collect();
            let removed: Vec<_> = names().into_iter().collect();
            let change = Change::Updated { set, removed };
            document.apply(&change, position);
            exact.extend(change.touches().into_iter().map(|name| (name.into(), position)));
            for (name, touched) in &exact {
                let (real, is_there) = (document.touched(name), document.get(name).is_some());
                assert!(
                    real == *touched || (real > *touched && !is_there),
                    "seed {seed}: {name} at {position}"
                );
            }
        }
    }
}
