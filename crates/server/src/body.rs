//! Reads the bodies of requests, for all interfaces: within a limit, within a time, and within the account of memory.
//! Knows nothing of what is in them or of how a refusal is written.

use crate::{
    front::Front,
    memory::{Account, Buffer},
    shared::Shared,
};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// What is read of a body that is refused already.
const DRAIN_BYTES_MAX: u64 = 64 * 1024 * 1024;
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// A body without a limit must bring so much in the time that another body may take as a whole.
const PROGRESS_BYTES: u64 = 64 * 1024;

/// Why a body is not read to its end.
#[derive(Debug, Clone)]
pub(crate) enum BodyError {
    /// It has more bytes than the limit of this name allows.
    TooLarge { name: &'static str, limit: u64 },
    /// It does not arrive in time.
    TooSlow { timeout: Duration },
    /// The connection ended before the body did, or what arrived is no body.
    CutOff,
    /// There is no memory to keep it in.
    NoMemory(Box<Trouble>),
}

impl From<BodyError> for Trouble {
    fn from(error: BodyError) -> Trouble {
        match error {
            BodyError::TooLarge { name, limit } => {
                Trouble::over(name, limit, "the body is too large; split it into several requests")
            }
            BodyError::TooSlow { timeout } => Trouble::new(
                Code::BodyTimeout,
                format!(
                    "the body took too long to arrive; it has {} ms (flag --body-timeout)",
                    timeout.as_millis()
                ),
            ),
            BodyError::CutOff => Trouble::new(Code::BadBody, "the body ended before it was complete"),
            BodyError::NoMemory(trouble) => *trouble,
        }
    }
}

/// A body of at most `body_bytes_max` bytes.
pub(crate) async fn read<B: Body<Data = Bytes> + Unpin>(
    shared: &Shared,
    body: B,
) -> Result<Bytes, BodyError> {
    read_at(&shared.front, body).await
}

/// The same for a request that no runtime has yet.
pub(crate) async fn read_at<B: Body<Data = Bytes> + Unpin>(
    front: &Front,
    body: B,
) -> Result<Bytes, BodyError> {
    let limit = ("body_bytes_max", front.config.limits.body_bytes_max);
    read_within(&front.memory, body, limit, front.config.body_timeout).await
}

/// A body that another node sends; it may have as many bytes as `peer_body_bytes_max` says.
pub(crate) async fn read_of_peer<B: Body<Data = Bytes> + Unpin>(
    front: &Front,
    body: B,
) -> Result<Bytes, BodyError> {
    let limit = ("peer_body_bytes_max", front.config.limits.peer_body_bytes_max);
    read_within(&front.memory, body, limit, front.config.body_timeout).await
}

async fn read_within<B: Body<Data = Bytes> + Unpin>(
    account: &Arc<Account>,
    mut body: B,
    limit: (&'static str, u64),
    timeout: Duration,
) -> Result<Bytes, BodyError> {
    let read = match tokio::time::timeout(timeout, collect(account, &mut body, limit)).await {
        Ok(read) => read,
        Err(_) => return Err(BodyError::TooSlow { timeout }),
    };
    if let Err(BodyError::TooLarge { .. } | BodyError::NoMemory(_)) = read {
        drain(body).await;
    }
    read
}

async fn collect<B: Body<Data = Bytes> + Unpin>(
    account: &Arc<Account>,
    body: &mut B,
    (name, limit): (&'static str, u64),
) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > limit {
        return Err(BodyError::TooLarge { name, limit });
    }
    let Some(first) = next(body).await? else { return Ok(Bytes::new()) };
    // Most bodies come together with the head of their request, and are whole at once.
    if body.is_end_stream() && first.len() as u64 <= limit {
        return Ok(first);
    }
    let mut buffer = Buffer::new(account);
    let mut chunk = first;
    loop {
        if (buffer.len() + chunk.len()) as u64 > limit {
            return Err(BodyError::TooLarge { name, limit });
        }
        buffer.extend(&chunk).map_err(|trouble| BodyError::NoMemory(Box::new(trouble)))?;
        match next(body).await? {
            Some(more) => chunk = more,
            None => return Ok(buffer.into_bytes()),
        }
    }
}

/// The next bytes of a body; nothing at its end.
async fn next<B: Body<Data = Bytes> + Unpin>(body: &mut B) -> Result<Option<Bytes>, BodyError> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(BodyError::CutOff),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// Reads on for a while and throws it away: a connection that is closed with something unread is reset, and
/// the answer to what was read is lost.
pub(crate) async fn drain<B: Body<Data = Bytes> + Unpin>(mut body: B) {
    let rest = async {
        let mut bytes = 0;
        while let Ok(Some(chunk)) = next(&mut body).await {
            bytes += chunk.len() as u64;
            if bytes > DRAIN_BYTES_MAX {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN_TIME, rest).await;
}

/// The lines of a body that may be as long as it likes, as long as it goes on: each line has a limit, and
/// [`PROGRESS_BYTES`] have to arrive in the time that another body may take. Only time spent waiting for the other side
/// counts.
pub(crate) struct Lines<'a, B> {
    body: &'a mut B,
    buffer: Buffer,
    /// What has arrived after the last line.
    rest: Bytes,
    line_bytes_max: u64,
    timeout: Duration,
    time_left: Duration,
    bytes_left: u64,
    is_over: bool,
}

impl<'a, B: Body<Data = Bytes> + Unpin> Lines<'a, B> {
    pub(crate) fn new(shared: &Shared, body: &'a mut B) -> Lines<'a, B> {
        let timeout = shared.config.body_timeout;
        Lines {
            body,
            buffer: Buffer::new(&shared.memory),
            rest: Bytes::new(),
            line_bytes_max: shared.config.limits.line_bytes_max,
            timeout,
            time_left: timeout,
            bytes_left: PROGRESS_BYTES,
            is_over: false,
        }
    }

    /// The next line without its end; nothing after the last.
    pub(crate) async fn next(&mut self) -> Result<Option<&[u8]>, BodyError> {
        self.buffer.clear();
        while !self.is_over {
            let end = self.rest.iter().position(|byte| *byte == b'\n');
            let part = self.rest.split_to(end.unwrap_or(self.rest.len()));
            self.add(&part)?;
            if end.is_some() {
                let _ = self.rest.split_to(1);
                return Ok(Some(&self.buffer[..]));
            }
            match self.chunk().await? {
                Some(chunk) => self.rest = chunk,
                None => self.is_over = true,
            }
        }
        Ok(Some(&self.buffer[..]).filter(|line| !line.is_empty()))
    }

    fn add(&mut self, part: &[u8]) -> Result<(), BodyError> {
        let limit = self.line_bytes_max;
        if (self.buffer.len() + part.len()) as u64 > limit {
            return Err(BodyError::TooLarge { name: "line_bytes_max", limit });
        }
        self.buffer.extend(part).map_err(|trouble| BodyError::NoMemory(Box::new(trouble)))
    }

    async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let asked = Instant::now();
        let Ok(chunk) = tokio::time::timeout(self.time_left, next(self.body)).await else {
            return Err(BodyError::TooSlow { timeout: self.timeout });
        };
        let chunk = chunk?;
        let len = chunk.as_ref().map_or(0, Bytes::len) as u64;
        self.time_left = self.time_left.saturating_sub(asked.elapsed());
        self.bytes_left = self.bytes_left.saturating_sub(len);
        if self.bytes_left == 0 {
            (self.time_left, self.bytes_left) = (self.timeout, PROGRESS_BYTES);
        }
        Ok(chunk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    async fn read_all(bytes: usize, limit: (&'static str, u64)) -> Result<Bytes, BodyError> {
        let account = Account::new(u64::MAX);
        let body = Full::new(Bytes::from(vec![b' '; bytes]));
        read_within(&account, body, limit, Duration::from_secs(60)).await
    }

    #[tokio::test]
    async fn a_body_above_its_limit_is_refused_by_the_name_of_the_limit() {
        for name in ["body_bytes_max", "peer_body_bytes_max"] {
            assert_eq!(read_all(100, (name, 100)).await.unwrap().len(), 100);
            let trouble = Trouble::from(read_all(101, (name, 100)).await.unwrap_err());
            assert_eq!(trouble.code, Code::OverLimit);
            assert!(trouble.message.contains(&format!("{name} is 100")), "{}", trouble.message);
        }
    }
}
