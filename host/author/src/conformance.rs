//! `mortise plugin conformance`: golden and hostile cases as data, which any host of `mortise:plugin` can be held to.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use mortise_harness::{PluginUnderTest, difference, print, print_json, read};
use mortise_plugin::{Kind, PluginError};
use mortise_plugin_manager::deserialize_kind;
use mortise_service::OfflineError;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::{PluginConformanceArgs, PluginFileArgs};
use crate::outcomes::Outcomes;
use crate::plugin::LoadPlugin as _;

/// File of the cases in the folder of a kit.
const CASES: &str = "cases.json";

/// Case of a kit: one call of a component, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KitCase {
    /// File of the component, in the folder of the kit.
    component: String,
    #[serde(deserialize_with = "deserialize_kind")]
    kind: Kind,
    #[serde(default)]
    settings: Value,
    input: Value,
    /// Fields that the answer must have.
    expect: Option<Value>,
    /// Faults of which one must come.
    fault: Option<Vec<String>>,
}

/// Question to a host, as it is given on its standard input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    component: PathBuf,
    #[serde(deserialize_with = "deserialize_kind")]
    kind: Kind,
    #[serde(default)]
    settings: Value,
    input: Value,
}

/// Hold a host to a kit, or answer one question as a host.
pub(crate) fn conformance(args: &PluginConformanceArgs) -> anyhow::Result<()> {
    let Some(kit) = &args.kit else {
        let question: Question = serde_json::from_value(read(None)?).context("the question")?;
        return print_json(&answer(&question, &load(&question.component)?)?);
    };
    let path = kit.join(CASES);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read `{}`", path.display()))?;
    let cases: BTreeMap<String, KitCase> = serde_json::from_str(&text)
        .with_context(|| format!("`{}` holds no cases", path.display()))?;
    ensure!(!cases.is_empty(), "`{}` holds no cases", path.display());
    let mut outcomes = Outcomes::new(args.json);
    // To compile a component takes longer than most of its cases.
    let mut loaded = BTreeMap::new();
    for (name, case) in &cases {
        let outcome = check(kit, case, args.host.as_deref(), &mut loaded);
        outcomes.tell(name, outcome)?;
    }
    match outcomes.end()? {
        0 if args.json => Ok(()),
        0 => print(&format!("{} cases passed\n", cases.len())),
        failed => bail!("{failed} of {} cases failed", cases.len()),
    }
}

fn check(
    kit: &Path,
    case: &KitCase,
    host: Option<&str>,
    loaded: &mut BTreeMap<PathBuf, PluginUnderTest>,
) -> anyhow::Result<()> {
    let plain = !case.component.contains(['/', '\\']) && case.component.ends_with(".wasm");
    ensure!(plain, "`{}` is no file of the kit", case.component);
    let question = Question {
        component: kit.join(&case.component),
        kind: case.kind,
        settings: match &case.settings {
            Value::Null => json!({}),
            settings => settings.clone(),
        },
        input: case.input.clone(),
    };
    let said = match host {
        Some(command) => ask(command, &question)?,
        None => match loaded.entry(question.component.clone()) {
            Entry::Occupied(entry) => answer(&question, entry.get())?,
            Entry::Vacant(entry) => {
                let subject = load(&question.component)?;
                answer(&question, entry.insert(subject))?
            }
        },
    };
    match (&case.expect, &case.fault) {
        (Some(expected), None) => {
            let wanted = json!({"answer": expected});
            match difference("host", &wanted, &said) {
                None => Ok(()),
                Some(difference) => bail!("{difference}"),
            }
        }
        (None, Some(faults)) => {
            let label = said["fault"].as_str().unwrap_or_default();
            ensure!(
                faults.iter().any(|fault| fault == label),
                "it must end with one of the faults {}; the host says {said}",
                faults.join(", ")
            );
            Ok(())
        }
        _ => bail!("the case needs one of `expect` and `fault`"),
    }
}

/// A component of a kit, compiled.
fn load(file: &Path) -> anyhow::Result<PluginUnderTest> {
    PluginUnderTest::load(&PluginFileArgs {
        file: file.to_owned(),
        settings: String::new(),
        model: None,
        cache: None,
    })
}

/// Answer of this host to a question.
fn answer(question: &Question, subject: &PluginUnderTest) -> anyhow::Result<Value> {
    let kind = subject.kind(Some(question.kind))?;
    let asked = subject
        .harness(&question.settings)
        .and_then(|harness| harness.ask(kind, question.input.clone()));
    match asked {
        Ok(said) => Ok(json!({"answer": said})),
        Err(error) => match fault_of(&error) {
            Some(plugin) => Ok(json!({"fault": plugin.fault.label()})),
            None => Err(error),
        },
    }
}

/// The fault of a plugin that an error tells of.
fn fault_of(error: &anyhow::Error) -> Option<&PluginError> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(OfflineError::Plugin(plugin)) => Some(plugin),
        _ => cause.downcast_ref(),
    })
}

/// Answer of another host to a question.
fn ask(command: &str, question: &Question) -> anyhow::Result<Value> {
    let asked = json!({
        "component": question.component,
        "kind": question.kind.as_str(),
        "settings": question.settings,
        "input": question.input,
    });
    let mut child = Command::new("sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{command}`"))?;
    if let Some(mut input) = child.stdin.take() {
        // A host that reads nothing is told by what it answers.
        let _ = input.write_all(asked.to_string().as_bytes());
    }
    let output = child
        .wait_with_output()
        .with_context(|| format!("cannot run `{command}`"))?;
    ensure!(
        output.status.success(),
        "`{command}` failed ({})",
        output.status
    );
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("`{command}` does not answer in JSON"))
}
