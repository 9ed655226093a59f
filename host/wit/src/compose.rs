//! One component of two: an outer that imports the interface which it exports, and the inner that answers it.
//!
//! The library of the component model's own composer (`wac-graph`) would bring another wasmparser, wasm-encoder and
//! wasm-metadata than wasmtime's. What is hard about a composition is the types of its imports; those are merged by
//! wit-parser and written by wit-component, as they are for every component that is packed.

use std::collections::BTreeSet;
use std::convert::Infallible;

use wasm_encoder::reencode::{Reencode, ReencodeComponent};
use wasm_encoder::{ComponentBuilder, ComponentExportKind};
use wasmparser::{ComponentType, ComponentTypeDeclaration, Parser, Payload, Validator};
use wit_component::{DecodedWasm, decode};
use wit_parser::{IndexMap, InterfaceId, Resolve, WorldId, WorldItem, WorldKey};

use crate::{WitError, package};

/// Interface by which a component reads its settings.
const SETTINGS: &str = "settings";

/// Interface by which the inner of a composition reads its own.
const INNER_SETTINGS: &str = "inner-settings";

/// The part that lies around the other.
const OUTER: &str = "outer";

/// The part that the other calls.
const INNER: &str = "inner";

/// A component with the names of its imports and exports.
struct Part<'a> {
    wasm: &'a [u8],
    resolve: Resolve,
    world: WorldId,
    imports: Vec<String>,
    exports: Vec<String>,
}

impl<'a> Part<'a> {
    fn read(role: &'static str, wasm: &'a [u8]) -> Result<Self, WitError> {
        if is_composed(wasm) {
            return Err(unfit(role, "it is composed of two already".to_owned()));
        }
        let (resolve, world) = match decode(wasm) {
            Ok(DecodedWasm::Component(resolve, world)) => (resolve, world),
            Ok(_) => return Err(unfit(role, "it is no component".to_owned())),
            Err(error) => return Err(unfit(role, format!("it is no component: {error:#}"))),
        };
        let names = |items: &IndexMap<WorldKey, WorldItem>| {
            let names = items.iter().map(|(key, item)| match item {
                WorldItem::Interface { .. } => Ok(resolve.name_world_key(key)),
                _ => {
                    let name = resolve.name_world_key(key);
                    Err(unfit(role, format!("`{name}` is no interface")))
                }
            });
            names.collect::<Result<Vec<_>, _>>()
        };
        let items = &resolve.worlds[world];
        let (imports, exports) = (names(&items.imports)?, names(&items.exports)?);
        Ok(Self {
            wasm,
            resolve,
            world,
            imports,
            exports,
        })
    }

    /// Give the package of the component's own world another name, so that it is not taken for that of the other part.
    fn rename(&mut self, name: &str) {
        let Some(package) = self.resolve.worlds[self.world].package else {
            return;
        };
        let known = &mut self.resolve.packages[package].name;
        self.resolve.package_names.shift_remove(known);
        known.name = name.to_owned();
        self.resolve.package_names.insert(known.clone(), package);
    }
}

/// True if a component has settings of an inner plugin among its own imports, as far as it is sound.
fn is_composed(wasm: &[u8]) -> bool {
    let mut depth = 0usize;
    for payload in Parser::new(0).parse_all(wasm) {
        match payload {
            Ok(Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) => depth += 1,
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentImportSection(imports)) if depth == 0 => {
                let names = imports.into_iter().flatten();
                let mut names = names.filter_map(|import| ours(import.name.name));
                if names.any(|(interface, _)| interface == INNER_SETTINGS) {
                    return true;
                }
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    false
}

fn unfit(part: &'static str, message: String) -> WitError {
    WitError::Compose { part, message }
}

/// Interface and version of a name of our package, such as `settings` and `0.2.0`.
fn ours(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mortise:plugin/")?.split_once('@')
}

/// Put an inner plugin into an outer one: what the outer imports of kinds of plugins and of `lifecycle` is what the
/// inner exports. All else that either imports is imported by the whole, and it exports what the outer does. The inner's
/// settings are the member `inner` of those of the whole.
///
/// # Errors
/// When either is no component, the outer imports no kind, the inner lacks what the outer imports, the inner is
/// composed itself, or their types do not fit.
pub fn compose(outer: &[u8], inner: &[u8]) -> Result<Vec<u8>, WitError> {
    let mut outer = Part::read(OUTER, outer)?;
    let mut inner = Part::read(INNER, inner)?;
    let wired = wired(&outer, &inner)?;
    let resolve = std::mem::take(&mut outer.resolve);
    inner.rename("composed-inner");
    let types = import_types(resolve, &outer, &mut inner, &wired)
        .map_err(|error| unfit(INNER, format!("its imports do not fit: {error}")))?;
    let wasm = assemble(&types, &outer, &inner, &wired)
        .map_err(|error| unfit(INNER, format!("it cannot be put in: {error}")))?;
    let sound = Validator::new().validate_all(&wasm);
    sound.map_err(|error| unfit(INNER, format!("its types are not those: {error}")))?;
    Ok(wasm)
}

/// Kinds of plugins.
fn kinds() -> Result<Vec<String>, WitError> {
    let (resolve, id) = package()?;
    let worlds = resolve.packages[id].worlds.keys();
    let kinds = worlds.filter_map(|world| world.strip_suffix("-plugin"));
    Ok(kinds.map(str::to_owned).collect())
}

/// Kinds of plugins that an outer plugin calls.
///
/// # Errors
/// When it is no component, or calls none.
pub fn inner_kinds(outer: &[u8]) -> Result<Vec<String>, WitError> {
    let part = Part::read(OUTER, outer)?;
    let kinds = kinds()?;
    let interfaces = part.imports.iter().filter_map(|name| ours(name));
    let called: Vec<String> = interfaces
        .map(|(interface, _)| interface.to_owned())
        .filter(|interface| kinds.contains(interface))
        .collect();
    if called.is_empty() {
        let message = format!(
            "it imports no kind of plugin ({}), so there is no place for another in it",
            kinds.join(", ")
        );
        return Err(unfit(OUTER, message));
    }
    Ok(called)
}

/// Imports of the outer that the inner's exports are.
fn wired(outer: &Part<'_>, inner: &Part<'_>) -> Result<BTreeSet<String>, WitError> {
    let kinds = inner_kinds(outer.wasm).and_then(|_| kinds())?;
    let interface = |name: &&String| ours(name).map(|(interface, _)| interface.to_owned());
    let of_kinds = |name: &&String| interface(name).is_some_and(|i| kinds.contains(&i));
    if let Some(name) = inner.imports.iter().find(of_kinds) {
        let message = format!("it imports `{name}`, so it is an outer; compose it first");
        return Err(unfit(INNER, message));
    }
    let lifecycle = |name: &&String| interface(name).as_deref() == Some("lifecycle");
    let wired = outer.imports.iter();
    let wired: BTreeSet<String> = wired
        .filter(|name| of_kinds(name) || lifecycle(name))
        .cloned()
        .collect();
    match wired.iter().find(|name| !inner.exports.contains(name)) {
        None => Ok(wired),
        Some(missing) => {
            let exports = inner.exports.join(", ");
            let message =
                format!("the outer calls `{missing}`, which it does not export; it has: {exports}");
            Err(unfit(INNER, message))
        }
    }
}

/// The imports of both as one world, written as the type of a component. The package that `resolve` has of the outer
/// is written over.
fn import_types(
    mut resolve: Resolve,
    outer: &Part<'_>,
    inner: &mut Part<'_>,
    wired: &BTreeSet<String>,
) -> Result<Vec<u8>, String> {
    let remap = resolve.merge(std::mem::take(&mut inner.resolve));
    let remap = remap.map_err(|error| format!("{error:#}"))?;
    let inner_world = remap.map_world(inner.world, Default::default());
    let inner_world = inner_world.map_err(|error| error.to_string())?;
    let imports = |world: WorldId| resolve.worlds[world].imports.clone();
    let mut union: IndexMap<WorldKey, WorldItem> = IndexMap::default();
    let all = imports(outer.world)
        .into_iter()
        .filter(|(key, _)| !wired.contains(&resolve.name_world_key(key)))
        .chain(imports(inner_world));
    let mut items: IndexMap<InterfaceId, (WorldKey, WorldItem)> = IndexMap::default();
    for (key, item) in all {
        if let WorldItem::Interface { id, .. } = &item {
            items.entry(*id).or_insert((key, item));
        }
    }
    let ids: Vec<InterfaceId> = items.keys().copied().collect();
    for id in ids {
        place(&resolve, id, &mut items, &mut union);
    }
    let world = &mut resolve.worlds[outer.world];
    world.imports = union;
    world.exports.clear();
    let Some(package) = world.package else {
        return Err("its world has no package".to_owned());
    };
    wit_component::encode(&resolve, package).map_err(|error| format!("{error:#}"))
}

/// Move an import to the union, behind those whose types it has.
fn place(
    resolve: &Resolve,
    id: InterfaceId,
    items: &mut IndexMap<InterfaceId, (WorldKey, WorldItem)>,
    union: &mut IndexMap<WorldKey, WorldItem>,
) {
    let Some((key, item)) = items.shift_remove(&id) else {
        return;
    };
    let needed: Vec<InterfaceId> = resolve.interface_direct_deps(id).collect();
    for needed in needed {
        place(resolve, needed, items, union);
    }
    union.insert(key, item);
}

type ReencodeError = wasm_encoder::reencode::Error<Infallible>;

/// Writes the declarations of a world as items of a component.
#[derive(Default)]
struct Replay {
    /// Instances of the component, in the order of the world's.
    instances: Vec<u32>,
    /// Types that what is written lies in; those have instances of their own.
    depth: usize,
}

impl Reencode for Replay {
    type Error = Infallible;
}

impl ReencodeComponent for Replay {
    fn component_instance_index(&mut self, index: u32) -> u32 {
        let known = self.instances.get(index as usize);
        known.copied().filter(|_| self.depth == 0).unwrap_or(index)
    }

    fn push_depth(&mut self) {
        self.depth += 1;
    }

    fn pop_depth(&mut self) {
        self.depth -= 1;
    }
}

/// Instances that the parts are given, by the names of their imports.
#[derive(Default)]
struct Given<'a> {
    outer: Vec<(&'a str, u32)>,
    inner: Vec<(&'a str, u32)>,
}

fn assemble(
    types: &[u8],
    outer: &Part<'_>,
    inner: &Part<'_>,
    wired: &BTreeSet<String>,
) -> Result<Vec<u8>, ReencodeError> {
    let mut builder = ComponentBuilder::default();
    let declarations = world_declarations(types)?;
    let mut given = imports(&mut builder, declarations, outer, inner, wired)?;
    let component = builder.component_raw(Some(INNER), inner.wasm);
    let inner = builder.instantiate(Some(INNER), component, arguments(&given.inner));
    for name in wired {
        let instance = builder.alias_export(inner, name, ComponentExportKind::Instance);
        given.outer.push((name, instance));
    }
    let component = builder.component_raw(Some(OUTER), outer.wasm);
    let whole = builder.instantiate(Some(OUTER), component, arguments(&given.outer));
    for name in &outer.exports {
        let instance = builder.alias_export(whole, name, ComponentExportKind::Instance);
        builder.export(name.as_str(), ComponentExportKind::Instance, instance, None);
    }
    Ok(builder.finish())
}

fn arguments<'a>(given: &[(&'a str, u32)]) -> Vec<(&'a str, ComponentExportKind, u32)> {
    let arguments = given.iter();
    arguments
        .map(|&(name, instance)| (name, ComponentExportKind::Instance, instance))
        .collect()
}

/// The declarations of the one world of a package that wit-component has written.
fn world_declarations(types: &[u8]) -> Result<Vec<ComponentTypeDeclaration<'_>>, ReencodeError> {
    for payload in Parser::new(0).parse_all(types) {
        let Payload::ComponentTypeSection(section) = payload? else {
            continue;
        };
        for ty in section {
            let ComponentType::Component(package) = ty? else {
                continue;
            };
            for declaration in Vec::from(package) {
                if let ComponentTypeDeclaration::Type(ComponentType::Component(world)) = declaration
                {
                    return Ok(Vec::from(world));
                }
            }
        }
    }
    // Nothing is imported at all.
    Ok(Vec::new())
}

/// Import what either part imports. Settings are imported twice, once for each.
fn imports<'a>(
    builder: &mut ComponentBuilder,
    declarations: Vec<ComponentTypeDeclaration<'a>>,
    outer: &Part<'_>,
    inner: &Part<'_>,
    wired: &BTreeSet<String>,
) -> Result<Given<'a>, ReencodeError> {
    let mut replay = Replay::default();
    let mut given = Given::default();
    for declaration in declarations {
        match declaration {
            ComponentTypeDeclaration::Type(ty) => {
                let (_, encoder) = builder.ty(None);
                replay.parse_component_type(encoder, ty)?;
            }
            ComponentTypeDeclaration::Alias(alias) => {
                let alias = replay.component_alias(alias)?;
                builder.alias(None, alias);
            }
            ComponentTypeDeclaration::Import(import) => {
                let name = import.name.name;
                let ty = replay.component_type_ref(import.ty)?;
                let has = |part: &Part<'_>| part.imports.iter().any(|known| known == name);
                let mut index = None;
                if has(outer) && !wired.contains(name) {
                    let outers = builder.import(name, ty);
                    given.outer.push((name, outers));
                    index = Some(outers);
                }
                if has(inner) {
                    let own = ours(name).filter(|(interface, _)| *interface == SETTINGS);
                    let own = own.map(|(_, version)| {
                        let name = format!("mortise:plugin/{INNER_SETTINGS}@{version}");
                        builder.import(name.as_str(), ty)
                    });
                    let inners = own.or(index).unwrap_or_else(|| builder.import(name, ty));
                    given.inner.push((name, inners));
                    index = index.or(Some(inners));
                }
                replay.instances.extend(index);
            }
            ComponentTypeDeclaration::Export { .. } | ComponentTypeDeclaration::CoreType(_) => {}
        }
    }
    Ok(given)
}
