//! Addresses that name several indexes or types: with commas, with `*`, or all of them. Knows nothing of what is looked
//! for in them.

use super::{
    answer::Refusal,
    index,
    name::{check_index, check_type},
    request::Params,
    route::Scope,
};
use crate::{limits::Limits, shared::Shared};

/// The indexes and the types that an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meant {
    /// All of them exist, and none is there twice.
    pub(super) indexes: Vec<String>,
    pub(super) types: Names,
}

impl Meant {
    pub(super) fn read(shared: &Shared, scope: &Scope, params: &Params) -> Result<Meant, Refusal> {
        let limits = &shared.config.limits;
        let types = Names::read(scope.collection.as_deref());
        types.exact().try_for_each(|name| check_type(limits, name))?;
        let named = Names::read(scope.index.as_deref());
        named.exact().try_for_each(|name| check_index(limits, name))?;
        let indexes = find(shared, &named, params.flag("ignore_unavailable")?.unwrap_or(false))?;
        if indexes.is_empty() && params.flag("allow_no_indices")? == Some(false) {
            return Err(Refusal::no_index(scope.index.as_deref().unwrap_or("_all")));
        }
        Ok(Meant { indexes, types })
    }

    /// The same for what cannot be undone: every index is written out.
    pub(super) fn read_named(shared: &Shared, scope: &Scope, params: &Params) -> Result<Meant, Refusal> {
        if Names::read(scope.index.as_deref()).has_patterns() {
            return Err(Refusal::argument(
                "name the indexes whose documents are to be deleted, with commas between them; _all and * are not taken \
                 here, because they would also mean namespaces of other interfaces",
            ));
        }
        Meant::read(shared, scope, params)
    }
}

fn find(shared: &Shared, named: &Names, ignore_unavailable: bool) -> Result<Vec<String>, Refusal> {
    let mut indexes: Vec<String> = Vec::new();
    for name in named.exact() {
        match index::check_exists(shared, name) {
            Err(_) if ignore_unavailable => {}
            Err(refusal) => return Err(refusal),
            Ok(()) => indexes.push(name.to_owned()),
        }
    }
    if named.has_patterns() {
        indexes.extend(all(shared)?.into_iter().filter(|name| named.fit(name)));
    }
    indexes.sort_unstable();
    indexes.dedup();
    Ok(indexes)
}

/// All indexes. A namespace that no address could name is none.
fn all(shared: &Shared) -> Result<Vec<String>, Refusal> {
    let names = shared.shard.read().state().namespaces()?.into_iter().map(|(name, _)| name);
    Ok(names.filter(|name| is_index(&shared.config.limits, name)).collect())
}

fn is_index(limits: &Limits, name: &str) -> bool {
    check_index(limits, name).is_ok()
}

/// Names as a part of an address lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names(Vec<Box<str>>);

impl Names {
    /// All of them, if nothing is said.
    pub(super) fn read(text: Option<&str>) -> Names {
        let text = text.filter(|text| *text != "_all").unwrap_or("*");
        Names(text.split(',').map(Box::from).collect())
    }

    /// Those that are written out.
    pub(super) fn exact(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|name| !name.contains('*')).map(|name| &**name)
    }

    fn has_patterns(&self) -> bool {
        self.0.iter().any(|name| name.contains('*'))
    }

    /// Whether a name is among them.
    pub(super) fn fit(&self, name: &str) -> bool {
        self.0.iter().any(|wanted| fits(wanted, name))
    }
}

/// Whether a name fits a pattern, in which `*` stands for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, pattern)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let (inner, last) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    for part in inner.split('*') {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "fs"),
            ("f*", "f"),
            ("*s", "fs"),
            ("f*s", "fs"),
            ("a*b*c", "abxbc"),
            ("**", "x"),
            ("x", "x"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [
            ("f*", "gf"),
            ("*s", "sf"),
            ("fs*s", "fs"),
            ("a*b*c", "acb"),
            ("a*bc*c", "abc"),
            ("x", "xy"),
            ("", "x"),
        ] {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn lists() {
        let names = Names::read(Some("a,b*"));
        assert!(names.fit("a") && names.fit("bx") && !names.fit("c") && names.has_patterns());
        assert_eq!(names.exact().collect::<Vec<_>>(), ["a"]);
        for all in [None, Some("_all"), Some("*"), Some("a,*")] {
            assert!(Names::read(all).fit("x"), "{all:?}");
        }
    }
}
