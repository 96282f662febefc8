//! A program with all the processes it has started: signalled together, and looked at until none is left. Knows
//! nothing of locks.
//!
//! A process belongs to the program if one of these holds:
//!
//! | sign | also if it | lost by |
//! | --- | --- | --- |
//! | it is in the process group that the program leads | is an orphan | `setsid`, job control, `timeout` |
//! | it descends from one that belongs to the program | has a group of its own | its parent's end |
//! | its environment has the mark of the run | both | clearing the environment |
//!
//! Without a terminal a program gets a process group of its own. At a terminal it stays in the group of `lockwood lock`:
//! a shell then stops, continues and interrupts both as one job, and the program may read from the terminal. That group
//! can hold more than the program (the script that runs `lockwood lock`, the rest of a pipeline), so there the other
//! two signs count alone.

use crate::mark::{Run, Runs};
use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process_group};
use std::{fmt, fs::File, str::FromStr};

/// Where the processes of a program begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) id: Pid,
    pub(crate) kinship: Kinship,
}

/// Whether the process group is a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kinship {
    /// The program leads a process group of its own.
    Group,
    /// The program shares its process group with others.
    Descent,
}

impl Kinship {
    /// By descent if there is a terminal whose job control must go on working.
    pub(crate) fn here() -> Kinship {
        if File::open("/dev/tty").is_ok() { Kinship::Descent } else { Kinship::Group }
    }
}

/// For the watchdog: `group 4711` or `descent 4711`.
impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinship = match self.kinship {
            Kinship::Group => "group",
            Kinship::Descent => "descent",
        };
        write!(f, "{kinship} {}", self.id.as_raw_nonzero())
    }
}

impl FromStr for Root {
    type Err = ();

    fn from_str(text: &str) -> Result<Root, ()> {
        let (kinship, id) = text.split_once(' ').ok_or(())?;
        let kinship = match kinship {
            "group" => Kinship::Group,
            "descent" => Kinship::Descent,
            _ => return Err(()),
        };
        let id = id.parse().ok().and_then(Pid::from_raw).ok_or(())?;
        Ok(Root { id, kinship })
    }
}

/// A program and the processes it has started.
#[derive(Debug)]
pub(crate) struct Family {
    run: Run,
    /// None as long as it is not known whether the program was started.
    root: Option<Root>,
    /// Those that were seen: who has lost all signs since still belongs to the program.
    seen: Vec<Process>,
}

impl Family {
    /// To be called while the root is known to run: later its number may be another's.
    pub(crate) fn new(run: Run, root: Option<Root>) -> Family {
        let seen = root.and_then(|root| Process::read(&raw(root.id).to_string()));
        Family { run, root, seen: seen.into_iter().collect() }
    }

    /// Signals all there are now. What another `lockwood lock` runs inside of the program is left to that one, which
    /// passes signals on, so that nothing gets them twice.
    pub(crate) fn signal(&mut self, signal: Signal) {
        let processes = self.look();
        let group = self.group();
        if let Some(group) = group {
            // At once, so that nothing is started in between. The only way to fail is that it is gone.
            let _ = kill_process_group(group, signal);
        }
        let is_other = |process: &&Process| group.is_none_or(|group| process.group != raw(group));
        for process in processes.iter().filter(is_other) {
            if process.mark != Mark::Inner {
                let _ = kill_process(process.id, signal);
            }
        }
    }

    /// Kills all there are now. What they start meanwhile is found the next time.
    pub(crate) fn kill(&mut self) {
        for process in self.look() {
            let _ = kill_process(process.id, Signal::KILL);
        }
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// Whether none is left, of those that were signalled or of those they have started since.
    pub(crate) fn is_gone(&mut self) -> bool {
        match self.group() {
            // Where processes cannot be looked at.
            Some(group) if all().is_empty() => test_kill_process_group(group).is_err(),
            _ => self.look().is_empty(),
        }
    }

    fn group(&self) -> Option<Pid> {
        self.root.filter(|root| root.kinship == Kinship::Group).map(|root| root.id)
    }

    /// All that run now, parents before their children.
    fn look(&mut self) -> Vec<Process> {
        let (mut found, mut others): (Vec<Process>, Vec<Process>) = all()
            .into_iter()
            .map(|process| self.marked(process))
            .partition(|process| self.shows_a_sign(process));
        let mut at = 0;
        while let Some(parent) = found.get(at).map(|process| raw(process.id)) {
            let (children, rest) = others.into_iter().partition(|process| process.parent == parent);
            let children: Vec<Process> = children;
            found.extend(children);
            others = rest;
            at += 1;
        }
        self.seen.clone_from(&found);
        found
    }

    /// The process with its mark. Its environment reads as empty while it executes another program, so a mark that was
    /// seen once stays.
    fn marked(&self, process: Process) -> Process {
        let runs = process.runs();
        let mark = match runs.contains(&self.run) {
            true if runs.is_outer(&self.run) => Mark::Inner,
            true => Mark::Own,
            false => self.seen(&process).map_or(Mark::None, |seen| seen.mark),
        };
        Process { mark, ..process }
    }

    fn seen(&self, process: &Process) -> Option<&Process> {
        self.seen.iter().find(|seen| seen.is_same(process))
    }

    fn shows_a_sign(&self, process: &Process) -> bool {
        self.group().is_some_and(|group| raw(group) == process.group)
            || self.seen(process).is_some()
            || process.mark != Mark::None
    }
}

fn raw(id: Pid) -> i32 {
    id.as_raw_nonzero().get()
}

/// A process, known also when its number has gone to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    id: Pid,
    parent: i32,
    group: i32,
    /// In the system's own unit since it was started.
    started: u64,
    mark: Mark,
}

/// What the environment of a process says about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Nothing, or it was not looked at yet.
    None,
    /// The process runs directly under the run's lock.
    Own,
    /// The process runs under another lock inside of the run.
    Inner,
}

impl Process {
    fn read(id: &str) -> Option<Process> {
        Process::parse(id.parse().ok()?, &std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
    }

    /// `4711 (a name) S 12 4711 …`: the state, the parent, the process group, and 16 further on when it was started.
    /// Ended ones do not count.
    fn parse(id: i32, stat: &str) -> Option<Process> {
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        if matches!(fields.next()?, "Z" | "X") {
            return None;
        }
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let started = fields.nth(16)?.parse().ok()?;
        Some(Process { id: Pid::from_raw(id)?, parent, group, started, mark: Mark::None })
    }

    fn is_same(&self, other: &Process) -> bool {
        (self.id, self.started) == (other.id, other.started)
    }

    /// What its environment says; nothing where that cannot be read.
    fn runs(&self) -> Runs {
        Runs::of(&std::fs::read(format!("/proc/{}/environ", raw(self.id))).unwrap_or_default())
    }
}

/// All processes that can be seen.
fn all() -> Vec<Process> {
    let names = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter_map(|name| Process::read(name.to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark;
    use std::process::{Child, Command};

    #[test]
    fn a_root_is_told_to_the_watchdog_and_read_by_it() {
        for text in ["group 4711", "descent 1"] {
            assert_eq!(text.parse::<Root>().unwrap().to_string(), text);
        }
        for text in ["", "group", "group x", "group 0", "clan 5"] {
            assert!(text.parse::<Root>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_process_is_read_also_if_its_name_has_brackets() {
        let stat = "7 (a) S (b)) S 3 6 5 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 999 1 2";
        let process = Process::parse(7, stat).unwrap();
        assert_eq!((process.parent, process.group, process.started), (3, 6, 999));
        assert_eq!(Process::parse(7, &stat.replace(") S 3", ") Z 3")), None);
    }

    fn start(script: &str, runs: &Runs) -> Child {
        Command::new("sh").args(["-c", script]).env(mark::VARIABLE, runs.to_string()).spawn().unwrap()
    }

    fn wait_for(family: &mut Family, len: usize) {
        while family.look().len() != len {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn processes_are_found_by_their_mark() {
        let run = Run::new();
        let mut family = Family::new(run.clone(), None);
        assert!(family.is_gone());
        let mut child = start("exec sleep 60", &Runs::default().with(&run));
        wait_for(&mut family, 1);
        family.signal(Signal::TERM);
        assert!(!child.wait().unwrap().success());
        assert!(family.is_gone());
    }

    #[test]
    fn a_mark_that_was_seen_outlasts_an_environment_that_reads_as_empty() {
        let run = Run::new();
        let mut child = start("exec sleep 60", &Runs::default());
        let mut process = Process::read(&child.id().to_string()).unwrap();
        process.mark = Mark::Inner;
        let family = Family { run, root: None, seen: vec![process] };
        assert_eq!(family.marked(Process { mark: Mark::None, ..process }).mark, Mark::Inner);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn descendants_are_found() {
        let mut child = start("env -i sleep 60 & wait", &Runs::default());
        let root = Root { id: Pid::from_child(&child), kinship: Kinship::Descent };
        let mut family = Family::new(Run::new(), Some(root));
        wait_for(&mut family, 2);
        family.kill();
        child.wait().unwrap();
        wait_for(&mut family, 0);
    }

    #[test]
    fn what_runs_under_an_inner_lock_is_killed_but_not_signalled() {
        let run = Run::new();
        let mut child = start("exec sleep 60", &Runs::default().with(&run).with(&Run::read("inner")));
        let mut family = Family::new(run, None);
        wait_for(&mut family, 1);
        family.signal(Signal::TERM);
        family.kill();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(child.wait().unwrap().signal(), Some(9));
    }
}
