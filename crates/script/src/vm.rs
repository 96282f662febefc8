//! One sandbox with a function in it, and how the function is kept within its limits. Knows nothing of what it
//! is asked or answers.
//!
//! A call is counted in steps, at every function call and every round of a loop. A step costs more the longer the
//! text is, because all of it can stand between two steps, and the more memory the call has taken, because one call
//! of a library function can go through all of it. Memory is not
//! reclaimed while a function runs: so the limit is on all that a call takes, whether a call reaches it does
//! not depend on when memory is reclaimed, and neither does what weak tables hold.

use crate::{
    error::ScriptError,
    sandbox::{self, Prelude},
    source::{CHUNK, Code},
};
use lockwood_model::Budget;
use mlua::{Error, Function, Lua, Table, Value, VmState, chunk::ChunkMode};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// So many bytes taken make every step cost one more.
const BYTES_PER_STEP: u64 = 128 << 10;

/// Whether the caller is still there is looked at every so many steps.
const STEPS_UNLOOKED_MAX: u64 = 256;

/// So much garbage may lie about between calls.
const GARBAGE_BYTES_MAX: usize = 256 << 10;

/// What Luau says when it gets no memory.
const NO_MEMORY: &str = "not enough memory";

/// A sandbox that has loaded one text.
pub(crate) struct Vm {
    pub(crate) lua: Lua,
    /// Runs the text and calls the function it returns.
    pub(crate) entry: Function,
    /// Makes the `db` of procedures.
    pub(crate) database: Function,
    /// The metatable of lists.
    pub(crate) list: Table,
    pub(crate) meter: Arc<Meter>,
    chunk: Function,
    used_at_rest: usize,
}

/// Counts the steps of one call. Written and read by the thread that runs the sandbox, and by no other at the
/// same time.
pub(crate) struct Meter {
    steps_max: u64,
    step_cost: u64,
    /// Who may cancel the call, looked at every now and then.
    caller: Mutex<Option<Budget>>,
    unlooked: AtomicU64,
    is_cancelled: AtomicBool,
    left: AtomicU64,
    used_at_start: AtomicU64,
    is_out: AtomicBool,
}

impl Vm {
    pub(crate) fn start(code: &Code) -> Result<Vm, ScriptError> {
        Vm::load(code).map_err(|error| read(&error, code.limits.memory_bytes_max))
    }

    fn load(code: &Code) -> mlua::Result<Vm> {
        let meter = Arc::new(Meter::new(code.limits.steps_max, code.step_cost()));
        let (lua, Prelude { entry, database, list }) = sandbox::start(&meter)?;
        let text = lua.load(&code.bytecode).set_name(format!("={CHUNK}")).set_mode(ChunkMode::Binary);
        let chunk = text.into_function()?;
        let entry = entry.call(&chunk)?;
        let counted = Arc::clone(&meter);
        lua.set_interrupt(move |lua| counted.step(lua).map(|()| VmState::Continue));
        lua.gc_collect()?;
        lua.gc_stop();
        let used_at_rest = lua.used_memory();
        Ok(Vm { lua, entry, database, list, meter, chunk, used_at_rest })
    }

    /// Whether the text returns a function, as it must.
    pub(crate) fn check(&self, memory_bytes_max: u64) -> Result<(), ScriptError> {
        let returned = self.run(memory_bytes_max, || self.chunk.call::<Value>(()))?;
        if returned.is_function() {
            return Ok(());
        }
        let found = returned.type_name();
        let message =
            format!("the text must return a function, as in `return function(…) … end`; found {found}");
        Err(ScriptError::BadResult { message })
    }

    /// Runs what calls into the sandbox; a limit that was reached is the outcome, whatever else it answers.
    pub(crate) fn run<R>(
        &self,
        memory_bytes_max: u64,
        call: impl FnOnce() -> mlua::Result<R>,
    ) -> Result<R, ScriptError> {
        self.run_within(memory_bytes_max, None, call)
    }

    /// The same for a caller that may cancel it.
    pub(crate) fn run_within<R>(
        &self,
        memory_bytes_max: u64,
        caller: Option<&Budget>,
        call: impl FnOnce() -> mlua::Result<R>,
    ) -> Result<R, ScriptError> {
        let used = self.lua.used_memory();
        self.meter.start(used as u64, caller);
        self.limit_memory(used.saturating_add(usize::try_from(memory_bytes_max).unwrap_or(usize::MAX)));
        let outcome = call();
        self.limit_memory(0);
        if self.meter.is_cancelled.load(Relaxed) {
            return Err(ScriptError::Cancelled);
        }
        if self.meter.is_out.load(Relaxed) {
            return Err(self.meter.out());
        }
        outcome.map_err(|error| read(&error, memory_bytes_max))
    }

    /// None is 0.
    fn limit_memory(&self, bytes: usize) {
        self.lua.set_memory_limit(bytes).expect("the state has an allocator of its own");
    }

    /// Reclaims what calls have left, if it is worth it; false if it cannot be.
    pub(crate) fn tidy(&self) -> bool {
        if self.lua.used_memory() <= self.used_at_rest + GARBAGE_BYTES_MAX {
            return true;
        }
        let collected = self.lua.gc_collect();
        // Collecting sets it going again.
        self.lua.gc_stop();
        collected.is_ok()
    }
}

impl Meter {
    fn new(steps_max: u64, step_cost: u64) -> Meter {
        Meter {
            steps_max,
            step_cost,
            caller: Mutex::new(None),
            unlooked: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            left: AtomicU64::new(steps_max),
            used_at_start: AtomicU64::new(u64::MAX),
            is_out: AtomicBool::new(false),
        }
    }

    fn start(&self, used: u64, caller: Option<&Budget>) {
        *self.caller.lock().unwrap_or_else(PoisonError::into_inner) = caller.cloned();
        self.unlooked.store(0, Relaxed);
        self.is_cancelled.store(false, Relaxed);
        self.left.store(self.steps_max, Relaxed);
        self.used_at_start.store(used, Relaxed);
        self.is_out.store(false, Relaxed);
    }

    fn step(&self, lua: &Lua) -> mlua::Result<()> {
        let taken = (lua.used_memory() as u64).saturating_sub(self.used_at_start.load(Relaxed));
        self.look_at_caller().map_err(Error::external)?;
        self.take((1 + taken / BYTES_PER_STEP).saturating_mul(self.step_cost)).map_err(Error::external)
    }

    fn look_at_caller(&self) -> Result<(), ScriptError> {
        let unlooked = self.unlooked.load(Relaxed) + self.step_cost;
        self.unlooked.store(if unlooked < STEPS_UNLOOKED_MAX { unlooked } else { 0 }, Relaxed);
        if unlooked < STEPS_UNLOOKED_MAX {
            return Ok(());
        }
        let caller = self.caller.lock().unwrap_or_else(PoisonError::into_inner);
        if caller.as_ref().is_some_and(Budget::is_cancelled) {
            self.is_cancelled.store(true, Relaxed);
            return Err(ScriptError::Cancelled);
        }
        Ok(())
    }

    /// Takes so many steps at once.
    pub(crate) fn take(&self, steps: u64) -> Result<(), ScriptError> {
        match self.left.load(Relaxed).checked_sub(steps) {
            Some(left) => {
                self.left.store(left, Relaxed);
                Ok(())
            }
            None => {
                self.left.store(0, Relaxed);
                self.is_out.store(true, Relaxed);
                Err(self.out())
            }
        }
    }

    fn out(&self) -> ScriptError {
        ScriptError::OutOfSteps { limit: self.steps_max }
    }
}

/// What an error of the sandbox means.
fn read(error: &Error, memory_bytes_max: u64) -> ScriptError {
    if let Some(own) = error.downcast_ref::<ScriptError>() {
        return own.clone();
    }
    let text = match error {
        Error::MemoryError(_) => NO_MEMORY.to_owned(),
        Error::CallbackError { cause, .. } => return read(cause, memory_bytes_max),
        Error::RuntimeError(text) => text.clone(),
        other => other.to_string(),
    };
    let (message, trace) = text.split_once("\nstack traceback:").unwrap_or((&text, ""));
    if message == NO_MEMORY {
        return ScriptError::OutOfMemory { limit: memory_bytes_max };
    }
    let (message, line) = match in_text(message) {
        Some((line, rest)) => (rest.trim_start_matches([':', ' ']), Some(line)),
        None => (message, trace.lines().find_map(|frame| in_text(frame.trim())).map(|(line, _)| line)),
    };
    ScriptError::Runtime { message: explained(message), line }
}

/// The line that `script:12…` is about, and the rest.
fn in_text(text: &str) -> Option<(u32, &str)> {
    let numbered = text.strip_prefix(CHUNK)?.strip_prefix(':')?;
    let end = numbered.find(|char: char| !char.is_ascii_digit()).unwrap_or(numbered.len());
    Some((numbered[..end].parse().ok()?, &numbered[end..]))
}

fn explained(message: &str) -> String {
    if message.starts_with("attempt to modify a readonly table") {
        return format!(
            "{message}; write `local` before the name of a variable, nothing is kept between calls"
        );
    }
    // What was raised is no text, and what is written here is where it was in memory.
    match message.split_once(": 0x") {
        Some((kind, _)) if !kind.contains(' ') => format!("a {kind} was raised as an error; raise text"),
        _ => message.to_owned(),
    }
}
