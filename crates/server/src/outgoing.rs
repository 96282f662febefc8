//! Answers on their way: a large one holds its share of the account of memory until all of it is written. Knows nothing
//! of what is in them.

use crate::memory::{Account, FREE_BYTES, Share};
use bytes::Bytes;
use hyper::{
    Response,
    body::{Body, Frame, SizeHint},
};
use lockwood_node::trouble::Trouble;
use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// A body that is sent. One that is written piece by piece has its shares in the pieces.
pub(crate) struct Outgoing<B> {
    body: B,
    /// For a body that is whole; its bytes take it with them.
    share: Option<Share>,
}

impl<B: Body<Data = Bytes>> Outgoing<B> {
    /// An answer that needs no share.
    pub(crate) fn small(answer: Response<B>) -> Response<Outgoing<B>> {
        answer.map(|body| Outgoing { body, share: None })
    }

    /// An answer with its share. Refused if there is no room for it, unless it may tell of a change that was made.
    pub(crate) fn hold(
        account: &Arc<Account>,
        answer: Response<B>,
        is_read: bool,
    ) -> Result<Response<Outgoing<B>>, Trouble> {
        let bytes =
            answer.body().size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        if bytes <= FREE_BYTES {
            return Ok(Outgoing::small(answer));
        }
        let share = if is_read { account.take(bytes)? } else { account.charge(bytes) };
        Ok(answer.map(|body| Outgoing { body, share: Some(share) }))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Outgoing<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Some(share) = self.share.take() else { return polled };
        match polled {
            // The connection keeps these bytes until they are written.
            Poll::Ready(Some(Ok(frame))) if frame.is_data() => {
                Poll::Ready(Some(Ok(frame.map_data(|data| share.attach(data)))))
            }
            other => {
                self.share = Some(share);
                other
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
