//! Measures what Lockwood costs and prints it. Knows nothing of what is measured.

mod cluster;
mod docs;
mod figure;
mod in_process;
mod leases;
mod network;
mod peer;
mod shards;
mod stage;
mod wire;

use figure::Figure;
use stage::Part;
use std::process::ExitCode;

const USAGE: &str = "\
usage: lockwood-bench <what> [--json]
       lockwood-bench docs|leases|shards|cluster [--json] [--quick] [--only <part>]

what:
  in-process   the lock table by itself, without a server
  network      the server over its protocols, beside redis-server
  pairs        only the part of that which compares pairs per second
  locks        both
  docs         documents, beside PostgreSQL and Tarantool
  leases       leases, what they cost others, search and join, beside etcd and PostgreSQL
  shards       a hop, a search over shards and moving documents, beside Tarantool
  cluster      nodes over PostgreSQL: takeovers, writes beside its own, a hop, leases beside etcd, calls between nodes,
               moving documents

--json         print a list of objects instead of a table
--quick        shorter, and with a tenth of the documents where there are many
--only <part>  docs: disk, create, update, bulk, get, filter, all, as-of, feed, lock-check, million
               leases: pairs, enforcement, search, join, expiry
               shards: routing, search, moving
               cluster: takeover, writes, hop, pairs, calls, moving";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(order) = read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let figures = order.measure();
    println!("{}", if order.json { figure::json(&figures) } else { figure::table(&figures) });
    ExitCode::SUCCESS
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
struct Order<'a> {
    what: What,
    json: bool,
    quick: bool,
    only: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    InProcess,
    Network,
    Pairs,
    Locks,
    Docs,
    Leases,
    Shards,
    Cluster,
}

impl What {
    /// What can be asked for by itself.
    fn parts(self) -> &'static [Part] {
        match self {
            What::Docs => &docs::PARTS,
            What::Leases => &leases::PARTS,
            What::Shards => &shards::PARTS,
            What::Cluster => &cluster::PARTS,
            _ => &[],
        }
    }
}

impl Order<'_> {
    fn measure(&self) -> Vec<Figure> {
        match self.what {
            What::InProcess => in_process::measure(),
            What::Network => network::measure(),
            What::Pairs => network::measure_pairs(),
            What::Locks => in_process::measure().into_iter().chain(network::measure()).collect(),
            What::Docs | What::Leases | What::Shards | What::Cluster => {
                stage::measure(self.what.parts(), self.quick, self.only)
            }
        }
    }
}

fn read(words: &[String]) -> Option<Order<'_>> {
    let mut words = words.iter().map(String::as_str);
    let what = match words.next()? {
        "in-process" => What::InProcess,
        "network" => What::Network,
        "pairs" => What::Pairs,
        "locks" => What::Locks,
        "docs" => What::Docs,
        "leases" => What::Leases,
        "shards" => What::Shards,
        "cluster" => What::Cluster,
        _ => return None,
    };
    let mut order = Order { what, json: false, quick: false, only: None };
    while let Some(word) = words.next() {
        match word {
            "--json" => order.json = true,
            "--quick" if !what.parts().is_empty() => order.quick = true,
            "--only" => order.only = Some(part(what, words.next()?)?),
            _ => return None,
        }
    }
    Some(order)
}

fn part(what: What, name: &str) -> Option<&str> {
    what.parts().iter().any(|(part, _)| *part == name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(What, bool, bool, Option<&str>)>) {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let found = read(&words).map(|Order { what, json, quick, only }| (what, json, quick, only));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn command_lines() {
        check("", None);
        check("locks", Some((What::Locks, false, false, None)));
        check("pairs --json", Some((What::Pairs, true, false, None)));
        check("locks --quick", None);
        check("docs --json --quick --only as-of", Some((What::Docs, true, true, Some("as-of"))));
        check("leases --quick --only join", Some((What::Leases, false, true, Some("join"))));
        check("leases --only as-of", None);
        check("locks --only join", None);
        check("docs --only", None);
        check("docs --only nothing", None);
    }

    #[test]
    fn every_part_is_named() {
        for (name, _) in docs::PARTS.iter().chain(&leases::PARTS).chain(&shards::PARTS).chain(&cluster::PARTS)
        {
            assert!(USAGE.contains(name), "{name}");
        }
    }
}
