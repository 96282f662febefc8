//! Executes docs/shards.md: what it shows is what the real nodes and the real command do.

use crate::{
    cluster::Cluster,
    harness::{BINARY, repository},
};
use std::{fs, path::Path, process::Command};

/// The ports of the guide, by node.
const PORTS: [&str; 3] = ["7117", "7118", "7119"];

#[test]
fn the_commands_of_the_guide_to_shards() {
    let cluster = Cluster::nodes(3);
    let text = fs::read_to_string(repository().join("docs/shards.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut lines = fenced(&text).into_iter().peekable();
    let mut commands = 0;
    while let Some(line) = lines.next() {
        let mut command =
            line.strip_prefix("$ ").unwrap_or_else(|| panic!("not a command: {line}")).to_owned();
        if command.contains("<< 'END'") {
            while !command.ends_with("\nEND") {
                command += &format!("\n{}", lines.next().unwrap());
            }
        }
        let mut expected = String::new();
        while let Some(output) = lines.next_if(|line| !line.starts_with("$ ")) {
            expected += &format!("{output}\n");
        }
        let command = placed(&cluster, &command);
        let output = run(&cluster, folder.path(), &command);
        let expected = placed(&cluster, &expected);
        assert!(matches(&output, &expected), "{command}\nsaid       {output}\ninstead of {expected}");
        commands += 1;
    }
    assert!(commands > 25, "the guide shows commands");
}

/// The same with the addresses that the nodes really have.
fn placed(cluster: &Cluster, text: &str) -> String {
    let mut text = text.replace("127.0.0.1:$port", "$port");
    for (port, address) in PORTS.iter().zip(&cluster.addresses) {
        let (host, own) = address.rsplit_once(':').unwrap();
        text = text
            .replace(&format!("127.0.0.1:{port}"), address)
            .replace(&format!("\"127.0.0.1\", {port}"), &format!("\"{host}\", {own}"))
            // Where a loop goes over the ports.
            .replace(&format!(" {port}"), &format!(" {address}"));
    }
    text
}

fn run(cluster: &Cluster, folder: &Path, command: &str) -> String {
    let path =
        format!("{}:{}", Path::new(BINARY).parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).current_dir(folder);
    shell.env("PATH", path).env("LOCKWOOD_SERVER", &cluster.addresses[0]);
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether a text is as expected; … stands for anything.
fn matches(text: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (index, part) in parts.iter().enumerate() {
        let is_last = index + 1 == parts.len();
        let found =
            if is_last { rest.ends_with(part).then(|| rest.len() - part.len()) } else { rest.find(part) };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

/// The lines of all blocks that are typed.
fn fenced(text: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if inside => lines.push(line),
            _ => {}
        }
    }
    lines
}
