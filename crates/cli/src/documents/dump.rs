//! `lockwood dump`: everything in a namespace, into a file.

use super::{Target, exit_codes, progress::Progress};
use crate::{exit::Failure, output};
use anyhow::Context;
use lockwood_client::Dump;
use serde_json::json;
use std::{
    fs::File,
    io::{BufWriter, ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

const AFTER_HELP: &str = concat!(
    "\
The dump is lines of JSON: documents, their history, counters and indexes, all as of one position. As long as it
is incomplete the file is called FILE.part. Without a file it goes to standard output; what came there is
complete only if the exit code is 0.

",
    exit_codes!(),
    "
Examples:
  lockwood dump shop.ndjson -n shop
  lockwood dump | gzip > backup.ndjson.gz"
);

/// Save everything in a namespace
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to; - for standard output
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Say in JSON how many lines there are, and what went wrong
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut dump = match args.target.store().dump().await {
        Ok(dump) => dump,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    let progress = Progress::new("dump", None);
    let result = match args.file.as_os_str().to_str() {
        Some("-") => to_stdout(&mut dump, &progress).await,
        _ => to_file(&mut dump, &args.file, &progress).await,
    };
    progress.end();
    match result? {
        Copied::Complete => {}
        Copied::Unread => return Ok(ExitCode::SUCCESS),
        Copied::Failed(failure) => return Ok(failure.report()),
    }
    match args.json {
        true => eprint!("{}", output::json_line(&json!({ "lines": dump.len() }))),
        false => eprintln!("{} lines", dump.len()),
    }
    Ok(ExitCode::SUCCESS)
}

enum Copied {
    Complete,
    /// Nobody reads any more.
    Unread,
    Failed(Failure),
}

async fn to_stdout(dump: &mut Dump, progress: &Progress) -> anyhow::Result<Copied> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match copy(dump, &mut out, progress).await {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(Copied::Unread),
        result => Ok(result?),
    }
}

async fn to_file(dump: &mut Dump, path: &Path, progress: &Progress) -> anyhow::Result<Copied> {
    let part = part_of(path);
    let write_part = || format!("write {}", part.display());
    let file = File::create(&part).with_context(write_part)?;
    let mut out = BufWriter::new(file);
    match copy(dump, &mut out, progress).await.with_context(write_part)? {
        Copied::Failed(failure) => {
            let message = format!("{}\nwhat came is in {}", failure.message, part.display());
            Ok(Copied::Failed(Failure { message, ..failure }))
        }
        copied => {
            out.into_inner().map_err(|error| error.into_error()).with_context(write_part)?.sync_all()?;
            std::fs::rename(&part, path).with_context(|| format!("rename {}", part.display()))?;
            Ok(copied)
        }
    }
}

/// The name of the file until the dump is complete.
fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn copy(dump: &mut Dump, out: &mut impl Write, progress: &Progress) -> std::io::Result<Copied> {
    loop {
        match dump.next().await {
            Ok(Some(line)) => {
                out.write_all(&line)?;
                out.write_all(b"\n")?;
                progress.add_bytes(line.len() as u64 + 1);
                progress.say_lines(dump.len());
            }
            Ok(None) => {
                out.flush()?;
                return Ok(Copied::Complete);
            }
            Err(error) => {
                out.flush()?;
                return Ok(Copied::Failed(Failure::from(&error)));
            }
        }
    }
}
