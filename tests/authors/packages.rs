//! The packages that authors install, made by `packaging/sdks`: the projects of `mortise plugin new` build from them in
//! the place of what they carry, and pass the same golden cases.

use std::fmt::Write as _;

use crate::shell::run;
use crate::support::example::root;
use crate::support::have;

/// The kinds whose reference plugins are built.
const KINDS: [&str; 4] = ["policy", "output-parser", "chat-template", "tool"];

#[test]
fn the_crate_the_wheel_and_the_headers_build_the_reference_plugins() {
    if !have(&["python3", "make"]) {
        return;
    }
    let mut script = format!(
        "{:?}/packaging/sdks --out dist\n\
         mkdir crate headers\n\
         tar xzf dist/mortise-plugin-sdk-*.crate --strip-components=1 -C crate\n\
         tar xzf dist/mortise-plugin-c-*.tar.gz --strip-components=1 -C headers\n",
        root()
    );
    for kind in KINDS {
        let file = format!("r_{}", kind.replace('-', "_"));
        let _ = write!(
            script,
            "mortise plugin new r-{kind} --kind {kind}\n\
             rm -r r-{kind}/sdk\n\
             cp -r crate r-{kind}/sdk\n\
             (cd r-{kind}; cargo build --release --target wasm32-wasip2\n\
             mortise plugin test target/wasm32-wasip2/release/{file}.wasm)\n\
             mortise plugin new c-{kind} --kind {kind} --lang c\n\
             rm -r c-{kind}/wit c-{kind}/json.h\n\
             cp -r headers/{kind} c-{kind}/wit\n\
             cp headers/json.h c-{kind}/\n\
             make -C c-{kind} test\n\
             mortise plugin new py-{kind} --kind {kind} --lang python\n\
             rm -r py-{kind}/wit py-{kind}/entry.py py-{kind}/Makefile\n\
             test -d site || py-{kind}/build/venv/bin/pip install -q --no-deps --no-index \
             --disable-pip-version-check --target site dist/mortise_plugin-*.whl\n\
             (cd py-{kind}; export PYTHONPATH=$PWD/../site\n\
             build/venv/bin/python -m mortise_plugin build\n\
             mortise plugin test --cache build/cache py-{kind}.wasm)\n"
        );
    }
    script.push_str(
        "cd py-policy\n\
         PYTHONPATH=$PWD/../site build/venv/bin/python -m mortise_plugin types --output types\n\
         grep -r 'class Allow' types\n\
         ! PYTHONPATH=$PWD/../site build/venv/bin/python -m mortise_plugin build --folder cases\n",
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let printed = run(folder.path(), &script);
    assert_eq!(printed.matches("cases passed").count(), 12, "{printed}");
    assert!(
        printed.contains("built `py-tool.wasm`, a tool plugin"),
        "{printed}"
    );
    assert!(
        printed.contains("wrote the types of a policy plugin"),
        "{printed}"
    );
}
