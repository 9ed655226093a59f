//! Bindings that `wit-bindgen` makes of the WIT package. One module holds everything that a plugin may
//! import, so that all kinds share its types; what every kind exports has one, and so has what each
//! exports besides. `export!` joins two of them, and the tool that makes the component joins their
//! worlds. Of the imports only those that a plugin calls end up in its component.

#![allow(
    missing_docs,
    reason = "generated; the WIT package documents each item"
)]
#![allow(unreachable_pub, reason = "generated for any place in a crate")]

/// Everything that some kind is granted.
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
