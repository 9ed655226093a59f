//! What a component is linked to, by kind. Only what its kind is granted does anything.

use wasmtime::Engine;
use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{HasSelf, Linker, ResourceType};

use super::bindings::imports::mortise::plugin as interfaces;
use super::mask_sink;
use crate::kind::InterfaceName;
use crate::state::State;
use crate::{Component, Kind, wasi};

/// A linker that satisfies exactly the imports of the component. They have been checked to be
/// grantable to one of its kinds; those that this kind is not granted trap when called.
pub(crate) fn linker(
    engine: &Engine,
    component: &Component,
    kind: Kind,
) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    let ty = component.compiled().component_type();
    for (import, external) in ty.imports(engine) {
        let (Some(name), ComponentItem::ComponentInstance(items)) =
            (InterfaceName::parse(import), external.ty)
        else {
            let message = format!("the import `{import}` is not an interface");
            return Err(wasmtime::Error::msg(message));
        };
        if !name.is_ours() {
            wasi::link(engine, &mut linker.instance(import)?, &name, &items)?;
        } else if kind.grants().contains(&name.interface) {
            grant(&mut linker, import, name.interface)?;
        } else {
            withhold(engine, &mut linker, import, kind, &items)?;
        }
    }
    Ok(linker)
}

fn grant(linker: &mut Linker<State>, import: &str, interface: &str) -> wasmtime::Result<()> {
    type Data = HasSelf<State>;
    match interface {
        "types" => interfaces::types::add_to_linker::<_, Data>(linker, |state| state),
        "host" => interfaces::host::add_to_linker::<_, Data>(linker, |state| state),
        "settings" => interfaces::settings::add_to_linker::<_, Data>(linker, |state| state),
        "model" => interfaces::model::add_to_linker::<_, Data>(linker, |state| state),
        "vocabulary" => interfaces::vocabulary::add_to_linker::<_, Data>(linker, |state| state),
        "clock" => interfaces::clock::add_to_linker::<_, Data>(linker, |state| state),
        "ledger" => interfaces::ledger::add_to_linker::<_, Data>(linker, |state| state),
        "secrets" => interfaces::secrets::add_to_linker::<_, Data>(linker, |state| state),
        "outbound-http" => {
            interfaces::outbound_http::add_to_linker::<_, Data>(linker, |state| state)
        }
        "mask-sink" => mask_sink::add_to_linker(&mut linker.instance(import)?),
        _ => Err(wasmtime::Error::msg(format!("`{import}` is not known"))),
    }
}

/// Link an interface that another kind of the same component is granted.
fn withhold(
    engine: &Engine,
    linker: &mut Linker<State>,
    import: &str,
    kind: Kind,
    items: &ComponentInstance,
) -> wasmtime::Result<()> {
    let mut instance = linker.instance(import)?;
    for (item, external) in items.exports(engine) {
        match external.ty {
            ComponentItem::ComponentFunc(_) => {
                let message = format!("called {import}#{item}, which a {kind} is not granted");
                instance.func_new(item, move |_, _, _, _| {
                    Err(wasmtime::Error::msg(message.clone()))
                })?;
            }
            ComponentItem::Resource(_) => {
                instance.resource(item, ResourceType::host::<()>(), |_, _| Ok(()))?;
            }
            _ => {}
        }
    }
    Ok(())
}
