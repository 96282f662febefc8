//! The native interface and the command line, end to end: the real binary, real sockets.

#[path = "../harness/mod.rs"]
mod harness;

#[test]
fn a_server_starts_says_where_it_is_and_stops() {
    let server = harness::Server::start(&[]);
    assert!(server.greeting.contains("lockwood lock --write"), "{}", server.greeting);
    let ended = server.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
}
