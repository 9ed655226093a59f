//! Linker of a component, by kind. Only imports that its kind is granted do anything.

use wasmtime::component::types::{ComponentInstance, ComponentItem};
use wasmtime::component::{Linker, LinkerInstance, ResourceType};
use wasmtime::{Engine, Module};

use crate::kind::InterfaceName;
use crate::state::StoreData;
use crate::{Component, Kind, imports, keeper, wasi};

/// A linker that satisfies exactly the imports of the component. They have been checked to be
/// grantable to one of its kinds; those that this kind is not granted trap when called. `image` is the memory that
/// instances begin with, where it is apart from the code.
pub(crate) fn linker(
    engine: &Engine,
    component: &Component,
    kind: Kind,
    image: Option<&Module>,
) -> wasmtime::Result<Linker<StoreData>> {
    let mut linker = Linker::new(engine);
    if let Some(image) = image {
        linker.root().module(mortise_aot::IMAGE, image)?;
        keeper::add_to_linker(&mut linker.root())?;
    }
    let ours = [mortise_aot::IMAGE, mortise_aot::TAKE].map(|name| image.map(|_| name));
    let ty = component.compiled().component_type();
    for (import, external) in ty.imports(engine) {
        if ours.contains(&Some(import)) {
            continue;
        }
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
    instance: &mut LinkerInstance<'_, StoreData>,
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
