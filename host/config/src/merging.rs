//! Tables that are laid one over the other: entries of one name in lists of tables are one entry.

use toml::{Table, Value};

/// Keys by which entries of lists are told apart.
const IDENTITIES: [&str; 2] = ["name", "id"];

/// Lay a table over another: tables are merged, and so are entries of one name in lists of tables; everything else is
/// replaced.
pub(super) fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (Some(Value::Array(below)), Value::Array(above)) if have_names(below, &above) => {
                merge_lists(below, above);
            }
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Whether two lists are of tables with names.
fn have_names(below: &[Value], above: &[Value]) -> bool {
    !below.is_empty()
        && below
            .iter()
            .chain(above)
            .all(|entry| identity(entry).is_some())
}

pub(super) fn identity(entry: &Value) -> Option<(&'static str, &str)> {
    IDENTITIES
        .into_iter()
        .find_map(|key| Some((key, entry.as_table()?.get(key)?.as_str()?)))
}

pub(super) fn merge_lists(below: &mut Vec<Value>, above: Vec<Value>) {
    for entry in above {
        let same = below
            .iter_mut()
            .find(|other| identity(other) == identity(&entry));
        match (same, entry) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, entry) => below.push(entry),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(below: &str, above: &str) -> Table {
        let mut table: Table = below.parse().expect("a table");
        merge(&mut table, above.parse().expect("a table"));
        table
    }

    #[test]
    fn feature_c4_tables_and_named_entries_merge_and_the_rest_is_replaced() {
        let below = "[server]\nport = 1\nhost = \"a\"\nallowed_hosts = [\"x\", \"y\"]\n\
            [[models]]\nname = \"a\"\npath = \"p\"\n[models.script]\ndefault = \"d\"\nrepeat = 2\n\
            [[models]]\nname = \"b\"\n[[auth.api_keys]]\nid = \"k\"\nkey = \"1\"\n";
        let above = "[server]\nport = 2\nallowed_hosts = [\"z\"]\n\
            [[models]]\nname = \"c\"\n[[models]]\nname = \"a\"\npinned = true\n[models.script]\n\
            repeat = 3\n[[auth.api_keys]]\nid = \"k\"\nkey = \"2\"\n[log]\nlevel = \"warn\"\n";
        let expected = "[server]\nport = 2\nhost = \"a\"\nallowed_hosts = [\"z\"]\n\
            [[models]]\nname = \"a\"\npath = \"p\"\npinned = true\n[models.script]\ndefault = \"d\"\n\
            repeat = 3\n[[models]]\nname = \"b\"\n[[models]]\nname = \"c\"\n\
            [[auth.api_keys]]\nid = \"k\"\nkey = \"2\"\n[log]\nlevel = \"warn\"\n";
        assert_eq!(
            merged(below, above),
            expected.parse::<Table>().expect("a table")
        );
        // Where one entry has no name, the list is one value.
        let nameless = merged("[[models]]\npath = \"p\"\n", "[[models]]\nname = \"n\"\n");
        assert_eq!(nameless["models"].as_array().map(Vec::len), Some(1));
    }
}
