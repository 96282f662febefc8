//! Filters as people write them: `age >= 18 and not city = "Bonn"`. Knows nothing of documents.
//!
//! ```text
//! filter    = group { "or" group }             "or" binds least, then "and", then "not"
//! group     = part { "and" part }
//! part      = "not" part | "(" filter ")" | "all" list | "any" list | condition
//! list      = "(" [ filter { "," filter } ] ")"
//! condition = field operator value             the operators are those of Operator
//! field     = name { "." name }                a field, or a member of an object in it: address.zip
//! name      = a word of letters, digits, _ and -, the first of which begins with a letter or _; or text in
//!             quotes, dots and all
//! value     = a JSON value
//! ```
//!
//! `all(…)` and `any(…)` say the same as "and" and "or"; they are needed for groups of one or none.

use crate::{
    field_path::FieldPath,
    filter::{Condition, Filter, Operator},
    json::Json,
};
use std::{fmt, str::FromStr};

/// Groups, negations and parentheses inside each other; more are refused.
pub const FILTER_TEXT_DEPTH_MAX: usize = 50;
/// Lists and objects inside each other within a value; more are refused.
const VALUE_DEPTH_MAX: usize = 100;

/// The text is not a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at column {column}: {message}")]
pub struct FilterTextError {
    /// Which character the trouble begins at, counted from 1.
    pub column: usize,
    /// What is wrong and what to write instead.
    pub message: String,
}

impl FromStr for Filter {
    type Err = FilterTextError;

    fn from_str(text: &str) -> Result<Filter, FilterTextError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let filter = parser.filter()?;
        parser.skip_space();
        match parser.rest() {
            "" => Ok(filter),
            rest => Err(parser.wrong(after_filter(rest))),
        }
    }
}

/// What to say of text that goes on where a filter could have ended.
fn after_filter(rest: &str) -> String {
    let instead = [("&&", "and"), ("&", "and"), ("||", "or"), ("|", "or")];
    match instead.iter().find(|(sign, _)| rest.starts_with(sign)) {
        Some((sign, word)) => format!("write {word} instead of {sign}"),
        None if rest.starts_with(')') => "there is no ( to this )".into(),
        None => format!("expected and, or, or the end, not {}", shown(rest)),
    }
}

/// The beginning of the text, as far as it can be said in an error.
fn shown(rest: &str) -> String {
    match rest.chars().next() {
        None => "the end".into(),
        Some(first) if is_word(first) => format!("{:?}", &rest[..word_len(rest)]),
        Some(first) => format!("{first:?}"),
    }
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '.' | '-')
}

fn begins_word(char: char) -> bool {
    char.is_alphabetic() || char == '_'
}

fn word_len(text: &str) -> usize {
    text.find(|char| !is_word(char)).unwrap_or(text.len())
}

fn name_len(text: &str) -> usize {
    text.find(|char| !is_word(char) || char == '.').unwrap_or(text.len())
}

/// The words that are no names of fields unless they are in quotes.
const KEYWORDS: [&str; 6] = ["and", "or", "not", "true", "false", "null"];

struct Parser<'a> {
    text: &'a str,
    /// The byte that is next.
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn filter(&mut self) -> Result<Filter, FilterTextError> {
        self.chain("or", Parser::group, Filter::Any)
    }

    fn group(&mut self) -> Result<Filter, FilterTextError> {
        self.chain("and", Parser::part, Filter::All)
    }

    /// Parts with a word between them; one part alone is no group.
    fn chain(
        &mut self,
        word: &str,
        part: fn(&mut Self) -> Result<Filter, FilterTextError>,
        group: fn(Vec<Filter>) -> Filter,
    ) -> Result<Filter, FilterTextError> {
        let first = part(self)?;
        if !self.take_word(word) {
            return Ok(first);
        }
        let mut parts = vec![first, part(self)?];
        while self.take_word(word) {
            parts.push(part(self)?);
        }
        Ok(group(parts))
    }

    fn part(&mut self) -> Result<Filter, FilterTextError> {
        self.skip_space();
        self.depth += 1;
        if self.depth > FILTER_TEXT_DEPTH_MAX {
            return Err(
                self.wrong(format!("the filter is nested deeper than {FILTER_TEXT_DEPTH_MAX} levels"))
            );
        }
        let part = match self.rest() {
            _ if self.take_word("not") => self.part().map(|filter| Filter::Not(Box::new(filter))),
            rest if rest.starts_with('(') => self.parentheses(),
            _ if self.take_function("all") => self.list().map(Filter::All),
            _ if self.take_function("any") => self.list().map(Filter::Any),
            _ => self.condition().map(Filter::Is),
        };
        self.depth -= 1;
        part
    }

    fn parentheses(&mut self) -> Result<Filter, FilterTextError> {
        let open = self.at;
        self.at += 1;
        let filter = self.filter()?;
        self.close(open)?;
        Ok(filter)
    }

    /// What is between the parentheses of `all(…)`; the first one is next.
    fn list(&mut self) -> Result<Vec<Filter>, FilterTextError> {
        let open = self.at;
        self.at += 1;
        let mut parts = Vec::new();
        self.skip_space();
        if !self.rest().starts_with(')') {
            parts.push(self.filter()?);
            while self.take(",") {
                parts.push(self.filter()?);
            }
        }
        self.close(open)?;
        Ok(parts)
    }

    fn close(&mut self, open: usize) -> Result<(), FilterTextError> {
        if self.take(")") {
            return Ok(());
        }
        let message = match self.rest() {
            "" => return Err(self.wrong_at(open, "there is no ) to this (".into())),
            rest => after_filter(rest).replace("the end", ")"),
        };
        Err(self.wrong(message))
    }

    fn condition(&mut self) -> Result<Condition, FilterTextError> {
        let start = self.at;
        let field = self.field()?;
        self.skip_space();
        let operator = self.operator()?;
        self.skip_space();
        let value = self.value()?;
        Condition::new(field, operator, value).map_err(|error| self.wrong_at(start, error.to_string()))
    }

    fn field(&mut self) -> Result<FieldPath, FilterTextError> {
        let mut names = vec![self.first_name()?];
        while self.rest().starts_with('.') {
            self.at += 1;
            names.push(self.next_name()?);
        }
        Ok(FieldPath::from_names(names).expect("there is a first name"))
    }

    fn first_name(&mut self) -> Result<String, FilterTextError> {
        let rest = self.rest();
        if rest.starts_with('"') {
            return self.quoted_name();
        }
        if rest.starts_with('!') {
            return Err(self.wrong("write not instead of !".into()));
        }
        if !rest.starts_with(begins_word) {
            let message = format!("expected a field, not, or (; not {}", shown(rest));
            return Err(self.wrong(message));
        }
        let word = &rest[..word_len(rest)];
        if is_keyword(word) {
            let message = format!("expected a field; one that is called {word} is written \"{word}\"");
            return Err(self.wrong(message));
        }
        Ok(self.plain_name())
    }

    /// The name after a dot.
    fn next_name(&mut self) -> Result<String, FilterTextError> {
        if self.rest().starts_with('"') {
            return self.quoted_name();
        }
        match self.plain_name() {
            name if name.is_empty() => {
                let instead = "expected a name after the dot; one with dots in it is written in quotes";
                Err(self.wrong(format!("{instead}, not {}", shown(self.rest()))))
            }
            name => Ok(name),
        }
    }

    fn plain_name(&mut self) -> String {
        let name = &self.rest()[..name_len(self.rest())];
        self.at += name.len();
        name.to_owned()
    }

    fn quoted_name(&mut self) -> Result<String, FilterTextError> {
        let written = self.quoted()?;
        serde_json::from_str(written)
            .map_err(|_| self.wrong_at(self.at - written.len(), format!("{written} is no text in JSON")))
    }

    fn operator(&mut self) -> Result<Operator, FilterTextError> {
        let rest = self.rest();
        for (foreign, own) in [("==", "="), ("<>", "!="), ("=~", "~="), ("=<", "<="), ("=>", ">=")] {
            if rest.starts_with(foreign) {
                return Err(self.wrong(format!("write {own} instead of {foreign}")));
            }
        }
        let fits = |operator: &Operator| rest.starts_with(operator.as_str());
        let longest = Operator::ALL.into_iter().filter(fits).max_by_key(|operator| operator.as_str().len());
        let operator = longest.ok_or_else(|| {
            let known = Operator::ALL.map(Operator::as_str).join(" ");
            self.wrong(format!("expected one of {known}, not {}", shown(rest)))
        })?;
        self.at += operator.as_str().len();
        Ok(operator)
    }

    fn value(&mut self) -> Result<Json, FilterTextError> {
        let start = self.at;
        let rest = self.rest();
        let written = match rest.chars().next() {
            Some('"') => self.quoted()?,
            Some('[' | '{') => self.bracketed()?,
            Some('\'') => return Err(self.wrong("text is written in double quotes, as in JSON".into())),
            Some(char) if is_word(char) || char == '+' => self.plain_value()?,
            _ => return Err(self.wrong(format!("expected a JSON value, not {}", shown(rest)))),
        };
        Json::read(written, VALUE_DEPTH_MAX)
            .map_err(|error| self.wrong_at(start, format!("{written} is no JSON value: {error}")))
    }

    /// A number, a truth value or null.
    fn plain_value(&mut self) -> Result<&'a str, FilterTextError> {
        let rest = self.rest();
        let len = rest.find(|char| !is_word(char) && char != '+').unwrap_or(rest.len());
        let word = &rest[..len];
        if word.starts_with(begins_word) && !["true", "false", "null"].contains(&word) {
            return Err(self.wrong(format!("text is written in quotes: \"{word}\"")));
        }
        self.at += len;
        Ok(word)
    }

    /// The string that is next, with its quotes.
    fn quoted(&mut self) -> Result<&'a str, FilterTextError> {
        let rest = self.rest();
        match string_len(rest) {
            Some(len) => {
                self.at += len;
                Ok(&rest[..len])
            }
            None => Err(self.wrong("this text has no closing quote".into())),
        }
    }

    /// The list or object that is next. Whether it is one is not looked at here, only where it ends.
    fn bracketed(&mut self) -> Result<&'a str, FilterTextError> {
        let rest = self.rest();
        let (mut at, mut open) = (0, 0usize);
        while at < rest.len() {
            match rest.as_bytes()[at] {
                b'"' => match string_len(&rest[at..]) {
                    Some(len) => at += len - 1,
                    None => break,
                },
                b'[' | b'{' => open += 1,
                b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            }
            at += 1;
            if open == 0 {
                self.at += at;
                return Ok(&rest[..at]);
            }
        }
        Err(self.wrong(format!("there is no end to this {}", &rest[..1])))
    }

    /// Takes a word if it is next; in capitals will do.
    fn take_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let rest = self.rest();
        let found = rest[..word_len(rest)].eq_ignore_ascii_case(word);
        if found {
            self.at += word.len();
        }
        found
    }

    /// Takes the name of a list if it is next, up to the parenthesis.
    fn take_function(&mut self, name: &str) -> bool {
        let start = self.at;
        if self.take_word(name) {
            self.skip_space();
            if self.rest().starts_with('(') {
                return true;
            }
        }
        self.at = start;
        false
    }

    fn take(&mut self, sign: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(sign);
        if found {
            self.at += sign.len();
        }
        found
    }

    fn skip_space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn wrong(&self, message: String) -> FilterTextError {
        self.wrong_at(self.at, message)
    }

    fn wrong_at(&self, at: usize, message: String) -> FilterTextError {
        FilterTextError { column: self.text[..at].chars().count() + 1, message }
    }
}

/// How long the string is that `text` starts with, both quotes included; none if it does not end.
fn string_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 1;
    loop {
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn is_keyword(word: &str) -> bool {
    KEYWORDS.iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Filter::Is(condition) => condition.fmt(f),
            Filter::All(parts) => write_group(f, parts, "all", " and "),
            Filter::Any(parts) => write_group(f, parts, "any", " or "),
            Filter::Not(part) => {
                f.write_str("not ")?;
                write_part(f, part)
            }
        }
    }
}

fn write_group(f: &mut fmt::Formatter<'_>, parts: &[Filter], name: &str, word: &str) -> fmt::Result {
    match parts {
        [] => write!(f, "{name}()"),
        [part] => write!(f, "{name}({part})"),
        [first, others @ ..] => {
            write_part(f, first)?;
            for part in others {
                f.write_str(word)?;
                write_part(f, part)?;
            }
            Ok(())
        }
    }
}

/// A part of something larger: groups are put in parentheses, so that nobody has to know what binds more.
fn write_part(f: &mut fmt::Formatter<'_>, part: &Filter) -> fmt::Result {
    match part {
        Filter::All(parts) | Filter::Any(parts) if parts.len() > 1 => write!(f, "({part})"),
        _ => write!(f, "{part}"),
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.field().write(f, |name| {
            name.starts_with(begins_word) && name_len(name) == name.len() && !is_keyword(name)
        })?;
        write!(f, " {} {}", self.operator().as_str(), self.value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, written: &str) {
        let filter: Filter = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(filter.to_string(), written, "{text}");
        assert_eq!(written.parse(), Ok(filter), "{text} round trip");
    }

    #[test]
    fn filters_are_read_and_written() {
        check("age>=18", "age >= 18");
        check("  age\t>= 18 ", "age >= 18");
        check("name ~= \"b\\u00f6b\"", "name ~= \"b\\u00f6b\"");
        check("a = 1 and b = 2 AND c = 3", "a = 1 and b = 2 and c = 3");
        check("a = 1 and b = 2 or c = 3", "(a = 1 and b = 2) or c = 3");
        check("a = 1 and (b = 2 and c = 3)", "a = 1 and (b = 2 and c = 3)");
        check("((a = 1))", "a = 1");
        check("not a = 1 and b = 2", "not a = 1 and b = 2");
        check("not (a = 1 or b = 2)", "not (a = 1 or b = 2)");
        check("not not a = 1", "not not a = 1");
        check("all()", "all()");
        check("any ( a = 1 )", "any(a = 1)");
        check("all(a = 1, b = 2 or c = 3)", "a = 1 and (b = 2 or c = 3)");
        check("all = 1 and any != 2", "all = 1 and any != 2");
        check("notable = 1 and android < -1.5e+3", "notable = 1 and android < -1.5e+3");
        check("\"first name\" = \"x\" and \"and\" = true", "\"first name\" = \"x\" and \"and\" = true");
        check("l = [1, \"]\", {\"a\": [2]}] and m != {}", "l = [1,\"]\",{\"a\":[2]}] and m != {}");
        check("größe.x-y = null", "größe.x-y = null");
        check("address.zip = 1 and a.\"b.c\".d = 2", "address.zip = 1 and a.\"b.c\".d = 2");
        check("\"address.zip\" = 1", "\"address.zip\" = 1");
        check("not.or.2nd = 1 and a.\"\" = 2", "\"not\".\"or\".\"2nd\" = 1 and a.\"\" = 2");
        check(
            "age >= 18 and (name ~= \"bob\" or not city = \"Bonn\") and email != null",
            "age >= 18 and (name ~= \"bob\" or not city = \"Bonn\") and email != null",
        );
        check("path %= \"a\\\\%_%\"", "path %= \"a\\\\%_%\"");
    }

    #[track_caller]
    fn refused(text: &str, column: usize, part: &str) {
        let error = text.parse::<Filter>().unwrap_err();
        assert!(error.message.contains(part), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
    }

    #[test]
    fn mistakes_say_where_they_are_and_what_to_write() {
        refused("", 1, "expected a field, not, or (; not the end");
        refused("age", 4, "expected one of = != < <= > >= ~= %=, not the end");
        refused("age >= ", 8, "expected a JSON value, not the end");
        refused("äge == 1", 5, "write = instead of ==");
        refused("a <> 1", 3, "write != instead of <>");
        refused("name = bob", 8, "text is written in quotes: \"bob\"");
        refused("name = 'bob'", 8, "double quotes");
        refused("name = \"bob", 8, "no closing quote");
        refused("a = 1 && b = 2", 7, "write and instead of &&");
        refused("a = 1 || b = 2", 7, "write or instead of ||");
        refused("!a = 1", 1, "write not instead of !");
        refused("a = 1 b = 2", 7, "expected and, or, or the end, not \"b\"");
        refused("a = 1)", 6, "there is no ( to this )");
        refused("b = 2 and (a = 1", 11, "there is no ) to this (");
        refused("(a = 1 b", 8, "expected and, or, or ), not \"b\"");
        refused("a = 1 and", 10, "expected a field");
        refused("a = 1 and or", 11, "one that is called or is written \"or\"");
        refused("a = 01", 5, "no JSON value");
        refused("a = [1, 2", 5, "no end to this [");
        refused("a = [1 2]", 5, "no JSON value");
        refused("b = 1 and a < null", 11, "null can be compared");
        refused("a %= 1", 1, "takes text");
        refused("\"\\x\" = 1", 1, "no text in JSON");
        refused("5 = a", 1, "expected a field");
        refused("a. = 1", 3, "expected a name after the dot");
        refused("a..b = 1", 3, "expected a name after the dot");
        refused("a.\"b = 1", 3, "no closing quote");
        refused("a .b = 1", 3, "expected one of");
        refused("a", 2, "expected one of");
    }

    #[test]
    fn deep_nesting_is_refused() {
        for (open, close) in [("(", ")"), ("not ", ""), ("all(", ")")] {
            let nested = |len: usize| format!("{}a = 1{}", open.repeat(len), close.repeat(len));
            assert!(nested(FILTER_TEXT_DEPTH_MAX - 1).parse::<Filter>().is_ok());
            let error = nested(100_000).parse::<Filter>().unwrap_err();
            assert!(error.message.contains("50 levels"), "{error}");
        }
        let brackets = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(brackets.parse::<Filter>().unwrap_err().message.contains("100 levels"));
    }

    /// Filters put together at random come back from their text; text put together at random is refused or
    /// read, and what was read comes back too.
    #[test]
    fn random_filters_and_random_text() {
        let mut random = Random(0x10c4_300d);
        for _ in 0..20_000 {
            let filter = random.filter(4);
            assert_eq!(filter.to_string().parse(), Ok(filter.clone()), "{filter}");
            let text = random.damaged(&filter.to_string());
            if let Ok(read) = text.parse::<Filter>() {
                assert_eq!(read.to_string().parse(), Ok(read), "{text:?}");
            }
        }
    }

    /// SplitMix64.
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % end as u64) as usize
        }

        fn filter(&mut self, depth: usize) -> Filter {
            let parts = |random: &mut Random| {
                (0..random.below(4)).map(|_| random.filter(depth - 1)).collect::<Vec<_>>()
            };
            match if depth == 0 { 0 } else { self.below(5) } {
                0 | 1 => Filter::Is(self.condition()),
                2 => Filter::All(parts(self)),
                3 => Filter::Any(parts(self)),
                _ => Filter::Not(Box::new(self.filter(depth - 1))),
            }
        }

        fn condition(&mut self) -> Condition {
            let fields = ["a", "all", "not", "größe", "", "a b", "\"", "x.y-z", "-", "7", "\n", "TRUE"];
            let values =
                ["1", "-1.50e3", "\"x\"", "\"\\\"\\\\\"", "null", "true", "[1,\"]\"]", "{\"a\":{}}", "\"(\""];
            loop {
                let names = 1 + self.below(3) / 2;
                let field = FieldPath::from_names((0..names).map(|_| fields[self.below(fields.len())]));
                let field = field.unwrap();
                let value = Json::read(values[self.below(values.len())], 9).unwrap();
                let operator = Operator::ALL[self.below(8)];
                if let Ok(condition) = Condition::new(field, operator, value) {
                    return condition;
                }
            }
        }

        fn damaged(&mut self, text: &str) -> String {
            let pieces = [
                "(", ")", "\"", "\\", "not ", " and ", "or", "=", "[", "}", ",", "all(", "é", "\0", "1e", "'",
            ];
            let mut chars: Vec<char> = text.chars().collect();
            for _ in 0..1 + self.below(3) {
                let at = self.below(chars.len() + 1);
                match self.below(3) {
                    0 => chars.truncate(at),
                    1 if at < chars.len() => drop(chars.remove(at)),
                    _ => {
                        let piece = pieces[self.below(pieces.len())];
                        chars.splice(at..at, piece.chars());
                    }
                }
            }
            chars.into_iter().collect()
        }
    }
}
