//! Requests for all shards: each is asked, and the answers are merged. A shard that does not answer is named, and nothing
//! is left out silently. Knows nothing of how shards are asked.

use super::scope::Gathered;
use bytes::Bytes;
use lockwood_node::trouble::Trouble;
use lockwood_router::ShardNo;
use lockwood_wire::Code;
use serde_json::Value;

impl Gathered {
    /// The lists of an answer that are made longer by those of other shards.
    fn lists(self) -> &'static [&'static str] {
        match self {
            Gathered::Namespaces | Gathered::Grace => &["namespaces"],
            Gathered::Status => &["namespaces", "grace"],
            Gathered::Purges => &["purges"],
            Gathered::Backup | Gathered::Rows => &[],
        }
    }

    /// That it cannot be had of several shards.
    pub(super) fn check(self) -> Result<(), Trouble> {
        if self != Gathered::Backup {
            return Ok(());
        }
        let message = "a cluster of several shards is backed up with its database, for example by pg_dump; for one namespace \
                       there is `lockwood dump`";
        Err(Trouble::new(Code::NotOnCluster, message))
    }

    /// One answer made of those of all shards, by their numbers. What is no list is as the first shard says.
    pub(super) fn merge(self, answers: &[(ShardNo, Bytes)]) -> Result<Vec<u8>, Trouble> {
        let mut answers = answers.iter().map(|(shard, answer)| read(*shard, answer));
        if self == Gathered::Rows {
            return Ok(rows(answers.collect::<Result<_, _>>()?).to_string().into_bytes());
        }
        let mut merged = answers.next().unwrap_or_else(|| Ok(Value::Null))?;
        for answer in answers {
            let mut answer = answer?;
            for list in self.lists() {
                if let (Some(all), Some(more)) = (merged[list].as_array_mut(), answer[list].as_array_mut()) {
                    all.append(more);
                }
            }
        }
        for list in self.lists() {
            if let Some(all) = merged[list].as_array_mut() {
                all.sort_by(|a, b| a["namespace"].as_str().cmp(&b["namespace"].as_str()));
            }
            if let (&"namespaces", Some(all)) = (list, merged[list].as_array_mut()) {
                *all = one_each(std::mem::take(all));
            }
        }
        Ok(merged.to_string().into_bytes())
    }
}

/// A namespace whose documents are on several shards is one: what counts things is added up, and the position is that of the
/// shard that is the furthest.
fn one_each(sorted: Vec<Value>) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::with_capacity(sorted.len());
    for info in sorted {
        match all.last_mut().filter(|last| last["namespace"] == info["namespace"]) {
            Some(last) => add(last, &info),
            None => all.push(info),
        }
    }
    all
}

fn add(total: &mut Value, more: &Value) {
    for (name, value) in more.as_object().into_iter().flatten() {
        let Some(value) = value.as_u64() else { continue };
        let known = total[name].as_u64().unwrap_or_default();
        total[name] = if name == "position" { known.max(value) } else { known + value }.into();
    }
}

/// One row for each collection.
fn rows(answers: Vec<Value>) -> Value {
    let mut all: Vec<Value> = Vec::new();
    for row in answers.into_iter().filter_map(|answer| answer.as_array().cloned()).flatten() {
        let is_it = |known: &&mut Value| {
            known["namespace"] == row["namespace"] && known["collection"] == row["collection"]
        };
        match all.iter_mut().find(is_it) {
            Some(known) => add(known, &row),
            None => all.push(row),
        }
    }
    Value::Array(all)
}

fn read(shard: ShardNo, answer: &Bytes) -> Result<Value, Trouble> {
    serde_json::from_slice(answer).map_err(|error| {
        let message = format!("shard {} gave an answer that cannot be read: {error}; try again", shard.0);
        Trouble::unreachable(shard, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_all_shards_are_one_list() {
        let check = |gathered: Gathered, answers: &[&str], expected: &str| {
            let answers: Vec<(ShardNo, Bytes)> = (1..)
                .zip(answers)
                .map(|(shard, text)| (ShardNo(shard), Bytes::from((*text).to_owned())))
                .collect();
            let merged = gathered.merge(&answers).map(|merged| String::from_utf8(merged).unwrap());
            assert_eq!(merged.unwrap(), expected);
        };
        let (a, b) = (r#"{"namespaces":[{"namespace":"b"}]}"#, r#"{"namespaces":[{"namespace":"a"}]}"#);
        check(Gathered::Namespaces, &[a, b], r#"{"namespaces":[{"namespace":"a"},{"namespace":"b"}]}"#);
        let (a, b) = (
            r#"{"data":"x","grace":[],"namespaces":[{"namespace":"b"}]}"#,
            r#"{"data":"y","grace":[{"namespace":"c"}],"namespaces":[]}"#,
        );
        let merged = r#"{"data":"x","grace":[{"namespace":"c"}],"namespaces":[{"namespace":"b"}]}"#;
        check(Gathered::Status, &[a, b], merged);
        check(Gathered::Purges, &[r#"{"purges":[]}"#], r#"{"purges":[]}"#);
    }

    #[test]
    fn an_answer_that_cannot_be_read_names_its_shard() {
        let refused = Gathered::Grace.merge(&[(ShardNo(3), Bytes::from_static(b"<html>"))]).unwrap_err();
        assert!(refused.message.contains("shard 3"), "{}", refused.message);
    }
}
