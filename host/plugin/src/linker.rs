//! Linker of a component, by kind. Only imports that its kind is granted do anything.

use wasmtime::Engine;
use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Linker, LinkerInstance, ResourceType};

use crate::kind::InterfaceName;
use crate::state::State;
use crate::{Component, Kind, imports, wasi};

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
        let mut instance = linker.instance(import)?;
        if !name.is_ours() {
            wasi::link(engine, &mut instance, &name, &items)?;
        } else if kind.grants().contains(&name.interface) {
            imports::link(&mut instance, name.interface)?;
        } else {
            withhold(engine, &mut instance, import, kind, &items)?;
        }
    }
    Ok(linker)
}

/// Link an interface that another kind of the same component is granted.
fn withhold(
    engine: &Engine,
    instance: &mut LinkerInstance<'_, State>,
    import: &str,
    kind: Kind,
    items: &ComponentInstance,
) -> wasmtime::Result<()> {
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
