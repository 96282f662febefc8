//! Where PostgreSQL is and how to connect to it, from a URL or a key=value string. Knows nothing of connections.
//!
//! All settings of tokio-postgres are understood. `sslmode` and `sslrootcert` are read here, with libpq's meaning:
//!
//! | `sslmode` | encrypted | certificate |
//! | --- | --- | --- |
//! | `disable` | never | |
//! | `prefer` (default) | if the server offers it | not verified, unless there is an `sslrootcert` |
//! | `require` | always | not verified, unless there is an `sslrootcert` |
//! | `verify-ca` | always | signed by a known authority |
//! | `verify-full` | always | the same, and for the name of the host |

use std::{path::PathBuf, time::Duration};
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long sent data may stay unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
/// Where Debian's server listens if no host is named.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// Where PostgreSQL is and how to connect to it.
#[derive(Debug, Clone)]
pub struct Address {
    pub(super) config: Config,
    pub(super) verify: Verify,
    pub(super) root_file: Option<PathBuf>,
}

/// What is verified of the server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    Nothing,
    Authority,
    AuthorityAndName,
}

/// An address that cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[error("invalid PostgreSQL address: {0}")]
pub struct AddressError(String);

impl std::str::FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let (rest, ssl) = match SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            true => split_url(text)?,
            false => split_pairs(text)?,
        };
        let config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
            AddressError(std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string))
        })?;
        Address::new(config, &ssl)
    }
}

impl Address {
    fn new(mut config: Config, ssl: &Ssl) -> Result<Address, AddressError> {
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            config.host_path(SOCKET_DIRECTORY);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("lockwood");
        }
        // Of several hosts, the one that takes writes. A standby answers nothing here.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        let root_file = ssl.root.as_deref().map(PathBuf::from);
        let unverified = if root_file.is_some() { Verify::Authority } else { Verify::Nothing };
        let (mode, verify) = match ssl.mode.as_deref().unwrap_or("prefer") {
            "disable" => (SslMode::Disable, Verify::Nothing),
            "prefer" => (SslMode::Prefer, unverified),
            "require" => (SslMode::Require, unverified),
            "verify-ca" => (SslMode::Require, Verify::Authority),
            "verify-full" => (SslMode::Require, Verify::AuthorityAndName),
            other => {
                return Err(AddressError(format!(
                    "sslmode {other:?}; it is disable, prefer, require, verify-ca or verify-full"
                )));
            }
        };
        // Sockets of the same machine are never encrypted, as with libpq.
        let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)))
            && config.get_hostaddrs().is_empty();
        config.ssl_mode(if is_local { SslMode::Disable } else { mode });
        Ok(Address { config, verify, root_file })
    }
}

#[derive(Debug, Default)]
struct Ssl {
    mode: Option<String>,
    root: Option<String>,
}

impl Ssl {
    /// False if it is not a setting of TLS.
    fn take(&mut self, key: &str, value: &str) -> bool {
        match key {
            "sslmode" => self.mode = Some(value.to_owned()),
            "sslrootcert" => self.root = Some(value.to_owned()),
            _ => return false,
        }
        true
    }
}

fn split_url(text: &str) -> Result<(String, Ssl), AddressError> {
    let Some((before, query)) = text.split_once('?') else { return Ok((text.to_owned(), Ssl::default())) };
    let mut ssl = Ssl::default();
    let mut others = Vec::new();
    for setting in query.split('&').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
        let value = percent_decode(value)
            .ok_or_else(|| AddressError(format!("the value of {key:?} is not percent-encoded UTF-8")))?;
        if !ssl.take(key, &value) {
            others.push(setting);
        }
    }
    let rest = if others.is_empty() { before.to_owned() } else { format!("{before}?{}", others.join("&")) };
    Ok((rest, ssl))
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (hex, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

/// Takes `key=value` and `key = 'it\'s'` apart, and puts all but ours together again.
fn split_pairs(text: &str) -> Result<(String, Ssl), AddressError> {
    let mut ssl = Ssl::default();
    let mut rest = String::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok((rest, ssl));
        }
        let mut key = String::new();
        while let Some(c) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            key.push(c);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.next() != Some('=') {
            return Err(AddressError(format!("{key:?} has no value; write key=value or a postgres:// URL")));
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let is_quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.next() {
                None if is_quoted => return Err(AddressError(format!("the value of {key:?} has no end"))),
                None => break,
                Some('\'') if is_quoted => break,
                Some(c) if !is_quoted && c.is_whitespace() => break,
                Some('\\') => value.extend(chars.next()),
                Some(c) => value.push(c),
            }
        }
        if !ssl.take(&key, &value) {
            rest += &format!("{key}='{}' ", value.replace('\\', "\\\\").replace('\'', "\\'"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, host: &str, mode: SslMode, verify: Verify, root: Option<&str>) {
        let address: Address = text.parse().unwrap();
        let hosts = address.config.get_hosts();
        assert_eq!(format!("{hosts:?}"), host, "{text}");
        assert_eq!((address.config.get_ssl_mode(), address.verify), (mode, verify), "{text}");
        assert_eq!(address.root_file, root.map(PathBuf::from), "{text}");
    }

    #[test]
    fn urls_and_pairs_are_read_with_their_ssl_settings() {
        let (socket, host) = (r#"[Unix("/run/pg")]"#, r#"[Tcp("db.example")]"#);
        check("host=/run/pg user=a sslmode=require", socket, SslMode::Disable, Verify::Nothing, None);
        check("postgres://a:b@db.example/c", host, SslMode::Prefer, Verify::Nothing, None);
        check("postgres://db.example/c?sslmode=disable", host, SslMode::Disable, Verify::Nothing, None);
        check("host=db.example sslmode = 'require'", host, SslMode::Require, Verify::Nothing, None);
        let file = Some("/etc/it's here.pem");
        let url = "postgresql://db.example/c?sslrootcert=/etc/it%27s%20here.pem&connect_timeout=9&sslmode=verify-full";
        check(url, host, SslMode::Require, Verify::AuthorityAndName, file);
        let pairs = r"sslrootcert='/etc/it\'s here.pem' host=db.example sslmode=require";
        check(pairs, host, SslMode::Require, Verify::Authority, file);
        check("", r#"[Unix("/var/run/postgresql")]"#, SslMode::Disable, Verify::Nothing, None);
    }

    #[test]
    fn passwords_with_quotes_and_backslashes_survive() {
        let address: Address = r"host=h password='a\'b\\c d'".parse().unwrap();
        assert_eq!(address.config.get_password(), Some(&br"a'b\c d"[..]));
        let address: Address = "postgres://u:p%40ss@h,g:5433/d".parse().unwrap();
        assert_eq!(address.config.get_password(), Some(&b"p@ss"[..]));
        assert_eq!(address.config.get_hosts().len(), 2);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, said) in [
            ("host", "\"host\" has no value"),
            ("host='a", "\"host\" has no end"),
            ("host=a sslmode=maybe", "sslmode \"maybe\""),
            ("host=a color=red", "color"),
            ("postgres://a/b?sslrootcert=%zz", "sslrootcert"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
