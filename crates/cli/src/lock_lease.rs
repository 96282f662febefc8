//! `lockwood lock --lease`: runs a program under a lease that is renewed for it. Knows nothing of sessions.

use crate::{
    child::{Holder, Signals, Watch},
    exit::Failure,
    lease::millis,
    lock::{
        Args, Conclusion, RELEASE_PATIENCE, REPORT_AFTER, REPORT_EVERY, command, conclude, default_name,
        interrupted, not_obtained, surroundings, waits_for_itself,
    },
    nested::{Granter, Supervisor},
};
use lockwood_client::{Admin, Error, Lease, LeaseRequest, Leases, LockFilter, LockInfo, Wait, text};
use lockwood_wire::{LockState, WireResource};
use rustix::process::Signal;
use std::{process::ExitCode, time::Duration};
use tokio::time::{Instant, timeout};

/// How long one request stands in line for somebody who would wait forever; then it stands in line anew.
const FOREVER_MS: u64 = 3_600_000;

pub(crate) async fn run(args: &Args, ttl: Duration, mut signals: Signals) -> anyhow::Result<ExitCode> {
    let lease = match obtain(args, ttl, &mut signals).await {
        Obtained::Lease(lease) => lease,
        Obtained::Interrupted(signal) => return Ok(interrupted(signal)),
        Obtained::Failed(error) if error.code().is_none() => return Ok(Failure::from(&error).report()),
        Obtained::Failed(error) => return Ok(not_obtained(&error, args).report()),
        Obtained::Stuck(failure) => return Ok(failure.report()),
    };
    if lease.is_reentrant() && !args.is_quiet() {
        eprintln!(
            "lockwood: the owner has lock {} already; it is renewed, and not released at the end",
            lease.lock()
        );
    }
    let supervisor = Supervisor::bind();
    let inside = surroundings(args, supervisor.as_ref(), lease.lock(), lease.token());
    let LeaseRequest { owner, ttl_ms, .. } = request(args, ttl);
    let leases = Leases::new(&args.server.address, &args.namespace.name);
    let watch = Watch {
        holder: Holder::Lease(&lease),
        signals: &mut signals,
        supervisor: supervisor.map(|supervisor| (supervisor, Granter::Lease { leases, owner, ttl_ms })),
        kill_after: args.kill_after,
        quiet: args.is_quiet(),
    };
    let end = watch.run(command(args), &inside).await;
    // Somebody else of the owner's name may still need it.
    let released = match lease.is_reentrant() {
        true => Some(Ok(())),
        false => timeout(RELEASE_PATIENCE, lease.release()).await.ok(),
    };
    Ok(conclude(Conclusion { end, released, ends_with: "its time" }, args))
}

enum Obtained {
    Lease(Lease),
    Interrupted(Signal),
    Failed(Error),
    /// It would wait for the command around it.
    Stuck(Failure),
}

async fn obtain(args: &Args, ttl: Duration, signals: &mut Signals) -> Obtained {
    let request = request(args, ttl);
    let leases = Leases::new(&args.server.address, &args.namespace.name);
    loop {
        let mut report_at = Instant::now() + REPORT_AFTER;
        let mut told = None;
        // Dropping it leaves the line.
        let hold = leases.hold(&request);
        tokio::pin!(hold);
        let held = loop {
            tokio::select! {
                held = &mut hold => break held,
                signal = signals.next() => return Obtained::Interrupted(signal),
                () = tokio::time::sleep_until(report_at) => {
                    if let Some(waits) = wait_of(args, &request).await {
                        if let Some(stuck) = waits_for_itself(args, waits.blockers.iter().copied()) {
                            return Obtained::Stuck(stuck);
                        }
                        report(args, &waits, &mut told);
                    }
                    report_at = Instant::now() + REPORT_EVERY;
                }
            }
        };
        match held {
            Ok(lease) => return Obtained::Lease(lease),
            Err(error)
                if args.wait == Wait::Forever && error.code() == Some(lockwood_client::Code::Timeout) => {}
            Err(error) => return Obtained::Failed(error),
        }
    }
}

fn request(args: &Args, ttl: Duration) -> LeaseRequest {
    let wait_ms = match args.wait {
        Wait::Never => 0,
        Wait::Millis(wait_ms) => wait_ms,
        Wait::Forever => FOREVER_MS,
    };
    let owner = args.owner.clone().or_else(|| args.name.clone());
    LeaseRequest {
        owner: owner.unwrap_or_else(|| default_name(&args.program())),
        resources: args.request().resources.iter().map(WireResource::from).collect(),
        ttl_ms: millis(ttl),
        wait_ms: Some(wait_ms),
        poll_ms: None,
        note: None,
    }
}

/// How the request stands.
async fn wait_of(args: &Args, request: &LeaseRequest) -> Option<LockInfo> {
    let admin = Admin { address: args.server.address.clone() };
    let filter = LockFilter {
        owner: Some(request.owner.clone()),
        state: Some(LockState::Waiting),
        ..LockFilter::default()
    };
    admin.locks(&args.namespace.name, &filter, None).await.ok()?.locks.pop()
}

/// Tells who is in the way, but nothing twice.
fn report(args: &Args, waits: &LockInfo, told: &mut Option<(Option<usize>, Vec<u64>)>) {
    let gist = (waits.place, waits.blockers.clone());
    if !args.is_quiet() && told.as_ref() != Some(&gist) {
        eprintln!("{}", render_wait(&args.namespace.name, waits));
        *told = Some(gist);
    }
}

fn render_wait(namespace: &str, waits: &LockInfo) -> String {
    let blockers: Vec<String> = waits.blockers.iter().map(u64::to_string).collect();
    let behind = match &blockers[..] {
        [] => String::new(),
        [only] => format!(", behind lock {only}"),
        several => format!(", behind locks {}", several.join(", ")),
    };
    let (wanted, namespace) = (text::resources(&waits.resources), text::plain(namespace));
    let place = waits.place.unwrap_or_default();
    format!("lockwood: waiting for {wanted} in namespace {namespace}: place {place} in line{behind}")
}
