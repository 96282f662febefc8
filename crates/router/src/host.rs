//! Hosts: where a shard is served, for what, and with which weight. Knows nothing of connections.

use crate::{MapError, MapProblem};
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

/// The largest weight of a host.
pub const WEIGHT_MAX: u16 = 1000;

/// What a host may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HostMode {
    /// Reads.
    Ro,
    /// Reads and writes; the one such host of a shard is its owner.
    Rw,
}

/// A node that serves a shard.
///
/// Written as an object, or as the list `["rw", 100, "127.0.0.1", 7117]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct Host {
    /// What it may be asked for.
    pub mode: HostMode,
    /// Its share of the reads, 0 to [`WEIGHT_MAX`].
    pub weight: u16,
    /// `host:port`, unique within a map.
    pub address: String,
}

/// The object form, with room for a weight that is too large, so that the error can name it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    mode: HostMode,
    weight: u64,
    address: String,
}

impl Host {
    /// The host that is written as `value`; `entry` is its name in errors.
    pub(crate) fn from_json(entry: &str, value: &Value) -> Result<Host, MapError> {
        let written = match value {
            Value::Array(parts) => from_list(parts),
            _ => serde_json::from_value::<Written>(value.clone()).map_err(|error| error.to_string()),
        };
        let written = written.map_err(|problem| MapError::json(entry, problem))?;
        let weight = u16::try_from(written.weight).ok().filter(|weight| *weight <= WEIGHT_MAX);
        let above = || MapError::new(format!("{entry}.weight"), MapProblem::WeightAbove(written.weight));
        Ok(Host { mode: written.mode, weight: weight.ok_or_else(above)?, address: written.address })
    }

    pub(crate) fn validate(&self, entry: &str) -> Result<(), MapError> {
        if self.weight > WEIGHT_MAX {
            let problem = MapProblem::WeightAbove(u64::from(self.weight));
            return Err(MapError::new(format!("{entry}.weight"), problem));
        }
        if !is_address(&self.address) {
            let problem = MapProblem::Address(self.address.clone());
            return Err(MapError::new(format!("{entry}.address"), problem));
        }
        Ok(())
    }
}

/// The shards that are written as `value`: a list of lists of hosts.
pub(crate) fn shards_from_json(entry: &str, value: &Value) -> Result<Vec<Vec<Host>>, MapError> {
    let list = |entry: &str, value: &Value| match value {
        Value::Array(items) => Ok(items.clone()),
        _ => Err(MapError::json(entry, "not a list")),
    };
    let hosts = |(index, value): (usize, &Value)| {
        let entry = format!("{entry}[{index}]");
        let read = |(index, value)| Host::from_json(&format!("{entry}[{index}]"), value);
        list(&entry, value)?.iter().enumerate().map(read).collect()
    };
    list(entry, value)?.iter().enumerate().map(hosts).collect()
}

fn from_list(parts: &[Value]) -> Result<Written, String> {
    let [mode, weight, host, port] = parts else {
        return Err(format!("{} parts; mode, weight, host and port are needed", parts.len()));
    };
    let read = |name: &str, error: serde_json::Error| format!("{name}: {error}");
    let mode = HostMode::deserialize(mode).map_err(|error| read("mode", error))?;
    let weight = u64::deserialize(weight).map_err(|error| read("weight", error))?;
    let host = String::deserialize(host).map_err(|error| read("host", error))?;
    let port = u16::deserialize(port).map_err(|error| read("port", error))?;
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    let address = if bare_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Ok(Written { mode, weight, address })
}

fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bracketed = host.starts_with('[') && host.ends_with(']') && host.len() > 2;
    let plain = !host.is_empty() && !host.contains([':', '/', '[', ']']);
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    (bracketed || plain)
        && !text.contains(char::is_whitespace)
        && digits
        && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl<'de> Deserialize<'de> for Host {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Host, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Host::from_json("host", &value).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms() {
        let host = Host { mode: HostMode::Rw, weight: 100, address: "127.0.0.1:7117".to_owned() };
        for value in [json!(["rw", 100, "127.0.0.1", 7117]), json!(host)] {
            assert_eq!(Host::from_json("host", &value).unwrap(), host, "{value}");
        }
        let six = Host::from_json("host", &json!(["ro", 0, "::1", 80])).unwrap();
        assert_eq!(six.address, "[::1]:80");
        six.validate("host").unwrap();
    }

    #[test]
    fn errors_name_the_entry() {
        let check = |value: Value, expected: &str| {
            let found = shards_from_json("list", &json!([[["rw", 1, "a", 1], value]])).unwrap_err();
            assert!(found.to_string().starts_with(expected), "{found}");
        };
        check(json!(["ro", 1200, "a", 2]), "list[0][1].weight: 1200 is more than 1000");
        check(json!({"mode": "ro", "weight": 70000, "address": "a:2"}), "list[0][1].weight: 70000 is more");
        check(json!(["r", 1, "a", 2]), "list[0][1]: mode: unknown variant `r`");
        check(json!(["ro", 1, "a"]), "list[0][1]: 3 parts");
        check(json!(["ro", 1, "a", 70000]), "list[0][1]: port:");
        check(json!({"mode": "ro", "weight": 1, "adress": "a:2"}), "list[0][1]: unknown field `adress`");
        check(json!(7), "list[0][1]: invalid type");
        assert_eq!(shards_from_json("list", &json!([7])).unwrap_err().to_string(), "list[0]: not a list");
    }

    #[test]
    fn addresses() {
        for good in ["a:1", "127.0.0.1:7117", "[::1]:7117", "node-1.example.org:80"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["", "a", "a:", ":1", "a:0", "a:65536", "a:+1", "::1:7", "a b:1", "http://a:1", "[]:1"] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
