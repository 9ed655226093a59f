//! Files that are laid one over the other, such as a common one and that of one machine.

use std::path::{Path, PathBuf};

use toml::Table;

use super::ConfigError;
use super::auth::RawAuth;
use super::kept_layer::lay_kept;
use super::laid_changes::LaidChanges;
use super::merging::merge;
use super::raw::{self, Raw};

/// Variables that name the files: the first one, and one that is laid over all others.
const FILE: &str = "MORTISE_CONFIG";
const LOCAL_FILE: &str = "MORTISE_LOCAL_CONFIG";
/// Bytes of a file.
pub(super) const MAX_CONFIG_BYTES: u64 = 64 << 20;

/// Files of a server: those of the command line, or else that of `MORTISE_CONFIG`; and over them that of
/// `MORTISE_LOCAL_CONFIG`.
pub fn config_files(given: Vec<PathBuf>) -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    files_of(given, &|name| variable(name).map(PathBuf::from))
}

fn files_of(given: Vec<PathBuf>, variable: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let mut files = match given.is_empty() {
        true => variable(FILE).into_iter().collect(),
        false => given,
    };
    files.extend(variable(LOCAL_FILE));
    files
}

/// Folder that the files lie in, and the other files that they name.
pub(super) fn folder_of<P: AsRef<Path>>(files: &[P]) -> &Path {
    let folder = files.first().and_then(|file| file.as_ref().parent());
    folder.unwrap_or(Path::new("."))
}

/// Read files, each laid over those before it, and over them the changes of the admin side that were kept. Each must be
/// right by itself.
pub(super) fn read<P: AsRef<Path>>(files: &[P]) -> Result<(Raw, LaidChanges), ConfigError> {
    let mut merged = Table::new();
    let mut last = Raw::default();
    for file in files {
        let path = file.as_ref();
        let text = text_of(path)?;
        last = raw::parse(&text).map_err(|message| malformed(path, message))?;
        let table: Table = text
            .parse()
            .map_err(|error| malformed(path, format!("{error}")))?;
        merge(&mut merged, table);
    }
    let base = folder_of(files);
    let kept = kept_file(&merged, base).filter(|path| path.exists());
    if let Some(path) = kept {
        let text = text_of(&path)?;
        raw::parse(&text).map_err(|message| malformed(&path, message))?;
        let table: Table = text
            .parse()
            .map_err(|error| malformed(&path, format!("{error}")))?;
        let laid = lay_kept(&mut merged, table, base, &path);
        let raw = raw::of_merged(&merged).map_err(|message| malformed(&path, message))?;
        return Ok((raw, laid));
    }
    let raw = match files {
        // With the lines of its keys, for messages.
        [] | [_] => last,
        [.., path] => {
            raw::of_merged(&merged).map_err(|message| malformed(path.as_ref(), message))?
        }
    };
    Ok((raw, LaidChanges::default()))
}

/// Read a text in the place of files that lie in a folder, with the changes of the admin side that were kept there.
pub(super) fn of_candidate(
    text: &str,
    base: &Path,
) -> Result<(Raw, LaidChanges, Table), ConfigError> {
    let named = Path::new("settings");
    let raw = raw::parse(text).map_err(|message| malformed(named, message))?;
    let table = text.parse();
    let mut table: Table = table.map_err(|error| malformed(named, format!("{error}")))?;
    let kept = kept_file(&table, base).filter(|path| path.exists());
    let Some(path) = kept else {
        return Ok((raw, LaidChanges::default(), table));
    };
    let kept = text_of(&path)?.parse();
    let kept: Table = kept.map_err(|error| malformed(&path, format!("{error}")))?;
    let laid = lay_kept(&mut table, kept, base, &path);
    let merged = raw::of_merged(&table).map_err(|message| malformed(&path, message))?;
    Ok((merged, laid, table))
}

/// Files as one text, without the changes that the admin side keeps.
///
/// # Errors
/// When a file cannot be read or is wrong.
pub fn merged_text<P: AsRef<Path>>(files: &[P]) -> Result<String, ConfigError> {
    read(files)?;
    Ok(table_of(files, false).to_string())
}

/// The file of kept changes that a table names, below the folder of the first file.
pub(super) fn kept_file(table: &Table, base: &Path) -> Option<PathBuf> {
    let name = table.get("admin")?.as_table()?.get("persist")?.as_str()?;
    Some(base.join(name))
}

/// The table `auth` of files that are laid one over the other, with the changes of the admin side that were kept. What
/// else stands in them only has to be TOML.
pub(super) fn auth_of<P: AsRef<Path>>(files: &[P]) -> Result<RawAuth, ConfigError> {
    let table = |path: &Path| -> Result<Table, ConfigError> {
        let parsed = text_of(path)?.parse();
        parsed.map_err(|error| malformed(path, format!("{error}")))
    };
    let mut all = Table::new();
    for file in files {
        merge(&mut all, table(file.as_ref())?);
    }
    let base = folder_of(files);
    if let Some(kept) = kept_file(&all, base).filter(|path| path.exists()) {
        let changes = table(&kept)?;
        lay_kept(&mut all, changes, base, &kept);
    }
    match all.remove("auth") {
        None => Ok(RawAuth::default()),
        Some(auth) => auth.try_into().map_err(|error| {
            let file = files.last().map_or(Path::new(""), AsRef::as_ref);
            malformed(file, format!("in the table `auth`: {error}"))
        }),
    }
}

fn text_of(path: &Path) -> Result<String, ConfigError> {
    mortise_files::read_text(path, MAX_CONFIG_BYTES).map_err(|source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    })
}

fn malformed(path: &Path, message: String) -> ConfigError {
    ConfigError::Malformed {
        path: path.to_owned(),
        message,
    }
}

/// Files as one table, with the changes of the admin side that were kept if they are wanted. What cannot be read is
/// left out.
pub(super) fn table_of<P: AsRef<Path>>(files: &[P], with_kept: bool) -> Table {
    let read = |path: &Path| text_of(path).ok()?.parse().ok();
    let tables = files.iter().filter_map(|file| read(file.as_ref()));
    let mut all = tables.fold(Table::new(), |mut below, above| {
        merge(&mut below, above);
        below
    });
    let base = folder_of(files);
    let kept = kept_file(&all, base).filter(|_| with_kept);
    if let Some(path) = kept
        && let Some(changes) = read(&path)
    {
        lay_kept(&mut all, changes, base, &path);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feature_c4_variables_name_files_and_the_command_line_wins() {
        let variable = |name: &str| Some(PathBuf::from(name));
        let none = |_: &str| None;
        let given = || vec![PathBuf::from("given")];
        assert_eq!(files_of(Vec::new(), &none), Vec::<PathBuf>::new());
        assert_eq!(files_of(given(), &none), given());
        let files = |given| files_of(given, &variable);
        assert_eq!(
            files(Vec::new()),
            [PathBuf::from(FILE), PathBuf::from(LOCAL_FILE)]
        );
        assert_eq!(
            files(given()),
            [PathBuf::from("given"), PathBuf::from(LOCAL_FILE)]
        );
    }

    #[test]
    fn feature_c4_each_file_is_checked_by_itself_and_all_of_them_together() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a file");
            path
        };
        let base = write("base.toml", "[server]\nport = 9000\n");
        let local = write("local.toml", "[limits]\nmax_queue = 3\n");
        let wrong = write("wrong.toml", "\n[limits]\nmax_queu = 3\n");
        let (raw, _) = read(&[&base, &local]).expect("both are right");
        assert_eq!(raw.server.port, 9000);
        assert_eq!(
            table_of(&[&base, &local], true)["limits"]["max_queue"].as_integer(),
            Some(3)
        );
        let error = read(&[&base, &wrong])
            .expect_err("a key is wrong")
            .to_string();
        assert!(
            error.contains("wrong.toml") && error.contains("line 3"),
            "{error}"
        );
        assert!(read(&[&base, &folder.path().join("absent.toml")]).is_err());
    }

    #[test]
    fn what_is_merged_is_what_was_written_and_an_error_names_its_key() {
        let text = "[server]\nport = 9\n[[models]]\nname = \"a\"\npath = \"p\"\n";
        let table: Table = text.parse().expect("a table");
        let mut written = raw::parse(text).expect("right");
        written.plugins.bindings.clear();
        assert_eq!(raw::of_merged(&table), Ok(written));
        let wrong: Table = "[server]\nport = \"nine\"\n".parse().expect("a table");
        let error = raw::of_merged(&wrong).expect_err("a port is a number");
        assert!(error.contains("`/server/port`"), "{error}");
    }
}
