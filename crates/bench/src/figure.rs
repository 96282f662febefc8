//! A measured number and how a list of them is printed. Knows nothing of measuring.

/// One line of the result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) name: String,
    /// How much it was.
    pub(crate) value: f64,
    /// Of what.
    pub(crate) unit: &'static str,
    /// What to compare it with, or how it came about; may be empty.
    pub(crate) note: String,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Figure {
        Figure { name: name.into(), value, unit, note: String::new() }
    }

    pub(crate) fn note(self, note: impl Into<String>) -> Figure {
        Figure { note: note.into(), ..self }
    }

    /// Says what the figure is to be, behind what else is said of it.
    pub(crate) fn aim(self, aim: impl std::fmt::Display) -> Figure {
        let comma = if self.note.is_empty() { "" } else { "; " };
        Figure { note: format!("{}{comma}aim: {aim}", self.note), ..self }
    }
}

/// The figures for people: one a line, in columns.
pub(crate) fn table(figures: &[Figure]) -> String {
    let widest = |len: fn(&Figure) -> usize| figures.iter().map(len).max().unwrap_or_default();
    let name_len = widest(|figure| figure.name.chars().count());
    let value_len = widest(|figure| rounded(figure.value).len());
    let unit_len = widest(|figure| figure.unit.len());
    let line = |figure: &Figure| {
        let Figure { name, value, unit, note } = figure;
        let line = format!("{name:name_len$}  {:>value_len$} {unit:unit_len$}  {note}", rounded(*value));
        line.trim_end().to_owned()
    };
    figures.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The figures for programs.
pub(crate) fn json(figures: &[Figure]) -> String {
    // The debug form of printable text is its JSON form, and there is no other text here.
    let object = |Figure { name, value, unit, note }: &Figure| {
        format!(r#"  {{"name": {name:?}, "value": {value}, "unit": {unit:?}, "note": {note:?}}}"#)
    };
    format!("[\n{}\n]", figures.iter().map(object).collect::<Vec<_>>().join(",\n"))
}

/// About three digits.
fn rounded(value: f64) -> String {
    match value.abs() {
        size if size < 0.1 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figure> {
        vec![
            Figure::new("pair", 123.456, "ns"),
            Figure::new("long queue", 0.01234, "s").note("\"quoted\""),
            Figure::new("growth", 1.5, "MiB"),
        ]
    }

    #[test]
    fn a_table_has_columns() {
        let expected = "\
pair           123 ns
long queue  0.0123 s    \"quoted\"
growth        1.50 MiB";
        assert_eq!(table(&figures()), expected);
    }

    #[test]
    fn json_is_a_list_of_objects() {
        let expected = r#"[
  {"name": "pair", "value": 123.456, "unit": "ns", "note": ""},
  {"name": "long queue", "value": 0.01234, "unit": "s", "note": "\"quoted\""},
  {"name": "growth", "value": 1.5, "unit": "MiB", "note": ""}
]"#;
        assert_eq!(json(&figures()), expected);
    }
}
