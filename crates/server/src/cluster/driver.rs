//! The driver of transitions, the owner of shard 1: it keeps how far one is, does what is to be done next, and goes on
//! after a crash or a takeover. Decides nothing about the order of things; `lockwood-router` does.

use super::{
    Message, address_of,
    handover::{Handover, Takeover},
    pull, shard_at, survey,
    work::{Report, Task},
};
use crate::{clustered::preferences, shared::Shared};
use bytes::Bytes;
use lockwood_engine::{Action as Doing, Intent, NoRules, PutIf, Request};
use lockwood_model::{DocumentKey, Json};
use lockwood_node::{shard::Call, territory::SYSTEM, trouble::Trouble};
use lockwood_router::{
    Action, Change, Donor, Drive, Event, Host, HostMode, Planned, ShardMap, ShardNo, Step, Transition,
    TransitionError, check_hosts,
};
use lockwood_wire::Code;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Notify;

/// The shard whose owner drives transitions.
pub(super) const FIRST: ShardNo = ShardNo(1);
/// How often a transition that waits for somebody is looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// A step that makes no progress for so long is worth an alert.
const STUCK: Duration = Duration::from_secs(10);
/// A donor that had to copy so often does not get it right by itself.
const ROUNDS_MAX: u32 = 3;
/// How long a shard may take to show that it is there.
const PROBE_PATIENCE: Duration = Duration::from_secs(1);
/// A step that only waits for answers is tried again after this.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to look at every document of a shard.
const SURVEY_PATIENCE: Duration = Duration::from_secs(600);

/// What the driver can be told. Any shard passes it on.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub(crate) enum Command {
    /// Change some parameters of the map; a transition that comes of it is driven by hand.
    Config {
        change: Value,
        #[serde(default)]
        force: bool,
    },
    /// Go over to another map, from end to end.
    Reshard {
        change: Value,
        throttle: Option<u64>,
    },
    /// Say how far it is.
    Status,
    Pause,
    Resume,
    Throttle {
        rate: Option<u64>,
    },
    Abort,
    /// A donor shall copy.
    Copy {
        shard: u32,
    },
    /// A donor shall clean up, when its time comes.
    Cleanup {
        shard: u32,
    },
}

/// What the driver keeps at hand besides what is on record.
#[derive(Default)]
pub(crate) struct Driver {
    /// One command or step at a time.
    busy: tokio::sync::Mutex<()>,
    wake: Notify,
    /// What shards gave to be handed over, by address. Asked for again after a crash.
    handovers: Mutex<BTreeMap<String, Handover>>,
    watch: Mutex<Watch>,
}

/// When something last changed, to tell what is stuck and how fast donors are.
#[derive(Default)]
struct Watch {
    changed: Option<Instant>,
    seen: String,
    speeds: BTreeMap<ShardNo, Speed>,
    /// By donor, since when what it copied is not what arrived, and what differs.
    differs: BTreeMap<ShardNo, (Instant, String)>,
}

struct Speed {
    since: Instant,
    from: u64,
    rate: f64,
}

fn key() -> DocumentKey {
    DocumentKey::new("shards", "transition".parse().expect("it is a key"))
}

/// The transition on record, if there is one.
fn load(shared: &Shared) -> Result<Option<Transition>, Trouble> {
    let reading = shared.shard.read();
    let Some((id, _)) = reading.namespace(SYSTEM)? else { return Ok(None) };
    let Some(document) = reading.state().document(id, &key())? else { return Ok(None) };
    let read = document.get("transition").and_then(|json| serde_json::from_str(json.as_str()).ok());
    Ok(read)
}

async fn save(shared: &Arc<Shared>, transition: &Transition) -> Result<(), Trouble> {
    let json = serde_json::to_string(transition).expect("a transition is valid JSON");
    put(shared, key(), "transition", &json).await
}

/// Keeps something for the next step, or the next owner.
pub(super) async fn put(
    shared: &Arc<Shared>,
    at: DocumentKey,
    name: &str,
    json: &str,
) -> Result<(), Trouble> {
    let fields = vec![(name.into(), Json::trusted(json))];
    let doing = Doing::Put { fields, when: PutIf::Always };
    let request = Request { intents: vec![Intent { at, action: doing }], ..Request::default() };
    let call = Call { requests: vec![request], ..Call::default() };
    let pending = shared.shard.decide_write(SYSTEM, &call, &NoRules, shared.clock.now())?;
    shared.shard.settle_write(&call, pending).await?;
    Ok(())
}

/// Drives transitions for ever, if this is the shard whose owner does.
pub(crate) async fn drive(shared: Arc<Shared>) {
    if shared.cluster.this() != FIRST {
        return;
    }
    loop {
        // What is not fresh now may be fresh again in a moment.
        let waits = !shared.authority.is_fresh() || try_step(&shared).await;
        let wake = shared.cluster.driver.wake.notified();
        match waits {
            true => drop(tokio::time::timeout(INTERVAL, wake).await),
            false => wake.await,
        }
    }
}

/// Takes a step in a task of its own: whatever happens in it, it is tried again.
async fn try_step(shared: &Arc<Shared>) -> bool {
    let stepping = Arc::clone(shared);
    match tokio::spawn(async move { step(&stepping).await }).await {
        Ok(Ok(under_way)) => return under_way,
        Ok(Err(trouble)) => {
            tracing::warn!(why = trouble.message, "a step of resharding failed; it is tried again");
        }
        Err(error) => tracing::error!(%error, "a step of resharding failed; it is tried again"),
    }
    true
}

/// Does what is to be done now; says whether there will be more.
async fn step(shared: &Arc<Shared>) -> Result<bool, Trouble> {
    let _busy = shared.cluster.driver.busy.lock().await;
    let Some(mut transition) = load(shared)?.filter(|transition| !transition.is_over()) else {
        return Ok(false);
    };
    loop {
        let before = transition.clone();
        let mut events = Vec::new();
        for action in transition.actions() {
            events.extend(act(shared, &transition, action).await);
        }
        if transition.paused {
            rest(shared, &transition).await;
        }
        note_differing(shared, &transition, &events);
        for event in events {
            transition.apply(event);
        }
        note(shared, &transition);
        if transition == before {
            return Ok(!transition.is_over());
        }
        save(shared, &transition).await?;
        if transition.step != before.step {
            tracing::info!(step = ?transition.step, epoch = transition.map.epoch, "resharding goes on");
            shared.cluster.driver.handovers.lock().clear();
        } else if transition.step != Step::Import {
            // What was handed over is not on record, so that step is not left half done.
            return Ok(!transition.is_over());
        }
    }
}

/// Tells the donors that they are to rest.
async fn rest(shared: &Arc<Shared>, transition: &Transition) {
    for donor in &transition.donors {
        let _ = order(shared, transition, donor.shard, None, donor.round).await;
    }
}

/// Carries an action out; what came of it are events.
async fn act(shared: &Arc<Shared>, transition: &Transition, action: Action) -> Vec<Event> {
    match action {
        Action::Publish { map, to } => {
            // What others are told has to be there for those that open later.
            if let Err(trouble) = shared.cluster.record(&map).await {
                let failed = |node| Event::Failed { node, problem: trouble.message.clone() };
                return to.into_iter().map(failed).collect();
            }
            let publishing = to.into_iter().map(|node| publish(shared, &map, node));
            futures_util::future::join_all(publishing).await
        }
        Action::Export { from } => vec![export(shared, transition, from).await],
        Action::Import { to } => vec![import(shared, transition, to).await],
        Action::Copy { donor, round } => work(shared, transition, donor, Task::Copy, round).await,
        Action::Verify { donor, round } => work(shared, transition, donor, Task::Verify, round).await,
        Action::Clean { donor } => work(shared, transition, donor, Task::Clean, 0).await,
        Action::Done => Vec::new(),
    }
}

async fn publish(shared: &Arc<Shared>, map: &ShardMap, node: String) -> Event {
    let epoch = map.epoch;
    match give_map(shared, &node, map).await {
        Ok(()) => Event::Acknowledged { node, epoch },
        Err(trouble) => Event::Failed { node, problem: trouble.message },
    }
}

async fn give_map(shared: &Arc<Shared>, node: &str, map: &ShardMap) -> Result<(), Trouble> {
    super::give_map(shared, named(node)?, map).await
}

/// The shard that takes part in a transition under this name.
fn named(node: &str) -> Result<ShardNo, Trouble> {
    shard_at(node).ok_or_else(|| Trouble::new(Code::BadMap, format!("{node} is not a shard")))
}

/// Sends something to a shard, this one included.
async fn tell(
    shared: &Arc<Shared>,
    shard: ShardNo,
    target: &str,
    body: impl Into<Bytes>,
) -> Result<Value, Trouble> {
    let message = Message { patience: Some(PATIENCE), ..Message::post(target, body) };
    let answer = shared.cluster.ask(shared, shard, &message).await;
    let answer = answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))?;
    if !answer.status().is_success() {
        let why = told_by(answer.body());
        return Err(Trouble::unreachable(shard, format!("shard {shard} refused: {why}")));
    }
    serde_json::from_slice(answer.body())
        .map_err(|_| Trouble::unreachable(shard, format!("shard {shard} answered something else")))
}

async fn export(shared: &Arc<Shared>, transition: &Transition, node: String) -> Event {
    let epoch = transition.map.epoch;
    match handed_over(shared, &node).await {
        Ok(handover) => {
            shared.cluster.driver.handovers.lock().insert(node.clone(), handover);
            Event::Exported { node, epoch }
        }
        Err(trouble) => Event::Failed { node, problem: trouble.message },
    }
}

async fn handed_over(shared: &Arc<Shared>, node: &str) -> Result<Handover, Trouble> {
    let value = tell(shared, named(node)?, "/internal/export", "").await?;
    serde_json::from_value(value).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))
}

async fn import(shared: &Arc<Shared>, transition: &Transition, node: String) -> Event {
    let epoch = transition.map.epoch;
    let takeover = Takeover::of(shared.cluster.driver.handovers.lock().values());
    let body = serde_json::to_string(&takeover).expect("a takeover is valid JSON");
    let imported = match named(&node) {
        Ok(shard) => tell(shared, shard, "/internal/import", body).await.map(drop),
        Err(trouble) => Err(trouble),
    };
    match imported {
        Ok(()) => Event::Imported { node, epoch },
        Err(trouble) => Event::Failed { node, problem: trouble.message },
    }
}

async fn order(
    shared: &Arc<Shared>,
    transition: &Transition,
    donor: ShardNo,
    task: Option<Task>,
    round: u32,
) -> Result<Report, Trouble> {
    let order = json!({ "task": task, "round": round, "paused": transition.paused,
        "throttle": transition.throttle });
    let report = tell(shared, donor, "/internal/work", order.to_string()).await?;
    serde_json::from_value(report).map_err(|error| Trouble::new(Code::BadBody, error.to_string()))
}

/// Has a donor work on something, and says how far it is.
async fn work(
    shared: &Arc<Shared>,
    transition: &Transition,
    donor: ShardNo,
    task: Task,
    round: u32,
) -> Vec<Event> {
    let name = format!("shard {}", donor.0);
    let report = match order(shared, transition, donor, Some(task), round).await {
        Ok(report) => report,
        Err(trouble) => return vec![Event::Failed { node: name, problem: trouble.message }],
    };
    let Report { progress, running, error } = report;
    let (transition, forced) = (transition.map.transition, transition.forced);
    let mut events = Vec::new();
    match task {
        _ if progress.round < round => {}
        Task::Copy => {
            let (copied, total, done) = (progress.seen, progress.total, progress.copy_done);
            events.push(Event::Copied { donor, transition, round, copied, total, done });
        }
        Task::Verify if progress.verified => events.push(Event::Verified { donor, transition, round }),
        Task::Verify => {
            if let Some(problem) = progress.differs.filter(|_| !running) {
                events.push(Event::Differs { donor, transition, round, problem });
            }
        }
        Task::Clean => {
            // Whoever gave up the old places by force has what is not confirmed stay there.
            let given_up = forced && !running && progress.differs.is_some();
            let (removed, done) = (progress.removed, progress.clean_done || given_up);
            events.push(Event::Cleaned { donor, transition, removed, done });
            let stays = progress.differs.filter(|_| !running && !done);
            events.extend(stays.map(|problem| Event::Failed { node: name.clone(), problem }));
        }
    }
    events.extend(error.map(|problem| Event::Failed { node: name, problem }));
    events
}

/// Carries a command out here, or has the driver do it.
pub(crate) async fn command(shared: &Arc<Shared>, command: &Command) -> Result<Value, Trouble> {
    if shared.cluster.this() == FIRST {
        return command_here(shared, command).await;
    }
    let body = serde_json::to_string(command).expect("a command is valid JSON");
    // A request that only reads the status is refused soon if shard 1 does not answer.
    let patience = Some(if matches!(command, Command::Status) { PATIENCE } else { PATIENCE * 6 });
    let message = Message { patience, ..Message::post("/internal/driver", body) };
    let answer = shared.cluster.ask(shared, FIRST, &message).await;
    let answer = answer.map_err(|error| {
        let message = format!("the owner of shard 1, which drives all of this, is away: {error}");
        Trouble::unreachable(FIRST, message)
    })?;
    passed_on(&answer)
}

/// What the driver answered to a command.
fn passed_on(answer: &hyper::Response<Bytes>) -> Result<Value, Trouble> {
    let value: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    if answer.status().is_success() {
        return Ok(value);
    }
    let code = serde_json::from_value(value["code"].clone()).unwrap_or(Code::ShardUnreachable);
    Err(Trouble::new(code, value["detail"].as_str().unwrap_or("the driver did not say why").to_owned()))
}

/// Carries a command out as the driver.
pub(crate) async fn command_here(shared: &Arc<Shared>, command: &Command) -> Result<Value, Trouble> {
    let driver = &shared.cluster.driver;
    if let Command::Status = command {
        return status(shared).await;
    }
    let _busy = driver.busy.lock().await;
    let answer = match command {
        Command::Config { change, force } => config(shared, change, *force).await,
        Command::Reshard { change, throttle } => reshard(shared, change, *throttle).await,
        _ => {
            let mut transition = under_way(shared)?;
            if matches!(command, Command::Abort) && matches!(transition.step, Step::Activate | Step::Copy) {
                // While nodes are told of the way back nobody serves what moves.
                reachable(shared, &transition.map).await?;
            }
            told(&mut transition, command)?;
            save(shared, &transition).await?;
            Ok(json!({ "step": transition.step }))
        }
    };
    driver.wake.notify_one();
    answer
}

fn under_way(shared: &Shared) -> Result<Transition, Trouble> {
    let found = load(shared)?.filter(|transition| !transition.is_over());
    let message = "no resharding is under way; `lockwood reshard --to MAP` begins one";
    found.ok_or_else(|| Trouble::new(Code::Resharding, message))
}

fn told(transition: &mut Transition, command: &Command) -> Result<(), Trouble> {
    let refused = |error: TransitionError| Trouble::new(Code::Resharding, error.to_string());
    match command {
        Command::Pause => transition.pause(),
        Command::Resume => transition.resume(),
        Command::Throttle { rate } => transition.throttle = *rate,
        Command::Abort => transition.abort().map_err(refused)?,
        Command::Copy { shard } => transition.copy(Some(ShardNo(*shard))).map_err(refused)?,
        Command::Cleanup { shard } => transition.cleanup(Some(ShardNo(*shard))).map_err(refused)?,
        Command::Config { .. } | Command::Reshard { .. } | Command::Status => {}
    }
    Ok(())
}

async fn config(shared: &Arc<Shared>, change: &Value, force: bool) -> Result<Value, Trouble> {
    let planned = planned(shared, change)?;
    make_shards(shared, change).await?;
    match planned {
        Planned::Unchanged => {}
        Planned::Publish(map) => rehost(shared, &map).await?,
        Planned::Transition { preparing, keep } => {
            begin(shared, preparing, keep, Drive::ByHand, None).await?;
        }
        Planned::Drop => {
            let mut transition = under_way(shared)?;
            let dropped = transition.drop_prev(force);
            dropped.map_err(|error| Trouble::new(Code::NotCopied, error.to_string()))?;
            save(shared, &transition).await?;
        }
    }
    prefer(shared, change).await?;
    Ok(json!({ "ok": true }))
}

async fn reshard(shared: &Arc<Shared>, change: &Value, throttle: Option<u64>) -> Result<Value, Trouble> {
    // Without a map there is nothing to go over from.
    shared.cluster.current().ok_or_else(super::no_map)?;
    let planned = planned(shared, change)?;
    make_shards(shared, change).await?;
    match planned {
        Planned::Unchanged => {}
        Planned::Publish(map) => rehost(shared, &map).await?,
        Planned::Transition { preparing, keep } => {
            begin(shared, preparing, keep, Drive::Whole, throttle).await?;
        }
        Planned::Drop => {
            return Err(Trouble::new(Code::BadMap, "a map to go over to has no prev; leave it out"));
        }
    }
    prefer(shared, change).await?;
    Ok(json!({ "ok": true }))
}

fn planned(shared: &Shared, change: &Value) -> Result<Planned, Trouble> {
    let bad = |error: String| Trouble::new(Code::BadMap, error);
    let change = over_shards(Change::from_json(change).map_err(|error| bad(error.to_string()))?)?;
    let current = shared.cluster.current();
    let planned = change.apply(current.as_ref().map(|current| &current.map));
    let busy = load(shared)?.filter(|transition| !transition.is_over());
    let planned = planned.map_err(|error| match &busy {
        None => bad(error.to_string()),
        Some(_) => {
            let message =
                format!("{error}; `lockwood reshard status` tells how far the resharding under way is");
            Trouble::new(Code::Resharding, message)
        }
    })?;
    match (&planned, busy) {
        (Planned::Transition { .. }, Some(_)) => {
            let message =
                "a resharding is still being cleaned up; `lockwood reshard status` tells how far it is";
            Err(Trouble::new(Code::Resharding, message))
        }
        _ => Ok(planned),
    }
}

/// The same change with shards for hosts: who owns a shard is not for a map to say. The hosts that are named are where
/// operators would like shards to be, see [`prefer`].
fn over_shards(change: Change) -> Result<Change, Trouble> {
    let Some(list) = &change.list else { return Ok(change) };
    check_hosts("list", list).map_err(|error| Trouble::new(Code::BadMap, error.to_string()))?;
    let shards = (1..).map(ShardNo).take(list.len());
    let host = |shard| Host { mode: HostMode::Rw, weight: 1, address: address_of(shard) };
    Ok(Change { list: Some(shards.map(|shard| vec![host(shard)]).collect()), ..change })
}

/// Makes the shards of a list.
async fn make_shards(shared: &Arc<Shared>, change: &Value) -> Result<(), Trouble> {
    let Some(membership) = shared.cluster.membership() else { return Ok(()) };
    let Ok(Change { list: Some(list), .. }) = Change::from_json(change) else { return Ok(()) };
    let shards: Vec<ShardNo> = (1..).map(ShardNo).take(list.len()).collect();
    let made = membership.node.database.ensure_shards(&shards).await;
    made.map_err(|error| Trouble::new(Code::ShardUnreachable, format!("nothing was changed: {error}")))
}

/// Notes the hosts of a list. Last, because shards move to them at once, this one among them.
async fn prefer(shared: &Arc<Shared>, change: &Value) -> Result<(), Trouble> {
    let Some(membership) = shared.cluster.membership() else { return Ok(()) };
    let Ok(Change { list: Some(list), .. }) = Change::from_json(change) else { return Ok(()) };
    let owner = (membership.shard, membership.epoch);
    Box::pin(preferences::note(&membership.node, list, owner)).await
}

async fn rehost(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    if let Some(mut transition) = load(shared)?.filter(|transition| !transition.is_over()) {
        transition.rehost(map.shards.clone());
        return save(shared, &transition).await;
    }
    reachable(shared, map).await?;
    super::publish(shared, map).await
}

async fn begin(
    shared: &Arc<Shared>,
    preparing: ShardMap,
    keep: usize,
    drive: Drive,
    throttle: Option<u64>,
) -> Result<(), Trouble> {
    let current = shared.cluster.current().ok_or_else(super::no_map)?;
    reachable(shared, &preparing).await?;
    has_room_for_all(shared, &current.map, &preparing).await?;
    let mut transition = Transition::start(&current.map, preparing, keep, drive);
    transition.throttle = throttle;
    save(shared, &transition).await
}

/// A map that has no shard for something that is there is not begun with either.
async fn has_room_for_all(shared: &Arc<Shared>, now: &ShardMap, then: &ShardMap) -> Result<(), Trouble> {
    if !survey::is_due(&then.curr) {
        return Ok(());
    }
    let body = then.to_json().to_string();
    for shard in now.shard_numbers() {
        let message =
            Message { patience: Some(SURVEY_PATIENCE), ..Message::post("/internal/survey", body.clone()) };
        let answer = shared.cluster.ask(shared, shard, &message).await;
        let answer = answer.map_err(|error| pull::unreachable_shard(shard, &error.to_string()))?;
        passed_on(&answer)?;
    }
    Ok(())
}

/// A map that some shard cannot take is not begun with.
async fn reachable(shared: &Arc<Shared>, map: &ShardMap) -> Result<(), Trouble> {
    for shard in map.shard_numbers().filter(|shard| *shard != shared.cluster.this()) {
        let question = Message {
            method: hyper::Method::GET,
            patience: Some(PATIENCE),
            ..Message::post("/internal/map", "")
        };
        let begun = Instant::now();
        let answer = loop {
            let answer = shared.cluster.peers()?.ask(shard, map.epoch, &question).await;
            // A shard that is new finds an owner in a moment, and one whose owner is lost another one.
            match answer {
                Err(_) if begun.elapsed() < PATIENCE => tokio::time::sleep(INTERVAL).await,
                answer => break answer,
            }
        };
        let refused =
            |why: String| Trouble::new(Code::ShardUnreachable, format!("nothing was changed: {why}"));
        let answer = answer.map_err(|error| refused(error.to_string()))?;
        if !answer.status().is_success() {
            return Err(refused(format!("shard {shard} does not take part: {}", told_by(answer.body()))));
        }
    }
    Ok(())
}

/// The sentence in what a shard answered.
pub(super) fn told_by(body: &[u8]) -> String {
    let problem: Value = serde_json::from_slice(body).unwrap_or_default();
    match problem["detail"].as_str() {
        Some(detail) => detail.to_owned(),
        None => String::from_utf8_lossy(body).into_owned(),
    }
}

/// Remembers what differs, for as long as it does.
fn note_differing(shared: &Shared, transition: &Transition, events: &[Event]) {
    let differs = &mut shared.cluster.driver.watch.lock().differs;
    differs.retain(|shard, _| transition.donors.iter().any(|donor| donor.shard == *shard && donor.round > 0));
    for event in events {
        match event {
            Event::Differs { donor, problem, .. } => {
                let known = differs.entry(*donor).or_insert_with(|| (Instant::now(), String::new()));
                known.1.clone_from(problem);
            }
            Event::Verified { donor, .. } => drop(differs.remove(donor)),
            _ => {}
        }
    }
}

/// Remembers when something last changed.
fn note(shared: &Shared, transition: &Transition) {
    let mut watch = shared.cluster.driver.watch.lock();
    let copied: Vec<_> = transition.donors.iter().map(|donor| (donor.copied, donor.removed)).collect();
    let waits: Vec<String> = transition.waits().into_iter().map(|(name, _)| name).collect();
    let seen = format!("{:?} {} {copied:?} {waits:?}", transition.step, transition.paused);
    if watch.seen != seen {
        watch.seen = seen;
        watch.changed = Some(Instant::now());
    }
    for donor in &transition.donors {
        let now = Instant::now();
        let done = donor.copied + donor.removed;
        let fresh = Speed { since: now, from: done, rate: 0.0 };
        let speed = watch.speeds.entry(donor.shard).or_insert(fresh);
        let passed = now.duration_since(speed.since).as_secs_f64();
        if passed > 0.5 {
            let rate = done.saturating_sub(speed.from) as f64 / passed;
            *speed = Speed { since: now, from: done, rate };
        }
    }
}

async fn status(shared: &Arc<Shared>) -> Result<Value, Trouble> {
    let map = shared.cluster.current().map_or(Value::Null, |current| current.map.to_json());
    let Some(transition) = load(shared)? else {
        return Ok(json!({ "map": map, "step": "none", "alerts": [] }));
    };
    // What came of the last one is told until the next one begins.
    let is_over = transition.is_over();
    let alerts = alerts(shared, &transition).await;
    let donors = donors(&shared.cluster.driver.watch.lock(), &transition);
    let waits: Vec<Value> =
        transition.waits().into_iter().map(|(name, error)| json!({ "for": name, "error": error })).collect();
    let step = if is_over { json!("none") } else { json!(transition.step) };
    Ok(
        json!({ "map": map, "step": step, "last": transition.map.epoch, "paused": transition.paused && !is_over,
        "throttle": transition.throttle, "aborting": transition.aborting, "forced": transition.forced,
        "donors": donors, "waits": waits, "alerts": alerts }),
    )
}

fn donors(watch: &Watch, transition: &Transition) -> Vec<Value> {
    let donors = transition.donors.iter().map(|donor| {
        let speed = watch.speeds.get(&donor.shard).filter(|_| !transition.is_over());
        let rate = speed.map_or(0.0, |speed| speed.rate);
        let left = donor.total.map(|total| total.saturating_sub(donor.copied));
        let left_ms = left.filter(|_| rate > 0.0).map(|left| (left as f64 / rate * 1000.0) as u64);
        json!({ "shard": donor.shard, "copied": donor.copied, "total": donor.total, "done": donor.done,
            "verified": donor.verified, "removed": donor.removed, "cleaned": donor.cleaned,
            "round": donor.round, "rate": rate.round(), "left_ms": left_ms })
    });
    donors.collect()
}

/// What somebody should look at, in words.
async fn alerts(shared: &Arc<Shared>, transition: &Transition) -> Vec<String> {
    if transition.is_over() {
        return Vec::new();
    }
    let (mut alerts, still) = {
        let watch = shared.cluster.driver.watch.lock();
        let still = watch.changed.map_or(Duration::ZERO, |changed| changed.elapsed());
        (differing(&watch, transition), still)
    };
    if !transition.paused && still >= STUCK {
        alerts.extend(stuck(transition, still));
        alerts.extend(silent(shared, transition).await);
    }
    alerts
}

/// Donors that copy again and again.
fn differing(watch: &Watch, transition: &Transition) -> Vec<String> {
    let rounds = transition.donors.iter().filter(|donor| donor.round >= ROUNDS_MAX && !donor.verified);
    let alert = |donor: &Donor| {
        let known = watch.differs.get(&donor.shard);
        let since = known.map_or(Duration::ZERO, |(since, _)| since.elapsed()).as_secs();
        let what = known.map_or("what differs is told when it is compared the next time", |(_, what)| what);
        format!(
            "{} copies again and again for {since} s, {} times so far, and something differs each time: {what}. Look \
             at that document with shard/raw/select on both shards, started with --raw-operations, and take the copy \
             away that is wrong with shard/raw/delete, or go back with `lockwood reshard abort`",
            donor.name(),
            donor.round
        )
    };
    rounds.map(alert).collect()
}

/// Whom a step waits for that makes no progress.
fn stuck(transition: &Transition, still: Duration) -> Vec<String> {
    let waits = transition.waits().into_iter();
    let alert = |(name, error): (String, Option<&str>)| {
        let why = error.unwrap_or("nothing is heard of it");
        format!("{:?} waits for {name} for {} s: {why}", transition.step, still.as_secs())
    };
    waits.map(alert).collect()
}

/// The shards that do not answer now. A step may wait for one of them through another.
async fn silent(shared: &Arc<Shared>, transition: &Transition) -> Vec<String> {
    let Ok(peers) = shared.cluster.peers() else { return Vec::new() };
    let question = Message {
        method: hyper::Method::GET,
        patience: Some(PROBE_PATIENCE),
        ..Message::post("/internal/map", "")
    };
    let shards = transition.nodes.iter().filter_map(|node| shard_at(node));
    let others = shards.filter(|shard| *shard != shared.cluster.this());
    let asked = others.map(|shard| peers.ask(shard, transition.map.epoch, &question));
    let answers = futures_util::future::join_all(asked).await;
    let silent = answers.into_iter().filter_map(Result::err);
    silent.map(|error| format!("{error}; start that node again, or see what keeps it")).collect()
}
