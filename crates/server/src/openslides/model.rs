//! How models are written into answers. Knows nothing of how they were found.

use lockwood_model::{Fields, Key, META_DELETED, META_POSITION};
use lockwood_storage::DocumentRef;
use std::io::Write;

/// A model with everything in it.
pub(super) fn whole(out: &mut Vec<u8>, document: &DocumentRef<'_>) {
    some(out, document, |_| true);
}

/// A model with its own number as the member `id`.
pub(super) fn numbered(out: &mut Vec<u8>, document: &DocumentRef<'_>, key: &Key) {
    // The models of OpenSlides have a field of that name too.
    some(out, document, |name| name != "id");
    out.pop();
    let comma = if out.last() == Some(&b'{') { "" } else { "," };
    write!(out, "{comma}\"id\":").expect("memory takes everything");
    match key.as_number() {
        Some(number) => write!(out, "{number}").expect("memory takes everything"),
        None => text(out, &key.to_string()),
    }
    out.push(b'}');
}

/// A model with those of the wanted fields that it has.
pub(super) fn some(out: &mut Vec<u8>, document: &DocumentRef<'_>, wanted: impl Fn(&str) -> bool) {
    let mut object = Members::open(out);
    for (name, value) in document.fields().filter(|(name, _)| wanted(name)) {
        object.member(name, value);
    }
    for name in [META_DELETED, META_POSITION] {
        if let Some(value) = document.value(name).filter(|_| wanted(name)) {
            object.member(name, &value);
        }
    }
    object.close();
}

/// A model with all these fields, null where it has none.
pub(super) fn mapped(out: &mut Vec<u8>, document: &DocumentRef<'_>, names: &[&str]) {
    let mut object = Members::open(out);
    for name in names {
        object.member(name, document.value(name).as_deref().unwrap_or("null"));
    }
    object.close();
}

/// Text as JSON.
pub(super) fn text(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("memory takes everything");
}

/// An object that is being written.
pub(super) struct Members<'a> {
    pub(super) out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl Members<'_> {
    pub(super) fn open(out: &mut Vec<u8>) -> Members<'_> {
        out.push(b'{');
        Members { out, is_empty: true }
    }

    /// Writes the name; the value is for the caller to write.
    pub(super) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_empty, false) {
            self.out.push(b',');
        }
        text(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(super) fn member(&mut self, name: &str, json: &str) {
        self.name(name).extend_from_slice(json.as_bytes());
    }

    pub(super) fn close(self) {
        self.out.push(b'}');
    }
}
