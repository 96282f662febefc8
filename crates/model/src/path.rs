//! Paths: how a node of the tree is named, and how that name is written. Knows nothing of nodes.

use smallvec::SmallVec;
use std::{fmt, str::FromStr};

/// No path has more segments than this, whatever limit a server is given; levels fit in a byte.
pub const PATH_SEGMENTS_CAP: usize = 250;

/// The segments from the namespace down to a node; the empty path is the whole namespace.
///
/// Segments are opaque strings: empty ones, slashes and control characters are ordinary content.
///
/// In text a path is written `user/42/name`. `/` alone is the whole namespace, nothing at all is no path, and one
/// leading slash is allowed. Inside a segment `%2F` stands for a slash and `%25` for a percent sign (any byte may be
/// written as `%` and two hex digits), and `%_` stands for an empty segment.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Path {
    /// Where each segment ends in `text`.
    ends: SmallVec<[u32; 6]>,
    text: String,
}

/// The text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The text is empty: most likely a variable that is not set.
    #[error("an empty path names nothing; write / for the whole namespace or document")]
    Nothing,
    /// Two slashes in a row, or one at the end.
    #[error("the path {0:?} has an empty segment; write %_ if an empty segment is meant")]
    EmptySegment(String),
    /// A `%` that is followed by neither `_` nor two hex digits.
    #[error("the path {0:?} has a % that starts no escape; write %25 for a percent sign, %2F for a slash")]
    BadEscape(String),
    /// The escapes do not spell UTF-8.
    #[error("the path {0:?} has escapes that are not UTF-8 text")]
    NotUtf8(String),
    /// More segments than any server takes.
    #[error("a path has at most {PATH_SEGMENTS_CAP} segments")]
    TooLong,
}

impl Path {
    /// The whole namespace.
    pub fn root() -> Path {
        Path::default()
    }

    /// Builds a path from its segments.
    pub fn from_segments<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> Path {
        let mut path = Path::root();
        for segment in segments {
            path.push(segment.as_ref());
        }
        path
    }

    /// Goes one level down.
    pub fn push(&mut self, segment: &str) {
        self.text.push_str(segment);
        self.ends.push(u32::try_from(self.text.len()).expect("message limits keep a path below 4 GiB"));
    }

    /// The segments from the top.
    pub fn segments(&self) -> impl DoubleEndedIterator<Item = &str> + ExactSizeIterator {
        (0..self.ends.len()).map(|index| self.segment(index))
    }

    /// How many segments there are; 0 for the whole namespace.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True for the whole namespace.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// True when `self` is `other` or an ancestor of it.
    pub fn is_prefix_of(&self, other: &Path) -> bool {
        self.len() <= other.len()
            && self.ends[..] == other.ends[..self.len()]
            && other.text.as_bytes().starts_with(self.text.as_bytes())
    }

    fn segment(&self, index: usize) -> &str {
        let start = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.text[start..self.ends[index] as usize]
    }
}

/// Ancestors come before their descendants, siblings in the order of their segments.
impl Ord for Path {
    fn cmp(&self, other: &Path) -> std::cmp::Ordering {
        self.segments().cmp(other.segments())
    }
}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Path) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path({self})")
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("/");
        }
        for (index, segment) in self.segments().enumerate() {
            if index > 0 {
                f.write_str("/")?;
            }
            write_segment(f, segment)?;
        }
        Ok(())
    }
}

fn write_segment(f: &mut fmt::Formatter<'_>, segment: &str) -> fmt::Result {
    if segment.is_empty() {
        return f.write_str("%_");
    }
    for char in segment.chars() {
        match char {
            '/' | '%' => write!(f, "%{:02X}", char as u32)?,
            // A listing must not be able to steer the terminal it is read in, nor turn its text around.
            _ if is_unprintable(char) => {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    write!(f, "%{byte:02X}")?;
                }
            }
            _ => write!(f, "{char}")?,
        }
    }
    Ok(())
}

/// Characters that are not seen but change what is: controls, widths of nothing, line ends, directions of
/// writing.
pub(crate) fn is_unprintable(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{FEFF}')
}

impl FromStr for Path {
    type Err = PathError;

    fn from_str(text: &str) -> Result<Path, PathError> {
        if text.is_empty() {
            return Err(PathError::Nothing);
        }
        let inner = text.strip_prefix('/').unwrap_or(text);
        let mut path = Path::root();
        if inner.is_empty() {
            return Ok(path);
        }
        for written in inner.split('/') {
            if path.len() == PATH_SEGMENTS_CAP {
                return Err(PathError::TooLong);
            }
            path.push(&read_segment(text, written)?);
        }
        Ok(path)
    }
}

fn read_segment(text: &str, written: &str) -> Result<String, PathError> {
    match written {
        "" => return Err(PathError::EmptySegment(text.to_owned())),
        "%_" => return Ok(String::new()),
        _ => {}
    }
    let bytes = unescape(written).ok_or_else(|| PathError::BadEscape(text.to_owned()))?;
    String::from_utf8(bytes).map_err(|_| PathError::NotUtf8(text.to_owned()))
}

/// Puts bytes in the place of `%` and two hex digits; none if a `%` is followed by anything else.
pub(crate) fn unescape(written: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(written.len());
    let mut rest = written.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let pair = rest.get(..2)?;
        bytes.push(hex(pair[0])? << 4 | hex(pair[1])?);
        rest = &rest[2..];
    }
    Some(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    (digit as char).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, segments: &[&str]) {
        let path: Path = text.parse().unwrap();
        assert_eq!(path, Path::from_segments(segments), "{text:?}");
        assert_eq!(path.to_string().parse::<Path>().unwrap(), path, "{text:?} round trip");
    }

    #[test]
    fn text_form() {
        check("/", &[]);
        check("user", &["user"]);
        check("/user/42/name", &["user", "42", "name"]);
        check("a%2Fb/50%25", &["a/b", "50%"]);
        check("%_", &[""]);
        check("a/%_/b", &["a", "", "b"]);
        check("%F0%9F%A6%91/%00", &["🦑", "\0"]);
    }

    #[test]
    fn bad_text_says_what_to_write_instead() {
        for text in ["a//b", "a/", "//"] {
            assert!(matches!(text.parse::<Path>(), Err(PathError::EmptySegment(_))), "{text}");
        }
        for text in ["%", "a%2", "%zz", "%_x", "%+1"] {
            assert!(matches!(text.parse::<Path>(), Err(PathError::BadEscape(_))), "{text}");
        }
        assert!(matches!("%FF".parse::<Path>(), Err(PathError::NotUtf8(_))));
        assert_eq!("".parse::<Path>(), Err(PathError::Nothing));
        assert_eq!("a/".repeat(300).trim_end_matches('/').parse::<Path>(), Err(PathError::TooLong));
    }

    #[test]
    fn control_characters_never_reach_a_terminal() {
        let path = Path::from_segments(["\x1b[2J", "\u{85}\u{202E}"]);
        assert_eq!(path.to_string(), "%1B[2J/%C2%85%E2%80%AE");
        assert_eq!(path.to_string().parse::<Path>().unwrap(), path);
    }

    #[test]
    fn prefixes_respect_segment_borders() {
        let path = |text: &str| text.parse::<Path>().unwrap();
        assert!(path("/").is_prefix_of(&path("a")));
        assert!(path("a").is_prefix_of(&path("a")));
        assert!(path("a").is_prefix_of(&path("a/b")));
        assert!(!path("a").is_prefix_of(&path("ab")));
        assert!(!path("a/b").is_prefix_of(&path("a")));
        assert!(!Path::from_segments(["ab"]).is_prefix_of(&Path::from_segments(["a", "b"])));
    }
}
