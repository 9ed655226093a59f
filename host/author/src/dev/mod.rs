//! `mortise plugin dev`: build, test and load a project again whenever its sources change, and show what the server does
//! with it.

mod calls;
mod project;
mod sources;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, bail};
use mortise_harness::{CaseBudget, PluginUnderTest, print, shortened};
use serde_json::{Value, json};

use crate::args::{PluginDevArgs, PluginFileArgs};
use crate::cases::read_cases;
use crate::plugin::LoadPlugin as _;

use self::calls::Calls;
use self::project::Project;
use self::sources::Sources;

/// Time between two looks at the sources. They are polled, so that network file systems and containers that share folders
/// work as well.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// Looks at the sources between two questions to the server.
const LOOKS_PER_ASK: u32 = 4;

/// Build, test and load, until the process is ended.
pub(crate) fn dev(args: &PluginDevArgs) -> anyhow::Result<()> {
    if !args.plugins.is_dir() {
        bail!(
            "`{0}` is no folder that a server could serve from; make it with `mkdir -p {0}`",
            args.plugins.display()
        );
    }
    let project = Project::of(args)?;
    if args.once {
        return round(args, &project);
    }
    let mut calls = Calls::of(&project.name, args);
    let mut built = None;
    let mut looks = 0;
    loop {
        let now = Sources::of(&project)?;
        if built.as_ref() != Some(&now) && now == settled(&project)? {
            if let Err(error) = round(args, &project) {
                let why = shortened(format!("{error:#}"));
                tell(args, &json!({"event": "not_loaded", "error": why}), || {
                    format!("not loaded: {why}\n")
                })?;
            }
            // What the build itself wrote is no change.
            built = Some(match Sources::of(&project)? {
                after if after.only_adds_to(&now) => after,
                _ => now,
            });
        }
        if looks % LOOKS_PER_ASK == 0 {
            calls.show()?;
        }
        looks = looks.wrapping_add(1);
        sleep(LOOK_EVERY);
    }
}

/// The sources a moment later: an editor may still be writing.
fn settled(project: &Project) -> anyhow::Result<Sources> {
    sleep(LOOK_EVERY);
    Sources::of(project)
}

/// Build, test and load.
fn round(args: &PluginDevArgs, project: &Project) -> anyhow::Result<()> {
    let (name, command) = (&project.name, &project.command);
    let building = json!({"event": "building", "project": name, "command": command});
    tell(args, &building, || {
        format!("building `{name}`: {command}\n")
    })?;
    project.build()?;
    let count = test(args, project)?;
    let file = load(&args.plugins, project)?;
    let loaded = json!({"event": "loaded", "cases_passed": count, "file": file});
    tell(args, &loaded, || {
        format!("{count} cases passed; loaded as `{}`\n", file.display())
    })
}

/// Print an event: a line of JSON, or what people read.
fn tell(args: &PluginDevArgs, event: &Value, text: impl FnOnce() -> String) -> anyhow::Result<()> {
    match args.json {
        true => print(&format!("{event}\n")),
        false => print(&text()),
    }
}

/// Run the golden cases of the project. Says how many there are.
fn test(args: &PluginDevArgs, project: &Project) -> anyhow::Result<usize> {
    let plugin = PluginFileArgs {
        file: project.output.clone(),
        settings: args.settings.clone(),
        model: None,
        cache: None,
    };
    let subject = PluginUnderTest::load(&plugin)?.granted(&args.grants)?;
    let common = crate::settings_of(&plugin)?;
    let folder = project.folder.join("cases");
    let cases = match folder.is_dir() {
        true => read_cases(&subject, Some(&folder))?,
        false => read_cases(&subject, None)?,
    };
    let mut failed = 0;
    for (name, case) in &cases {
        if let Err(error) = case.run(&subject, &common, CaseBudget::THOROUGH) {
            failed += 1;
            let why = shortened(format!("{error:#}"));
            let event = json!({"event": "case_failed", "name": name, "error": why});
            tell(args, &event, || format!("FAILED  {name}: {why}\n"))?;
        }
    }
    match failed {
        0 => Ok(cases.len()),
        _ => bail!("{failed} of {} cases failed", cases.len()),
    }
}

/// Put the plugin into the server's folder, whole or not at all.
fn load(plugins: &Path, project: &Project) -> anyhow::Result<PathBuf> {
    let wasm = std::fs::read(&project.output)
        .with_context(|| format!("cannot read `{}`", project.output.display()))?;
    let name = project.output.file_name().unwrap_or_default();
    let file = plugins.join(name);
    if std::fs::read(&file).ok().as_ref() != Some(&wasm) {
        mortise_registry::write_file(&file, &wasm)?;
    }
    Ok(file)
}
