//! Settings as keys and values, to be compared: which have changed since a server read them.

use toml::{Table, Value};

use super::DEFAULT_FILE;
use super::merging::merge;

/// Tables whose changes a running server takes over, in whole.
const APPLIED: [&str; 4] = ["models", "discovery", "auth", "plugins"];
/// Tables within others whose changes it takes over, if they were there at the start.
const APPLIED_WITHIN: [&str; 2] = ["server.tls.", "admin.tls."];
/// Keys of those tables that it does not take over.
const NOT_APPLIED: [&str; 2] = ["plugins.cache_dir", "plugins.watch_ms"];

/// Settings of a file, with defaults where it says nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings(Table);

impl Settings {
    /// Settings of a table that has been checked.
    pub(super) fn of_table(table: Table) -> Self {
        let mut settings: Table = DEFAULT_FILE.parse().unwrap_or_default();
        merge(&mut settings, table);
        Self(settings)
    }

    /// Keys that differ and take effect at the next start only, in order.
    pub fn restart_keys(&self, now: &Self) -> Vec<String> {
        let mut keys = Vec::new();
        differing("", &self.0, &now.0, &mut keys);
        keys.retain(|key| !self.is_applied(key, now));
        keys
    }

    /// Keys that differ and take effect at a reload, in order.
    pub fn reload_keys(&self, now: &Self) -> Vec<String> {
        let mut keys = Vec::new();
        differing("", &self.0, &now.0, &mut keys);
        keys.retain(|key| self.is_applied(key, now));
        keys
    }
}

impl Settings {
    /// True if a running server takes over a change of this key.
    fn is_applied(&self, key: &str, now: &Self) -> bool {
        let table = key.split('.').next().unwrap_or_default();
        let within = APPLIED_WITHIN.iter().any(|within| {
            key.starts_with(within) && self.has_table(within) && now.has_table(within)
        });
        (within || APPLIED.contains(&table)) && !NOT_APPLIED.contains(&key)
    }

    /// True if there is a table at this path, whose parts end in dots.
    fn has_table(&self, path: &str) -> bool {
        let mut table = Some(&self.0);
        for part in path.split_terminator('.') {
            table = table.and_then(|table| table.get(part)?.as_table());
        }
        table.is_some()
    }
}

fn differing(prefix: &str, one: &Table, other: &Table, keys: &mut Vec<String>) {
    let empty = Value::Table(Table::new());
    let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let key = match prefix {
            "" => name.clone(),
            prefix => format!("{prefix}.{name}"),
        };
        let tables = |value: Option<&Value>| value.is_some_and(Value::is_table);
        match (one.get(name), other.get(name)) {
            (before, after) if before == after => {}
            (before, after) if tables(before) || tables(after) => {
                let (before, after) = (before.unwrap_or(&empty), after.unwrap_or(&empty));
                match (before, after) {
                    (Value::Table(before), Value::Table(after)) => {
                        differing(&key, before, after, keys);
                    }
                    _ => keys.push(key),
                }
            }
            _ => keys.push(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_text(text: &str) -> Settings {
        Settings::of_table(text.parse().expect("a table"))
    }

    #[test]
    fn feature_c10_keys_that_need_a_restart_are_named_and_defaults_are_no_change() {
        let before = of_text("[server]\nport = 9000\n[engine.tenant_weights]\na = 2\n");
        let same = of_text(
            "[engine.tenant_weights]\na = 2\n[server]\nport = 9000\nhost = \"127.0.0.1\"\n",
        );
        assert_eq!(before.restart_keys(&same), Vec::<String>::new());
        let after = of_text(
            "[limits]\nmax_queue = 3\n[plugins]\nwatch_ms = 5\ndir = \"x\"\n[engine.tenant_weights]\n\
             b = 1\n[[models]]\nname = \"m\"\n[auth]\nanonymous = true\n",
        );
        assert_eq!(
            before.restart_keys(&after),
            [
                "engine.tenant_weights.a",
                "engine.tenant_weights.b",
                "limits.max_queue",
                "plugins.watch_ms",
                "server.port",
            ]
        );
        assert_eq!(
            before.reload_keys(&after),
            ["auth.anonymous", "models", "plugins.dir"]
        );
    }

    #[test]
    fn feature_z4_certificates_are_taken_over_and_tls_itself_is_not() {
        let before = of_text("[server.tls]\ncert = \"a\"\nkey = \"a\"\n");
        let after = of_text("[server.tls]\ncert = \"b\"\nkey = \"a\"\nmin_version = \"1.3\"\n");
        assert_eq!(before.restart_keys(&after), Vec::<String>::new());
        let without = of_text("");
        assert_eq!(
            before.restart_keys(&without),
            ["server.tls.cert", "server.tls.key"]
        );
    }
}
