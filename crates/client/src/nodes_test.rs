//! Asking again, against nodes that refuse, break off, or say what the test tells them to.

use crate::{
    Code, DocumentKey, Error, LeaseRequest, Leases, LockId, Nodes, PutOptions, ReadOptions, ReleaseRequest,
    Store,
    documents_test::{Said, WRITTEN, answer, hear, ok},
    wire::{Fields, WriteCall},
};
use std::time::Duration;
use tokio::{io::AsyncWriteExt, net::TcpListener, task::JoinHandle};

/// What a node does with a request.
enum Act {
    Answer(String),
    /// Hears it and says nothing.
    BreakOff,
}

use Act::{Answer, BreakOff};

struct Node {
    address: String,
    said: JoinHandle<Vec<Said>>,
}

/// A node that does so with one request after the other, and is gone then.
async fn node(acts: Vec<Act>) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    Node { address, said: tokio::spawn(play(listener, acts)) }
}

async fn play(listener: TcpListener, acts: Vec<Act>) -> Vec<Said> {
    let mut said = Vec::new();
    for act in acts {
        let (mut stream, _) = listener.accept().await.unwrap();
        said.push(hear(&mut stream).await);
        if let Answer(text) = act {
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    }
    said
}

/// A node that answers everything so.
async fn stubborn(text: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            hear(&mut stream).await;
            stream.write_all(text.as_bytes()).await.unwrap();
        }
    });
    address
}

/// An address where nobody is.
async fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string()
}

fn problem(code: Code) -> Act {
    Answer(refusal(code))
}

fn refusal(code: Code) -> String {
    let body =
        format!(r#"{{"type":"t","title":"t","status":{},"code":"{code}","detail":"d"}}"#, code.status());
    answer(&format!("{} No", code.status()), &body)
}

fn done() -> Act {
    Answer(ok(WRITTEN))
}

fn ann() -> DocumentKey {
    DocumentKey::new("user", "42".parse().unwrap())
}

async fn put(store: &Store) -> Result<u64, Error> {
    let fields: Fields = serde_json::from_str("{}").unwrap();
    store.put(&ann(), &fields, &PutOptions::default()).await.map(|written| written.position)
}

fn retry_key(said: &Said) -> &str {
    let (_, rest) = said.header.split_once("lockwood-retry: ").expect("a write has a key");
    rest.lines().next().unwrap()
}

#[tokio::test]
async fn a_node_that_is_gone_is_not_asked_again() {
    let there = node(vec![done(), done()]).await;
    let store = Store::new(format!("{}, {}", nobody().await, there.address), "n");
    assert_eq!(put(&store).await.unwrap(), 8);
    assert_eq!(store.nodes.address(), there.address, "it is the first choice from now on");
    assert_eq!(put(&store.clone()).await.unwrap(), 8);
    assert_eq!(there.said.await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_write_without_an_answer_is_sent_again_with_its_key() {
    let (first, second) = (node(vec![BreakOff]).await, node(vec![done(), done(), BreakOff, done()]).await);
    let store = Store::new(format!("{},{}", first.address, second.address), "n");
    put(&store).await.unwrap();
    store.delete(&ann(), &PutOptions::default()).await.unwrap();
    store.write(&WriteCall::default()).await.unwrap();
    let (first, second) = (first.said.await.unwrap(), second.said.await.unwrap());
    assert_eq!(retry_key(&first[0]), retry_key(&second[0]));
    assert_ne!(retry_key(&second[0]), retry_key(&second[1]), "another write has another key");
    assert_eq!(retry_key(&second[2]), retry_key(&second[3]));
    assert_eq!((&second[2].line, &second[2].body), (&second[3].line, &second[3].body));
}

#[tokio::test]
async fn what_passes_is_asked_again() {
    for code in [Code::WrongEpoch, Code::Moving, Code::ShardUnreachable, Code::NoMap] {
        let one = node(vec![problem(code), problem(code), done()]).await;
        assert_eq!(put(&Store::new(&one.address, "n")).await.unwrap(), 8, "{code}");
        assert_eq!(one.said.await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn a_node_that_stops_or_grants_nothing_is_no_error_if_there_are_others() {
    for code in [Code::Draining, Code::GracePeriod] {
        let one = node(vec![problem(code)]).await;
        let error = put(&Store::new(&one.address, "n")).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "there is no other server, and no patience was asked for");
    }
    let (one, two) = (node(vec![problem(Code::Draining)]).await, node(vec![done()]).await);
    let store = Store::new(format!("{},{}", one.address, two.address), "n");
    assert_eq!(put(&store).await.unwrap(), 8);
    let (one, two) = (node(vec![problem(Code::GracePeriod), done()]).await, node(vec![]).await);
    let store = Store::new(format!("{},{}", one.address, two.address), "n");
    assert_eq!(put(&store).await.unwrap(), 8, "it will grant something soon");
}

#[tokio::test]
async fn what_does_not_pass_is_told_at_once() {
    for code in [Code::DocumentExists, Code::SpansShards, Code::StorageFailed, Code::Timeout] {
        let (one, two) = (node(vec![problem(code)]).await, node(vec![]).await);
        let store = Store::new(format!("{},{}", one.address, two.address), "n");
        assert_eq!(put(&store).await.unwrap_err().code(), Some(code));
    }
}

#[tokio::test]
async fn patience_has_an_end() {
    let moving = stubborn(refusal(Code::Moving)).await;
    let nodes = Nodes::from(&moving).patience(Duration::from_millis(100));
    assert_eq!(put(&Store::new(nodes, "n")).await.unwrap_err().code(), Some(Code::Moving));
    let nodes = Nodes::new(&format!("{},{}", nobody().await, nobody().await));
    let store = Store::new(nodes.patience(Duration::from_millis(50)), "n");
    assert!(matches!(put(&store).await, Err(Error::Unreachable { .. })));
}

#[tokio::test]
async fn a_server_that_comes_back_is_waited_for_if_so_wished() {
    let address = nobody().await;
    assert!(matches!(put(&Store::new(&address, "n")).await, Err(Error::Unreachable { .. })));
    let store = Store::new(Nodes::from(&address).patience(Duration::from_secs(60)), "n");
    let writing = tokio::spawn(async move { put(&store).await });
    tokio::time::sleep(Duration::from_millis(30)).await;
    let listener = TcpListener::bind(&address).await.unwrap();
    assert_eq!(play(listener, vec![BreakOff, done()]).await.len(), 2);
    assert_eq!(writing.await.unwrap().unwrap(), 8);
}

#[tokio::test]
async fn every_node_gets_its_chance_even_without_patience() {
    let there = node(vec![done()]).await;
    let addresses = format!("{},{},{}", nobody().await, nobody().await, there.address);
    let store = Store::new(Nodes::new(&addresses).patience(Duration::ZERO), "n");
    assert_eq!(put(&store).await.unwrap(), 8);
}

#[tokio::test]
async fn what_must_not_be_done_twice_is_not_sent_twice() {
    let (one, two) = (node(vec![BreakOff]).await, node(vec![]).await);
    let store = Store::new(format!("{},{}", one.address, two.address), "n");
    assert!(matches!(store.drop_index("user", "name").await, Err(Error::Unreachable { .. })));
    let index = r#"{"collection":"user","field":"name","state":"ready","read":0}"#;
    let there = node(vec![problem(Code::Moving), Answer(ok(index))]).await;
    let store = Store::new(format!("{},{}", nobody().await, there.address), "n");
    let dropped = store.drop_index("user", "name").await;
    assert_eq!(there.said.await.unwrap().len(), 2, "what was not done is sent again: {dropped:?}");
}

#[tokio::test]
async fn a_release_that_was_done_before_is_done() {
    let request = ReleaseRequest { token: Some(7), ..ReleaseRequest::default() };
    let release = async |acts| {
        let one = node(acts).await;
        let leases = Leases::new(Nodes::new(&one.address).patience(Duration::from_secs(60)), "n");
        leases.release(Some(LockId(5)), &request).await
    };
    let unknown = || problem(Code::UnknownLock);
    assert_eq!(release(vec![BreakOff, unknown()]).await, Ok(vec![]));
    assert_eq!(release(vec![problem(Code::ShardUnreachable), unknown()]).await, Ok(vec![]));
    assert_eq!(release(vec![unknown()]).await.unwrap_err().code(), Some(Code::UnknownLock));
    let error = release(vec![problem(Code::Moving), unknown()]).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::UnknownLock), "the first attempt cannot have been it");
}

#[tokio::test]
async fn a_lease_that_went_with_an_attempt_without_an_answer_is_taken_anew() {
    let held = r#"{"outcome":"held","lock":5,"state":"granted","token":7,"owner":{"via":"lease","connected":true},"resources":[],"requested_at":"t","age_ms":0}"#;
    let request = LeaseRequest {
        owner: "ann".into(),
        resources: Vec::new(),
        ttl_ms: 1000,
        wait_ms: None,
        poll_ms: None,
        note: None,
    };
    let lost = || problem(Code::LockLost);
    let one = node(vec![BreakOff, lost(), Answer(ok(held))]).await;
    let leases = Leases::new(Nodes::new(&one.address).patience(Duration::from_secs(60)), "n");
    assert_eq!(leases.take(&request).await.unwrap().lock.token, Some(7));
    let one = node(vec![lost()]).await;
    let error = Leases::new(&one.address, "n").take(&request).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::LockLost), "somebody else ended it");
}

#[tokio::test]
async fn reads_are_asked_again_too() {
    let document = r#"{"position":7,"document":{"collection":"user","key":"42","position":5,"created":1,"deleted":false,"value":{}}}"#;
    let (one, two) = (node(vec![BreakOff]).await, node(vec![Answer(ok(document))]).await);
    let store = Store::new(format!("{},{}", one.address, two.address), "n");
    assert_eq!(store.get(&ann(), &ReadOptions::default()).await.unwrap().position, 7);
    assert!(!two.said.await.unwrap()[0].header.contains("lockwood-retry"));
}
