//! Node programs with packages of their own. Knows nothing of what they do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Makes sure that `node_modules` is what the lock file in a folder says.
pub(crate) fn install(folder: &Path) {
    let wanted = fs::read(folder.join("package-lock.json")).unwrap();
    let stamp: PathBuf = folder.join("node_modules/.installed-package-lock.json");
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return;
    }
    let mut npm = Command::new("npm");
    run(npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(folder));
    fs::write(stamp, wanted).unwrap();
}

/// Runs a command that must succeed; gives what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    // Set by a test runner around this one, they would change what node prints and how.
    command.env_remove("NODE_TEST_CONTEXT").env_remove("NODE_OPTIONS");
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; this test needs Node.js 20 or later with npm")
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}
