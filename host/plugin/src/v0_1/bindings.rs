//! Bindings made from `wit/v0.1`: one module for everything that plugins import, and one for the
//! exports of each kind, so that a component is asked only for the interfaces of the kind at hand.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    reason = "the macro's output is not ours to document, and lifting needs unsafe trait impls"
)]

/// Host interfaces, without `mask-sink`: that one is linked by hand, since these bindings would
/// copy each mask into a vector of its own.
pub mod imports {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:host-imports;
            world imports {
                import mortise:plugin/types@0.1.0;
                import mortise:plugin/host@0.1.0;
                import mortise:plugin/settings@0.1.0;
                import mortise:plugin/model@0.1.0;
                import mortise:plugin/vocabulary@0.1.0;
                import mortise:plugin/clock@0.1.0;
                import mortise:plugin/ledger@0.1.0;
                import mortise:plugin/secrets@0.1.0;
                import mortise:plugin/outbound-http@0.1.0;
            }
        ",
        world: "mortise:host-imports/imports",
        imports: {
            // The guest waits for it as for any function; the host does other things meanwhile.
            "mortise:plugin/outbound-http.send": async | trappable,
            default: trappable,
        },
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
