//! What a guide shows: blocks of one kind, the commands in them, and what each is said to print. Knows nothing of clusters.

/// A section of a guide, and the guide without it.
pub(crate) fn section<'a>(text: &'a str, title: &str) -> (&'a str, String) {
    let begins =
        text.find(&format!("\n## {title}\n")).unwrap_or_else(|| panic!("there is no section {title}"));
    let rest = &text[begins + 1..];
    let len = rest.find("\n## ").unwrap_or(rest.len());
    (&rest[..len], [&text[..begins], &rest[len..]].concat())
}

/// The lines of all blocks of one kind.
pub(crate) fn fenced<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    let fence = format!("```{kind}");
    let mut inside = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        match line {
            _ if line == fence => inside = true,
            "```" => inside = false,
            _ if inside => lines.push(line),
            _ => {}
        }
    }
    lines
}

/// The commands that are typed, and the output of each.
pub(crate) fn commands(text: &str) -> Vec<(String, String)> {
    let mut lines = fenced(text, "console").into_iter().peekable();
    let mut commands = Vec::new();
    while let Some(line) = lines.next() {
        let command = line.strip_prefix("$ ").unwrap_or_else(|| panic!("not a command: {line}"));
        let mut command = command.to_owned();
        if command.contains("<< 'END'") {
            while !command.ends_with("\nEND") {
                command += &format!("\n{}", lines.next().unwrap());
            }
        }
        let mut expected = String::new();
        while let Some(output) = lines.next_if(|line| !line.starts_with("$ ")) {
            expected += &format!("{output}\n");
        }
        commands.push((command, expected));
    }
    commands
}

/// Whether a text is as expected; … stands for anything.
pub(crate) fn matches(text: &str, expected: &str) -> bool {
    let mut parts = expected.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, between)) = parts.split_last() else { return rest.is_empty() };
    for part in between {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
