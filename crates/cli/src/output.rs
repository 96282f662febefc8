//! Text on its way to the terminal or to another program. Knows nothing of commands.

use lockwood_client::text;
use std::{
    fmt::Write as _,
    io::{ErrorKind, Write},
    process::ExitCode,
};

/// A cell longer than this is cut.
const CELL_LEN_MAX: usize = 60;

/// Prints, and is done.
pub(crate) fn print(text: &str) -> anyhow::Result<ExitCode> {
    write(text)?;
    Ok(ExitCode::SUCCESS)
}

/// False if nobody reads any more, as when the output goes to `head`.
pub(crate) fn write(text: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Anything as one line of JSON.
pub(crate) fn json_line(value: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(value).expect("answers can be written");
    escape_steering(&text) + "\n"
}

/// JSON with a line for every member, numbers and order untouched.
pub(crate) fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let mut rest = json;
    let mut depth = 0;
    while let Some(char) = rest.chars().next() {
        let len = token_len(rest, char);
        let (token, after) = rest.split_at(len);
        rest = after.trim_start();
        match char {
            '{' | '[' if rest.starts_with(['}', ']']) => out.push(char),
            '{' | '[' => {
                depth += 1;
                out.push(char);
                indent(&mut out, depth);
            }
            '}' | ']' => {
                if !out.ends_with(['{', '[']) {
                    depth -= 1;
                    indent(&mut out, depth);
                }
                out.push(char);
            }
            ',' => {
                out.push(',');
                indent(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => out.push_str(&escape_steering(token)),
        }
    }
    out
}

fn indent(out: &mut String, depth: usize) {
    write!(out, "\n{:1$}", "", depth * 2).expect("a string takes all");
}

/// How long the token is that the text starts with.
fn token_len(text: &str, first: char) -> usize {
    match first {
        '{' | '}' | '[' | ']' | ',' | ':' => 1,
        '"' => {
            let bytes = text.as_bytes();
            let mut at = 1;
            while at < bytes.len() && bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            (at + 1).min(bytes.len())
        }
        _ => text.find(|char: char| ",]}: \n\r\t".contains(char)).unwrap_or(text.len()).max(1),
    }
}

/// JSON that says the same and cannot steer the terminal it is shown in.
fn escape_steering(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for char in json.chars() {
        match text::steers(char) {
            true => char.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                write!(out, "\\u{unit:04x}").expect("a string takes all");
            }),
            false => out.push(char),
        }
    }
    out
}

/// Rows with their columns one below the other.
#[derive(Debug, Default)]
pub(crate) struct Table {
    header: Vec<String>,
    widths: Vec<usize>,
    /// The header that was printed last.
    printed: Option<Vec<String>>,
}

impl Table {
    /// The rows as text; the header is repeated only if it has changed, and columns never get narrower.
    pub(crate) fn render(&mut self, header: &[String], rows: &[Vec<String>]) -> String {
        let header: Vec<String> = header.iter().map(|name| cut(name)).collect();
        let rows: Vec<Vec<String>> =
            rows.iter().map(|row| row.iter().map(|cell| cut(cell)).collect()).collect();
        if self.header != header {
            self.widths = header.iter().map(|name| name.chars().count()).collect();
            self.header = header;
        }
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut out = String::new();
        if self.printed.as_ref() != Some(&self.header) {
            let header = self.header.clone();
            self.line(&mut out, &header);
            self.printed = Some(header);
        }
        rows.iter().for_each(|row| self.line(&mut out, row));
        out
    }

    fn line(&self, out: &mut String, cells: &[String]) {
        let mut line = String::new();
        for (width, cell) in self.widths.iter().zip(cells) {
            write!(line, "{cell:width$}  ").expect("a string takes all");
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
}

fn cut(cell: &str) -> String {
    let cell = text::plain(cell);
    match cell.char_indices().nth(CELL_LEN_MAX) {
        Some((end, _)) => format!("{}…", &cell[..end]),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_laid_out_and_nothing_else() {
        let text = r#"{"z":1.50, "a":[1,{"x":null}],"e":{},"l":[ ],"s":"a,\"{b"}"#;
        assert_eq!(
            pretty(text),
            "{\n  \"z\": 1.50,\n  \"a\": [\n    1,\n    {\n      \"x\": null\n    }\n  ],\n  \"e\": {},\n  \
             \"l\": [],\n  \"s\": \"a,\\\"{b\"\n}"
        );
        assert_eq!(pretty("7"), "7");
        assert_eq!(pretty("\"\u{202e}\u{7f}\""), "\"\\u202e\\u007f\"");
    }

    #[test]
    fn columns_stand_below_each_other() {
        let mut table = Table::default();
        let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            table.render(&row(&["key", "name"]), &[row(&["order:42", "é\n"]), row(&["1", ""])]),
            "key       name\norder:42  é\\n\n1\n"
        );
        assert_eq!(table.render(&row(&["key", "name"]), &[row(&["2", "x"])]), "2         x\n");
        assert_eq!(table.render(&row(&["key", "age"]), &[row(&["2", "3"])]), "key  age\n2    3\n");
        assert_eq!(cut(&"é".repeat(99)).chars().count(), CELL_LEN_MAX + 1);
    }
}
