//! Executes docs/shards.md: types the commands as it shows them, from top to bottom, at nodes as it describes them.

use crate::{
    cluster::Cluster,
    harness::{BINARY, repository},
    shown::{commands, matches},
};
use std::{fs, path::Path, process::Command};

#[test]
fn the_commands_of_the_guide_to_shards() {
    let cluster = Cluster::nodes(3);
    let text = fs::read_to_string(repository().join("docs/shards.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let commands = commands(&text);
    assert!(commands.len() > 25, "the guide shows commands");
    for (command, expected) in commands {
        let output = run(&cluster, folder.path(), &command);
        assert!(matches(&output, &expected), "{command}\nsaid       {output}\ninstead of {expected}");
    }
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
