//! The exports of each kind: the functions that handles call. To add a kind, add its interface to
//! `bindings.rs`, its functions here, and its conversions to `convert.rs`.

use wasmtime::Store;
use wasmtime::component::{InstancePre, ResourceAny, TypedFunc};

use super::bindings::v0_3::mortise::plugin as wit;
use super::functions::{Fallible, KindFunctions};
use crate::instance::Exports;
use crate::kind::ContractVersion;
use crate::state::StoreData;
use crate::{Fault, Kind};

/// Declare the exports of a kind: a field with its type for each function, with the function's name, and the
/// method of `Functions` that takes it out.
macro_rules! exports {
    ($(#[$docs:meta])* $name:ident: $kind:ident {
        $($field:ident: $type:ty = $method:ident($function:literal),)*
    }) => {
        $(#[$docs])*
        pub(crate) struct $name {
            prepare: Fallible<(), ()>,
            $(pub(crate) $field: $type,)*
        }

        impl Exports for $name {
            type Pre = KindFunctions;
            const KIND: Kind = Kind::$kind;

            fn find(pre: InstancePre<StoreData>, contract: ContractVersion) -> wasmtime::Result<KindFunctions> {
                KindFunctions::new(pre, contract, Self::KIND.as_str(), &[$($function),*])
            }

            async fn instantiate(pre: &KindFunctions, store: &mut Store<StoreData>) -> wasmtime::Result<Self> {
                let mut functions = pre.instantiate(store).await?;
                Ok(Self {
                    prepare: functions.fallible("prepare")?,
                    $($field: functions.$method($function)?,)*
                })
            }

            async fn prepare(&self, store: &mut Store<StoreData>) -> wasmtime::Result<Result<(), Fault>> {
                self.prepare.call(store, ()).await
            }
        }
    };
}
pub(super) use exports;

exports!(
    /// Functions of `chat-template`.
    ChatTemplateExports: ChatTemplate {
        render: Fallible<(&'static wit::chat_template::Input,), wit::chat_template::Output> = fallible("render"),
    }
);

exports!(
    /// Functions of `output-parser`.
    OutputParserExports: OutputParser {
        describe: TypedFunc<(), (wit::output_parser::Traits,)> = typed("describe"),
        constraint: Fallible<
            (&'static wit::output_parser::Setup, Option<&'static wit::types::GrammarSource>),
            Option<wit::types::GrammarSource>,
        > = fallible("constraint"),
        open: Fallible<(&'static wit::output_parser::Setup,), Option<ResourceAny>> = fallible("open"),
        feed: Fallible<(ResourceAny, &'static str, &'static [u32]), Vec<wit::output_parser::Event>>
            = fallible("[method]session.feed"),
        close: Fallible<(ResourceAny, wit::types::Finish), Vec<wit::output_parser::Event>>
            = fallible("[method]session.close"),
        reasoning: Option<TypedFunc<(), (Option<wit::reasoning::Marks>,)>> = optional("reasoning#describe"),
    }
);

exports!(
    /// Functions of `grammar`.
    GrammarExports: Grammar {
        compile: Fallible<(&'static wit::types::GrammarSource,), ResourceAny> = fallible("compile"),
        mask: Fallible<(ResourceAny, u32), wit::grammar::Status> = fallible("[method]matcher.mask"),
        advance: Fallible<(ResourceAny, &'static [u32], u32), wit::grammar::Step>
            = fallible("[method]matcher.advance"),
        probe: Fallible<(ResourceAny, &'static [u32]), u32> = fallible("[method]matcher.probe"),
        rollback: Fallible<(ResourceAny, u32), ()> = fallible("[method]matcher.rollback"),
        fork: Fallible<(ResourceAny,), ResourceAny> = fallible("[method]matcher.fork"),
    }
);

exports!(
    /// Functions of `tool`.
    ToolExports: Tool {
        describe: TypedFunc<(), (Vec<wit::tool::Declaration>,)> = typed("describe"),
        call: TypedFunc<
            (&'static str, &'static str, &'static wit::tool::Context),
            (Result<String, wit::tool::Failure>,),
        > = typed("call"),
    }
);

exports!(
    /// Functions of `guardrail`.
    GuardrailExports: Guardrail {
        describe: TypedFunc<(), (wit::guardrail::Traits,)> = typed("describe"),
        check_input: Fallible<(&'static wit::guardrail::Context, &'static str), wit::guardrail::Verdict>
            = fallible("check-input"),
        open: Fallible<(&'static wit::guardrail::Context,), Option<ResourceAny>> = fallible("open"),
        feed: Fallible<(ResourceAny, &'static wit::guardrail::Part, &'static str, u32), wit::guardrail::Verdict>
            = fallible("[method]session.feed"),
        close: Fallible<(ResourceAny, wit::types::Finish, u32), wit::guardrail::Verdict>
            = fallible("[method]session.close"),
    }
);

exports!(
    /// Functions of `retriever`.
    RetrieverExports: Retriever {
        describe: TypedFunc<(), (wit::retriever::Traits,)> = typed("describe"),
        chunk: Fallible<
            (&'static wit::retriever::Context, &'static wit::retriever::Document, wit::retriever::Sizes),
            Vec<wit::retriever::Span>,
        > = fallible("chunk"),
        rewrite: Fallible<(&'static wit::retriever::Context, &'static str), Vec<String>> = fallible("rewrite"),
        assemble: Fallible<
            (
                &'static wit::retriever::Context,
                &'static str,
                &'static [wit::retriever::Candidate],
                wit::retriever::Budget,
            ),
            wit::retriever::Assembly,
        > = fallible("assemble"),
    }
);
