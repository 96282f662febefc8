//! `lockwood schema` as a shell sees it.

use crate::harness::{self, Server};
use serde_json::{Value, json};
use std::{
    fs,
    process::{Command, Output},
};
use tempfile::TempDir;

struct Shell {
    server: Server,
    folder: TempDir,
}

impl Shell {
    fn new() -> Shell {
        Shell { server: Server::start(&[]), folder: TempDir::new().unwrap() }
    }

    fn file(&self, name: &str, schema: &Value) {
        fs::write(self.folder.path().join(name), schema.to_string()).unwrap();
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(harness::BINARY);
        command.arg("schema").args(line.split(' ')).current_dir(&self.folder);
        command.env("LOCKWOOD_SERVER", self.server.native.to_string()).output().unwrap()
    }

    #[track_caller]
    fn shows(&self, line: &str, expected: &str) {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{line}");
    }

    #[track_caller]
    fn json(&self, line: &str) -> Value {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    #[track_caller]
    fn fails(&self, line: &str, code: i32, part: &str) {
        let output = self.run(line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
    }
}

#[test]
fn a_schema_from_file_to_grave() {
    let shell = Shell::new();
    shell.file("user.json", &json!({ "type": "object", "properties": { "age": { "type": "integer" } } }));
    shell.file("v2.json", &json!({ "type": "object", "properties": { "age": { "type": "number" } } }));
    shell.file("bad.json", &json!({ "type": "object", "properties": { "age": { "type": "string" } } }));
    shell.shows("list", "no schemas\n");
    shell.shows("register user.json", "user has version 1 (id 1)\n");
    shell.shows("register user.json", "user has it already: version 1 (id 1)\n");
    shell.shows("check v2.json --subject user", "user: compatible (BACKWARD, STRICT)\n");
    shell.fails("check bad.json --subject user", 78, "version 1: TYPE_CHANGED at #/properties/age");
    shell.fails("register bad.json --subject user", 78, "TYPE_CHANGED");
    let output = shell.run("check bad.json --subject user --json");
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap()["compatible"], false);
    shell.shows("register v2.json --subject user", "user has version 2 (id 2)\n");
    shell.shows(
        "list",
        "subject  version  id  level     policy  mode       state\n\
         user     2        2   BACKWARD  STRICT  READWRITE  enforced\n",
    );
    assert_eq!(shell.json("list --json")["subject"], "user");
    shell.shows(
        "show user 1",
        "{\n  \"properties\": {\n    \"age\": {\n      \"type\": \"integer\"\n    }\n  },\n  \"type\": \"object\"\n}\n",
    );
    assert_eq!(shell.json("show user --json")["version"], 2);
    shell.shows("diff user", "version 1 → 2\n  ~ $.age: type \"integer\" → \"number\"\n");
    shell.shows("diff user 2 2", "version 2 → 2\n  no difference\n");
    shell.shows(
        "settings user --level full --mode readonly",
        "setting    value     from\nlevel      FULL      set here\npolicy     STRICT    not set here\n\
         mode       READONLY  set here\nisolation  snapshot  not set here\n",
    );
    shell.fails("delete user 2", 70, "schema_read_only");
    assert_eq!(shell.json("settings user --mode default --json")["own"], json!(["level"]));
    shell.shows("delete user 2", "deleted: user 2\n");
    shell.shows("show user --versions", "version  id  state\n1        1\n2        2   deleted\n");
    shell.shows("delete user 2 --permanent", "deleted for good: user 2\n");
    shell.fails("show user 2", 66, "no version 2");
    shell.fails("show nobody", 66, "no_subject");
    shell.fails("register missing.json", 65, "cannot read missing.json");
    shell.fails("check -", 65, "--subject");
    shell.fails("settings --level both", 70, "bad_setting");
}
