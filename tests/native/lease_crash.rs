//! A server that is killed again and again while leases are taken, renewed and released: every grant that was told
//! is there, no release that was told comes back, and nothing is ever held twice. `LOCKWOOD_KILLS` makes it longer.

use crate::{
    document_crash::Wire,
    harness::{BINARY, Ended, Server},
    http,
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

const KILLS: u64 = 8;
const OWNERS: u64 = 4;
const PATHS: u64 = 6;
const HOUR: u64 = 3_600_000;

/// A lease as its owner knows it.
#[derive(Debug, Clone)]
struct Mine {
    owner: String,
    lock: u64,
    token: u64,
    /// The last end that was told.
    expires_at: String,
}

/// What was told so far, over all lives of the server.
#[derive(Default)]
struct Known {
    /// Path → who has it.
    held: BTreeMap<String, Mine>,
    /// Released, but nobody said so yet.
    in_doubt: BTreeMap<String, Mine>,
    released: Vec<u64>,
    token_max: u64,
    grants: u64,
    renewals: u64,
}

fn owner_loop(id: u64, address: SocketAddr, known: &Mutex<Known>, stop: &AtomicBool) -> Option<()> {
    let owner = format!("owner-{id}");
    let mut wire = Wire::connect(address)?;
    for number in id.. {
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let path = format!("p/{}", (number * 7 + id) % PATHS);
        let mine = known.lock().unwrap().held.get(&path).filter(|mine| mine.owner == owner).cloned();
        match mine {
            None => take(&mut wire, &owner, &path, known)?,
            Some(mine) if number % 3 == 0 => renew(&mut wire, &path, &mine, known)?,
            Some(mine) => release(&mut wire, &path, mine, known)?,
        }
    }
    None
}

fn take(wire: &mut Wire, owner: &str, path: &str, known: &Mutex<Known>) -> Option<()> {
    let before = known.lock().unwrap().token_max;
    let resources = json!([{ "path": path, "mode": "write" }]);
    let body = json!({ "owner": owner, "resources": resources, "ttl_ms": HOUR, "wait_ms": 5 });
    let (status, answer) = wire.post("/v1/crash/locks", &body)?;
    if status == 423 || answer["code"] == "deadlock" {
        return Some(());
    }
    assert!(status == 201 || status == 200, "{answer}");
    let number = |name: &str| answer[name].as_u64().unwrap();
    let expires_at = answer["expires_at"].as_str().unwrap().to_owned();
    let mine = Mine { owner: owner.to_owned(), lock: number("lock"), token: number("token"), expires_at };
    let mut known = known.lock().unwrap();
    assert!(status == 200 || mine.token > before, "token {} after {before}", mine.token);
    known.token_max = known.token_max.max(mine.token);
    known.grants += 1;
    let other = known.held.insert(path.to_owned(), mine);
    assert!(other.is_none(), "{path} is {owner}'s, and still that of {other:?}");
    Some(())
}

fn renew(wire: &mut Wire, path: &str, mine: &Mine, known: &Mutex<Known>) -> Option<()> {
    let target = format!("/v1/crash/locks/{}/renew", mine.lock);
    let (status, answer) = wire.post(&target, &json!({ "token": mine.token, "ttl_ms": 2 * HOUR }))?;
    assert_eq!(status, 200, "{answer}");
    let mut known = known.lock().unwrap();
    known.renewals += 1;
    let held = known.held.get_mut(path).unwrap();
    answer["leases"][0]["expires_at"].as_str().unwrap().clone_into(&mut held.expires_at);
    Some(())
}

fn release(wire: &mut Wire, path: &str, mine: Mine, known: &Mutex<Known>) -> Option<()> {
    {
        // From here on somebody else may get it before this one hears that it is released.
        let mut known = known.lock().unwrap();
        known.held.remove(path);
        known.in_doubt.insert(mine.lock.to_string(), mine.clone());
    }
    let target = format!("/v1/crash/locks/{}/release", mine.lock);
    let (status, answer) = wire.post(&target, &json!({ "token": mine.token }))?;
    assert_eq!(status, 200, "{answer}");
    let mut known = known.lock().unwrap();
    known.in_doubt.remove(&mine.lock.to_string());
    known.released.push(mine.lock);
    Some(())
}

fn run_until_killed(server: Server, known: &Arc<Mutex<Known>>, load: Duration) -> Ended {
    let stop = Arc::new(AtomicBool::new(false));
    let spawn = |id| {
        let (known, stop, address) = (Arc::clone(known), Arc::clone(&stop), server.native);
        thread::spawn(move || owner_loop(id, address, &known, &stop))
    };
    let threads: Vec<_> = (0..OWNERS).map(spawn).collect();
    thread::sleep(load);
    let ended = server.kill();
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| {
        thread.join().unwrap();
    });
    ended
}

/// Compares what is there with what was told, and goes on with what is there.
fn check(server: &Server, known: &mut Known) {
    let page = http::get_json(server, "/v1/crash/locks?limit=1000");
    let mut found: BTreeMap<String, Mine> = BTreeMap::new();
    for lock in page["locks"].as_array().unwrap() {
        assert_eq!(lock["state"], "granted", "{lock}");
        let segments = lock["resources"][0]["path"].as_array().unwrap();
        let path = segments.iter().map(|segment| segment.as_str().unwrap()).collect::<Vec<_>>().join("/");
        let number = |name: &str| lock[name].as_u64().unwrap();
        let mine = Mine {
            owner: lock["owner"]["name"].as_str().unwrap().to_owned(),
            lock: number("lock"),
            token: number("token"),
            expires_at: lock["expires_at"].as_str().unwrap().to_owned(),
        };
        assert!(!known.released.contains(&mine.lock), "{mine:?} was released");
        assert!(mine.lock > 0 && found.insert(path, mine).is_none(), "held twice: {page}");
    }
    for (path, told) in &known.held {
        let there = found.get(path).unwrap_or_else(|| panic!("{path} of {told:?} is lost"));
        assert_eq!((there.lock, there.token, &there.owner), (told.lock, told.token, &told.owner), "{path}");
        assert!(there.expires_at >= told.expires_at, "{path} would end early: {there:?}, told was {told:?}");
    }
    known.token_max = found.values().map(|mine| mine.token).fold(known.token_max, u64::max);
    known.in_doubt.clear();
    known.held = found;
}

#[test]
fn leases_survive_however_often_the_server_is_killed() {
    let kills = std::env::var("LOCKWOOD_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
    let known = Arc::new(Mutex::new(Known::default()));
    let mut server = Server::start(&[]);
    for life in 0..kills {
        // Between a moment and half a second, differently every time.
        let load = Duration::from_millis(20 + (life * 7919) % 480);
        let ended = run_until_killed(server, &known, load);
        server = ended.restart(&[]);
        check(&server, &mut known.lock().unwrap());
    }
    let known = known.lock().unwrap();
    println!("{} grants, {} renewals, {} releases", known.grants, known.renewals, known.released.len());
    assert!(known.grants > kills && !known.released.is_empty(), "the load was no load: {}", known.grants);
    let data = server.data().to_owned();
    let _ended = server.kill();
    let verified = Command::new(BINARY).args(["verify", "--json", "--data"]).arg(&data).output().unwrap();
    let answer: Value = serde_json::from_slice(&verified.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&verified.stderr)));
    assert_eq!(answer["sound"], json!(true), "{answer}");
}
