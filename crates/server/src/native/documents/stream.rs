//! A body that is written while it is sent. Its pieces are counted in the account of memory from before they are made
//! until they are sent. However slowly the other side takes them, it is waited for: that a peer takes nothing at all is
//! found out by its connection. Knows nothing of what is in it.

use super::read::aside;
use crate::{
    memory::{Account, Making, Turn},
    shared::Shared,
};
use axum::body::{Body, Bytes};
use hyper::body::Frame;
use lockwood_node::trouble::Trouble;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};
use tokio::sync::mpsc;

/// So many pieces wait to be sent; whoever writes them waits when there are more.
const PIECES_LEN: usize = 1;

/// Where the pieces of a body are put.
pub(crate) struct Pieces {
    sender: mpsc::Sender<Bytes>,
    account: Arc<Account>,
    broken: Arc<AtomicBool>,
}

/// The other side is gone.
pub(crate) struct Gone;

struct Streamed {
    pieces: mpsc::Receiver<Bytes>,
    /// Whether a piece is missing, which is so until [`Pieces`] are told that there are no more. So a body whose writer
    /// fails, panics or is dropped never ends as a complete one does.
    broken: Arc<AtomicBool>,
}

/// A body, and where to put its pieces; refused while the account of memory is used up.
pub(crate) fn stream(shared: &Shared) -> Result<(Pieces, Body), Trouble> {
    shared.memory.check()?;
    let (pieces, body) = open(&shared.memory);
    Ok((pieces, Body::new(body)))
}

fn open(account: &Arc<Account>) -> (Pieces, Streamed) {
    let (sender, pieces) = mpsc::channel(PIECES_LEN);
    let broken = Arc::new(AtomicBool::new(true));
    let body = Streamed { pieces, broken: Arc::clone(&broken) };
    (Pieces { sender, account: Arc::clone(account), broken }, body)
}

impl Pieces {
    /// Makes pieces off the serving threads and sends them, each when there is room for it, until there are no more:
    /// then the body is complete. If one cannot be made the body is broken off.
    pub(crate) async fn write<W: Send + 'static>(
        &self,
        mut writer: W,
        next: fn(&mut W) -> Result<Option<Vec<u8>>, Trouble>,
    ) -> Result<(), Gone> {
        loop {
            let making = self.making().await?;
            let worked = aside(move || {
                let piece = next(&mut writer)?;
                Ok((writer, piece))
            });
            let Ok((back, piece)) = worked.await else { return Err(Gone) };
            writer = back;
            match piece {
                None => {
                    self.complete();
                    return Ok(());
                }
                Some(piece) if piece.is_empty() => drop(making),
                Some(piece) => self.put(making.made(piece)).await?,
            }
        }
    }

    /// Puts a piece behind the others that was made elsewhere. Returns when there is room for the next one.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let piece = piece.into();
        self.put(self.account.charge(piece.len()).attach(piece)).await?;
        self.unless_gone(self.account.room()).await
    }

    /// Puts a piece behind the others. The turn in which it was made is over when it is counted.
    pub(super) async fn send_made(&self, piece: impl Into<Bytes>, turn: Option<Turn>) -> Result<(), Gone> {
        let piece = piece.into();
        let piece = self.account.charge(piece.len()).attach(piece);
        drop(turn);
        self.put(piece).await
    }

    /// Says that there are no more pieces. A body of which that is not said is broken off when this is dropped.
    pub(crate) fn complete(&self) {
        self.broken.store(false, Ordering::Release);
    }

    /// Waits until the other side is gone.
    pub(super) async fn gone(&self) {
        self.sender.closed().await;
    }

    async fn making(&self) -> Result<Making, Gone> {
        self.unless_gone(self.account.making()).await
    }

    async fn put(&self, piece: Bytes) -> Result<(), Gone> {
        self.sender.send(piece).await.map_err(|_| Gone)
    }

    async fn unless_gone<T>(&self, waited_for: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::select! {
            found = waited_for => Ok(found),
            () = self.gone() => Err(Gone),
        }
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

    fn three(left: &mut u8) -> Result<Option<Vec<u8>>, Trouble> {
        let piece = (*left > 0).then(|| vec![b'0' + *left]);
        *left = left.saturating_sub(1);
        Ok(piece)
    }

    fn fails(left: &mut u8) -> Result<Option<Vec<u8>>, Trouble> {
        if *left == 0 { Err(Trouble::storage_failed()) } else { three(left) }
    }

    #[tokio::test]
    async fn body_whose_writer_panics_does_not_end_as_a_complete_one() {
        let account = Account::new(1 << 20);
        let (pieces, streamed) = open(&account);
        let written = tokio::spawn(async move {
            pieces.send("only the beginning").await.ok();
            panic!("a writer that forgets a case");
        });
        assert!(streamed.collect().await.is_err());
        assert!(written.await.is_err());
    }

    #[tokio::test]
    async fn body_with_a_missing_piece_does_not_end_as_a_complete_one() {
        let account = Account::new(1 << 20);
        for (next, whole) in [(three as fn(&mut u8) -> _, true), (fails, false)] {
            let (pieces, streamed) = open(&account);
            let written = tokio::spawn(async move { pieces.write(3, next).await.is_ok() });
            let body = streamed.collect().await;
            assert_eq!(written.await.unwrap(), whole);
            match whole {
                true => assert_eq!(body.unwrap().to_bytes(), "321"),
                false => assert!(body.is_err(), "a piece could not be made"),
            }
        }
        assert_eq!(account.held(), 0);
    }

    #[tokio::test]
    async fn nothing_more_is_made_for_a_body_that_nobody_takes() {
        let account = Account::new(1 << 20);
        let (pieces, streamed) = open(&account);
        let written = tokio::spawn(async move { pieces.write(3, three).await.is_ok() });
        drop(streamed);
        assert!(!written.await.unwrap());
        assert_eq!(account.held(), 0);
    }
}
