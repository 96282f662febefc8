//! Executes the documents: what they show is what the real server and the real command do. The README and the tutorial
//! are typed by `tutorial`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "../harness/mod.rs"]
mod harness;
mod tutorial;

use futures_util::{SinkExt, StreamExt};
use harness::{BINARY, Server, repository};
use std::{collections::HashMap, fs, path::Path, process::Command, time::Duration};
use tokio::net::TcpStream;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

#[test]
fn the_commands_of_the_guide_to_documents() {
    assert!(type_all("docs/documents.md") > 15, "the guide shows commands");
}

#[test]
fn the_commands_of_the_guide_to_leases() {
    assert!(type_all("docs/leases.md") > 10, "the guide shows commands");
}

#[test]
fn the_commands_of_the_guide_to_schemas() {
    assert!(type_all("docs/schemas.md") > 8, "the guide shows commands");
}

/// Types the commands of a guide from top to bottom; says how many there are.
fn type_all(guide: &str) -> usize {
    let server = Server::start(&[]);
    let text = fs::read_to_string(repository().join(guide)).unwrap();
    let mut lines = fenced(&text, "console").into_iter().peekable();
    let folder = tempfile::tempdir().unwrap();
    let mut commands = 0;
    while let Some(line) = lines.next() {
        let mut command =
            line.strip_prefix("$ ").unwrap_or_else(|| panic!("not a command: {line}")).to_owned();
        // A quote that is still open goes on in the next line.
        while command.matches('\'').count() % 2 == 1 {
            command += &format!("\n{}", lines.next().unwrap());
        }
        let mut expected = String::new();
        while let Some(output) = lines.next_if(|line| !line.starts_with("$ ")) {
            expected += &format!("{output}\n");
        }
        let command = command.replace("127.0.0.1:7117", &server.native.to_string());
        let shell =
            format!("cd {}; shop=http://{}/v1/shop; {command}", folder.path().display(), server.native);
        let output = run(&shell, &server);
        let (output, expected) = (output.trim_end(), expected.trim_end());
        assert!(matches(output, expected), "{command}\nsaid       {output}\ninstead of {expected}");
        commands += 1;
    }
    commands
}

fn run(command: &str, server: &Server) -> String {
    let folder = Path::new(BINARY).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).env("LOCKWOOD_SERVER", server.native.to_string());
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn the_examples_of_the_session_protocol() {
    let server = Server::start(&[]);
    let text = fs::read_to_string(repository().join("docs/session-protocol.md")).unwrap();
    let mut play = Play { url: format!("ws://{}/v1/docs/session", server.native), sides: HashMap::new() };
    let mut side = "first".to_owned();
    let mut exchanges = 0;
    for line in fenced(&text, "session") {
        match line.split_at(2) {
            ("@ ", name) => side = name.to_owned(),
            ("> ", message) => play.say(&side, message).await,
            ("< ", pattern) => {
                play.hear(&side, pattern).await;
                exchanges += 1;
            }
            _ => panic!("neither >, < nor @: {line}"),
        }
    }
    assert!(exchanges > 20, "the document shows exchanges");
}

/// The lines of all code blocks of one kind.
fn fenced<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let fence = format!("```{kind}");
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            _ if line == fence => inside = true,
            "```" => inside = false,
            _ if inside => lines.push(line),
            _ => {}
        }
    }
    lines
}

/// The connections of the examples, by name.
struct Play {
    url: String,
    sides: HashMap<String, Side>,
}

struct Side {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// The locks that came of this side's messages, by their ids.
    locks: HashMap<u64, u64>,
    welcome: serde_json::Value,
}

impl Play {
    async fn say(&mut self, name: &str, message: &str) {
        if !self.sides.contains_key(name) {
            let (socket, _) = connect_async(&self.url).await.unwrap();
            let (locks, welcome) = (HashMap::new(), serde_json::Value::Null);
            self.sides.insert(name.to_owned(), Side { socket, locks, welcome });
        }
        let message = self.fill_in(name, message);
        self.sides.get_mut(name).unwrap().socket.send(Message::text(message)).await.unwrap();
    }

    /// `{2}` is the lock of this side's message 2, `{third.secret}` what another side was welcomed with.
    fn fill_in(&self, name: &str, message: &str) -> String {
        let mut message = message.to_owned();
        for (id, lock) in &self.sides[name].locks {
            message = message.replace(&format!("{{{id}}}"), &lock.to_string());
        }
        for (other, side) in &self.sides {
            for field in ["session", "secret"] {
                let value = side.welcome[field].as_str().unwrap_or_default();
                message = message.replace(&format!("{{{other}.{field}}}"), value);
            }
        }
        message
    }

    async fn hear(&mut self, name: &str, pattern: &str) {
        let side = self.sides.get_mut(name).unwrap();
        let next = tokio::time::timeout(Duration::from_secs(20), side.socket.next()).await;
        let text = next.unwrap_or_else(|_| panic!("{name} hears nothing, not {pattern}")).unwrap().unwrap();
        let text = text.into_text().unwrap();
        assert!(matches(&text, pattern), "{name}\nheard    {text}\ninstead of {pattern}");
        let message: serde_json::Value = serde_json::from_str(&text).unwrap();
        if message["type"] == "welcome" {
            side.welcome = message;
        } else if let (Some(id), Some(lock)) = (message["id"].as_u64(), message["lock"].as_u64()) {
            side.locks.entry(id).or_insert(lock);
        }
    }
}

/// Whether the text is the pattern with something for each `…`.
fn matches(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
