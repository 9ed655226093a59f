//! `examples/plugins`: each is built, and passes its cases; and what is not Rust serves.

use std::path::{Path, PathBuf};

use crate::shell::run;
use crate::support::example::{built, root, source};
use crate::support::{Server, have};

#[test]
fn examples_in_rust_pass_their_cases() {
    for name in [
        "house-rules",
        "vendor-formats",
        "choices",
        "daily-quota",
        "calculator",
        "date-time",
        "banned-words",
        "http-fetch",
    ] {
        let script = format!("mortise plugin test {:?}", built(name));
        let printed = run(&source(name), &script);
        assert!(printed.contains("cases passed"), "{name}: {printed}");
    }
}

/// Make a project of the kind and language, lay the example's own files over it, and build it. What an
/// example holds must differ from what the project has anyway.
/// Texts of `put_in` are added to the ends of files, before it is built.
pub(crate) fn build(
    name: &str,
    kind: &str,
    lang: &str,
    make: &str,
    put_in: &[(&str, &str)],
) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("make a folder");
    let source = source(name);
    let added = folder.path().join("added");
    std::fs::create_dir(&added).expect("make a folder");
    for (file, text) in put_in {
        std::fs::write(added.join(file), text).expect("write a file");
    }
    let script = format!(
        "mortise plugin new {name} --kind {kind} --lang {lang}\n\
         rm -r {name}/cases\n\
         (cd {source:?} && find . -type f) | while read -r file; do\n\
         ! cmp -s {source:?}/$file {name}/$file || {{ echo \"$file is the template's\" >&2; exit 1; }}\n\
         done\n\
         cp -r {source:?}/. {name}\n\
         (cd added && find . -type f) | while read -r file; do\n\
         cat added/$file >> {name}/$file\n\
         done\n\
         cd {name}\n\
         {make}"
    );
    run(folder.path(), &script);
    let file = folder.path().join(name).join(format!("{name}.wasm"));
    (folder, file)
}

#[test]
fn the_parser_in_c_passes_its_cases() {
    if have(&["python3", "make"]) {
        let (_folder, file) = build("function-tags-c", "output-parser", "c", "make", &[]);
        passes(&file);
    }
}

#[test]
fn the_retriever_in_python_passes_its_cases() {
    if have(&["python3", "make"]) {
        let name = "contract-clauses-python";
        build(name, "retriever", "python", "make test", &[]);
    }
}

/// Run the golden cases of a project that was built. Its code is compiled well, and kept for a server.
pub(crate) fn passes(file: &Path) {
    let script = format!(
        "mortise plugin bench --cache build/cache --rounds 1 {file:?} > bench.json\n\
         mortise plugin test --cache build/cache {file:?}\n"
    );
    let printed = run(file.parent().expect("a folder"), &script);
    assert!(printed.contains("cases passed"), "{printed}");
}

/// A server with this policy, from the code that its test has compiled; `more` are further keys of its
/// binding, and tables.
pub(crate) fn serving(file: &Path, settings: &str, more: &str) -> Server {
    let cache = file.with_file_name("build").join("cache");
    Server::configured(&format!(
        "[plugins]\ncache_dir = {cache:?}\n\
         [[plugins.bindings]]\nkind = \"policy\"\nfile = {file:?}\nsettings = {settings}\n{more}"
    ))
}

/// A model with another chat template, as its files have it.
fn with_template(template: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("make a folder");
    let model = root().join("examples/demo-model/model");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::os::unix::fs::symlink(model.join(file), folder.path().join(file)).expect("link");
    }
    let read = |file: PathBuf| std::fs::read_to_string(file).expect("read a file");
    let config = read(model.join("tokenizer_config.json"));
    let mut config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    config["chat_template"] = read(root().join("tests/templates").join(template)).into();
    let file = folder.path().join("tokenizer_config.json");
    std::fs::write(file, config.to_string()).expect("write the template");
    folder
}

/// A template that is written around the model's own and adds nothing gives the same text and tokens over all
/// conversations, whether the templates are like those of Llama, Mistral or Qwen.
#[test]
fn a_template_around_the_models_own_gives_its_tokens() {
    let script = format!(
        "mortise plugin compose {:?} --output whole.wasm\n",
        built("company-line")
    );
    let folder = tempfile::tempdir().expect("make a folder");
    run(folder.path(), &script);
    for template in ["headers.jinja", "instruct.jinja", "hermes-tools.jinja"] {
        let model = with_template(template);
        let compare = |line: &str| {
            let settings = serde_json::json!({"line": line, "inner": {}}).to_string();
            let script = format!(
                "mkdir -p none\nmortise plugin test whole.wasm --cases none --settings '{settings}' \
                 --like-model {:?} || true\n",
                model.path()
            );
            run(folder.path(), &script)
        };
        let same = compare("");
        let count = same.matches("ok      like the model: ").count();
        assert_eq!(count, 16, "{template}: {same}");
        assert!(
            !same.contains("FAILED  like the model"),
            "{template}: {same}"
        );
        let other = compare("Be kind.");
        assert!(
            other.contains("FAILED  like the model"),
            "{template}: {other}"
        );
    }
}

/// The plugin that renders the model's own Jinja agrees with it; one that words tools otherwise does not, and
/// is told where.
#[test]
fn a_template_is_held_to_the_models_own() {
    let root = root();
    let (model, own) = (
        root.join("examples/demo-model/model"),
        root.join("host/bundle/prebuilt/chat-template.wasm"),
    );
    let cases = source("house-rules").join("cases");
    let script =
        format!("mortise plugin test {own:?} --cases {cases:?} --like-model {model:?} || true");
    let printed = run(&root, &script);
    assert!(!printed.contains("FAILED  like the model"), "{printed}");
    assert!(
        printed.contains("ok      like the model: five turns with tools"),
        "{printed}"
    );
    let rules = built("house-rules");
    let script = format!(
        "mortise plugin test {rules:?} --settings '{{\"rules\": \"\"}}' --like-model {model:?} && exit 1 || true"
    );
    let printed = run(&source("house-rules"), &script);
    assert!(
        printed.contains("ok      like the model: two turns"),
        "{printed}"
    );
    let told = "FAILED  like the model: one tool: the text differs at character";
    assert!(printed.contains(told), "{printed}");
}
