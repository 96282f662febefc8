//! Scripts that are known by a name: those of the tutorials, and those an administrator adds as files. Knows
//! nothing of requests.

use super::script::Script;
use std::{collections::HashMap, fs, path::Path, sync::Arc};

/// Files in the directory of scripts.
const FILES_MAX: usize = 1000;

/// Document locks: only whoever took the lock may go on. Tree locks: shared ones are counted, exclusive ones are
/// in everybody's way.
const KNOWN: [(&str, &str); 3] = [
    ("judge-lock", "if ( ctx._source.process_id != process_id ) { assert false }; ctx.op = 'noop';"),
    (
        "judge-lock-2",
        "if ( ctx._source.lock_type == 'exclusive' ) { assert false }; ctx._source.lock_count++",
    ),
    ("unlock-shared", "if ( --ctx._source.lock_count == 0 ) { ctx.op = 'delete' }"),
];

/// All named scripts.
#[derive(Debug, Clone)]
pub(crate) struct Library(HashMap<String, (Arc<Script>, &'static str)>);

impl Library {
    /// The known ones, and those in a directory, which come first.
    pub(crate) fn open(directory: Option<&Path>, script_bytes_max: u64) -> Result<Library, String> {
        let known = |(name, text): (&str, &str)| {
            let script = Script::read(text).expect("the tests have read it");
            (name.to_owned(), (Arc::new(script), "groovy"))
        };
        let mut library = Library(KNOWN.into_iter().map(known).collect());
        if let Some(directory) = directory {
            library.add_files(directory, script_bytes_max)?;
        }
        Ok(library)
    }

    /// A script and its language.
    pub(super) fn get(&self, name: &str) -> Option<(Arc<Script>, &'static str)> {
        self.0.get(name).cloned()
    }

    fn add_files(&mut self, directory: &Path, script_bytes_max: u64) -> Result<(), String> {
        let about = |error: &dyn std::fmt::Display| {
            format!("--elasticsearch-scripts {}: {error}", directory.display())
        };
        let entries = fs::read_dir(directory).map_err(|error| about(&error))?;
        let mut files = 0;
        for entry in entries {
            let path = entry.map_err(|error| about(&error))?.path();
            let Some(language) = language(&path) else { continue };
            let Some(name) = path.file_stem().and_then(|name| name.to_str()) else { continue };
            files += 1;
            if files > FILES_MAX {
                return Err(about(&format!("there are more than {FILES_MAX} scripts")));
            }
            let script = read(&path, script_bytes_max).map_err(|error| about(&format!("{name}: {error}")))?;
            self.0.insert(name.to_owned(), (Arc::new(script), language));
        }
        Ok(())
    }
}

fn language(path: &Path) -> Option<&'static str> {
    match path.extension()?.to_str()? {
        "groovy" => Some("groovy"),
        "painless" => Some("painless"),
        _ => None,
    }
}

fn read(path: &Path, script_bytes_max: u64) -> Result<Script, String> {
    let len = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if len > script_bytes_max {
        return Err(format!(
            "it has {len} bytes; the limit script_bytes_max is {script_bytes_max} (flag --script-bytes-max)"
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    Script::read(&text).map_err(|misread| format!("{} at byte {}", misread.reason, misread.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_scripts_are_there() {
        let library = Library::open(None, 100).unwrap();
        for (name, text) in KNOWN {
            let (script, language) = library.get(name).unwrap();
            assert_eq!((script.text(), language), (text, "groovy"));
        }
        assert!(library.get("judge").is_none());
    }
}
