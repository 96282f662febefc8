//! Purges under writers, while the server is killed and stopped again and again: what was acknowledged and not purged is
//! there, and of what was purged nothing is left, in no answer and in no byte of the files.
//!
//! `LOCKWOOD_PURGE_ROUNDS` says how often the server ends, `LOCKWOOD_PURGE_SEED` what is done by whom.

use crate::{
    document_crash::Wire,
    harness::{Ended, Server, eventually},
    purge::{purges, verify},
    purge_model::{Deed, Left, Model, Operation, Written, token},
    random::Random,
    store::Store,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

const ROUNDS: u64 = 3;
const SEED: u64 = 1;
const WRITERS: u64 = 3;
const NAMESPACES: [&str; 2] = ["left", "right"];
const COLLECTIONS: [&str; 3] = ["user", "order", "thing"];
/// Keys that are used again and again; others are used once.
const KEYS_LEN: u64 = 12;
/// So many purges are begun in a life at most: each has all files written anew.
const PURGES_LEN: u64 = 4;
/// The past of so many documents is looked at after each round.
const LOOKS_LEN: u64 = 8;

/// What all threads know, over all lives of the server.
#[derive(Default)]
struct Scene {
    known: [Mutex<Known>; NAMESPACES.len()],
    serial: AtomicU64,
}

/// What is known of a namespace.
#[derive(Default)]
struct Known {
    model: Model,
    /// What was sent and not answered, so that it may be done or not.
    sent: BTreeMap<u64, Operation>,
    /// Calls that were sent again and done again, with both positions.
    again: Vec<(Operation, u64, u64)>,
}

impl Scene {
    fn known(&self, namespace: usize) -> MutexGuard<'_, Known> {
        self.known[namespace].lock().unwrap()
    }

    fn serial(&self) -> u64 {
        self.serial.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// Somebody who asks one server until it is gone.
struct Client {
    scene: Arc<Scene>,
    wire: Wire,
    random: Random,
}

/// The server is gone or stops.
struct Gone;

impl Client {
    fn chance(&mut self, of_100: u64) -> bool {
        self.random.below(100) < of_100
    }

    fn collection(&mut self) -> &'static str {
        COLLECTIONS[self.random.below(COLLECTIONS.len() as u64) as usize]
    }

    fn namespace(&mut self) -> usize {
        self.random.below(NAMESPACES.len() as u64) as usize
    }

    fn write(&mut self) -> Result<(), Gone> {
        let serial = self.scene.serial();
        let len = if self.chance(60) { 1 } else { 2 + self.random.below(3) as usize };
        let mut written: Vec<Written> = Vec::new();
        for place in 0..len {
            let key = match self.chance(25) {
                true => token(serial, 'k', place),
                false => format!("key-{}", self.random.below(KEYS_LEN)),
            };
            let value = (!self.chance(15)).then(|| token(serial, 'v', place));
            let collection = self.collection();
            if !written.iter().any(|at| (at.collection, &at.key) == (collection, &key)) {
                written.push(Written { collection, key, value });
            }
        }
        let is_idempotent = self.chance(30);
        let operation = Operation { serial, deed: Deed::Write(written), is_idempotent };
        let namespace = self.namespace();
        let Some(first) = self.send(namespace, &operation)? else { return Ok(()) };
        if is_idempotent
            && self.chance(30)
            && let Some(second) = self.send(namespace, &operation)?
            && second != first
        {
            self.scene.known(namespace).again.push((operation, first, second));
        }
        Ok(())
    }

    fn purge(&mut self) -> Result<(), Gone> {
        let (namespace, collection) = (self.namespace(), self.collection());
        let deed = match self.random.below(100) {
            0..55 => match self.some_keys(namespace, collection) {
                keys if keys.is_empty() => return Ok(()),
                keys => Deed::PurgeDocuments(collection, keys),
            },
            55..85 => Deed::PurgeCollection(collection),
            _ => Deed::PurgeNamespace,
        };
        let operation = Operation { serial: self.scene.serial(), deed, is_idempotent: false };
        self.send(namespace, &operation).map(drop)
    }

    /// Keys that were written lately.
    fn some_keys(&mut self, namespace: usize, collection: &str) -> Vec<String> {
        let len = 1 + self.random.below(4) as usize;
        let known = self.scene.known(namespace);
        let recent = known.model.recent(20);
        let written = recent.iter().flat_map(|operation| match &operation.deed {
            Deed::Write(written) => written.as_slice(),
            _ => &[],
        });
        let keys: BTreeSet<&String> = written
            .filter(|at| at.collection == collection && at.value.is_some())
            .map(|at| &at.key)
            .collect();
        keys.into_iter().take(len).cloned().collect()
    }

    /// The position at which it was done; nothing if it was refused.
    fn send(&mut self, namespace: usize, operation: &Operation) -> Result<Option<u64>, Gone> {
        self.scene.known(namespace).sent.insert(operation.serial, operation.clone());
        let path = if matches!(operation.deed, Deed::Write(_)) { "write" } else { "purge" };
        let target = format!("/v1/{}/{path}", NAMESPACES[namespace]);
        let (status, answer) = self.wire.post(&target, &body(namespace, operation)).ok_or(Gone)?;
        let mut known = self.scene.known(namespace);
        let position = match (status, answer["code"].as_str().unwrap_or_default()) {
            (200 | 202, _) => Some(answer["position"].as_u64().unwrap()),
            (404, "no_document" | "no_collection" | "unknown_namespace")
            | (409, "purging" | "document_deleted")
            | (423, "locked") => None,
            // Stopping; what was decided may be done all the same.
            (503, _) => return Err(Gone),
            _ => panic!("{operation:?}: {status} {answer}"),
        };
        known.sent.remove(&operation.serial);
        if let Some(position) = position {
            known.model.note(position, operation);
        }
        Ok(position)
    }
}

fn body(namespace: usize, operation: &Operation) -> Value {
    let mut body = match &operation.deed {
        Deed::Write(written) => {
            let event = |Written { collection, key, value }: &Written| match value {
                Some(value) => {
                    json!({ "type": "put", "collection": collection, "key": key, "fields": { "v": value } })
                }
                None => json!({ "type": "delete", "collection": collection, "key": key }),
            };
            json!({ "events": written.iter().map(event).collect::<Vec<_>>(), "note": operation.note() })
        }
        Deed::PurgeDocuments(collection, keys) => json!({ "collection": collection, "keys": keys }),
        Deed::PurgeCollection(collection) => json!({ "collection": collection, "confirm": collection }),
        Deed::PurgeNamespace => json!({ "confirm": NAMESPACES[namespace] }),
    };
    body["user"] = operation.user().into();
    body["wait_ms"] = 10_000.into();
    if operation.is_idempotent {
        body["idempotency_key"] = operation.idempotency_key().into();
    }
    body
}

/// Writers and a purger, until the server is gone or told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    fn start(scene: &Arc<Scene>, address: SocketAddr, random: &mut Random) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..=WRITERS).map(|id| {
            let (scene, stop, seed) = (Arc::clone(scene), Arc::clone(&stop), random.next() | 1);
            thread::spawn(move || {
                let Some(wire) = Wire::connect(address) else { return };
                let mut client = Client { scene, wire, random: Random(seed) };
                let _gone = if id < WRITERS {
                    keep_writing(&mut client, &stop)
                } else {
                    purge_some(&mut client, &stop)
                };
            })
        });
        Load { threads: threads.collect(), stop }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn keep_writing(client: &mut Client, stop: &AtomicBool) -> Result<(), Gone> {
    while !stop.load(Ordering::Relaxed) {
        client.write()?;
    }
    Ok(())
}

fn purge_some(client: &mut Client, stop: &AtomicBool) -> Result<(), Gone> {
    for _ in 0..PURGES_LEN {
        thread::sleep(Duration::from_millis(client.random.below(250)));
        if stop.load(Ordering::Relaxed) {
            break;
        }
        client.purge()?;
    }
    Ok(())
}

/// Ends a server in one of several ways.
fn end(server: Server, random: &mut Random) -> Ended {
    match random.below(100) {
        0..70 => server.kill(),
        70..85 => server.stop(),
        _ => {
            server.signal("-TERM");
            thread::sleep(Duration::from_millis(random.below(50)));
            // It may be gone already.
            let _ = Command::new("kill").args(["-TERM", &server.id().to_string()]).output();
            server.wait()
        }
    }
}

#[test]
fn purges_take_what_they_name_and_nothing_else_however_the_server_ends() {
    let setting = |name, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let (rounds, seed) = (setting("LOCKWOOD_PURGE_ROUNDS", ROUNDS), setting("LOCKWOOD_PURGE_SEED", SEED));
    println!("LOCKWOOD_PURGE_SEED={seed} LOCKWOOD_PURGE_ROUNDS={rounds}");
    let mut random = Random(seed << 8 | 1);
    let scene = Arc::new(Scene::default());
    let mut server = Server::start(&[]);
    for round in 0..rounds {
        let load = Load::start(&scene, server.native, &mut random);
        thread::sleep(Duration::from_millis(50 + random.below(600)));
        let ended = end(server, &mut random);
        load.end();
        println!("round {round}: {}", scene.summary());
        server = verify(ended).restart(&[]);
        if random.below(2) == 0 {
            thread::sleep(Duration::from_millis(random.below(1200)));
            server = verify(end(server, &mut random)).restart(&[]);
        }
        scene.check(&server, &mut random);
    }
    verify(server.stop());
}

impl Scene {
    fn summary(&self) -> String {
        let known = (0..NAMESPACES.len()).map(|namespace| {
            let known = self.known(namespace);
            format!("{} at {}, {} unanswered", NAMESPACES[namespace], known.model.last(), known.sent.len())
        });
        known.collect::<Vec<_>>().join("; ")
    }

    /// Compares all that the server says, and the bytes it keeps, with what was acknowledged.
    fn check(&self, server: &Server, random: &mut Random) {
        let mut stores = Vec::new();
        for (namespace, name) in NAMESPACES.iter().enumerate() {
            let (store, mut known) = (Store::new(server, name), self.known(namespace));
            known.resolve(&store);
            // Once before the purges are complete, and once after.
            known.check_answers(&store, random);
            stores.push(store);
        }
        eventually("the purges are complete", || purges(&stores[0]).is_empty());
        let in_files = tokens_in(server.data());
        for (namespace, store) in stores.iter().enumerate() {
            let mut known = self.known(namespace);
            known.check_answers(store, random);
            let purged = known.model.purged_tokens();
            let dump = store.send("GET", "dump", "").body;
            let told: Vec<_> = purged.iter().filter(|token| dump.contains(*token)).collect();
            assert!(told.is_empty(), "in the dump of {}: {told:?}", store.namespace);
            let kept: Vec<_> = purged.intersection(&in_files).collect();
            assert!(kept.is_empty(), "in the files: {kept:?}");
        }
    }
}

/// All tokens in the files of a directory.
fn tokens_in(directory: &Path) -> BTreeSet<String> {
    let mut search = Command::new("grep");
    search.args(["-r", "-a", "-o", "-h", "-E", "zq[0-9]+[a-z][0-9]+zq"]).arg(directory).env("LC_ALL", "C");
    let output = search.output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

impl Known {
    /// Finds out what of that which was not answered was done.
    fn resolve(&mut self, store: &Store) {
        let sent = std::mem::take(&mut self.sent);
        let at = store.get("position");
        let horizon = at["horizon"].as_u64().unwrap();
        if horizon > self.model.horizon() {
            let purge = sent.values().find(|operation| operation.deed == Deed::PurgeNamespace);
            self.model.note(horizon, purge.expect("a namespace was purged, and nobody asked for it"));
        }
        assert_eq!(horizon, self.model.horizon(), "{at}");
        assert!(
            at["position"].as_u64().unwrap() >= self.model.last(),
            "{at}, and {} was told",
            self.model.last()
        );
        for (position, commit) in commits(store, horizon) {
            if self.model.at(position).is_none() {
                let by = |operation: &&Operation| commit["user"] == operation.user();
                let found = sent.values().find(by).unwrap_or_else(|| panic!("nobody wrote {commit}"));
                self.model.note(position, found);
            }
        }
        for (operation, first, second) in self.again.drain(..) {
            let is_purged = self.model.is_purged_between(&operation, first, second);
            assert!(
                is_purged,
                "done at {first} and at {second}, and nothing of it was purged: {operation:?}"
            );
        }
    }

    fn check_answers(&self, store: &Store, random: &mut Random) {
        let left = self.model.left();
        self.check_feed(store, &left);
        let expected = self.model.documents();
        assert_eq!(documents(store), expected, "the documents of {}", store.namespace);
        let all: Vec<&(String, String)> = expected.keys().collect();
        for _ in 0..LOOKS_LEN.min(all.len() as u64) {
            let (collection, key) = all[random.below(all.len() as u64) as usize];
            check_past(store, &left, (collection, key));
        }
    }

    fn check_feed(&self, store: &Store, left: &[Left<'_>]) {
        let mut commits = commits(store, self.model.horizon());
        for left in left {
            let commit = commits.remove(&left.position);
            let commit = commit.unwrap_or_else(|| panic!("{left:?} is lost in {}", store.namespace));
            assert_eq!(commit["user"], left.operation.user(), "{commit}");
            let note = left.is_whole().then(|| left.operation.note());
            assert_eq!(commit["note"], json!(note), "{commit}");
            let told: Vec<_> = commit["events"].as_array().unwrap().iter().map(told).collect();
            let expected = left.written.iter().map(|at| (at.collection, &*at.key, at.value.as_deref()));
            let expected: Vec<_> = expected.collect();
            assert_eq!(told, expected, "{commit}");
        }
        for (position, purge) in self.model.purges() {
            let commit = commits.remove(&position).unwrap_or_else(|| panic!("{purge:?} is not told of"));
            assert_eq!(commit["user"], purge.user(), "{commit}");
            assert!(commit["purged"].is_object(), "{commit}");
        }
        assert!(commits.is_empty(), "purged or never written: {commits:?}");
    }
}

/// What an event says: the document, and the value it has then if it is not deleted.
fn told(event: &Value) -> (&str, &str, Option<&str>) {
    let text = |name: &str| event[name].as_str().unwrap();
    (text("collection"), text("key"), event["fields"]["v"].as_str())
}

/// The history of a document has what was written to it, and no more; and it can be read as it was.
fn check_past(store: &Store, left: &[Left<'_>], (collection, key): (&str, &str)) {
    let own = |left: &Left<'_>| {
        let at = left.written.iter().find(|at| at.collection == collection && at.key == key)?;
        Some((left.position, at.value.clone()))
    };
    let expected: Vec<(u64, Option<String>)> = left.iter().filter_map(own).collect();
    let history = store.get(&format!("history/{collection}/{key}?limit=1000"));
    let entries = history["entries"].as_array().unwrap().iter();
    let positions: Vec<u64> = entries.map(|entry| entry["position"].as_u64().unwrap()).collect();
    let expected_positions: Vec<u64> = expected.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, expected_positions, "{history}");
    let (position, value) = &expected[expected.len() / 2];
    let target = format!("documents/{collection}/{key}?at={position}");
    match value {
        Some(value) => assert_eq!(store.get(&target)["document"]["value"]["v"], json!(value)),
        None => drop(store.send("GET", &target, "").assert_problem(404, "no_document")),
    }
}

/// All commits after a position.
fn commits(store: &Store, mut after: u64) -> BTreeMap<u64, Value> {
    let mut all = BTreeMap::new();
    loop {
        let page = store.get(&format!("changes?after={after}&limit=1000"));
        for commit in page["commits"].as_array().unwrap() {
            all.insert(commit["position"].as_u64().unwrap(), commit.clone());
        }
        after = page["next"].as_u64().unwrap();
        if after >= page["position"].as_u64().unwrap() {
            return all;
        }
    }
}

/// All documents, also deleted ones.
fn documents(store: &Store) -> BTreeMap<(String, String), (String, bool)> {
    let mut all = BTreeMap::new();
    for collection in COLLECTIONS {
        let page =
            store.post("filter", &json!({ "collection": collection, "deleted": "with", "limit": 10_000 }));
        assert_eq!(page["next"], Value::Null, "too many for a page");
        for document in page["documents"].as_array().unwrap() {
            let at = (collection.to_owned(), document["key"].as_str().unwrap().to_owned());
            let value = document["value"]["v"].as_str().unwrap().to_owned();
            all.insert(at, (value, document["deleted"].as_bool().unwrap()));
        }
    }
    all
}
