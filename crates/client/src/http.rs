//! The plain HTTP interface: who holds what, and an operator's release. Knows nothing of sessions.

use crate::error::Error;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use lockwood_model::{LockId, Path};
use lockwood_wire::{
    LockInfo, LockList, LockState, NamespaceList, OperatorAction, OperatorLog, Problem, Readiness, Tree,
    WaitGraph,
};
use serde::de::DeserializeOwned;
use std::{fmt::Write, time::Duration};
use tokio::net::TcpStream;

/// An answer that takes longer is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// An answer that is larger is refused.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A server's plain HTTP interface. Every call is a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Host and port of the server.
    pub address: String,
}

/// Which locks to list; by default all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockFilter {
    /// Only those of this session, by its name or number.
    pub owner: Option<String>,
    /// Only those that have to do with this path.
    pub path: Option<Path>,
    /// Only those in this state.
    pub state: Option<LockState>,
    /// At most this many in one page.
    pub limit: Option<usize>,
}

impl Admin {
    /// The namespaces in use.
    pub async fn namespaces(&self) -> Result<NamespaceList, Error> {
        self.get("/v1/namespaces".into()).await
    }

    /// One page of locks; the next one begins after [`LockList::next`].
    pub async fn locks(
        &self,
        namespace: &str,
        filter: &LockFilter,
        after: Option<u64>,
    ) -> Result<LockList, Error> {
        let state = filter.state.map(|state| match state {
            LockState::Granted => "granted",
            LockState::Waiting => "waiting",
            LockState::Converting => "converting",
        });
        let target = Target::new(namespace, "locks")
            .query("owner", filter.owner.as_deref())
            .query("path", filter.path.as_ref())
            .query("state", state)
            .query("limit", filter.limit)
            .query("after", after);
        self.get(target.text).await
    }

    /// One lock.
    pub async fn lock(&self, namespace: &str, lock: LockId) -> Result<LockInfo, Error> {
        self.get(Target::new(namespace, &format!("locks/{lock}")).text).await
    }

    /// The nodes with locks on them, at and below a path or everywhere.
    pub async fn tree(&self, namespace: &str, path: Option<&Path>) -> Result<Tree, Error> {
        self.get(Target::new(namespace, "tree").query("path", path).text).await
    }

    /// Who waits for whom.
    pub async fn wait_graph(&self, namespace: &str) -> Result<WaitGraph, Error> {
        self.get(Target::new(namespace, "waits").text).await
    }

    /// What operators did.
    pub async fn operator_log(&self, namespace: &str) -> Result<OperatorLog, Error> {
        self.get(Target::new(namespace, "operator-log").text).await
    }

    /// Ends a lock, held or waiting, whoever it belongs to.
    pub async fn release(
        &self,
        namespace: &str,
        lock: LockId,
        reason: Option<&str>,
    ) -> Result<OperatorAction, Error> {
        let target = Target::new(namespace, &format!("locks/{lock}")).query("reason", reason);
        self.call(Method::DELETE, target.text).await
    }

    /// Whether the server can be used. A server that cannot still says why.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        let (_, body) = self.exchange(Method::GET, "/readyz".into()).await?;
        read(&body)
    }

    /// Whether the server is alive.
    pub async fn healthy(&self) -> Result<bool, Error> {
        Ok(self.exchange(Method::GET, "/healthz".into()).await?.0.is_success())
    }

    async fn get<T: DeserializeOwned>(&self, target: String) -> Result<T, Error> {
        self.call(Method::GET, target).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, target: String) -> Result<T, Error> {
        let (status, body) = self.exchange(method, target).await?;
        match status.is_success() {
            true => read(&body),
            false => Err(match serde_json::from_slice::<Problem>(&body) {
                Ok(problem) => problem.into(),
                Err(_) => Error::BadAnswer(format!("HTTP status {status}")),
            }),
        }
    }

    async fn exchange(&self, method: Method, target: String) -> Result<(StatusCode, Bytes), Error> {
        let unreachable = |reason| Error::Unreachable { address: self.address.clone(), reason };
        match tokio::time::timeout(ANSWER_TIMEOUT, exchange(&self.address, method, target)).await {
            Err(_) => Err(unreachable(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Ok(Ok(answer)) => Ok(answer),
        }
    }
}

async fn exchange(
    address: &str,
    method: Method,
    target: String,
) -> Result<(StatusCode, Bytes), Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(header::HOST, address)
        .header(header::ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await?.to_bytes();
        Ok((status, body))
    };
    tokio::pin!(connection, exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection is driven here, not in a task of its own; its end may come before the answer is read.
        end = &mut connection => match end {
            Ok(()) => exchange.await,
            Err(error) => Err(error.into()),
        },
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|error| Error::BadAnswer(error.to_string()))
}

/// A request target under a namespace.
struct Target {
    text: String,
    /// What comes before the next query parameter.
    separator: char,
}

impl Target {
    fn new(namespace: &str, rest: &str) -> Target {
        Target { text: format!("/v1/{}/{rest}", escape(namespace)), separator: '?' }
    }

    fn query(mut self, name: &str, value: Option<impl ToString>) -> Target {
        if let Some(value) = value {
            let (separator, value) = (self.separator, escape(&value.to_string()));
            write!(self.text, "{separator}{name}={value}").expect("a string takes all");
            self.separator = '&';
        }
        self
    }
}

/// Text as one segment of a URL.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            _ => write!(out, "%{byte:02X}").expect("a string takes all"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::Code;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    /// Answers one request and returns its first line.
    async fn serve_once(listener: TcpListener, status: &str, body: &str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(stream.read_u8().await.unwrap());
        }
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request).unwrap().lines().next().unwrap().to_owned()
    }

    async fn server() -> (TcpListener, Admin) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (listener, Admin { address })
    }

    #[tokio::test]
    async fn a_list_is_asked_for_with_its_filter() {
        let (listener, admin) = server().await;
        let filter = LockFilter {
            owner: Some("a b".into()),
            path: Some("user/4%2F2".parse().unwrap()),
            state: Some(LockState::Waiting),
            limit: Some(5),
        };
        let server = tokio::spawn(serve_once(listener, "200 OK", r#"{"locks":[],"next":9}"#));
        let list = admin.locks("team/1", &filter, Some(3)).await.unwrap();
        assert_eq!(list, LockList { locks: vec![], next: Some(9) });
        assert_eq!(
            server.await.unwrap(),
            "GET /v1/team%2F1/locks?owner=a%20b&path=user%2F4%252F2&state=waiting&limit=5&after=3 HTTP/1.1"
        );
    }

    #[tokio::test]
    async fn a_problem_is_an_error_with_its_code() {
        let (listener, admin) = server().await;
        let body = serde_json::to_string(&Problem::new(Code::UnknownLock, "there is no lock 7")).unwrap();
        let server = tokio::spawn(async move { serve_once(listener, "404 Not Found", &body).await });
        let error = admin.release("default", LockId(7), Some("stuck")).await.unwrap_err();
        assert_eq!(error.code(), Some(Code::UnknownLock));
        assert_eq!(error.to_string(), "there is no lock 7 (unknown_lock)");
        assert_eq!(server.await.unwrap(), "DELETE /v1/default/locks/7?reason=stuck HTTP/1.1");
    }

    #[tokio::test]
    async fn no_server_is_unreachable() {
        let (listener, admin) = server().await;
        drop(listener);
        assert!(matches!(admin.namespaces().await, Err(Error::Unreachable { .. })));
    }
}
