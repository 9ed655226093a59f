//! The `[[aliases]]` tables: names that stand for models and can be switched while the server runs; and the
//! `[names]` table: how a name may differ from a model's.

use std::collections::BTreeSet;

use mortise_models::{Alias, AliasError, AliasMeanings, AliasTable, ModelConfig, NameMatching};
use serde::Deserialize;

use super::laid_changes::LaidChanges;
use super::{ConfigError, invalid};

/// One alias as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAlias {
    name: String,
    target: String,
    #[serde(default)]
    canary: Option<mortise_models::Canary>,
    #[serde(default)]
    previous: Option<Alias>,
}

/// Steps by which a name finds a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawNames {
    case_insensitive: bool,
    substring: bool,
}

impl Default for RawNames {
    fn default() -> Self {
        let matching = NameMatching::default();
        Self {
            case_insensitive: matching.case_insensitive,
            substring: matching.substring,
        }
    }
}

impl RawNames {
    pub(super) fn matching(&self, sole_model: bool) -> NameMatching {
        NameMatching {
            case_insensitive: self.case_insensitive,
            substring: self.substring,
            sole_model,
        }
    }
}

/// Models that aliases may stand for.
#[derive(Debug, Clone, Copy)]
pub(super) struct AliasTargets<'a> {
    /// Models that are configured.
    pub(super) configured: &'a [ModelConfig],
    /// Further models may be found while the server runs, and are not known here.
    pub(super) may_find_others: bool,
    /// The command line names the models in place of the files.
    pub(super) of_command_line: bool,
}

impl AliasTargets<'_> {
    /// Why a model is not known that a file may well have.
    fn because(&self) -> &'static str {
        match self.of_command_line {
            true => "; the command line names the models, and those of the files are not served",
            false => "",
        }
    }
}

/// Aliases by name, and what is to be told of those that were left out.
pub(super) type CheckedAliases = (Vec<(String, AliasMeanings)>, Vec<String>);

/// Check aliases. Their models must be configured, unless others may be found, or the admin side has kept the alias: no file
/// that a person writes names its model then, and the alias waits for the model.
pub(super) fn check_aliases(
    raw: &[RawAlias],
    targets: AliasTargets<'_>,
    laid: &LaidChanges,
) -> Result<CheckedAliases, ConfigError> {
    let table = AliasTable::default();
    let names = targets.configured.iter().map(|model| model.name.as_str());
    let names: BTreeSet<&str> = names.collect();
    let is_model = |name: &str| names.contains(name);
    let raw_names: BTreeSet<&str> = raw.iter().map(|alias| alias.name.as_str()).collect();
    let (mut aliases, mut left_out) = (Vec::new(), Vec::new());
    for (index, raw) in raw.iter().enumerate() {
        let name = &raw.name;
        let wrong = |error: &dyn std::fmt::Display| {
            let problem = format!("the alias `{name}`: {error}");
            Err(invalid(&format!("aliases[{index}]"), problem))
        };
        let alias = Alias {
            target: raw.target.clone(),
            canary: raw.canary.clone(),
        };
        let meanings = AliasMeanings {
            alias,
            previous: raw.previous.clone(),
        };
        let kept = laid.aliases.contains(name);
        match table.define(name, meanings.clone(), &is_model) {
            Ok(true) => {}
            Ok(false) => return wrong(&"it stands there twice"),
            Err(error @ AliasError::IsModel(_)) if kept => {
                let file = laid.file.display();
                left_out.push(format!("an alias of `{file}` is left out: {error}"));
                continue;
            }
            Err(error) => return wrong(&error),
        }
        let missing = meanings.alias.missing(&is_model).into_iter();
        // No alias stands for another one, whatever is found.
        let never = |target: &str| !kept && !targets.may_find_others || raw_names.contains(target);
        let mut never_there = missing.filter(|(_, target)| never(target));
        if let Some((field, target)) = never_there.next() {
            let (target, because) = (target.to_owned(), targets.because());
            return wrong(&format!(
                "{}{because}",
                AliasError::NoModel { field, target }
            ));
        }
        aliases.push((name.clone(), meanings));
    }
    Ok((aliases, left_out))
}
