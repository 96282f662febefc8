//! As much of Redis as the message bus needs: adding entries to a stream, many at a time. Knows nothing of what
//! the entries say.

use std::{io, time::Duration};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::timeout,
};

const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// An answer is the id of an entry or a line about what is wrong.
const ANSWER_BYTES_MAX: u64 = 4096;

/// A connection to Redis.
pub(super) struct Link {
    stream: BufReader<TcpStream>,
}

impl Link {
    pub(super) async fn open(address: &str) -> io::Result<Link> {
        let stream = timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        Ok(Link { stream: BufReader::new(stream) })
    }

    /// Sends commands that were written one after the other. Says how many of them were done, from the first
    /// on, and why the next one was not.
    pub(super) async fn send(&mut self, commands: &[u8], len: usize) -> (usize, io::Result<()>) {
        if let Err(error) = within(self.stream.get_mut().write_all(commands)).await {
            return (0, Err(error));
        }
        for done in 0..len {
            if let Err(error) = within(self.answer()).await {
                return (done, Err(error));
            }
        }
        (len, Ok(()))
    }

    async fn answer(&mut self) -> io::Result<()> {
        let line = self.line().await?;
        match line.split_at_checked(1) {
            Some(("$", _)) => self.line().await.map(drop),
            Some(("-", message)) => Err(io::Error::other(format!("Redis says {}", message.trim_end()))),
            _ => Err(io::Error::other("Redis does not speak as expected")),
        }
    }

    async fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(ANSWER_BYTES_MAX).read_line(&mut line).await?;
        match line.ends_with('\n') {
            true => Ok(line),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

async fn within<T>(work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(ANSWER_PATIENCE, work).await?
}

/// Writes the command that adds an entry of these names and values to a stream.
pub(super) fn add_to_stream<'a>(
    out: &mut Vec<u8>,
    stream: &str,
    entry: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
) {
    out.extend_from_slice(format!("*{}\r\n", 3 + 2 * entry.len()).as_bytes());
    ["XADD", stream, "*"].into_iter().for_each(|word| push(out, word));
    entry.for_each(|(name, value)| {
        push(out, name);
        push(out, value);
    });
}

fn push(out: &mut Vec<u8>, word: &str) {
    out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
    out.extend_from_slice(word.as_bytes());
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_its_words_with_their_lengths() {
        let mut out = Vec::new();
        add_to_stream(&mut out, "s", [("a/1/f", "\"é\""), ("b", "1")].into_iter());
        let expected =
            "*7\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$5\r\na/1/f\r\n$4\r\n\"é\"\r\n$1\r\nb\r\n$1\r\n1\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
