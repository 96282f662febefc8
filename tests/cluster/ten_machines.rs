//! Executes the section of docs/cluster.md about ten machines: starts ten nodes with the flags of its unit, each with a certificate of
//! its own, and types its commands from top to bottom.

use crate::{
    harness::{BINARY, Server, eventually_is, repository},
    http,
    nodes::free_address,
    shown::{commands, fenced, matches, section},
};
use lockwood_test_support::{Authority, Postgres};
use std::{fs, path::Path, process::Command, thread};
use tempfile::TempDir;

const NODES: usize = 10;

#[test]
fn the_commands_of_the_guide_to_ten_machines() {
    let text = fs::read_to_string(repository().join("docs/cluster.md")).unwrap();
    let (text, _) = section(&text, "Ten machines");
    let machines = Machines::start(&flags(text));
    let commands = commands(text);
    assert!(commands.len() > 8, "the section shows commands");
    for (command, expected) in commands {
        machines.type_in(&command, &expected);
    }
}

/// The flags of the unit, which all machines have.
fn flags(text: &str) -> Vec<String> {
    let unit = fenced(text, "ini").join(" ").replace('\\', "");
    let (_, start) = unit.split_once("ExecStart=/usr/bin/lockwood serve ").expect("the unit starts a node");
    let (start, _) = start.split_once("Restart=").expect("the unit says when it is started again");
    start.split_whitespace().map(str::to_owned).collect()
}

struct Machines {
    folder: TempDir,
    servers: Vec<Server>,
    url: String,
    /// Keeps the certificates.
    _authority: Authority,
}

impl Machines {
    /// Starts all nodes at once, and waits until each has its share of the shards.
    fn start(flags: &[String]) -> Machines {
        let postgres = Postgres::shared();
        let url = postgres.url(&postgres.create_database(), postgres.port());
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let starts: Vec<Vec<String>> = (1..=NODES)
            .map(|number| of_machine(flags, &url, (number, &free_address()), &authority))
            .collect();
        let started: Vec<_> = starts
            .into_iter()
            .map(|flags| {
                let listen = free_address();
                thread::spawn(move || {
                    Server::plain_at(&listen, &flags.iter().map(String::as_str).collect::<Vec<_>>())
                })
            })
            .collect();
        let servers: Vec<Server> = started.into_iter().map(|server| server.join().unwrap()).collect();
        for (server, number) in servers.iter().zip(1..) {
            fs::write(folder.path().join(format!("n{number}.pid")), server.id().to_string()).unwrap();
        }
        let machines = Machines { folder, servers, url, _authority: authority };
        eventually_is(
            "every node has two shards",
            || machines.shares(),
            |shares| shares.len() == NODES && shares.iter().all(|share| *share == 2),
        );
        machines
    }

    /// How many shards each node owns.
    fn shares(&self) -> Vec<usize> {
        let status = http::request(self.servers[0].native, "GET", "/v1/cluster", &[]).json();
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["shards"].as_array().map_or(0, Vec::len)).collect()
    }

    fn type_in(&self, command: &str, expected: &str) {
        let path = Path::new(BINARY).parent().unwrap().display().to_string();
        let path = format!("{path}:{}", std::env::var("PATH").unwrap());
        let servers: Vec<String> = self.servers.iter().map(|server| server.native.to_string()).collect();
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(self.folder.path()).env("PATH", path);
        shell.env("LOCKWOOD_SERVER", servers.join(",")).env("LOCKWOOD_CLUSTER", &self.url);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
        let output = String::from_utf8(output.stdout).unwrap();
        assert!(matches(&output, expected), "{command}\nsaid       {output}\ninstead of {expected}");
    }
}

/// The flags of one machine: its name, its addresses, its certificate. Where it listens for clients and keeps its cache is the
/// harness's.
fn of_machine(
    flags: &[String],
    url: &str,
    (number, peer): (usize, &str),
    authority: &Authority,
) -> Vec<String> {
    let name = format!("n{number}");
    let (host, _) = peer.rsplit_once(':').unwrap();
    let issued = authority.issue(&name, &[&format!("IP:{host}")], 30);
    let file = |path: &Path| path.to_str().unwrap().to_owned();
    let mut own = vec!["--cluster".to_owned(), url.to_owned()];
    let mut words = flags.iter();
    while let Some(flag) = words.next() {
        let value = match flag.as_str() {
            "--insecure" => {
                own.push(flag.clone());
                continue;
            }
            "--listen" | "--data" => {
                words.next();
                continue;
            }
            "--node" => name.clone(),
            "--advertise" => peer.to_owned(),
            "--peer-cert" => file(&issued.certificate),
            "--peer-key" => file(&issued.key),
            "--peer-ca" => file(&authority.certificate()),
            _ => words.clone().next().unwrap().replace("%H", "localhost"),
        };
        words.next();
        own.extend([flag.clone(), value]);
    }
    own
}
