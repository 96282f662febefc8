//! A body that is written while it is sent. Its pieces are counted in the account of memory until they are sent, and the
//! next piece is not made before there is room for it. Knows nothing of what is in it.

use crate::{memory::Account, shared::Shared, trouble::Trouble};
use axum::body::{Body, Bytes};
use hyper::body::Frame;
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;

/// So many pieces wait to be sent; whoever writes them waits when there are more.
const PIECES_LEN: usize = 2;

/// Where the pieces of a body are put.
pub(crate) struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    account: Arc<Account>,
    /// How long the other side may take nothing, and how long to wait for room.
    timeout: Duration,
}

/// The other side is gone, or takes nothing.
pub(crate) struct Gone;

struct Streamed(mpsc::Receiver<io::Result<Bytes>>);

/// A body, and where to put its pieces; refused while the account of memory is used up.
pub(crate) fn stream(shared: &Shared) -> Result<(Pieces, Body), Trouble> {
    shared.memory.check()?;
    let (sender, receiver) = mpsc::channel(PIECES_LEN);
    let (account, timeout) = (Arc::clone(&shared.memory), shared.config.write_timeout);
    Ok((Pieces { sender, account, timeout }, Body::new(Streamed(receiver))))
}

impl Pieces {
    /// Puts a piece behind the others. Returns when the next one may be made.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let piece = piece.into();
        let piece = self.account.charge(piece.len()).attach(piece);
        self.sender.send_timeout(Ok(piece), self.timeout).await.map_err(|_| Gone)?;
        tokio::time::timeout(self.timeout, self.account.room()).await.map_err(|_| Gone)
    }

    /// Ends the body in a way that shows that it is not complete.
    pub(crate) async fn break_off(&self) {
        let error = io::Error::other("the rest could not be read");
        let _ = self.sender.send_timeout(Err(error), self.timeout).await;
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
