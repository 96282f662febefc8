//! Patterns of `%=`: `%` is any text, `_` any character, `\` takes the next as it is. Knows nothing of fields, nor
//! of upper and lower case.
//!
//! The parts between two `%` have a fixed length, so the leftmost place of each is as good as any other and no
//! part is ever looked for twice. A part without `_` is found in linear time. A part with `_` is found with one
//! bit per character of the part, 64 of them at a time.

use std::collections::BTreeMap;

/// A pattern that is ready to be compared with.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pattern {
    /// What the text begins with.
    first: Part,
    /// What follows in this order, with anything between; none of it is empty.
    middle: Vec<Part>,
    /// What the text ends with; none if the pattern has no `%`, and `first` is all of the text.
    last: Option<Part>,
}

/// What a pattern has between two `%`.
#[derive(Debug, Clone, PartialEq, Default)]
struct Part {
    /// Each character; none is any.
    characters: Vec<Option<char>>,
    search: Search,
}

/// How a part is looked for in a text.
#[derive(Debug, Clone, PartialEq)]
enum Search {
    Text(String),
    Bits(Bits),
}

impl Default for Search {
    fn default() -> Search {
        Search::Text(String::new())
    }
}

/// For each character the places of the part that it fits, one bit for each place.
#[derive(Debug, Clone, PartialEq)]
struct Bits {
    by_character: BTreeMap<char, Vec<u64>>,
    /// Where any character fits.
    any: Vec<u64>,
}

impl Pattern {
    pub(crate) fn read(text: &str) -> Pattern {
        let mut parts = vec![Vec::new()];
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let character = match char {
                '%' => {
                    parts.push(Vec::new());
                    continue;
                }
                '_' => None,
                '\\' => Some(chars.next().unwrap_or('\\')),
                _ => Some(char),
            };
            parts.last_mut().expect("there is always one").push(character);
        }
        let mut parts = parts.into_iter().map(Part::new);
        let first = parts.next().expect("there is always one");
        let last = parts.next_back();
        Pattern { first, middle: parts.filter(|part| !part.characters.is_empty()).collect(), last }
    }

    /// Whether the text has this shape.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let Some(mut rest) = self.first.after_start(text) else { return false };
        let Some(last) = &self.last else { return rest.is_empty() };
        for part in &self.middle {
            match part.after_first(rest) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        last.is_end_of(rest)
    }

    /// How many times as long as reading a text comparing it takes at most.
    pub(crate) fn cost(&self) -> usize {
        let of = |part: &Part| match &part.search {
            Search::Text(_) => 1,
            Search::Bits(bits) => 1 + bits.any.len(),
        };
        self.middle.iter().map(of).max().unwrap_or(1)
    }
}

impl Part {
    fn new(characters: Vec<Option<char>>) -> Part {
        let text: Option<String> = characters.iter().copied().collect();
        let search = text.map_or_else(|| Search::Bits(Bits::new(&characters)), Search::Text);
        Part { characters, search }
    }

    /// What follows, if the text begins with this.
    fn after_start<'a>(&self, text: &'a str) -> Option<&'a str> {
        let mut chars = text.chars();
        let fits = |wanted: &Option<char>| fits(*wanted, chars.next());
        self.characters.iter().all(fits).then_some(chars.as_str())
    }

    fn is_end_of(&self, text: &str) -> bool {
        let mut chars = text.chars().rev();
        self.characters.iter().rev().all(|wanted| fits(*wanted, chars.next()))
    }

    /// What follows the first place at which the text has this.
    fn after_first<'a>(&self, text: &'a str) -> Option<&'a str> {
        let end = match &self.search {
            Search::Text(part) => text.find(part.as_str()).map(|at| at + part.len()),
            Search::Bits(bits) => bits.end_of_first(text, self.characters.len()),
        };
        end.map(|end| &text[end..])
    }
}

fn fits(wanted: Option<char>, found: Option<char>) -> bool {
    found.is_some() && (wanted.is_none() || wanted == found)
}

impl Bits {
    fn new(characters: &[Option<char>]) -> Bits {
        let mut any = vec![0; characters.len().div_ceil(64)];
        let set = |bits: &mut Vec<u64>, place: usize| bits[place / 64] |= 1 << (place % 64);
        for (place, _) in characters.iter().enumerate().filter(|(_, wanted)| wanted.is_none()) {
            set(&mut any, place);
        }
        let mut by_character: BTreeMap<char, Vec<u64>> = BTreeMap::new();
        for (place, wanted) in characters.iter().enumerate() {
            if let Some(wanted) = wanted {
                set(by_character.entry(*wanted).or_insert_with(|| any.clone()), place);
            }
        }
        Bits { by_character, any }
    }

    /// Where the first place of a part with so many characters ends. A bit of `state` is set if the part up to
    /// there fits the characters seen last.
    fn end_of_first(&self, text: &str, len: usize) -> Option<usize> {
        let mut state = vec![0_u64; self.any.len()];
        let last = len - 1;
        for (at, char) in text.char_indices() {
            let mask = self.by_character.get(&char).unwrap_or(&self.any);
            let mut carry = 1;
            for (state, mask) in state.iter_mut().zip(mask) {
                let next = *state >> 63;
                *state = ((*state << 1) | carry) & mask;
                carry = next;
            }
            if state[last / 64] & (1 << (last % 64)) != 0 {
                return Some(at + char.len_utf8());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what a pattern means, however long it takes.
    fn plainly(text: &[char], pattern: &[char]) -> bool {
        match pattern {
            [] => text.is_empty(),
            ['%', rest @ ..] => (0..=text.len()).any(|skipped| plainly(&text[skipped..], rest)),
            ['_', rest @ ..] => !text.is_empty() && plainly(&text[1..], rest),
            ['\\', char, rest @ ..] | [char, rest @ ..] => {
                text.first() == Some(char) && plainly(&text[1..], rest)
            }
        }
    }

    fn words(letters: &[char], len_max: usize) -> Vec<Vec<char>> {
        let mut all = vec![Vec::new()];
        let mut from = 0;
        for _ in 0..len_max {
            let to = all.len();
            for index in from..to {
                for letter in letters {
                    let mut word: Vec<char> = all[index].clone();
                    word.push(*letter);
                    all.push(word);
                }
            }
            from = to;
        }
        all
    }

    #[test]
    fn all_short_patterns_mean_what_they_say() {
        let texts = words(&['a', 'é'], 5);
        for pattern in words(&['a', 'é', '%', '_', '\\'], 5) {
            let written: String = pattern.iter().collect();
            let read = Pattern::read(&written);
            for text in &texts {
                let shown: String = text.iter().collect();
                assert_eq!(read.matches(&shown), plainly(text, &pattern), "{shown} %= {written}");
            }
        }
    }

    #[test]
    fn long_parts_with_any_character_are_found() {
        let part = format!("%{}_c%", "ab".repeat(70));
        let text = |end: &str| format!("{}{}{end}d", "ab".repeat(500), "é");
        assert!(Pattern::read(&part).matches(&text("c")));
        assert!(!Pattern::read(&part).matches(&text("b")));
    }

    /// 500 × 4,000,000 comparisons would be noticed.
    #[test]
    fn a_pattern_takes_linear_time() {
        let text = "a".repeat(4_000_000);
        for pattern in [format!("%{}b%", "a".repeat(500)), format!("%{}_b%", "a".repeat(100))] {
            assert!(!Pattern::read(&pattern).matches(&text));
        }
    }
}
