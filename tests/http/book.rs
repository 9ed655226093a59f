//! The documentation against the program: reference pages are made from it, commands and settings on pages are there.
//!
//! `MORTISE_UPDATE_REFERENCE=1` writes the pages of `docs/reference`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::client::Request;
use crate::support::{Server, binary};
use crate::{book_errors, book_formats, book_requests};

const KEY: &str = "an admin key of the tests";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Output of a command of the program.
fn printed(arguments: &[&str]) -> Option<String> {
    let output = Command::new(binary())
        .args(arguments)
        .env_remove("COLUMNS")
        .output()
        .expect("run mortise");
    output
        .status
        .success()
        .then(|| String::from_utf8(output.stdout).expect("UTF-8"))
}

/// Help of each command, by its words.
pub(crate) fn helps() -> BTreeMap<Vec<String>, String> {
    let mut helps = BTreeMap::new();
    let mut left = vec![Vec::<String>::new()];
    while let Some(words) = left.pop() {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = printed(&arguments).unwrap_or_else(|| panic!("no help of {words:?}"));
        let commands = help.split("\nCommands:\n").nth(1).unwrap_or_default();
        for line in commands.lines().take_while(|line| !line.is_empty()) {
            // Descriptions go on further to the right.
            let name = line
                .strip_prefix("  ")
                .filter(|rest| !rest.starts_with(' '));
            let name = name.and_then(|rest| rest.split(' ').next());
            if let Some(name) = name.filter(|name| *name != "help") {
                left.push([&words[..], &[name.to_owned()]].concat());
            }
        }
        helps.insert(words, help);
    }
    helps
}

pub(crate) const MADE: &str =
    "A test makes this page from the program: `MORTISE_UPDATE_REFERENCE=1` writes it anew.\n";

fn command_line() -> String {
    let mut page = format!("# Command line\n\n{MADE}");
    for (words, help) in helps() {
        let name = ["mortise".to_owned()].into_iter().chain(words);
        let name = name.collect::<Vec<_>>().join(" ");
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    page
}

/// The table that a paragraph of the default file is about, written or commented.
fn table_of(paragraph: &str) -> Option<&str> {
    let mut lines = paragraph.lines().map(|line| line.trim_start_matches("# "));
    let line = lines.find(|line| line.starts_with('[') && line.trim_end().ends_with(']'))?;
    Some(line.trim_matches(['[', ']']))
}

fn configuration() -> String {
    let defaults = printed(&["config", "print-default"]).expect("the default file");
    let mut page = format!("# Configuration\n\n{MADE}");
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    for paragraph in defaults.trim().split("\n\n") {
        match (table_of(paragraph), sections.last_mut()) {
            (Some(table), Some((last, _))) if *last != table => {
                sections.push((table, vec![paragraph]));
            }
            (_, Some((_, paragraphs))) => paragraphs.push(paragraph),
            (_, None) => sections.push(("All keys", vec![paragraph])),
        }
    }
    for (title, paragraphs) in sections {
        let text = paragraphs.join("\n\n");
        let _ = write!(page, "\n## {title}\n\n```toml\n{text}\n```\n");
    }
    page
}

/// Routes of a document: method and path, summary, statuses.
fn routes_of(document: &Value) -> String {
    let mut table = "| route | what | statuses |\n|---|---|---|\n".to_owned();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let statuses = operation["responses"].as_object().expect("responses");
            let statuses: BTreeSet<&str> = statuses.keys().map(String::as_str).collect();
            let statuses = statuses.into_iter().collect::<Vec<_>>().join(" ");
            let summary = operation["summary"].as_str().unwrap_or_default();
            let _ = writeln!(
                table,
                "| `{} {path}` | {} | {statuses} |",
                method.to_uppercase(),
                summary.replace('|', "\\|"),
            );
        }
    }
    table
}

fn pages() -> Vec<(&'static str, String)> {
    let server = Server::configured(&format!("[admin]\nport = 0\nkey = {KEY:?}\n"));
    let line = server.wait_for_log(|line| line.contains("admin side on http://"));
    let (_, address) = line.split_once("http://").expect("an address");
    let end = address.find(['"', ' ']).unwrap_or(address.len());
    let document = Request::get("/v1/admin/openapi.json").header("x-admin-token", KEY);
    let admin = document.send(&address[..end]).ok();
    let api = server.get("/openapi.json").ok();
    let routes = format!(
        "# Routes\n\n{MADE}\nWith parameters, bodies and answers: [requests](requests.md) and [those to the admin side](admin-requests.md); for programs \
         `GET /openapi.json` and `GET /v1/admin/openapi.json`, [the contract](../api/contract.md).\n\n## The API\n\n{}\n## The admin side\n\n{}",
        routes_of(&api),
        routes_of(&admin),
    );
    vec![
        ("cli.md", command_line()),
        ("configuration.md", configuration()),
        ("routes.md", routes),
        ("requests.md", book_requests::page("Requests", &api)),
        (
            "admin-requests.md",
            book_requests::page("Requests to the admin side", &admin),
        ),
        ("model-families.md", book_formats::families()),
        ("formats.md", book_formats::formats()),
        ("metrics.md", metrics(&server.get("/metrics").text())),
        ("errors.md", book_errors::page()),
    ]
}

fn metrics(page: &str) -> String {
    let mut rows = format!(
        "# Metrics\n\n{MADE}\nThey are on `GET /metrics`; [metrics of requests](../metrics.md) says more of some. Families of parts \
         that are not configured are absent.\n\n| family | kind | what |\n|---|---|---|\n"
    );
    let mut about = "";
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            about = help.split_once(' ').map_or("", |(_, about)| about);
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|rest| rest.split_once(' '))
        {
            let about = about.trim_end_matches('.');
            let _ = writeln!(rows, "| `{name}` | {kind} | {about} |");
        }
    }
    rows
}

#[test]
fn feature_z14_pages_of_the_reference_are_those_that_the_program_makes() {
    let folder = root().join("docs/reference");
    for (name, page) in pages() {
        let path = folder.join(name);
        if std::env::var_os("MORTISE_UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, page).expect("write a page");
            continue;
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = there
            .lines()
            .zip(page.lines())
            .find(|(old, new)| old != new);
        assert!(
            there == page,
            "docs/reference/{name} is not what the program makes; MORTISE_UPDATE_REFERENCE=1 writes it. First: {differs:?}"
        );
    }
}

/// Blocks of code in a language, on all pages: the page and the text.
fn blocks(language: &str) -> Vec<(String, String)> {
    let mut left = vec![root().join("docs"), root().join("README.md")];
    left.push(root().join("examples/deployment/README.md"));
    let mut blocks = Vec::new();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("read a folder");
            left.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).expect("a page");
            let fence = format!("\n```{language}\n");
            for rest in text.split(&fence).skip(1) {
                let block = rest.split("\n```").next().unwrap_or_default();
                blocks.push((path.display().to_string(), block.to_owned()));
            }
        }
    }
    blocks
}

/// Fault of a command line of the program, by the help of its commands; `None` if it is right.
fn wrong_command(line: &str, helps: &BTreeMap<Vec<String>, String>) -> Option<String> {
    let line = line.split(" #").next().unwrap_or_default();
    let line = line.split([';', '|', '>', ')']).next().unwrap_or_default();
    let line = line.split(" && ").next().unwrap_or_default();
    let mut command: Vec<String> = Vec::new();
    let mut words = line.split_whitespace().skip(1).peekable();
    while let Some(word) = words.peek() {
        let further = [&command[..], &[(*word).to_owned()]].concat();
        if !helps.contains_key(&further) {
            break;
        }
        command = further;
        words.next();
    }
    if command.is_empty() {
        let first = words.peek().copied().unwrap_or_default();
        let known = first.is_empty() || first.starts_with("--") || first == "help";
        return (!known).then(|| format!("there is no command {first}"));
    }
    let help = &helps[&command];
    for word in words.filter(|word| word.starts_with("--")) {
        let flag = word.split('=').next().unwrap_or_default();
        let is_there =
            |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '-');
        let known = help
            .match_indices(flag)
            .any(|(at, _)| is_there(&help[at + flag.len()..]));
        if flag.len() > 2 && !known && flag != "--help" {
            return Some(format!("`mortise {}` has no {flag}", command.join(" ")));
        }
    }
    None
}

#[test]
fn feature_z14_commands_on_pages_are_commands_of_the_program() {
    let helps = helps();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (page, block) in blocks("sh") {
        let block = block.replace("\\\n", " ");
        let lines = block.lines().map(str::trim);
        for line in lines.filter(|line| line.starts_with("mortise ")) {
            count += 1;
            if let Some(problem) = wrong_command(line, &helps) {
                wrong.push(format!("{page}: {line}: {problem}"));
            }
        }
    }
    assert!(count > 20, "{count} commands");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The check itself finds what is wrong.
    for line in [
        "mortise serf",
        "mortise serve --prot 1",
        "mortise keys list --absent",
    ] {
        assert!(wrong_command(line, &helps).is_some(), "{line}");
    }
    assert_eq!(
        wrong_command("mortise serve --port 1 # --absent", &helps),
        None
    );
}

#[test]
fn feature_z14_settings_on_pages_are_settings_of_the_program() {
    let defaults = printed(&["config", "print-default"]).expect("the default file");
    let tables: BTreeSet<&str> = defaults
        .lines()
        .filter_map(|line| line.trim_start_matches(['#', ' ']).strip_prefix('['))
        .filter_map(|line| line.trim_start_matches('[').split([']', '.']).next())
        .collect();
    let folder = tempfile::tempdir().expect("make a folder");
    let path = folder.path().join("mortise.toml");
    let (mut wrong, mut count) = (Vec::new(), 0);
    for (page, block) in blocks("toml") {
        let Ok(table) = block.parse::<toml::Table>() else {
            continue;
        };
        if table.is_empty() || !table.keys().all(|key| tables.contains(key.as_str())) {
            continue;
        }
        count += 1;
        std::fs::write(&path, &block).expect("write");
        let output = Command::new(binary())
            .args(["config", "check", path.to_str().expect("UTF-8")])
            .output()
            .expect("run mortise");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        // Files, variables and keys that a page names are not there; what it calls a setting must be one.
        if ["unknown field", "did you mean", "unknown variant"]
            .iter()
            .any(|word| told.contains(word))
        {
            wrong.push(format!("{page}: {told}"));
        }
    }
    assert!(count > 20, "{count} settings");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
