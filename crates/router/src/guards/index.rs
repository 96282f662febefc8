//! Finds resources that conflict with a given one by their paths. Knows nothing of what has the resources.

use lockwood_model::{Depth, Path, Resource};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
};

/// Resources of many holders, by path.
///
/// Paths are ordered so that a subtree is one range. A search costs O(segments · log n) for the nodes above a resource,
/// plus the entries below it if it reaches below its node. An operation on a document meets few entries below it; one on
/// a whole collection visits the entries of that collection until it finds a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Index<K> {
    entries: BTreeMap<Path, BTreeSet<(K, Resource)>>,
}

impl<K: Copy + Ord> Index<K> {
    pub(super) fn new() -> Index<K> {
        Index { entries: BTreeMap::new() }
    }

    pub(super) fn insert(&mut self, key: K, resources: &[Resource]) {
        for resource in resources {
            self.entries.entry(resource.path.clone()).or_default().insert((key, resource.clone()));
        }
    }

    pub(super) fn remove(&mut self, key: K, resources: &[Resource]) {
        for resource in resources {
            let Some(here) = self.entries.get_mut(&resource.path) else { continue };
            here.remove(&(key, resource.clone()));
            if here.is_empty() {
                self.entries.remove(&resource.path);
            }
        }
    }

    /// The holders of resources that conflict with one of `resources`; some several times.
    pub(super) fn conflicts<'a>(&'a self, resources: &'a [Resource]) -> impl Iterator<Item = K> + 'a {
        let searched = if self.entries.is_empty() { &[] } else { resources };
        searched.iter().flat_map(|resource| self.conflicts_with(resource))
    }

    fn conflicts_with<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = K> + 'a {
        let sets = self.above(&resource.path).chain(self.below(resource));
        sets.flatten().filter(|(_, other)| other.conflicts(resource)).map(|(key, _)| *key)
    }

    /// What is at the node and at its ancestors.
    fn above<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = &'a BTreeSet<(K, Resource)>> {
        let prefix = |len| Path::from_segments(path.segments().take(len));
        (0..=path.len()).filter_map(move |len| self.entries.get(&prefix(len)))
    }

    /// What is below the node, as far as the resource reaches below it at all.
    fn below<'a>(&'a self, resource: &'a Resource) -> impl Iterator<Item = &'a BTreeSet<(K, Resource)>> {
        let deeper = self.entries.range((Bound::Excluded(&resource.path), Bound::Unbounded));
        let reaches = resource.depth != Depth::NODE;
        deeper
            .take_while(move |(path, _)| reaches && resource.path.is_prefix_of(path))
            .map(|(_, entries)| entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwood_model::Mode;

    const PATHS: [&str; 8] = ["/", "a", "a/b", "a/b/c", "a/c", "ab", "b", "b/a"];

    fn all() -> Vec<Resource> {
        let depths = [Depth::NODE, Depth::levels(2).unwrap(), Depth::SUBTREE];
        let at = |path: &str| -> Path { path.parse().unwrap() };
        PATHS
            .iter()
            .flat_map(|path| Mode::ALL.map(|mode| (path, mode)))
            .flat_map(|(path, mode)| depths.map(|depth| Resource::new(at(path), mode, depth)))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    #[test]
    fn search_finds_what_the_conflict_rule_finds() {
        let all = all();
        let mut index = Index::new();
        for (key, resource) in all.iter().enumerate() {
            index.insert(key, std::slice::from_ref(resource));
        }
        for resource in &all {
            let found: BTreeSet<usize> = index.conflicts(std::slice::from_ref(resource)).collect();
            let expected: BTreeSet<usize> =
                (0..all.len()).filter(|key| all[*key].conflicts(resource)).collect();
            assert_eq!(found, expected, "{resource:?}");
        }
        for (key, resource) in all.iter().enumerate() {
            index.remove(key, std::slice::from_ref(resource));
        }
        assert_eq!(index, Index::new());
    }
}
