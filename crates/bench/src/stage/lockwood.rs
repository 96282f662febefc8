//! Our own server and the requests it is asked. Knows nothing of measuring.

use super::{
    document,
    http::{self, Http, Session},
};
use crate::peer::{self, Peer};
use std::{net::SocketAddr, path::PathBuf};

/// How many events a request has when many documents are made.
pub(crate) const BULK_LEN: u64 = 1_000;

pub(crate) struct Lockwood {
    pub(crate) peer: Peer,
    pub(crate) address: SocketAddr,
    data: PathBuf,
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

pub(crate) fn update_event(collection: &str, key: u64, number: u64) -> String {
    format!(r#"{{"type":"update","collection":"{collection}","key":{key},"fields":{{"number":{number}}}}}"#)
}

pub(crate) fn get(namespace: &str, collection: &str, key: u64) -> Vec<u8> {
    http::get(&format!("/v1/{namespace}/documents/{collection}/{key}"))
}

pub(crate) fn get_at(namespace: &str, collection: &str, key: u64, position: u64) -> Vec<u8> {
    http::get(&format!("/v1/{namespace}/documents/{collection}/{key}?at={position}"))
}

/// Finds the one document whose `field` is its name and the number.
pub(crate) fn filter(namespace: &str, collection: &str, field: &str, number: u64) -> Vec<u8> {
    let filter = filter_of(field, number);
    let body = format!(r#"{{"collection":"{collection}","filter":{filter}}}"#);
    http::post(&format!("/v1/{namespace}/filter"), &body)
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

fn create_event(collection: &str, key: u64) -> String {
    let fields = document::json(key);
    format!(r#"{{"type":"create","collection":"{collection}","key":{key},"fields":{fields}}}"#)
}
