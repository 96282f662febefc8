//! Python programs with packages of their own. Knows nothing of what they do.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

/// Tests that run side by side may want the same environment.
static MAKING: Mutex<()> = Mutex::new(());

/// The Python of an environment that has exactly the packages a file asks for; made below the build directory,
/// and kept until the file changes.
pub(crate) fn venv(requirements: &Path) -> PathBuf {
    let wanted = fs::read(requirements).unwrap();
    let name = requirements.parent().and_then(Path::file_name).unwrap().to_str().unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("venv-{name}"));
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed-requirements.txt"));
    let _turn = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder));
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r"]);
    run(pip.arg(requirements));
    fs::write(stamp, wanted).unwrap();
    python
}

/// Runs a command that must succeed; gives what it printed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; this test needs Python 3.11 or later with venv")
    });
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}
