//! Addresses that name several indexes or types: with commas, with `*`, or all of them. Knows nothing of what is looked
//! for in them.

use super::{
    answer::Refusal,
    index,
    name::{check_index, check_type},
    place::Looker,
    request::Params,
    route::Scope,
};
use crate::shared::Shared;
use lockwood_model::{Budget, Exhausted};
use lockwood_node::{limits::Limits, shard::PageError};

/// What an address says. Which indexes it means takes looking at all there are, which [`Address::find`] does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// The names of indexes, as errors call them.
    text: String,
    /// Those of which `*` may stand for something.
    indexes: Names,
    types: Names,
    ignore_unavailable: bool,
    allow_no_indices: bool,
}

/// The indexes and the types that an address means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Meant {
    /// All of them exist, and none is there twice.
    pub(super) indexes: Vec<String>,
    pub(super) types: Names,
}

impl Address {
    pub(super) fn read(limits: &Limits, scope: &Scope, params: &Params) -> Result<Address, Refusal> {
        let types = Names::read(limits, scope.collection.as_deref())?;
        types.exact().try_for_each(|name| check_type(limits, name))?;
        let named = Names::read(limits, scope.index.as_deref())?;
        named.exact().try_for_each(|name| check_index(limits, name))?;
        let ignore_unavailable = params.flag("ignore_unavailable")?.unwrap_or(false);
        let expansion = Expansion::read(params)?;
        if expansion == Expansion::Literal && !ignore_unavailable {
            let pattern = named.0.iter().find(|name| name.contains('*') && ***name != *"*");
            pattern.map_or(Ok(()), |pattern| Err(Refusal::no_index(pattern)))?;
        }
        Ok(Address {
            text: named.text(),
            indexes: if expansion == Expansion::Open { named } else { named.without_patterns() },
            types,
            ignore_unavailable,
            allow_no_indices: params.flag("allow_no_indices")?.unwrap_or(true),
        })
    }

    /// The same for what cannot be undone: every index is written out.
    pub(super) fn read_named(limits: &Limits, scope: &Scope, params: &Params) -> Result<Address, Refusal> {
        if Names::read(limits, scope.index.as_deref())?.has_patterns() {
            return Err(Refusal::argument(
                "name the indexes whose documents are to be deleted, with commas between them; _all and * are not taken \
                 here, because they would also mean namespaces of other interfaces",
            ));
        }
        Address::read(limits, scope, params)
    }

    /// What it means. There may be many names and many indexes.
    pub(super) fn find(self, looker: Looker<'_>) -> Result<Meant, Refusal> {
        let indexes = self.find_indexes(looker)?;
        if indexes.is_empty() && !self.allow_no_indices {
            return Err(Refusal::no_index(&self.text));
        }
        Ok(Meant { indexes, types: self.types })
    }

    fn find_indexes(&self, Looker { shared, budget }: Looker<'_>) -> Result<Vec<String>, Refusal> {
        let mut indexes: Vec<String> = Vec::new();
        for name in self.indexes.exact() {
            budget.spend(1).map_err(PageError::from)?;
            match index::check_exists(shared, name) {
                Err(_) if self.ignore_unavailable => {}
                Err(refusal) => return Err(refusal),
                Ok(()) => indexes.push(name.to_owned()),
            }
        }
        if self.indexes.has_patterns() {
            for name in all(shared)? {
                if self.indexes.fit(&name, budget).map_err(PageError::from)? {
                    indexes.push(name);
                }
            }
        }
        indexes.sort_unstable();
        indexes.dedup();
        Ok(indexes)
    }
}

/// What `*` in the name of an index stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expansion {
    /// Open indexes, as all are here.
    Open,
    /// Closed ones, of which there are none.
    Closed,
    /// Nothing: such a name is that of an index, which there cannot be.
    Literal,
}

impl Expansion {
    fn read(params: &Params) -> Result<Expansion, Refusal> {
        let mut expansion = Expansion::Literal;
        for word in params.get("expand_wildcards").unwrap_or("open").split(',') {
            expansion = match word {
                "open" | "all" => Expansion::Open,
                "closed" if expansion == Expansion::Literal => Expansion::Closed,
                "closed" | "hidden" => expansion,
                "none" => Expansion::Literal,
                other => {
                    return Err(Refusal::argument(format!(
                        "No valid expand wildcard value [{other}]; open, closed, hidden, none and all are"
                    )));
                }
            };
        }
        Ok(expansion)
    }
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
    pub(super) fn read(limits: &Limits, text: Option<&str>) -> Result<Names, Refusal> {
        let Some(text) = text.filter(|text| *text != "_all") else { return Ok(Names::all()) };
        let limit = limits.names_per_address_max;
        if text.split(',').count() as u64 > limit {
            let what = "the address names too many indexes or types; name fewer, or use *";
            return Err(Refusal::over("names_per_address_max", limit, what));
        }
        Ok(Names(text.split(',').map(Box::from).collect()))
    }

    pub(super) fn all() -> Names {
        Names(vec!["*".into()])
    }

    /// As errors call them.
    fn text(&self) -> String {
        if *self == Names::all() { "_all".to_owned() } else { self.0.join(",") }
    }

    /// Those that are written out.
    pub(super) fn exact(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|name| !name.contains('*')).map(|name| &**name)
    }

    fn without_patterns(&self) -> Names {
        Names(self.exact().map(Box::from).collect())
    }

    fn has_patterns(&self) -> bool {
        self.0.iter().any(|name| name.contains('*'))
    }

    /// Whether a name is among them.
    pub(super) fn fit(&self, name: &str, budget: &Budget) -> Result<bool, Exhausted> {
        for wanted in &self.0 {
            budget.spend_bytes(wanted.len() + name.len())?;
            if fits(wanted, name) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a name fits a pattern, in which `*` stands for any text.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
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
        let (limits, budget) = (Limits::default(), Budget::unlimited());
        let names = Names::read(&limits, Some("a,b*")).unwrap();
        let fit = |names: &Names, name| names.fit(name, &budget).unwrap();
        assert!(fit(&names, "a") && fit(&names, "bx") && !fit(&names, "c") && names.has_patterns());
        assert_eq!(names.exact().collect::<Vec<_>>(), ["a"]);
        for all in [None, Some("_all"), Some("*"), Some("a,*")] {
            assert!(fit(&Names::read(&limits, all).unwrap(), "x"), "{all:?}");
        }
    }

    #[test]
    fn each_comparison_is_paid_for() {
        let budget = Budget::new(100);
        let names = Names::read(&Limits::default(), Some(&"x*,".repeat(60))).unwrap();
        assert_eq!(names.fit("a", &budget), Ok(false));
        assert_eq!(budget.left(), 39);
        assert_eq!(names.fit("b", &budget), Err(Exhausted::Spent(100)));
    }
}
