//! `lockwood completion` and `lockwood man`: what shells and manuals need, made from the same definitions as
//! `--help`. Knows no command by name.

use anyhow::Context;
use clap::Command;
use clap_complete::Shell;
use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

const COMPLETION_HELP: &str = "\
Exit codes: 0 printed; 2 wrong usage.

Examples:
  lockwood completion bash > /etc/bash_completion.d/lockwood
  lockwood completion zsh > ~/.zfunc/_lockwood
  lockwood completion fish > ~/.config/fish/completions/lockwood.fish";

const MAN_HELP: &str = "\
Exit codes: 0 written; 1 a page cannot be written; 2 wrong usage.

Examples:
  lockwood man /usr/local/share/man/man1
  lockwood man . && man ./lockwood-lock.1";

/// Print a script with which a shell completes commands and flags
#[derive(clap::Args)]
#[command(after_help = COMPLETION_HELP)]
pub(crate) struct CompletionArgs {
    /// For which shell
    shell: Shell,
}

/// Write manual pages, one for each command, into a directory
#[derive(clap::Args)]
#[command(after_help = MAN_HELP)]
pub(crate) struct ManArgs {
    /// Where to; made if it is not there
    directory: PathBuf,
}

pub(crate) fn complete(args: &CompletionArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "lockwood", &mut script);
    crate::output::print(&String::from_utf8_lossy(&script))
}

pub(crate) fn write_pages(args: &ManArgs, mut command: Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.directory).with_context(|| format!("make {}", args.directory.display()))?;
    // Gives every command below its full name.
    command.build();
    let written = write_page(&args.directory, &command, "lockwood")?;
    crate::output::print(&format!("{written} pages in {}\n", args.directory.display()))
}

/// Writes the page of a command and those of the commands below it; says how many.
fn write_page(directory: &Path, command: &Command, name: &str) -> anyhow::Result<usize> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone().name(name.to_owned())).render(&mut page)?;
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
    let mut written = 1;
    let visible = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
    for below in command.get_subcommands().filter(visible) {
        written += write_page(directory, below, &format!("{name}-{}", below.get_name()))?;
    }
    Ok(written)
}
