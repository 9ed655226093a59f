//! A plugin project: its language, the command that builds it, and the file that is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::args::PluginDevArgs;

/// Project that is built again and again.
#[derive(Debug)]
pub(crate) struct Project {
    pub(crate) folder: PathBuf,
    /// Name of the plugin, which is that of its file.
    pub(crate) name: String,
    /// Command line of the build.
    pub(crate) command: String,
    /// File that is built.
    pub(crate) output: PathBuf,
}

impl Project {
    /// The project of a folder.
    pub(crate) fn of(args: &PluginDevArgs) -> anyhow::Result<Self> {
        let folder = args.project.clone();
        let (command, output) = match (&args.build, &args.output) {
            (Some(command), Some(output)) => (command.clone(), folder.join(output)),
            (_, output) => {
                let (command, built) = of_language(&folder)?;
                (
                    command,
                    output.as_ref().map_or(built, |output| folder.join(output)),
                )
            }
        };
        let name = output.file_stem().unwrap_or_default();
        Ok(Self {
            name: name.to_string_lossy().into_owned(),
            folder,
            command,
            output,
        })
    }

    /// Run the build. What it prints is shown.
    pub(crate) fn build(&self) -> anyhow::Result<()> {
        let status = Command::new("sh")
            .args(["-c", &self.command])
            .current_dir(&self.folder)
            .status()
            .with_context(|| format!("cannot run `{}`", self.command))?;
        match status.success() {
            true => Ok(()),
            false => bail!("the build failed ({status})"),
        }
    }
}

/// Command and output of the projects that `mortise plugin new` makes.
fn of_language(folder: &Path) -> anyhow::Result<(String, PathBuf)> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    if let Some(manifest) = read("Cargo.toml") {
        let name = assigned(&manifest, "name", "=").map(|name| name.replace('-', "_"));
        let name = name.context("`Cargo.toml` has no `name`; give --output")?;
        let output = format!("target/wasm32-wasip2/release/{name}.wasm");
        let command = "cargo build --release --target wasm32-wasip2".to_owned();
        return Ok((command, folder.join(output)));
    }
    if let Some(manifest) = read("package.json") {
        let manifest: Value =
            serde_json::from_str(&manifest).context("`package.json` is not JSON")?;
        let name = manifest["name"].as_str();
        let name = name.context("`package.json` has no `name`; give --output")?;
        return Ok((
            "npm run --silent build".to_owned(),
            folder.join(format!("{name}.wasm")),
        ));
    }
    if let Some(makefile) = read("Makefile") {
        let name = assigned(&makefile, "NAME", ":=");
        let name = name.context("`Makefile` has no `NAME :=`; give --output")?;
        return Ok(("make".to_owned(), folder.join(format!("{name}.wasm"))));
    }
    bail!(
        "`{}` is no project of `mortise plugin new`: there is neither Cargo.toml, package.json nor Makefile; give \
         --build and --output",
        folder.display()
    )
}

/// The value of the first line `name = "value"`, quotes left out.
fn assigned(text: &str, name: &str, sign: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (before, value) = line.split_once(sign)?;
        let value = value.trim().trim_matches('"');
        (before.trim() == name && !value.is_empty()).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(file: &str, text: &str) -> Result<(String, String), String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        let (command, output) = of_language(folder.path()).map_err(|error| error.to_string())?;
        let output = output
            .strip_prefix(folder.path())
            .unwrap()
            .display()
            .to_string();
        Ok((command, output))
    }

    #[test]
    fn projects_of_each_language_are_known() {
        let (command, output) = found("Cargo.toml", "[package]\nname = \"my-policy\"\n").unwrap();
        assert!(command.starts_with("cargo build"));
        assert_eq!(output, "target/wasm32-wasip2/release/my_policy.wasm");
        let (command, output) = found("Makefile", "# x\nNAME := c-tool\n").unwrap();
        assert_eq!((command.as_str(), output.as_str()), ("make", "c-tool.wasm"));
        let (command, output) = found("package.json", "{\"name\": \"js-tool\"}").unwrap();
        assert_eq!(
            (command.as_str(), output.as_str()),
            ("npm run --silent build", "js-tool.wasm")
        );
        assert!(
            found("Makefile", "all:\n")
                .unwrap_err()
                .contains("--output")
        );
        assert!(found("notes.txt", "").unwrap_err().contains("--build"));
    }
}
