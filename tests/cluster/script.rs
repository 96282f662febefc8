//! `make cluster`: the script starts a PostgreSQL and three nodes, keeps their data, and leaves nothing running.

use crate::harness::{BINARY, eventually, repository};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
};
use tempfile::TempDir;

#[test]
fn the_script_starts_a_cluster_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    // As root, the script has PostgreSQL run by another user, who must get to what is inside.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let ports = free_ports();
    let script = Script::start(&folder, ports);
    let status = script.status();
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.iter().filter(|node| node["state"] == "live").count(), 3, "{status}");
    assert_eq!(status["shards"][0]["owner"], "n1", "{status}");
    let refused = command(&folder, ports).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("another program listens on port {}", ports[0])), "{said}");
    script.lockwood(&["put", "user/42", r#"{"name": "Ann"}"#]);
    script.stop(folder.path());

    let script = Script::start(&folder, ports);
    let found = script.lockwood(&["get", "user/42"]);
    assert!(String::from_utf8_lossy(&found.stdout).contains("Ann"), "{found:?}");
    script.stop(folder.path());
}

/// The script, with all nodes up.
struct Script {
    child: Child,
    server: String,
}

impl Script {
    fn start(folder: &TempDir, ports: [u16; 4]) -> Script {
        let mut child = command(folder, ports).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let server = format!("127.0.0.1:{}", ports[1]);
        let script = Script { child, server };
        let up = lines.find(|line| line.starts_with("Three nodes"));
        assert!(up.is_some(), "the script ended without saying that nodes are up");
        // What else it says must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        script
    }

    fn lockwood(&self, arguments: &[&str]) -> Output {
        let output = Command::new(BINARY).args(arguments).args(["--server", &self.server]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        output
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.lockwood(&["cluster", "status", "--json"]).stdout).unwrap()
    }

    /// Ends it as Ctrl-C does, and looks for what is left.
    fn stop(mut self, folder: &Path) {
        self.interrupt();
        eventually("the script ends", || self.child.try_wait().unwrap().is_some());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(running(folder), Vec::<String>::new());
    }

    fn interrupt(&self) {
        let _ = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.interrupt();
            let _ = self.child.wait();
        }
    }
}

/// One port for PostgreSQL and three for clients; each port after one of a client's is for other nodes.
fn command(folder: &TempDir, [postgres, clients @ ..]: [u16; 4]) -> Command {
    let clients = clients.map(|port| port.to_string()).join(" ");
    // A test that runs in the background ignores SIGINT, and the script could not change that.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(repository().join("scripts/cluster"));
    command
        .env("LOCKWOOD_CLUSTER_BINARY", BINARY)
        .env("LOCKWOOD_CLUSTER_DATA", folder.path())
        .env("LOCKWOOD_CLUSTER_PORTS", clients)
        .env("LOCKWOOD_CLUSTER_POSTGRES_PORT", postgres.to_string())
        .stdin(Stdio::null());
    command
}

/// Below the ports that the system gives to connections.
fn free_ports() -> [u16; 4] {
    let first = 20_000 + u16::try_from(std::process::id() % 1000).unwrap() * 10;
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let block = (0..).map(|step| first + 10 * step).find(|first| (*first..first + 8).all(is_free)).unwrap();
    [block, block + 1, block + 3, block + 5]
}

/// The processes that have this folder on their command line.
fn running(folder: &Path) -> Vec<String> {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(folder)).collect()
}
