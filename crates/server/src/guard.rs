//! Decides by `Host` and `Origin` whether a request may be answered at all: any web page can make a browser send
//! requests here, but the browser says for which host and on whose behalf. Every listener passes its requests through
//! [`admit`] before anything else. Knows nothing of routes or of how a refusal is written.

use crate::config::Config;
use hyper::{
    Method, Request, Response, StatusCode,
    header::{
        ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
        ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
        ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderMap, HeaderValue, ORIGIN, VARY,
    },
};
use lockwood_node::trouble::Trouble;
use lockwood_wire::Code;
use std::net::{IpAddr, SocketAddr};

/// How many seconds a browser may remember the answer to a preflight.
const PREFLIGHT_SECONDS: &str = "600";
/// What `--allow-origin` says to let pages of all sites in.
const ANY_ORIGIN: &str = "*";

/// Refuses a request that names a host this server is not, or that a page of another site sends. `local` is the address
/// that the request came to. Gives the page to be answered if it is of another site that is allowed.
pub(crate) fn admit<B>(
    config: &Config,
    local: SocketAddr,
    request: &Request<B>,
) -> Result<Option<AllowedPage>, Trouble> {
    let headers = request.headers();
    if headers.get_all(HOST).iter().count() > 1 || headers.get_all(ORIGIN).iter().count() > 1 {
        return Err(Trouble::new(Code::ForeignHost, "a request has one Host header and at most one Origin"));
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    // A target with an authority goes before the header.
    let target = request.uri().authority().map(hyper::http::uri::Authority::as_str);
    for host in target.into_iter().chain([host]) {
        check_host(config, local.ip(), host)?;
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(None) };
    let text = origin.to_str().unwrap_or_default();
    match () {
        () if is_own_origin(host, text) => Ok(None),
        () if is_allowed_origin(config, text) => Ok(Some(AllowedPage(origin.clone()))),
        () => Err(foreign_origin(text)),
    }
}

fn check_host(config: &Config, local: IpAddr, host: &str) -> Result<(), Trouble> {
    if is_own_host(config, local, host) {
        return Ok(());
    }
    if host.is_empty() {
        return Err(Trouble::new(
            Code::ForeignHost,
            "the request has no Host header; name the server in one",
        ));
    }
    let message = format!(
        "this server is not called {host:?}; use localhost or its address, or start it with --allow-host {}",
        without_port(host)
    );
    Err(Trouble::new(Code::ForeignHost, message))
}

fn foreign_origin(origin: &str) -> Trouble {
    let message = format!(
        "the request comes from a web page of {origin:?}, which may not use this server; start it with \
         --allow-origin {origin} if it may, or leave out the Origin header if the client is no page"
    );
    Trouble::new(Code::ForeignOrigin, message)
}

fn is_own_host(config: &Config, local: IpAddr, host: &str) -> bool {
    let name = without_port(host);
    if name.eq_ignore_ascii_case("localhost") || config.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    {
        return true;
    }
    let address: Option<IpAddr> = name.trim_start_matches('[').trim_end_matches(']').parse().ok();
    address.is_some_and(|address| address.is_loopback() || address == local.to_canonical())
}

fn is_own_origin(host: &str, origin: &str) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|rest| rest.eq_ignore_ascii_case(host))
}

fn is_allowed_origin(config: &Config, origin: &str) -> bool {
    let is_it = |allowed: &String| allowed == ANY_ORIGIN || allowed.eq_ignore_ascii_case(origin);
    config.origins.iter().any(is_it)
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if !host[colon..].contains(']') && !host[..colon].ends_with(':') => &host[..colon],
        _ => host,
    }
}

/// The origin of a page of another site that `--allow-origin` lets in. Its browser hands answers on to the page only if
/// they say that it may.
#[derive(Debug)]
pub(crate) struct AllowedPage(HeaderValue);

impl AllowedPage {
    /// The answer to a preflight, in which a browser asks whether the page may send what it is about to send; nothing
    /// if the request is none.
    pub(crate) fn preflight<Q, B: Default>(&self, request: &Request<Q>) -> Option<Response<B>> {
        let asked = request.headers();
        let method = asked.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        if request.method() != Method::OPTIONS {
            return None;
        }
        let mut answer = Response::new(B::default());
        *answer.status_mut() = StatusCode::NO_CONTENT;
        let headers = answer.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_SECONDS));
        self.mark(headers);
        Some(answer)
    }

    /// Lets the page see an answer.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, self.0.clone());
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("*"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(host: &str, origin: Option<&str>) -> Request<()> {
        let mut request = Request::new(());
        request.headers_mut().insert(HOST, host.parse().unwrap());
        origin
            .into_iter()
            .for_each(|origin| drop(request.headers_mut().insert(ORIGIN, origin.parse().unwrap())));
        request
    }

    fn config() -> Config {
        let mut config = Config::new("data".into());
        config.hosts = vec!["locks.example".into()];
        config.origins = vec!["https://app.example".into()];
        config
    }

    #[track_caller]
    fn check(host: &str, origin: Option<&str>, expected: Option<Code>) {
        let local = SocketAddr::from(([192, 0, 2, 7], 7117));
        let code = admit(&config(), local, &asked(host, origin)).err().map(|trouble| trouble.code);
        assert_eq!(code, expected, "{host} {origin:?}");
    }

    #[test]
    fn only_own_names_and_allowed_pages_are_admitted() {
        check("localhost:7117", None, None);
        check("127.0.0.1:7117", None, None);
        check("[::1]:7117", None, None);
        check("[::1]", None, None);
        check("192.0.2.7:7117", None, None);
        check("locks.example", None, None);
        check("localhost:7117", Some("http://localhost:7117"), None);
        check("localhost:7117", Some("https://app.example"), None);
        check("192.0.2.8:7117", None, Some(Code::ForeignHost));
        check("evil.example:7117", None, Some(Code::ForeignHost));
        check("evil.example:7117", Some("https://app.example"), Some(Code::ForeignHost));
        check("localhost.evil.example", None, Some(Code::ForeignHost));
        check("", None, Some(Code::ForeignHost));
        check("localhost:7117", Some("http://evil.example"), Some(Code::ForeignOrigin));
        check("localhost:7117", Some("http://app.example"), Some(Code::ForeignOrigin));
        check("localhost:7117", Some("https://app.example.evil"), Some(Code::ForeignOrigin));
        check("localhost:7117", Some("http://localhost:3000"), Some(Code::ForeignOrigin));
        check("localhost:7117", Some("null"), Some(Code::ForeignOrigin));
        check("localhost:7117", Some("localhost:7117"), Some(Code::ForeignOrigin));
    }

    #[test]
    fn the_host_in_a_target_is_checked_like_the_header() {
        let mut request = asked("localhost:7117", None);
        *request.uri_mut() = "http://evil.example/v1/namespaces".parse().unwrap();
        let refused = admit(&config(), SocketAddr::from(([127, 0, 0, 1], 7117)), &request);
        assert_eq!(refused.unwrap_err().code, Code::ForeignHost);
    }

    #[test]
    fn only_answers_to_allowed_foreign_pages_carry_cors_headers() {
        let local = SocketAddr::from(([127, 0, 0, 1], 7117));
        let admit = |origin| admit(&config(), local, &asked("localhost:7117", origin)).unwrap();
        assert!(admit(None).is_none());
        assert!(admit(Some("http://localhost:7117")).is_none());
        assert_eq!(admit(Some("https://app.example")).unwrap().0, "https://app.example");
    }
}
