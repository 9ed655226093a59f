//! Guests that no compiler would make: a core module in text, with every export of a world, whose
//! bodies say what they like to the canonical ABI.
//!
//! A function of the contract returns the address of its result in memory. Where nothing else is
//! said it returns [`ZEROS`], which read as success with empty lists.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::OnceLock;

use mortise_plugin::Kind;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{PackageId, Resolve, WorldItem};

/// Address of memory that holds only zeros.
pub(crate) const ZEROS: u32 = 64;

/// Address of a guest's own results.
pub(crate) const RESULT: u32 = 1024;

/// Address of the answers that settings dictate.
const DICTATED: u32 = 2048;

/// Address of texts and lists of a guest's own.
pub(crate) const LISTS: u32 = 4096;

/// Address from which on memory is handed out for arguments.
const HEAP: u32 = 1 << 20;

/// An address that no memory reaches.
pub(crate) const NOWHERE: u32 = 0xffff_fff0;

/// A guest under construction.
#[derive(Clone)]
pub(crate) struct Forged {
    kind: Kind,
    bodies: Vec<(String, String)>,
    data: Vec<(u32, Vec<u8>)>,
    imports: String,
    declarations: String,
    realloc: String,
    pages: u32,
}

impl Forged {
    /// A guest of one kind that answers every call with nothing.
    pub(crate) fn new(kind: Kind) -> Self {
        let forged = Self {
            kind,
            bodies: Vec::new(),
            data: Vec::new(),
            imports: String::new(),
            declarations: String::new(),
            realloc: "(local.set $old (i32.and \
                        (i32.add (global.get $top) (i32.sub (local.get $align) (i32.const 1))) \
                        (i32.sub (i32.const 0) (local.get $align)))) \
                      (global.set $top (i32.add (local.get $old) (local.get $size))) \
                      (local.get $old)"
                .to_owned(),
            pages: 64,
        };
        match kind {
            // Matchers are made, and masks pushed, as they should be.
            Kind::Grammar => forged
                .import(
                    "(import \"[export]mortise:plugin/grammar@0.3.0\" \"[resource-new]matcher\" \
                       (func $new (param i32) (result i32))) \
                     (import \"[export]mortise:plugin/grammar@0.3.0\" \"[resource-drop]matcher\" \
                       (func $drop (param i32))) \
                     (import \"mortise:plugin/mask-sink@0.3.0\" \"only\" \
                       (func $only (param i32 i32 i32))) \
                     (import \"mortise:plugin/mask-sink@0.3.0\" \"dense\" \
                       (func $dense (param i32 i32 i32)))",
                )
                .body("compile", &matcher())
                .body("matcher.fork", &matcher())
                .body(
                    "matcher.mask",
                    &format!("(call $only (local.get 1) (i32.const {ZEROS}) (i32.const 1)) (i32.const {ZEROS})"),
                )
                .body(
                    "matcher.advance",
                    &format!("(call $only (local.get 3) (i32.const {ZEROS}) (i32.const 1)) (i32.const {ZEROS})"),
                ),
            // A session is opened.
            Kind::OutputParser => forged
                .import(
                    "(import \"[export]mortise:plugin/output-parser@0.3.0\" \"[resource-new]session\" \
                       (func $new (param i32) (result i32)))",
                )
                .body(
                    "#open",
                    &format!(
                        "(i32.store8 (i32.const {0}) (i32.const 1)) \
                         (i32.store (i32.const {1}) (call $new (i32.const 1))) (i32.const {RESULT})",
                        RESULT + 4,
                        RESULT + 8
                    ),
                ),
            // Every request is somebody else's to decide on: the third case of the variant.
            Kind::Policy => forged
                .data(RESULT + 8, &[2])
                .body("authorize", &format!("(i32.const {RESULT})")),
            // It does all that there is.
            Kind::Retriever => forged
                .data(RESULT + 8, &[1, 1, 1])
                .body("#describe", &format!("(i32.const {})", RESULT + 8)),
            _ => forged,
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// Set the body of the function whose name in the core module ends in `function`. Parameters are numbered; the
    /// value left on the stack is the result.
    pub(crate) fn body(mut self, function: &str, body: &str) -> Self {
        self.bodies.retain(|(known, _)| known != function);
        self.bodies.push((function.to_owned(), body.to_owned()));
        self
    }

    /// Set a function to answer with `result`, stored at [`RESULT`].
    pub(crate) fn answers(self, function: &str, result: &[u8]) -> Self {
        self.data(RESULT, result)
            .body(function, &format!("(i32.const {RESULT})"))
    }

    /// Add bytes at an address of memory.
    pub(crate) fn data(mut self, address: u32, bytes: &[u8]) -> Self {
        self.data.push((address, bytes.to_vec()));
        self
    }

    /// Add imports.
    pub(crate) fn import(mut self, text: &str) -> Self {
        self.imports.push_str(text);
        self
    }

    /// Add functions, tables, or a start function.
    pub(crate) fn declare(mut self, text: &str) -> Self {
        self.declarations.push_str(text);
        self
    }

    /// Set the function by which the guest hands out memory to the host.
    pub(crate) fn realloc(mut self, body: &str) -> Self {
        self.realloc = body.to_owned();
        self
    }

    /// Set the pages of 64 KiB that the memory has from the start.
    pub(crate) fn pages(mut self, pages: u32) -> Self {
        self.pages = pages;
        self
    }

    /// The functions that answer by an address in memory answer with bytes that the settings give in
    /// hexadecimal: `{"":"00ff"}`. They are read when an instance is prepared.
    pub(crate) fn dictated(self) -> Self {
        let functions: &[&str] = match self.kind {
            Kind::ChatTemplate => &["#render"],
            Kind::OutputParser => &["#constraint", "session.feed", "session.close"],
            Kind::Grammar => &[
                "matcher.mask",
                "matcher.advance",
                "matcher.probe",
                "matcher.rollback",
            ],
            Kind::Policy => &["authorize", "#account"],
            Kind::Tool => &["#describe", "#call"],
            Kind::Guardrail => &["check-input", "session.feed", "session.close"],
            Kind::Retriever => &["#chunk", "#rewrite", "#assemble"],
        };
        let digit = |index: &str| {
            format!(
                "(i32.add (i32.and (i32.load8_u (i32.add (local.get $from) (i32.const {index}))) (i32.const 15)) \
                 (i32.mul (i32.const 9) (i32.shr_u (i32.load8_u (i32.add (local.get $from) (i32.const {index}))) (i32.const 6))))"
            )
        };
        let copy = format!(
            "(func $copy (local $from i32) (local $end i32) (local $to i32) \
             (call $settings (i32.const 512)) \
             (local.set $from (i32.add (i32.load (i32.const 512)) (i32.const 5))) \
             (local.set $end (i32.sub (i32.add (i32.load (i32.const 512)) (i32.load (i32.const 516))) (i32.const 2))) \
             (local.set $to (i32.const {DICTATED})) \
             (block $done (loop $more \
               (br_if $done (i32.ge_u (local.get $from) (local.get $end))) \
               (i32.store8 (local.get $to) (i32.or (i32.shl {} (i32.const 4)) {})) \
               (local.set $from (i32.add (local.get $from) (i32.const 2))) \
               (local.set $to (i32.add (local.get $to) (i32.const 1))) \
               (br $more))))",
            digit("0"),
            digit("1")
        );
        let forged = self
            .import(
                "(import \"mortise:plugin/settings@0.3.0\" \"get\" (func $settings (param i32)))",
            )
            .declare(&copy)
            .body(
                "lifecycle@0.3.0#prepare",
                &format!("(call $copy) (i32.const {ZEROS})"),
            );
        functions.iter().fold(forged, |forged, function| {
            let push = match *function {
                "matcher.mask" => {
                    format!("(call $only (local.get 1) (i32.const {ZEROS}) (i32.const 1))")
                }
                "matcher.advance" => {
                    format!("(call $only (local.get 3) (i32.const {ZEROS}) (i32.const 1))")
                }
                _ => String::new(),
            };
            forged.body(function, &format!("{push} (i32.const {DICTATED})"))
        })
    }

    /// The component, with one more import: an interface of no functions.
    pub(crate) fn importing(&self, interface: &str) -> Vec<u8> {
        // A component may import at any place.
        let import = format!("(component (import {interface:?} (instance)))");
        let import = wat::parse_str(import).expect("a component");
        [&self.build(), &import[8..]].concat()
    }

    /// The component.
    pub(crate) fn build(&self) -> Vec<u8> {
        let (resolve, package) = contract();
        let world = format!("{}-plugin", self.kind.as_str());
        let world = resolve.select_world(&[*package], Some(&world));
        let world = world.expect("a world of the contract");
        let text = self.text(resolve, world);
        let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8)
            .expect("the world fits the module");
        let encoder = ComponentEncoder::default().module(&module);
        let encoded = encoder.and_then(|mut encoder| encoder.encode());
        encoded.unwrap_or_else(|error| panic!("{error:#}\n{text}"))
    }

    fn text(&self, resolve: &Resolve, world: wit_parser::WorldId) -> String {
        let mut text = format!(
            "(module {} (memory (export \"memory\") {}) {} (global $top (mut i32) (i32.const {HEAP}))\n\
             (func (export \"cabi_realloc\") (param $old i32) (param $had i32) (param $align i32) \
             (param $size i32) (result i32) {})\n",
            self.imports, self.pages, self.declarations, self.realloc
        );
        for (address, bytes) in &self.data {
            let bytes: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
            let _ = writeln!(text, "(data (i32.const {address}) \"{bytes}\")");
        }
        for item in resolve.worlds[world].exports.values() {
            let WorldItem::Interface { id, .. } = item else {
                continue;
            };
            let interface = resolve.id_of(*id).expect("a named interface");
            for function in resolve.interfaces[*id].functions.values() {
                let name = format!("{interface}#{}", function.name);
                let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
                let types = |types: &[WasmType]| -> String {
                    types
                        .iter()
                        .map(|ty| format!(" {}", core_type(*ty)))
                        .collect()
                };
                let body = self
                    .body_of(&name)
                    .unwrap_or_else(|| match signature.results[..] {
                        [_] => format!("(i32.const {ZEROS})"),
                        _ => String::new(),
                    });
                let (parameters, results) = (types(&signature.params), types(&signature.results));
                let _ = writeln!(
                    text,
                    "(func (export {name:?}) (param{parameters}) (result{results}) {body})"
                );
                if let Some(body) = self.body_of(&format!("post-return {name}")) {
                    let _ = writeln!(
                        text,
                        "(func (export \"cabi_post_{name}\") (param i32) {body})"
                    );
                }
            }
        }
        text + ")"
    }

    fn body_of(&self, name: &str) -> Option<String> {
        let post = name.starts_with("post-return ");
        let mut bodies = self.bodies.iter();
        let found = bodies.find(|(end, _)| {
            end.starts_with("post-return ") == post
                && name.ends_with(end.trim_start_matches("post-return "))
        });
        found.map(|(_, body)| body.clone())
    }
}

/// A body that makes a matcher and answers with it.
fn matcher() -> String {
    format!(
        "(i32.store (i32.const {}) (call $new (i32.const 1))) (i32.const {RESULT})",
        RESULT + 4
    )
}

/// `wit/v0.3`, read once.
fn contract() -> &'static (Resolve, PackageId) {
    static CONTRACT: OnceLock<(Resolve, PackageId)> = OnceLock::new();
    CONTRACT.get_or_init(|| {
        let mut folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        let folder = folders.find_map(|root| Some(root.join("wit/v0.3")).filter(|f| f.is_dir()));
        let folder = folder.expect("the contract lies beside the workspace");
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_dir(folder).expect("the contract");
        (resolve, package)
    })
}

fn core_type(ty: WasmType) -> &'static str {
    match ty {
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
    }
}

/// Numbers as they stand in memory.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
