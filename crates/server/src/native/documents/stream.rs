//! A body that is written while it is sent. Knows nothing of what is in it.

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;

/// So many pieces wait to be sent; whoever writes them waits when there are more.
const PIECES_LEN: usize = 2;

/// Where the pieces of a body are put.
pub(crate) struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    /// How long the other side may take nothing.
    patience: Duration,
}

/// The other side is gone, or takes nothing.
pub(crate) struct Gone;

struct Streamed(mpsc::Receiver<io::Result<Bytes>>);

/// A body, and where to put its pieces.
pub(crate) fn stream(patience: Duration) -> (Pieces, Body) {
    let (sender, receiver) = mpsc::channel(PIECES_LEN);
    (Pieces { sender, patience }, Body::new(Streamed(receiver)))
}

impl Pieces {
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        self.sender.send_timeout(Ok(piece.into()), self.patience).await.map_err(|_| Gone)
    }

    /// Ends the body in a way that shows that it is not complete.
    pub(crate) async fn break_off(&self) {
        let error = io::Error::other("the rest could not be read");
        let _ = self.sender.send_timeout(Err(error), self.patience).await;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.sender.is_closed()
    }

    /// Waits until the other side is gone.
    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
