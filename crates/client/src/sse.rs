//! Reads a stream of server-sent events. Knows nothing of what they say.

/// An event that is larger is refused.
const EVENT_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SseEvent {
    /// What kind of event, if it says.
    pub(crate) event: String,
    /// What it says.
    pub(crate) data: String,
}

/// An event is larger than any can be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Takes bytes as they come and gives events when they are complete. What the last event lacks of its end when
/// the stream breaks is forgotten, as the format wants it.
#[derive(Debug, Default)]
pub(crate) struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last byte was a carriage return, so a line feed now belongs to it.
    after_return: bool,
    started: bool,
}

impl SseReader {
    /// Reads more bytes; gives the events they complete.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, TooLarge> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            self.line.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                return Err(TooLarge);
            }
            let Some(end) = end else { break };
            self.after_return = rest[end] == b'\r';
            rest = &rest[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        let line = match std::mem::replace(&mut self.started, true) {
            true => &line[..],
            false => line.strip_prefix('\u{feff}').unwrap_or(&line),
        };
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "event" => value.clone_into(&mut self.event.event),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // Comments, which keep the connection alive; ids, which the data has too; and what is not known.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(event: &str, data: &str) -> SseEvent {
        SseEvent { event: event.into(), data: data.into() }
    }

    #[test]
    fn events_are_the_same_however_they_are_cut() {
        let text = "\u{feff}: hello\n\nid: 5\nevent: commit\ndata: {\"a\":\ndata: \"ü\"}\n\n\
                    event: nothing\n\nretry: 10\r\ndata:x\r\n\r\ndata\rdata: y\r\rdata: unfinished\n";
        let expected = [event("commit", "{\"a\":\n\"ü\"}"), event("", "x"), event("", "\ny")];
        for len in 1..text.len() {
            let mut reader = SseReader::default();
            let mut events = Vec::new();
            for chunk in text.as_bytes().chunks(len) {
                events.extend(reader.read(chunk).unwrap());
            }
            assert_eq!(events, expected, "in pieces of {len}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut reader = SseReader::default();
        let mut chunks = (0..).map(|_| reader.read(&[b'x'; 1024 * 1024]));
        assert!(chunks.by_ref().take(65).any(|result| result == Err(TooLarge)));
    }
}
