//! Types for plugins in JavaScript and TypeScript equal what the WIT packages say, for each version that servers take. Run
//! with `MORTISE_UPDATE=1` to write them anew.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use wit_parser::{
    Docs, Function, Handle, InterfaceId, PackageId, Resolve, Type, TypeDef, TypeDefKind, WorldKey,
};

const VERSIONS: [&str; 3] = ["v0.1", "v0.2", "v0.3"];

/// Names of parameters that JavaScript keeps for itself.
const RESERVED: [&str; 2] = ["arguments", "function"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_types_for_javascript_are_up_to_date() {
    for version in VERSIONS {
        let mut resolve = Resolve::default();
        let (package, _) = resolve
            .push_path(root().join("wit").join(version))
            .expect("the package");
        let text = Types {
            resolve: &resolve,
            package,
        }
        .write();
        let path = format!("wit/ts/{version}.d.ts");
        let file = root().join(&path);
        if std::env::var_os("MORTISE_UPDATE").is_some() {
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("make the folder");
            std::fs::write(&file, &text).expect("write the types");
        }
        assert!(
            std::fs::read_to_string(&file).is_ok_and(|committed| committed == text),
            "`{path}` is not what the WIT package says; run `MORTISE_UPDATE=1 cargo test --release -p mortise-wit`"
        );
    }
}

struct Types<'a> {
    resolve: &'a Resolve,
    package: PackageId,
}

impl Types<'_> {
    fn write(&self) -> String {
        let package = &self.resolve.packages[self.package];
        let mut text = format!(
            "// Types of `{}`, made of its WIT files. A module that a plugin imports has functions; one that it exports\n\
             // has an interface of the same name, which its object follows:\n//\n\
             //   /** @type {{import('{}').Policy}} */\n\
             //   export const policy = {{ … }};\n//\n\
             // What may be none is null where a plugin is told it, and may be left out in what it answers. A fault is thrown.\n\
             // Integers of 64 bits are numbers, exact up to 2^53; the maximum of a `u64` is -1.\n",
            package.name,
            self.module("policy"),
        );
        let exported = self.exported();
        for (name, id) in &package.interfaces {
            let _ = writeln!(text, "\ndeclare module '{}' {{", self.module(name));
            self.interface(*id, exported.contains(id), &mut text);
            text.push_str("}\n");
        }
        text
    }

    fn module(&self, interface: &str) -> String {
        let name = &self.resolve.packages[self.package].name;
        let version = name.version.as_ref().expect("a version");
        format!("{}:{}/{interface}@{version}", name.namespace, name.name)
    }

    /// Interfaces that plugins export.
    fn exported(&self) -> BTreeSet<InterfaceId> {
        let worlds = self.resolve.packages[self.package].worlds.values();
        let keys = worlds.flat_map(|world| self.resolve.worlds[*world].exports.keys());
        keys.filter_map(|key| match key {
            WorldKey::Interface(id) => Some(*id),
            WorldKey::Name(_) => None,
        })
        .collect()
    }

    fn interface(&self, id: InterfaceId, exported: bool, text: &mut String) {
        let interface = &self.resolve.interfaces[id];
        for (name, id) in &interface.types {
            let definition = &self.resolve.types[*id];
            documented(&definition.docs, "", "  ", text);
            self.definition(name, definition, id, interface.functions.values(), text);
        }
        let free = interface
            .functions
            .values()
            .filter(|function| function.kind.resource().is_none());
        if !exported {
            for function in free {
                self.function(function, "  export function ", "  ", text);
            }
            return;
        }
        let name = interface.name.as_deref().unwrap_or_default();
        documented(&interface.docs, "", "  ", text);
        let _ = writeln!(text, "  export interface {} {{", pascal(name));
        for (name, id) in &interface.types {
            if matches!(self.resolve.types[*id].kind, TypeDefKind::Resource) {
                let name = pascal(name);
                let _ = writeln!(text, "    {name}: new (...args: any[]) => {name};");
            }
        }
        for function in free {
            self.function(function, "    ", "    ", text);
        }
        text.push_str("  }\n");
    }

    fn function(&self, function: &Function, begin: &str, indent: &str, text: &mut String) {
        let (answer, thrown) = match &function.result {
            None => ("void".to_owned(), None),
            Some(ty) => match self.result(ty) {
                Some((ok, error)) => (ok.map_or("void".to_owned(), |ty| self.name(&ty)), error),
                None => (self.name(ty), None),
            },
        };
        let thrown = thrown.map_or(String::new(), |ty| {
            format!("@throws {{{}}}", self.name(&ty))
        });
        documented(&function.docs, &thrown, indent, text);
        let params = function.params.iter().filter(|param| param.name != "self");
        let params = params.map(|param| {
            let name = camel(&param.name);
            let end = if RESERVED.contains(&&*name) { "_" } else { "" };
            format!("{name}{end}: {}", self.name(&param.ty))
        });
        let params = params.collect::<Vec<_>>().join(", ");
        let name = camel(function.item_name());
        let _ = writeln!(text, "{begin}{name}({params}): {answer};");
    }

    /// Both sides of a result.
    fn result(&self, ty: &Type) -> Option<(Option<Type>, Option<Type>)> {
        let Type::Id(id) = ty else { return None };
        match &self.resolve.types[*id].kind {
            TypeDefKind::Result(result) => Some((result.ok, result.err)),
            _ => None,
        }
    }

    fn definition<'f>(
        &self,
        name: &str,
        definition: &TypeDef,
        id: &wit_parser::TypeId,
        functions: impl Iterator<Item = &'f Function>,
        text: &mut String,
    ) {
        let name = pascal(name);
        match &definition.kind {
            TypeDefKind::Record(record) => {
                let _ = writeln!(text, "  export interface {name} {{");
                for field in &record.fields {
                    documented(&field.docs, "", "    ", text);
                    let may = if self.is_option(&field.ty) { "?" } else { "" };
                    let ty = self.name(&field.ty);
                    let _ = writeln!(text, "    {}{may}: {ty};", camel(&field.name));
                }
                text.push_str("  }\n");
            }
            TypeDefKind::Variant(variant) => {
                let _ = write!(text, "  export type {name} =");
                for case in &variant.cases {
                    text.push('\n');
                    documented_plainly(&case.docs, text);
                    let val = case.ty.as_ref();
                    let val = val.map_or(String::new(), |ty| format!("; val: {}", self.name(ty)));
                    let _ = write!(text, "    | {{ tag: '{}'{val} }}", case.name);
                }
                text.push_str(";\n");
            }
            TypeDefKind::Enum(cases) => {
                let _ = write!(text, "  export type {name} =");
                for case in &cases.cases {
                    text.push('\n');
                    documented_plainly(&case.docs, text);
                    let _ = write!(text, "    | '{}'", case.name);
                }
                text.push_str(";\n");
            }
            TypeDefKind::Resource => {
                let _ = writeln!(text, "  export interface {name} {{");
                for function in functions.filter(|function| function.kind.resource() == Some(*id)) {
                    self.function(function, "    ", "    ", text);
                }
                text.push_str("  }\n");
            }
            TypeDefKind::Type(ty) => {
                let _ = writeln!(text, "  export type {name} = {};", self.elsewhere(ty));
            }
            other => panic!("`{name}` is a {}", other.as_str()),
        }
    }

    fn is_option(&self, ty: &Type) -> bool {
        matches!(ty, Type::Id(id) if matches!(self.resolve.types[*id].kind, TypeDefKind::Option(_)))
    }

    /// A type that another interface may have.
    fn elsewhere(&self, ty: &Type) -> String {
        let Type::Id(id) = ty else {
            return self.name(ty);
        };
        let owner = match self.resolve.types[*id].owner {
            wit_parser::TypeOwner::Interface(owner) => {
                self.resolve.interfaces[owner].name.as_deref()
            }
            _ => None,
        };
        match owner {
            Some(owner) => format!("import('{}').{}", self.module(owner), self.name(ty)),
            None => self.name(ty),
        }
    }

    fn name(&self, ty: &Type) -> String {
        let id = match ty {
            Type::Bool => return "boolean".to_owned(),
            Type::String | Type::Char => return "string".to_owned(),
            Type::Id(id) => *id,
            _ => return "number".to_owned(),
        };
        let definition = &self.resolve.types[id];
        if let Some(name) = &definition.name {
            return pascal(name);
        }
        match &definition.kind {
            TypeDefKind::List(Type::U8) => "Uint8Array".to_owned(),
            TypeDefKind::List(ty) => match self.name(ty) {
                name if name.contains('|') => format!("({name})[]"),
                name => format!("{name}[]"),
            },
            TypeDefKind::Option(ty) => format!("{} | null | undefined", self.name(ty)),
            TypeDefKind::Tuple(tuple) => {
                let types = tuple.types.iter().map(|ty| self.name(ty));
                format!("[{}]", types.collect::<Vec<_>>().join(", "))
            }
            TypeDefKind::Handle(Handle::Own(id) | Handle::Borrow(id)) => self.name(&Type::Id(*id)),
            other => panic!("no type for a {}", other.as_str()),
        }
    }
}

/// The doc comment of an item.
fn documented(docs: &Docs, more: &str, indent: &str, text: &mut String) {
    let lines = docs.contents.as_deref().unwrap_or_default().lines();
    let lines: Vec<&str> = lines.chain((!more.is_empty()).then_some(more)).collect();
    match &*lines {
        [] => {}
        [line] => {
            let _ = writeln!(text, "{indent}/** {line} */");
        }
        lines => {
            let _ = writeln!(text, "{indent}/**");
            for line in lines {
                let _ = writeln!(text, "{}", format!("{indent} * {line}").trim_end());
            }
            let _ = writeln!(text, "{indent} */");
        }
    }
}

/// The comment of a case, which no tool shows.
fn documented_plainly(docs: &Docs, text: &mut String) {
    for line in docs.contents.as_deref().unwrap_or_default().lines() {
        let _ = writeln!(text, "    // {line}");
    }
}

fn pascal(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    words.collect()
}

fn camel(name: &str) -> String {
    let name = pascal(name);
    let mut letters = name.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    first.into_iter().chain(letters).collect()
}
