//! The commands on the pages of `docs/plugins`.

use std::net::TcpListener;
use std::time::Instant;

use crate::shell::run;
use crate::support::example::root;
use crate::support::have;

/// The commands in the `console` blocks of a page, as one script: lines that begin with `$ `, and those
/// behind them that begin with `> ` and go on with them.
fn commands(page: &str) -> String {
    let text = std::fs::read_to_string(root().join("docs/plugins").join(page)).expect("the page");
    let blocks = text.split("```console\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    let commands = lines.filter_map(|line| line.strip_prefix("$ ").or(line.strip_prefix("> ")));
    commands.map(|command| format!("{command}\n")).collect()
}

/// The code on a page is that of the project which the page makes.
#[test]
fn the_code_on_the_pages_is_that_of_the_projects() {
    for kind in [
        "policy",
        "chat-template",
        "output-parser",
        "grammar",
        "tool",
        "guardrail",
        "retriever",
    ] {
        let page = root().join("docs/plugins").join(format!("{kind}.md"));
        let page = std::fs::read_to_string(page).expect("the page");
        let source = match kind {
            "guardrail" => root().join("examples/plugins/banned-words/src/lib.rs"),
            kind => {
                let templates = root().join("host/author/templates/rust");
                templates.join(kind).join("lib.rs")
            }
        };
        let mut source = std::fs::read_to_string(source).expect("the template");
        // What the template leaves out is that of the documentation of the SDK, which is compiled.
        if kind == "policy" {
            let sdk = std::fs::read_to_string(root().join("wit/sdk/src/policy.rs"));
            let sdk = sdk.expect("the SDK");
            let docs = sdk.lines().filter_map(|line| line.strip_prefix("    /// "));
            source.push_str(&docs.collect::<Vec<_>>().join("\n"));
        }
        let blocks: Vec<&str> = page.split("```rust\n").skip(1).collect();
        assert!(!blocks.is_empty(), "{kind}.md shows no code");
        for block in blocks {
            let code = block.split("```").next().unwrap_or_default();
            assert!(
                source.contains(code.trim_end()),
                "{kind}.md shows other code:\n{code}"
            );
        }
    }
}

/// Type the commands of a page in an empty folder; what they print.
fn follow(page: &str) -> String {
    let script = commands(page);
    assert!(script.lines().count() >= 4, "{page} has lost its commands");
    let folder = tempfile::tempdir().expect("make a folder");
    run(folder.path(), &script)
}

#[test]
fn feature_w3_projects_of_each_language_are_loaded() {
    if !have(&["python3", "make", "node"]) {
        return;
    }
    let printed = follow("dev.md");
    assert_eq!(
        printed.matches("cases passed; loaded as").count(),
        4,
        "{printed}"
    );
    for file in [
        "dev_tool.wasm",
        "dev-parser.wasm",
        "dev-clerk.wasm",
        "dev-guard.wasm",
    ] {
        assert!(
            printed.contains(&format!("\n{file}\n")),
            "{file}: {printed}"
        );
    }
}

#[test]
fn the_page_on_policies_works() {
    let printed = follow("policy.md");
    assert!(printed.contains("4 cases passed"), "{printed}");
    assert!(printed.contains("tenant_blocked"), "{printed}");
}

#[test]
fn the_page_on_chat_templates_works() {
    let printed = follow("chat-template.md");
    assert!(printed.contains("5 cases passed"), "{printed}");
    assert!(printed.contains("<|im_start|>user"), "{printed}");
}

#[test]
fn the_page_on_output_parsers_works() {
    let printed = follow("output-parser.md");
    assert!(printed.contains("3 cases passed"), "{printed}");
    assert!(printed.contains("\"name\": \"weather\""), "{printed}");
}

#[test]
fn the_page_on_grammars_works() {
    let printed = follow("grammar.md");
    assert!(printed.contains("2 cases passed"), "{printed}");
    assert!(printed.contains("\"mean_us\""), "{printed}");
}

#[test]
fn the_page_on_tools_works() {
    let printed = follow("tool.md");
    assert!(printed.contains("4 cases passed"), "{printed}");
    assert!(
        printed.contains(r#"{\"characters\":11,\"words\":3,\"lines\":1}"#),
        "{printed}"
    );
}

#[test]
fn the_page_on_guardrails_works() {
    let printed = follow("guardrail.md");
    assert!(printed.contains("6 cases passed"), "{printed}");
    assert_eq!(printed.matches("\"refuse\"").count(), 2, "{printed}");
}

#[test]
fn the_page_on_retrievers_works() {
    let printed = follow("retriever.md");
    assert!(printed.contains("6 cases passed"), "{printed}");
    assert!(printed.contains("\"When does it end?\""), "{printed}");
}

/// From an empty folder to a running server that answers 403 to one tenant.
#[test]
fn the_first_plugin_refuses_a_tenant_in_a_running_server() {
    if !have(&["curl"]) {
        return;
    }
    // Below those that the system gives to whoever asks for any, as all other tests do.
    let port = (20_000..32_000).find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = port.expect("a free port").to_string();
    let script = commands("first-plugin.md").replace("8080", &port);
    let folder = tempfile::tempdir().expect("make a folder");
    // Whatever happens, the server does not outlive the script.
    let script = format!("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}");
    let begun = Instant::now();
    let printed = run(folder.path(), &script);
    // For the page on first steps; nothing asserts on it.
    let taken = begun.elapsed().as_secs_f64();
    println!("from an empty folder to a plugin that serves: {taken:.1} s");
    assert!(printed.contains("4 cases passed"), "{printed}");
    assert!(
        printed.contains("the tenant `acme` may not use this server"),
        "{printed}"
    );
    let answers: Vec<&str> = printed
        .lines()
        .filter(|line| line.starts_with("HTTP "))
        .collect();
    assert_eq!(answers, ["HTTP 200", "HTTP 403", "HTTP 200"], "{printed}");
}

/// A parser in C that tells its marks of reasoning, as `output-parser.md` says.
const MARKS: &str = "mortise plugin new c-marks --kind output-parser --lang c\n\
    cat >> c-marks/plugin.c <<'END'\n\
    #include \"reasoning/reasoning_marks.h\"\n\
    bool exports_mortise_plugin_reasoning_describe(exports_mortise_plugin_reasoning_marks_t *ret) {\n\
    reasoning_marks_string_dup(&ret->open, \"<think>\");\n\
    reasoning_marks_string_dup(&ret->close, \"</think>\");\n\
    return true;\n\
    }\n\
    END\n\
    make -C c-marks test GLUE='wit/output_parser_plugin.c wit/reasoning/reasoning_marks.c'\n\
    mortise plugin inspect c-marks/c-marks.wasm\n";

/// A policy in C that tells limits of callers, as `policy.md` says.
const QUOTAS: &str = "mortise plugin new c-quotas --kind policy --lang c\n\
    cat >> c-quotas/plugin.c <<'END'\n\
    #include \"quotas/limits_of_callers.h\"\n\
    bool exports_mortise_plugin_quotas_describe(\n\
        exports_mortise_plugin_quotas_caller_t *caller,\n\
        exports_mortise_plugin_quotas_option_list_quota_t *ret,\n\
        limits_of_callers_string_t *err) {\n\
    exports_mortise_plugin_quotas_caller_free(caller);\n\
    (void)err;\n\
    ret->is_some = false;\n\
    return true;\n\
    }\n\
    END\n\
    make -C c-quotas test GLUE='wit/policy_plugin.c wit/quotas/limits_of_callers.c'\n\
    mortise plugin inspect c-quotas/c-quotas.wasm\n";

#[test]
fn projects_in_c_python_and_javascript_pass_their_cases() {
    if !have(&["python3", "make", "node", "npm"]) {
        return;
    }
    // In C also the kinds that the page leaves out: they take no more than a compiler.
    let others = [
        "chat-template",
        "policy",
        "grammar",
        "guardrail",
        "retriever",
    ]
    .map(|kind| {
        format!("mortise plugin new c-{kind} --kind {kind} --lang c\nmake -C c-{kind} test\n")
    });
    let script = others.concat() + MARKS + QUOTAS + &commands("languages.md");
    let folder = tempfile::tempdir().expect("make a folder");
    let printed = run(folder.path(), &script);
    assert_eq!(printed.matches("cases passed").count(), 12, "{printed}");
    for interface in ["reasoning", "quotas"] {
        let exported = format!("\"mortise:plugin/{interface}@0.3.0\"");
        assert_eq!(printed.matches(&exported).count(), 1, "{printed}");
    }
}
