//! Bindings made from the WIT packages: types only, since functions are found by `functions.rs`, under the
//! names of the version that a component was built against. A type that has not changed between versions is
//! that of the present one: what a component exports is checked by the structure of its types.
#![allow(
    missing_docs,
    unreachable_pub,
    unsafe_code,
    reason = "the macro's output is not ours to document, and lifting needs unsafe trait impls"
)]

/// All types of the present version, those of what plugins export included.
pub mod v0_3 {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.3",
        inline: "
            package mortise:contract;
            world types {
                import mortise:plugin/types@0.3.0;
                import mortise:plugin/host@0.3.0;
                import mortise:plugin/settings@0.3.0;
                import mortise:plugin/model@0.3.0;
                import mortise:plugin/vocabulary@0.3.0;
                import mortise:plugin/clock@0.3.0;
                import mortise:plugin/ledger@0.3.0;
                import mortise:plugin/secrets@0.3.0;
                import mortise:plugin/outbound-http@0.3.0;
                import mortise:plugin/chat-template@0.3.0;
                import mortise:plugin/output-parser@0.3.0;
                import mortise:plugin/reasoning@0.3.0;
                import mortise:plugin/grammar@0.3.0;
                import mortise:plugin/policy@0.3.0;
                import mortise:plugin/quotas@0.3.0;
                import mortise:plugin/tool@0.3.0;
                import mortise:plugin/guardrail@0.3.0;
                import mortise:plugin/retriever@0.3.0;
            }
        ",
        world: "mortise:contract/types",
    });
}

/// Types of version 0.2 that have changed since.
pub mod v0_2 {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.2",
        inline: "
            package mortise:contract;
            world types {
                import mortise:plugin/policy@0.2.0;
            }
        ",
        world: "mortise:contract/types",
        with: { "mortise:plugin/types@0.2.0": super::v0_3::mortise::plugin::types },
    });
}

/// Types of version 0.1 that have changed since.
pub mod v0_1 {
    wasmtime::component::bindgen!({
        path: "../../wit/v0.1",
        inline: "
            package mortise:contract;
            world types {
                import mortise:plugin/types@0.1.0;
                import mortise:plugin/policy@0.1.0;
            }
        ",
        world: "mortise:contract/types",
    });
}
