//! The media types of requests and answers, negotiated as the original does. Knows nothing of what is asked.

use super::answer::Refusal;
use hyper::{
    HeaderMap, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};

/// What answers can be, the preferred first.
const PRODUCED: [&str; 3] =
    ["application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json"];

/// What bodies can also be called, by clients that do not say more.
const GENERIC: &str = "application/octet-stream";

/// The type of the answer: what the client likes best, and of what it likes equally the preferred one.
pub(super) fn negotiated(headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let mut ranges = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let text = value.to_str().map_err(|_| not_acceptable())?;
        ranges.extend(text.split(',').filter_map(range));
    }
    if ranges.is_empty() {
        return Ok(HeaderValue::from_static(PRODUCED[0]));
    }
    let mut best: Option<(u16, &'static str)> = None;
    for kind in PRODUCED {
        let liked =
            ranges.iter().filter(|(pattern, _)| matches(pattern, kind)).map(|(_, liked)| *liked).max();
        if let Some(liked) = liked.filter(|liked| *liked > best.map_or(0, |(best, _)| best)) {
            best = Some((liked, kind));
        }
    }
    best.map(|(_, kind)| HeaderValue::from_static(kind)).ok_or_else(not_acceptable)
}

/// Whether a body is of a type that is read here; one without a type is.
pub(super) fn check_body(headers: &HeaderMap) -> Result<(), Refusal> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let kind = text.split(';').next().unwrap_or_default().trim();
    if PRODUCED.iter().chain([&GENERIC]).any(|known| known.eq_ignore_ascii_case(kind)) {
        return Ok(());
    }
    let message = format!("HTTP 415 Unsupported Media Type: {kind:?} is not read here; send {}", list());
    Err(Refusal::plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message))
}

fn not_acceptable() -> Refusal {
    let message = format!("HTTP 406 Not Acceptable: answers are {}; accept one of these, or */*", list());
    Refusal::plain(StatusCode::NOT_ACCEPTABLE, &message)
}

fn list() -> String {
    PRODUCED.join(", ")
}

/// A range of types and how much it is liked, in thousandths.
fn range(text: &str) -> Option<(String, u16)> {
    let mut parts = text.split(';').map(str::trim);
    let pattern = parts.next().filter(|pattern| !pattern.is_empty())?.to_ascii_lowercase();
    let quality = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let liked = quality.map_or(1.0, |text| text.parse::<f32>().unwrap_or(1.0)).clamp(0.0, 1.0);
    Some((pattern, (liked * 1000.0) as u16))
}

fn matches(pattern: &str, kind: &str) -> bool {
    // One client sends a bare star.
    pattern == kind || matches!(pattern, "*/*" | "application/*" | "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(values: &[&'static str]) -> Result<String, u32> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(ACCEPT, HeaderValue::from_static(value));
        }
        let kind = negotiated(&headers).map_err(|refusal| refusal.code)?;
        Ok(kind.to_str().unwrap_or_default().to_owned())
    }

    #[test]
    fn the_answer_is_what_the_client_likes_best() {
        let [first, default, json] = PRODUCED.map(|kind| Ok(kind.to_owned()));
        for values in
            [&[][..], &["*/*"], &["text/html, */*;q=0.1"], &["application/*"], &[""], &["text/html", "*"]]
        {
            assert_eq!(accept(values), first, "{values:?}");
        }
        assert_eq!(accept(&["application/vnd.schemaregistry.v1+json, application/json"]), first);
        assert_eq!(accept(&["application/json", "application/vnd.schemaregistry+json"]), default);
        assert_eq!(accept(&["Application/JSON; charset=utf-8"]), json);
        assert_eq!(accept(&["application/vnd.schemaregistry.v1+json;q=0.3, application/json; q=0.9"]), json);
        assert_eq!(accept(&["application/json;q=0"]), Err(406));
        assert_eq!(accept(&["text/html, application/xml"]), Err(406));
    }

    #[test]
    fn bodies_are_json_or_say_nothing() {
        let check = |kind: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            check_body(&headers).map_err(|refusal| refusal.code)
        };
        assert_eq!(check_body(&HeaderMap::new()), Ok(()));
        for kind in PRODUCED.iter().chain([&GENERIC, &"APPLICATION/json;charset=utf-8"]) {
            assert_eq!(check(kind), Ok(()), "{kind}");
        }
        for kind in
            ["text/plain", "application/x-www-form-urlencoded", "", "application/vnd.schemaregistry.v2+json"]
        {
            assert_eq!(check(kind), Err(415), "{kind}");
        }
    }
}
