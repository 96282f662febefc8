//! `lockwood shard map`, `valid` and `config`: the shard map, and changing it.

use super::{Common, Shown, given};
use crate::{
    exit::Failure,
    output::{self, Table},
};
use lockwood_client::{
    shard_wire::{ConfigAnswer, ShardConfig},
    text,
    wire::WireValue,
};
use serde_json::Value;

/// Show the shard map
#[derive(clap::Args)]
pub(super) struct Map {
    #[command(flatten)]
    common: Common,
}

pub(super) async fn map(args: &Map) -> Shown {
    let map = args.common.shards().map().await.map_err(|error| Failure::from(&error))?;
    if args.common.json {
        return Ok(output::json_line(&map));
    }
    if map.is_null() {
        return Ok("there is no map yet; see `lockwood shard config --help`\n".to_owned());
    }
    Ok(show(&map))
}

/// The map for a person.
fn show(map: &Value) -> String {
    let phase = map["phase"].as_str().unwrap_or_default();
    let mut out = format!("epoch {}, {}\n", map["epoch"], text::plain(phase));
    for name in ["curr", "prev"] {
        if !map[name].is_null() {
            out += &format!("{name}  {}\n", function(&map[name]));
        }
    }
    let header = ["shard", "mode", "weight", "address"].map(str::to_owned);
    let mut rows = Vec::new();
    for (index, hosts) in map["shards"].as_array().into_iter().flatten().enumerate() {
        for host in hosts.as_array().into_iter().flatten() {
            let word = |name: &str| host[name].as_str().unwrap_or_default().to_owned();
            let weight = host["weight"].to_string();
            rows.push(vec![(index + 1).to_string(), word("mode"), weight, word("address")]);
        }
    }
    out + &Table::default().render(&header, &rows)
}

/// A shard function in one line.
fn function(function: &Value) -> String {
    let word = |name: &str| function[name].as_str().unwrap_or_default();
    let shown = match word("function") {
        "script" => format!("script {} version {}", word("name"), function["version"]),
        "range" => {
            let bounds = function["bounds"].as_array().into_iter().flatten();
            let bound = |bound: &Value| match &bound["below"] {
                Value::Null => format!("rest → {}", bound["shard"]),
                below => format!("below {below} → {}", bound["shard"]),
            };
            format!("range: {}", bounds.map(bound).collect::<Vec<_>>().join(", "))
        }
        "constant" => format!("constant {}", function["shard"]),
        name => {
            let by = Some(word("by")).filter(|by| !by.is_empty() && *by != "key");
            let by = by.map_or_else(String::new, |by| format!(" of {by}"));
            format!("{name}{by} over {}", function["shards"])
        }
    };
    text::plain(&shown)
}

/// Tell whether a node has a map and its place in it
#[derive(clap::Args)]
pub(super) struct Valid {
    #[command(flatten)]
    common: Common,
}

pub(super) async fn valid(args: &Valid) -> Shown {
    let validity = args.common.shards().is_valid().await.map_err(|error| Failure::from(&error))?;
    if args.common.json {
        return Ok(output::json_line(&validity));
    }
    Ok(match validity.why {
        None => "valid\n".to_owned(),
        Some(why) => format!("not valid: {}\n", text::plain(&why)),
    })
}

const CONFIG_HELP: &str = "\
Only what is named changes, all of it or nothing. Another --curr, or --prev, begins a transition whose steps are taken
by hand: `lockwood shard copy`, --no-prev, `lockwood shard cleanup`. `lockwood reshard` takes all of them.

Examples:
  lockwood shard config --list shards.json --curr jump
  lockwood shard config --list '[[[\"rw\", 1, \"10.0.0.1\", 7117], [\"ro\", 500, \"10.0.0.3\", 7117]]]'
  lockwood shard config --curr mine.luau
  lockwood shard config --this 2 --server n2.example:7117
                               n2 prefers to own shard 2; with 0, it prefers to own none
  lockwood shard config --no-prev";

/// Change parameters of the shard map
#[derive(clap::Args)]
#[command(after_help = CONFIG_HELP)]
#[command(group(clap::ArgGroup::new("forced").args(["list", "no_prev"]).multiple(true)))]
pub(super) struct Config {
    /// For each shard its hosts, each with mode, weight, host and port; JSON, or a file
    #[arg(long, value_name = "FILE|JSON")]
    list: Option<String>,
    /// The shard that the node which is asked prefers to own; 0 if it prefers to own none
    #[arg(long, value_name = "SHARD")]
    this: Option<u32>,
    /// The node which is asked prefers nothing any more
    #[arg(long, conflicts_with = "this")]
    no_this: bool,
    /// The function that tells the shard of a key; a name, JSON, or a file
    #[arg(long, value_name = "FUNCTION")]
    curr: Option<String>,
    /// The function that told it before
    #[arg(long, value_name = "FUNCTION")]
    prev: Option<String>,
    /// Everything is copied; give up the function that told it before
    #[arg(long, conflicts_with = "prev")]
    no_prev: bool,
    /// Even if not everything is copied; what is missing is lost
    #[arg(long, requires = "forced")]
    force: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn config(args: &Config) -> Shown {
    let shards = args.common.shards();
    let map = match args.curr.is_some() || args.prev.is_some() {
        true => shards.map().await.map_err(|error| Failure::from(&error))?,
        false => Value::Null,
    };
    let function = |given: &Option<String>, before: &Value| {
        given.as_deref().map(|given| given::function(given, before)).transpose()
    };
    let prev = match args.no_prev {
        true => Some(Value::Bool(false)),
        false => function(&args.prev, &map["curr"])?,
    };
    let list = args.list.as_deref().map(given::json).transpose()?;
    let curr = function(&args.curr, &map["curr"])?;
    let value = |value: Option<Value>| value.as_ref().map(WireValue::from);
    let (list, curr, prev) = (value(list), value(curr), value(prev));
    let this = if args.no_this { Some(Value::Bool(false)) } else { args.this.map(Value::from) };
    let config = ShardConfig { list, this: value(this), curr, prev, force: args.force };
    let answer = shards.config(&config).await.map_err(|error| Failure::from(&error))?;
    if args.common.json {
        return Ok(output::json_line(&answer));
    }
    let step = match answer.step.as_str() {
        "none" => String::new(),
        "copy" => "; next is `lockwood shard copy`".to_owned(),
        "clean" => "; next is `lockwood shard cleanup`".to_owned(),
        step => format!("; under way: {}", text::plain(step)),
    };
    let map = match answer.epoch {
        0 => String::new(),
        epoch => format!("in force at epoch {epoch}{step}\n"),
    };
    Ok(map + &preference(&answer))
}

/// What the node that was asked prefers from now on.
fn preference(answer: &ConfigAnswer) -> String {
    match (&answer.node, answer.this) {
        (Some(node), Some(0)) => format!("{} prefers to own no shard\n", text::plain(node)),
        (Some(node), Some(this)) => format!("{} prefers to own shard {this}\n", text::plain(node)),
        (None, Some(_)) => {
            "this server is no node of a cluster: it is shard 1, and has all keys\n".to_owned()
        }
        (Some(node), None) => format!("{} has no preference\n", text::plain(node)),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_map_is_shown_as_a_table() {
        let map = json!({ "epoch": 7, "phase": "resharding",
            "curr": { "function": "jump", "shards": 2, "by": "first" },
            "prev": { "function": "range", "bounds": [{ "below": "m", "shard": 1 }, { "shard": 2 }] },
            "shards": [[{ "mode": "rw", "weight": 1, "address": "a:1" }], [
                { "mode": "ro", "weight": 500, "address": "b:1" }, { "mode": "rw", "weight": 1, "address": "c:1" }]] });
        assert_eq!(
            show(&map),
            "epoch 7, resharding\ncurr  jump of first over 2\nprev  range: below \"m\" → 1, rest → 2\n\
             shard  mode  weight  address\n1      rw    1       a:1\n2      ro    500     b:1\n\
             2      rw    1       c:1\n"
        );
    }
}
