//! `lockwood verify`: whether a data directory is sound.

use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

const EXAMPLES: &str = "\
Examples:
  lockwood verify                            the data directory of a stopped server
  lockwood verify --data /var/lib/lockwood --json

Reads every record of the log, rebuilds the state from them in a scratch directory, and compares it with the \
state that is there. Changes nothing, but for the end of a journal that a loss of power tore, and the format \
of a directory that an older version wrote: as when a server starts.

Exit codes: 0 sound; 1 not sound, not there, or it cannot be read; 2 wrong usage.";

/// Check that a data directory is sound
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The data directory; no server may be using it
    #[arg(long, value_name = "DIR", env = "LOCKWOOD_DATA", default_value = "lockwood-data")]
    data: PathBuf,

    /// An empty directory for the rebuilt state [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    scratch: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let own = std::env::temp_dir().join(format!("lockwood-verify-{}", std::process::id()));
    let scratch = args.scratch.clone().unwrap_or_else(|| own.clone());
    let verified = lockwood_server::verify(&args.data, &scratch, &mut progress());
    if args.scratch.is_none() {
        // What cannot be removed is found by whoever cleans the temporary directory.
        let _ = std::fs::remove_dir_all(&own);
    }
    let verified = verified?;
    let sound = verified.differences.is_empty();
    if args.json {
        let differences = &verified.differences;
        println!(
            "{}",
            serde_json::json!({ "sound": sound, "records": verified.records, "differences": differences })
        );
    } else if sound {
        println!("sound: the state is what the {} records of the log lead to", verified.records);
    } else {
        println!("NOT sound: the state is not what the {} records of the log lead to", verified.records);
        verified.differences.iter().for_each(|difference| println!("  {difference}"));
    }
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line that people can watch grow.
fn progress() -> impl FnMut(u64, u64) {
    let watched = std::io::stderr().is_terminal();
    move |done, all| {
        if watched {
            let end = if done == all { "\n" } else { "" };
            eprint!("\r{done} of {all} records{end}");
            let _ = std::io::stderr().flush();
        }
    }
}
