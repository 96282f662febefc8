//! Contexts are namespaces: `:.shop:user` is the subject `user` of the namespace `shop`. Knows nothing of schemas.

use super::answer::Refusal;
use lockwood_node::{limits::Limits, schemas};

/// Which namespace has no prefix.
#[derive(Clone, Copy)]
pub(super) struct Contexts<'a> {
    pub(super) default: &'a str,
    pub(super) limits: &'a Limits,
}

/// A subject of a namespace; none means the namespace itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) namespace: String,
    pub(super) subject: Option<String>,
}

impl Contexts<'_> {
    /// Reads a subject as clients write it; one without a context is in `namespace`.
    pub(super) fn read(self, namespace: &str, text: &str) -> Result<Place, Refusal> {
        let (namespace, subject) = match split(text) {
            Some((context, subject)) => (self.namespace(context)?, subject),
            None => (namespace.to_owned(), text),
        };
        let subject = match subject {
            "" => None,
            subject => Some(self.check(subject)?.to_owned()),
        };
        Ok(Place { namespace, subject })
    }

    /// The namespace a context is: `.` is the default one, `.shop` is `shop`.
    pub(super) fn namespace(self, context: &str) -> Result<String, Refusal> {
        let name = context.trim_start_matches(':').trim_end_matches(':');
        let name = name.strip_prefix('.').unwrap_or(name);
        let limit = self.limits.namespace_bytes_max;
        match name {
            "" => Ok(self.default.to_owned()),
            name if name.len() as u64 > limit => {
                Err(Refusal::over("namespace_bytes_max", limit, "the name of the context is too long"))
            }
            name => Ok(name.to_owned()),
        }
    }

    fn check(self, subject: &str) -> Result<&str, Refusal> {
        let limit = self.limits.subject_bytes_max;
        if subject.len() as u64 > limit {
            return Err(Refusal::over("subject_bytes_max", limit, "the name of the subject is too long"));
        }
        if subject.chars().any(char::is_control) || subject == schemas::COLLECTION {
            return Err(Refusal::bad_subject(format!("{subject:?} cannot be the name of a subject")));
        }
        Ok(subject)
    }

    /// A subject as clients know it.
    pub(super) fn write(self, namespace: &str, subject: &str) -> String {
        if namespace == self.default { subject.to_owned() } else { format!(":.{namespace}:{subject}") }
    }
}

/// Context and subject, if there is a context.
pub(super) fn split(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix(':').filter(|rest| rest.starts_with('.'))?.split_once(':')
}

impl Place {
    /// The subject, where there must be one.
    pub(super) fn subject(&self) -> Result<&str, Refusal> {
        self.subject.as_deref().ok_or_else(|| Refusal::bad_subject("a subject needs a name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, namespace: &str, subject: Option<&str>, written: &str) {
        let limits = Limits::default();
        let contexts = Contexts { default: "main", limits: &limits };
        let place = contexts.read("main", text).unwrap();
        assert_eq!((place.namespace.as_str(), place.subject.as_deref()), (namespace, subject), "{text}");
        assert_eq!(contexts.write(&place.namespace, place.subject.as_deref().unwrap_or_default()), written);
    }

    #[test]
    fn subjects_say_their_namespace() {
        check("user", "main", Some("user"), "user");
        check(":.shop:user", "shop", Some("user"), ":.shop:user");
        check(":.shop:a:b", "shop", Some("a:b"), ":.shop:a:b");
        check(":.:user", "main", Some("user"), "user");
        check(":.main:user", "main", Some("user"), "user");
        check(":.shop:", "shop", None, ":.shop:");
        check(":x", "main", Some(":x"), ":x");
        check(":.x", "main", Some(":.x"), ":.x");
        check("", "main", None, "");
    }

    #[test]
    fn impossible_names_are_refused() {
        let limits = Limits::default();
        let contexts = Contexts { default: "main", limits: &limits };
        let long = "x".repeat(limits.subject_bytes_max as usize + 1);
        for text in ["a\nb", "_schemas", &long, &format!(":.{}:a", "x".repeat(5000))] {
            assert_eq!(contexts.read("main", text).unwrap_err().code, 42208, "{text}");
        }
    }
}
