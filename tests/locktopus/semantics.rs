//! Who waits for whom, seen from outside.

use crate::{
    client::{Client, groups},
    harness::Server,
};

/// The rule: one path is a prefix of the other, and at least one of the two writes.
#[test]
fn the_conflict_matrix() {
    let server = Server::start(&[]);
    let mut one = Client::connect(&server, "n");
    let mut other = Client::connect(&server, "n");
    let paths = ["", "a", "a/b", "a/c", "b"];
    let resources: Vec<(&str, &str)> =
        paths.iter().flat_map(|path| [("read", *path), ("write", *path)]).collect();
    for (first_mode, first) in &resources {
        for (second_mode, second) in &resources {
            let is_prefix =
                |path: &str, of: &str| path.is_empty() || of == path || of.starts_with(&format!("{path}/"));
            let overlap = is_prefix(first, second) || is_prefix(second, first);
            let writes = *first_mode == "write" || *second_mode == "write";
            let expected = if overlap && writes { "enqueued" } else { "acquired" };
            let case = format!("{first_mode} /{first} then {second_mode} /{second}");
            assert_eq!(one.lock(&format!("{first_mode} /{first}")), "acquired", "{case}");
            assert_eq!(other.lock(&format!("{second_mode} /{second}")), expected, "{case}");
            one.release();
            if expected == "enqueued" {
                other.granted();
            }
            other.release();
        }
    }
    assert_eq!(groups(&server, "n"), (0, 0));
}

#[test]
fn readers_do_not_overtake_a_waiting_writer() {
    let server = Server::start(&[]);
    let [mut reader, mut writer, mut late, mut unrelated] = [0; 4].map(|_| Client::connect(&server, "n"));
    assert_eq!(reader.lock("r a"), "acquired");
    assert_eq!(writer.lock("w a"), "enqueued");
    assert_eq!(late.lock("r a/b"), "enqueued");
    // Whoever is in nobody's way passes.
    assert_eq!(unrelated.lock("w b"), "acquired");
    reader.release();
    writer.granted();
    assert_eq!(groups(&server, "n"), (2, 1));
    writer.release();
    late.granted();
}

#[test]
fn first_come_first_served() {
    let server = Server::start(&[]);
    let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(&server, "n")).collect();
    for (index, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.lock("w a"), if index == 0 { "acquired" } else { "enqueued" });
    }
    for index in 1..20 {
        clients[index - 1].release();
        clients[index].granted();
        assert_eq!(groups(&server, "n"), (1, 19 - index as u64));
    }
}

/// Readers that wait for the same writer are granted together.
#[test]
fn readers_are_granted_together() {
    let server = Server::start(&[]);
    let mut writer = Client::connect(&server, "n");
    assert_eq!(writer.lock("w /"), "acquired");
    let mut readers: Vec<Client> = (0..5).map(|_| Client::connect(&server, "n")).collect();
    readers.iter_mut().for_each(|reader| assert_eq!(reader.lock("r a"), "enqueued"));
    writer.release();
    readers.iter_mut().for_each(Client::granted);
    assert_eq!(groups(&server, "n"), (5, 0));
}

/// A holds a; B waits for a and b, so b is taken for C too. When B no longer wants it, C has it at once:
/// Locktopus makes C wait for A.
#[test]
fn a_waiting_set_reserves_its_parts_until_it_is_released() {
    let server = Server::start(&[]);
    let [mut a, mut b, mut c] = [0; 3].map(|_| Client::connect(&server, "n"));
    assert_eq!(a.lock("w a"), "acquired");
    assert_eq!(b.lock("w a, w b"), "enqueued");
    assert_eq!(c.lock("w b"), "enqueued");
    b.release();
    c.granted();
    assert_eq!(groups(&server, "n"), (2, 0));
    // B may lock again right away, and waits for nobody but the living.
    assert_eq!(b.lock("w c"), "acquired");
    b.release();
    a.release();
    assert_eq!(b.lock("w a"), "acquired");
}

#[test]
fn a_set_is_granted_as_a_whole() {
    let server = Server::start(&[]);
    let [mut a, mut b, mut set] = [0; 3].map(|_| Client::connect(&server, "n"));
    assert_eq!(a.lock("w a"), "acquired");
    assert_eq!(b.lock("w b"), "acquired");
    assert_eq!(set.lock("w a, w b"), "enqueued");
    a.release();
    assert_eq!(groups(&server, "n"), (1, 1));
    b.release();
    set.granted();
}

#[test]
fn opposite_orders_do_not_deadlock() {
    let server = Server::start(&[]);
    let [mut one, mut other] = [0; 2].map(|_| Client::connect(&server, "n"));
    for _ in 0..20 {
        one.send(&crate::client::lock("w a, w b"));
        other.send(&crate::client::lock("w b, w a"));
        let first_come = [one.locked(), other.locked()];
        match first_come {
            ["acquired", "enqueued"] => {
                one.release();
                other.granted();
                other.release();
            }
            ["enqueued", "acquired"] => {
                other.release();
                one.granted();
                one.release();
            }
            // The other one asked, was served and has not let go yet; nothing else is possible.
            states => panic!("{states:?}"),
        }
    }
}

/// The original leaves the last reader waiting until the unrelated first one is gone.
#[test]
fn a_read_behind_a_read_and_a_write_waits_for_the_write_only() {
    let server = Server::start(&[]);
    let [mut read, mut write, mut late] = [0; 3].map(|_| Client::connect(&server, "n"));
    assert_eq!(read.lock("r x/1"), "acquired");
    assert_eq!(write.lock("w x/2"), "acquired");
    assert_eq!(late.lock("r x"), "enqueued");
    write.release();
    late.granted();
    assert_eq!(groups(&server, "n"), (2, 0));
}

/// The original makes the second reader inherit the wait of the first.
#[test]
fn a_read_does_not_wait_for_a_waiting_read() {
    let server = Server::start(&[]);
    let [mut write, mut waiting, mut late] = [0; 3].map(|_| Client::connect(&server, "n"));
    assert_eq!(write.lock("w a"), "acquired");
    assert_eq!(waiting.lock("r a, r b"), "enqueued");
    assert_eq!(late.lock("r b"), "acquired");
    write.release();
    waiting.granted();
}

/// A parent read and a child write in one lock both hold.
#[test]
fn a_parent_read_with_a_child_write() {
    let server = Server::start(&[]);
    let [mut both, mut other] = [0; 2].map(|_| Client::connect(&server, "n"));
    assert_eq!(both.lock("r a, w a/b"), "acquired");
    for (resource, expected) in
        [("r a/c", "acquired"), ("r a", "enqueued"), ("r a/b", "enqueued"), ("w a/c", "enqueued")]
    {
        assert_eq!(other.lock(resource), expected, "{resource}");
        other.release();
    }
}

#[test]
fn namespaces_are_isolated() {
    let server = Server::start(&[]);
    let mut one = Client::connect(&server, "one");
    let mut two = Client::connect(&server, "two");
    assert_eq!(one.lock("w /"), "acquired");
    assert_eq!(two.lock("w /"), "acquired");
    assert_eq!((one.id(), two.id()), (1, 1));
}
