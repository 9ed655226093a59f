//! Page of error codes: those that the sources can answer with, in every form in which they stand there.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::book::{MADE, root};

const STATUSES: [(&str, u16); 22] = [
    ("BAD_REQUEST", 400),
    ("UNAUTHORIZED", 401),
    ("FORBIDDEN", 403),
    ("NOT_FOUND", 404),
    ("METHOD_NOT_ALLOWED", 405),
    ("REQUEST_TIMEOUT", 408),
    ("CONFLICT", 409),
    ("GONE", 410),
    ("PAYLOAD_TOO_LARGE", 413),
    ("URI_TOO_LONG", 414),
    ("UNSUPPORTED_MEDIA_TYPE", 415),
    ("RANGE_NOT_SATISFIABLE", 416),
    ("UNPROCESSABLE_ENTITY", 422),
    ("UPGRADE_REQUIRED", 426),
    ("TOO_MANY_REQUESTS", 429),
    ("REQUEST_HEADER_FIELDS_TOO_LARGE", 431),
    ("INTERNAL_SERVER_ERROR", 500),
    ("NOT_IMPLEMENTED", 501),
    ("BAD_GATEWAY", 502),
    ("SERVICE_UNAVAILABLE", 503),
    ("GATEWAY_TIMEOUT", 504),
    ("INSUFFICIENT_STORAGE", 507),
];

/// Expressions for codes that other places make: those are read there.
const PASSED_ON: [&str; 4] = ["code", "code.to_owned()", "error.code()", "&denial.code"];

/// Kinds of errors that are answered with other codes than their own.
const REPLACED: [(&str, &str); 1] = [("LibraryError", "Hub")];

/// Codes that the default policies answer with.
const OF_POLICIES: [&str; 2] = ["invalid_api_key", "rate_limit_exceeded"];

/// Bytes around a code in which its status is looked for.
const NEAR: usize = 700;

/// Codes with their statuses, and places that cannot be read.
#[derive(Default)]
struct Codes {
    found: BTreeMap<String, BTreeSet<u16>>,
    unread: Vec<String>,
}

/// Sources below a folder: path and text, without unit tests.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let (mut left, mut sources) = (vec![root().join(folder)], Vec::new());
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("read a folder");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            sources.push((path, text));
        }
    }
    sources
}

/// The code that a text begins with, in quotes.
fn literal(text: &str) -> Option<&str> {
    let code = text.trim_start().strip_prefix('"')?.split('"').next()?;
    let is_code = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    (code.len() > 3 && code.chars().all(is_code)).then_some(code)
}

/// The status that a text begins with, as in `NOT_FOUND, …`.
fn status(text: &str) -> Option<u16> {
    let end = text.find(|letter: char| !letter.is_ascii_uppercase() && letter != '_');
    let name = &text[..end.unwrap_or(text.len())];
    STATUSES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, status)| *status)
}

/// Statuses in a text, in order.
fn statuses(text: &str) -> impl Iterator<Item = u16> {
    text.split("StatusCode::").skip(1).filter_map(status)
}

/// Arguments of a call whose parenthesis is open.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut begin, mut quoted) = (0, 0, false);
    let mut arguments = Vec::new();
    for (at, letter) in text.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                arguments.push(text[begin..at].trim());
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                arguments.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    arguments
}

/// The end of a text, and the beginning, of at most so many bytes.
fn end(text: &str, most: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(most))..]
}

fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

impl Codes {
    fn add(&mut self, code: &str, status: Option<u16>) {
        self.found
            .entry(code.to_owned())
            .or_default()
            .extend(status);
    }

    /// Read `StatusCode::NOT_FOUND, "unknown_route"`.
    fn pairs(&mut self, text: &str) {
        for rest in text.split("StatusCode::").skip(1) {
            let (Some(status), Some((_, code))) = (status(rest), rest.split_once(',')) else {
                continue;
            };
            if let Some(code) = literal(code) {
                self.add(code, Some(status));
            }
        }
    }

    /// Read calls of a function whose argument `index` is a code.
    fn calls(&mut self, path: &Path, text: &str, name: &str, index: usize, fixed: Option<u16>) {
        for (at, _) in text.match_indices(name) {
            let before = text[..at].trim_end();
            let longer =
                text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
            if longer || before.ends_with("fn") {
                continue;
            }
            let arguments = arguments(&text[at + name.len()..]);
            let Some(code) = arguments.get(index) else {
                continue;
            };
            match literal(code) {
                Some(code) => {
                    let own = arguments
                        .iter()
                        .find_map(|one| status(one.strip_prefix("StatusCode::")?));
                    let near = || {
                        end(before, NEAR)
                            .rsplit_once("= StatusCode::")
                            .or_else(|| end(before, NEAR).rsplit_once("= http::StatusCode::"))
                    };
                    let near = || status(near()?.1);
                    self.add(code, fixed.or(own).or_else(near));
                }
                None if PASSED_ON.contains(code) || *code == "\"\"" => {}
                // Other functions of the name.
                None if fixed.is_some() => {}
                None => self.unread.push(format!("{}: {code}", path.display())),
            }
        }
    }

    /// Read `code: "…"` and `code = "…"`: refusals of a request, unless a status stands near.
    fn fields(&mut self, path: &Path, text: &str) {
        for mark in [" code: ", ".code = "] {
            for (at, _) in text.match_indices(mark) {
                let rest = &text[at + mark.len()..];
                if let Some(code) = literal(rest) {
                    let (before, after) = (end(&text[..at], NEAR / 4), beginning(rest, NEAR / 2));
                    let number = |text: &str| text.split("status: ").nth(1)?.get(..3)?.parse().ok();
                    let own = number(after).or_else(|| number(before));
                    let near = || statuses(before).last().or_else(|| statuses(after).next());
                    self.add(code, own.or_else(near).or(Some(400)));
                } else if mark == ".code = " {
                    let value = rest.split(';').next().unwrap_or_default();
                    if !PASSED_ON.contains(&value) {
                        self.unread.push(format!("{}: {value}", path.display()));
                    }
                }
            }
        }
    }

    /// Read codes of the kinds of an error, with the statuses that matches on the kinds give them.
    fn kinds(&mut self, text: &str, all: &[(PathBuf, String)]) {
        let Some((before, body)) = text.split_once("fn code(&self) -> &'static str {") else {
            return;
        };
        let error = before.rsplit("impl ").next().unwrap_or_default();
        let error = error.split(' ').next().unwrap_or_default();
        let body = body.split("\n    }\n").next().unwrap_or_default();
        let mut kinds: Vec<&str> = Vec::new();
        for arm in body.split("Self::").skip(1) {
            kinds.push(arm.split([' ', '(', '{']).next().unwrap_or_default());
            let Some(code) = arm.split_once("=> ").and_then(|(_, code)| literal(code)) else {
                continue;
            };
            let drained = kinds.drain(..);
            let kinds: Vec<&str> = drained
                .filter(|kind| !REPLACED.contains(&(error, *kind)))
                .collect();
            if kinds.is_empty() {
                continue;
            }
            let found: BTreeSet<u16> = kinds
                .into_iter()
                .flat_map(|kind| of_kind(error, kind, all))
                .collect();
            match found.is_empty() {
                // What no match names is answered as a failure of this server.
                true => self.add(code, Some(500)),
                false => found
                    .into_iter()
                    .for_each(|status| self.add(code, Some(status))),
            }
        }
    }
}

/// Statuses that matches give a kind of error.
fn of_kind(error: &str, kind: &str, all: &[(PathBuf, String)]) -> Vec<u16> {
    let mut found = Vec::new();
    for (_, text) in all {
        let short = format!("use {error} as E;");
        let name = if text.contains(&short) { "E" } else { error };
        for (at, pattern) in text.match_indices(&format!("{name}::{kind}")) {
            let rest = &text[at + pattern.len()..];
            if rest.starts_with(|letter: char| letter.is_alphanumeric()) {
                continue;
            }
            // The other patterns of the arm lie between.
            let Some((patterns, value)) = rest.split_once("=>") else {
                continue;
            };
            let value = value.trim_start().trim_start_matches(['{', '(', ' ', '\n']);
            if patterns.len() < NEAR
                && !patterns.contains(';')
                && let Some(value) = value.strip_prefix("StatusCode::")
            {
                found.extend(status(value));
            }
        }
    }
    found
}

/// All codes of the sources. Fails on a place whose code cannot be read.
fn codes() -> BTreeMap<String, BTreeSet<u16>> {
    let mut all = sources("host");
    all.retain(|(path, _)| {
        !path
            .components()
            .any(|part| part.as_os_str() == "tests" || part.as_os_str() == "tests.rs")
    });
    for (_, text) in &mut all {
        let end = text.find("#[cfg(test)]\nmod").unwrap_or(text.len());
        text.truncate(end);
    }
    let mut codes = Codes::default();
    for (path, text) in &all {
        let lies_in = |folder: &str| path.starts_with(root().join(folder));
        codes.pairs(text);
        codes.calls(path, text, "Problem::new(", 1, None);
        if lies_in("host/service") {
            codes.calls(path, text, "refuse(", 1, Some(400));
        }
        if lies_in("host/api") {
            codes.calls(path, text, "unavailable(", 0, Some(503));
        }
        if ["api", "admin", "http", "service", "identity", "spend"]
            .iter()
            .any(|room| lies_in(&format!("host/{room}")))
        {
            codes.fields(path, text);
        }
        codes.kinds(text, &all);
    }
    // A constant, beside the status that is matched to it.
    codes.add("invalid_schema", Some(422));
    // The statuses are those of the library that reads handshakes.
    for status in [400, 405, 426] {
        codes.add("malformed_handshake", Some(status));
    }
    assert!(
        codes.unread.is_empty(),
        "codes that are no literals: {:#?}",
        codes.unread
    );
    codes.found
}

/// The page of error codes.
pub(crate) fn page() -> String {
    let mut page = format!(
        "# Error codes\n\n{MADE}\n`error.code` of an answer, with the statuses that it comes with. Policies add codes of their own; \
         [the life cycle](../lifecycle.md#errors) says more of models that are not loaded. Messages say what was wrong and what to do.\n\n\
         | code | status |\n|---|---|\n"
    );
    for (code, statuses) in codes() {
        assert!(!statuses.is_empty(), "`{code}` has no status");
        let statuses: Vec<String> = statuses.iter().map(u16::to_string).collect();
        let _ = writeln!(page, "| `{code}` | {} |", statuses.join(", "));
    }
    page
}

/// Codes that the suites find in answers.
fn answered() -> BTreeSet<String> {
    let mut answered = BTreeSet::new();
    for (_, text) in sources("tests") {
        for rest in text.split("[\"error\"][\"code\"]").skip(1) {
            let rest = rest.trim_start_matches(|letter: char| {
                !letter.is_alphanumeric() && letter != '"' && letter != ';'
            });
            let rest = rest.strip_prefix("json!(").unwrap_or(rest);
            answered.extend(literal(rest).map(str::to_owned));
        }
        for rest in text.split("error(&").skip(1) {
            let arguments = arguments(rest);
            if let [_, number, code, ..] = arguments[..]
                && number.parse::<u16>().is_ok()
            {
                answered.extend(literal(code).map(str::to_owned));
            }
        }
    }
    answered
}

#[test]
fn feature_z14_codes_of_answers_are_on_the_page() {
    let codes = codes();
    let answered = answered();
    assert!(answered.len() > 25, "{} codes", answered.len());
    let missing: Vec<&String> = answered
        .iter()
        .filter(|code| !codes.contains_key(*code) && !OF_POLICIES.contains(&code.as_str()))
        .collect();
    assert!(missing.is_empty(), "codes that the page lacks: {missing:?}");
    // The forms are read that codes have.
    for (code, status) in [
        ("unknown_route", 404),
        ("modality_unsupported", 400),
        ("unknown_parameter", 400),
        ("model_unavailable", 503),
        ("no_room", 507),
        ("model_unloaded", 503),
        ("content_filter", 400),
        ("missing_required_parameter", 400),
    ] {
        assert!(codes[code].contains(&status), "{code}: {:?}", codes[code]);
    }
}
