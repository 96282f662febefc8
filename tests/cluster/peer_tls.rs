//! Calls between nodes are encrypted: nodes with certificates of one authority serve together, and nobody else gets through
//! to them, in either direction.

use crate::{
    harness::{BINARY, Server, eventually, eventually_is, repository},
    http,
    nodes::{Nodes, free_address},
    peer::Peer,
    shown::fenced,
    store::Store,
};
use lockwood_test_support::{Authority, Issued, Postgres};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    net::{SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// Three nodes with two shards, on a database of their own, whose name is told too.
fn start(authority: &Arc<Authority>) -> (Nodes, String) {
    let postgres = Postgres::shared();
    let database = postgres.create_database();
    let url = postgres.url(&database, postgres.port());
    let nodes = Nodes::start_trusting(&url, 3, &["--shards", "2"], Some(Arc::clone(authority)));
    nodes.await_balance(2);
    (nodes, database)
}

fn alerts(nodes: &Nodes, asked: usize) -> String {
    nodes.status(asked)["alerts"].to_string()
}

/// Each node reads what each node wrote, and a session through a node that does not decide is tunnelled.
#[track_caller]
fn assert_serves(nodes: &Nodes, collection: &str) {
    let running: Vec<usize> = nodes.running().collect();
    // Sessions of an owner that was killed could still come back.
    let ready = format!("documents/{collection}/ready");
    eventually("writes are taken", || nodes.store(running[0]).send("PUT", &ready, "{}").status == 200);
    for &writer in &running {
        nodes.store(writer).create(collection, writer, json!({ "by": writer }));
        for &reader in &running {
            let found = nodes.store(reader).get(&format!("documents/{collection}/{writer}"));
            assert_eq!(found["document"]["value"]["by"], writer, "n{reader} reads {found}");
        }
    }
    let lock = json!({ "type": "lock", "resources": [{ "path": collection, "mode": "write" }], "wait": 0 });
    for &number in &running {
        let mut peer = Peer::open_for(nodes.server(number), "ann", 100);
        assert_eq!(peer.ask(lock.clone())["type"], "granted", "n{number}");
        let bye = peer.ask(json!({ "type": "bye" }));
        assert_eq!(bye["type"], "bye", "n{number}");
    }
}

/// What a stranger with openssl hears who sends a request to a listener for nodes.
fn stranger(address: &str, authority: &Authority, issued: Option<&Issued>) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", address, "-ign_eof", "-CAfile"]).arg(authority.certificate());
    if let Some(Issued { certificate, key }) = issued {
        command.arg("-cert").arg(certificate).arg("-key").arg(key);
    }
    let mut client =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let request = b"GET /tell HTTP/1.1\r\nhost: n1\r\nconnection: close\r\n\r\n";
    // It may have been refused by now.
    let mut input = client.stdin.take().unwrap();
    let _ = input.write_all(request);
    let output = client.wait_with_output().unwrap();
    drop(input);
    [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat()
}

/// A server that shows a certificate, which is no node; ended when dropped.
struct Impostor {
    address: String,
    server: Child,
}

impl Impostor {
    fn start(issued: &Issued) -> Impostor {
        let address = free_address();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-www", "-accept", &address]);
        command.arg("-cert").arg(&issued.certificate).arg("-key").arg(&issued.key);
        let server = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let impostor = Impostor { address, server: server.unwrap() };
        eventually("the impostor listens", || TcpStream::connect(&impostor.address).is_ok());
        impostor
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = (self.server.kill(), self.server.wait());
    }
}

#[test]
fn nodes_with_certificates_of_one_authority_serve_together() {
    let (mut nodes, _) = start(&Arc::new(Authority::new()));
    assert_serves(&nodes, "first");
    let owner = nodes.owner().unwrap();
    nodes.kill_owner(owner);
    nodes.await_balance(2);
    assert_serves(&nodes, "second");
    nodes.up(owner);
    nodes.await_balance(2);
    assert_serves(&nodes, "third");
    let told = alerts(&nodes, 1);
    assert!(!told.contains("cannot call"), "{told}");
}

/// The writes of others and large answers come through tunnels as fast as they are read, with pings in between.
#[test]
fn feeds_and_large_documents_come_through_tunnels() {
    let (nodes, _) = start(&Arc::new(Authority::new()));
    let large = "x".repeat(100_000);
    let write = |key: u64| nodes.store(1).create("large", key, json!({ "text": large }));
    for key in 0..50 {
        write(key);
    }
    let mut feeds: Vec<WebSocket<TcpStream>> = (1..=3).map(|number| feed(&nodes.store(number))).collect();
    for feed in &mut feeds {
        feed.send(Message::Ping("are you there".into())).unwrap();
        (1..=50).for_each(|position| assert_eq!(hear(feed), position));
    }
    write(50);
    for feed in &mut feeds {
        assert_eq!(hear(feed), 51);
    }
    for number in 1..=3 {
        let found = nodes.store(number).get("documents/large/7");
        assert_eq!(found["document"]["value"]["text"], large, "n{number}");
    }
}

/// All commits of a namespace, over a WebSocket.
fn feed(store: &Store) -> WebSocket<TcpStream> {
    let tcp = TcpStream::connect(store.native).unwrap();
    tcp.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    client(format!("ws://{}{}", store.native, store.target("changes?after=0")), tcp).unwrap().0
}

/// The position of the next commit.
fn hear(feed: &mut WebSocket<TcpStream>) -> u64 {
    loop {
        if let Message::Text(text) = feed.read().unwrap() {
            let commit: Value = serde_json::from_str(&text).unwrap();
            return commit["position"].as_u64().unwrap();
        }
    }
}

#[test]
fn strangers_are_refused_and_a_certificate_alone_is_not_enough() {
    let (authority, other) = (Arc::new(Authority::new()), Authority::new());
    let (nodes, _) = start(&authority);
    let address = nodes.peer(1);
    let heard = stranger(address, &authority, None);
    assert!(heard.contains("certificate required") && !heard.contains("HTTP/1.1"), "{heard}");
    let foreign = other.issue("foreign", &["IP:127.0.0.1"], 30);
    let heard = stranger(address, &authority, Some(&foreign));
    assert!(heard.contains("unknown ca") && !heard.contains("HTTP/1.1"), "{heard}");
    // Without the key of the cluster there is no proof.
    let known = authority.issue("known", &["IP:127.0.0.1"], 30);
    let heard = stranger(address, &authority, Some(&known));
    assert!(heard.contains("401 Unauthorized") && heard.contains("not_a_peer"), "{heard}");
    let plain: SocketAddr = address.parse().unwrap();
    let refused = http::request(plain, "GET", "/tell", &[]);
    assert_eq!(refused.status, 401, "{}", refused.body);
    assert!(refused.body.contains("--peer-cert"), "{}", refused.body);
    assert_serves(&nodes, "after");
}

#[test]
fn a_node_whose_certificate_is_for_another_host_is_not_called() {
    let authority = Arc::new(Authority::new());
    let (nodes, database) = start(&authority);
    let impostor = Impostor::start(&authority.issue("elsewhere", &["DNS:elsewhere.example"], 30));
    let row = format!(
        "insert into lockwood.node (name, address, version, renewed_at, drains)
         values ('n9', '{}', '0', now() + interval '1 hour', true)",
        impostor.address
    );
    Postgres::shared().sql(&database, &row);
    eventually_is(
        "the alert names node and cause",
        || alerts(&nodes, 1),
        |told| told.contains("n1 cannot call n9") && told.contains("elsewhere.example"),
    );
    assert_serves(&nodes, "beside");
}

#[test]
fn nodes_with_and_without_certificates_say_that_they_cannot_talk() {
    let (mut nodes, _) = start(&Arc::new(Authority::new()));
    nodes.set_authority(None);
    nodes.add();
    eventually_is(
        "the encrypted one names the plain one",
        || alerts(&nodes, 1),
        |told| told.contains("n1 cannot call n4") && told.contains("does not speak TLS"),
    );
    eventually_is(
        "the plain one names the encrypted one",
        || alerts(&nodes, 4),
        |told| told.contains("n4 cannot call n1") && told.contains("takes encrypted calls only"),
    );
    // Nothing was done, and the client is told why.
    let refused = nodes.store(4).send("PUT", "documents/stray/1", "{}");
    let problem = refused.assert_problem(503, "shard_unreachable").to_string();
    assert!(problem.contains("encrypted calls only") && !problem.contains("may have been"), "{problem}");
    nodes.stop(4);
    eventually_is("it is over", || alerts(&nodes, 1), |told| !told.contains("cannot call"));
    assert_serves(&nodes, "rest");
}

#[test]
fn an_authority_is_replaced_without_a_restart() {
    let (first, second) = (Arc::new(Authority::new()), Authority::new());
    let (nodes, _) = start(&first);
    let [leaver, newcomer] =
        [&*first, &second].map(|authority| authority.issue("tool", &["IP:127.0.0.1"], 30));
    let says = |number: usize, issued: &Issued, part: &str| {
        stranger(nodes.peer(number), &second, Some(issued)).contains(part)
    };
    assert!(says(1, &newcomer, "unknown ca") && says(1, &leaver, "not_a_peer"));
    let [old, new] = [&*first, &second].map(|authority| fs::read(authority.certificate()).unwrap());

    fs::write(first.certificate(), [old, new.clone()].concat()).unwrap();
    for number in 1..=3 {
        eventually("certificates of both authorities are taken", || says(number, &newcomer, "not_a_peer"));
    }
    assert_serves(&nodes, "both");

    for number in 1..=3 {
        renew(&nodes, number, &first, &second);
    }
    for number in 1..=3 {
        eventually("nodes show their new certificates", || says(number, &newcomer, "Verification: OK"));
    }
    eventually_is("nothing is wrong", || alerts(&nodes, 1), |told| !told.contains("certificate"));
    assert_serves(&nodes, "new");

    fs::write(first.certificate(), new).unwrap();
    for number in 1..=3 {
        eventually("the old authority is not trusted", || says(number, &leaver, "unknown ca"));
    }
    assert_serves(&nodes, "last");
}

/// Puts a certificate of the second authority where a node has that of the first one.
fn renew(nodes: &Nodes, number: usize, first: &Authority, second: &Authority) {
    let (host, _) = nodes.peer(number).rsplit_once(':').unwrap();
    let name = format!("n{number}");
    let issued = second.issue(&name, &[&format!("IP:{host}")], 30);
    let folder = first.certificate().parent().unwrap().to_owned();
    fs::copy(&issued.certificate, folder.join(format!("{name}.pem"))).unwrap();
    if number == 1 {
        eventually_is(
            "a certificate without its key is told",
            || alerts(nodes, 2),
            |told| told.contains("on n1") && told.contains("does not belong to the certificate"),
        );
        assert_serves(nodes, "half");
    }
    fs::copy(&issued.key, folder.join(format!("{name}.key"))).unwrap();
}

#[test]
fn the_commands_of_the_guide_make_files_that_work() {
    let text = fs::read_to_string(repository().join("docs/cluster.md")).unwrap();
    let script = fenced(&text, "sh").join("\n");
    let script = &script[script.find("openssl req -x509").unwrap()..];
    let folder = tempfile::tempdir().unwrap();
    let done = Command::new("sh").args(["-ec", script]).current_dir(&folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let postgres = Postgres::shared();
    let url = postgres.url(&postgres.create_database(), postgres.port());
    let [certificate, key, authority] =
        ["n1.pem", "n1.key", "nodes-ca.pem"].map(|name| folder.path().join(name).display().to_string());
    let all = ["--peer-cert", &certificate, "--peer-key", &key, "--peer-ca", &authority];
    let node = ["--cluster", &url, "--advertise", "n1.example:7118", "--peer-listen", "127.0.0.1:0"];
    let server = Server::start(&[&all[..], &node].concat());
    eventually("it is ready", || http::request(server.native, "GET", "/readyz", &[]).status == 200);
}

#[test]
fn files_that_cannot_work_are_refused_at_the_start() {
    let postgres = Postgres::shared();
    let url = postgres.url(&postgres.create_database(), postgres.port());
    let authority = Authority::new();
    let issued = authority.issue("node", &["DNS:n1.example"], 30);
    let [certificate, key, trusted] = [&issued.certificate, &issued.key, &authority.certificate()]
        .map(|path| path.to_str().unwrap().to_owned());
    let refused = |flags: &[&str], part: &str| {
        let data = tempfile::tempdir().unwrap();
        let mut command = Command::new(BINARY);
        command.args(["serve", "--listen", "127.0.0.1:0", "--cluster", &url, "--data"]).arg(data.path());
        let output = command.args(flags).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(part), "{flags:?}: {said}");
    };
    refused(&["--peer-cert", &certificate], "add --peer-key FILE");
    refused(&["--peer-key", &key, "--peer-ca", &trusted], "add --peer-cert FILE");
    refused(&["--peer-cert", &certificate, "--peer-key", &key], "add --peer-ca FILE");
    let all = ["--peer-cert", &certificate, "--peer-key", &key, "--peer-ca", &trusted];
    let advertised = free_address();
    refused(&[&all[..], &["--advertise", &advertised]].concat(), "but for n1.example");
    fs::set_permissions(&issued.key, fs::Permissions::from_mode(0o644)).unwrap();
    refused(&all, "chmod 600");
}
