//! Our own server and the requests it is asked. Knows nothing of measuring.

use super::{
    document,
    http::{self, Http, Session},
    load::Work,
};
use crate::peer::{self, Peer};
use std::{
    net::SocketAddr,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// How many connections take many leases.
const TAKERS: u64 = 32;

/// More than a cursor and its name take at the end of a page.
const CURSOR_BYTES_MAX: usize = 4096;

/// How many events a request has when many documents are made.
pub(crate) const BULK_LEN: u64 = 1_000;

pub(crate) struct Lockwood {
    pub(crate) peer: Peer,
    pub(crate) address: SocketAddr,
    pub(crate) data: PathBuf,
}

impl Lockwood {
    pub(crate) fn start(data: PathBuf) -> Lockwood {
        let (peer, address) = Peer::lockwood_at(&data);
        Lockwood { peer, address, data }
    }

    /// Ends it in an orderly way; gives what it has kept.
    pub(crate) fn stop(mut self) -> PathBuf {
        self.peer.end();
        self.data
    }

    pub(crate) async fn connect(&self) -> Http {
        Http::open(self.address).await
    }

    pub(crate) fn session(&self) -> Session {
        Session::open(self.address)
    }

    /// Makes documents with the keys from `first` on; `count` is a multiple of [`BULK_LEN`].
    pub(crate) fn fill(&self, namespace: &str, collection: &str, first: u64, count: u64) {
        let mut session = self.session();
        for first in (first..first + count).step_by(BULK_LEN as usize) {
            session.call(&create_many(namespace, collection, first));
        }
    }

    /// Takes so many leases below `lease`, for some owners.
    pub(crate) async fn take_many(&self, namespace: &str, count: u64, ttl_ms: u64) {
        let mut tasks = JoinSet::new();
        for taker in 0..TAKERS {
            let mut connection = self.connect().await;
            let namespace = namespace.to_owned();
            tasks.spawn(async move {
                for number in (taker..count).step_by(TAKERS as usize) {
                    let path = format!(r#"["lease","{number}"]"#);
                    connection.call(&take(&namespace, &taker_name(taker), &path, ttl_ms)).await;
                }
            });
        }
        tasks.join_all().await;
    }

    /// Lets all of them end at the same moment.
    pub(crate) async fn end_many(&self, namespace: &str, due: Instant) {
        let mut connection = self.connect().await;
        for taker in 0..TAKERS {
            let ttl_ms = (due - Instant::now()).as_millis();
            let body = format!(r#"{{"owner":"{}","ttl_ms":{ttl_ms}}}"#, taker_name(taker));
            connection.call(&http::post(&format!("/v1/{namespace}/locks/renew"), &body)).await;
        }
    }

    /// Declares an index and waits until it is used.
    pub(crate) fn index(&self, namespace: &str, collection: &str, field: &str) {
        let mut session = self.session();
        session.call(&http::put(&format!("/v1/{namespace}/indexes/{collection}/{field}")));
        let indexes = http::get(&format!("/v1/{namespace}/indexes"));
        peer::wait_until("the index is ready", || {
            let answer = session.call(&indexes);
            answer.contains("\"ready\"") && !answer.contains("\"building\"")
        });
    }
}

fn taker_name(taker: u64) -> String {
    format!("taker-{taker}")
}

/// A lease that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) lock: u64,
    pub(crate) token: u64,
}

impl Lease {
    /// From the answer to whoever took it.
    pub(crate) fn read(answer: &str) -> Lease {
        let number = |name| http::number_after(answer, name).unwrap_or_else(|| panic!("{name} in {answer}"));
        Lease { lock: number("\"lock\":"), token: number("\"token\":") }
    }
}

/// Takes and releases one path again and again.
pub(crate) struct Leaser {
    connection: Http,
    namespace: String,
    take: Vec<u8>,
}

impl Leaser {
    pub(crate) fn new(
        connection: Http,
        namespace: &str,
        (number, path): (usize, &str),
        ttl_ms: u64,
    ) -> Leaser {
        let take = take(namespace, &format!("client-{number}"), path, ttl_ms);
        Leaser { connection, namespace: namespace.to_owned(), take }
    }
}

impl Work for Leaser {
    async fn once(&mut self) -> Duration {
        let start = Instant::now();
        let lease = Lease::read(self.connection.call(&self.take).await);
        self.connection.call(&release(&self.namespace, lease)).await;
        start.elapsed()
    }
}

/// Takes a lease to write at and below a path, which is a list in JSON.
pub(crate) fn take(namespace: &str, owner: &str, path: &str, ttl_ms: u64) -> Vec<u8> {
    let resource = format!(r#"{{"path":{path},"mode":"write"}}"#);
    let body = format!(r#"{{"owner":"{owner}","resources":[{resource}],"ttl_ms":{ttl_ms}}}"#);
    http::post(&format!("/v1/{namespace}/locks"), &body)
}

pub(crate) fn release(namespace: &str, Lease { lock, token }: Lease) -> Vec<u8> {
    http::post(&format!("/v1/{namespace}/locks/{lock}/release"), &format!(r#"{{"token":{token}}}"#))
}

pub(crate) fn write(namespace: &str, body: &str) -> Vec<u8> {
    http::post(&format!("/v1/{namespace}/write"), body)
}

pub(crate) fn create(namespace: &str, collection: &str, key: u64) -> Vec<u8> {
    write(namespace, &format!(r#"{{"events":[{}]}}"#, create_event(collection, key)))
}

pub(crate) fn create_many(namespace: &str, collection: &str, first: u64) -> Vec<u8> {
    let events: Vec<String> = (first..first + BULK_LEN).map(|key| create_event(collection, key)).collect();
    write(namespace, &format!(r#"{{"events":[{}]}}"#, events.join(",")))
}

/// Sets the number of a document, provided nobody else has set it since `position`.
pub(crate) fn update_locked(
    namespace: &str,
    collection: &str,
    key: u64,
    number: u64,
    position: u64,
) -> Vec<u8> {
    let event = update_event(collection, key, number);
    let lock =
        format!(r#"{{"collection":"{collection}","key":{key},"field":"number","position":{position}}}"#);
    write(namespace, &format!(r#"{{"events":[{event}],"locks":[{lock}]}}"#))
}

/// Sets the number of a document.
pub(crate) fn update(namespace: &str, collection: &str, key: u64, number: u64) -> Vec<u8> {
    write(namespace, &format!(r#"{{"events":[{}]}}"#, update_event(collection, key, number)))
}

/// The same by somebody who holds a lock.
pub(crate) fn update_holding(
    namespace: &str,
    collection: &str,
    key: u64,
    number: u64,
    token: u64,
) -> Vec<u8> {
    let event = update_event(collection, key, number);
    write(namespace, &format!(r#"{{"events":[{event}],"tokens":[{token}]}}"#))
}

pub(crate) fn update_event(collection: &str, key: u64, number: u64) -> String {
    format!(r#"{{"type":"update","collection":"{collection}","key":{key},"fields":{{"number":{number}}}}}"#)
}

pub(crate) fn get(namespace: &str, collection: &str, key: u64) -> Vec<u8> {
    get_with(namespace, collection, key, "")
}

pub(crate) fn get_at(namespace: &str, collection: &str, key: u64, position: u64) -> Vec<u8> {
    get_with(namespace, collection, key, &format!("?at={position}"))
}

pub(crate) fn get_with(namespace: &str, collection: &str, key: u64, query: &str) -> Vec<u8> {
    http::get(&format!("/v1/{namespace}/documents/{collection}/{key}{query}"))
}

/// Finds the one document whose `field` is its name and the number.
pub(crate) fn filter(namespace: &str, collection: &str, field: &str, number: u64) -> Vec<u8> {
    let filter = filter_of(field, number);
    let body = format!(r#"{{"collection":"{collection}","filter":{filter}}}"#);
    http::post(&format!("/v1/{namespace}/filter"), &body)
}

/// The same as it stands to locks.
pub(crate) fn filter_under(
    namespace: &str,
    collection: &str,
    field: &str,
    number: u64,
    isolation: &str,
) -> Vec<u8> {
    let filter = filter_of(field, number);
    let body = format!(r#"{{"collection":"{collection}","filter":{filter},"isolation":"{isolation}"}}"#);
    http::post(&format!("/v1/{namespace}/filter"), &body)
}

pub(crate) fn join(namespace: &str, body: &str) -> Vec<u8> {
    http::post(&format!("/v1/{namespace}/join"), body)
}

pub(crate) fn filter_of(field: &str, number: u64) -> String {
    format!(r#"{{"field":"{field}","op":"=","value":"{field}-{number}"}}"#)
}

/// A page of a collection, from the beginning or from a cursor as it was given.
pub(crate) fn page(namespace: &str, collection: &str, limit: u64, cursor: Option<&str>) -> Vec<u8> {
    let cursor = cursor.map(|cursor| format!(r#","cursor":"{cursor}""#)).unwrap_or_default();
    let body = format!(r#"{{"collection":"{collection}","limit":{limit}{cursor}}}"#);
    http::post(&format!("/v1/{namespace}/filter"), &body)
}

/// The cursor for the page after this one, if there is one.
pub(crate) fn next_page(page: &str) -> Option<String> {
    // It comes last, and a page may be long.
    let last = page.get(page.len().saturating_sub(CURSOR_BYTES_MAX)..).unwrap_or(page);
    let rest = last.rfind("\"next\":\"").map(|at| &last[at + 8..]);
    rest.and_then(|rest| rest.split('"').next()).map(str::to_owned)
}

fn create_event(collection: &str, key: u64) -> String {
    let fields = document::json(key);
    format!(r#"{{"type":"create","collection":"{collection}","key":{key},"fields":{fields}}}"#)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_read_from_its_answer() {
        let answer = r#"{"outcome":"granted","lock":7,"state":"granted","token":9,"age_ms":0}"#;
        assert_eq!(Lease::read(answer), Lease { lock: 7, token: 9 });
    }

    #[test]
    fn the_last_page_has_no_next() {
        assert_eq!(next_page(r#"{"rows":[],"next":"c"}"#).as_deref(), Some("c"));
        assert_eq!(next_page(r#"{"rows":[]}"#), None);
    }
}
