//! What is given on the command line as JSON, as a file, or by a name. Knows nothing of what it is for.

use crate::exit::{Failure, bad_data, read_file};
use serde_json::{Value, json};
use std::path::Path;

/// Functions that need no parameters.
const PLAIN: [&str; 3] = ["hash", "jump", "modulo"];

/// JSON as it is, or what is in a file; - is standard input.
pub(crate) fn json(given: &str) -> Result<Value, Failure> {
    let is_json = given.trim_start().starts_with(['{', '[']);
    let text = if is_json { given.to_owned() } else { read_file(given)? };
    let of = if is_json { "the JSON".to_owned() } else { given.to_owned() };
    serde_json::from_str(&text).map_err(|error| bad_data(format!("{of} cannot be read: {error}")))
}

/// A shard function: JSON, a name, a file with JSON or one with Luau. A script that replaces one of the same name
/// gets the version after it.
pub(crate) fn function(given: &str, before: &Value) -> Result<Value, Failure> {
    if PLAIN.contains(&given) {
        return Ok(json!({ "function": given }));
    }
    let path = Path::new(given);
    let is_script = path.extension().is_some_and(|ending| ending == "luau" || ending == "lua");
    if !is_script {
        return json(given);
    }
    let source = read_file(given)?;
    let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or("script");
    let version = match before["name"] == name {
        true if before["source"] == source.as_str() => before["version"].as_u64().unwrap_or(1),
        true => before["version"].as_u64().unwrap_or(0) + 1,
        false => 1,
    };
    Ok(json!({ "function": "script", "name": name, "version": version, "source": source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_names_parameters_or_a_text() {
        assert_eq!(function("jump", &Value::Null).unwrap(), json!({ "function": "jump" }));
        let range = r#"{"function": "range", "bounds": [{"shard": 1}]}"#;
        assert_eq!(function(range, &Value::Null).unwrap()["bounds"][0]["shard"], 1);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mine.luau");
        std::fs::write(&file, "return 1").unwrap();
        let file = file.to_str().unwrap();
        let first = function(file, &Value::Null).unwrap();
        assert_eq!((&first["name"], &first["version"]), (&json!("mine"), &json!(1)));
        assert_eq!(function(file, &first).unwrap(), first);
        let other = json!({ "name": "mine", "version": 4, "source": "return 2" });
        assert_eq!(function(file, &other).unwrap()["version"], 5);
        assert!(function("/nowhere.luau", &Value::Null).is_err());
        assert!(json("{").unwrap_err().message.contains("cannot be read"));
    }
}
