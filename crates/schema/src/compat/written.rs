//! What is certain of every value that fits a set of schemas at once: the writing side of a comparison.
//! Knows nothing of who reads.

use super::leftover::{LeftoverItems, LeftoverProperties};
use crate::{node::Node, schema::counted_types, types::Types};
use lockwood_model::Scalar;
use serde_json::{Value, json};
use std::{cell::OnceCell, cmp::Ordering, collections::BTreeSet, sync::LazyLock};

/// The values that fit all of `parts`. Whatever is concluded from some of the parts holds for all values,
/// so a keyword that is not understood here only makes the answer more careful.
#[derive(Debug, Clone)]
pub(super) struct Written<'a> {
    /// Closed under `$ref` and `allOf`, each once.
    pub(super) parts: Vec<Node<'a>>,
    /// The types a value can have.
    pub(super) types: Types,
    /// The values themselves, when they can be listed.
    pub(super) values: Option<Vec<&'a Value>>,
    /// How much was looked at to find out about the types.
    looked_at: usize,
    /// What is said of properties and elements that nothing else looked at, for each of the parts; found out when it
    /// is asked for.
    leftovers: OnceCell<Leftovers<'a>>,
}

type Leftovers<'a> = Vec<(Option<LeftoverProperties<'a>>, Option<LeftoverItems<'a>>)>;

/// Which end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Upper,
    Lower,
}

/// One end of a range of numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound<'a> {
    pub(super) limit: &'a Value,
    pub(super) exclusive: bool,
}

/// So much that is quickly looked at, a listed value or a pattern, counts as one step.
pub(super) const QUICK_PER_STEP: usize = 16;

/// So many schemas that are only asked for types count as one step.
const TYPES_PER_STEP: usize = 4;

static BOOLEANS: [Value; 2] = [Value::Bool(false), Value::Bool(true)];
static NULL: Value = Value::Null;

/// Schemas that only say a type, to take a list of types apart.
static SINGLE_TYPES: LazyLock<Vec<(Types, Value)>> = LazyLock::new(|| {
    let single = |types: Types, name: &str| (types, json!({ "type": name }));
    vec![
        single(Types::NULL, "null"),
        single(Types::BOOLEAN, "boolean"),
        single(Types::NUMBER, "number"),
        single(Types::STRING, "string"),
        single(Types::ARRAY, "array"),
        single(Types::OBJECT, "object"),
    ]
});

impl<'a> Written<'a> {
    pub(super) fn new(nodes: &[Node<'a>]) -> Written<'a> {
        let mut seen = BTreeSet::new();
        let mut parts: Vec<Node<'a>> = nodes.iter().flat_map(Node::conjuncts).collect();
        parts.retain(|node| seen.insert(node.id()));
        parts.sort_by_key(Node::id);
        let mut looked_at = 0;
        let said = |node: &Node<'a>| counted_types(node, &mut looked_at);
        let types = parts.iter().map(said).fold(Types::ALL, Types::and);
        let values = listed_values(&parts, types);
        Written { parts, types, values, looked_at, leftovers: OnceCell::new() }
    }

    /// How much there is to look at.
    pub(super) fn weight(&self) -> usize {
        let values = self.values.as_ref().map_or(0, Vec::len);
        self.parts.len() + self.looked_at / TYPES_PER_STEP + values / QUICK_PER_STEP
    }

    /// How much there is to look at to find out what is left over.
    pub(super) fn leftover_weight(&self) -> usize {
        let weights = self.leftovers().iter().map(|(properties, items)| {
            properties.as_ref().map_or(0, |one| one.weight) + items.as_ref().map_or(0, |one| one.weight)
        });
        weights.sum::<usize>() / QUICK_PER_STEP
    }

    fn leftovers(&self) -> &Leftovers<'a> {
        self.leftovers.get_or_init(|| {
            self.parts.iter().map(|part| (LeftoverProperties::of(part), LeftoverItems::of(part))).collect()
        })
    }

    /// The parts, each with what it says of properties that nothing else looked at.
    pub(super) fn parts_of_objects(
        &self,
    ) -> impl Iterator<Item = (&Node<'a>, Option<&LeftoverProperties<'a>>)> {
        self.parts.iter().zip(self.leftovers()).map(|(part, (properties, _))| (part, properties.as_ref()))
    }

    /// The parts, each with what it says of elements that nothing else looked at.
    fn parts_of_lists(&self) -> impl Iterator<Item = (&Node<'a>, Option<&LeftoverItems<'a>>)> {
        self.parts.iter().zip(self.leftovers()).map(|(part, (_, items))| (part, items.as_ref()))
    }

    pub(super) fn with(&self, node: &Node<'a>) -> Written<'a> {
        let mut nodes = self.parts.clone();
        nodes.push(node.clone());
        Written::new(&nodes)
    }

    /// Whether no value fits, so that everybody can read all of them.
    pub(super) fn is_nothing(&self) -> bool {
        self.types.is_empty() || self.values.as_ref().is_some_and(Vec::is_empty)
    }

    /// Whether nothing is said.
    pub(super) fn is_anything(&self) -> bool {
        self.parts.iter().all(Node::is_anything)
    }

    pub(super) fn ids(&self) -> Vec<usize> {
        self.parts.iter().map(Node::id).collect()
    }

    /// The variants of a sum of which it is not yet settled which one a value fits.
    pub(super) fn open_sum(&self) -> Option<Vec<Node<'a>>> {
        let settled: BTreeSet<usize> = self.parts.iter().map(Node::id).collect();
        let sums =
            self.parts.iter().flat_map(|node| ["anyOf", "oneOf"].map(|keyword| node.children(keyword)));
        sums.into_iter()
            .filter(|variants| !variants.is_empty())
            .find(|variants| !variants.iter().any(|variant| settled.contains(&variant.id())))
    }

    /// The same values, one type at a time, if they have several.
    pub(super) fn by_type(&self) -> Vec<Written<'a>> {
        let Some(node) = self.parts.first().filter(|_| self.types != Types::ALL) else { return Vec::new() };
        let singles: Vec<_> = SINGLE_TYPES.iter().filter(|(types, _)| self.types.meets(*types)).collect();
        if singles.len() < 2 {
            return Vec::new();
        }
        let only = |(_, value): &'static (Types, Value)| self.with(&Node { value, ..node.clone() });
        singles.into_iter().map(only).collect()
    }

    /// The tightest value of a keyword that counts something.
    pub(super) fn count(&self, keyword: &str, end: End) -> Option<&'a Value> {
        let said = self.parts.iter().filter_map(|node| node.get(keyword));
        said.reduce(|a, b| if tighter(b, a, end) { b } else { a })
    }

    /// The tightest end of the range of numbers.
    pub(super) fn bound(&self, end: End) -> Option<Bound<'a>> {
        let said = self.parts.iter().flat_map(|node| bounds(node, end)).map(|(_, bound)| bound);
        said.reduce(|a, b| if b.implies(a, end) { b } else { a })
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        self.parts.iter().any(|node| node.strings("required").contains(&name))
    }

    /// Everything that is said of a property: all of it has to fit.
    pub(super) fn property(&self, name: &str) -> Vec<Node<'a>> {
        self.parts_of_objects().flat_map(|(node, leftover)| property_of(node, leftover, name)).collect()
    }

    /// Whether some part names the property.
    pub(super) fn names(&self, name: &str) -> bool {
        self.parts.iter().any(|node| node.named("properties", name).is_some())
    }

    /// Everything that is said of an element.
    pub(super) fn element(&self, index: usize) -> Vec<Node<'a>> {
        let said = |(node, leftover): (&Node<'a>, Option<&LeftoverItems<'a>>)| {
            let items = node.items();
            let described = items.prefix.get(index).cloned().or(items.rest);
            described.or_else(|| leftover?.says_of(index))
        };
        self.parts_of_lists().filter_map(said).collect()
    }

    /// How many places are described by themselves, so that all further ones are described alike.
    pub(super) fn described_len(&self) -> usize {
        let len = |(node, leftover): (&Node<'a>, Option<&LeftoverItems<'a>>)| {
            node.items().prefix.len().max(leftover.map_or(0, |leftover| leftover.described_len))
        };
        self.parts_of_lists().map(len).max().unwrap_or(0)
    }

    /// Whether no value can have an element there.
    pub(super) fn ends_before(&self, index: usize) -> bool {
        let len_max = self.count("maxItems", End::Upper).and_then(Value::as_f64);
        len_max.is_some_and(|len_max| len_max <= index as f64)
    }
}

/// What one schema says of a property by itself.
fn property_of<'a>(node: &Node<'a>, leftover: Option<&LeftoverProperties<'a>>, name: &str) -> Vec<Node<'a>> {
    let mut found: Vec<Node<'a>> = node.named("properties", name).into_iter().collect();
    found.extend(node.matching(name));
    if found.is_empty() {
        found.extend(node.child("additionalProperties"));
    }
    if found.is_empty() {
        found.extend(leftover.and_then(|leftover| leftover.says_of(name)));
    }
    found
}

impl Bound<'_> {
    /// Whether every number within this bound is within the other.
    pub(super) fn implies(self, other: Bound<'_>, end: End) -> bool {
        match order(self.limit, other.limit) {
            Ordering::Equal => self.exclusive || !other.exclusive,
            Ordering::Less => end == End::Upper,
            Ordering::Greater => end == End::Lower,
        }
    }

    /// Whether a number is within it.
    pub(super) fn admits(self, number: &Value, end: End) -> bool {
        Bound { limit: number, exclusive: false }.implies(self, end)
    }
}

/// The ends that one schema sets, with the keyword; draft-04 writes exclusive ones with a second keyword.
pub(super) fn bounds<'a>(node: &Node<'a>, end: End) -> Vec<(&'static str, Bound<'a>)> {
    let (plain, exclusive) = match end {
        End::Upper => ("maximum", "exclusiveMaximum"),
        End::Lower => ("minimum", "exclusiveMinimum"),
    };
    let mut found = Vec::new();
    let second = node.get(exclusive);
    if let Some(limit) = node.get(plain).filter(|limit| limit.is_number()) {
        let exclusive = second == Some(&Value::Bool(true));
        found.push((plain, Bound { limit, exclusive }));
    }
    if let Some(limit) = second.filter(|limit| limit.is_number()) {
        found.push((exclusive, Bound { limit, exclusive: true }));
    }
    found
}

/// Whether `a` allows less than `b`.
pub(super) fn tighter(a: &Value, b: &Value, end: End) -> bool {
    match end {
        End::Upper => order(a, b) == Ordering::Less,
        End::Lower => order(a, b) == Ordering::Greater,
    }
}

pub(super) fn order(a: &Value, b: &Value) -> Ordering {
    let (a, b) = (a.to_string(), b.to_string());
    Scalar::read(&a).compare(&Scalar::read(&b)).unwrap_or(Ordering::Equal)
}

/// Text that two values share if they are equal; JSON Schema takes 1 and 1.0 for the same. Lists of values are
/// compared by it, so that long ones take no longer than sorting them.
pub(super) fn key_of(value: &Value) -> String {
    /// Whole numbers up to here can be written down as such.
    const WHOLE_MAX: f64 = (1_u128 << 126) as f64;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < WHOLE_MAX => {
                (float as i128).to_string()
            }
            _ => number.to_string(),
        },
        Value::Array(list) => format!("[{}]", list.iter().map(key_of).collect::<Vec<_>>().join(",")),
        Value::Object(object) => {
            let mut members: Vec<(&String, &Value)> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            let member = |(name, value): (&String, &Value)| format!("{name:?}:{}", key_of(value));
            format!("{{{}}}", members.into_iter().map(member).collect::<Vec<_>>().join(","))
        }
        _ => value.to_string(),
    }
}

fn listed_values<'a>(parts: &[Node<'a>], types: Types) -> Option<Vec<&'a Value>> {
    let mut lists = parts.iter().filter_map(listed);
    let Some(mut values) = lists.next() else { return values_of_types(types) };
    for list in lists {
        let keys: BTreeSet<String> = list.into_iter().map(key_of).collect();
        values.retain(|value| keys.contains(&key_of(value)));
    }
    values.retain(|value| Types::of(value).within(types));
    Some(values)
}

fn listed<'a>(node: &Node<'a>) -> Option<Vec<&'a Value>> {
    if let Some(value) = node.get("const") {
        return Some(vec![value]);
    }
    Some(node.get("enum")?.as_array()?.iter().collect())
}

/// There are only so many truth values.
fn values_of_types<'a>(types: Types) -> Option<Vec<&'a Value>> {
    if !types.within(Types::BOOLEAN.or(Types::NULL)) {
        return None;
    }
    let mut values: Vec<&Value> = Vec::new();
    if types.meets(Types::BOOLEAN) {
        values.extend(&BOOLEANS);
    }
    if types.meets(Types::NULL) {
        values.push(&NULL);
    }
    Some(values)
}
