//! Length of functions, read from source as rustfmt leaves it: a body closes at the indentation at
//! which its `fn` stands.

use crate::source::code_only;

/// Lines of a function at most, signature and closing brace included.
pub(crate) const FUNCTION_LINES: usize = 70;

/// Functions longer than [`FUNCTION_LINES`]: name, first line, length.
pub(crate) fn long_functions(text: &str) -> Vec<(String, usize, usize)> {
    let code = code_only(text);
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = declared(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let closing = lines[number..].iter().position(|later| {
            let end = later.trim_end();
            later.len() - later.trim_start().len() == indent
                && (end.ends_with('}') || end.ends_with(';'))
        });
        let length = closing.map_or(1, |closing| closing + 1);
        if length > FUNCTION_LINES {
            found.push((name.to_owned(), number + 1, length));
        }
    }
    found
}

/// The name of the function that a line declares.
fn declared(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let mut before = words.by_ref().take_while(|word| *word != "fn");
    let qualified = before.all(|word| {
        word.starts_with("pub")
            || word.starts_with("in")
            || matches!(
                word,
                "const" | "async" | "unsafe" | "extern" | "default" | "crate)"
            )
    });
    if !qualified {
        return None;
    }
    let name = words.next()?;
    name.split(['(', '<']).next()
}

#[test]
fn a_function_of_71_lines_is_found() {
    let with_body = |lines: usize| {
        let body = "        work();\n".repeat(lines - 2);
        format!("impl A {{\n    pub(crate) async fn long(\u{26}self) {{\n{body}    }}\n}}\n")
    };
    assert_eq!(long_functions(&with_body(70)), []);
    let found = long_functions(&with_body(71));
    assert_eq!(found, [("long".to_owned(), 2, 71)]);
}

#[test]
fn signatures_over_lines_count_and_declarations_do_not() {
    let body = "    work();\n".repeat(68);
    let text =
        format!("trait A {{\n    fn declared(&self);\n}}\nfn long(\n    a: u8,\n) {{\n{body}}}\n");
    assert_eq!(long_functions(&text), [("long".to_owned(), 4, 72)]);
}
