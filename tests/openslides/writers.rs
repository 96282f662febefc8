//! Several clients at once, each with connections of its own: what optimistic locks promise must hold between
//! them. Knows nothing of the order in which they come.

use crate::{
    http::{Connection, JSON, Reply},
    store::{
        READER, Store, WRITER, assert_is, create, equals, locked, locking, model, position, request, update,
    },
};
use serde_json::{Value, json};
use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
    thread,
};

const CLIENTS: u64 = 4;
/// So many changes each client must bring about.
const SUCCESSES: usize = 25;
/// With one success in each round of tries there cannot be more; far more means that nobody gets through.
const TRIES_MAX: usize = 10_000;

/// A client with several connections to each side, used in turn.
struct Client {
    readers: Vec<Connection>,
    writers: Vec<Connection>,
    turn: usize,
}

impl Client {
    fn open(reader: SocketAddr, writer: SocketAddr) -> Client {
        let open = |address| (0..3).map(|_| Connection::open(address)).collect();
        Client { readers: open(reader), writers: open(writer), turn: 0 }
    }

    fn read(&mut self, route: &str, body: &Value) -> Value {
        self.turn += 1;
        let turn = self.turn % self.readers.len();
        let reply =
            self.readers[turn].send("POST", &format!("{READER}/{route}"), Some(JSON), &body.to_string());
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.json()
    }

    fn ask(&mut self, route: &str, body: &Value) -> Reply {
        self.turn += 1;
        let turn = self.turn % self.writers.len();
        self.writers[turn].send("POST", &format!("{WRITER}/{route}"), Some(JSON), &body.to_string())
    }

    /// Reads the counter and writes the next number under a lock on it; the position, if the lock held.
    fn count_up(&mut self) -> Option<u64> {
        let read = self.read("get", &json!({ "fqid": "a/1" }));
        let next = read["count"].as_u64().unwrap() + 1;
        let locks = json!({ "a/1/count": read["meta_position"] });
        let reply = self.ask("write", &locking(&[update("a/1", &json!({ "count": next }))], &locks));
        let position = position(&reply);
        if position.is_none() {
            assert_is(&reply, 400, &locked(&["a/1/count"]));
        }
        position
    }

    /// The positions of all its successes.
    fn count_up_often(&mut self) -> Vec<u64> {
        let positions: Vec<u64> = (0..TRIES_MAX).filter_map(|_| self.count_up()).take(SUCCESSES).collect();
        assert_eq!(positions.len(), SUCCESSES, "the others never let this one through");
        positions
    }

    /// Makes a model of this name unless there is one; whether it did.
    fn claim(&mut self, name: &str) -> bool {
        let id = self.ask("reserve_ids", &json!({ "collection": "a", "amount": 1 })).json()["ids"][0].clone();
        let filter = equals("name", &json!(name));
        for _ in 0..TRIES_MAX {
            let answer = self.read("filter", &json!({ "collection": "a", "filter": filter }));
            if answer["data"] != json!({}) {
                return false;
            }
            let event = create(&format!("a/{id}"), &json!({ "name": name }));
            let locks = json!({ "a/name": { "position": answer["position"], "filter": filter } });
            let reply = self.ask("write", &locking(&[event], &locks));
            if position(&reply).is_some() {
                return true;
            }
            assert_is(&reply, 400, &locked(&["a/name"]));
        }
        panic!("{name} is neither there nor can it be made");
    }
}

/// Runs one closure per client at the same time.
fn at_once<T: Send + 'static>(
    store: &Store,
    work: impl Fn(&mut Client) -> T + Send + Clone + 'static,
) -> Vec<T> {
    let (reader, writer) = (store.server.openslides_reader(), store.server.openslides_writer());
    let start = |_| {
        let work = work.clone();
        thread::spawn(move || work(&mut Client::open(reader, writer)))
    };
    let threads: Vec<_> = (0..CLIENTS).map(start).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Where the servers are, for a client that is a process of its own.
const READER_VARIABLE: &str = "LOCKWOOD_TEST_READER";
const WRITER_VARIABLE: &str = "LOCKWOOD_TEST_WRITER";
/// What such a client says before its positions.
const POSITIONS: &str = "positions: ";

/// Not a test: the program that each of the four processes below runs.
#[test]
#[ignore = "run by the test of several processes"]
fn a_process_that_counts_up() {
    let address = |name: &str| std::env::var(name).unwrap().parse().unwrap();
    let mut client = Client::open(address(READER_VARIABLE), address(WRITER_VARIABLE));
    println!("\n{POSITIONS}{}", json!(client.count_up_often()));
}

fn start_process(store: &Store) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "writers::a_process_that_counts_up"])
        .env(READER_VARIABLE, store.server.openslides_reader().to_string())
        .env(WRITER_VARIABLE, store.server.openslides_writer().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn positions_of(process: Child) -> Vec<u64> {
    let output = process.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let positions = text.lines().find_map(|line| line.strip_prefix(POSITIONS)).unwrap();
    serde_json::from_str(positions).unwrap()
}

#[test]
fn no_update_is_lost_between_four_processes() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "count": 0 }))]);
    let processes: Vec<Child> = (0..CLIENTS).map(|_| start_process(&store)).collect();
    let mut positions: Vec<u64> = processes.into_iter().flat_map(positions_of).collect();
    positions.sort_unstable();
    let total = CLIENTS * SUCCESSES as u64;
    assert_eq!(positions, (2..=total + 1).collect::<Vec<u64>>());
    assert_is(&store.get("a/1"), 200, &model(&json!({ "count": total }), total + 1));
    for position in positions {
        let then = store.ask_reader("get", &json!({ "fqid": "a/1", "position": position }));
        assert_eq!(then.json()["count"], position - 1, "every success counted by one");
    }
}

#[test]
fn a_name_is_claimed_once_between_four_clients() {
    const NAMES: usize = 20;
    let mut store = Store::start();
    store.apply(&[create("b/1", &json!({}))]);
    let claims = at_once(&store, |client| (0..NAMES).map(|name| client.claim(&name.to_string())).collect());
    let claims: Vec<Vec<bool>> = claims;
    for name in 0..NAMES {
        let winners = claims.iter().filter(|won| won[name]).count();
        assert_eq!(winners, 1, "{name}");
        let filter = equals("name", &json!(name.to_string()));
        assert_eq!(
            store.read("count", &json!({ "collection": "a", "filter": filter }))["count"],
            1,
            "{name}"
        );
    }
}

#[test]
fn no_id_is_given_out_twice_between_four_clients() {
    let store = Store::start();
    let reserve = |client: &mut Client| -> Vec<u64> {
        let body = json!({ "collection": "a", "amount": 3 });
        let ids = (0..SUCCESSES).map(|_| client.ask("reserve_ids", &body).json()["ids"].clone());
        ids.flat_map(|ids| serde_json::from_value::<Vec<u64>>(ids).unwrap()).collect()
    };
    let mut ids = at_once(&store, reserve).concat();
    ids.sort_unstable();
    assert_eq!(ids, (1..=3 * CLIENTS * SUCCESSES as u64).collect::<Vec<u64>>());
}

#[test]
fn unlocked_writes_of_four_clients_all_take_place() {
    let mut store = Store::start();
    store.apply(&[create("a/1", &json!({ "list": [] }))]);
    let add = |client: &mut Client| {
        for _ in 0..SUCCESSES {
            let id = client.ask("reserve_ids", &json!({ "collection": "b", "amount": 1 })).json()["ids"][0]
                .clone();
            let lists = json!({ "add": { "list": [id] } });
            let event = json!({ "type": "update", "fqid": "a/1", "list_fields": lists });
            let reply = client.ask("write", &request(&[event]));
            assert!(position(&reply).is_some(), "{reply:?}");
        }
    };
    at_once(&store, add);
    let total = CLIENTS * SUCCESSES as u64;
    let model = store.get("a/1").json();
    let mut list: Vec<u64> = serde_json::from_value(model["list"].clone()).unwrap();
    list.sort_unstable();
    assert_eq!(list, (1..=total).collect::<Vec<u64>>());
    assert_eq!(model["meta_position"], total + 1);
}
