//! The nodes that have entries on or below them, and the searches over those. Knows nothing of queues.

use crate::{
    entry::{Class, Entry, EntryKey, Order, Place},
    entry_set::{EntrySet, Kind},
    fault::{Fault, Faults},
};
use foldhash::quality::FixedState;
use hashbrown::HashTable;
use lockwood_model::{Depth, Path, Resource, Site};
use slab::Slab;
use std::hash::{BuildHasher, Hash, Hasher};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeKey(pub(crate) u32);

/// A node exists exactly as long as an entry stands on it or below it; the root always does.
///
/// Every entry is in `here` of its own node and in `below` of every ancestor of that node:
/// [`Tree::insert`] and [`Tree::remove`] keep it so.
#[derive(Debug)]
struct Node {
    parent: NodeKey,
    level: u8,
    children: u32,
    label: Label,
    here: EntrySet,
    below: EntrySet,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Label {
    Root,
    Segment(Box<str>),
    ChildList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum LabelRef<'a> {
    Root,
    Segment(&'a str),
    ChildList,
}

impl Label {
    fn as_ref(&self) -> LabelRef<'_> {
        match self {
            Label::Root => LabelRef::Root,
            Label::Segment(segment) => LabelRef::Segment(segment),
            Label::ChildList => LabelRef::ChildList,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Slab<Node>,
    /// Finds a child by its parent and label; one table for all nodes, so an empty node costs nothing here.
    index: HashTable<NodeKey>,
    hash: FixedState,
    pub(crate) faults: Faults,
}

pub(crate) const ROOT: NodeKey = NodeKey(0);

/// Which entries a search looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    Granted,
    Waiting,
    All,
}

impl Among {
    fn standings(self) -> &'static [bool] {
        match self {
            Among::Granted => &[true],
            Among::Waiting => &[false],
            Among::All => &[true, false],
        }
    }
}

impl Tree {
    pub(crate) fn new(hash_seed: u64) -> Tree {
        let root = Node {
            parent: ROOT,
            level: 0,
            children: 0,
            label: Label::Root,
            here: EntrySet::default(),
            below: EntrySet::default(),
        };
        let mut nodes = Slab::new();
        nodes.insert(root);
        Tree {
            nodes,
            index: HashTable::new(),
            hash: FixedState::with_seed(hash_seed),
            faults: Faults::default(),
        }
    }

    /// The node a resource stands on, made if need be. Whoever asks must put an entry there or
    /// [`Tree::prune`] it.
    pub(crate) fn ensure(&mut self, resource: &Resource) -> NodeKey {
        let mut node = ROOT;
        for segment in resource.path.segments() {
            node = self.ensure_child(node, LabelRef::Segment(segment));
        }
        match resource.site() {
            Site::Node => node,
            Site::ChildList => self.ensure_child(node, LabelRef::ChildList),
        }
    }

    /// The node at `path`, if anything stands on it or below it.
    pub(crate) fn find(&self, path: &Path) -> Option<NodeKey> {
        path.segments().try_fold(ROOT, |node, segment| self.child(node, LabelRef::Segment(segment)))
    }

    /// Removes the node and its ancestors as far as nothing stands on or below them. The node may be gone
    /// already, as an ancestor of one that was pruned before it.
    pub(crate) fn prune(&mut self, mut node: NodeKey) {
        while node != ROOT && self.nodes.contains(node.0 as usize) {
            let this = self.node(node);
            if this.children > 0 || !this.here.is_empty() {
                return;
            }
            debug_assert!(this.below.is_empty(), "a node without children has nothing below it");
            let hash = self.hash_of(this.parent, this.label.as_ref());
            self.index.find_entry(hash, |key| *key == node).expect("every node is indexed").remove();
            let parent = self.nodes.remove(node.0 as usize).parent;
            self.node_mut(parent).children -= 1;
            node = parent;
        }
    }

    pub(crate) fn insert(&mut self, key: EntryKey, entry: &Entry) {
        let kind = kind_of(entry);
        let node = self.node_mut(entry.node);
        let (level, mut above, mut current) = (node.level, node.parent, entry.node);
        node.here.insert(kind, entry.depth.raw(), entry.order, key);
        while current != ROOT {
            let node = self.node_mut(above);
            node.below.insert(kind, level, entry.order, key);
            (current, above) = (above, node.parent);
        }
    }

    /// The reverse of [`Tree::insert`]; the node stays until it is pruned.
    pub(crate) fn remove(&mut self, entry: &Entry) {
        let kind = kind_of(entry);
        let leaks = self.faults.has(Fault::LeakIntent);
        let node = self.node_mut(entry.node);
        let (level, mut above, mut current) = (node.level, node.parent, entry.node);
        node.here.remove(kind, entry.depth.raw(), entry.order);
        while current != ROOT {
            let node = self.node_mut(above);
            if !(leaks && above == ROOT) {
                node.below.remove(kind, level, entry.order);
            }
            (current, above) = (above, node.parent);
        }
    }

    /// The latest entry before `before` that `place` conflicts with, among those for which `wanted` holds.
    pub(crate) fn latest_rival(
        &self,
        place: Place,
        among: Among,
        before: Order,
        wanted: impl Fn(EntryKey) -> bool,
    ) -> Option<EntryKey> {
        let mut best: Option<(Order, EntryKey)> = None;
        self.each_set(place, |set, spans| {
            for &class in Class::of(place.mode).rivals() {
                for &granted in among.standings() {
                    best = best.max(set.latest(Kind { granted, class }, spans.clone(), before, &wanted));
                }
            }
        });
        best.map(|(_, entry)| entry)
    }

    /// Every entry from `orders` that `place` conflicts with, own ones included, as long as `visit` says it
    /// wants more.
    pub(crate) fn each_rival(
        &self,
        place: Place,
        among: Among,
        orders: std::ops::Range<Order>,
        mut visit: impl FnMut(EntryKey) -> bool,
    ) {
        self.each_set(place, |set, spans| {
            for &class in Class::of(place.mode).rivals() {
                for &granted in among.standings() {
                    set.each(Kind { granted, class }, spans.clone(), orders.clone(), &mut visit);
                }
            }
        });
    }

    /// Every set that may hold an entry overlapping `place`, with the spans that do overlap.
    fn each_set(&self, place: Place, mut visit: impl FnMut(&EntrySet, std::ops::RangeInclusive<u8>)) {
        let deep = self.faults.has(Fault::IgnoreDepth);
        let node = self.node(place.node);
        let level = node.level;
        let reach = match place.depth {
            _ if deep => u8::MAX,
            Depth::SUBTREE => u8::MAX,
            depth => level.saturating_add(depth.raw() - 1),
        };
        if reach > level && !node.below.is_empty() {
            visit(&node.below, level + 1..=reach);
        }
        let mut current = place.node;
        loop {
            let node = self.node(current);
            if !node.here.is_empty() {
                // An entry `distance` levels up reaches down to here if its depth is larger than that.
                let distance = if deep { 0 } else { level - node.level };
                visit(&node.here, distance + 1..=u8::MAX);
            }
            if current == ROOT {
                return;
            }
            current = node.parent;
        }
    }

    /// True when an entry at `upper` with `depth` covers all of `lower` down to `lower_depth`.
    pub(crate) fn covers(
        &self,
        (upper, depth): (NodeKey, Depth),
        (lower, lower_depth): (NodeKey, Depth),
    ) -> bool {
        let (top, bottom) = (self.node(upper).level, self.node(lower).level);
        let Some(distance) = bottom.checked_sub(top) else { return false };
        let deep_enough = depth == Depth::SUBTREE
            || usize::from(distance) + usize::from(lower_depth.raw()) <= usize::from(depth.raw());
        deep_enough && self.ancestor(lower, distance) == upper
    }

    /// The path of a node; that of a child list is the path of the node it belongs to.
    pub(crate) fn path(&self, node: NodeKey) -> Path {
        let mut labels = Vec::new();
        let mut current = node;
        while current != ROOT {
            let node = self.node(current);
            if let Label::Segment(segment) = &node.label {
                labels.push(&**segment);
            }
            current = node.parent;
        }
        Path::from_segments(labels.into_iter().rev())
    }

    pub(crate) fn parent(&self, node: NodeKey) -> Option<NodeKey> {
        (node != ROOT).then(|| self.node(node).parent)
    }

    /// The node itself and every node above it.
    pub(crate) fn above(&self, node: NodeKey) -> impl Iterator<Item = NodeKey> {
        std::iter::successors(Some(node), |node| self.parent(*node))
    }

    /// How many entries stand on the node and on those above it.
    pub(crate) fn len_above(&self, node: NodeKey) -> usize {
        self.above(node).map(|node| self.here(node).len()).sum()
    }

    pub(crate) fn level(&self, node: NodeKey) -> usize {
        usize::from(self.node(node).level)
    }

    pub(crate) fn here(&self, node: NodeKey) -> &EntrySet {
        &self.node(node).here
    }

    pub(crate) fn below(&self, node: NodeKey) -> &EntrySet {
        &self.node(node).below
    }

    /// How many nodes there are, the root included.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// How many different segments name the nodes there are, the empty one left out.
    pub(crate) fn distinct_segments(&self) -> usize {
        let segments = self.nodes.iter().filter_map(|(_, node)| match &node.label {
            Label::Segment(segment) => Some(&**segment).filter(|segment| !segment.is_empty()),
            Label::Root | Label::ChildList => None,
        });
        segments.collect::<std::collections::HashSet<&str>>().len()
    }

    fn ancestor(&self, mut node: NodeKey, distance: u8) -> NodeKey {
        for _ in 0..distance {
            node = self.node(node).parent;
        }
        node
    }

    fn ensure_child(&mut self, parent: NodeKey, label: LabelRef<'_>) -> NodeKey {
        if let Some(child) = self.child(parent, label) {
            return child;
        }
        let level = self.node(parent).level + 1;
        let owned = match label {
            LabelRef::Root => unreachable!("the root is nobody's child"),
            LabelRef::Segment(segment) => Label::Segment(segment.into()),
            LabelRef::ChildList => Label::ChildList,
        };
        let (here, below) = (EntrySet::default(), EntrySet::default());
        let node = Node { parent, level, children: 0, label: owned, here, below };
        let key = NodeKey(u32::try_from(self.nodes.insert(node)).expect("fewer than 2^32 nodes"));
        self.node_mut(parent).children += 1;
        let hash = self.hash_of(parent, label);
        let (nodes, state) = (&self.nodes, &self.hash);
        self.index.insert_unique(hash, key, |key| {
            let node = &nodes[key.0 as usize];
            hash_label(state, node.parent, node.label.as_ref())
        });
        key
    }

    fn child(&self, parent: NodeKey, label: LabelRef<'_>) -> Option<NodeKey> {
        let hash = self.hash_of(parent, label);
        let same = |key: &NodeKey| {
            let node = self.node(*key);
            node.parent == parent && node.label.as_ref() == label
        };
        self.index.find(hash, same).copied()
    }

    fn hash_of(&self, parent: NodeKey, label: LabelRef<'_>) -> u64 {
        hash_label(&self.hash, parent, label)
    }

    fn node(&self, key: NodeKey) -> &Node {
        &self.nodes[key.0 as usize]
    }

    fn node_mut(&mut self, key: NodeKey) -> &mut Node {
        &mut self.nodes[key.0 as usize]
    }
}

fn hash_label(state: &FixedState, parent: NodeKey, label: LabelRef<'_>) -> u64 {
    let mut hasher = state.build_hasher();
    parent.hash(&mut hasher);
    label.hash(&mut hasher);
    hasher.finish()
}

fn kind_of(entry: &Entry) -> Kind {
    Kind { granted: entry.granted(), class: Class::of(entry.mode) }
}
