//! The versions of the contract side by side. A component's exports are those of one version; handles call
//! them through [`in_each_version`] and know the host's own types only.
//!
//! The bindings of each version are types of their own, even where the contract has not changed. What is
//! written for them alike stands here once, in `exports.rs` and `unchanged.rs`, and is compiled as a part
//! of each version's module.

use std::future::Future;

use wasmtime::Store;
use wasmtime::component::InstancePre;

use crate::instance::Exports;
use crate::kind::Contract;
use crate::state::State;
use crate::{Fault, Kind, v0_1, v0_2};

/// The exports of one kind in one version.
pub(crate) trait VersionExports: Sized + Send + Sync + 'static {
    /// Exports that were found in a component, before it is instantiated.
    type Pre: Send + Sync + 'static;
    const KIND: Kind;
    /// Find the exports and check their types.
    fn find(pre: InstancePre<State>) -> wasmtime::Result<Self::Pre>;
    fn instantiate(
        pre: &Self::Pre,
        store: &mut Store<State>,
    ) -> impl Future<Output = wasmtime::Result<Self>> + Send;
    /// Call `lifecycle.prepare`.
    fn prepare(
        &self,
        store: &mut Store<State>,
    ) -> impl Future<Output = wasmtime::Result<Result<(), Fault>>> + Send;
}

/// Something of one of the versions.
pub(crate) enum Versioned<V0_1, V0_2> {
    V0_1(V0_1),
    V0_2(V0_2),
}

impl<A: VersionExports, B: VersionExports> Exports for Versioned<A, B> {
    type Pre = Versioned<A::Pre, B::Pre>;
    const KIND: Kind = B::KIND;

    fn find(pre: InstancePre<State>, contract: Contract) -> wasmtime::Result<Self::Pre> {
        Ok(match contract {
            Contract::V0_1 => Versioned::V0_1(A::find(pre)?),
            Contract::V0_2 => Versioned::V0_2(B::find(pre)?),
        })
    }

    async fn instantiate(pre: &Self::Pre, store: &mut Store<State>) -> wasmtime::Result<Self> {
        Ok(match pre {
            Versioned::V0_1(pre) => Self::V0_1(A::instantiate(pre, store).await?),
            Versioned::V0_2(pre) => Self::V0_2(B::instantiate(pre, store).await?),
        })
    }

    async fn prepare(&self, store: &mut Store<State>) -> wasmtime::Result<Result<(), Fault>> {
        match self {
            Self::V0_1(exports) => exports.prepare(store).await,
            Self::V0_2(exports) => exports.prepare(store).await,
        }
    }
}

/// A name for the exports of a kind, of whichever version.
macro_rules! exports_of {
    ($($name:ident: $module:ident),*) => {
        $(pub(crate) type $name = Versioned<
            v0_1::bindings::$module::Exported,
            v0_2::bindings::$module::Exported,
        >;)*
    };
}

exports_of!(
    ChatTemplateExports: chat_template,
    OutputParserExports: output_parser,
    GrammarExports: grammar,
    PolicyExports: policy,
    ToolExports: tool
);

/// Call into whichever version a component has: the body is compiled for each, with its exports and the
/// module of its conversions under the names between the bars.
macro_rules! in_each_version {
    ($versioned:expr, |$exports:ident, $convert:ident| $body:expr) => {
        match $versioned {
            $crate::versions::Versioned::V0_1($exports) => {
                use $crate::v0_1::convert as $convert;
                $body
            }
            $crate::versions::Versioned::V0_2($exports) => {
                use $crate::v0_2::convert as $convert;
                $body
            }
        }
    };
}
pub(crate) use in_each_version;
