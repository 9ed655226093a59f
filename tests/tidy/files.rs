//! Files: their length, that of their functions, their names, their heads, and where unsafe code may stand.

use std::fs;

use crate::{functions, is_test, root, sources};

/// Lines of a source file at most; tests apart.
const FILE_LINES: usize = 600;

#[test]
fn functions_fit_on_a_screen() {
    let mut long = Vec::new();
    for path in sources().iter().filter(|path| !is_test(path)) {
        let text = fs::read_to_string(path).expect("read a source file");
        for (name, line, length) in functions::long_functions(&text) {
            long.push(format!("{}:{line} {name}: {length} lines", path.display()));
        }
    }
    let limit = functions::FUNCTION_LINES;
    assert!(
        long.is_empty(),
        "functions of more than {limit} lines: {long:#?}"
    );
}

#[test]
fn files_can_be_read_in_a_sitting() {
    for path in sources().iter().filter(|path| !is_test(path)) {
        let lines = fs::read_to_string(path)
            .expect("read a source file")
            .lines()
            .count();
        assert!(
            lines <= FILE_LINES,
            "{} has {lines} lines; split what does not belong together",
            path.display()
        );
    }
}

#[test]
fn names_say_what_is_inside() {
    const NO_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc"];
    for path in sources() {
        for part in path.components() {
            let name = part.as_os_str().to_string_lossy();
            let stem = name.strip_suffix(".rs").unwrap_or(&name);
            assert!(
                !NO_NAMES.contains(&stem),
                "{}: {stem} is no name",
                path.display()
            );
        }
    }
}

#[test]
fn every_source_file_says_what_it_is_for() {
    for path in sources() {
        let text = fs::read_to_string(&path).expect("read a source file");
        assert!(
            text.starts_with("//!") || is_test(&path),
            "{} has no module head",
            path.display()
        );
    }
}

#[test]
fn unsafe_code_stays_at_the_edges() {
    const EDGES: &[&str] = &[
        "kernels/",
        "host/plugin/",
        "host/model/",
        "host/cli/src/memory.rs",
        "wit/",
    ];
    for path in sources() {
        let text = fs::read_to_string(&path).expect("read a source file");
        let relative = path.strip_prefix(root()).expect("a path below the root");
        let relative = relative.to_string_lossy();
        let uses = text.lines().any(|line| {
            let code = line.trim_start();
            !code.starts_with("//") && (code.contains("unsafe {") || code.contains("unsafe fn"))
        });
        assert!(
            !uses || EDGES.iter().any(|edge| relative.starts_with(edge)),
            "{relative} has unsafe code; it belongs in kernels/ or at an FFI edge"
        );
    }
}
