//! The packages that authors install, made by `packaging/sdks`: they hold what the projects of `mortise plugin new` carry,
//! byte for byte, and build the reference plugins in its place. The projects of the other kinds are built by the pages.

use std::fmt::Write as _;

use crate::shell::{run, typescript};
use crate::support::example::root;
use crate::support::have;

/// Kinds of plugins, and the languages that have a project of each.
const KINDS: [&str; 7] = [
    "policy",
    "output-parser",
    "chat-template",
    "tool",
    "grammar",
    "guardrail",
    "retriever",
];

/// Make the packages in `dist`, and unpack them.
fn unpacked() -> String {
    format!(
        "{:?}/packaging/sdks --out dist\n\
         mkdir crate headers wheel npm\n\
         tar xzf dist/mortise-plugin-sdk-*.crate --strip-components=1 -C crate\n\
         tar xzf dist/mortise-plugin-c-*.tar.gz --strip-components=1 -C headers\n\
         tar xzf dist/mortise-plugin-[0-9]*.tgz --strip-components=1 -C npm\n\
         python3 -m zipfile -e dist/mortise_plugin-*.whl wheel\n",
        root()
    )
}

#[test]
fn projects_carry_what_the_packages_have() {
    if !have(&["python3"]) {
        return;
    }
    let mut script = unpacked();
    for kind in KINDS {
        let _ = write!(
            script,
            "mortise plugin new r-{kind} --kind {kind}\n\
             diff -r r-{kind}/sdk/src crate/src\n\
             diff -r r-{kind}/sdk/wit crate/wit\n\
             mortise plugin new p-{kind} --kind {kind} --lang python\n\
             rm -rf p-{kind}/mortise_plugin/__pycache__\n\
             diff -r p-{kind}/mortise_plugin wheel/mortise_plugin\n\
             mortise plugin new j-{kind} --kind {kind} --lang js\n\
             diff -r j-{kind}/mortise-plugin npm\n"
        );
        let _ = write!(
            script,
            "mortise plugin new c-{kind} --kind {kind} --lang c\n\
             diff -r c-{kind}/wit headers/{kind}\n\
             diff c-{kind}/json.h headers/json.h\n\
             echo compared {kind}\n"
        );
    }
    let folder = tempfile::tempdir().expect("make a folder");
    let printed = run(folder.path(), &script);
    assert_eq!(
        printed.matches("compared ").count(),
        KINDS.len(),
        "{printed}"
    );
}

#[test]
fn the_crate_and_the_wheel_build_the_reference_plugins() {
    if !have(&["python3", "make"]) {
        return;
    }
    let mut script = unpacked();
    script.push_str(
        "mortise plugin new r-policy --kind policy\n\
         rm -r r-policy/sdk\n\
         cp -r crate r-policy/sdk\n\
         (cd r-policy; cargo build --release --target wasm32-wasip2\n\
         mortise plugin test target/wasm32-wasip2/release/r_policy.wasm)\n",
    );
    // The kinds that no page builds in Python.
    for kind in ["tool", "chat-template", "guardrail"] {
        let _ = write!(
            script,
            "mortise plugin new py-{kind} --kind {kind} --lang python\n\
             rm -r py-{kind}/mortise_plugin py-{kind}/Makefile\n\
             test -d site || py-{kind}/build/venv/bin/pip install -q --no-deps --no-index \
             --disable-pip-version-check --target site dist/mortise_plugin-*.whl\n\
             (cd py-{kind}; export PYTHONPATH=$PWD/../site\n\
             build/venv/bin/python -m mortise_plugin build\n\
             mortise plugin test py-{kind}.wasm)\n"
        );
    }
    script.push_str(
        "cd py-tool\n\
         PYTHONPATH=$PWD/../site build/venv/bin/python -m mortise_plugin types --output types\n\
         grep -r 'class Declaration' types\n\
         ! PYTHONPATH=$PWD/../site build/venv/bin/python -m mortise_plugin build --folder cases\n",
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let printed = run(folder.path(), &script);
    assert_eq!(printed.matches("cases passed").count(), 4, "{printed}");
    for told in [
        "built `py-tool.wasm`, kind tool",
        "wrote the types of tool plugins",
    ] {
        assert!(printed.contains(told), "{told}: {printed}");
    }
}

/// A plugin that the types must refuse, each line for what stands behind it.
const WRONG: &str = "\
/** @type {import('mortise:plugin/policy@0.3.0').Policy} */\n\
export const policy = {\n\
  // @ts-expect-error a status that is a text\n\
  authorize: () => ({ tag: 'deny', val: { status: '403', kind: 'a', code: 'b', message: 'c', headers: [] } }),\n\
  // @ts-expect-error a field that there is not\n\
  account: (usage) => usage.tokens,\n\
};\n\
// @ts-expect-error a bigint where the host takes a number\n\
import('mortise:plugin/host@0.3.0').then(({ count }) => count('a', 1n));\n\
/** @type {import('mortise:plugin/policy@0.1.0').Allow} */\n\
// @ts-expect-error nothing of an older version\n\
export const allow = {};\n";

#[test]
fn the_npm_package_builds_the_reference_plugins_and_its_types_hold() {
    if !have(&["python3", "node", "npm"]) {
        return;
    }
    let mut script = unpacked();
    for (number, kind) in KINDS.into_iter().enumerate() {
        // The package is installed once, as from a registry.
        let modules = match number {
            0 => "npm install --silent --no-audit --no-fund ../dist/mortise-plugin-[0-9]*.tgz",
            _ => "ln -s ../js-policy/node_modules node_modules",
        };
        let _ = write!(
            script,
            "mortise plugin new js-{kind} --kind {kind} --lang js\n\
             (cd js-{kind}\n\
             rm -r mortise-plugin package-lock.json\n\
             {modules}\n\
             npx mortise-plugin build\n\
             mortise plugin test js-{kind}.wasm)\n"
        );
    }
    let compiler = typescript();
    let _ = write!(
        script,
        "node {compiler:?} -p js-policy/jsconfig.json\n\
         cat > js-policy/wrong.js <<'END'\n{WRONG}END\n\
         cat > tsconfig.json <<'END'\n\
         {{\"extends\": \"./js-policy/jsconfig.json\", \"compilerOptions\": {{\"types\": []}},\n\
         \"include\": [\"js-*/*.js\", \"npm/types/*.d.ts\"]}}\nEND\n\
         node {compiler:?} -p tsconfig.json\n\
         cd js-policy\n\
         ! npx mortise-plugin build --folder cases\n\
         echo 'export const policy = 5 +;' > plugin.js\n\
         ! npx mortise-plugin build 2> told.txt\n\
         cat told.txt\n"
    );
    let folder = tempfile::tempdir().expect("make a folder");
    let printed = run(folder.path(), &script);
    assert_eq!(printed.matches("cases passed").count(), 7, "{printed}");
    for told in ["built `js-tool.wasm`, kind tool", "plugin.js"] {
        assert!(printed.contains(told), "{told}: {printed}");
    }
}

/// `console`, `TextEncoder` and `TextDecoder` of the npm package do what those of Node.js do.
#[test]
fn texts_in_javascript_are_those_of_the_standard() {
    if !have(&["node"]) {
        return;
    }
    let script = r"
import { TextDecoder as Decoder, TextEncoder as Encoder } from './text.mjs';
let state = 1;
const draw = (below) => ((state = (state * 1103515245 + 12345) & 0x7fffffff) >> 8) % below;
const some = (pool) => Array.from({ length: draw(8) }, () => pool[draw(pool.length)]);
const BYTES = [0, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbb, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef];
const UNITS = [0x41, 0xe9, 0x20ac, 0xd800, 0xdbff, 0xdc00, 0xdfff, 0xfffd, 0xfeff];
const broken = (make) => { try { make(); return false; } catch { return true; } };
for (let round = 0; round < 50000; round++) {
  const bytes = Uint8Array.from(some([...BYTES, 0xf0, 0xf1, 0xf4, 0xf5, 0xff]));
  const [own, node] = [new Decoder(), new TextDecoder()].map((decoder) => decoder.decode(bytes));
  const fatal = [Decoder, TextDecoder].map((Kind) => broken(() => new Kind('utf-8', { fatal: true }).decode(bytes)));
  if (own !== node || fatal[0] !== fatal[1]) throw new Error(`decoding ${bytes}`);
  const text = String.fromCharCode(...some(UNITS));
  if (`${new Encoder().encode(text)}` !== `${new TextEncoder().encode(text)}`) throw new Error(`encoding ${escape(text)}`);
}
console.log('the same');
";
    let folder = tempfile::tempdir().expect("make a folder");
    let source = root().join("packaging/js/guest/text.js");
    std::fs::copy(source, folder.path().join("text.mjs")).expect("copy the module");
    std::fs::write(folder.path().join("compare.mjs"), script).expect("write the script");
    let printed = run(folder.path(), "node compare.mjs\n");
    assert_eq!(printed, "the same\n");
}
