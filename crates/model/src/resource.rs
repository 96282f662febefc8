//! What a lock covers: a path, a mode and a depth, and when two of them are in each other's way.

use crate::{Mode, PATH_SEGMENTS_CAP, Path};

/// How many levels below and including its node a resource covers.
///
/// One is the node alone; [`Depth::SUBTREE`] is everything below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Depth(u8);

impl Depth {
    /// The node and everything below it.
    pub const SUBTREE: Depth = Depth(u8::MAX);
    /// The node alone.
    pub const NODE: Depth = Depth(1);

    /// `levels` levels, or nothing for 0. More levels than any path has segments are the whole subtree.
    pub fn levels(levels: u64) -> Option<Depth> {
        match levels {
            0 => None,
            1..=250 => Some(Depth(levels as u8)),
            _ => Some(Depth::SUBTREE),
        }
    }

    /// The number of levels, or nothing for the whole subtree.
    pub fn limit(self) -> Option<u8> {
        (self != Depth::SUBTREE).then_some(self.0)
    }

    /// True when a node `distance` levels further down is covered.
    pub fn reaches(self, distance: usize) -> bool {
        distance < usize::from(self.0)
    }

    /// The bare number; larger reaches further.
    pub fn raw(self) -> u8 {
        self.0
    }
}

const _: () = assert!(PATH_SEGMENTS_CAP < Depth::SUBTREE.0 as usize - 1, "a child list fits below any path");

/// A path, what is wanted there, and how far down.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource {
    /// The topmost node covered.
    pub path: Path,
    /// What the holder may do.
    pub mode: Mode,
    /// How far down; for the modes on a child list always [`Depth::NODE`].
    pub depth: Depth,
}

/// Where a resource stands relative to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Site {
    /// The node itself.
    Node,
    /// The list of the node's children, one level below the node and beside the children themselves.
    ChildList,
}

impl Resource {
    /// A resource; the depth is ignored for the modes that concern a child list.
    pub fn new(path: Path, mode: Mode, depth: Depth) -> Resource {
        Resource { path, mode, depth: if mode.on_child_list() { Depth::NODE } else { depth } }
    }

    /// Whether this is about the node or about its child list.
    pub fn site(&self) -> Site {
        if self.mode.on_child_list() { Site::ChildList } else { Site::Node }
    }

    /// What it is about, whatever the mode.
    pub fn place(&self) -> (&Path, Depth, Site) {
        (&self.path, self.depth, self.site())
    }

    /// True when two different owners cannot hold both at once.
    pub fn conflicts(&self, other: &Resource) -> bool {
        !self.mode.compatible(other.mode) && self.overlaps(other)
    }

    /// True when some node, or child list, is covered by both.
    pub fn overlaps(&self, other: &Resource) -> bool {
        self.distance_to(other).is_some_and(|distance| self.depth.reaches(distance))
            || other.distance_to(self).is_some_and(|distance| other.depth.reaches(distance))
    }

    /// True when whoever holds `self` already has all that `other` asks for.
    pub fn includes(&self, other: &Resource) -> bool {
        self.mode.includes(other.mode)
            && self.distance_to(other).is_some_and(|distance| {
                self.depth == Depth::SUBTREE
                    || distance + usize::from(other.depth.0) <= usize::from(self.depth.0)
            })
    }

    /// How many levels `other` lies below `self`, if it does.
    fn distance_to(&self, other: &Resource) -> Option<usize> {
        if !self.path.is_prefix_of(&other.path) {
            return None;
        }
        let below = other.path.len() - self.path.len();
        match (self.site(), other.site()) {
            (Site::Node, Site::Node) => Some(below),
            (Site::Node, Site::ChildList) => Some(below + 1),
            (Site::ChildList, Site::ChildList) => (below == 0).then_some(0),
            (Site::ChildList, Site::Node) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(text: &str) -> Resource {
        let (mode, rest) = text.split_once(' ').unwrap();
        let (path, depth) = rest.split_once(':').unwrap_or((rest, ""));
        let depth = depth.parse().map_or(Depth::SUBTREE, |levels| Depth::levels(levels).unwrap());
        Resource::new(path.parse().unwrap(), mode.parse().unwrap(), depth)
    }

    #[track_caller]
    fn check(one: &str, other: &str, conflicts: bool) {
        assert_eq!(resource(one).conflicts(&resource(other)), conflicts, "{one} / {other}");
        assert_eq!(resource(other).conflicts(&resource(one)), conflicts, "{other} / {one}");
    }

    #[test]
    fn depth_decides_what_is_below() {
        check("write a", "read a/b/c", true);
        check("write a:1", "write a/b", false);
        check("write a:2", "write a/b", true);
        check("write a:2", "write a/b/c", false);
        check("read a:1", "write a:1", true);
        check("write a", "write b", false);
    }

    #[test]
    fn child_lists() {
        check("link user", "list user", true);
        check("link user", "link user", false);
        check("link user", "read user:1", false);
        check("link user", "read user:2", true);
        check("link user", "read /", true);
        check("link user", "read /:2", false);
        check("list user", "write user/42", false);
        check("list user", "write user", true);
        check("list user", "list user/42", false);
        check("link user", "link user/42", false);
    }

    #[test]
    fn inclusion() {
        assert!(resource("write a").includes(&resource("read a/b")));
        assert!(resource("write a:2").includes(&resource("write a/b:1")));
        assert!(!resource("write a:2").includes(&resource("write a/b:2")));
        assert!(!resource("write a:2").includes(&resource("write a/b")));
        assert!(!resource("read a").includes(&resource("write a")));
        assert!(resource("read a:2").includes(&resource("list a")));
        assert!(!resource("read a:1").includes(&resource("list a")));
        assert!(resource("write a").includes(&resource("link a")));
    }
}
