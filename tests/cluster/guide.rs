//! Executes docs/cluster.md: makes the database, starts the nodes and types the commands as it says, from top to bottom.

use crate::{
    harness::{BINARY, Server, eventually, repository},
    http,
    nodes::free_address,
    shown::{commands, fenced, matches, section},
};
use lockwood_test_support::Postgres;
use std::{fs, path::Path, process::Command};
use tempfile::TempDir;

/// The addresses of the guide, by node: for clients and for other nodes. Then those of other servers.
const ADDRESSES: [&str; 7] = [
    "127.0.0.1:7117",
    "127.0.0.1:7118",
    "127.0.0.1:7127",
    "127.0.0.1:7128",
    "127.0.0.1:7137",
    "127.0.0.1:7138",
    // The single server.
    "127.0.0.1:7217",
];

#[test]
fn the_commands_of_the_guide_to_clusters() {
    let text = fs::read_to_string(repository().join("docs/cluster.md")).unwrap();
    // Ten machines are started by a test of their own.
    let (_, text) = section(&text, "Ten machines");
    let desk = Desk::start(&text);
    let commands = commands(&text);
    assert!(commands.len() > 20, "the guide shows commands");
    for (command, expected) in commands {
        desk.type_in(&command, &expected);
    }
}

/// Three nodes, and a folder in which commands are typed.
struct Desk {
    /// Where the guide's addresses really are.
    places: Vec<(&'static str, String)>,
    url: String,
    folder: TempDir,
    _nodes: Vec<Server>,
}

impl Desk {
    fn start(text: &str) -> Desk {
        let postgres = Postgres::shared();
        for statement in fenced(text, "sql") {
            postgres.sql("postgres", statement);
        }
        let own = |shown: &&'static str| (*shown, free_address());
        let mut desk = Desk {
            places: ADDRESSES.iter().map(own).collect(),
            url: format!("postgres://lockwood:secret@localhost:{}/lockwood", postgres.port()),
            folder: tempfile::tempdir().unwrap(),
            _nodes: Vec::new(),
        };
        fs::create_dir(desk.folder.path().join("lockwood-cluster")).unwrap();
        let starts = fenced(text, "sh").into_iter().filter(|line| line.contains("--listen 127.0.0.1:"));
        for (index, line) in starts.enumerate() {
            desk.start_node(index, line);
        }
        assert_eq!(desk._nodes.len(), 3, "the guide starts three nodes");
        desk
    }

    /// Starts a node with the flags of the guide. The first one owns the shard before the others come.
    fn start_node(&mut self, index: usize, line: &str) {
        let line = self.placed(line);
        let words: Vec<&str> = line.strip_prefix("lockwood serve ").unwrap().split(' ').collect();
        let mut flags = vec!["--cluster", &self.url];
        for pair in words.chunks(2).filter(|pair| !["--listen", "--data"].contains(&pair[0])) {
            flags.extend(pair);
        }
        let server = Server::plain_at(self.place(2 * index), &flags);
        let file = self.folder.path().join(format!("lockwood-cluster/n{}.pid", index + 1));
        fs::write(file, server.id().to_string()).unwrap();
        self._nodes.push(server);
        eventually("all nodes are live and the first one owns the shard", || {
            let status = http::request(self._nodes[0].native, "GET", "/v1/cluster", &[]).json();
            let nodes = status["nodes"].as_array().unwrap();
            let live = nodes.iter().filter(|node| node["state"] == "live").count();
            // From the second one on there is a follower.
            let followers = status["shards"][0]["followers"].as_array().map_or(0, Vec::len);
            live == index + 1 && status["shards"][0]["owner"] == "n1" && followers == index.min(1)
        });
    }

    fn place(&self, index: usize) -> &str {
        &self.places[index].1
    }

    /// The same with the addresses that the nodes really have.
    fn placed(&self, text: &str) -> String {
        self.places.iter().fold(text.to_owned(), |text, (shown, own)| text.replace(shown, own))
    }

    fn type_in(&self, command: &str, expected: &str) {
        let folder = Path::new(BINARY).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let servers = [self.place(0), self.place(2), self.place(4)].join(",");
        let command = self.placed(command);
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).current_dir(self.folder.path()).env("PATH", path);
        let output =
            shell.env("LOCKWOOD_SERVER", servers).env("LOCKWOOD_CLUSTER", &self.url).output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let (output, expected) = (String::from_utf8(output.stdout).unwrap(), self.placed(expected));
        assert!(
            matches(&without_columns(&output), &without_columns(&expected)),
            "{command}\nsaid       {output}\ninstead of {expected}"
        );
    }
}

/// Servers that a command has started are ended like the others.
impl Drop for Desk {
    fn drop(&mut self) {
        for file in ["lockwood-cluster/n3.pid", "single.pid"] {
            if let Ok(id) = fs::read_to_string(self.folder.path().join(file)) {
                let _ = Command::new("kill").args(["-KILL", id.trim()]).status();
            }
        }
    }
}

/// Addresses have other lengths than those in the guide, so columns have other widths.
fn without_columns(text: &str) -> String {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}
