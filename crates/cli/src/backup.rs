//! `lockwood backup` and `lockwood restore-backup`: everything a server keeps, into a file and back.

use crate::{
    documents::progress::Progress,
    exit::{BAD_DATA, EXISTS, Failure},
    output::{json_line, print},
    target::Server,
};
use anyhow::Context;
use lockwood_client::{Admin, Backup};
use lockwood_model::Timestamp;
use lockwood_server::Restoring;
use serde_json::json;
use std::{
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

const AFTER_HELP: &str = "\
Everything the server keeps is in it, as of one moment: all namespaces with their documents, history, indexes,
schemas, procedures and leases, and what the server knows of itself. The server goes on meanwhile. As long as it is
incomplete the file is called FILE.part. Dumps are for single namespaces: lockwood dump.

Exit codes:
  1   the file cannot be written
  65  the backup broke off, or what came is damaged
  73  there is such a file already: see --replace
  69  no server answers, or it does not work now
  70  the server refused the request

Examples:
  lockwood backup /mnt/backup                a directory: the file gets the time as its name
  lockwood backup shop.backup
  lockwood backup --replace shop.backup      the old one is there until the new one is complete
  lockwood restore-backup shop.backup --data /var/lib/lockwood";

/// Save everything a running server keeps
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where to: a file, or a directory that is there
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
before the directory gets its name. Lock numbers and tokens begin far above all that were given out, so none comes twice,
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
    /// The data directory; it must be empty or not there
    #[arg(long, value_name = "DIR", env = "LOCKWOOD_DATA", default_value = "lockwood-data")]
    data: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = match args.to.is_dir() {
        true => new_name(&args.to),
        false => args.to.clone(),
    };
    if !args.replace && file.exists() {
        let message =
            format!("{} is there already; replace it with --replace, or choose another name", file.display());
        return Ok(Failure::new(EXISTS, message).report());
    }
    let admin = Admin { address: args.server.address.clone() };
    let backup = match admin.backup().await {
        Ok(backup) => backup,
        Err(error) => return Ok(Failure::from(&error).report()),
    };
    // Everything the server keeps is in it.
    crate::serve::close_new_files();
    let progress = Progress::new("backup", None);
    let written = write(backup, &file, &progress).await;
    progress.end();
    match written? {
        Ok(bytes) if args.json => print(&json_line(&json!({ "file": file, "bytes": bytes }))),
        Ok(bytes) => print(&format!("{bytes} bytes in {}\n", file.display())),
        Err(failure) => Ok(failure.report()),
    }
}

/// A name with the time that no other backup in `directory` has.
fn new_name(directory: &Path) -> PathBuf {
    let seconds = now().0 / 1000;
    let names = (1..).map(|nth| match nth {
        1 => format!("lockwood-{seconds}.backup"),
        _ => format!("lockwood-{seconds}-{nth}.backup"),
    });
    names.map(|name| directory.join(name)).find(|path| !path.exists()).expect("there are always more names")
}

/// Makes the file anew, also where an earlier backup broke off: what is there may be a link, or open to others.
fn create(part: &Path) -> io::Result<File> {
    match fs::symlink_metadata(part) {
        Ok(found) if found.is_file() || found.is_symlink() => fs::remove_file(part)?,
        Ok(_) => return File::options().write(true).open(part),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    File::create_new(part)
}

/// Only a complete backup gets its name.
async fn write(mut backup: Backup, file: &Path, progress: &Progress) -> anyhow::Result<Result<u64, Failure>> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let writing = || format!("write {}", part.display());
    let mut out = BufWriter::new(create(&part).with_context(writing)?);
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
    fs::rename(&part, file).with_context(|| format!("rename {}", part.display()))?;
    Ok(Ok(bytes))
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
