//! Lays JSON out for people to read, as `?pretty` asks for. Values stay as they were written. Knows nothing of what they
//! mean.

use super::answer::Answer;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};

/// Larger answers are laid out where they keep nobody waiting.
const IN_PASSING_BYTES_MAX: usize = 64 * 1024;

pub(super) fn is_wanted(query: Option<&str>) -> bool {
    let mut pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    pairs.any(|(name, value)| name == "pretty" && value != "false")
}

/// The same answer, laid out if it is JSON. Deep values take much room like that; above `bytes_max` they stay as they are.
pub(super) async fn lay_out(answer: Answer, bytes_max: u64) -> Answer {
    let kind = answer.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("application/json")) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let Ok(body) = body.collect().await;
    let body = body.to_bytes();
    let lay_out = || indented(std::str::from_utf8(&body).ok()?, bytes_max as usize).map(Bytes::from);
    let is_large = body.len() > IN_PASSING_BYTES_MAX;
    let laid_out = if is_large { tokio::task::block_in_place(lay_out) } else { lay_out() };
    head.headers.remove(CONTENT_LENGTH);
    Answer::from_parts(head, Full::new(laid_out.unwrap_or(body)))
}

/// JSON without white space between its values, now with one member or element a line; none if it becomes too long.
fn indented(json: &str, bytes_max: usize) -> Option<String> {
    let mut out = String::with_capacity(json.len() * 2);
    let mut depth: usize = 0;
    let mut rest = json;
    while let Some(char) = rest.chars().next() {
        if out.len() > bytes_max {
            return None;
        }
        let mut len = char.len_utf8();
        match char {
            '"' => {
                len = string_len(rest);
                out.push_str(&rest[..len]);
            }
            '{' | '[' if rest[1..].starts_with(['}', ']']) => {
                len = 2;
                out.extend([char, ' ', if char == '{' { '}' } else { ']' }]);
            }
            '{' | '[' => {
                depth += 1;
                out.push(char);
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(char);
            }
            ',' => {
                out.push(char);
                new_line(&mut out, depth);
            }
            ':' => out.push_str(" : "),
            _ => out.push(char),
        }
        rest = &rest[len..];
    }
    out.push('\n');
    Some(out)
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("  ", depth));
}

/// How long the string is that the text begins with, quotes included.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_were_written() {
        let json = r#"{"a":[1.0,{"b":"x,{\"}: é\\"}],"c":{},"d":[],"e":12345678901234567890}"#;
        let text = "{\n  \"a\" : [\n    1.0,\n    {\n      \"b\" : \"x,{\\\"}: é\\\\\"\n    }\n  ],\n  \"c\" : { },\n  \"d\" : [ ],\n  \"e\" : 12345678901234567890\n}\n";
        assert_eq!(indented(json, 1000).unwrap(), text);
        assert_eq!(indented(json, 20), None);
        for odd in ["", "1", "\"", "\"a"] {
            assert_eq!(indented(odd, 1000).unwrap(), format!("{odd}\n"));
        }
    }

    #[test]
    fn how_it_is_asked_for() {
        for (query, expected) in [
            (None, false),
            (Some("pretty"), true),
            (Some("a=b&pretty=true"), true),
            (Some("pretty="), true),
            (Some("pretty=false"), false),
            (Some("prettyx"), false),
        ] {
            assert_eq!(is_wanted(query), expected, "{query:?}");
        }
    }
}
