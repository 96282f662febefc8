//! Measures what Lockwood costs and prints it. Knows nothing of what is measured.

mod figure;
mod in_process;
mod network;
mod peer;
mod wire;

use figure::Figure;
use std::process::ExitCode;

const USAGE: &str = "\
usage: lockwood-bench <what> [--json]

what:
  in-process   the lock table by itself, without a server
  network      the server over its protocols, beside redis-server
  pairs        only the part of that which compares pairs per second
  locks        both

--json         print a list of objects instead of a table";

type Measure = fn() -> Vec<Figure>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some((measure, json)) = read(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let figures = measure();
    println!("{}", if json { figure::json(&figures) } else { figure::table(&figures) });
    ExitCode::SUCCESS
}

/// What to measure, and whether to print it as JSON.
fn read(words: &[String]) -> Option<(Measure, bool)> {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    if flags.iter().any(|flag| *flag != "--json") {
        return None;
    }
    match names[..] {
        ["in-process"] => Some((in_process::measure, !flags.is_empty())),
        ["pairs"] => Some((network::measure_pairs, !flags.is_empty())),
        ["network"] => Some((network::measure, !flags.is_empty())),
        ["locks"] => Some((locks, !flags.is_empty())),
        _ => None,
    }
}

fn locks() -> Vec<Figure> {
    in_process::measure().into_iter().chain(network::measure()).collect()
}
