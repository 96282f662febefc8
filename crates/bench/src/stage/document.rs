//! The document everybody stores: three fields of its number and padding, 300 bytes. Knows nothing of those
//! who store it.

/// With the other fields and a number of five digits this comes to 300 bytes of JSON.
pub(crate) const PADDING_LEN: usize = 231;

pub(crate) fn json(number: u64) -> String {
    let padding = padding();
    format!(r#"{{"name":"name-{number}","number":{number},"city":"city-{number}","padding":"{padding}"}}"#)
}

pub(crate) fn padding() -> String {
    "x".repeat(PADDING_LEN)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_document_has_300_bytes() {
        assert_eq!(super::json(12_345).len(), 300);
    }
}
