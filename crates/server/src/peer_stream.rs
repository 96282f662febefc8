//! A connection that ends when its peer takes nothing of what is written for too long, and that is reset when a
//! plain end would pass for a complete answer. Knows nothing of what is written.
//!
//! How much the peer has taken only the kernel knows: what it has buffered can last a slow peer for minutes, in which no
//! write gets through. So it is the kernel that gives a peer up, which it does when the peer acknowledges nothing, or has
//! no room, for the whole time (`TCP_USER_TIMEOUT`).

use crate::stream::Stream;
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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) struct PeerStream {
    /// None once it was taken out.
    stream: Option<Stream>,
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
    pub(crate) fn new(stream: Stream, write_timeout: Duration) -> (PeerStream, Torn) {
        let timeout_ms = i32::try_from(write_timeout.as_millis()).unwrap_or(i32::MAX).max(1);
        if let Err(error) = set_tcp_user_timeout(stream.tcp(), timeout_ms.unsigned_abs()) {
            tracing::warn!(%error, "set the time after which a peer that does not read is given up");
        }
        let torn = Torn::default();
        (PeerStream { stream: Some(stream), torn: torn.clone() }, torn)
    }

    pub(crate) fn into_inner(mut self) -> Stream {
        self.stream.take().expect("it is taken out only here")
    }

    fn stream(&mut self) -> Pin<&mut Stream> {
        Pin::new(self.stream.as_mut().expect("it is taken out only at its end"))
    }
}

impl Drop for PeerStream {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream
            && self.torn.0.load(Relaxed)
        {
            let _ = stream.tcp().set_zero_linger();
        }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }
}
