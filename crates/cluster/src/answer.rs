//! The body of another node's answer. Knows nothing of what it says.

use crate::{
    peers::{Connection, Pool},
    pulse::Pulse,
};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    error::Error,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

/// The body of an answer. Its connection is kept for the next call once all of it was read. It breaks off when its node is
/// silent.
pub struct Answer {
    body: Incoming,
    kept: Option<Kept>,
    pulse: Arc<Pulse>,
    /// Made when there is something to wait for.
    silenced: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// A connection that is to be kept.
pub(crate) struct Kept {
    pub(crate) pool: Arc<Pool>,
    pub(crate) address: String,
    pub(crate) connection: Connection,
}

impl Answer {
    pub(crate) fn new(body: Incoming, kept: Option<Kept>, pulse: Arc<Pulse>) -> Answer {
        let mut answer = Answer { body, kept, pulse, silenced: None };
        if answer.body.is_end_stream() {
            answer.give_back();
        }
        answer
    }

    /// Ready with the failure when the node is silent.
    fn poll_silenced<T>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, Box<dyn Error + Send + Sync>>>> {
        let pulse = &self.pulse;
        let silenced = self.silenced.get_or_insert_with(|| {
            let pulse = Arc::clone(pulse);
            Box::pin(async move { pulse.silenced().await })
        });
        silenced.as_mut().poll(context).map(|()| Some(Err(self.pulse.silence().into())))
    }

    fn give_back(&mut self) {
        let Some(Kept { pool, address, connection }) = self.kept.take() else { return };
        if !self.pulse.is_silent() {
            pool.keep(address, connection);
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let is_over = matches!(polled, Poll::Ready(None)) || self.body.is_end_stream();
        match &polled {
            Poll::Ready(Some(Err(_))) => drop(self.kept.take()),
            Poll::Ready(_) => self.pulse.hear(),
            Poll::Pending => return self.poll_silenced(context),
        }
        if is_over {
            self.give_back();
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
