//! The text format of Prometheus, line by line. Knows nothing of what is counted.

use std::fmt::{Arguments, Display, Write};

/// The text as far as it is written.
#[derive(Debug, Default)]
pub(super) struct Text(String);

impl Text {
    /// Begins a family of samples.
    pub(super) fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}"));
    }

    /// A family with one sample.
    pub(super) fn single(&mut self, name: &str, help: &str, kind: &str, value: impl Display) {
        self.head(name, help, kind);
        self.line(format_args!("{name} {value}"));
    }

    /// A family with one sample a label value.
    pub(super) fn by_label<'a, V: Display>(
        &mut self,
        (name, help, kind): (&str, &str, &str),
        label: &str,
        samples: impl IntoIterator<Item = (&'a str, V)>,
    ) {
        self.head(name, help, kind);
        for (value, count) in samples {
            self.line(format_args!("{name}{{{label}=\"{}\"}} {count}", escape(value)));
        }
    }

    pub(super) fn line(&mut self, content: Arguments<'_>) {
        writeln!(self.0, "{content}").expect("a string takes everything");
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        let mut text = Text::default();
        text.by_label(("x", "X.", "gauge"), "namespace", [("a\"b\\\n", 3)]);
        assert_eq!(text.into_string(), "# HELP x X.\n# TYPE x gauge\nx{namespace=\"a\\\"b\\\\\\n\"} 3\n");
    }
}
