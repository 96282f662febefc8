//! `lockwood write`: a write request as the server takes it.

use super::{Write, exit_codes, read_file};
use crate::exit::{self, Failure};
use lockwood_client::wire::WireValue;
use std::process::ExitCode;

const AFTER_HELP: &str = concat!(
    "\
A request has events, all of which are done or none:
  {\"type\": \"create\",  \"collection\": …, \"key\": …, \"fields\": {…}}
  {\"type\": \"update\",  …, \"fields\": {…}, \"add\": {\"list\": [1]}, \"remove\": {\"list\": [2]}}
  {\"type\": \"put\",     …, \"fields\": {…}}
  {\"type\": \"set\",     …, \"path\": \"address/city\", \"value\": …}
  {\"type\": \"unset\",   …, \"path\": \"address/city\"}
  {\"type\": \"delete\",  …}
  {\"type\": \"restore\", …}
It can have position locks, each saying that what was read at a position must not have changed since:
  {\"collection\": …, \"key\": …, \"position\": 7}                  a document; with \"field\", that field of it
  {\"collection\": …, \"field\": …, \"filter\": …, \"position\": 7}   a field of the documents that match, or of all
and a \"user\", a \"note\", and an \"idempotency_key\" that makes it safe to send it twice.
Tokens of the writer's own locks, and how long to wait for others': \"tokens\": [34], \"wait_ms\": 10000
Several requests in one call: {\"requests\": […]}

",
    exit_codes!(),
    "
Examples:
  lockwood write request.json
  echo '{\"events\": [{\"type\": \"restore\", \"collection\": \"user\", \"key\": 42}]}' | lockwood write
  lockwood write <<< '{
    \"events\": [{\"type\": \"update\", \"collection\": \"user\", \"key\": 42, \"fields\": {\"age\": 43}}],
    \"locks\": [{\"collection\": \"user\", \"key\": 42, \"field\": \"age\", \"position\": 7}]
  }'"
);

/// Write events, guarded by position locks
#[derive(clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// A file with the request as JSON; - for standard input
    #[arg(default_value = "-")]
    file: String,
    #[command(flatten)]
    write: Write,
}

pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let body = match read_file(&args.file).and_then(read_body) {
        Ok(body) => body,
        Err(failure) => return Ok(failure.report()),
    };
    let written = args.write.store().write_text_on(&body, &args.write.terms()).await;
    args.write.report(written, "written")
}

fn read_body(text: String) -> Result<WireValue, Failure> {
    WireValue::from_text(text).map_err(|error| exit::bad_data(error.message))
}
