//! WebSocket frames, the server's side of RFC 6455: bytes to messages and back. Knows nothing of sockets or of
//! what messages say.
//!
//! Text and binary messages are treated alike, and whether a text is UTF-8 is left to whoever reads it.

/// What arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// A whole message.
    Message(&'a [u8]),
    /// To be answered with a pong of the same content.
    Ping(&'a [u8]),
    Pong,
    /// To be answered with a close frame of the same code.
    Close(Option<u16>),
}

/// Why nothing more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A message over the limit.
    TooLarge { bytes_max: usize },
    /// There is no memory for the rest of a message.
    NoMemory,
    /// A message that was begun did not arrive in time.
    TooSlow,
    /// Not a frame a client may send.
    BadFrame(&'static str),
}

/// The most a control frame carries.
const CONTROL_BYTES_MAX: usize = 125;
/// What the buffer is given back to when a large message is done with.
const BUFFER_BYTES: usize = 2048;
const BUFFER_BYTES_KEPT: usize = 64 * 1024;

/// Collects bytes and hands out messages.
#[derive(Debug)]
pub(crate) struct Decoder {
    buffer: Vec<u8>,
    /// Everything before this has been handed out.
    read: usize,
    /// The parts of a fragmented message so far; nothing if none is under way.
    parts: Option<Vec<u8>>,
    bytes_max: usize,
}

/// The head of a frame.
struct Head {
    last: bool,
    opcode: u8,
    mask: [u8; 4],
    head_bytes: usize,
    body_bytes: usize,
}

impl Decoder {
    pub(crate) fn new(received: &[u8], bytes_max: usize) -> Decoder {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES.max(received.len()));
        buffer.extend_from_slice(received);
        Decoder { buffer, read: 0, parts: None, bytes_max }
    }

    /// Where more bytes are to be put, with room for some.
    pub(crate) fn room(&mut self) -> &mut Vec<u8> {
        self.tidy();
        if self.buffer.len() == self.buffer.capacity() {
            self.buffer.reserve(BUFFER_BYTES.max(self.buffer.len()));
        }
        &mut self.buffer
    }

    /// How much memory what has arrived takes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.buffer.capacity() + self.parts.as_ref().map_or(0, Vec::capacity)
    }

    /// Whether a message has begun to arrive and is not complete.
    pub(crate) fn is_partial(&self) -> bool {
        self.read < self.buffer.len() || self.parts.is_some()
    }

    /// The next event, if enough has arrived for one.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'_>>, Fault> {
        loop {
            let Some(head) = self.head()? else { return Ok(None) };
            let start = self.read + head.head_bytes;
            let end = start + head.body_bytes;
            if self.buffer.len() < end {
                return Ok(None);
            }
            self.read = end;
            unmask(&mut self.buffer[start..end], head.mask);
            if head.opcode >= 0x8 {
                return control(head.opcode, &self.buffer[start..end]).map(Some);
            }
            match (&mut self.parts, head.last) {
                (None, true) => return Ok(Some(Event::Message(&self.buffer[start..end]))),
                (None, false) => self.parts = Some(self.buffer[start..end].to_vec()),
                (Some(parts), last) => {
                    parts.extend_from_slice(&self.buffer[start..end]);
                    if last {
                        return Ok(Some(self.assembled(start, end)));
                    }
                }
            }
        }
    }

    /// The parts of a message, all of which are here, in place of the last of them.
    fn assembled(&mut self, start: usize, end: usize) -> Event<'_> {
        let parts = self.parts.take().unwrap_or_default();
        self.buffer.splice(start..end, parts.iter().copied());
        self.read = start + parts.len();
        Event::Message(&self.buffer[start..self.read])
    }

    /// Reads and checks the head of the next frame, if all of it is here.
    fn head(&self) -> Result<Option<Head>, Fault> {
        let bytes = &self.buffer[self.read..];
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        let (last, opcode, masked, short) =
            (first & 0x80 != 0, first & 0x0F, second & 0x80 != 0, second & 0x7F);
        self.check(*first, opcode, last, masked, short)?;
        let (length_bytes, body_bytes) = match short {
            126 => (2, rest.first_chunk().map(|bytes| u64::from(u16::from_be_bytes(*bytes)))),
            127 => (8, rest.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))),
            short => (0, Some(u64::from(short))),
        };
        let Some(body_bytes) = body_bytes else { return Ok(None) };
        let so_far = self.parts.as_ref().map_or(0, Vec::len);
        let body_bytes = usize::try_from(body_bytes).unwrap_or(usize::MAX);
        if opcode < 0x8 && body_bytes.saturating_add(so_far) > self.bytes_max {
            return Err(Fault::TooLarge { bytes_max: self.bytes_max });
        }
        let Some(mask) = rest.get(length_bytes..).and_then(|rest| rest.first_chunk()) else {
            return Ok(None);
        };
        let head_bytes = 2 + length_bytes + mask.len();
        Ok(Some(Head { last, opcode, mask: *mask, head_bytes, body_bytes }))
    }

    fn check(&self, first: u8, opcode: u8, last: bool, masked: bool, short: u8) -> Result<(), Fault> {
        let wrong = match opcode {
            _ if first & 0x70 != 0 => "reserved bits are set",
            _ if !masked => "frames from a client must be masked",
            0x3..=0x7 | 0xB..=0xF => "unknown opcode",
            0x8..=0xA if !last => "a control frame must not be fragmented",
            0x8..=0xA if usize::from(short) > CONTROL_BYTES_MAX => "a control frame has at most 125 bytes",
            0x0 if self.parts.is_none() => "a continuation of nothing",
            0x1 | 0x2 if self.parts.is_some() => "a new message within a fragmented one",
            _ => return Ok(()),
        };
        Err(Fault::BadFrame(wrong))
    }

    /// Forgets what has been handed out, and gives back what a large message needed.
    fn tidy(&mut self) {
        if self.read == 0 {
            return;
        }
        if self.read == self.buffer.len() {
            self.buffer.clear();
            if self.buffer.capacity() > BUFFER_BYTES_KEPT {
                self.buffer = Vec::with_capacity(BUFFER_BYTES);
            }
        } else {
            self.buffer.drain(..self.read);
        }
        self.read = 0;
    }
}

fn control(opcode: u8, body: &[u8]) -> Result<Event<'_>, Fault> {
    match (opcode, body) {
        (0x9, body) => Ok(Event::Ping(body)),
        (0xA, _) => Ok(Event::Pong),
        (_, []) => Ok(Event::Close(None)),
        (_, [high, low, ..]) => match u16::from_be_bytes([*high, *low]) {
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) => Ok(Event::Close(Some(code))),
            _ => Err(Fault::BadFrame("not a code a close frame may have")),
        },
        (_, [_]) => Err(Fault::BadFrame("a close frame with half a code")),
    }
}

/// Takes the mask off, eight bytes at a time.
fn unmask(body: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (chunks, rest) = body.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

/// Frames to be sent, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    pub(crate) bytes: Vec<u8>,
}

impl Encoder {
    /// A message of text.
    pub(crate) fn text(&mut self, text: &str) {
        self.frame(0x1, text.as_bytes());
    }

    pub(crate) fn ping(&mut self) {
        self.frame(0x9, &[]);
    }

    pub(crate) fn pong(&mut self, body: &[u8]) {
        self.frame(0xA, body);
    }

    pub(crate) fn close(&mut self, code: Option<u16>, reason: &str) {
        let mut body = code.map_or_else(Vec::new, |code| code.to_be_bytes().to_vec());
        body.extend_from_slice(reason.as_bytes());
        self.frame(0x8, &body);
    }

    fn frame(&mut self, opcode: u8, body: &[u8]) {
        self.bytes.push(0x80 | opcode);
        match body.len() {
            len @ 0..=125 => self.bytes.push(len as u8),
            len @ 126..=0xFFFF => {
                self.bytes.push(126);
                self.bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                self.bytes.push(127);
                self.bytes.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        self.bytes.extend_from_slice(body);
    }

    /// Forgets what has been sent, and gives back what a large burst needed.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > BUFFER_BYTES_KEPT {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame as a client sends it.
    fn frame(first: u8, body: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut bytes = vec![first];
        match body.len() {
            len @ 0..=125 => bytes.push(0x80 | len as u8),
            len @ 126..=0xFFFF => {
                bytes.push(0x80 | 126);
                bytes.extend_from_slice(&(len as u16).to_be_bytes());
            }
            len => {
                bytes.push(0x80 | 127);
                bytes.extend_from_slice(&(len as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(&mask);
        bytes.extend(body.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// Everything that comes out of `bytes`, fed in pieces of `piece`.
    fn decode(bytes: &[u8], piece: usize, bytes_max: usize) -> Vec<String> {
        let mut decoder = Decoder::new(&[], bytes_max);
        let mut events = Vec::new();
        for piece in bytes.chunks(piece) {
            decoder.room().extend_from_slice(piece);
            loop {
                match decoder.next() {
                    Ok(Some(event)) => events.push(format!("{event:?}")),
                    Ok(None) => break,
                    Err(fault) => {
                        events.push(format!("{fault:?}"));
                        return events;
                    }
                }
            }
        }
        events
    }

    #[track_caller]
    fn check(frames: &[Vec<u8>], expected: &[Event<'_>]) {
        let bytes = frames.concat();
        let expected: Vec<String> = expected.iter().map(|event| format!("{event:?}")).collect();
        for piece in [1, 2, 3, 7, 64, usize::MAX] {
            assert_eq!(decode(&bytes, piece, 100_000), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn messages_of_every_length() {
        for len in [0, 1, 125, 126, 127, 65_535, 65_536, 99_999, 100_000] {
            let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
            check(&[frame(0x81, &body), frame(0x82, b"x")], &[Event::Message(&body), Event::Message(b"x")]);
        }
    }

    #[test]
    fn fragments_with_control_frames_between_them() {
        let frames =
            [frame(0x01, b"ab"), frame(0x89, b"p"), frame(0x00, b""), frame(0x80, b"cd"), frame(0x8A, b"")];
        check(&frames, &[Event::Ping(b"p"), Event::Message(b"abcd"), Event::Pong]);
        check(
            &[frame(0x02, b""), frame(0x80, b""), frame(0x81, b"z")],
            &[Event::Message(b""), Event::Message(b"z")],
        );
    }

    #[test]
    fn closing() {
        check(&[frame(0x88, b"")], &[Event::Close(None)]);
        check(&[frame(0x88, &[0x03, 0xE8, b'o', b'k'])], &[Event::Close(Some(1000))]);
        check(&[frame(0x88, &3000u16.to_be_bytes())], &[Event::Close(Some(3000))]);
    }

    #[track_caller]
    fn check_fault(bytes: &[u8], part: &str) {
        for piece in [1, usize::MAX] {
            let events = decode(bytes, piece, 1000);
            assert!(events.last().is_some_and(|event| event.contains(part)), "{part}: {events:?}");
        }
    }

    #[test]
    fn what_is_no_frame() {
        check_fault(&[0x81, 0x01, b'x'], "masked");
        check_fault(&frame(0xC1, b"x"), "reserved bits");
        check_fault(&frame(0x83, b"x"), "unknown opcode");
        check_fault(&frame(0x8B, b"x"), "unknown opcode");
        check_fault(&frame(0x09, b"x"), "fragmented");
        check_fault(&frame(0x89, &[0; 126]), "125 bytes");
        check_fault(&frame(0x80, b"x"), "continuation of nothing");
        check_fault(&[frame(0x01, b"x"), frame(0x81, b"y")].concat(), "within a fragmented one");
        check_fault(&frame(0x88, b"x"), "half a code");
        for code in [0u16, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
            check_fault(&frame(0x88, &code.to_be_bytes()), "not a code");
        }
    }

    #[test]
    fn the_limit_counts_whole_messages() {
        assert_eq!(decode(&frame(0x81, &[b'x'; 1000]), 64, 1000).len(), 1);
        check_fault(&frame(0x81, &[b'x'; 1001]), "TooLarge");
        check_fault(&[frame(0x01, &[b'x'; 600]), frame(0x80, &[b'x'; 401])].concat(), "TooLarge");
        // The length alone is enough; nobody has to send that much to be refused.
        check_fault(&[0x82, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "TooLarge");
    }

    #[test]
    fn what_is_encoded_has_the_shortest_head() {
        let mut encoder = Encoder::default();
        encoder.text("hi");
        encoder.close(Some(1001), "x");
        encoder.close(None, "");
        assert_eq!(encoder.bytes, [0x81, 2, b'h', b'i', 0x88, 3, 0x03, 0xE9, b'x', 0x88, 0]);
        for (len, head) in [(125, 2), (126, 4), (65_535, 4), (65_536, 10)] {
            let mut encoder = Encoder::default();
            encoder.text(&"x".repeat(len));
            assert_eq!(encoder.bytes.len(), len + head);
        }
    }

    /// Random bytes, and damaged frames: never a panic, and the same events however the bytes are cut.
    #[test]
    fn fuzz() {
        let count: u64 = std::env::var("LOCKWOOD_FUZZ_COUNT").map_or(20_000, |text| text.parse().unwrap());
        let seed: u64 = std::env::var("LOCKWOOD_FUZZ_SEED").map_or(1, |text| text.parse().unwrap());
        let mut state = seed;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        for round in 0..count {
            let mut bytes = Vec::new();
            for _ in 0..random() % 6 {
                let firsts = [0x81, 0x82, 0x01, 0x00, 0x80, 0x88, 0x89, 0x8A, random() as u8];
                let body: Vec<u8> = (0..random() % 200).map(|_| random() as u8).collect();
                bytes.extend(frame(firsts[random() % firsts.len()], &body));
            }
            for _ in 0..random() % 3 {
                if !bytes.is_empty() {
                    let at = random() % bytes.len();
                    bytes[at] = random() as u8;
                }
            }
            let whole = decode(&bytes, usize::MAX, 300);
            let cut = decode(&bytes, random() % 50 + 1, 300);
            assert_eq!(whole, cut, "LOCKWOOD_FUZZ_SEED={seed}, round {round}");
        }
    }
}
