//! The exports of each kind in the version whose module this is a part of.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{chat_template, grammar, output_parser, policy, tool};
use super::convert;
use crate::state::State;
use crate::versions::VersionExports;
use crate::{Fault, Kind};

macro_rules! exports {
    ($module:ident, $kind:ident) => {
        impl VersionExports for $module::Exported {
            type Pre = $module::ExportedPre<State>;
            const KIND: Kind = Kind::$kind;

            fn find(pre: InstancePre<State>) -> wasmtime::Result<Self::Pre> {
                $module::ExportedPre::new(pre)
            }

            async fn instantiate(
                pre: &Self::Pre,
                store: &mut Store<State>,
            ) -> wasmtime::Result<Self> {
                pre.instantiate_async(store).await
            }

            async fn prepare(
                &self,
                store: &mut Store<State>,
            ) -> wasmtime::Result<Result<(), Fault>> {
                let prepared = self.mortise_plugin_lifecycle().call_prepare(store).await?;
                Ok(prepared.map_err(convert::fault))
            }
        }
    };
}

exports!(chat_template, ChatTemplate);
exports!(output_parser, OutputParser);
exports!(grammar, Grammar);
exports!(policy, Policy);
exports!(tool, Tool);
