//! On which terms a request is done: whose locks it may pass, and how long it waits for those of others.

use crate::shared::Shared;
use lockwood_model::Wait;
use lockwood_node::{gate::Terms, trouble::Trouble};
use lockwood_wire::Code;

/// The terms as a body gives them.
pub(in crate::native) fn terms(
    shared: &Shared,
    tokens: Vec<u64>,
    wait_ms: Option<u64>,
) -> Result<Terms, Trouble> {
    let limit = shared.config.limits.tokens_max;
    if tokens.len() as u64 > limit {
        return Err(Trouble::over("tokens_max", limit, &format!("{} tokens are too many", tokens.len())));
    }
    Ok(Terms { tokens, ..Terms::anonymous(wait(shared, wait_ms)?) })
}

/// The terms as a query gives them: tokens with commas between them.
pub(in crate::native) fn read_terms(
    shared: &Shared,
    token: Option<&str>,
    wait_ms: Option<u64>,
) -> Result<Terms, Trouble> {
    let read = |text: &str| {
        let number = text.trim().parse();
        number
            .map_err(|_| Trouble::new(Code::BadQuery, format!("{text:?} is not a token; tokens are numbers")))
    };
    let tokens = token.map(|list| list.split(',').map(read).collect()).transpose()?.unwrap_or_default();
    terms(shared, tokens, wait_ms)
}

fn wait(shared: &Shared, wait_ms: Option<u64>) -> Result<Wait, Trouble> {
    let limit = shared.config.limits.wait_ms_max;
    match wait_ms.unwrap_or(shared.config.wait_ms.min(limit)) {
        0 => Ok(Wait::Never),
        wait_ms if wait_ms > limit => {
            Err(Trouble::over("wait_ms_max", limit, &format!("the request would wait for {wait_ms} ms")))
        }
        wait_ms => Ok(Wait::Millis(wait_ms)),
    }
}
