//! Sandboxes that wait for the next call of one function, so that calls on several threads need not wait for
//! each other. Knows nothing of what the function does.

use crate::{error::ScriptError, source::Code, vm::Vm};
use std::sync::{Mutex, PoisonError};

/// So many sandboxes are kept; when more calls run at once, theirs are given up afterwards.
const IDLE_LEN_MAX: usize = 8;

/// One function, and the sandboxes that have loaded it.
pub(crate) struct Pool {
    code: Code,
    /// Taken from by a call when it starts, put back when it ends.
    idle: Mutex<Vec<Vm>>,
}

impl Pool {
    /// With one sandbox, so that what is wrong with the text shows at once.
    pub(crate) fn start(code: Code) -> Result<Pool, ScriptError> {
        let vm = Vm::start(&code)?;
        vm.check(code.limits.memory_bytes_max)?;
        Ok(Pool { code, idle: Mutex::new(vec![vm]) })
    }

    /// Calls into a sandbox that nobody else is in.
    pub(crate) fn call<R>(
        &self,
        call: impl FnOnce(&Vm, &Code) -> Result<R, ScriptError>,
    ) -> Result<R, ScriptError> {
        let waiting = self.idle().pop();
        let vm = waiting.map_or_else(|| Vm::start(&self.code), Ok)?;
        let outcome = call(&vm, &self.code);
        // After a limit who knows what is half done in there; the next call gets another.
        let is_sound = !outcome.as_ref().is_err_and(ScriptError::is_limit);
        if is_sound && vm.tidy() {
            self.put_back(vm);
        }
        outcome
    }

    fn put_back(&self, vm: Vm) {
        let mut idle = self.idle();
        if idle.len() < IDLE_LEN_MAX {
            idle.push(vm);
            return;
        }
        drop(idle);
        drop(vm);
    }

    /// A list of sandboxes is sound whoever panicked.
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Vm>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
