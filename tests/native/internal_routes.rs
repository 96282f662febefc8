//! A server that is no node of a cluster has no routes for nodes.

use crate::{
    harness::Server,
    http::{request, send},
};

/// Everything that nodes of a cluster ask each other.
const TARGETS: [&str; 35] = [
    "map",
    "survey",
    "pull",
    "install",
    "confirm",
    "export",
    "import",
    "keeper",
    "log?from=1&sum=0&wait=false",
    "copy",
    "replica",
    "procedure",
    "work",
    "locks",
    "locks/export",
    "locks/import",
    "next-id",
    "reserve",
    "judge",
    "answered",
    "dump",
    "counters",
    "hold",
    "release",
    "await",
    "everywhere?namespace=a",
    "indexes",
    "frozen/search",
    "frozen/get",
    "frozen/known",
    "load/begin",
    "load/lines/1",
    "load/end",
    "load/finish",
    "load/undo",
];

#[test]
fn a_single_server_has_no_internal_routes() {
    let server = Server::start(&[]);
    let peer = [("lockwood-epoch", "0"), ("lockwood-peer", "anything")];
    for target in TARGETS.map(|target| format!("/internal/{target}")) {
        for headers in [&[][..], &peer[..]] {
            request(server.native, "GET", &target, headers).assert_problem(404, "not_found");
            send(server.native, "POST", &target, headers, b"{}").assert_problem(404, "not_found");
        }
    }
}
