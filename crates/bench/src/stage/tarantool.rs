//! A Tarantool that syncs every write, in a directory of its own, and a connection in its binary protocol.
//! Knows nothing of what is compared with it.

use super::{document, load::Exchange};
use crate::peer::{self, Peer};
use rustix::process::Signal;
use std::{
    fs,
    net::{SocketAddr, TcpStream as StdTcpStream},
    path::Path,
    process::{Command, Stdio},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The space that is written to.
pub(crate) const WRITTEN: u64 = 512;
/// The space that is only read, with documents numbered from 1.
pub(crate) const READ: u64 = 513;

const GREETING_LEN: usize = 128;
/// Most answers fit; longer ones make it grow once.
const BUFFER_LEN: usize = 1 << 16;

pub(crate) struct Tarantool {
    _peer: Peer,
    address: SocketAddr,
}

impl Tarantool {
    /// With so many documents to read.
    pub(crate) fn start(directory: &Path, documents: u64) -> Tarantool {
        let address = peer::free_address();
        let file = directory.join("bench.lua");
        fs::write(&file, script(address, documents)).expect("a file for the script");
        let log = fs::File::create(directory.join("log")).expect("a file for what it says");
        let mut command = Command::new("tarantool");
        command.arg(file).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let peer = Peer::start(&mut command, Signal::KILL);
        // It listens last.
        peer::wait_until("tarantool answers", || StdTcpStream::connect(address).is_ok());
        Tarantool { _peer: peer, address }
    }

    pub(crate) async fn connect(&self) -> Iproto {
        let mut stream = TcpStream::connect(self.address).await.expect("the server listens");
        stream.set_nodelay(true).expect("a socket option");
        stream.read_exact(&mut [0; GREETING_LEN]).await.expect("a greeting");
        Iproto { stream, buffer: Vec::with_capacity(BUFFER_LEN) }
    }
}

fn script(address: SocketAddr, documents: u64) -> String {
    let padding = document::PADDING_LEN;
    format!(
        "box.cfg{{wal_mode = 'fsync', memtx_memory = 2 * 1024 ^ 3}}
for id, name in pairs({{[{WRITTEN}] = 'written', [{READ}] = 'read'}}) do
    box.schema.space.create(name, {{id = id}}):create_index('primary')
end
box.schema.user.grant('guest', 'read,write', 'universe')
box.begin()
for i = 1, {documents} do
    box.space.read:insert({{i, 'name-' .. i, i, 'city-' .. i, string.rep('x', {padding})}})
end
box.commit()
box.cfg{{listen = '{address}'}}
"
    )
}

pub(crate) struct Iproto {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Exchange for Iproto {
    async fn exchange(&mut self, request: &[u8]) -> u64 {
        self.stream.write_all(request).await.expect("the server reads");
        self.buffer.clear();
        while self.buffer.len() < 5 || self.buffer.len() < reply_len(&self.buffer) {
            let count = self.stream.read_buf(&mut self.buffer).await.expect("the server answers");
            assert!(count > 0, "the server closed");
        }
        // A length, then a map whose first entry is the code: 0 for success.
        assert_eq!(self.buffer[6..12], [0, 0xce, 0, 0, 0, 0], "{}", String::from_utf8_lossy(&self.buffer));
        0
    }
}

fn reply_len(buffer: &[u8]) -> usize {
    assert_eq!(buffer[0], 0xce, "a length of four bytes");
    5 + u32::from_be_bytes([buffer[1], buffer[2], buffer[3], buffer[4]]) as usize
}

pub(crate) fn insert(id: u64) -> Vec<u8> {
    request(2, &document_of(id))
}

/// Writes a document, be it there or not.
pub(crate) fn replace(id: u64) -> Vec<u8> {
    request(3, &document_of(id))
}

fn document_of(id: u64) -> Vec<u8> {
    let mut body = vec![0x82, 0x10];
    uint(&mut body, WRITTEN);
    body.extend([0x21, 0x95]);
    uint(&mut body, id);
    string(&mut body, &format!("name-{id}"));
    uint(&mut body, id);
    string(&mut body, &format!("city-{id}"));
    string(&mut body, &document::padding());
    body
}

/// Sets the number of a document.
pub(crate) fn update(id: u64, number: u64) -> Vec<u8> {
    let mut body = vec![0x84, 0x10];
    uint(&mut body, WRITTEN);
    body.extend([0x11, 0x00, 0x20, 0x91]);
    uint(&mut body, id);
    body.extend([0x21, 0x91, 0x93]);
    string(&mut body, "=");
    uint(&mut body, 2);
    uint(&mut body, number);
    request(4, &body)
}

/// One document, or all of them in the order of their numbers.
pub(crate) fn select(id: Option<u64>) -> Vec<u8> {
    const EQUAL: u8 = 0;
    const ALL: u8 = 2;
    let mut body = vec![0x86, 0x10];
    uint(&mut body, READ);
    body.extend([0x11, 0x00, 0x13, 0x00, 0x12]);
    uint(&mut body, u64::from(u32::MAX));
    body.extend([0x14, if id.is_some() { EQUAL } else { ALL }, 0x20]);
    match id {
        Some(id) => {
            body.push(0x91);
            uint(&mut body, id);
        }
        None => body.push(0x90),
    }
    request(1, &body)
}

fn request(kind: u8, body: &[u8]) -> Vec<u8> {
    let header = [0x82, 0x00, kind, 0x01, 0x00];
    let len = u32::try_from(header.len() + body.len()).expect("short requests");
    [&[0xce], &len.to_be_bytes()[..], &header, body].concat()
}

fn uint(bytes: &mut Vec<u8>, number: u64) {
    match u8::try_from(number) {
        Ok(small @ 0..128) => bytes.push(small),
        _ => {
            bytes.push(0xcf);
            bytes.extend(number.to_be_bytes());
        }
    }
}

fn string(bytes: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()).expect("short strings") {
        len @ 0..32 => bytes.push(0xa0 | len),
        len => bytes.extend([0xd9, len]),
    }
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_what_the_protocol_says() {
        let head = [0xce, 0, 0, 0, 35, 0x82, 0, 1, 1, 0];
        let space = [0x86, 0x10, 0xcf, 0, 0, 0, 0, 0, 0, 2, 1];
        let limit = [0x11, 0, 0x13, 0, 0x12, 0xcf, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let key = [0x14, 0, 0x20, 0x91, 7];
        assert_eq!(select(Some(7)), [&head[..], &space, &limit, &key].concat());
    }
}
