//! A program with all the processes it has started: signalled together, and looked at until none is left. Knows
//! nothing of locks.
//!
//! Without a terminal a program gets a process group of its own, and the group is signalled. At a terminal it stays in
//! the group of `lockwood lock`: a shell then stops, continues and interrupts both as one job, and the program may
//! read from the terminal. That group can hold more than the program (the script that runs `lockwood lock`, the rest
//! of a pipeline), so there its descendants are signalled instead, as `/proc` shows them.

use crate::surroundings;
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use std::{fs::File, str::FromStr};

/// How the processes of a program are told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinship {
    /// They are in the process group that the program leads.
    Group,
    /// They descend from the program.
    Descent,
}

impl Kinship {
    /// By descent if there is a terminal whose job control must go on working.
    pub(crate) fn here() -> Kinship {
        if File::open("/dev/tty").is_ok() { Kinship::Descent } else { Kinship::Group }
    }
}

/// A program and the processes it has started.
#[derive(Debug)]
pub(crate) struct Family {
    root: Pid,
    kinship: Kinship,
    /// Those that were signalled, by descent; an orphan cannot be found a second time.
    signalled: Vec<Process>,
}

impl Family {
    pub(crate) fn new(root: Pid, kinship: Kinship) -> Family {
        Family { root, kinship, signalled: Vec::new() }
    }

    /// All processes that have these surroundings in their environment; none if there are none.
    pub(crate) fn in_surroundings(value: &str) -> Option<Family> {
        let variable = format!("{}={value}", surroundings::OUTER);
        let has = |process: &Process| {
            let environment = std::fs::read(format!("/proc/{}/environ", process.id.as_raw_nonzero()));
            environment.unwrap_or_default().split(|byte| *byte == 0).any(|found| found == variable.as_bytes())
        };
        let found: Vec<Process> = all().into_iter().filter(has).collect();
        Some(Family { root: found.first()?.id, kinship: Kinship::Descent, signalled: found })
    }

    pub(crate) fn signal(&mut self, signal: Signal) {
        match self.kinship {
            Kinship::Group => {
                // The only way to fail is that it is gone.
                let _ = kill_process_group(self.root, signal);
            }
            Kinship::Descent => {
                for process in descendants(self.root) {
                    if !self.signalled.contains(&process) {
                        self.signalled.push(process);
                    }
                }
                for process in self.signalled.iter().filter(|process| process.is_alive()) {
                    let _ = kill_process(process.id, signal);
                }
            }
        }
    }

    /// Whether none is left of those that were signalled.
    pub(crate) fn is_gone(&self) -> bool {
        match self.kinship {
            Kinship::Group => test_kill_process_group(self.root).is_err(),
            Kinship::Descent => !self.signalled.iter().any(Process::is_alive),
        }
    }
}

/// For the watchdog: `group 4711` or `descent 4711`.
impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinship = match self.kinship {
            Kinship::Group => "group",
            Kinship::Descent => "descent",
        };
        write!(f, "{kinship} {}", self.root.as_raw_nonzero())
    }
}

impl FromStr for Family {
    type Err = ();

    fn from_str(text: &str) -> Result<Family, ()> {
        let (kinship, id) = text.split_once(' ').ok_or(())?;
        let kinship = match kinship {
            "group" => Kinship::Group,
            "descent" => Kinship::Descent,
            _ => return Err(()),
        };
        let root = id.parse().ok().and_then(Pid::from_raw).ok_or(())?;
        Ok(Family::new(root, kinship))
    }
}

/// A process, known also when its number has gone to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: Pid,
    parent: i32,
    /// In the system's own unit since it was started.
    started: u64,
}

impl Process {
    fn read(id: &str) -> Option<Process> {
        Process::parse(id.parse().ok()?, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// `4711 (a name) S 12 …`: the state, the parent, and 17 further on when it was started. Ended ones do not count.
    fn parse(id: i32, stat: &str) -> Option<Process> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let started = fields.nth(17)?.parse().ok()?;
        Some(Process { id: Pid::from_raw(id)?, parent, started })
    }

    fn is_alive(&self) -> bool {
        let now = Process::read(&self.id.as_raw_nonzero().to_string());
        now.is_some_and(|now| now.started == self.started)
    }
}

/// All processes that can be seen.
fn all() -> Vec<Process> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| Process::read(name.to_str()?)).collect()
}

/// A process and all that come from it, parents first.
fn descendants(root: Pid) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = all.iter().filter(|process| process.id == root).copied().collect();
    let mut at = 0;
    while let Some(parent) = found.get(at).map(|process| process.id.as_raw_nonzero().get()) {
        found.extend(all.iter().filter(|process| process.parent == parent).copied());
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_told_to_the_watchdog_and_read_by_it() {
        for text in ["group 4711", "descent 1"] {
            assert_eq!(text.parse::<Family>().unwrap().to_string(), text);
        }
        for text in ["", "group", "group x", "group 0", "clan 5"] {
            assert!(text.parse::<Family>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_process_is_read_also_if_its_name_has_brackets() {
        let stat = "7 (a) S (b)) S 3 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 999 1 2";
        let process = Process::parse(7, stat).unwrap();
        assert_eq!((process.parent, process.started), (3, 999));
        assert_eq!(Process::parse(7, &stat.replace(") S 3", ") Z 3")), None);
    }

    #[test]
    fn processes_are_found_by_their_surroundings() {
        let value = format!("[\"test {}\"]", std::process::id());
        assert!(Family::in_surroundings(&value).is_none());
        let mut child =
            std::process::Command::new("sleep").arg("60").env(surroundings::OUTER, &value).spawn().unwrap();
        let mut family = None;
        while family.is_none() {
            family = Family::in_surroundings(&value);
        }
        family.unwrap().signal(Signal::KILL);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn descendants_are_found() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let root = Pid::from_child(&child);
        while descendants(root).len() < 2 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut family = Family::new(root, Kinship::Descent);
        family.signal(Signal::KILL);
        child.wait().unwrap();
        while !family.is_gone() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
