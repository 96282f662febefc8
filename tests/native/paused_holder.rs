//! A holder that is stopped by a signal until its lease is over, and goes on as if nothing had happened: the store
//! refuses what it writes. The holder is a real process, the command under `lockwood lock --lease`.

use crate::{
    harness::{BINARY, Server, eventually},
    leaseholder::Leaseholder,
};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

/// For every line it is sent, it writes the document under its lock and says how that went.
const PROGRAM: &str = r#"echo $$
while read by; do
    lockwood put user/42 "{\"by\": \"$by\"}" --wait 0 2>&1 >/dev/null | head -c 60 | tr '\n' ' '
    echo
done"#;

struct Holder {
    child: Child,
    program: u32,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(server: &Server) -> Holder {
        let folder = Path::new(BINARY).parent().unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(BINARY);
        command
            .args([
                "lock", "--lease", "2s", "--owner", "ann", "--write", "user/42", "--", "sh", "-c", PROGRAM,
            ])
            .env("LOCKWOOD_SERVER", server.native.to_string())
            .env("PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut holder = Holder { child, program: 0, input, output };
        holder.program = holder.line().parse().unwrap();
        holder
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// Lets the program write; gives what its command complained of.
    fn write(&mut self, by: &str) -> String {
        writeln!(self.input, "{by}").unwrap();
        self.line()
    }

    fn signal(&self, id: u32, signal: &str) {
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    }

    /// Stops the command that renews the lease, and the program that relies on it.
    fn pause(&self) {
        self.signal(self.child.id(), "-STOP");
        self.signal(self.program, "-STOP");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ =
            Command::new("kill").args(["-KILL", &self.program.to_string()]).stderr(Stdio::null()).status();
        let _ = self.child.wait();
    }
}

fn value(ann: &Leaseholder) -> Value {
    ann.store.get("documents/user/42")["document"]["value"]["by"].clone()
}

fn check(with_other: bool) {
    let server = Server::start(&[]);
    let (ann, bob) = (Leaseholder::new(&server, "ann"), Leaseholder::new(&server, "bob"));
    let mut holder = Holder::start(&server);
    assert_eq!(holder.write("ann"), "");
    assert_eq!(value(&ann), "ann");
    let refused = ann.store.send("PUT", "documents/user/42?wait_ms=0", "{}");
    assert_eq!(refused.assert_problem(423, "locked")["blockers"][0]["name"], "ann");
    holder.pause();
    eventually("her lease is over", || ann.locks().is_empty());
    let expected = if with_other {
        let held = bob.take("write user/42");
        let put = format!("documents/user/42?token={}", held.token);
        assert_eq!(ann.store.send("PUT", &put, r#"{"by":"bob"}"#).status, 200);
        "bob"
    } else {
        "ann"
    };
    // Only the program goes on: nobody has told it yet that it lost its lease.
    holder.signal(holder.program, "-CONT");
    let complaint = holder.write("ann again");
    assert!(complaint.starts_with("lockwood: the lock with token"), "{complaint:?}");
    assert!(complaint.contains("is over"), "{complaint:?}");
    assert_eq!(value(&ann), expected, "what the late holder wrote is not there");
    // Once the command goes on too, it notices and ends the program.
    holder.signal(holder.child.id(), "-CONT");
    assert_eq!(holder.child.wait().unwrap().code(), Some(76));
    assert_eq!(value(&ann), expected);
    let position = ann.store.get("position");
    assert_eq!(position["position"], json!(if with_other { 2 } else { 1 }));
}

#[test]
fn a_paused_holder_cannot_write_over_the_next_one() {
    check(true);
}

#[test]
fn a_paused_holder_cannot_write_even_if_nobody_came_after_it() {
    check(false);
}
