//! The commands on the pages of `docs/plugins`, as an author would type them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::binary;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines that begin with `$ ` in the `console` blocks of a page, as one script.
fn commands(page: &str) -> String {
    let text = std::fs::read_to_string(root().join("docs/plugins").join(page)).expect("the page");
    let blocks = text.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let commands = lines.filter_map(|line| line.strip_prefix("$ "));
    commands.map(|command| format!("{command}\n")).collect()
}

/// Type the commands of a page in an empty folder; what they print.
fn follow(page: &str) -> String {
    let script = commands(page);
    assert!(script.lines().count() >= 4, "{page} has lost its commands");
    let folder = tempfile::tempdir().expect("make a folder");
    // The dependencies of all projects are the same and are built once.
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).join("authors");
    let name = page.trim_end_matches(".md");
    let target = folder.path().join(format!("my-{name}")).join("target");
    let prelude = format!(
        "set -eu\nmkdir -p {shared:?}\nPATH=\"{}:$PATH\"\n",
        binary().parent().expect("a folder").display()
    );
    // `cargo` writes to the shared folder, which stands at the project's `target`.
    let script = script.replacen(
        "\ncargo build",
        &format!("\nln -s {shared:?} {target:?}\ncargo build"),
        1,
    );
    let output = Command::new("sh")
        .arg("-c")
        .arg(prelude + &script)
        .current_dir(folder.path())
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_TARGET_DIR")
        .output()
        .expect("run sh");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{page}:\n{script}\n{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    printed
}

#[test]
fn the_page_on_policies_leads_from_nothing_to_a_refusal() {
    let printed = follow("policy.md");
    assert!(printed.contains("3 cases passed"), "{printed}");
    assert!(printed.contains("tenant_blocked"), "{printed}");
    assert!(printed.contains("plugins/my_policy.wasm"), "{printed}");
}

#[test]
fn the_page_on_chat_templates_works() {
    assert!(follow("chat-template.md").contains("3 cases passed"));
}

#[test]
fn the_page_on_output_parsers_works() {
    assert!(follow("output-parser.md").contains("3 cases passed"));
}

#[test]
fn the_page_on_grammars_works() {
    assert!(follow("grammar.md").contains("2 cases passed"));
}

#[test]
fn the_page_on_tools_works() {
    let printed = follow("tool.md");
    assert!(printed.contains("4 cases passed"), "{printed}");
    assert!(printed.contains(r#"\"words\":3"#), "{printed}");
}
