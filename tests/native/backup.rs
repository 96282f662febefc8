//! Backups of a whole server: taken while it works, restored into a new data directory, or refused.

use crate::{
    data_directory::check_closed,
    harness::{self, Server},
    http,
    isolation::Held,
    limits::limits,
    store::Store,
};
use serde_json::json;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};
use tempfile::TempDir;

limits! {
    backups_max = 1, |server, limit| {
        // More than the buffers of a connection take, so a backup that nobody reads does not end.
        let shop = Store::new(server, "shop");
        for key in 0..40 {
            shop.create("large", key, json!({ "text": "x".repeat(400_000) }));
        }
        let held: Vec<Unread> = (0..limit.value).map(|_| Unread::ask(server)).collect();
        assert!(held.iter().all(|backup| backup.status == 200));
        assert_eq!(Unread::ask(server).status, 503);
        let refused = http::get(server, "/v1/backup").assert_problem(503, "too_many");
        limit.assert_named(refused["detail"].as_str().unwrap());
        drop(held);
        harness::eventually("there is room again", || Unread::ask(server).status == 200);
    };
}

/// A backup of which nothing but the first line is read.
struct Unread {
    status: u16,
    _connection: TcpStream,
}

impl Unread {
    fn ask(server: &Server) -> Unread {
        let mut connection = TcpStream::connect(server.native).unwrap();
        write!(connection, "GET /v1/backup HTTP/1.1\r\nhost: {}\r\n\r\n", server.native).unwrap();
        let mut line = [0; 12];
        connection.read_exact(&mut line).unwrap();
        let status = line.strip_prefix(b"HTTP/1.1 ").and_then(|status| str::from_utf8(status).ok());
        Unread { status: status.unwrap().parse().unwrap(), _connection: connection }
    }
}

fn lockwood(args: &[&str]) -> Command {
    let mut command = Command::new(harness::BINARY);
    command.args(args).stdin(Stdio::null());
    command
}

fn backup(server: &Server, to: &Path) -> Output {
    let mut command = lockwood(&["backup", to.to_str().unwrap()]);
    command.env("LOCKWOOD_SERVER", server.native.to_string()).output().unwrap()
}

fn restore(from: &Path, data: &Path) -> Output {
    lockwood(&["restore-backup", from.to_str().unwrap(), "--data", data.to_str().unwrap()]).output().unwrap()
}

#[track_caller]
fn succeeds(output: &Output) {
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_backup_to_standard_output_is_a_backup() {
    let server = Server::start(&[]);
    Store::new(&server, "shop").create("user", 1, json!({ "n": 1 }));
    let folder = TempDir::new().unwrap();
    let mut command = lockwood(&["backup", "-"]);
    let output =
        command.env("LOCKWOOD_SERVER", server.native.to_string()).current_dir(folder.path()).output();
    let output = output.unwrap();
    succeeds(&output);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "no file called -");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains(&format!("{} bytes", output.stdout.len())), "{said}");
    let file = folder.path().join("shop.backup");
    fs::write(&file, output.stdout).unwrap();
    succeeds(&restore(&file, &folder.path().join("data")));
}

/// Everything acknowledged before it began is there, and of what was written meanwhile all up to one moment.
#[test]
fn procedures_come_back_with_a_backup() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    let source = "return function(db, key, by)\n\
        local document = db.get('counter', key) or { n = 0 }\n\
        document.n = document.n + by\n\
        db.put('counter', key, document)\n\
        return document.n\n\
        end";
    let headers = [("content-type", "text/plain")];
    let target = shop.target("shard/procedures/add");
    assert_eq!(http::send(shop.native, "PUT", &target, &headers, source.as_bytes()).status, 200);
    let add = |shop: &Store| {
        let call = json!({ "mode": "rw", "procedure": "add", "collection": "counter", "key": "a", "arguments": [5] });
        shop.post("shard/call", &call)["answer"].clone()
    };
    assert_eq!(add(&shop), 5);
    let directory = TempDir::new().unwrap();
    let (file, data) = (directory.path().join("shop.backup"), TempDir::new().unwrap());
    succeeds(&backup(&server, &file));
    let listed = shop.get("shard/procedures");
    drop(server);
    succeeds(&restore(&file, data.path()));
    let server = Server::start_in(data, &[]);
    let shop = Store::new(&server, "shop");
    assert_eq!(shop.get("shard/procedures"), listed);
    assert_eq!(add(&shop), 10, "it works on what was restored");
}

/// For the progress bar of the client.
#[test]
fn the_server_says_about_how_long_a_backup_is() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    let event = |key: u64| json!({ "type": "put", "collection": "a", "key": key, "fields": { "x": "y".repeat(2000) } });
    for step in 0..5_u64 {
        shop.write((step * 100..step * 100 + 100).map(event).collect());
    }
    let mut connection = TcpStream::connect(server.native).unwrap();
    write!(connection, "GET /v1/backup HTTP/1.0\r\nhost: {}\r\n\r\n", server.native).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let about = http::read(head).header("x-lockwood-about-bytes").unwrap().parse::<u64>().unwrap();
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("shop.backup");
    succeeds(&backup(&server, &file));
    let bytes = fs::metadata(&file).unwrap().len();
    assert!(bytes > 1_000_000 && about < 2 * bytes && bytes < 2 * about, "{about} {bytes}");
}

#[test]
fn a_backup_under_writes_is_of_one_moment() {
    let server = Server::start(&[]);
    let (shop, other) = (Store::new(&server, "shop"), Store::new(&server, "other"));
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    other.post("schemas/user", &json!({ "schema": schema }));
    other.create("user", 1, json!({ "n": 1 }));
    other.update("user", 1, json!({ "n": 2 }));
    other.ask("PUT", "indexes/user/n", &json!(null));
    let held = Held::take(&other, "importer", "write user/1");
    let directory = TempDir::new().unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let (before, file) = thread::scope(|scope| {
        scope.spawn(|| {
            // Each write is of two documents, so half of one would show.
            for n in 1..1_000_000_u64 {
                let event = |collection: &str| {
                    json!({ "type": "put", "collection": collection, "key": n, "fields": { "n": n } })
                };
                shop.write(json!([event("left"), event("right")]));
                acknowledged.store(n, Ordering::Release);
                if stop.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        harness::eventually("some is written", || acknowledged.load(Ordering::Acquire) > 20);
        let before = acknowledged.load(Ordering::Acquire);
        let taken = backup(&server, directory.path());
        harness::eventually("more is written", || acknowledged.load(Ordering::Acquire) > before);
        stop.store(true, Ordering::Release);
        succeeds(&taken);
        let file = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        (before, file)
    });
    let token = held.token;
    server.kill();
    let data = TempDir::new().unwrap();
    succeeds(&restore(&file, data.path()));
    succeeds(&lockwood(&["verify", "--data", data.path().to_str().unwrap()]).output().unwrap());
    let server = Server::start_in(data, &[]);
    let (shop, other) = (Store::new(&server, "shop"), Store::new(&server, "other"));
    let keys = |collection: &str| -> Vec<u64> {
        let found = shop.found(&json!({ "collection": collection, "limit": 10_000 }));
        found.iter().map(|key| key.parse().unwrap()).collect()
    };
    let left = keys("left");
    assert!(left.len() as u64 >= before, "{} of {before} that were acknowledged", left.len());
    assert!(left.iter().copied().eq(1..=left.len() as u64), "no gaps: {left:?}");
    assert_eq!(keys("right"), left, "no half of a write");
    assert_eq!(shop.get("position")["position"], left.len() as u64);
    // History, index, schema and lease are there, and the lease is in force.
    assert_eq!(other.get("documents/user/1?at=2")["document"]["value"], json!({ "n": 1 }));
    assert_eq!(other.get("indexes")["indexes"][0]["field"], "n");
    assert_eq!(other.get("schemas")["subjects"][0]["subject"], "user");
    let write = json!({ "events": [{ "type": "delete", "collection": "user", "key": 1 }], "wait_ms": 0 });
    other.refuses("POST", "write", &write, 423, "locked");
    let locks = other.get("locks")["locks"].clone();
    assert_eq!((&locks[0]["token"], locks.as_array().unwrap().len()), (&json!(token), 1), "{locks}");
    let newer = Held::take(&shop, "other", "write left/1").token;
    assert!(newer > token + 1_000_000, "far above what may have been given out since: {newer} after {token}");
}

#[test]
fn damaged_backups_are_refused_with_the_place_and_leave_nothing() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for key in 0..20 {
        shop.create("user", key, json!({ "n": key, "text": "x".repeat(20_000) }));
    }
    let directory = TempDir::new().unwrap();
    let (file, data) = (directory.path().join("all.backup"), directory.path().join("data"));
    succeeds(&backup(&server, &file));
    let whole = fs::read(&file).unwrap();
    let refuses = |bytes: &[u8], part: &str| {
        let damaged = directory.path().join("damaged.backup");
        fs::write(&damaged, bytes).unwrap();
        let output = restore(&damaged, &data);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(part), "{output:?}");
        assert!(!data.exists(), "nothing is left");
    };
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    refuses(&flipped, "damaged in block");
    refuses(&whole[..whole.len() / 2], &format!("cut off at byte {}", whole.len() / 2));
    refuses(b"{\"lockwood\":\"dump\"}\n", "no backup");
    refuses(b"", "no backup");
    // What is there is never overwritten.
    fs::create_dir(&data).unwrap();
    fs::write(data.join("mine"), "mine").unwrap();
    let output = restore(&file, &data);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("not empty"));
    assert_eq!(fs::read_to_string(data.join("mine")).unwrap(), "mine");
    fs::remove_file(data.join("mine")).unwrap();
    succeeds(&restore(&file, &data));
    // As closed as what it is of.
    check_closed(&data);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let missing = restore(&directory.path().join("nothing"), &directory.path().join("new"));
    assert!(!missing.status.success() && !directory.path().join("new").exists());
}

/// A mount point cannot be replaced by another directory, and a link must not be; `serve` takes both.
#[test]
fn a_backup_is_restored_into_the_directory_itself_also_through_a_link() {
    let server = Server::start(&[]);
    Store::new(&server, "shop").create("user", 1, json!({ "n": 1 }));
    let directory = TempDir::new().unwrap();
    let (file, disk) = (directory.path().join("all.backup"), directory.path().join("disk"));
    succeeds(&backup(&server, &file));
    // As new file systems are.
    fs::create_dir_all(disk.join("lost+found")).unwrap();
    let before = fs::metadata(&disk).unwrap().ino();
    succeeds(&restore(&file, &disk));
    assert_eq!(fs::metadata(&disk).unwrap().ino(), before, "it is the same directory");
    let (link, target) = (directory.path().join("link"), directory.path().join("target"));
    fs::create_dir(&target).unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    succeeds(&restore(&file, &link));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    for data in [&disk, &link] {
        succeeds(&lockwood(&["verify", "--data", data.to_str().unwrap()]).output().unwrap());
    }
    let mut left: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["all.backup", "disk", "link", "target"], "nothing is left beside them");
}

#[test]
fn a_restore_that_is_killed_is_refused_everywhere_and_begun_anew_by_the_next() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for key in 0..40 {
        shop.create("large", key, json!({ "text": "x".repeat(100_000) }));
    }
    let directory = TempDir::new().unwrap();
    let [file, pipe, data] = ["all.backup", "pipe", "data"].map(|name| directory.path().join(name));
    succeeds(&backup(&server, &file));
    let whole = fs::read(&file).unwrap();
    // A pipe, so that the restore stands where half of the backup is written: it is read once to be checked, then again.
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let args = ["restore-backup", pipe.to_str().unwrap(), "--data", data.to_str().unwrap()];
    let mut running = lockwood(&args).stderr(Stdio::piped()).spawn().unwrap();
    fs::write(&pipe, &whole).unwrap();
    harness::eventually("it is checked, and the restore begins", || data.join("restoring").exists());
    let mut half = fs::File::options().write(true).open(&pipe).unwrap();
    half.write_all(&whole[..whole.len() / 2]).unwrap();
    let refusals = |part: &str| {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data", data.to_str().unwrap()];
        for args in [&serve[..], &["verify", "--data", data.to_str().unwrap()]] {
            let output = lockwood(args).output().unwrap();
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains(part), "{args:?}: {output:?}");
        }
    };
    refusals("a backup is being restored into it");
    let second = restore(&file, &data);
    assert!(String::from_utf8_lossy(&second.stderr).contains("a backup is being restored"), "{second:?}");
    running.kill().unwrap();
    running.wait().unwrap();
    refusals("run `lockwood restore-backup` with this directory again");
    succeeds(&restore(&file, &data));
    succeeds(&lockwood(&["verify", "--data", data.to_str().unwrap()]).output().unwrap());
    check_closed(&data);
}

#[test]
fn a_backup_replaces_no_file_without_being_told() {
    let server = Server::start(&[]);
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("all.backup");
    fs::write(&file, "mine").unwrap();
    let output = backup(&server, &file);
    assert_eq!(output.status.code(), Some(73), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("--replace"), "{output:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let mut command = lockwood(&["backup", "--replace", file.to_str().unwrap()]);
    succeeds(&command.env("LOCKWOOD_SERVER", server.native.to_string()).output().unwrap());
    assert_ne!(fs::read(&file).unwrap(), b"mine");
    // A link where an unfinished one would be leads nowhere.
    let (other, victim) = (directory.path().join("other.backup"), directory.path().join("victim"));
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, directory.path().join("other.backup.part")).unwrap();
    succeeds(&backup(&server, &other));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
    let made = fs::symlink_metadata(&other).unwrap();
    assert!(made.is_file() && made.permissions().mode() & 0o777 == 0o600, "{made:?}");
    // Several in one second.
    let several = directory.path().join("several");
    fs::create_dir(&several).unwrap();
    (0..3).for_each(|_| succeeds(&backup(&server, &several)));
    assert_eq!(fs::read_dir(&several).unwrap().count(), 3);
}

#[test]
fn backups_into_one_directory_at_the_same_time_do_not_touch_each_other() {
    let server = Server::start(&["--backups-max", "4"]);
    Store::new(&server, "shop").create("user", 1, json!({ "text": "x".repeat(400_000) }));
    let directory = TempDir::new().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..3).for_each(|_| succeeds(&backup(&server, directory.path()))));
        }
    });
    let files: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() == 12 && files.iter().all(|file| file.extension().unwrap() == "backup"), "{files:?}");
}

#[test]
fn a_backup_that_breaks_off_says_so_and_gets_no_name() {
    let server = Server::start(&[]);
    let shop = Store::new(&server, "shop");
    for key in 0..40 {
        shop.create("large", key, json!({ "text": "x".repeat(400_000) }));
    }
    let directory = TempDir::new().unwrap();
    let (file, part) = (directory.path().join("all.backup"), directory.path().join("all.backup.part"));
    // A pipe, so that the backup stays incomplete until it is read.
    assert!(Command::new("mkfifo").arg(&part).status().unwrap().success());
    let mut command = lockwood(&["backup", file.to_str().unwrap()]);
    command.env("LOCKWOOD_SERVER", server.native.to_string()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let mut pipe = fs::File::open(&part).unwrap();
    pipe.read_exact(&mut [0; 1000]).unwrap();
    drop(server);
    std::io::copy(&mut pipe, &mut std::io::sink()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{told}");
    assert!(told.contains("the backup broke off") && told.contains("all.backup.part"), "{told}");
    assert!(!file.exists());
}
