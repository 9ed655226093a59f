//! The reference: every interface, type and function of the package with its doc comment, as Markdown.

use std::fmt::Write as _;

use wit_parser::{
    Docs, Function, Handle, Interface, InterfaceId, Resolve, Type, TypeDef, TypeDefKind, WorldItem,
    WorldKey,
};

use crate::{WitError, package};

/// Write the reference of the package.
///
/// # Errors
/// [`WitError::Package`] when the package is wrong.
pub fn reference() -> Result<String, WitError> {
    let (resolve, id) = package()?;
    let name = &resolve.packages[id].name;
    let mut page = format!(
        "# Reference of `{name}`\n\n\
         Made of the doc comments of `wit/v0.3` by `mortise plugin reference`; a test holds\n\
         that it is up to date.\n"
    );
    let _ = writeln!(page, "\n## Kinds and what they may import\n");
    let _ = writeln!(page, "| world | | imports | exports |\n|---|---|---|---|");
    for (world, id) in &resolve.packages[id].worlds {
        let world_items = &resolve.worlds[*id];
        let names = |items: &wit_parser::IndexMap<WorldKey, WorldItem>| {
            let names = items.keys().filter_map(|key| link(&resolve, key));
            names.collect::<Vec<_>>().join(", ")
        };
        let _ = writeln!(
            page,
            "| `{world}` | {} | {} | {} |",
            one_line(&world_items.docs),
            names(&world_items.imports),
            names(&world_items.exports),
        );
    }
    for id in resolve.packages[id].interfaces.values() {
        interface(&resolve, *id, &mut page);
    }
    Ok(page)
}

fn link(resolve: &Resolve, key: &WorldKey) -> Option<String> {
    let WorldKey::Interface(id) = key else {
        return None;
    };
    let name = resolve.interfaces[*id].name.as_deref()?;
    Some(format!("[{name}](#{name})"))
}

fn one_line(docs: &Docs) -> String {
    let text = docs.contents.as_deref().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn interface(resolve: &Resolve, id: InterfaceId, page: &mut String) {
    let interface = &resolve.interfaces[id];
    let name = interface.name.as_deref().unwrap_or_default();
    let _ = writeln!(page, "\n## {name}\n\n{}", one_line(&interface.docs));
    for (name, id) in &interface.types {
        type_definition(resolve, name, &resolve.types[*id], page);
    }
    for function in interface.functions.values() {
        if function.kind.resource().is_none() {
            self::function(resolve, function, page);
        }
    }
    methods(resolve, interface, page);
}

/// Methods under the resource that they belong to.
fn methods(resolve: &Resolve, interface: &Interface, page: &mut String) {
    for function in interface.functions.values() {
        if function.kind.resource().is_some() {
            self::function(resolve, function, page);
        }
    }
}

fn function(resolve: &Resolve, function: &Function, page: &mut String) {
    let resource = function
        .kind
        .resource()
        .and_then(|id| resolve.types[id].name.as_deref());
    let own = resource.map_or(String::new(), |name| format!("{name}."));
    let params = function.params.iter().filter(|param| param.name != "self");
    let params = params.map(|param| format!("{}: {}", param.name, type_name(resolve, &param.ty)));
    let params = params.collect::<Vec<_>>().join(", ");
    let result = function.result.as_ref().map_or(String::new(), |ty| {
        format!(" -> {}", type_name(resolve, ty))
    });
    let _ = writeln!(
        page,
        "\n### `{own}{}({params}){result}`\n\n{}",
        function.item_name(),
        one_line(&function.docs)
    );
}

fn type_definition(resolve: &Resolve, name: &str, definition: &TypeDef, page: &mut String) {
    let row = |page: &mut String, name: &str, ty: &str, docs: &Docs| {
        let _ = writeln!(page, "| `{name}` | {ty} | {} |", one_line(docs));
    };
    let code = |ty: &Type| format!("`{}`", type_name(resolve, ty));
    let heading = |page: &mut String, what: &str| {
        let _ = writeln!(
            page,
            "\n### {what} `{name}`\n\n{}",
            one_line(&definition.docs)
        );
    };
    let table = |page: &mut String, head: &str| {
        let _ = writeln!(page, "\n| {head} | type | |\n|---|---|---|");
    };
    match &definition.kind {
        TypeDefKind::Record(record) => {
            heading(page, "record");
            table(page, "field");
            for field in &record.fields {
                row(page, &field.name, &code(&field.ty), &field.docs);
            }
        }
        TypeDefKind::Variant(variant) => {
            heading(page, "variant");
            table(page, "case");
            for case in &variant.cases {
                let ty = case.ty.as_ref().map_or(String::new(), code);
                row(page, &case.name, &ty, &case.docs);
            }
        }
        TypeDefKind::Enum(cases) => {
            heading(page, "enum");
            table(page, "case");
            for case in &cases.cases {
                row(page, &case.name, "", &case.docs);
            }
        }
        TypeDefKind::Resource => heading(page, "resource"),
        // A name that another interface gave is explained there.
        TypeDefKind::Type(Type::Id(_)) => {}
        TypeDefKind::Type(ty) => {
            heading(page, "type");
            let _ = writeln!(page, "\nIt is a {}.", code(ty));
        }
        _ => heading(page, "type"),
    }
}

fn type_name(resolve: &Resolve, ty: &Type) -> String {
    let id = match ty {
        Type::Id(id) => *id,
        Type::String => return "string".to_owned(),
        other => return format!("{other:?}").to_lowercase(),
    };
    let definition = &resolve.types[id];
    if let Some(name) = &definition.name {
        return name.clone();
    }
    let inner = |ty: &Type| type_name(resolve, ty);
    let or_nothing = |ty: &Option<Type>| ty.as_ref().map_or("_".to_owned(), inner);
    match &definition.kind {
        TypeDefKind::List(ty) => format!("list<{}>", inner(ty)),
        TypeDefKind::Option(ty) => format!("option<{}>", inner(ty)),
        TypeDefKind::Tuple(tuple) => {
            let types = tuple.types.iter().map(inner);
            format!("tuple<{}>", types.collect::<Vec<_>>().join(", "))
        }
        TypeDefKind::Result(result) => {
            format!(
                "result<{}, {}>",
                or_nothing(&result.ok),
                or_nothing(&result.err)
            )
        }
        TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => inner(&Type::Id(*id)),
        // A test holds that no such type is left in the page.
        _ => "?".to_owned(),
    }
}
