//! Bindings that `wit-bindgen` makes of the WIT package. One module holds everything that a plugin may
//! import, so that all kinds share its types; what every kind exports has one, and so has what each
//! exports besides. `export!` joins two of them, and the tool that makes the component joins their
//! worlds. Of the imports only those that a plugin calls end up in its component.

#![allow(
    missing_docs,
    reason = "generated; the WIT package documents each item"
)]
#![allow(unreachable_pub, reason = "generated for any place in a crate")]

/// Imports that plugins of some kind are granted.
pub mod imports {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world imports {
                import mortise:plugin/types@0.3.0;
                import mortise:plugin/host@0.3.0;
                import mortise:plugin/settings@0.3.0;
                import mortise:plugin/model@0.3.0;
                import mortise:plugin/vocabulary@0.3.0;
                import mortise:plugin/mask-sink@0.3.0;
                import mortise:plugin/clock@0.3.0;
                import mortise:plugin/ledger@0.3.0;
                import mortise:plugin/secrets@0.3.0;
                import mortise:plugin/outbound-http@0.3.0;
            }
        ",
        world: "mortise:sdk/imports",
        additional_derives: [PartialEq],
        generate_all,
    });
}

/// Exports of every plugin.
pub mod lifecycle {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world every-plugin {
                export mortise:plugin/lifecycle@0.3.0;
            }
        ",
        world: "mortise:sdk/every-plugin",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_lifecycle",
        default_bindings_module: "mortise_plugin_sdk::bindings::lifecycle",
    });
}

/// A chat template.
pub mod chat_template {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-chat-template {
                export mortise:plugin/chat-template@0.3.0;
            }
        ",
        world: "mortise:sdk/a-chat-template",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_chat_template",
        default_bindings_module: "mortise_plugin_sdk::bindings::chat_template",
    });
}

/// An output parser.
pub mod output_parser {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-output-parser {
                export mortise:plugin/output-parser@0.3.0;
            }
        ",
        world: "mortise:sdk/a-output-parser",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_output_parser",
        default_bindings_module: "mortise_plugin_sdk::bindings::output_parser",
    });
}

/// Marks of reasoning, which output parsers export besides.
pub mod reasoning {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world with-reasoning {
                export mortise:plugin/reasoning@0.3.0;
            }
        ",
        world: "mortise:sdk/with-reasoning",
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_reasoning",
        default_bindings_module: "mortise_plugin_sdk::bindings::reasoning",
    });
}

/// A grammar.
pub mod grammar {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-grammar {
                export mortise:plugin/grammar@0.3.0;
            }
        ",
        world: "mortise:sdk/a-grammar",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_grammar",
        default_bindings_module: "mortise_plugin_sdk::bindings::grammar",
    });
}

/// A policy.
pub mod policy {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-policy {
                export mortise:plugin/policy@0.3.0;
            }
        ",
        world: "mortise:sdk/a-policy",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_policy",
        default_bindings_module: "mortise_plugin_sdk::bindings::policy",
    });
}

/// Limits of callers, which policies export besides.
pub mod quotas {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world with-quotas {
                export mortise:plugin/quotas@0.3.0;
            }
        ",
        world: "mortise:sdk/with-quotas",
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_quotas",
        default_bindings_module: "mortise_plugin_sdk::bindings::quotas",
    });
}

/// A tool plugin.
pub mod tool {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-tool {
                export mortise:plugin/tool@0.3.0;
            }
        ",
        world: "mortise:sdk/a-tool",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_tool",
        default_bindings_module: "mortise_plugin_sdk::bindings::tool",
    });
}

/// A guardrail.
pub mod guardrail {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-guardrail {
                export mortise:plugin/guardrail@0.3.0;
            }
        ",
        world: "mortise:sdk/a-guardrail",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_guardrail",
        default_bindings_module: "mortise_plugin_sdk::bindings::guardrail",
    });
}

/// A retriever.
pub mod retriever {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world a-retriever {
                export mortise:plugin/retriever@0.3.0;
            }
        ",
        world: "mortise:sdk/a-retriever",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_retriever",
        default_bindings_module: "mortise_plugin_sdk::bindings::retriever",
    });
}

/// Imports of an outer plugin: the functions of the inner plugin that it is put around. The types are those of the
/// exports, so that questions to the outer plugin and answers of the inner one can be passed on.
///
/// A feature of its own: tools that make components keep an import whose resource the component exports, used or not.
#[cfg(feature = "inner")]
pub mod inner {
    wit_bindgen::generate!({
        path: "wit",
        inline: "
            package mortise:sdk;
            world inner {
                import mortise:plugin/lifecycle@0.3.0;
                import mortise:plugin/chat-template@0.3.0;
                import mortise:plugin/output-parser@0.3.0;
                import mortise:plugin/policy@0.3.0;
            }
        ",
        world: "mortise:sdk/inner",
        with: {
            "mortise:plugin/types@0.3.0": crate::bindings::imports::mortise::plugin::types,
            "mortise:plugin/chat-template@0.3.0/segment":
                crate::bindings::chat_template::exports::mortise::plugin::chat_template::Segment,
            "mortise:plugin/chat-template@0.3.0/input":
                crate::bindings::chat_template::exports::mortise::plugin::chat_template::Input,
            "mortise:plugin/chat-template@0.3.0/output":
                crate::bindings::chat_template::exports::mortise::plugin::chat_template::Output,
            "mortise:plugin/output-parser@0.3.0/tool-choice":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::ToolChoice,
            "mortise:plugin/output-parser@0.3.0/setup":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::Setup,
            "mortise:plugin/output-parser@0.3.0/event":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::Event,
            "mortise:plugin/output-parser@0.3.0/call-begin":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::CallBegin,
            "mortise:plugin/output-parser@0.3.0/call-arguments":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::CallArguments,
            "mortise:plugin/output-parser@0.3.0/traits":
                crate::bindings::output_parser::exports::mortise::plugin::output_parser::Traits,
            "mortise:plugin/policy@0.3.0/facts":
                crate::bindings::policy::exports::mortise::plugin::policy::Facts,
            "mortise:plugin/policy@0.3.0/tool-grant":
                crate::bindings::policy::exports::mortise::plugin::policy::ToolGrant,
            "mortise:plugin/policy@0.3.0/principal":
                crate::bindings::policy::exports::mortise::plugin::policy::Principal,
            "mortise:plugin/policy@0.3.0/system-place":
                crate::bindings::policy::exports::mortise::plugin::policy::SystemPlace,
            "mortise:plugin/policy@0.3.0/system-prompt":
                crate::bindings::policy::exports::mortise::plugin::policy::SystemPrompt,
            "mortise:plugin/policy@0.3.0/rewrite":
                crate::bindings::policy::exports::mortise::plugin::policy::Rewrite,
            "mortise:plugin/policy@0.3.0/allow":
                crate::bindings::policy::exports::mortise::plugin::policy::Allow,
            "mortise:plugin/policy@0.3.0/deny":
                crate::bindings::policy::exports::mortise::plugin::policy::Deny,
            "mortise:plugin/policy@0.3.0/decision":
                crate::bindings::policy::exports::mortise::plugin::policy::Decision,
            "mortise:plugin/policy@0.3.0/usage":
                crate::bindings::policy::exports::mortise::plugin::policy::Usage,
        },
        generate_all,
    });
}
