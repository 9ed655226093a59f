//! Bindings made from `wit/v0.1`: the exports of each kind. What such a component imports is linked with
//! the types of the current version, which are the same.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    reason = "the macro's output is not ours to document, and lifting needs unsafe trait impls"
)]

/// The types that the kinds share.
pub mod imports {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-imports;
            world imports {
                import mortise:plugin/types@0.1.0;
            }
        ",
        world: "mortise:host-imports/imports",
    });
}

/// `chat-template` and its lifecycle.
pub mod chat_template {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-chat-template;
            world exported {
                export mortise:plugin/lifecycle@0.1.0;
                export mortise:plugin/chat-template@0.1.0;
            }
        ",
        world: "mortise:host-chat-template/exported",
        with: { "mortise:plugin/types@0.1.0": super::imports::mortise::plugin::types },
        exports: { default: async },
        require_store_data_send: true,
    });
}

/// `output-parser` and its lifecycle.
pub mod output_parser {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-output-parser;
            world exported {
                export mortise:plugin/lifecycle@0.1.0;
                export mortise:plugin/output-parser@0.1.0;
            }
        ",
        world: "mortise:host-output-parser/exported",
        with: { "mortise:plugin/types@0.1.0": super::imports::mortise::plugin::types },
        exports: { default: async },
        require_store_data_send: true,
    });
}

/// `grammar` and its lifecycle.
pub mod grammar {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-grammar;
            world exported {
                export mortise:plugin/lifecycle@0.1.0;
                export mortise:plugin/grammar@0.1.0;
            }
        ",
        world: "mortise:host-grammar/exported",
        with: { "mortise:plugin/types@0.1.0": super::imports::mortise::plugin::types },
        exports: { default: async },
        require_store_data_send: true,
    });
}

/// `policy` and its lifecycle.
pub mod policy {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-policy;
            world exported {
                export mortise:plugin/lifecycle@0.1.0;
                export mortise:plugin/policy@0.1.0;
            }
        ",
        world: "mortise:host-policy/exported",
        with: { "mortise:plugin/types@0.1.0": super::imports::mortise::plugin::types },
        exports: { default: async },
        require_store_data_send: true,
    });
}

/// `tool` and its lifecycle.
pub mod tool {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-tool;
            world exported {
                export mortise:plugin/lifecycle@0.1.0;
                export mortise:plugin/tool@0.1.0;
            }
        ",
        world: "mortise:host-tool/exported",
        with: { "mortise:plugin/types@0.1.0": super::imports::mortise::plugin::types },
        exports: { default: async },
        require_store_data_send: true,
    });
}
