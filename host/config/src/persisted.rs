//! Changes of the admin side that are kept: a file that the server writes, laid over all others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use mortise_models::AliasMeanings;
use serde_json::{Map, Value as Json};
use toml::{Table, Value};

use super::kept_layer::{configured_model, lay_kept};
use super::layers::{MAX_CONFIG_BYTES, folder_of, kept_file, table_of};
use super::merging::identity;
use super::raw;

/// First line of the file.
const HEAD: &str =
    "# Written by the server: changes of the admin side that were to be kept (`admin.persist`).\n";

/// A change that is kept.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptChange {
    /// Meaning of an alias, and the one before; `None`: the alias is removed.
    Alias(String, Option<AliasMeanings>),
    /// Name of a model, and whether the model is loaded at the start.
    Enabled(String, bool),
    /// Binding of a plugin, with the keys that `[[plugins.bindings]]` has; `None`: the binding is removed.
    Binding(String, Option<Map<String, Json>>),
}

/// Bindings of plugins that are kept, by name. `files` are those that the server was started with. Blocks.
///
/// # Errors
/// With the reason, when they cannot be read.
pub fn kept_bindings(files: &[PathBuf]) -> Result<BTreeMap<String, Json>, String> {
    let Some(path) = place(files, &table_of(files, false)) else {
        return Ok(BTreeMap::new());
    };
    let kept = kept_table(&path)?;
    let bindings = kept
        .get("plugins")
        .and_then(|plugins| plugins.get("bindings"));
    let bindings = bindings.and_then(Value::as_array).into_iter().flatten();
    let named = bindings.filter_map(|entry| Some((identity(entry)?.1.to_owned(), entry)));
    let read = named.map(|(name, entry)| {
        let entry = serde_json::to_value(entry).map_err(|error| error.to_string())?;
        Ok((name, entry))
    });
    read.collect()
}

/// True if there is a file that changes can be kept in. `files` are those that the server was started with. Blocks.
pub fn keeps_changes(files: &[PathBuf]) -> bool {
    place(files, &table_of(files, false)).is_some()
}

/// The file of kept changes.
fn place(files: &[PathBuf], below: &Table) -> Option<PathBuf> {
    kept_file(below, folder_of(files))
}

/// Changes that are kept; none without the file.
fn kept_table(path: &Path) -> Result<Table, String> {
    let text = match mortise_files::read_text(path, MAX_CONFIG_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("`{}` cannot be read: {error}", path.display())),
    };
    text.parse()
        .map_err(|error| format!("`{}` is wrong: {error}", path.display()))
}

/// Keep a change; false if the file says so already. `files` are those that the server was started with. Blocks.
///
/// # Errors
/// With the reason, when the change cannot be kept; then the file is as it was.
pub fn keep(files: &[PathBuf], change: &KeptChange) -> Result<bool, String> {
    let below = table_of(files, false);
    let path = place(files, &below)
        .ok_or("the configuration names no file for it; see `admin.persist`")?;
    let kept = kept_table(&path)?;
    let base = files.first().and_then(|file| file.parent());
    let change = relative(change, base.unwrap_or(Path::new("")))?;
    let base = folder_of(files);
    let changed = with_change(&below, kept.clone(), &change, base)?;
    let (mut now, mut then) = (below.clone(), below);
    lay_kept(&mut now, kept, base, &path);
    lay_kept(&mut then, changed.clone(), base, &path);
    if now == then {
        return Ok(false);
    }
    let text = toml::to_string(&changed).map_err(|error| error.to_string())?;
    raw::parse(&text)?;
    write(&path, &format!("{HEAD}{text}"))
        .map_err(|error| format!("`{}` cannot be written: {error}", path.display()))?;
    Ok(true)
}

fn with_change(
    below: &Table,
    mut kept: Table,
    change: &KeptChange,
    base: &Path,
) -> Result<Table, String> {
    match change {
        KeptChange::Alias(name, alias) => {
            let configured = alias_of(below, name);
            let Some(AliasMeanings { alias, previous }) = alias else {
                if configured.is_some() {
                    return Err(format!(
                        "the alias `{name}` stands in a configuration file; remove it there"
                    ));
                }
                entries(&mut kept, "aliases")?.retain(|entry| !is_called(entry, name));
                return Ok(kept);
            };
            let mut table = Table::try_from(alias).map_err(|error| error.to_string())?;
            table.insert("name".to_owned(), Value::from(name.as_str()));
            let before = configured.and_then(|entry| entry.get("canary"));
            if let (None, Some(Value::Table(before))) = (&alias.canary, before) {
                // Nothing can be taken out of a file below, and a part of 0 is none.
                let mut none = before.clone();
                none.insert("percent".to_owned(), Value::from(0.0));
                none.insert("tenants".to_owned(), Value::Array(Vec::new()));
                table.insert("canary".to_owned(), Value::Table(none));
            }
            if let Some(previous) = previous {
                let previous = Table::try_from(previous).map_err(|error| error.to_string())?;
                table.insert("previous".to_owned(), Value::Table(previous));
            }
            set(&mut kept, "aliases", name, table)?;
        }
        KeptChange::Enabled(name, enabled) => {
            if configured_model(&mut below.clone(), name, base).is_none() {
                return Err(format!(
                    "no `[[models]]` of the configuration has the `name` \"{name}\", and only of such a model it can be kept"
                ));
            }
            let mut table = Table::new();
            table.insert("name".to_owned(), Value::from(name.as_str()));
            table.insert("enabled".to_owned(), Value::from(*enabled));
            set(&mut kept, "models", name, table)?;
        }
        KeptChange::Binding(name, binding) => {
            with_binding(below, &mut kept, name, binding.as_ref())?
        }
    }
    Ok(kept)
}

/// Change with the file of a binding as a path relative to the plugin folder, as files of the configuration have it.
fn relative(change: &KeptChange, base: &Path) -> Result<KeptChange, String> {
    let mut change = change.clone();
    if let KeptChange::Binding(_, Some(binding)) = &mut change
        && let Some(Json::String(file)) = binding.get_mut("file")
        && !Path::new(file).is_absolute()
    {
        let below = Path::new(file).strip_prefix(base).map_err(|_| {
            format!(
                "the plugin folder is not below `{}`; give `plugins.dir` as an absolute path",
                base.display()
            )
        })?;
        *file = below.to_string_lossy().into_owned();
    }
    Ok(change)
}

fn with_binding(
    below: &Table,
    kept: &mut Table,
    name: &str,
    binding: Option<&Map<String, Json>>,
) -> Result<(), String> {
    let configured = below
        .get("plugins")
        .and_then(|plugins| plugins.get("bindings"));
    let configured = configured.and_then(Value::as_array).into_iter().flatten();
    for entry in configured {
        match identity(entry) {
            // Files are laid over one another by the names of bindings, and one of a further file could replace all.
            None => return Err("a binding of the configuration has no `name`; give each one, so that further ones can stand beside it".to_owned()),
            Some((_, known)) if known == name => {
                return Err(format!("the binding `{name}` stands in a configuration file; change it there"));
            }
            Some(_) => {}
        }
    }
    let plugins = kept
        .entry("plugins")
        .or_insert_with(|| Value::Table(Table::new()));
    let plugins = plugins
        .as_table_mut()
        .ok_or("`plugins` of the file of `admin.persist` is no table")?;
    let Some(binding) = binding else {
        entries(plugins, "bindings")?.retain(|entry| !is_called(entry, name));
        return Ok(());
    };
    let mut table = Table::try_from(binding).map_err(|error| error.to_string())?;
    table.insert("name".to_owned(), Value::from(name));
    set(plugins, "bindings", name, table)
}

/// An alias of the files.
fn alias_of<'a>(table: &'a Table, name: &str) -> Option<&'a Table> {
    let entries = table.get("aliases")?.as_array()?;
    entries
        .iter()
        .find(|entry| is_called(entry, name))?
        .as_table()
}

fn is_called(entry: &Value, name: &str) -> bool {
    identity(entry).is_some_and(|(_, own)| own == name)
}

fn entries<'a>(table: &'a mut Table, list: &str) -> Result<&'a mut Vec<Value>, String> {
    let value = table
        .entry(list.to_owned())
        .or_insert_with(|| Value::Array(Vec::new()));
    match value {
        Value::Array(entries) => Ok(entries),
        _ => Err(format!(
            "`{list}` of the file of `admin.persist` is no list"
        )),
    }
}

fn set(table: &mut Table, list: &str, name: &str, entry: Table) -> Result<(), String> {
    let entries = entries(table, list)?;
    entries.retain(|known| !is_called(known, name));
    entries.push(Value::Table(entry));
    Ok(())
}

/// Replace a file in one step.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) if folder != Path::new("") => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use mortise_models::{Alias, Canary};

    use super::*;
    use crate::{Config, Overrides};

    const FILE: &str = "[admin]\npersist = \"kept.toml\"\n[[models]]\nname = \"a\"\n[[models]]\nname = \"b\"\n\
                        [[aliases]]\nname = \"old\"\ntarget = \"a\"\ncanary = { target = \"b\", percent = 5 }\n";

    fn alias(target: &str, canary: Option<&str>) -> AliasMeanings {
        let alias = Alias {
            target: target.to_owned(),
            canary: canary.map(|target| Canary {
                target: target.to_owned(),
                percent: 10.0,
                tenants: Vec::new(),
            }),
        };
        AliasMeanings {
            alias,
            previous: None,
        }
    }

    #[test]
    fn feature_c12_changes_are_kept_once_and_read_with_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mortise.toml");
        fs::write(&file, FILE).expect("written");
        let files = [file];
        let kept = folder.path().join("kept.toml");
        let keep = |change: KeptChange| keep(&files, &change);
        let meanings = || AliasMeanings {
            previous: Some(alias("b", Some("a")).alias),
            ..alias("a", Some("b"))
        };
        let prod = || KeptChange::Alias("prod".to_owned(), Some(meanings()));
        assert_eq!(keep(prod()), Ok(true));
        let written = fs::metadata(&kept)
            .and_then(|data| data.modified())
            .expect("a file");
        assert_eq!(keep(prod()), Ok(false));
        let still = fs::metadata(&kept)
            .and_then(|data| data.modified())
            .expect("a file");
        assert_eq!(written, still);
        assert_eq!(keep(KeptChange::Enabled("b".to_owned(), false)), Ok(true));
        // As the files say it, so nothing has to be kept.
        assert_eq!(keep(KeptChange::Alias("new".to_owned(), None)), Ok(false));
        assert_eq!(
            keep(KeptChange::Alias("old".to_owned(), Some(alias("a", None)))),
            Ok(true)
        );

        let config = Config::load(&files, Overrides::default()).expect("it is right");
        let enabled: Vec<bool> = config
            .models
            .iter()
            .map(|model| model.lifecycle.enabled)
            .collect();
        assert_eq!(enabled, [true, false]);
        let of = |name: &str| {
            config
                .aliases
                .iter()
                .find(|(known, _)| known == name)
                .cloned()
        };
        assert_eq!(of("prod").expect("an alias").1, meanings());
        let old = of("old").expect("an alias").1.alias;
        let old = old.canary.expect("a canary");
        assert_eq!((old.percent, old.target.as_str()), (0.0, "b"));

        assert_eq!(keep(KeptChange::Alias("prod".to_owned(), None)), Ok(true));
        let config = Config::load(&files, Overrides::default()).expect("it is right");
        assert_eq!(config.aliases.len(), 1);
    }

    #[test]
    fn feature_c12_bindings_are_kept_beside_those_of_the_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mortise.toml");
        let configured =
            "[admin]\npersist = \"kept.toml\"\n[[plugins.bindings]]\nkind = \"policy\"\n";
        fs::write(&file, format!("{configured}name = \"desk\"\n")).expect("written");
        let files = [file];
        let binding = |file: &Path| {
            let value =
                serde_json::json!({"kind": "policy", "file": file, "settings": {"limit": 3}});
            value.as_object().cloned()
        };
        let plugin = folder.path().join("plugins/mine.wasm");
        let door = |value| KeptChange::Binding("door".to_owned(), value);
        assert_eq!(keep(&files, &door(binding(&plugin))), Ok(true));
        let bindings = || {
            let config = Config::load(&files, Overrides::default()).expect("it is right");
            let bindings = config.plugins.bindings.into_iter();
            let named = bindings.map(|binding| (binding.name.expect("a name"), binding.file));
            named.collect::<Vec<_>>()
        };
        let desk = || ("desk".to_owned(), None);
        assert_eq!(
            bindings(),
            [desk(), ("door".to_owned(), Some(plugin.clone()))]
        );
        let kept = kept_bindings(&files).expect("bindings");
        assert_eq!(kept["door"]["settings"]["limit"], 3);
        let configured_one = KeptChange::Binding("desk".to_owned(), binding(&plugin));
        let refused = keep(&files, &configured_one).expect_err("it is configured");
        assert!(
            refused.contains("stands in a configuration file"),
            "{refused}"
        );
        let elsewhere = keep(&files, &door(binding(Path::new("plugins/mine.wasm"))));
        assert!(
            elsewhere
                .expect_err("another folder")
                .contains("plugins.dir")
        );
        assert_eq!(keep(&files, &door(None)), Ok(true));
        assert_eq!(bindings(), [desk()]);
        fs::write(&files[0], configured).expect("written");
        let refused = keep(&files, &door(binding(&plugin))).expect_err("one has no name");
        assert!(refused.contains("has no `name`"), "{refused}");
    }

    #[test]
    fn feature_c12_what_cannot_be_kept_is_refused_and_nothing_is_written() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("mortise.toml");
        let keep = |text: &str, change: KeptChange| {
            fs::write(&file, text).expect("written");
            keep(std::slice::from_ref(&file), &change).expect_err("refused")
        };
        let removed = KeptChange::Alias("old".to_owned(), None);
        assert!(keep(FILE, removed.clone()).contains("stands in a configuration file"));
        assert!(keep(FILE, KeptChange::Enabled("c".to_owned(), true)).contains("no `[[models]]`"));
        assert!(keep("[log]\n", removed).contains("admin.persist"));
        assert!(!folder.path().join("kept.toml").exists());
        fs::write(folder.path().join("kept.toml"), "[[").expect("written");
        assert!(keep(FILE, KeptChange::Enabled("a".to_owned(), false)).contains("is wrong"));
    }

    #[test]
    fn feature_c12_a_kept_change_of_a_model_lives_and_ends_with_its_entry() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [folder.path().join("mortise.toml")];
        let configure = |text: &str| fs::write(&files[0], text).expect("written");
        let models = || {
            let config = Config::load(&files, Overrides::default()).expect("it is right");
            let models = config.models.into_iter();
            let models = models.map(|model| (model.name, model.lifecycle.enabled));
            (models.collect::<Vec<_>>(), config.warnings)
        };
        // The first has its name from its path.
        let persist = "[admin]\npersist = \"kept.toml\"\n";
        let both =
            format!("{persist}[[models]]\npath = \"x\"\n[[models]]\nname = \"b\"\npath = \"y\"\n");
        configure(&both);
        for name in ["x", "b"] {
            assert_eq!(
                keep(&files, &KeptChange::Enabled(name.to_owned(), false)),
                Ok(true)
            );
        }
        let of = |name: &str| (name.to_owned(), false);
        assert_eq!(models(), (vec![of("x"), of("b")], Vec::new()));
        // An entry that goes takes what was kept of it along, and is not the demo model.
        configure(&format!(
            "{persist}[[models]]\nname = \"b\"\npath = \"y\"\n"
        ));
        let (left, warnings) = models();
        assert_eq!(left, [of("b")]);
        assert!(
            warnings.len() == 1 && warnings[0].contains("`x`"),
            "{warnings:?}"
        );
        let kept = folder.path().join("kept.toml");
        assert!(
            warnings[0].contains(&kept.display().to_string()),
            "{warnings:?}"
        );
    }

    #[test]
    fn feature_c12_a_kept_alias_waits_for_its_model_and_gives_way_to_one_of_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = [folder.path().join("mortise.toml")];
        let configure = |text: &str| fs::write(&files[0], text).expect("written");
        configure(FILE);
        let prod = KeptChange::Alias("prod".to_owned(), Some(alias("b", None)));
        assert_eq!(keep(&files, &prod), Ok(true));
        let persist = "[admin]\npersist = \"kept.toml\"\n[[models]]\npath = \"x\"\n";
        configure(&format!("{persist}name = \"a\"\n"));
        let config = Config::load(&files, Overrides::default()).expect("it waits");
        assert_eq!(config.aliases[0].1, alias("b", None));
        configure(&format!("{persist}name = \"prod\"\n"));
        let config = Config::load(&files, Overrides::default()).expect("the model has the name");
        assert!(config.aliases.is_empty(), "{:?}", config.aliases);
        assert!(
            config.warnings[0].contains("`prod`"),
            "{:?}",
            config.warnings
        );
        // What a person writes must be right.
        configure(&format!(
            "{persist}name = \"a\"\n[[aliases]]\nname = \"mine\"\ntarget = \"b\"\n"
        ));
        let refused = Config::load(&files, Overrides::default()).expect_err("no such model");
        assert!(
            refused.to_string().contains("the alias `mine`"),
            "{refused}"
        );
    }
}
