//! A TCP connection that ends when its peer takes nothing of what is written for too long, and that is reset when a
//! plain end would pass for a complete answer. Knows nothing of what is written.
//!
//! How much the peer has taken only the kernel knows: what it has buffered can last a slow peer for minutes, in which no
//! write gets through. So it is the kernel that gives a peer up, which it does when the peer acknowledges nothing, or has
//! no room, for the whole time (`TCP_USER_TIMEOUT`).

use rustix::net::sockopt::set_tcp_user_timeout;
use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

pub(crate) struct PeerStream {
    /// None once it was taken out.
    tcp: Option<TcpStream>,
    torn: Torn,
}

/// Says that a connection ends before what was to be written on it was written.
#[derive(Debug, Clone, Default)]
pub(crate) struct Torn(Arc<AtomicBool>);

impl Torn {
    pub(crate) fn tear(&self) {
        self.0.store(true, Relaxed);
    }
}

impl PeerStream {
    /// Gives the peer up when it takes nothing for so long.
    pub(crate) fn new(tcp: TcpStream, write_timeout: Duration) -> (PeerStream, Torn) {
        let timeout_ms = i32::try_from(write_timeout.as_millis()).unwrap_or(i32::MAX).max(1);
        if let Err(error) = set_tcp_user_timeout(&tcp, timeout_ms.unsigned_abs()) {
            tracing::warn!(%error, "set the time after which a peer that does not read is given up");
        }
        let torn = Torn::default();
        (PeerStream { tcp: Some(tcp), torn: torn.clone() }, torn)
    }

    pub(crate) fn into_inner(mut self) -> TcpStream {
        self.tcp.take().expect("it is taken out only here")
    }

    fn tcp(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.tcp.as_mut().expect("it is taken out only at its end"))
    }
}

impl Drop for PeerStream {
    fn drop(&mut self) {
        if let Some(tcp) = &self.tcp
            && self.torn.0.load(Relaxed)
        {
            let _ = tcp.set_zero_linger();
        }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.tcp().poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tcp().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tcp().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp().poll_shutdown(context)
    }
}
