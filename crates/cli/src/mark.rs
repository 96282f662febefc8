//! The mark of a program under a lock: a variable that every process it starts inherits. Knows nothing of processes
//! and of locks.
//!
//! `LOCKWOOD_RUNS` lists the runs of `lockwood lock` around a process, the innermost last.

use std::{fmt, time::SystemTime};

pub(crate) const VARIABLE: &str = "LOCKWOOD_RUNS";
/// Stands where the innermost run would: watchdogs end by themselves.
const WATCHDOG: &str = "watchdog";

/// One run of `lockwood lock`, unlike any other on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run(String);

impl Run {
    pub(crate) fn new() -> Run {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        Run(format!("{}-{now:x}", std::process::id()))
    }

    pub(crate) fn read(text: &str) -> Run {
        Run(text.to_owned())
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The runs around a process, the innermost last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Runs(Vec<String>);

impl Runs {
    /// Those around this process.
    pub(crate) fn here() -> Runs {
        Runs::read(&std::env::var(VARIABLE).unwrap_or_default())
    }

    /// Those of a process whose environment is given as the system shows it.
    pub(crate) fn of(environment: &[u8]) -> Runs {
        let mut variables = environment.split(|byte| *byte == 0);
        let value = variables
            .find_map(|variable| variable.strip_prefix(VARIABLE.as_bytes())?.strip_prefix(b"="))
            .unwrap_or_default();
        Runs::read(&String::from_utf8_lossy(value))
    }

    fn read(text: &str) -> Runs {
        Runs(text.split_whitespace().map(str::to_owned).collect())
    }

    /// What the program of a run has in its environment.
    pub(crate) fn with(mut self, run: &Run) -> Runs {
        self.0.push(run.0.clone());
        self
    }

    /// What a watchdog has in its environment.
    pub(crate) fn with_watchdog(self) -> Runs {
        self.with(&Run::read(WATCHDOG))
    }

    pub(crate) fn contains(&self, run: &Run) -> bool {
        self.0.contains(&run.0)
    }

    /// Whether another run is inside of this one, whose `lockwood lock` passes signals on.
    pub(crate) fn is_outer(&self, run: &Run) -> bool {
        self.contains(run) && self.0.last() != Some(&run.0)
    }
}

impl fmt::Display for Runs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_inside_of_all_runs_that_its_environment_lists() {
        let (outer, inner) = (Run::new(), Run::read("inner"));
        let runs = Runs::default().with(&outer).with(&inner);
        let environment = format!("A=1\0X{VARIABLE}=x\0{VARIABLE}={runs}\0B=\0");
        let read = Runs::of(environment.as_bytes());
        assert_eq!(read, runs);
        assert!(read.contains(&outer) && read.is_outer(&outer));
        assert!(read.contains(&inner) && !read.is_outer(&inner));
        assert_eq!(Runs::of(b"A=1\0"), Runs::default());
        assert!(!Runs::default().contains(&outer) && !Runs::default().is_outer(&outer));
        assert!(Runs::default().with(&outer).with_watchdog().is_outer(&outer));
    }
}
