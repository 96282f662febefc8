//! What a connection to the listener for nodes has to show before anything is read from it: a certificate, if this node
//! has one. Knows nothing of calls.

use crate::stream::Stream;
use lockwood_cluster::{PeerTls, Refused, speaks_tls};
use parking_lot::Mutex;
use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};
use tokio::net::TcpStream;

/// How long a connection may take to show what it has to.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Strangers must not fill the log.
const WARN_INTERVAL: Duration = Duration::from_secs(10);

/// Says in the log who was refused, now and then.
#[derive(Default)]
pub(super) struct Doorkeeper(Mutex<Option<Instant>>);

impl Doorkeeper {
    /// The connection, if it may go on.
    pub(super) async fn admit(
        &self,
        tls: Option<&PeerTls>,
        tcp: TcpStream,
        peer: SocketAddr,
    ) -> Option<Stream> {
        let admitted = tokio::time::timeout(HANDSHAKE_TIMEOUT, async {
            match tls {
                Some(tls) => self.encrypt(tls, tcp, peer).await,
                None => self.look(tcp, peer).await,
            }
        });
        admitted.await.ok().flatten()
    }

    async fn encrypt(&self, tls: &PeerTls, tcp: TcpStream, peer: SocketAddr) -> Option<Stream> {
        match tls.accept(tcp).await {
            Ok(encrypted) => return Some(Stream::Encrypted(Box::new(encrypted))),
            Err(Refused::Gone) => {}
            Err(Refused::Plain) => {
                self.warn(peer, "it does not speak TLS; start all nodes with --peer-cert, or none");
            }
            Err(Refused::Failed(why)) => self.warn(peer, &why),
        }
        None
    }

    /// HTTP does not understand those who speak TLS, and tells them so.
    async fn look(&self, tcp: TcpStream, peer: SocketAddr) -> Option<Stream> {
        if speaks_tls(&tcp).await? {
            self.warn(
                peer,
                "it speaks TLS, and this node has no certificate; start all nodes with --peer-cert, or none",
            );
        }
        Some(Stream::Plain(tcp))
    }

    fn warn(&self, peer: SocketAddr, why: &str) {
        let mut last = self.0.lock();
        if last.is_some_and(|last| last.elapsed() < WARN_INTERVAL) {
            tracing::debug!(%peer, why, "a connection to the listener for nodes is refused");
            return;
        }
        *last = Some(Instant::now());
        tracing::warn!(%peer, why, "a connection to the listener for nodes is refused");
    }
}
