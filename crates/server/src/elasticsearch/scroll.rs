//! Searches that are shown page by page. Each keeps what it looks through and how far it came, not its hits. Knows
//! nothing of how pages are made.

use super::{
    answer::{Refusal, list, quoted},
    place::{Cursor, Place},
    search::Search,
};
use crate::{limits::Limits, secret::random, trouble::Trouble};
use hyper::StatusCode;
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

/// A search whose next page may be asked for.
pub(super) struct Scroll {
    pub(super) search: Search,
    pub(super) place: Place,
    pub(super) cursor: Cursor,
    pub(super) total: u64,
    pub(super) until: Instant,
}

/// All of them. Those that are being looked at are not among them.
#[derive(Default)]
pub(super) struct Scrolls(Mutex<HashMap<String, Scroll>>);

impl Scrolls {
    /// Keeps a new one; gives its id.
    pub(super) fn insert(&self, limits: &Limits, scroll: Scroll) -> Result<String, Refusal> {
        self.drop_old();
        let mut scrolls = self.0.lock();
        let limit = limits.scrolls_max;
        if scrolls.len() as u64 >= limit {
            return Err(
                Trouble::too_many("scrolls_max", limit, "there are too many scrolls; clear some").into()
            );
        }
        let id: String = random::<24>().iter().map(|byte| format!("{byte:02x}")).collect();
        scrolls.insert(id.clone(), scroll);
        Ok(id)
    }

    pub(super) fn take(&self, id: &str) -> Result<Scroll, Refusal> {
        let found = self.0.lock().remove(id).filter(|scroll| scroll.until > Instant::now());
        found.ok_or_else(|| missing(id))
    }

    pub(super) fn put_back(&self, id: &str, scroll: Scroll) {
        self.0.lock().insert(id.to_owned(), scroll);
    }

    /// True if it was there.
    pub(super) fn remove(&self, id: &str) -> bool {
        let removed = self.0.lock().remove(id);
        removed.is_some()
    }

    /// How many there were.
    pub(super) fn clear(&self) -> usize {
        let all = std::mem::take(&mut *self.0.lock());
        all.len()
    }

    pub(super) fn drop_old(&self) {
        let now = Instant::now();
        self.0.lock().retain(|_, scroll| scroll.until > now);
    }
}

fn missing(id: &str) -> Refusal {
    let reason = format!("No search context found for id [{id}]");
    let kind = "search_context_missing_exception";
    let refusal =
        Refusal::new(StatusCode::NOT_FOUND, "search_phase_execution_exception", "all shards failed");
    refusal
        .with("phase", quoted("query"))
        .with("grouped", "true".to_owned())
        .with("failed_shards", list([]))
        .rooted(kind, reason)
}

/// How long a scroll is to be kept, written like `5m`.
pub(super) fn keep_alive(limits: &Limits, text: &str) -> Result<Duration, Refusal> {
    let wrong = || {
        Refusal::argument(format!(
            "failed to parse setting [scroll] with value [{text}] as a time value; write 1m"
        ))
    };
    let digits = text.find(|char: char| !char.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    let ms = number.saturating_mul(unit_ms);
    let limit = limits.scroll_ttl_ms_max;
    if ms > limit {
        return Err(Refusal::over(
            "scroll_ttl_ms_max",
            limit,
            &format!("Keep alive for request ({text}) is too large"),
        ));
    }
    if ms == 0 {
        return Err(wrong());
    }
    Ok(Duration::from_millis(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let limits = Limits::default();
        for (text, ms) in
            [("1ms", 1), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("1d", 86_400_000)]
        {
            assert_eq!(keep_alive(&limits, text).unwrap(), Duration::from_millis(ms));
        }
        for text in ["", "1", "m", "-1m", "1 m", "0s", "1w", "99999999999999999999d", "2d"] {
            assert!(keep_alive(&limits, text).is_err(), "{text}");
        }
    }
}
