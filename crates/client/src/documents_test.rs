//! Documents against a server that says what the test tells it to.

use crate::{
    Code, DocumentKey, Error, FeedStep, Position, PutIf, PutOptions, ReadOptions, Store, Subject, Terms,
    Token,
    wire::{CountRequest, Deleted, Fields, FilterRequest, Isolation, JoinRequest, WireCommit, WireValue},
};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// What a request said: its first line, its header, its body.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) line: String,
    pub(crate) header: String,
    pub(crate) body: String,
}

/// Answers one request after the other, each on its own connection, with these bytes.
async fn serve(answers: Vec<String>) -> (Store, JoinHandle<Vec<Said>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let store = Store::new(listener.local_addr().unwrap().to_string(), "team 1");
    let server = tokio::spawn(async move {
        let mut said = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            said.push(hear(&mut stream).await);
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
        said
    });
    (store, server)
}

pub(crate) async fn hear(stream: &mut TcpStream) -> Said {
    let mut header = Vec::new();
    while !header.ends_with(b"\r\n\r\n") {
        header.push(stream.read_u8().await.unwrap());
    }
    let header = String::from_utf8(header).unwrap().to_lowercase();
    let mut body = Vec::new();
    if header.contains("transfer-encoding: chunked") {
        while !body.ends_with(b"0\r\n\r\n") {
            body.push(stream.read_u8().await.unwrap());
        }
    } else if let Some((_, len)) = header.split_once("content-length: ") {
        body.resize(len.lines().next().unwrap().parse().unwrap(), 0);
        stream.read_exact(&mut body).await.unwrap();
    }
    let line = header.lines().next().unwrap().to_owned();
    Said { line, header, body: String::from_utf8(body).unwrap() }
}

pub(crate) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn ok(body: &str) -> String {
    answer("200 OK", body)
}

/// A part of a stream that ends with the connection.
fn streamed(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n\r\n{body}")
}

fn ann() -> DocumentKey {
    DocumentKey::new("user", "a%3Ab:42".parse().unwrap())
}

pub(crate) const WRITTEN: &str = r#"{"position":8,"positions":[8],"replayed":false}"#;

#[tokio::test]
async fn reading_and_writing_one_document() {
    let document = r#"{"position":7,"document":{"collection":"user","key":"42","position":5,"created":1,"deleted":false,"value":{"z":1.50,"a":2}}}"#;
    let (store, server) = serve(vec![ok(document), ok(WRITTEN), ok(WRITTEN)]).await;
    let options = ReadOptions {
        fields: vec!["z".into(), "a".into()],
        at: Some(7),
        deleted: Deleted::With,
        ..ReadOptions::default()
    };
    let read = store.get(&ann(), &options).await.unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), document);
    let fields: Fields = serde_json::from_str(r#"{"z":1.50}"#).unwrap();
    let options = PutOptions {
        only_if: Some(PutIf::Present),
        position: Some(5),
        user: Some("ann".into()),
        note: Some("a b".into()),
        terms: Terms::default().token(Token(9)),
    };
    assert_eq!(store.put(&ann(), &fields, &options).await.unwrap().position, 8);
    store.delete(&ann(), &PutOptions::default()).await.unwrap();
    let said = server.await.unwrap();
    let path = "/v1/team%201/documents/user/a%253ab%3a42";
    assert_eq!(said[0].line, format!("get {path}?fields=z%2ca&at=7&deleted=with http/1.1"));
    assert_eq!(
        said[1].line,
        format!("put {path}?if=present&position=5&user=ann&note=a%20b&token=9 http/1.1")
    );
    assert_eq!(said[1].body, r#"{"z":1.50}"#);
    assert!(said[1].header.contains("content-type: application/json"));
    assert_eq!(said[2].line, format!("delete {path} http/1.1"));
}

#[tokio::test]
async fn reading_and_writing_one_node_under_locks() {
    let node = r#"{"position":7,"node":{"collection":"user","key":"42","path":["a/b","0"],"position":5,"value":{}},"cut":[["a/b","0"]]}"#;
    let joined = r#"{"position":7,"rows":[],"next":"c"}"#;
    let (store, server) = serve(vec![ok(node), ok(WRITTEN), ok(WRITTEN), ok(joined)]).await;
    let path = "a%2Fb/0".parse().unwrap();
    let options = ReadOptions {
        isolation: Some(Isolation::Locked),
        terms: Terms::default().token(Token(7)).token(Token(8)).wait(Duration::from_millis(5)),
        ..ReadOptions::default()
    };
    let read = store.get_node(&ann(), &path, Some(1), &options).await.unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), node);
    let options =
        PutOptions { terms: Terms::default().token(Token(7)).wait(Duration::ZERO), ..PutOptions::default() };
    let value = WireValue::from_text("[1.50]".into()).unwrap();
    store.set(&ann(), &path, &value, &options).await.unwrap();
    store.unset(&ann(), &path, &PutOptions::default()).await.unwrap();
    let page = store.join(&JoinRequest { limit: Some(5), ..JoinRequest::default() }).await.unwrap();
    assert_eq!(page.next.as_deref(), Some("c"));
    let said = server.await.unwrap();
    let path = "/v1/team%201/documents/user/a%253ab%3a42?path=a%252fb%2f0";
    assert_eq!(said[0].line, format!("get {path}&depth=1&isolation=locked&token=7%2c8&wait_ms=5 http/1.1"));
    assert_eq!(said[1].line, format!("put {path}&token=7&wait_ms=0 http/1.1"));
    assert_eq!(said[1].body, "[1.50]");
    assert_eq!(said[2].line, format!("delete {path} http/1.1"));
    assert!(said[3].line.starts_with("post /v1/team%201/join "), "{}", said[3].line);
    let side = r#"{"collection":"","field":""}"#;
    assert_eq!(said[3].body, format!(r#"{{"left":{side},"right":{side},"limit":5}}"#));
}

#[tokio::test]
async fn a_broken_position_lock_says_who_broke_it() {
    let problem = r#"{"type":"urn:lockwood:position_locked","title":"t","status":409,"code":"position_locked","detail":"what was read has changed","broken":[{"lock":{"collection":"user","key":"42","position":5},"position":7,"user":"bob","note":null,"at":"2026-01-01T00:00:00Z"}]}"#;
    let (store, _server) = serve(vec![answer("409 Conflict", problem)]).await;
    let error = store.delete(&ann(), &PutOptions::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::PositionLocked));
    assert_eq!(
        error.to_string(),
        "what was read has changed (position_locked)\n  changed meanwhile: user/42, read at position 5, by the \
         write at position 7 of bob at 2026-01-01T00:00:00Z"
    );
}

#[tokio::test]
async fn pages_follow_the_cursor() {
    let document = |key| {
        format!(r#"{{"collection":"u","key":"{key}","position":5,"created":1,"deleted":false,"value":{{}}}}"#)
    };
    let pages = vec![
        ok(&format!(r#"{{"position":7,"documents":[{},{}],"next":"c1"}}"#, document(1), document(2))),
        ok(r#"{"position":8,"documents":[],"next":"c2"}"#),
        ok(&format!(r#"{{"position":9,"documents":[{}]}}"#, document(3))),
    ];
    let (store, server) = serve(pages).await;
    let request = FilterRequest { collection: "u".into(), limit: Some(2), ..FilterRequest::default() };
    let documents: Vec<_> = store.pages(request).documents().try_collect().await.unwrap();
    assert_eq!(documents.iter().map(|document| &document.key[..]).collect::<Vec<_>>(), ["1", "2", "3"]);
    let said = server.await.unwrap();
    let bodies: Vec<_> = said.iter().map(|said| &said.body[..]).collect();
    assert_eq!(
        bodies,
        [
            r#"{"collection":"u","limit":2}"#,
            r#"{"collection":"u","limit":2,"cursor":"c1"}"#,
            r#"{"collection":"u","limit":2,"cursor":"c2"}"#,
        ]
    );
}

#[tokio::test]
async fn counting() {
    let (store, server) = serve(vec![ok(r#"{"position":7,"count":3}"#)]).await;
    let request = CountRequest { collection: "u".into(), ..CountRequest::default() };
    assert_eq!(store.count(&request).await.unwrap().count, 3);
    assert_eq!(server.await.unwrap()[0].line, "post /v1/team%201/count http/1.1");
}

fn commit(position: u64) -> String {
    format!(
        "id: {position}\nevent: commit\ndata: {{\"position\":{position},\"at\":\"t\",\"user\":null,\"note\":null,\"events\":[]}}\n\n"
    )
}

#[tokio::test]
async fn a_feed_goes_on_where_it_was_lost() {
    let too_old = r#"{"type":"t","title":"t","status":410,"code":"position_too_old","detail":"forgotten"}"#;
    let draining = r#"{"type":"t","title":"t","status":503,"code":"draining","detail":"stops"}"#;
    let (store, server) = serve(vec![
        ok(r#"{"position":4,"horizon":0}"#),
        streamed(&format!(": hello\n\n{}{}id: 9\nevent: comm", commit(5), commit(7))),
        answer("503 Service Unavailable", draining),
        streamed(&format!("{}{}", commit(7), commit(9))),
        answer("410 Gone", too_old),
    ])
    .await;
    let subject = Subject { collections: vec!["a".into(), "b".into()], fields: vec!["f".into()] };
    let mut feed = store.feed(subject, None).await.unwrap();
    let mut steps = Vec::new();
    let end = loop {
        match feed.next().await {
            Ok(FeedStep::Commit(WireCommit { position, .. })) => steps.push(position.to_string()),
            Ok(FeedStep::Lost(_)) => steps.push("lost".into()),
            Ok(FeedStep::Back) => steps.push("back".into()),
            Err(error) => break error,
        }
    };
    assert_eq!(steps, ["5", "7", "lost", "back", "9", "lost"]);
    assert_eq!((end.code(), feed.position()), (Some(Code::PositionTooOld), Position(9)));
    let said = server.await.unwrap();
    let asked = |said: &Said, after: u64| {
        let query = format!("after={after}&collection=a%2cb&field=f");
        assert_eq!(said.line, format!("get /v1/team%201/changes?{query} http/1.1"));
        assert!(said.header.contains("accept: text/event-stream"), "{said:?}");
        assert!(said.header.contains(&format!("last-event-id: {after}\r\n")), "{said:?}");
    };
    assert_eq!(said[0].line, "get /v1/team%201/position http/1.1");
    asked(&said[1], 4);
    asked(&said[2], 7);
    asked(&said[3], 7);
    asked(&said[4], 9);
}

#[tokio::test]
async fn a_feed_that_cannot_begin_is_an_error() {
    let store = Store::new("127.0.0.1:1", "n");
    assert!(matches!(store.feed(Subject::default(), Some(1)).await, Err(Error::Unreachable { .. })));
}

const HEADER: &str = r#"{"lockwood":"dump","format":1,"namespace":"n","position":7,"horizon":0}"#;

async fn dumped(body: &str) -> (Vec<String>, Option<Error>) {
    let (store, _server) = serve(vec![streamed(body)]).await;
    let mut dump = store.dump().await.unwrap();
    let mut lines = Vec::new();
    loop {
        match dump.next().await {
            Ok(Some(line)) => lines.push(String::from_utf8(line.to_vec()).unwrap()),
            Ok(None) => return (lines, None),
            Err(error) => return (lines, Some(error)),
        }
    }
}

#[tokio::test]
async fn a_dump_is_complete_when_it_says_so() {
    let (lines, error) =
        dumped(&format!("{HEADER}\n{{\"document\":{{\"end\":1}}}}\n{{\"end\":{{\"lines\":3}}}}\n")).await;
    assert_eq!((lines.len(), error), (3, None));
    let (lines, error) = dumped(&format!("{HEADER}\n{{\"document\":{{}}}}\n{{\"end\":{{\"li")).await;
    assert_eq!(lines.len(), 3);
    assert!(matches!(error, Some(Error::Incomplete { len: 3, .. })), "{error:?}");
    let (_, error) = dumped(&format!("{HEADER}\n{{\"end\":{{\"lines\":2}}}}\n{{\"document\":{{}}}}\n")).await;
    assert!(matches!(error, Some(Error::BadAnswer(_))), "{error:?}");
    for other in ["hello\n", "{\"lockwood\":\"dump\",\"format\":2}\n"] {
        let (lines, error) = dumped(other).await;
        assert!(lines.is_empty() && matches!(error, Some(Error::BadAnswer(_))), "{other}: {error:?}");
    }
}

#[tokio::test]
async fn a_load_streams_its_source() {
    let (store, server) = serve(vec![ok(r#"{"position":7,"documents":1,"commits":2}"#)]).await;
    let source = stream::iter(["one\n", "two\n"]).map(|text| Ok(Bytes::from(text)));
    assert_eq!(store.load(source).await.unwrap().commits, 2);
    let said = &server.await.unwrap()[0];
    assert_eq!(said.line, "post /v1/team%201/load http/1.1");
    assert!(said.header.contains("content-type: application/x-ndjson"), "{said:?}");
    assert!(said.body.contains("one\n") && said.body.contains("two\n"), "{said:?}");
}
