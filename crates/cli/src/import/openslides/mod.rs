//! `lockwood import openslides`: fills an empty namespace with what the OpenSlides datastore has in PostgreSQL,
//! history included. Knows nothing of what its rows mean.

mod convert;

use self::convert::Converter;
use crate::{
    documents::progress::Progress,
    exit::{Failure, bad_data},
    output,
    target::Server,
};
use anyhow::Context;
use bytes::Bytes;
use futures_util::{Stream, stream};
use lockwood_client::Store;
use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, Command, ExitCode, Stdio},
    sync::{Arc, Mutex},
};
use tokio::sync::mpsc;

/// What `psql` is given, and what `--sql` prints.
const EXPORT: &str = include_str!("export.sql");
/// So much is sent at once,
const CHUNK_BYTES: usize = 64 * 1024;
/// and so many of these may wait to be sent.
const CHUNKS_WAITING_MAX: usize = 8;

const AFTER_HELP: &str = "\
Stop everything that writes to the datastore first. The namespace must be empty; all is imported, or nothing.
Every model is compared with what its events make of it before anything counts.

Exit codes:
  2   the command line is wrong
  65  the data is not what it should be, or psql failed
  69  no server answers, or it does not work now
  70  the server refused the data

Examples:
  lockwood import openslides --from postgres://openslides@127.0.0.1/openslides
  lockwood import openslides --sql > export.sql
  psql -XAtq -v ON_ERROR_STOP=1 -v FETCH_COUNT=1000 -f export.sql openslides | lockwood import openslides -";

/// The datastore of OpenSlides, with its positions, its history and its ids
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
#[group(id = "source", required = true, multiple = false, args = ["from", "file", "sql"])]
pub(crate) struct Args {
    /// The lines that psql writes for the script of --sql; - for standard input
    file: Option<PathBuf>,
    /// Ask this PostgreSQL, by a URL or a connection string of psql, which must be installed
    #[arg(long, value_name = "DATABASE")]
    from: Option<String>,
    /// Print the script for psql and do nothing
    #[arg(long)]
    sql: bool,
    /// The namespace to fill; the one of the server's --openslides-namespace
    #[arg(long, short = 'n', value_name = "NS", default_value = "openslides")]
    namespace: String,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: Server,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.sql {
        return output::print(EXPORT);
    }
    let source = match open(&args) {
        Ok(source) => source,
        Err(error) => return Ok(bad_data(format!("{error:#}")).report()),
    };
    let progress = Progress::new("import", None);
    let wrong = Arc::new(Mutex::new(None));
    let dump = dump(source, args.namespace.clone(), progress.share(), Arc::clone(&wrong));
    let result = Store::new(&args.server.address, &args.namespace).load(dump).await;
    progress.end();
    // What was wrong with the data says more than that the dump broke off.
    let wrong = wrong.lock().expect("nobody panics with it").take();
    match (wrong, result) {
        (Some(message), _) => Ok(bad_data(message).report()),
        (None, Ok(answer)) if args.json => output::print(&output::json_line(&answer)),
        (None, Ok(answer)) => output::print(&format!(
            "imported {} models and {} positions; the position is {}\n",
            answer.documents, answer.commits, answer.position
        )),
        (None, Err(error)) => Ok(Failure::from(&error).report()),
    }
}

/// Where the lines come from, and the `psql` that writes them.
struct Source {
    lines: Box<dyn Read + Send>,
    psql: Option<Child>,
}

fn open(args: &Args) -> anyhow::Result<Source> {
    if let Some(database) = &args.from {
        return ask(database);
    }
    let file = args.file.as_ref().expect("one of the sources is given");
    if file.as_os_str() == "-" {
        return Ok(Source { lines: Box::new(std::io::stdin()), psql: None });
    }
    let lines = File::open(file).with_context(|| format!("open {}", file.display()))?;
    Ok(Source { lines: Box::new(lines), psql: None })
}

fn ask(database: &str) -> anyhow::Result<Source> {
    let mut psql = Command::new("psql")
        // A cursor, so that psql does not collect everything before it writes the first line.
        .args(["-XAtq", "-v", "ON_ERROR_STOP=1", "-v", "FETCH_COUNT=1000", "-f", "-", "-d", database])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start psql; it is in PostgreSQL's client package")?;
    // The script is shorter than the buffer of a pipe, so this does not wait for psql.
    let mut stdin = psql.stdin.take().expect("it is a pipe");
    // If psql is gone already its exit status says so.
    let _ = stdin.write_all(EXPORT.as_bytes());
    let lines = psql.stdout.take().expect("it is a pipe");
    Ok(Source { lines: Box::new(lines), psql: Some(psql) })
}

/// A dump, made on a thread of its own while it is sent. If it cannot be made it breaks off, and `wrong` says why.
fn dump(
    source: Source,
    namespace: String,
    progress: Progress,
    wrong: Arc<Mutex<Option<String>>>,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
    std::thread::spawn(move || {
        let send = |chunk: Vec<u8>| {
            progress.add_bytes(chunk.len() as u64);
            sender.blocking_send(Ok(chunk.into())).is_ok()
        };
        if let Err(error) = convert(source, &namespace, send) {
            *wrong.lock().expect("nobody panics with it") = Some(format!("{error:#}"));
            let broken = std::io::Error::other("the import broke off");
            let _ = sender.blocking_send(Err(broken));
        }
    });
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|chunk| (chunk, receiver)) })
}

/// Sends a dump made of the source, piece by piece, for as long as anybody takes it.
fn convert(source: Source, namespace: &str, send: impl Fn(Vec<u8>) -> bool) -> anyhow::Result<()> {
    let Source { lines, psql } = source;
    let mut converter = Converter::new(namespace);
    let mut out = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(lines).split(b'\n')) {
        let line = line.context("read the data")?;
        // psql ends some answers with an empty line.
        if !line.is_empty() {
            converter.take(&line, &mut out).with_context(|| format!("line {number} of the data"))?;
        }
        if out.len() >= CHUNK_BYTES && !send(std::mem::take(&mut out)) {
            return Ok(());
        }
    }
    if let Some(mut psql) = psql {
        let status = psql.wait().context("wait for psql")?;
        anyhow::ensure!(status.success(), "psql failed ({status}); what it wrote says why");
    }
    converter.end(&mut out)?;
    send(out);
    Ok(())
}
