//! The plain HTTP interface: who holds what, and an operator's release. Knows nothing of sessions.

use crate::{
    backup::Backup,
    error::Error,
    nodes::Nodes,
    transport::{self, Call, Target},
};
use hyper::Method;
use lockwood_model::{LockId, Path};
use lockwood_wire::{
    ClusterStatus, GraceList, LockInfo, LockList, LockState, NamespaceList, OperatorAction, OperatorLog,
    Readiness, ServerStatus, Tree, WaitGraph,
    documents::{PurgeList, TrimAnswer, TrimRequest},
};
use serde::de::DeserializeOwned;

/// A server's plain HTTP interface. Every call is a connection of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admin {
    /// Host and port of the server.
    pub address: String,
}

/// A change of what the nodes of a cluster own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterChange {
    /// The node of this name gives its shards away and takes none.
    Drain(String),
    /// It takes shards again.
    Undrain(String),
    /// The shard belongs to the node of this name, for as long as that lives.
    Move(u32, String),
    /// The nodes decide which of them owns the shard.
    Unmove(u32),
    /// The node of this name does not come back, and is taken off the list.
    Forget(String),
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

    /// The namespaces that grant nothing yet.
    pub async fn grace(&self) -> Result<GraceList, Error> {
        self.get("/v1/grace".into()).await
    }

    /// Ends the grace period of a namespace.
    pub async fn end_grace(&self, namespace: &str, reason: Option<&str>) -> Result<OperatorAction, Error> {
        self.call(Method::DELETE, Target::new(namespace, "grace").query("reason", reason).text).await
    }

    /// Forgets the history of documents that is older than so many milliseconds, in every namespace.
    pub async fn trim(&self, keep_ms: u64) -> Result<TrimAnswer, Error> {
        let call = Call::with_json(Method::POST, "/v1/trim".into(), &TrimRequest { keep_ms });
        self.nodes().ask(&call.once()).await
    }

    /// The purges that are not complete.
    pub async fn purges(&self) -> Result<PurgeList, Error> {
        self.get("/v1/purges".into()).await
    }

    /// Everything the server keeps, as of one moment.
    pub async fn backup(&self) -> Result<Backup, Error> {
        let call = Call { accept: "application/octet-stream", ..Call::new(Method::GET, "/v1/backup".into()) };
        Ok(Backup::new(self.nodes().open(&call).await?))
    }

    /// Whether the server can be used. A server that cannot still says why.
    pub async fn readiness(&self) -> Result<Readiness, Error> {
        let call = Call::new(Method::GET, "/readyz".into());
        let (_, body) = self.nodes().exchange(&call).await?;
        transport::read(&body)
    }

    /// The server at a glance: what it serves where, its namespaces, memory, grace.
    pub async fn status(&self) -> Result<ServerStatus, Error> {
        self.get("/v1/status".into()).await
    }

    /// The nodes of the cluster, its shards and their owners.
    pub async fn cluster(&self) -> Result<ClusterStatus, Error> {
        self.get("/v1/cluster".into()).await
    }

    /// The same with the names of so many namespaces of each shard, at least 1.
    pub async fn cluster_with_homes(&self, names: u32) -> Result<ClusterStatus, Error> {
        self.get(format!("/v1/cluster?homes={names}")).await
    }

    /// Changes what nodes own; gives the cluster as it was right before.
    pub async fn change_cluster(&self, change: &ClusterChange) -> Result<ClusterStatus, Error> {
        let (method, target) = match change {
            ClusterChange::Drain(node) => (Method::PUT, format!("nodes/{}/drain", transport::escape(node))),
            ClusterChange::Undrain(node) => {
                (Method::DELETE, format!("nodes/{}/drain", transport::escape(node)))
            }
            ClusterChange::Move(shard, node) => {
                (Method::PUT, format!("shards/{shard}/owner/{}", transport::escape(node)))
            }
            ClusterChange::Unmove(shard) => (Method::DELETE, format!("shards/{shard}/owner")),
            ClusterChange::Forget(node) => (Method::DELETE, format!("nodes/{}", transport::escape(node))),
        };
        self.call(method, format!("/v1/cluster/{target}")).await
    }

    /// Whether the server is alive.
    pub async fn healthy(&self) -> Result<bool, Error> {
        let call = Call::new(Method::GET, "/healthz".into());
        Ok(self.nodes().exchange(&call).await?.0.is_success())
    }

    async fn get<T: DeserializeOwned>(&self, target: String) -> Result<T, Error> {
        self.call(Method::GET, target).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, target: String) -> Result<T, Error> {
        let call = Call { once: method != Method::GET, ..Call::new(method, target) };
        self.nodes().ask(&call).await
    }

    fn nodes(&self) -> Nodes {
        Nodes::new(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_wire::{Code, Problem};
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
