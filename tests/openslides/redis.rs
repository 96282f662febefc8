//! A real Redis of the test's own, and the one stream that is read from it. Knows nothing of what the entries
//! mean.

use crate::harness::eventually;
use serde_json::{Map, Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};
use tempfile::TempDir;

/// A running Redis that keeps nothing; killed when dropped.
pub(crate) struct Redis {
    child: Child,
    port: u16,
    _folder: TempDir,
}

/// A free port that the kernel gives to nobody who asks for any port, so that it stays free.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 9_000).unwrap();
    (0..9_000)
        .map(|_| 15_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed) % 9_000) % 9_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .unwrap()
}

impl Redis {
    pub(crate) fn start() -> Redis {
        Redis::start_at(free_port())
    }

    pub(crate) fn start_at(port: u16) -> Redis {
        let folder = TempDir::new().unwrap();
        let mut command = Command::new("redis-server");
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(folder.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("redis-server is installed by scripts/deps test");
        let redis = Redis { child, port, _folder: folder };
        eventually("Redis is up", || redis.ask(&["PING"]).is_some_and(|pong| pong == "PONG"));
        redis
    }

    /// The value of the flag that leads to it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Ends it; returns where it was.
    pub(crate) fn stop(self) -> u16 {
        self.port
    }

    /// All entries of the stream of changes, each as one object with its values decoded.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let entries = self.ask(&["XRANGE", "ModifiedFields", "-", "+"]).unwrap();
        entries.as_array().unwrap().iter().map(|entry| decoded(&entry[1])).collect()
    }

    /// Waits for so many entries; there must not be more.
    #[track_caller]
    pub(crate) fn messages(&self, count: usize) -> Vec<Value> {
        eventually(&format!("{count} messages"), || self.entries().len() >= count);
        let entries = self.entries();
        assert_eq!(entries.len(), count, "{entries:?}");
        entries
    }

    fn ask(&self, words: &[&str]) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        stream.write_all(text.as_bytes()).ok()?;
        Some(answer(&mut BufReader::new(stream)))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One value of the protocol of Redis.
fn answer(stream: &mut BufReader<TcpStream>) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let (kind, rest) = line.trim_end().split_at(1);
    match kind {
        "+" | ":" => json!(rest),
        "*" => (0..rest.parse::<usize>().unwrap()).map(|_| answer(stream)).collect(),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
            stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(bytes.len() - 2);
            json!(String::from_utf8(bytes).unwrap())
        }
        _ => panic!("Redis says {line}"),
    }
}

/// Names and values that take turns, the values being JSON; no name comes twice.
fn decoded(fields: &Value) -> Value {
    let mut message = Map::new();
    for pair in fields.as_array().unwrap().chunks(2) {
        let [name, value] = pair else { panic!("a name without a value: {fields}") };
        let value =
            serde_json::from_str(value.as_str().unwrap()).unwrap_or_else(|_| panic!("no JSON: {value}"));
        assert_eq!(message.insert(name.as_str().unwrap().to_owned(), value), None, "{fields}");
    }
    Value::Object(message)
}
