//! Messages that send a user the right way: each was once about something else than what was wrong.

use crate::{
    harness::{self, Server},
    http::{get_json, send},
};
use serde_json::{Value, json};
use std::{
    fs,
    net::TcpListener,
    process::{Command, Output},
};

/// A `lockwood` command, to be run without a server unless one is given.
fn run(server: Option<&Server>, args: &[&str]) -> Output {
    let mut command = Command::new(harness::BINARY);
    command.args(args).env_remove("LOCKWOOD_SERVER").stdin(std::process::Stdio::null());
    if let Some(server) = server {
        command.env("LOCKWOOD_SERVER", server.native.to_string());
    }
    command.output().unwrap()
}

#[track_caller]
fn fails(server: Option<&Server>, args: &[&str], code: i32) -> String {
    let output = run(server, args);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[track_caller]
fn says(server: &Server, args: &[&str]) -> String {
    let output = run(Some(server), args);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_collection_without_a_key_is_called_a_collection() {
    let said = fails(None, &["get", "user"], 2);
    assert!(said.contains("user is a collection") && said.contains("lockwood filter user"), "{said}");
    assert!(!said.contains("empty part"), "{said}");
}

#[test]
fn a_server_with_tls_in_its_address_is_refused_with_the_reason() {
    let said = fails(None, &["locks", "--server", "https://db.example:7117"], 2);
    assert!(said.contains("plain HTTP") && said.contains("http://db.example:7117"), "{said}");
}

#[test]
fn a_host_that_cannot_be_found_is_told_as_such() {
    let said = fails(None, &["locks", "--server", "nohost.invalid:1"], 69);
    assert!(said.contains("the host in nohost.invalid:1 cannot be found"), "{said}");
    assert!(said.contains("--server") && !said.contains("lockwood serve"), "{said}");
}

#[test]
fn an_empty_name_is_refused_by_the_argument_it_stands_for() {
    let server = Server::start(&[]);
    for (args, name) in [
        (&["index", "add", "user", ""][..], "<FIELD>"),
        (&["index", "drop", "user", ""], "<FIELD>"),
        (&["index", "add", "", "name"], "<COLLECTION>"),
        (&["grace", "end", ""], "<NAMESPACE>"),
        (&["shard", "procedure", "show", ""], "<NAME>"),
    ] {
        let said = fails(Some(&server), args, 2);
        assert!(said.contains(name) && !said.contains("openapi"), "{args:?}: {said}");
    }
}

#[test]
fn a_backup_into_a_directory_that_is_not_there_names_the_directory() {
    let server = Server::start(&[]);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing");
    let missing = missing.to_str().unwrap();
    for to in [format!("{missing}/"), format!("{missing}/shop.backup")] {
        let said = fails(Some(&server), &["backup", &to], 1);
        assert!(said.contains(&format!("there is no directory {missing}")), "{said}");
        assert!(!said.contains(".part"), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_occupied_port_is_told_with_the_flag_that_moves_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let said = fails(None, &["serve", "--listen", &address, "--data", data], 1);
    assert!(said.contains("another program listens there") && said.contains("--listen"), "{said}");
    let facade = ["serve", "--listen", "127.0.0.1:0", "--data", data, "--elasticsearch", &address];
    let said = fails(None, &facade, 1);
    assert!(said.contains("another program listens there") && said.contains("--elasticsearch"), "{said}");
}

#[test]
fn a_facade_that_cannot_listen_is_left_out_if_that_is_wanted() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = Server::start(&["--skip-unavailable", "--elasticsearch", &address]);
    let line = server.greeting.lines().find(|line| line.contains("elasticsearch is left out")).unwrap();
    assert!(line.contains(&address) && line.contains("--elasticsearch ADDR"), "{line}");
    let status = get_json(&server, "/v1/status");
    let names: Vec<&Value> =
        status["interfaces"].as_array().unwrap().iter().map(|interface| &interface["name"]).collect();
    assert_eq!(names, ["native", "locktopus"]);
    // The native interface is what the server is for.
    let native = server.native.to_string();
    let data = tempfile::tempdir().unwrap();
    let args = ["serve", "--skip-unavailable", "--listen", &native, "--data", data.path().to_str().unwrap()];
    assert!(fails(None, &args, 1).contains("--listen"));
}

#[test]
fn an_unusable_data_directory_is_told_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    for (data, reason) in [(file.clone(), "it is a file"), (file.join("below"), "Not a directory")] {
        let said = fails(None, &["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()], 1);
        assert!(said.contains(reason) && said.contains("must be a directory"), "{said}");
        assert!(!said.contains("Os {") && !said.contains("Fjall"), "{said}");
    }
    let said = fails(None, &["serve", "--listen", "127.0.0.1:0", "--data", "/proc/lockwood"], 1);
    assert!(said.contains("must be a directory") && !said.contains("Os {"), "{said}");
}

#[test]
fn a_lock_that_is_over_is_not_blamed_on_its_namespace() {
    let server = Server::start(&[]);
    says(&server, &["put", "user/42", "{}"]);
    let said = fails(Some(&server), &["locks", "release", "4711"], 70);
    assert!(said.contains("there is no lock 4711 in the namespace \"default\""), "{said}");
    let said = fails(Some(&server), &["locks", "release", "4711", "-n", "none"], 70);
    assert!(said.contains("lockwood namespaces"), "{said}");
}

#[test]
fn a_body_of_the_wrong_shape_is_told_with_the_member_and_what_it_must_be() {
    let server = Server::start(&[]);
    let check = |route: &str, body: Value, part: &str| {
        let answer =
            send(server.native, "POST", &format!("/v1/default/{route}"), &[], body.to_string().as_bytes());
        let detail = answer.assert_problem(400, "bad_body")["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(part), "{route} {body}: {detail}");
        assert!(!detail.contains("struct "), "{route} {body}: {detail}");
    };
    check("locks", json!([]), "it must be an object with the members `owner`, `resources`, `ttl_ms`");
    check("locks", json!(5), "it must be an object with the members `owner`");
    check("locks", json!({"owner": 5, "resources": [], "ttl_ms": 1}), "`owner` must be a string, not 5");
    let body =
        json!({"owner": "a", "resources": [{"path": "a", "mode": "write", "depth": "x"}], "ttl_ms": 1});
    check("locks", body, "`resources[0].depth` must be a whole number from 0, not \"x\"");
    for route in
        ["locks/1/renew", "locks/release", "get", "filter", "count", "min", "join", "reserve", "shard/select"]
    {
        check(route, json!([[]]), "must be");
        check(route, json!("x"), "must be");
    }
}

#[test]
fn errors_are_json_where_answers_are() {
    let server = Server::start(&[]);
    let error = |args: &[&str], code| -> Value {
        let said = fails(Some(&server), args, code);
        serde_json::from_str::<Value>(&said).unwrap_or_else(|_| panic!("{said}"))["error"].clone()
    };
    let refused = error(&["get", "user/42", "--json"], 66);
    assert_eq!((&refused["code"], &refused["exit_code"]), (&json!("no_document"), &json!(66)));
    assert!(refused["message"].as_str().unwrap().contains("user/42"), "{refused}");
    says(&server, &["lease", "take", "user/42", "--owner", "ann"]);
    let refused = error(&["put", "user/42", "{}", "--json", "--wait", "0"], 75);
    assert_eq!((&refused["code"], &refused["blockers"][0]["name"]), (&json!("locked"), &json!("ann")));
    let refused = error(&["lock", "--json", "--wait", "0", "--write", "user/42", "--", "true"], 75);
    assert_eq!((&refused["code"], &refused["blockers"][0]["name"]), (&json!("locked"), &json!("ann")));
    let refused = error(&["lock", "--json", "--write", "user/43", "--", "no-such-program"], 127);
    assert_eq!(refused["code"], "cannot_run");
    assert_eq!(error(&["locks", "release", "4711", "--json"], 70)["code"], "unknown_lock");
    assert_eq!(error(&["dump", "--json", "-n", ""], 2)["code"], "usage");
    let refused = error(&["get", "user", "--json"], 2);
    assert_eq!((&refused["code"], &refused["exit_code"]), (&json!("usage"), &json!(2)));
    let said = fails(None, &["status", "--json", "--server", "127.0.0.1:1"], 69);
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["error"]["code"], "unavailable");
    assert!(fails(Some(&server), &["get", "user/42"], 66).starts_with("lockwood: "));
}

#[test]
fn a_server_can_be_called_localhost() {
    let server = Server::plain_at("localhost:0", &[]);
    assert!(server.native.ip().is_loopback());
    let address = format!("localhost:{}", server.native.port());
    let output = run(None, &["put", "user/42", "{}", "--server", &address]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_day_is_a_unit_of_time() {
    let server = Server::start(&["--retain", "30d"]);
    says(&server, &["trim", "7d"]);
    let said = says(&server, &["lease", "take", "user/42", "--owner", "ann", "--ttl", "1d", "--json"]);
    let left = serde_json::from_str::<Value>(&said).unwrap()["expires_in_ms"].as_u64().unwrap();
    assert!(left > 86_000_000, "{said}");
}

#[test]
fn the_status_shows_interfaces_positions_locks_and_memory() {
    let server = Server::start(&[]);
    says(&server, &["put", "user/42", "{}", "-n", "shop"]);
    says(&server, &["lease", "take", "user/42", "--owner", "ann", "-n", "shop"]);
    let said = says(&server, &["status"]);
    for part in [
        "ready".to_owned(),
        format!("native             {}", server.native),
        format!("locktopus          {}", server.locktopus),
        server.data().display().to_string(),
        "MiB".to_owned(),
        "1 held, 0 waiting".to_owned(),
        "shop       1         0         1     0".to_owned(),
    ] {
        assert!(said.contains(&part), "no {part:?} in {said}");
    }
    let status: Value = serde_json::from_str(&says(&server, &["status", "--json"])).unwrap();
    assert!(status["memory_bytes"].as_u64().unwrap() > 1 << 20, "{status}");
    assert_eq!((&status["status"], &status["namespaces"][0]["position"]), (&json!("ready"), &json!(1)));
}

#[test]
fn namespaces_and_collections_are_listed() {
    let server = Server::start(&[]);
    assert_eq!(says(&server, &["namespaces"]), "no namespaces\n");
    assert_eq!(says(&server, &["collections"]), "no collections in namespace default\n");
    says(&server, &["put", "user/42", "{}", "-n", "shop"]);
    says(&server, &["put", "order/1", "{}", "-n", "shop"]);
    assert!(says(&server, &["namespaces"]).contains("shop       2"));
    assert_eq!(says(&server, &["collections", "-n", "shop"]), "order\nuser\n");
    let listed: Value =
        serde_json::from_str(&says(&server, &["collections", "-n", "shop", "--json"])).unwrap();
    assert_eq!(listed["collections"], json!(["order", "user"]));
}

#[test]
fn shells_can_complete_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(None, &["completion", shell]);
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && script.contains("namespaces"), "{shell}: {script}");
    }
    let script = format!("{} completion bash | bash -n", harness::BINARY);
    assert!(Command::new("bash").args(["-c", &script]).status().unwrap().success());
}

#[test]
fn manual_pages_are_made_from_the_same_definitions() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(None, &["man", folder.path().join("man1").to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = |name: &str| fs::read_to_string(folder.path().join("man1").join(name)).unwrap();
    assert!(page("lockwood.1").contains("namespaces"));
    let lock = page("lockwood-lock.1");
    assert!(lock.contains("kill\\-after") && lock.contains("Exit codes"), "{lock}");
    assert!(page("lockwood-lease-take.1").contains("ttl"));
}

#[test]
fn help_lists_exit_codes_of_commands_below_commands_too() {
    for command in
        ["lock", "grace", "grace end", "import", "shard procedure put", "shard config", "completion"]
    {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let output = run(None, &words);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(help.contains("Exit codes:"), "{command}: {help}");
    }
}
