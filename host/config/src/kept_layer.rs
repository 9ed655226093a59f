//! Changes of the admin side that are kept, laid over the files of the configuration. They change entries and add some;
//! they never stand for a model that no file has, and never replace a list of tables.

use std::path::Path;

use toml::{Table, Value};

use super::laid_changes::LaidChanges;
use super::merging::{identity, merge, merge_lists};
use super::models::name_in_file;

/// Lay changes that are kept in `file` over the configuration, whose folder is `base`.
pub(super) fn lay_kept(
    below: &mut Table,
    mut kept: Table,
    base: &Path,
    file: &Path,
) -> LaidChanges {
    let mut laid = LaidChanges {
        file: file.to_owned(),
        ..LaidChanges::default()
    };
    if let Some(Value::Array(models)) = kept.remove("models") {
        for model in models {
            let Value::Table(model) = model else { continue };
            let name = name_in_file(&model, base).unwrap_or_default();
            match configured_model(below, &name, base) {
                Some(configured) => merge(configured, model),
                None => laid.left_out.push(format!(
                    "`{}` says whether the model `{name}` is loaded at the start, and the configuration has no model of \
                     this name: it is left out; remove its `[[models]]` there, or configure the model",
                    file.display()
                )),
            }
        }
    }
    let aliases = kept.get("aliases").and_then(Value::as_array);
    let names = aliases.into_iter().flatten().filter_map(identity);
    laid.aliases = names.map(|(_, name)| name.to_owned()).collect();
    lay(below, kept);
    laid
}

/// The model of the files that has this name, or gets it by default.
pub(super) fn configured_model<'a>(
    below: &'a mut Table,
    name: &str,
    base: &Path,
) -> Option<&'a mut Table> {
    let models = below.get_mut("models")?.as_array_mut()?;
    let mut models = models.iter_mut().filter_map(Value::as_table_mut);
    models.find(|model| name_in_file(model, base).as_deref() == Some(name))
}

/// Lay a table over another as files are, but for lists of tables: entries without a name stay, whatever comes beside them.
fn lay(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => lay(below, above),
            (Some(Value::Array(below)), Value::Array(above))
                if above.iter().all(|entry| identity(entry).is_some()) =>
            {
                merge_lists(below, above);
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn laid(below: &str, kept: &str) -> (Table, LaidChanges) {
        let mut table: Table = below.parse().expect("a table");
        let kept = kept.parse().expect("a table");
        let laid = lay_kept(&mut table, kept, Path::new("/base"), Path::new("kept.toml"));
        (table, laid)
    }

    const KEPT: &str = "[[models]]\nname = \"small\"\nenabled = false\n[[models]]\nname = \"gone\"\nenabled = true\n\
        [[aliases]]\nname = \"prod\"\ntarget = \"small\"\n";

    #[test]
    fn feature_c12_a_kept_model_without_counterpart_is_left_out_and_told_of() {
        let named = "[[models]]\nname = \"small\"\npath = \"p\"\n";
        let (table, told) = laid(named, KEPT);
        let expected = "[[models]]\nname = \"small\"\npath = \"p\"\nenabled = false\n\
            [[aliases]]\nname = \"prod\"\ntarget = \"small\"\n";
        assert_eq!(table, expected.parse::<Table>().expect("a table"));
        let [left_out] = told.left_out.as_slice() else {
            panic!("{told:?}");
        };
        assert!(left_out.contains("`kept.toml`") && left_out.contains("`gone`"));
        assert_eq!(told.aliases, BTreeSet::from(["prod".to_owned()]));
        // Without a list below there is no model either.
        let (table, told) = laid("[log]\n", KEPT);
        assert!(!table.contains_key("models"));
        assert_eq!(told.left_out.len(), 2);
    }

    #[test]
    fn feature_c12_kept_entries_leave_those_without_a_name_where_they_are() {
        let nameless = "[[models]]\npath = \"models/small\"\n[[models]]\nhf = \"org/big\"\n[[models]]\n\
            [[plugins.bindings]]\nkind = \"policy\"\n";
        let kept = "[[models]]\nname = \"small\"\nenabled = false\n[[models]]\nname = \"big\"\nenabled = false\n\
            [[models]]\nname = \"mortise-demo\"\nenabled = false\n\
            [[plugins.bindings]]\nname = \"door\"\nkind = \"policy\"\n";
        let (table, told) = laid(nameless, kept);
        assert_eq!(told.left_out, Vec::<String>::new());
        let models = table["models"].as_array().expect("a list");
        let of = |index: usize, key: &str| models[index].get(key).and_then(Value::as_str);
        assert_eq!(of(0, "path"), Some("models/small"));
        assert_eq!(of(1, "hf"), Some("org/big"));
        assert_eq!(of(2, "name"), Some("mortise-demo"));
        assert_eq!(models.len(), 3);
        assert!(
            models
                .iter()
                .all(|model| model["enabled"] == Value::from(false))
        );
        let bindings = table["plugins"]["bindings"].as_array().expect("a list");
        assert_eq!(bindings.len(), 2);
    }
}
