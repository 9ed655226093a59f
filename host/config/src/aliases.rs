//! The `[[aliases]]` tables: names that stand for models and can be switched while the server runs; and the
//! `[names]` table: how a name may differ from a model's.

use std::collections::BTreeSet;

use mortise_models::{Alias, AliasTable, ModelConfig, NameMatching};
use serde::Deserialize;

use super::{ConfigError, invalid};

/// One alias as it is written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAlias {
    name: String,
    target: String,
    #[serde(default)]
    canary: Option<mortise_models::Canary>,
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

/// Checked aliases, by name. Where models are found by asking another server, their names are not known yet.
pub(super) fn check_aliases(
    raw: &[RawAlias],
    models: Option<&[ModelConfig]>,
) -> Result<Vec<(String, Alias)>, ConfigError> {
    let table = AliasTable::default();
    let names = models.map(|models| {
        let names = models.iter().map(|model| model.name.as_str());
        names.collect::<BTreeSet<&str>>()
    });
    let given: BTreeSet<&str> = raw.iter().map(|alias| alias.name.as_str()).collect();
    let is_model = |name: &str| match &names {
        Some(names) => names.contains(name),
        None => !given.contains(name),
    };
    let mut aliases = Vec::new();
    for (index, raw) in raw.iter().enumerate() {
        let key = format!("aliases[{index}]");
        let alias = Alias {
            target: raw.target.clone(),
            canary: raw.canary.clone(),
        };
        match table.set(&raw.name, alias.clone(), &is_model) {
            Ok(true) => aliases.push((raw.name.clone(), alias)),
            Ok(false) => {
                let problem = format!("the alias `{}` stands there twice", raw.name);
                return Err(invalid(&key, problem));
            }
            Err(error) => return Err(invalid(&key, error.to_string())),
        }
    }
    Ok(aliases)
}
