//! Which lock may stand beside which: every pair of modes, depths and relations, with the answers written
//! down. Knows nothing of the rule behind them.
//!
//! In a table the rows are what stands higher in the tree and the columns what stands lower: `w2` is a write
//! of two levels, `r*` a read of the whole subtree. `+` is granted, `-` waits. Every cell is tried twice:
//! once the row is held and the column asked for, once the other way round.

use crate::{LockTable, Outcome, Request};
use lockwood_model::{Depth, Mode, OwnerId, Resource, Timestamp, Wait};

/// One path for the rows and one for the columns.
type Places = (&'static str, &'static str);

const SAME: &str = "
         r1 r2 r*   u1 u2 u*   w1 w2 w*
    r1    +  +  +    +  +  +    -  -  -
    r2    +  +  +    +  +  +    -  -  -
    r*    +  +  +    +  +  +    -  -  -
    u1    +  +  +    -  -  -    -  -  -
    u2    +  +  +    -  -  -    -  -  -
    u*    +  +  +    -  -  -    -  -  -
    w1    -  -  -    -  -  -    -  -  -
    w2    -  -  -    -  -  -    -  -  -
    w*    -  -  -    -  -  -    -  -  -
";
const AT_SAME: [Places; 3] = [("a/b", "a/b"), ("a", "a"), ("/", "/")];

const PARENT: &str = "
         r1 r2 r*   u1 u2 u*   w1 w2 w*
    r1    +  +  +    +  +  +    +  +  +
    r2    +  +  +    +  +  +    -  -  -
    r*    +  +  +    +  +  +    -  -  -
    u1    +  +  +    +  +  +    +  +  +
    u2    +  +  +    -  -  -    -  -  -
    u*    +  +  +    -  -  -    -  -  -
    w1    +  +  +    +  +  +    +  +  +
    w2    -  -  -    -  -  -    -  -  -
    w*    -  -  -    -  -  -    -  -  -
";
const AT_PARENT: [Places; 2] = [("a/b", "a/b/c"), ("/", "a")];

const GRANDPARENT: &str = "
         r1 r2 r*   u1 u2 u*   w1 w2 w*
    r1    +  +  +    +  +  +    +  +  +
    r2    +  +  +    +  +  +    +  +  +
    r*    +  +  +    +  +  +    -  -  -
    u1    +  +  +    +  +  +    +  +  +
    u2    +  +  +    +  +  +    +  +  +
    u*    +  +  +    -  -  -    -  -  -
    w1    +  +  +    +  +  +    +  +  +
    w2    +  +  +    +  +  +    +  +  +
    w*    -  -  -    -  -  -    -  -  -
";
const AT_GRANDPARENT: [Places; 2] = [("a/b", "a/b/c/d"), ("/", "a/b")];

const CHILD_OF_SIBLING: &str = "
         r1 r2 r*   u1 u2 u*   w1 w2 w*
    r1    +  +  +    +  +  +    +  +  +
    r2    +  +  +    +  +  +    +  +  +
    r*    +  +  +    +  +  +    +  +  +
    u1    +  +  +    +  +  +    +  +  +
    u2    +  +  +    +  +  +    +  +  +
    u*    +  +  +    +  +  +    +  +  +
    w1    +  +  +    +  +  +    +  +  +
    w2    +  +  +    +  +  +    +  +  +
    w*    +  +  +    +  +  +    +  +  +
";
const AT_CHILD_OF_SIBLING: [Places; 2] = [("a/b", "a/c/d"), ("a", "b/c")];

const OTHER: &str = CHILD_OF_SIBLING;
/// Another document, a neighbour, and paths that only look alike.
const AT_OTHER: [Places; 4] = [("a/b", "c/d/e"), ("a/b", "a/c"), ("a", "ab"), ("a/b", "b/a")];

#[test]
fn on_the_same_node() {
    check(SAME, &AT_SAME);
}

#[test]
fn on_a_parent_and_its_child() {
    check(PARENT, &AT_PARENT);
}

#[test]
fn on_a_grandparent_and_its_grandchild() {
    check(GRANDPARENT, &AT_GRANDPARENT);
}

#[test]
fn on_a_node_and_a_child_of_its_sibling() {
    check(CHILD_OF_SIBLING, &AT_CHILD_OF_SIBLING);
}

#[test]
fn on_nodes_that_have_nothing_to_do_with_each_other() {
    check(OTHER, &AT_OTHER);
}

#[test]
fn an_owner_is_never_in_its_own_way() {
    let relations = [AT_SAME.as_slice(), &AT_PARENT, &AT_GRANDPARENT, &AT_CHILD_OF_SIBLING, &AT_OTHER];
    let words = ["r1", "r2", "r*", "u1", "u2", "u*", "w1", "w2", "w*", "list", "link"];
    for (upper, lower) in relations.concat() {
        for row in words {
            for column in words {
                let (one, other) = (resource(row, upper), resource(column, lower));
                assert_eq!(answer(&one, &other, OwnerId(1)), '+', "{row} {upper}, then {column} {lower}");
                assert_eq!(answer(&other, &one, OwnerId(1)), '+', "{column} {lower}, then {row} {upper}");
            }
        }
    }
}

#[test]
fn a_node_beside_its_own_child_list() {
    let table = "
             list link
        r1     +    +
        r2     +    -
        r*     +    -
        u1     +    +
        u2     +    -
        u*     +    -
        w1     +    +
        w2     -    -
        w*     -    -
        list   +    -
        link   -    +
    ";
    check(table, &AT_SAME);
}

#[test]
fn a_parent_beside_the_child_list_of_its_child() {
    let table = "
             list link
        r1     +    +
        r2     +    +
        r3     +    -
        r*     +    -
        u1     +    +
        u2     +    +
        u3     +    -
        u*     +    -
        w1     +    +
        w2     +    +
        w3     -    -
        w*     -    -
        list   +    +
        link   +    +
    ";
    check(table, &AT_PARENT);
}

/// The rows are the child list of the parent here: what is in a child is not in the list of children.
#[test]
fn a_child_list_beside_the_children_themselves() {
    let table = "
           r1 r2 r*   u1 u2 u*   w1 w2 w*   list link
    list    +  +  +    +  +  +    +  +  +     +    +
    link    +  +  +    +  +  +    +  +  +     +    +
    ";
    check(table, &AT_PARENT);
    check(table, &AT_GRANDPARENT);
}

#[test]
fn child_lists_of_other_nodes() {
    let table = "
           r1 r2 r*   u1 u2 u*   w1 w2 w*   list link
    list    +  +  +    +  +  +    +  +  +     +    +
    link    +  +  +    +  +  +    +  +  +     +    +
    ";
    check(table, &AT_CHILD_OF_SIBLING);
    check(table, &AT_OTHER);
}

#[track_caller]
fn check(table: &str, places: &[Places]) {
    let mut lines = table.lines().filter(|line| !line.trim().is_empty());
    let columns: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    for line in lines {
        let (row, expected) = line.trim().split_once(' ').unwrap();
        let expected: String = expected.split_whitespace().collect();
        for &(upper, lower) in places {
            let row_first = answers(&columns, |column| (resource(row, upper), resource(column, lower)));
            assert_eq!(row_first, expected, "{row} {upper} held, {columns:?} {lower} asked for");
            let row_last = answers(&columns, |column| (resource(column, lower), resource(row, upper)));
            assert_eq!(row_last, expected, "{columns:?} {lower} held, {row} {upper} asked for");
        }
    }
}

fn answers(columns: &[&str], pair: impl Fn(&str) -> (Resource, Resource)) -> String {
    columns.iter().map(|column| pair(column)).map(|(held, asked)| answer(&held, &asked, OwnerId(2))).collect()
}

/// What `owner` hears when it asks for `asked` while owner 1 holds `held`.
fn answer(held: &Resource, asked: &Resource, owner: OwnerId) -> char {
    let mut table = LockTable::new(1, 1);
    let mut ask = |owner: OwnerId, resource: &Resource| {
        let request = Request {
            owner,
            resources: vec![resource.clone()],
            wait: Wait::Forever,
            ttl_ms: None,
            rank: crate::Rank::Ordinary,
        };
        let outcome = table.lock(request, Timestamp(0));
        table.check_invariants();
        outcome
    };
    assert!(matches!(ask(OwnerId(1), held), Outcome::Granted { .. }), "nothing is in the way of the first");
    match ask(owner, asked) {
        Outcome::Granted { .. } => '+',
        Outcome::Queued { .. } => '-',
        Outcome::Refused(_) => '!',
    }
}

/// `w2` or `list` at a path.
fn resource(word: &str, path: &str) -> Resource {
    let (mode, depth) = match word {
        "list" => (Mode::List, Depth::NODE),
        "link" => (Mode::Link, Depth::NODE),
        _ => (mode(&word[..1]), depth(&word[1..])),
    };
    Resource::new(path.parse().unwrap(), mode, depth)
}

fn mode(letter: &str) -> Mode {
    match letter {
        "r" => Mode::Read,
        "u" => Mode::Update,
        "w" => Mode::Write,
        _ => panic!("no mode is written {letter}"),
    }
}

fn depth(text: &str) -> Depth {
    if text == "*" { Depth::SUBTREE } else { Depth::levels(text.parse().unwrap()).unwrap() }
}
