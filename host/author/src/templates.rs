//! The files of new projects, by kind and language. All are part of the program.

use mortise_plugin::Kind;

use crate::args::Language;

/// A file of a project: its path and its text.
pub(crate) type TemplateFile = (&'static str, &'static str);

/// Files of the templates folder, with the path that each has in a project.
macro_rules! templates {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../templates/", $folder, "/", $path)))),*]
    };
}

/// Files of an example that is a project as it stands.
macro_rules! example {
    ($folder:literal: $($path:literal),* $(,)?) => {
        &[$((
            $path,
            include_str!(concat!("../../../examples/plugins/", $folder, "/", $path)),
        )),*]
    };
}

/// Files of the SDK, which a Rust project has in a folder of its own.
macro_rules! sdk {
    ($($path:literal),* $(,)?) => {
        &[$((concat!("sdk/", $path), include_str!(concat!("../../../wit/sdk/", $path)))),*]
    };
}

/// Files of a package that authors install, with the path that each has in a project.
macro_rules! package {
    ($folder:literal as $name:literal: $($path:literal),* $(,)?) => {
        &[$((
            concat!($name, "/", $path),
            include_str!(concat!("../../../packaging/", $folder, "/", $path)),
        )),*]
    };
}

/// The package for Python, without the WIT package.
pub(crate) const PYTHON: &[TemplateFile] = package!["python/mortise_plugin" as "mortise_plugin":
    "__init__.py",
    "__main__.py",
    "guest/entry.py",
];

/// The package for JavaScript, without the WIT package and its types.
pub(crate) const JAVASCRIPT: &[TemplateFile] = package!["js" as "mortise-plugin":
    "package.json",
    "cli.mjs",
    "guest/entry.js",
    "guest/globals.js",
    "guest/text.js",
    "types/globals.d.ts",
];

/// Types of each version of the WIT package.
pub(crate) const TYPES: &[TemplateFile] = &[
    (
        "mortise-plugin/types/v0.1.d.ts",
        include_str!("../../../wit/ts/v0.1.d.ts"),
    ),
    (
        "mortise-plugin/types/v0.2.d.ts",
        include_str!("../../../wit/ts/v0.2.d.ts"),
    ),
    (
        "mortise-plugin/types/v0.3.d.ts",
        include_str!("../../../wit/ts/v0.3.d.ts"),
    ),
];

/// The SDK as it is published. Without what only its own tests need, so that nobody resolves that.
pub(crate) const SDK: &[TemplateFile] = sdk![
    "Cargo.toml",
    "src/bindings.rs",
    "src/chat_template.rs",
    "src/formats/channels.rs",
    "src/formats/described.rs",
    "src/formats/json.rs",
    "src/formats/literals.rs",
    "src/formats/mod.rs",
    "src/formats/spec.rs",
    "src/formats/table.rs",
    "src/formats/tags.rs",
    "src/grammar.rs",
    "src/guardrail.rs",
    "src/inner.rs",
    "src/json.rs",
    "src/lib.rs",
    "src/log.rs",
    "src/output_parser.rs",
    "src/policy.rs",
    "src/prepared.rs",
    "src/retriever.rs",
    "src/stream/arguments.rs",
    "src/stream/calls.rs",
    "src/stream/mod.rs",
    "src/stream/python.rs",
    "src/stream/reasoning.rs",
    "src/stream/session.rs",
    "src/stream/text.rs",
    "src/tool.rs",
    "src/tools.rs",
    "wit/capabilities.wit",
    "wit/kinds.wit",
    "wit/types.wit",
    "wit/worlds.wit",
];

/// The cases and the schema of a kind: the same in every language, since the plugins do the same.
pub(crate) fn of_kind(kind: Kind) -> &'static [TemplateFile] {
    match kind {
        Kind::Policy => templates!["policy":
            "settings.schema.json",
            "cases/allowed.json",
            "cases/blocked.json",
            "cases/wrong-settings.json",
            "cases/misspelt-settings.json",
        ],
        Kind::ChatTemplate => templates!["chat-template":
            "settings.schema.json",
            "cases/two-turns.json",
            "cases/injection.json",
            "cases/no-text.json",
            "cases/tools.json",
            "cases/continued.json",
        ],
        Kind::OutputParser => templates!["output-parser":
            "settings.schema.json",
            "cases/call.json",
            "cases/plain.json",
            "cases/undeclared.json",
        ],
        Kind::Grammar => templates!["grammar":
            "settings.schema.json",
            "cases/one-of.json",
            "cases/unsupported.json",
        ],
        Kind::Tool => templates!["tool":
            "settings.schema.json",
            "cases/declared.json",
            "cases/counted.json",
            "cases/too-long.json",
            "cases/wrong-arguments.json",
        ],
        Kind::Guardrail => example!["banned-words":
            "settings.schema.json",
            "cases/passes.json",
            "cases/refuses.json",
            "cases/replaces.json",
            "cases/cannot-replace.json",
            "cases/input.json",
            "cases/wrong-settings.json",
        ],
        Kind::Retriever => templates!["retriever":
            "settings.schema.json",
            "cases/chunks.json",
            "cases/long-paragraph.json",
            "cases/queries.json",
            "cases/two-of-a-document.json",
            "cases/no-room.json",
            "cases/wrong-settings.json",
        ],
    }
}

/// Files of every project of a language, whatever its kind.
pub(crate) fn of_language(lang: Language) -> &'static [TemplateFile] {
    match lang {
        Language::Rust => &[
            (
                "Cargo.toml",
                include_str!("../templates/rust/Cargo.toml.in"),
            ),
            (".gitignore", "/target\n"),
        ],
        Language::C => &[
            ("Makefile", include_str!("../templates/c/Makefile.in")),
            ("json.h", include_str!("../templates/c/json.h")),
            (".gitignore", "/build\n/*.wasm\n"),
        ],
        Language::Python => &[
            ("Makefile", include_str!("../templates/python/Makefile.in")),
            (
                "requirements.txt",
                include_str!("../templates/python/requirements.txt"),
            ),
            (".gitignore", "/build\n/*.wasm\n__pycache__\n"),
        ],
        Language::Js => &[
            (
                "package.json",
                include_str!("../templates/js/package.json.in"),
            ),
            (
                "package-lock.json",
                include_str!("../templates/js/package-lock.json.in"),
            ),
            (
                "jsconfig.json",
                include_str!("../templates/js/jsconfig.json"),
            ),
            (".gitignore", "/build\n/node_modules\n/*.wasm\n"),
        ],
    }
}

/// Sources of a kind in one language that all are called alike.
macro_rules! source {
    ($lang:literal, $kind:literal: $($path:literal),*) => {
        &[$(($path, include_str!(concat!("../templates/", $lang, "/", $kind, "/", $path)))),*]
    };
}

macro_rules! rust {
    ($kind:literal) => {
        &[(
            "src/lib.rs",
            include_str!(concat!("../templates/rust/", $kind, "/lib.rs")),
        )]
    };
}

macro_rules! c {
    ($kind:literal, $header:literal, $glue:literal $(, $own:literal)? $(; $more:literal)*) => {
        &[
            $((
                $own,
                include_str!(concat!("../templates/c/", $kind, "/", $own)),
            ),)?
            $((
                concat!("wit/", $more),
                include_str!(concat!("../../../wit/c/", $kind, "/", $more)),
            ),)*
            (
                "plugin.c",
                include_str!(concat!("../templates/c/", $kind, "/plugin.c")),
            ),
            (
                concat!("wit/", $header),
                include_str!(concat!("../../../wit/c/", $kind, "/", $header)),
            ),
            (
                concat!("wit/", $glue),
                include_str!(concat!("../../../wit/c/", $kind, "/", $glue)),
            ),
        ]
    };
}

/// The sources of a plugin.
pub(crate) fn sources(kind: Kind, lang: Language) -> &'static [TemplateFile] {
    match (lang, kind) {
        (Language::Rust, Kind::Policy) => rust!("policy"),
        (Language::Rust, Kind::ChatTemplate) => rust!("chat-template"),
        (Language::Rust, Kind::OutputParser) => rust!("output-parser"),
        (Language::Rust, Kind::Grammar) => rust!("grammar"),
        (Language::Rust, Kind::Tool) => rust!("tool"),
        // The example is the project.
        (Language::Rust, Kind::Guardrail) => &[(
            "src/lib.rs",
            include_str!("../../../examples/plugins/banned-words/src/lib.rs"),
        )],
        (Language::Rust, Kind::Retriever) => rust!("retriever"),
        (Language::Python, Kind::Retriever) => source!("python", "retriever": "plugin.py"),
        (Language::C, Kind::Guardrail) => {
            c!("guardrail", "guardrail_plugin.h", "guardrail_plugin.c")
        }
        (Language::C, Kind::Retriever) => {
            c!("retriever", "retriever_plugin.h", "retriever_plugin.c")
        }
        (Language::Js, Kind::Retriever) => source!("js", "retriever": "plugin.js"),
        (Language::C, Kind::Policy) => {
            c!(
                "policy", "policy_plugin.h", "policy_plugin.c";
                "quotas/limits_of_callers.h";
                "quotas/limits_of_callers.c"
            )
        }
        (Language::C, Kind::ChatTemplate) => c!(
            "chat-template",
            "chat_template_plugin.h",
            "chat_template_plugin.c"
        ),
        (Language::C, Kind::OutputParser) => c!(
            "output-parser",
            "output_parser_plugin.h",
            "output_parser_plugin.c",
            "format.h";
            "reasoning/reasoning_marks.h";
            "reasoning/reasoning_marks.c"
        ),
        (Language::C, Kind::Tool) => c!("tool", "tool_plugin.h", "tool_plugin.c"),
        (Language::C, Kind::Grammar) => {
            c!("grammar", "grammar_plugin.h", "grammar_plugin.c")
        }
        (Language::Python, Kind::Policy) => source!("python", "policy": "plugin.py"),
        (Language::Python, Kind::ChatTemplate) => {
            source!("python", "chat-template": "plugin.py")
        }
        (Language::Python, Kind::OutputParser) => {
            source!("python", "output-parser": "plugin.py", "output_parser.py")
        }
        (Language::Python, Kind::Grammar) => {
            source!("python", "grammar": "plugin.py", "grammar.py")
        }
        (Language::Python, Kind::Tool) => source!("python", "tool": "plugin.py"),
        (Language::Python, Kind::Guardrail) => {
            source!("python", "guardrail": "plugin.py", "guardrail.py")
        }
        (Language::Js, Kind::Policy) => source!("js", "policy": "plugin.js"),
        (Language::Js, Kind::ChatTemplate) => source!("js", "chat-template": "plugin.js"),
        (Language::Js, Kind::OutputParser) => source!("js", "output-parser": "plugin.js"),
        (Language::Js, Kind::Grammar) => source!("js", "grammar": "plugin.js"),
        (Language::Js, Kind::Tool) => source!("js", "tool": "plugin.js"),
        (Language::Js, Kind::Guardrail) => source!("js", "guardrail": "plugin.js"),
    }
}

#[cfg(test)]
mod tests {
    use mortise_plugin::JsonSchema;
    use serde_json::json;

    use super::*;

    #[test]
    fn no_project_takes_a_misspelt_setting() {
        for kind in [
            Kind::Policy,
            Kind::ChatTemplate,
            Kind::OutputParser,
            Kind::Grammar,
            Kind::Tool,
            Kind::Guardrail,
            Kind::Retriever,
        ] {
            let is_schema = |(path, _): &&TemplateFile| *path == "settings.schema.json";
            let (_, text) = of_kind(kind).iter().find(is_schema).expect("a schema");
            let schema = JsonSchema::compile(serde_json::from_str(text).expect("JSON"));
            let schema = schema.expect("a schema");
            assert_eq!(schema.violations(&json!({})), [], "{kind:?}");
            let found = schema.violations(&json!({"no_setting_is_called_this": 1}));
            let places: Vec<&str> = found.iter().map(|found| &*found.pointer).collect();
            assert_eq!(places, ["/no_setting_is_called_this"], "{kind:?}");
        }
    }
}
