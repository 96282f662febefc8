//! Everything in a namespace as lines of JSON, and whether all of them came. Knows nothing of where they go.

use crate::{
    error::Error,
    transport::{Lines, Streaming},
};
use bytes::Bytes;
use serde::Deserialize;

/// A dump that is coming. What it gives before it says that it is complete is not a dump yet.
pub struct Dump {
    lines: Lines,
    len: u64,
    complete: bool,
}

/// The first line of a dump.
#[derive(Deserialize)]
struct Header {
    lockwood: String,
    format: u64,
}

/// The last line of a dump.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Footer {
    #[serde(rename = "end")]
    _end: serde_json::Value,
}

impl Dump {
    pub(crate) fn new(stream: Streaming) -> Dump {
        Dump { lines: Lines::new(stream), len: 0, complete: false }
    }

    /// The next line without its end; none after the last one. A dump that ends too early is an error.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        let line = match self.lines.next().await {
            Ok(line) => line,
            Err(error) if self.len > 0 => return Err(self.incomplete(&error.to_string())),
            Err(error) => return Err(error),
        };
        match line {
            Some(_) if self.complete => {
                Err(Error::BadAnswer("the dump goes on after the line that ends it".into()))
            }
            Some(line) => {
                self.look_at(&line)?;
                Ok(Some(line))
            }
            None if self.complete => Ok(None),
            None => Err(self.incomplete("the line that ends it did not come")),
        }
    }

    /// How many lines have come.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn look_at(&mut self, line: &[u8]) -> Result<(), Error> {
        if self.len == 0 {
            check_header(line)?;
        }
        self.len += 1;
        self.complete = line.starts_with(b"{\"end\"") && serde_json::from_slice::<Footer>(line).is_ok();
        Ok(())
    }

    fn incomplete(&self, reason: &str) -> Error {
        Error::Incomplete { len: self.len, reason: reason.to_owned() }
    }
}

fn check_header(line: &[u8]) -> Result<(), Error> {
    match serde_json::from_slice::<Header>(line) {
        Ok(header) if header.lockwood == "dump" && header.format == 1 => Ok(()),
        Ok(header) if header.lockwood == "dump" => Err(Error::BadAnswer(format!(
            "the dump has the format {}, this client knows 1; use a newer client",
            header.format
        ))),
        _ => Err(Error::BadAnswer("this is no dump".into())),
    }
}

impl std::fmt::Debug for Dump {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dump").field("len", &self.len).field("complete", &self.complete).finish()
    }
}
