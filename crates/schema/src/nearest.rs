//! Which known names somebody may have meant. Knows only text.

use lockwood_model::{Budget, Exhausted};
use std::collections::BTreeSet;

/// At most this many names are offered.
pub const NEAREST_LEN_MAX: usize = 3;

/// Names longer than this are compared by their beginnings only; the distance costs the product of lengths.
const COMPARED_CHARS_MAX: usize = 64;

/// Comparing so many pairs of letters costs one step.
const PAIRS_PER_STEP: usize = 4;

/// The known names that are like `name`, nearest first: the same in another case, then those one begins
/// with the other, then those a few letters away.
pub(crate) fn nearest<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
    budget: &Budget,
) -> Result<Vec<String>, Exhausted> {
    let wanted = folded(name);
    let mut near: BTreeSet<(usize, &str)> = BTreeSet::new();
    for candidate in known {
        let folded = folded(candidate);
        budget.spend(1 + (wanted.len() * folded.len() / PAIRS_PER_STEP) as u64)?;
        if let Some(distance) = distance(&wanted, &folded) {
            near.insert((distance, candidate));
        }
    }
    Ok(near.into_iter().take(NEAREST_LEN_MAX).map(|(_, candidate)| candidate.to_owned()).collect())
}

fn folded(name: &str) -> Vec<char> {
    name.chars().flat_map(char::to_lowercase).take(COMPARED_CHARS_MAX).collect()
}

/// None when nobody would take one for the other: more than a third of the letters differ.
fn distance(a: &[char], b: &[char]) -> Option<usize> {
    let edits = edits(a, b);
    let longest = a.len().max(b.len());
    let shortest = a.len().min(b.len());
    if shortest >= 2 && (a.starts_with(b) || b.starts_with(a)) {
        return Some(edits.min(1));
    }
    (edits <= longest.div_ceil(3) && edits < longest).then_some(edits)
}

/// How many letters have to be added, removed, replaced or swapped with their neighbour.
fn edits(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for row in 1..=a.len() {
        let mut line = vec![row];
        for column in 1..=b.len() {
            let replaced = above[column - 1] + usize::from(a[row - 1] != b[column - 1]);
            let mut least = replaced.min(above[column] + 1).min(line[column - 1] + 1);
            let swapped = row > 1 && column > 1 && a[row - 1] == b[column - 2] && a[row - 2] == b[column - 1];
            if swapped {
                least = least.min(before[column - 2] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut above, line);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, known: &[&str], expected: &[&str]) {
        assert_eq!(nearest(name, known.iter().copied(), &Budget::unlimited()).unwrap(), expected, "{name}");
    }

    #[test]
    fn names_come_in_order_of_nearness() {
        check("Title", &["title", "titles", "tile", "body"], &["title", "tile", "titles"]);
        check("emial", &["email", "mail", "phone"], &["email", "mail"]);
        check("addr", &["address", "age"], &["address"]);
        check("zip_code", &["zip", "code"], &["zip"]);
        check("colour", &["color"], &["color"]);
    }

    #[test]
    fn what_is_far_is_not_offered() {
        check("x", &["a", "b", "c"], &[]);
        check("price", &["name", "body"], &[]);
        check("", &["a"], &[]);
        check("ab", &["abc1", "abc2", "abc3", "abc4"], &["abc1", "abc2", "abc3"]);
    }
}
