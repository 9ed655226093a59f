//! `mortise plugin test`: the golden cases of a folder, or those that the plugin carries, and abuse.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};

use crate::abuse::abuse;
use crate::args::{PluginCheckArgs, PluginFileArgs, PluginTestArgs};
use crate::like::like_model;
use crate::outcomes::Outcomes;
use crate::plugin::LoadPlugin as _;
use mortise_harness::print;
use mortise_harness::{Case, CaseBudget, PluginUnderTest, carried, checked};

/// Default folder of golden cases.
const DEFAULT_FOLDER: &str = "cases";

/// The cases in a folder, in the order of their names, by the names of their files.
pub(crate) fn raw_cases(folder: &Path) -> anyhow::Result<Map<String, Value>> {
    let unreadable = || format!("cannot read the cases in `{}`", folder.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        bail!("there are no cases (*.json) in `{}`", folder.display());
    }
    let read = files.into_iter().map(|path| {
        let wrong = || format!("the case `{}`", path.display());
        let text = std::fs::read_to_string(&path).with_context(wrong)?;
        let name = path.file_stem().unwrap_or_default();
        let case: Value = serde_json::from_str(&text).with_context(wrong)?;
        Ok((name.to_string_lossy().into_owned(), case))
    });
    read.collect()
}

/// The cases to run: those of a folder, or those that the plugin carries.
pub(crate) fn read_cases(
    subject: &PluginUnderTest,
    folder: Option<&Path>,
) -> anyhow::Result<Vec<(String, Case)>> {
    let default = Path::new(DEFAULT_FOLDER);
    let cases = match folder {
        Some(folder) => raw_cases(folder)?,
        None if default.is_dir() => raw_cases(default)?,
        None => match carried(&subject.component)? {
            Some(carried) => carried,
            None => bail!(
                "there is no folder `{DEFAULT_FOLDER}` here, and the plugin carries no cases; run this in \
                 the plugin's project, or name a folder with --cases"
            ),
        },
    };
    checked(cases)
}

/// A line for each case and one for abuse of each kind, and a failure if any failed.
/// With `--like-model` also a line for each conversation of the corpus.
pub(crate) fn test(args: &PluginCheckArgs) -> anyhow::Result<()> {
    let cases = check(&args.test, args.json);
    let Some(model) = &args.like_model else {
        return cases;
    };
    let plugin = PluginFileArgs {
        model: Some(model.clone()),
        ..args.test.plugin.clone()
    };
    let subject = PluginUnderTest::load(&plugin)?.granted(&args.test.grants)?;
    let like = like_model(&subject, &crate::settings_of(&plugin)?, model);
    cases.and(like)
}

fn check(args: &PluginTestArgs, as_json: bool) -> anyhow::Result<()> {
    let subject = PluginUnderTest::load(&args.plugin)?.granted(&args.grants)?;
    let common = crate::settings_of(&args.plugin)?;
    let cases = read_cases(&subject, args.cases.as_deref())?;
    let mut outcomes = Outcomes::new(as_json);
    for (name, case) in &cases {
        outcomes.tell(name, case.run(&subject, &common, CaseBudget::THOROUGH))?;
    }
    for kind in subject.component.kinds() {
        // With the settings of the first of its cases that the plugin takes.
        let of_kind = |case: &&Case| case.kind(&subject).is_ok_and(|of| of == *kind);
        let mut own = cases.iter().map(|(_, case)| case).filter(of_kind);
        if let Some(bench) = own.find_map(|case| case.harness(&subject, &common).ok()) {
            for (name, outcome) in abuse(&bench, *kind) {
                outcomes.tell(&format!("abuse: {name}"), outcome)?;
            }
        }
    }
    match outcomes.end()? {
        0 if as_json => Ok(()),
        0 => print(&format!("{} cases passed\n", cases.len())),
        failed => bail!("what failed: {failed}"),
    }
}
