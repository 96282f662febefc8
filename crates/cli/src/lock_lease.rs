//! `lockwood lock --lease`: runs a program under a lease that is renewed for it. Knows nothing of sessions.

use crate::{
    child::{Holder, Signals, Watch},
    exit::Failure,
    lease::millis,
    lock::{
        Args, Conclusion, RELEASE_PATIENCE, REPORT_AFTER, REPORT_EVERY, command, conclude, default_name,
        interrupted, not_obtained,
    },
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
    };
    if lease.is_reentrant() && !args.quiet {
        eprintln!(
            "lockwood: the owner has lock {} already; it is renewed, and not released at the end",
            lease.lock()
        );
    }
    let watch = Watch {
        holder: Holder::Lease(&lease),
        signals: &mut signals,
        kill_after: args.kill_after,
        quiet: args.quiet,
    };
    let end = watch.run(command(args, lease.token(), lease.lock())).await;
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
                    if !args.quiet {
                        report(args, &request, &mut told).await;
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

/// Tells who is in the way, but nothing twice.
async fn report(args: &Args, request: &LeaseRequest, told: &mut Option<(Option<usize>, Vec<u64>)>) {
    let admin = Admin { address: args.server.address.clone() };
    let filter = LockFilter {
        owner: Some(request.owner.clone()),
        state: Some(LockState::Waiting),
        ..LockFilter::default()
    };
    let Ok(list) = admin.locks(&args.namespace.name, &filter, None).await else { return };
    let Some(waits) = list.locks.last() else { return };
    let gist = (waits.place, waits.blockers.clone());
    if told.as_ref() != Some(&gist) {
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
