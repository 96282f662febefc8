//! From the text of a script to its words. Knows nothing of what they mean together.

use super::Misread;
use serde_json::{Number, Value};

/// A word with its place in the text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) word: Word,
    pub(super) start: usize,
    pub(super) end: usize,
    /// It is the first of its line, so it may begin a statement.
    pub(super) begins_line: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Word {
    Name(Box<str>),
    Literal(Value),
    Sign(&'static str),
    End,
}

/// The longer ones first.
const SIGNS: [&str; 27] = [
    "==", "!=", "<=", ">=", "&&", "||", "++", "--", "+=", "-=", "?.", "{", "}", "(", ")", "[", "]", ";", ":",
    ",", ".", "=", "<", ">", "!", "+", "-",
];

/// The words of a text, the last of which is [`Word::End`].
pub(super) fn words(text: &str) -> Result<Vec<Token>, Misread> {
    let mut lexer = Lexer { text, at: 0, begins_line: true };
    let mut tokens = Vec::new();
    loop {
        lexer.skip()?;
        let (start, begins_line) = (lexer.at, lexer.begins_line);
        lexer.begins_line = false;
        let word = lexer.word()?;
        let is_end = word == Word::End;
        tokens.push(Token { word, start, end: lexer.at, begins_line });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    begins_line: bool,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn wrong<T>(&self, reason: impl Into<String>) -> Result<T, Misread> {
        Err(Misread { reason: reason.into(), at: self.at })
    }

    /// White space and comments.
    fn skip(&mut self) -> Result<(), Misread> {
        loop {
            let rest = self.rest();
            if let Some(char) = rest.chars().next().filter(|char| char.is_whitespace()) {
                self.begins_line |= char == '\n';
                self.at += char.len_utf8();
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let Some(end) = rest.find("*/") else { return self.wrong("a comment does not end") };
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn word(&mut self) -> Result<Word, Misread> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Word::End) };
        if first == '_' || first == '$' || first.is_alphabetic() {
            return Ok(self.name());
        }
        if first.is_ascii_digit() {
            return self.number();
        }
        if first == '\'' || first == '"' {
            return self.string(first);
        }
        match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(Word::Sign(sign))
            }
            None => self.wrong(format!("unexpected character [{first}]")),
        }
    }

    fn name(&mut self) -> Word {
        let rest = self.rest();
        let is_part = |char: char| char == '_' || char == '$' || char.is_alphanumeric();
        let len = rest.find(|char| !is_part(char)).unwrap_or(rest.len());
        let name = &rest[..len];
        let word = match name {
            "true" => Word::Literal(Value::Bool(true)),
            "false" => Word::Literal(Value::Bool(false)),
            "null" => Word::Literal(Value::Null),
            _ => Word::Name(name.into()),
        };
        self.at += len;
        word
    }

    /// Digits, perhaps with a fraction; the letters that say which type it is make no difference here.
    fn number(&mut self) -> Result<Word, Misread> {
        let bytes = self.rest().as_bytes();
        let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let whole = digits(0);
        let fraction = match bytes.get(whole) {
            Some(b'.') if digits(whole + 1) > 0 => 1 + digits(whole + 1),
            _ => 0,
        };
        let text = &self.rest()[..whole + fraction];
        let number = match text.parse::<i64>() {
            Ok(number) => Some(Number::from(number)),
            Err(_) if fraction > 0 => text.parse().ok().and_then(Number::from_f64),
            Err(_) => None,
        };
        let Some(number) = number else { return self.wrong(format!("invalid number [{text}]")) };
        let suffix = bytes.get(whole + fraction).is_some_and(|byte| b"lLfFdDgG".contains(byte));
        self.at += whole + fraction + usize::from(suffix);
        if self.rest().starts_with(|char: char| char == '_' || char.is_alphanumeric()) {
            return self.wrong("a number is followed by letters");
        }
        Ok(Word::Literal(Value::Number(number)))
    }

    fn string(&mut self, quote: char) -> Result<Word, Misread> {
        let mut value = String::new();
        let mut chars = self.rest().char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            match char {
                _ if char == quote => {
                    self.at += at + 1;
                    return Ok(Word::Literal(Value::String(value)));
                }
                '\n' => break,
                '\\' => {
                    let escaped = chars.next().map(|(_, char)| char);
                    let read = match escaped {
                        Some('u') => {
                            let code: String = chars.by_ref().take(4).map(|(_, char)| char).collect();
                            let code =
                                if code.len() == 4 { u32::from_str_radix(&code, 16).ok() } else { None };
                            code.and_then(char::from_u32)
                        }
                        other => other.and_then(escape),
                    };
                    let Some(char) = read else { return self.wrong("a string has an unknown escape") };
                    value.push(char);
                }
                _ => value.push(char),
            }
        }
        self.wrong("a string does not end")
    }
}

fn escape(char: char) -> Option<char> {
    Some(match char {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        '\\' | '\'' | '"' | '$' => char,
        _ => return None,
    })
}
