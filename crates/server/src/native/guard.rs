//! Keeps web pages away: a browser may be made to send requests here by any page its user visits, but it
//! says for which host and on whose behalf. Knows nothing of routes.

use crate::{config::Config, trouble::Trouble};
use hyper::header::{HOST, HeaderMap, ORIGIN};
use lockwood_wire::Code;
use std::net::IpAddr;

/// Refuses a request that names a host this server is not, or that comes from a page of another site.
pub(crate) fn check(config: &Config, headers: &HeaderMap) -> Result<(), Trouble> {
    if headers.get_all(HOST).iter().count() > 1 || headers.get_all(ORIGIN).iter().count() > 1 {
        return Err(Trouble::new(Code::ForeignHost, "a request has one Host header and at most one Origin"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_own_host(config, host) {
        let message = format!(
            "this server is not called {host:?}; use localhost or its address, or start it with --host {}",
            without_port(host)
        );
        return Err(Trouble::new(Code::ForeignHost, message));
    }
    match headers.get(ORIGIN) {
        None => Ok(()),
        Some(origin) if is_own_origin(host, origin.to_str().unwrap_or_default()) => Ok(()),
        Some(_) => Err(Trouble::new(
            Code::ForeignOrigin,
            "web pages of other sites may not use this server; leave out the Origin header if this is no page",
        )),
    }
}

fn is_own_host(config: &Config, host: &str) -> bool {
    let name = without_port(host);
    if name.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let address: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    address.is_some_and(|address| address.is_loopback() || address == config.listen.ip())
}

fn is_own_origin(host: &str, origin: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') && !host[..colon].ends_with(':') => &host[..colon],
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_case(host: &str, origin: Option<&str>, expected: Option<Code>) {
        let mut config = Config::new("data".into());
        config.hosts = vec!["locks.example".into()];
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        origin.into_iter().for_each(|origin| drop(headers.insert(ORIGIN, origin.parse().unwrap())));
        let code = check(&config, &headers).err().map(|trouble| trouble.code);
        assert_eq!(code, expected, "{host} {origin:?}");
    }

    #[test]
    fn only_own_names_and_own_pages() {
        check_case("localhost:7117", None, None);
        check_case("127.0.0.1:7117", None, None);
        check_case("[::1]:7117", None, None);
        check_case("[::1]", None, None);
        check_case("locks.example", None, None);
        check_case("localhost:7117", Some("http://localhost:7117"), None);
        check_case("evil.example:7117", None, Some(Code::ForeignHost));
        check_case("localhost.evil.example", None, Some(Code::ForeignHost));
        check_case("", None, Some(Code::ForeignHost));
        check_case("localhost:7117", Some("http://evil.example"), Some(Code::ForeignOrigin));
        check_case("localhost:7117", Some("http://localhost:3000"), Some(Code::ForeignOrigin));
        check_case("localhost:7117", Some("null"), Some(Code::ForeignOrigin));
        check_case("localhost:7117", Some("localhost:7117"), Some(Code::ForeignOrigin));
    }
}
