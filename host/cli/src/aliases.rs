//! Aliases of the configuration and of the admin side, whose models may be gone or still come.

use std::sync::Arc;

use anyhow::Context as _;
use mortise_config::Config;
use mortise_models::lifecycle::ModelManager;
use mortise_models::{Alias, AliasMeanings, AliasTable};

/// An alias, and its present meaning.
type NamedAlias<'a> = (&'a str, &'a Alias);

/// The table of configured aliases. One whose model is not there waits for it.
///
/// # Errors
/// When one has the name of a model, or waits for one and `config.strict_models` is set.
pub(crate) fn alias_table(
    config: &Config,
    models: &ModelManager,
) -> anyhow::Result<Arc<AliasTable>> {
    let table = AliasTable::default();
    let is_model = |name: &str| models.status(name).is_some();
    for (name, meanings) in &config.aliases {
        table
            .define(name, meanings.clone(), &is_model)
            .with_context(|| format!("the alias `{name}` cannot be had"))?;
    }
    let dangling = dangling(configured(&config.aliases), &is_model);
    for told in &dangling {
        anyhow::ensure!(!config.strict_models, "{told}");
        tracing::warn!("{told}");
    }
    Ok(Arc::new(table))
}

/// Aliases as the configuration has them.
pub(crate) fn configured(
    aliases: &[(String, AliasMeanings)],
) -> impl Iterator<Item = NamedAlias<'_>> {
    let named = aliases.iter();
    named.map(|(name, meanings)| (name.as_str(), &meanings.alias))
}

/// Warnings about aliases whose models are not there, one of each.
pub(crate) fn dangling<'a>(
    aliases: impl IntoIterator<Item = NamedAlias<'a>>,
    is_model: &dyn Fn(&str) -> bool,
) -> Vec<String> {
    let mut told = Vec::new();
    for (name, alias) in aliases {
        for (field, model) in alias.missing(is_model) {
            let line = format!(
                "the alias `{name}`: `{field}` is `{model}`, and no model has that name; requests that go there are \
                 refused (404) until one has"
            );
            if !told.contains(&line) {
                told.push(line);
            }
        }
    }
    told
}

/// True if the aliases of a configuration mean what those of the table do.
pub(crate) fn are_in_force(aliases: &[(String, AliasMeanings)], table: &AliasTable) -> bool {
    let rows = table.rows();
    let mut known = configured(aliases).map(|(name, alias)| {
        let row = rows.iter().find(|row| row.name == name);
        row.is_some_and(|row| in_effect(&row.alias) == in_effect(alias))
    });
    known.all(|same| same) && rows.len() == aliases.len()
}

/// The meaning without a canary that nobody gets.
fn in_effect(alias: &Alias) -> Alias {
    let mut alias = alias.clone();
    let gets = |canary: &mortise_models::Canary| canary.percent > 0.0 || !canary.tenants.is_empty();
    alias.canary = alias.canary.filter(gets);
    alias
}
