//! JSON from a file or standard input, and text to standard output.

use std::io::{Read as _, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;

/// Largest input that is read.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Write to standard output.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write the output")
}

/// Write JSON to standard output, for people to read.
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// Write a result as JSON, or as the text that people read.
pub fn print_as(
    as_json: bool,
    value: &Value,
    text: impl FnOnce(&Value) -> String,
) -> anyhow::Result<()> {
    match as_json {
        true => print_json(value),
        false => print(&text(value)),
    }
}

/// The JSON of an offline command, as `T`.
pub fn read<T: for<'de> Deserialize<'de>>(input: Option<&Path>) -> anyhow::Result<T> {
    let mut text = String::new();
    let read = match input {
        Some(path) => std::fs::File::open(path)
            .with_context(|| format!("cannot open `{}`", path.display()))?
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
        None => std::io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES)
            .read_to_string(&mut text),
    };
    read.context("cannot read the input as UTF-8")?;
    serde_json::from_str(&text).context("the input is not what the command reads; see --help")
}
