//! The name of a collection on a command line, written as the first segment of a path. Knows nothing of commands.

use lockwood_model::{Path, PathError};
use std::{fmt, ops::Deref, str::FromStr};

/// The name of a collection: `user` or `/user`, with `%2F` for a slash inside of it, as in the path of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Collection(String);

impl FromStr for Collection {
    type Err = String;

    fn from_str(text: &str) -> Result<Collection, String> {
        // After a name it is most likely the completion of a directory.
        if let Some(name) = text.strip_suffix('/').filter(|name| !name.trim_start_matches('/').is_empty()) {
            return Err(format!("a collection has no slash behind its name; write {name}"));
        }
        let path: Path = text.parse().map_err(|error: PathError| match error {
            PathError::Nothing => {
                "nothing is given; write the name of a collection, for example user".to_owned()
            }
            error => error.to_string(),
        })?;
        let mut segments = path.segments();
        match (segments.next(), segments.len()) {
            (None, _) => {
                Err("/ is the whole namespace; write the name of a collection, for example user".to_owned())
            }
            (Some(""), _) => Err("a collection needs a name, for example user".to_owned()),
            (Some(name), 0) => Ok(Collection(name.to_owned())),
            (Some(name), _) => Err(format!(
                "{path} is in the collection {0}, and this is about whole collections; write {0}, or %2F for a slash \
                 inside the name of a collection",
                Path::from_segments([name])
            )),
        }
    }
}

impl Deref for Collection {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// As the server knows it.
impl fmt::Display for Collection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collection_is_written_as_in_the_path_of_a_document() {
        let check = |text: &str, name: &str| assert_eq!(&*text.parse::<Collection>().unwrap(), name);
        check("user", "user");
        check("/user", "user");
        check("a%2Fb", "a/b");
        check("a b.c", "a b.c");
        let refused = |text: &str, hint: &str| {
            let error = text.parse::<Collection>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        };
        refused("user/42", "write user, or %2F");
        refused("/a%2Fb/42/name", "write a%2Fb, or");
        refused("user/", "write user");
        refused("", "nothing is given");
        refused("/", "whole namespace");
        refused("//", "empty segment");
        refused("%_", "needs a name");
        refused("100%", "%25");
    }
}
