//! Golden cases of any origin against the embedded plugins.

use std::sync::Arc;

use anyhow::bail;
use mortise_models::ModelFiles;
use mortise_plugin::{ComponentSource, HostConfig, Kind, PluginHost};
use mortise_plugin_manager::PluginConfig;
use serde_json::{Map, Value};

use crate::demo::model_files;
use crate::golden::{CaseBudget, PluginUnderTest, check_number, checked};

/// Runs golden cases with the embedded plugins, as a server runs those that a plugin carries.
pub struct GoldenCases {
    subjects: Vec<(Kind, PluginUnderTest)>,
}

impl GoldenCases {
    /// Load the embedded plugins.
    ///
    /// # Errors
    /// When they or the demo model cannot be loaded: the build is broken.
    pub fn new() -> anyhow::Result<Self> {
        let host = PluginHost::new(HostConfig::default())?;
        let mut subjects = Vec::new();
        for source in mortise_bundle::plugins() {
            let component = host.load(source)?;
            for &kind in component.kinds() {
                let text = model_files(None)?;
                let component = Arc::clone(&component);
                let subject =
                    PluginUnderTest::new(host.clone(), component, text, PluginConfig::default());
                subjects.push((kind, subject));
            }
        }
        Ok(Self { subjects })
    }

    /// Run the cases of a file with the embedded plugin of a kind, and say what came of each; nothing for
    /// a kind without one.
    ///
    /// # Errors
    /// When the file is no JSON object of cases, or a case is wrong.
    pub fn run(&self, kind: Kind, text: &str) -> anyhow::Result<Vec<String>> {
        let cases: Map<String, Value> = serde_json::from_str(text)?;
        check_number(&cases)?;
        let cases = checked(cases)?;
        let subjects = self.subjects.iter().filter(|(served, _)| *served == kind);
        let outcomes = subjects.flat_map(|(_, subject)| {
            cases.iter().map(|(_, case)| {
                let outcome = case.run(subject, &Value::Null, CaseBudget::at_load());
                outcome.map_or_else(|error| format!("{error:#}"), |()| "passes".to_owned())
            })
        });
        Ok(outcomes.collect())
    }
}

/// The embedded chat template with the files of a model: with no settings it renders the model's own Jinja.
///
/// # Errors
/// When it cannot be loaded: the build is broken.
pub fn model_template(text: ModelFiles) -> anyhow::Result<PluginUnderTest> {
    let host = PluginHost::new(HostConfig::default())?;
    for source in mortise_bundle::plugins() {
        let component = host.load(source)?;
        if component.kinds().contains(&Kind::ChatTemplate) {
            let within = PluginConfig::default();
            return Ok(PluginUnderTest::new(host, component, text, within));
        }
    }
    bail!("the program has no chat template of its own")
}

/// The component of the embedded plugin of a kind; none for a kind without one.
pub fn default_plugin(kind: Kind) -> Option<Vec<u8>> {
    let mut sources = mortise_bundle::plugins().into_iter();
    sources.find_map(|source| match source {
        ComponentSource::Embedded { name, wasm, .. } if name == kind.as_str() => Some(wasm),
        _ => None,
    })
}

impl std::fmt::Debug for GoldenCases {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kinds = self.subjects.iter().map(|(kind, _)| kind);
        formatter.debug_list().entries(kinds).finish()
    }
}
