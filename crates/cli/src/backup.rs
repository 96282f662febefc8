//! `lockwood backup` and `lockwood restore-backup`: everything a server keeps, into a file and back.

mod destination;

use self::destination::{Destination, Unfinished};
use crate::{
    documents::progress::Progress,
    exit::{BAD_DATA, Failure},
    output::{json_line, print},
    target::Server,
};
use anyhow::Context;
use lockwood_client::{Admin, Backup};
use lockwood_model::Timestamp;
use lockwood_server::Restoring;
use serde_json::json;
use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
    time::SystemTime,
};

const AFTER_HELP: &str = "\
Everything the server keeps is in it, as of one moment: all namespaces with their documents, history, indexes,
schemas, procedures and leases, and what the server knows of itself. The server goes on meanwhile. As long as it is
incomplete the file is called FILE.part. What goes to standard output is complete only if the exit code is 0.
Dumps are for single namespaces: lockwood dump.

Exit codes:
  1   the file cannot be written
  65  the backup broke off, or what came is damaged
  73  there is such a file already: see --replace; or another backup is being written to it
  69  no server answers, or it does not work now
  70  the server refused the request

Examples:
  lockwood backup /mnt/backup                a directory: the file gets the time as its name
  lockwood backup shop.backup
  lockwood backup - | ssh safe 'cat > shop.backup'
  lockwood backup --replace shop.backup      the old one is there until the new one is complete
  lockwood restore-backup shop.backup --data /var/lib/lockwood";

/// Save everything a running server keeps
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to: a file, a directory that is there, or - for standard output
    #[arg(value_name = "DIR|FILE")]
    to: PathBuf,
    /// Replace the file if it is there
    #[arg(long)]
    replace: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

const RESTORE_HELP: &str = "\
Every checksum of the backup is compared before anything is written, and the restored state with what its log leads to
before anything else can open the directory. A restore that is killed leaves a directory that is refused everywhere
but here: run it again, and it begins anew. Lock numbers and tokens begin far above all that were given out, so none comes twice,
and leases have the time left that they had when the backup was taken.

Exit codes: 0 restored and verified; 1 refused, nothing is left of it; 2 wrong usage.

Examples:
  lockwood restore-backup shop.backup --data /var/lib/lockwood
  lockwood serve --data /var/lib/lockwood";

/// Make a data directory of a backup
#[derive(clap::Args)]
#[command(after_help = RESTORE_HELP)]
pub(crate) struct RestoreArgs {
    /// What `lockwood backup` made
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// The data directory: not there, empty, or left by a restore that was killed
    #[arg(long, value_name = "DIR", env = "LOCKWOOD_DATA", default_value = "lockwood-data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let is_output = args.to.as_os_str() == "-";
    let to = Destination { path: args.to.clone(), is_directory: args.to.is_dir(), replace: args.replace };
    // Said before the server is asked for anything.
    if !is_output && let Err(failure) = to.check() {
        return Ok(failure.report());
    }
    let admin = Admin { address: args.server.address.clone() };
    let backup = match admin.backup().await {
        Ok(backup) => backup,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    if is_output {
        return write_out(backup, args.json).await;
    }
    // Everything the server keeps is in it.
    crate::serve::close_new_files();
    let unfinished = match to.begin()? {
        Ok(unfinished) => unfinished,
        Err(failure) => return Ok(failure.report()),
    };
    let progress = Progress::about("backup", backup.about_bytes());
    let written = write(backup, unfinished, &progress).await;
    progress.end();
    match written? {
        Ok((file, bytes)) if args.json => print(&json_line(&json!({ "file": file, "bytes": bytes }))),
        Ok((file, bytes)) => print(&format!("{bytes} bytes in {}\n", file.display())),
        Err(failure) => Ok(failure.report()),
    }
}

/// What came cannot be taken back, so it is for the exit code, and for the last block, to say that it is complete.
async fn write_out(mut backup: Backup, json: bool) -> anyhow::Result<ExitCode> {
    let progress = Progress::about("backup", backup.about_bytes());
    let mut out = io::stdout().lock();
    let mut bytes = 0;
    let came = loop {
        match backup.next().await {
            Ok(Some(piece)) => {
                out.write_all(&piece).context("write the backup")?;
                bytes += piece.len() as u64;
                progress.add_bytes(piece.len() as u64);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    out.flush().context("write the backup")?;
    progress.end();
    if let Err(error) = came {
        let failure = Failure::from(&error);
        let message = format!("the backup broke off: {}", failure.message);
        return Ok(Failure { code: BAD_DATA, message, ..failure }.report());
    }
    match json {
        true => eprint!("{}", json_line(&json!({ "bytes": bytes }))),
        false => eprintln!("{bytes} bytes"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Only a complete backup gets its name; gives that and its bytes.
async fn write(
    mut backup: Backup,
    mut unfinished: Unfinished,
    progress: &Progress,
) -> anyhow::Result<Result<(PathBuf, u64), Failure>> {
    let part = unfinished.part.clone();
    let writing = || format!("write {}", part.display());
    let mut out = BufWriter::new(&mut unfinished.out);
    let mut bytes = 0;
    loop {
        match backup.next().await {
            Ok(Some(piece)) => {
                out.write_all(&piece).with_context(writing)?;
                bytes += piece.len() as u64;
                progress.add_bytes(piece.len() as u64);
            }
            Ok(None) => break,
            Err(error) => {
                let failure = Failure::from(&error);
                let message =
                    format!("the backup broke off: {}\nwhat came is in {}", failure.message, part.display());
                return Ok(Err(Failure { code: BAD_DATA, message, ..failure }));
            }
        }
    }
    let written = out.into_inner().map_err(|error| error.into_error()).with_context(writing)?;
    written.sync_all().with_context(writing)?;
    // What did not come as it was sent must not be found out when it is needed.
    if let Err(error) = lockwood_server::check_backup(&part) {
        let message = format!("{error}\nwhat came is in {}", part.display());
        return Ok(Err(crate::exit::bad_data(message)));
    }
    Ok(unfinished.finish()?.map(|file| (file, bytes)))
}

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    crate::serve::close_new_files();
    let mut bars = Bars(None);
    let restored =
        lockwood_server::restore_backup(&args.from, &args.data, now(), &mut |step| bars.show(step));
    bars.end();
    let restored = restored?;
    match args.json {
        true => print(&json_line(&json!({ "data": args.data, "records": restored.records }))),
        false => {
            print(&format!("restored {} records into {}, verified\n", restored.records, args.data.display()))
        }
    }
}

/// A bar for each step.
struct Bars(Option<(&'static str, Progress, u64)>);

impl Bars {
    fn show(&mut self, step: Restoring) {
        let (what, done, all) = match step {
            Restoring::Checking(done, all) => ("check", done, all),
            Restoring::Writing(done, all) => ("write", done, all),
            Restoring::Comparing(done, all) => ("verify", done, all),
        };
        if self.0.as_ref().is_none_or(|(known, ..)| *known != what) {
            self.end();
            let bar = match step {
                Restoring::Comparing(..) => Progress::of_records(what, all),
                Restoring::Checking(..) | Restoring::Writing(..) => Progress::new(what, Some(all)),
            };
            self.0 = Some((what, bar, 0));
        }
        if let Some((_, bar, shown)) = &mut self.0 {
            bar.add_bytes(done.saturating_sub(*shown));
            *shown = done;
        }
    }

    fn end(&mut self) {
        if let Some((_, bar, _)) = self.0.take() {
            bar.end();
        }
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
