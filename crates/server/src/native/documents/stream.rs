//! A body that is written while it is sent. Its pieces are counted in the account of memory until they are sent, and the
//! next piece is not made before there is room for it. Knows nothing of what is in it.

use crate::{memory::Account, shared::Shared, trouble::Trouble};
use axum::body::{Body, Bytes};
use hyper::body::Frame;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::sync::mpsc;

/// So many pieces wait to be sent; whoever writes them waits when there are more.
const PIECES_LEN: usize = 2;

/// Where the pieces of a body are put.
pub(crate) struct Pieces {
    sender: mpsc::Sender<Bytes>,
    account: Arc<Account>,
    /// How long the other side may take nothing, and how long to wait for room.
    timeout: Duration,
    broken: Arc<AtomicBool>,
}

/// The other side is gone, or takes nothing.
pub(crate) struct Gone;

struct Streamed {
    pieces: mpsc::Receiver<Bytes>,
    /// Whether a piece is missing. Set by [`Pieces`] before the last of them is dropped; such a body never ends as a
    /// complete one does, whatever its writer forgets.
    broken: Arc<AtomicBool>,
}

/// A body, and where to put its pieces; refused while the account of memory is used up.
pub(crate) fn stream(shared: &Shared) -> Result<(Pieces, Body), Trouble> {
    shared.memory.check()?;
    let (sender, receiver) = mpsc::channel(PIECES_LEN);
    let (account, timeout) = (Arc::clone(&shared.memory), shared.config.write_timeout);
    let broken = Arc::new(AtomicBool::new(false));
    let body = Streamed { pieces: receiver, broken: Arc::clone(&broken) };
    Ok((Pieces { sender, account, timeout, broken }, Body::new(body)))
}

impl Pieces {
    /// Puts a piece behind the others. Returns when the next one may be made.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let sent = self.try_send(piece.into()).await;
        if sent.is_err() {
            self.break_off();
        }
        sent
    }

    async fn try_send(&self, piece: Bytes) -> Result<(), Gone> {
        let piece = self.account.charge(piece.len()).attach(piece);
        self.sender.send_timeout(piece, self.timeout).await.map_err(|_| Gone)?;
        tokio::time::timeout(self.timeout, self.account.room()).await.map_err(|_| Gone)
    }

    /// Ends the body in a way that shows that it is not complete.
    pub(crate) fn break_off(&self) {
        self.broken.store(true, Ordering::Release);
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
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some(piece) => Some(Ok(Frame::data(piece))),
            None if self.broken.swap(false, Ordering::Acquire) => {
                Some(Err(io::Error::other("the rest of the body could not be sent")))
            }
            None => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn body(timeout: Duration) -> (Pieces, Streamed) {
        let (sender, pieces) = mpsc::channel(PIECES_LEN);
        let broken = Arc::new(AtomicBool::new(false));
        let streamed = Streamed { pieces, broken: Arc::clone(&broken) };
        (Pieces { sender, account: Account::new(1 << 20), timeout, broken }, streamed)
    }

    #[tokio::test]
    async fn body_with_a_missing_piece_does_not_end_as_a_complete_one() {
        let (pieces, streamed) = body(Duration::from_millis(10));
        while pieces.send("piece").await.is_ok() {}
        drop(pieces);
        assert!(streamed.collect().await.is_err(), "its last piece was not taken in time");

        let (pieces, streamed) = body(Duration::from_secs(60));
        assert!(pieces.send("piece").await.is_ok());
        drop(pieces);
        assert_eq!(streamed.collect().await.unwrap().to_bytes(), "piece");
    }
}
