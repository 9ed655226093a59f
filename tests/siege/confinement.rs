//! The small machine that the server believes it is on.

use std::fs;
use std::path::{Path, PathBuf};

/// Memory that the server may have, in MiB.
pub(crate) const MEMORY_MIB: u64 = 512;

/// A control group with a bound on memory, where this process may make one.
pub(crate) struct Confinement {
    group: Option<PathBuf>,
}

impl Confinement {
    pub(crate) fn new() -> Self {
        let name = format!("mortise-siege-{}", std::process::id());
        // The first is where version 1 has its memory controller, the second a hierarchy of version 2.
        let group = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ]
        .iter()
        .find_map(|(root, limit)| make_group(&Path::new(root).join(&name), limit));
        Self { group }
    }

    /// A program, and its arguments, that runs what follows confined.
    pub(crate) fn wrapper(&self) -> Vec<String> {
        let enter = match &self.group {
            Some(group) => format!("echo $$ > '{}'\n", group.join("cgroup.procs").display()),
            None => String::new(),
        };
        // Where the first core is another's, or the program is missing, it has all.
        let script = format!(
            "{enter}ulimit -n 256\nif taskset -c 0 true; then exec taskset -c 0 \"$@\"; fi\nexec \"$@\""
        );
        ["sh", "-c", &script, "sh"].map(str::to_owned).to_vec()
    }

    pub(crate) fn line(&self) -> String {
        match &self.group {
            Some(group) => format!("confined to {MEMORY_MIB} MiB by {}", group.display()),
            None => "no control group can be made here: peak memory is compared only".to_owned(),
        }
    }
}

fn make_group(group: &Path, limit: &str) -> Option<PathBuf> {
    fs::create_dir(group).ok()?;
    let bytes = (MEMORY_MIB << 20).to_string();
    // Of version 2 without the controller there is no such file.
    if group.join(limit).exists() && fs::write(group.join(limit), bytes).is_ok() {
        return Some(group.to_owned());
    }
    let _ = fs::remove_dir(group);
    None
}

impl Drop for Confinement {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            let _ = fs::remove_dir(group);
        }
    }
}
