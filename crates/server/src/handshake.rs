//! The WebSocket handshake on an HTTP connection. Knows nothing of what is said afterwards.

use crate::{peer_stream::PeerStream, stream::Stream};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    header::{
        CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
    },
};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Why a request is no handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotHandshake {
    /// The method is not GET.
    Method,
    /// A header is missing or wrong; in words.
    Header(&'static str),
}

/// A connection that is about to become a WebSocket.
pub(crate) struct Upgrade(hyper::upgrade::OnUpgrade);

impl Upgrade {
    /// The connection, and what the other side has sent already; nothing if it is gone.
    pub(crate) async fn complete(self) -> Option<(Stream, Vec<u8>)> {
        let upgraded = self.0.await.ok()?;
        let parts = upgraded.downcast::<TokioIo<PeerStream>>().ok()?;
        Some((parts.io.into_inner().into_inner(), parts.read_buf.to_vec()))
    }
}

/// Checks the request; gives the answer that accepts it and the connection to come.
pub(crate) fn accept<B, R: Default>(
    request: &mut Request<B>,
) -> Result<(Response<R>, Upgrade), NotHandshake> {
    let headers = request.headers();
    let upgrades = has_token(headers, CONNECTION.as_str(), "upgrade")
        && has_token(headers, UPGRADE.as_str(), "websocket");
    if !upgrades {
        return Err(NotHandshake::Header(
            "this address is for WebSocket connections; connect with a WebSocket client",
        ));
    }
    if request.method() != Method::GET {
        return Err(NotHandshake::Method);
    }
    if headers.get(SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(b"13") {
        return Err(NotHandshake::Header("the header Sec-WebSocket-Version must be 13"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).map(|key| derive_accept_key(key.as_bytes()));
    let key = key.ok_or(NotHandshake::Header("the header Sec-WebSocket-Key is missing"))?;
    let mut response = Response::new(R::default());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, HeaderValue::try_from(key).expect("base64 is a header value"));
    Ok((response, Upgrade(hyper::upgrade::on(request))))
}

fn has_token(headers: &HeaderMap, name: &str, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(token))
}
