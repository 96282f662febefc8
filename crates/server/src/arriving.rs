//! The body of a request as an interface gets it: from the wire, or whole from another node. Knows nothing of what is in
//! it.

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// A body that arrives, or that is here already.
pub(crate) enum Arriving {
    /// From a client's connection.
    Wire(Incoming),
    /// Read and checked before.
    Whole(Full<Bytes>),
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut *self {
            Arriving::Wire(body) => Pin::new(body).poll_frame(context),
            Arriving::Whole(body) => Pin::new(body).poll_frame(context).map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Arriving::Wire(body) => body.is_end_stream(),
            Arriving::Whole(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Arriving::Wire(body) => body.size_hint(),
            Arriving::Whole(body) => body.size_hint(),
        }
    }
}
