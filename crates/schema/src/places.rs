//! What each schema of a document says about names, made once so that looking a name up is cheap. Knows nothing of
//! documents, nor of who asks.

use crate::{
    node::{Node, Source},
    pattern::Pattern,
};
use lockwood_model::{Budget, Exhausted};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Reading so many bytes of a name costs another step.
const NAME_BYTES_PER_STEP: usize = 256;

/// The place of a schema in [`Places`].
pub(crate) type PlaceId = usize;

/// The schemas of a document, by what they say about names.
#[derive(Debug, Default)]
pub(crate) struct Places {
    all: Vec<Place>,
}

/// One schema.
#[derive(Debug, Default)]
struct Place {
    /// It refuses nothing, so it knows every name.
    is_anything: bool,
    /// It refuses everything, so what it describes is not there.
    is_nothing: bool,
    /// It says that lists are allowed, whatever is in them.
    is_list: bool,
    /// Schemas that have a say about the same value.
    also: Vec<PlaceId>,
    members: HashMap<Box<str>, PlaceId>,
    patterns: Vec<(Arc<Pattern>, PlaceId)>,
    /// Those of all other members.
    others: Vec<PlaceId>,
    prefix: Vec<PlaceId>,
    rest: Option<PlaceId>,
}

impl Places {
    pub(crate) fn of(source: &Source) -> Places {
        let mut ids = BTreeMap::new();
        let mut nodes = Vec::new();
        let mut open = vec![source.root()];
        while let Some(node) = open.pop() {
            if ids.contains_key(&node.id()) {
                continue;
            }
            ids.insert(node.id(), nodes.len());
            open.extend(node.subschemas());
            open.extend(node.reference());
            nodes.push(node);
        }
        let mut all: Vec<Place> = nodes.iter().map(|node| Place::of(node, &ids)).collect();
        // Stands for the elements of a list that are not described: no name in them is known.
        all.push(Place { is_list: true, ..Place::default() });
        Places { all }
    }

    /// The schemas that look at the whole document.
    pub(crate) fn root(&self, budget: &Budget) -> Result<Vec<PlaceId>, Exhausted> {
        self.spread(vec![0], budget)
    }

    /// The schemas of a member, from every schema that knows its name.
    pub(crate) fn members(
        &self,
        at: &[PlaceId],
        name: &str,
        budget: &Budget,
    ) -> Result<Vec<PlaceId>, Exhausted> {
        let mut found = Vec::new();
        let mut text = None;
        let name_steps = (name.len() / NAME_BYTES_PER_STEP) as u64;
        for id in at {
            let place = &self.all[*id];
            budget.spend(1 + name_steps)?;
            if place.is_anything {
                found.push(*id);
                continue;
            }
            let len = found.len();
            found.extend(place.members.get(name));
            for (pattern, id) in &place.patterns {
                budget.spend(pattern.steps(name.len()))?;
                let text = text.get_or_insert_with(|| Value::String(name.to_owned()));
                if pattern.matches(text) {
                    found.push(*id);
                }
            }
            if found.len() == len {
                found.extend(&place.others);
            }
        }
        found.retain(|id| !self.all[*id].is_nothing);
        self.spread(found, budget)
    }

    /// The schemas of an element.
    pub(crate) fn elements(
        &self,
        at: &[PlaceId],
        index: usize,
        budget: &Budget,
    ) -> Result<Vec<PlaceId>, Exhausted> {
        budget.spend(at.len() as u64)?;
        let element = |id: &PlaceId| {
            let place = &self.all[*id];
            let described = place.prefix.get(index).copied().or(place.rest);
            let undescribed = || match place.is_anything {
                true => Some(*id),
                false => place.is_list.then(|| self.undescribed()),
            };
            described.or_else(undescribed)
        };
        let found = at.iter().filter_map(element).filter(|id| !self.all[*id].is_nothing).collect();
        self.spread(found, budget)
    }

    /// From this element on all are described in the same way.
    pub(crate) fn prefix_len(&self, at: &[PlaceId]) -> usize {
        at.iter().map(|id| self.all[*id].prefix.len()).max().unwrap_or(0)
    }

    /// The names that schemas know by themselves and not by a pattern.
    pub(crate) fn names<'a>(&'a self, at: &'a [PlaceId]) -> impl Iterator<Item = &'a str> + Clone {
        let members = at.iter().flat_map(|id| &self.all[*id].members);
        members.filter(|(_, id)| !self.all[**id].is_nothing).map(|(name, _)| &**name)
    }

    /// Those schemas and all that have a say about the same value, each once.
    fn spread(&self, mut at: Vec<PlaceId>, budget: &Budget) -> Result<Vec<PlaceId>, Exhausted> {
        if let [one] = at[..]
            && self.all[one].also.is_empty()
        {
            return Ok(at);
        }
        let mut seen = BTreeSet::new();
        at.retain(|id| seen.insert(*id));
        let mut done = 0;
        while let Some(id) = at.get(done) {
            let also = &self.all[*id].also;
            budget.spend(1 + also.len() as u64)?;
            at.extend(also.iter().filter(|id| seen.insert(**id)));
            done += 1;
        }
        Ok(at)
    }

    fn undescribed(&self) -> PlaceId {
        self.all.len() - 1
    }
}

impl Place {
    fn of(node: &Node<'_>, ids: &BTreeMap<usize, PlaceId>) -> Place {
        let id = |node: &Node<'_>| ids[&node.id()];
        let items = node.items();
        let others = ["additionalProperties", "unevaluatedProperties"];
        let pattern = |(pattern, below): &(&str, Node<'_>)| {
            Some((Arc::clone(node.source.patterns.get(*pattern)?), id(below)))
        };
        Place {
            is_anything: node.is_anything(),
            is_nothing: node.is_nothing(),
            is_list: node.get("type").is_some_and(names_arrays),
            also: node.also().iter().map(id).collect(),
            members: node
                .entries("properties")
                .iter()
                .map(|(name, below)| ((*name).into(), id(below)))
                .collect(),
            patterns: node.entries("patternProperties").iter().filter_map(pattern).collect(),
            others: others.iter().filter_map(|keyword| node.child(keyword)).map(|below| id(&below)).collect(),
            prefix: items.prefix.iter().map(id).collect(),
            rest: items.rest.as_ref().map(id),
        }
    }
}

fn names_arrays(types: &Value) -> bool {
    types == "array" || types.as_array().is_some_and(|list| list.iter().any(|name| name == "array"))
}
