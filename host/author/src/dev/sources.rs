//! Sources of a project: which files there are, and when each was last changed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

use super::project::Project;

/// Files of a project that are looked at.
const MAX_FILES: usize = 10_000;

/// Folders of what is built or fetched.
const BUILT: [&str; 6] = [
    "target",
    "build",
    "node_modules",
    "venv",
    "__pycache__",
    "dist",
];

/// Sources at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sources(BTreeMap<PathBuf, (SystemTime, u64)>);

impl Sources {
    /// The sources of a project as they are now.
    pub(crate) fn of(project: &Project) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        read(&project.folder, &mut files)
            .with_context(|| format!("cannot look at `{}`", project.folder.display()))?;
        Ok(Self(files))
    }

    /// True if all files of `before` are there as they were.
    pub(crate) fn only_adds_to(&self, before: &Self) -> bool {
        before
            .0
            .iter()
            .all(|(path, state)| self.0.get(path) == Some(state))
    }
}

fn read(folder: &Path, files: &mut BTreeMap<PathBuf, (SystemTime, u64)>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        // Links are not followed: they lead to what is built, or in a circle.
        let kind = entry.file_type()?;
        if name.starts_with('.') || BUILT.contains(&&*name) || name.ends_with(".wasm") {
            continue;
        }
        if kind.is_dir() {
            read(&path, files)?;
            continue;
        }
        // A file that an editor has just put another in the place of is seen at the next look.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if kind.is_file() {
            files.insert(path, (metadata.modified()?, metadata.len()));
        }
        if files.len() > MAX_FILES {
            bail!(
                "there are more than {MAX_FILES} files; give the project's own folder by --project"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_change_and_what_is_built_does_not_count() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("src")).unwrap();
        std::fs::create_dir_all(at("target/release")).unwrap();
        std::fs::write(at("src/lib.rs"), "a").unwrap();
        let project = Project {
            folder: folder.path().to_owned(),
            name: "x".to_owned(),
            command: String::new(),
            output: PathBuf::new(),
        };
        let before = Sources::of(&project).unwrap();
        std::fs::write(at("target/release/x"), "b").unwrap();
        std::fs::write(at("x.wasm"), "b").unwrap();
        std::os::unix::fs::symlink(folder.path(), at("circle")).unwrap();
        assert_eq!(Sources::of(&project).unwrap(), before);
        std::fs::write(at("Cargo.lock"), "c").unwrap();
        let more = Sources::of(&project).unwrap();
        assert!(more != before && more.only_adds_to(&before));
        std::fs::write(at("src/lib.rs"), "ab").unwrap();
        assert!(!Sources::of(&project).unwrap().only_adds_to(&before));
    }
}
