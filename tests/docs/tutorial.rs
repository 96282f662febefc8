//! Types the README and then the tutorial from top to bottom, as somebody with two terminals and a fresh server would.

use super::{
    harness::{BINARY, Server, repository},
    matches,
};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Where the program in the first terminal is ended by hand.
const HOLDER_ENDS: &str = "<!-- the holder ends -->";
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn the_readme_and_then_the_tutorial_on_the_same_server() {
    let mut desk = Desk::new();
    desk.type_all("README.md");
    assert!(desk.commands > 6, "the README shows commands");
    desk.type_all("docs/guide/tutorial.md");
    assert!(desk.commands > 35, "the tutorial shows commands");
    assert!(desk.exported.iter().any(|(name, _)| name == "LOCKWOOD_NAMESPACE"), "{:?}", desk.exported);
}

impl Desk {
    fn type_all(&mut self, document: &str) {
        let text = fs::read_to_string(repository().join(document)).unwrap();
        let desk = self;
        let mut block: Option<(bool, Vec<&str>)> = None;
        for line in text.lines() {
            block = match (line, block.take()) {
                ("```console", None) => Some((false, Vec::new())),
                ("```console holder", None) => Some((true, Vec::new())),
                ("```", Some((true, lines))) => {
                    desk.hold(lines[0]);
                    None
                }
                ("```", Some((false, lines))) => {
                    desk.play(&lines);
                    None
                }
                (line, Some((holder, mut lines))) => {
                    lines.push(line);
                    Some((holder, lines))
                }
                (HOLDER_ENDS, None) => {
                    desk.let_go();
                    None
                }
                (line, None) => {
                    desk.export(line);
                    None
                }
            };
        }
    }

    /// What is set for all commands that follow; the path is set already.
    fn export(&mut self, line: &str) {
        let exported = line.strip_prefix("    export ").and_then(|line| line.split_once('='));
        if let Some((name, value)) = exported.filter(|(name, _)| *name != "PATH") {
            self.exported.push((name.to_owned(), value.trim().to_owned()));
        }
    }
}

/// A server, a folder, and what runs in the first terminal.
struct Desk {
    server: Server,
    folder: tempfile::TempDir,
    holder: Option<Child>,
    exported: Vec<(String, String)>,
    commands: usize,
}

impl Desk {
    fn new() -> Desk {
        let (server, folder) = (Server::start(&[]), tempfile::tempdir().unwrap());
        Desk { server, folder, holder: None, exported: Vec::new(), commands: 0 }
    }

    /// Commands with what they are to say, `…` standing for anything.
    fn play(&mut self, lines: &[&str]) {
        let mut lines = lines.iter().peekable();
        while let Some(line) = lines.next() {
            let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("not a command: {line}"));
            let mut expected = String::new();
            while let Some(output) = lines.next_if(|line| !line.starts_with("$ ")) {
                expected += &format!("{output}\n");
            }
            // The name the alias stands for is on the path here.
            if command.starts_with("alias ") {
                continue;
            }
            let said = self.say(command);
            let (said, expected) = (said.trim_end(), expected.trim_end());
            assert!(matches(said, expected), "{command}\nsaid       {said}\ninstead of {expected}");
            self.commands += 1;
        }
    }

    /// What a command says, on either channel; a refusal is something to say too.
    fn say(&self, command: &str) -> String {
        let output = self.shell(&format!("{{ {command}\n}} 2>&1")).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command in the first terminal until it holds its lock.
    fn hold(&mut self, line: &str) {
        let command = line.strip_prefix("$ ").unwrap();
        let mut shell = self.shell(&format!("exec {command}"));
        self.holder = Some(shell.stdout(Stdio::null()).spawn().unwrap());
        let since = Instant::now();
        while self.say("lockwood locks").starts_with("no locks") {
            assert!(since.elapsed() < PATIENCE, "{command} holds nothing");
        }
        self.commands += 1;
    }

    /// Ctrl-C in the first terminal.
    fn let_go(&mut self) {
        let mut holder = self.holder.take().expect("something is held");
        let id = holder.id().to_string();
        assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        holder.wait().unwrap();
    }

    fn shell(&self, command: &str) -> Command {
        let programs = Path::new(BINARY).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(&self.folder).env("PATH", path);
        shell.env("LOCKWOOD_SERVER", self.server.native.to_string());
        shell.envs(self.exported.iter().map(|(name, value)| (name, value)));
        shell
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(holder) = &mut self.holder {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}
