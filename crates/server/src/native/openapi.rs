//! The description of the HTTP interface. Made from the handlers, so that it cannot say something else.

use super::http::Api;
use utoipa::OpenApi;

/// The OpenAPI document.
pub(crate) fn document() -> String {
    let mut text = Api::openapi().to_pretty_json().expect("the description is valid JSON");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    /// The file in the repository is what the server serves. `LOCKWOOD_UPDATE_GOLDEN=1` rewrites it.
    #[test]
    fn the_golden_file_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
        if std::env::var_os("LOCKWOOD_UPDATE_GOLDEN").is_some() {
            std::fs::write(path, super::document()).unwrap();
        }
        let golden = std::fs::read_to_string(path).unwrap_or_default();
        assert!(golden == super::document(), "docs/openapi.json is out of date: LOCKWOOD_UPDATE_GOLDEN=1");
    }
}
