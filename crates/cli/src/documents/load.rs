//! `lockwood load`: fills an empty namespace with a dump.

use super::{Target, exit_codes, progress::Progress};
use crate::{exit::Failure, output};
use anyhow::Context;
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::PathBuf,
    process::ExitCode,
};
use tokio::sync::mpsc;

/// So much is read at once,
const CHUNK_BYTES: usize = 64 * 1024;
/// and so many of these may wait to be sent.
const CHUNKS_WAITING_MAX: usize = 8;

const AFTER_HELP: &str = concat!(
    "\
The namespace must be empty. All of the dump is loaded, or nothing.

",
    exit_codes!(),
    "
Examples:
  lockwood load shop.ndjson -n shop2
  gunzip < backup.ndjson.gz | lockwood load -"
);

/// Fill an empty namespace with what `dump` saved
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The dump; - for standard input
    file: PathBuf,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (source, len) = open(&args)?;
    let progress = Progress::new("load", len);
    let result = args.target.store().load(chunks(source, progress.share())).await;
    progress.end();
    match result {
        Ok(answer) if args.json => output::print(&output::json_line(&answer)),
        Ok(answer) => output::print(&format!(
            "loaded {} documents and {} commits; the position is {}\n",
            answer.documents, answer.commits, answer.position
        )),
        Err(error) => Ok(Failure::from(&error).report()),
    }
}

/// What to load, and how long it is if that is known.
fn open(args: &Args) -> anyhow::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if args.file.as_os_str() == "-" {
        return Ok((Box::new(std::io::stdin()), None));
    }
    let file = File::open(&args.file).with_context(|| format!("open {}", args.file.display()))?;
    let metadata = file.metadata()?;
    Ok((Box::new(file), metadata.is_file().then_some(metadata.len())))
}

/// Reads on a thread of its own, so that a source that is slow does not keep the server's answer from being
/// heard.
fn chunks(
    mut source: Box<dyn Read + Send>,
    progress: Progress,
) -> impl Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    let (sender, receiver) = mpsc::channel(CHUNKS_WAITING_MAX);
    std::thread::spawn(move || {
        while let Some(chunk) = read_chunk(&mut source).transpose() {
            progress.add_bytes(chunk.as_ref().map_or(0, |chunk| chunk.len() as u64));
            let failed = chunk.is_err();
            if sender.blocking_send(chunk).is_err() || failed {
                break;
            }
        }
    });
    stream::unfold(receiver, |mut receiver| async { receiver.recv().await.map(|chunk| (chunk, receiver)) })
}

fn read_chunk(source: &mut impl Read) -> std::io::Result<Option<Bytes>> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match source.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(len) => {
                chunk.truncate(len);
                return Ok(Some(chunk.into()));
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
