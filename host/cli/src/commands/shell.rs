//! `mortise completions` and `mortise man`: what shells and manuals know of the command line, made of it.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use mortise_harness::print;

use crate::cli::Cli;

const NAME: &str = "mortise";

/// The script that makes a shell complete the command line.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), NAME, &mut script);
    print(&String::from_utf8(script).context("the script is not UTF-8")?)
}

/// The manual page, or all pages as files of a folder: one for each command.
pub(crate) fn man(folder: Option<&Path>) -> anyhow::Result<()> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        let written = Man::new(Cli::command()).render(&mut page);
        written.context("cannot make the page")?;
        return print(&String::from_utf8(page).context("the page is not UTF-8")?);
    };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder `{}`", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("cannot write to `{}`", folder.display()))
}
