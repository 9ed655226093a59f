//! Fuzz targets: one module and one program each. Built with `--cfg fuzzing`, as `fuzz/run` and cargo-fuzz do, the
//! programs are fuzzers; without, they run on the files that they are given.

use std::path::{Path, PathBuf};
use std::{fs, io};

#[cfg(fuzzing)]
pub use libfuzzer_sys;

mod files;
mod load;

/// Each target, with its module.
macro_rules! targets {
    ($($name:ident)*) => {
        $(pub mod $name;)*

        /// Names of all targets, and what runs one on an input.
        pub const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::run)),*];
    };
}

targets! {
    adapter
    bearer_token
    config_json
    config_toml
    document
    form
    gguf
    golden_cases
    output_parser
    plugin_answer
    plugin_component
    safetensors_folder
    tokenizer_json
    upstream_answer
    vector_filter
}

/// The program of a target.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::$name::run(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            for path in std::env::args_os().skip(1) {
                $crate::replay(std::path::Path::new(&path), $crate::$name::run)?;
            }
            Ok(())
        }
    };
}

/// Run a target on a file, or on all files of a folder. Returns how many.
///
/// # Errors
///
/// When a file cannot be read.
pub fn replay(path: &Path, run: fn(&[u8])) -> io::Result<usize> {
    if !path.is_dir() {
        run(&fs::read(path)?);
        return Ok(1);
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut inputs = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    inputs.sort();
    for input in &inputs {
        run(&fs::read(input)?);
    }
    Ok(inputs.len())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn every_target_runs_on_its_seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let corpora = tempfile::tempdir().expect("make a folder");
        let made = Command::new(folder.join("seeds.sh"))
            .arg(corpora.path())
            .status();
        assert!(
            made.expect("run seeds.sh").success(),
            "seeds.sh makes the corpora"
        );
        for (name, run) in TARGETS {
            let seeds = replay(&corpora.path().join(name), *run).expect("read the seeds");
            assert!(seeds > 0, "{name} has seeds");
            assert!(
                folder.join(format!("fuzz_targets/{name}.rs")).is_file(),
                "{name} has a program"
            );
        }
        let programs = fs::read_dir(folder.join("fuzz_targets")).expect("read the folder");
        assert_eq!(programs.count(), TARGETS.len(), "each program has a target");
    }
}
