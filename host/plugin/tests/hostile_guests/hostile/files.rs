//! Files (J7): files that are not plugins, and plugins that would cost too much to compile.

use mortise_plugin::{Kind, MAX_FUNCTION_BYTES, MAX_FUNCTIONS};

use super::{ANSWERED, Attack, Case, observe};
use crate::forged::Forged;
use crate::guests::every_kind;

/// The header of a component.
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

fn file(does: &'static str, outcome: &'static str, wasm: fn() -> Vec<u8>) -> Case {
    Case {
        kind: Kind::ChatTemplate,
        does,
        outcome,
        attack: Attack::File(wasm),
    }
}

/// An unsigned number in LEB128.
fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let byte = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(byte);
            return bytes;
        }
        bytes.push(byte | 0x80);
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb128(content.len()), content].concat()
}

/// A plugin with nothing wrong.
fn sound() -> Vec<u8> {
    Forged::new(Kind::ChatTemplate).build()
}

/// A sound plugin with these sections at its end.
fn plus(sections: &[u8]) -> Vec<u8> {
    [&sound(), sections].concat()
}

/// A sound plugin with this core module, in text, at its end.
pub(super) fn plus_module(text: &str) -> Vec<u8> {
    let wasm = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    plus(&section(1, &wasm))
}

/// A custom section.
fn custom(name: &[u8], content: &[u8]) -> Vec<u8> {
    section(0, &[&leb128(name.len()), name, content].concat())
}

/// A core module of so many functions, each with this body.
fn functions(count: usize, body: &[u8]) -> Vec<u8> {
    let one_type = section(1, &[1, 0x60, 0, 0]);
    let of_type: Vec<u8> = [leb128(count), vec![0; count]].concat();
    let body = [&leb128(body.len()), body].concat();
    let code: Vec<u8> = [leb128(count), body.repeat(count)].concat();
    [
        &b"\0asm\x01\0\0\0"[..],
        &one_type,
        &section(3, &of_type),
        &section(10, &code),
    ]
    .concat()
}

/// Components, each of which makes two instances of the one before.
fn doubling(levels: usize) -> String {
    let mut text =
        String::from("(component $c0 (core module $m) (core instance (instantiate $m)))");
    for level in 1..=levels {
        let before = level - 1;
        text.push_str(&format!(
            "(component $c{level} (alias outer $top $c{before} (component $b)) \
             (instance (instantiate $b)) (instance (instantiate $b)))"
        ));
    }
    format!("(component $top {text} (instance (instantiate $c{levels})))")
}

/// J7: files.
pub(super) fn files() -> Vec<Case> {
    let mut cases = foreign();
    cases.extend(costly());
    cases.extend(unsupported());
    cases.extend(sections());
    cases
}

/// Files that are not plugins.
fn foreign() -> Vec<Case> {
    vec![
        file("is 100 MB of zeros", "refused: too large", || {
            vec![0; 100 << 20]
        }),
        file(
            "is a plugin with 64 MiB of zeros behind it",
            "refused: too large",
            || {
                let mut wasm = every_kind().to_vec();
                wasm.resize((64 << 20) + 1, 0);
                wasm
            },
        ),
        file("is empty", "refused: no WebAssembly", Vec::new),
        file("is a script", "refused: no WebAssembly", || {
            b"#!/bin/sh\nrm -rf /\n".to_vec()
        }),
        file("is a core module", "refused: no component", || {
            functions(1, &[0, 0x0b])
        }),
        file(
            "is the first half of a plugin",
            "refused: does not compile",
            || every_kind()[..every_kind().len() / 2].to_vec(),
        ),
        file(
            "is a component that exports nothing",
            "refused: no kind of plugin",
            || wat::parse_str("(component)").unwrap(),
        ),
        file(
            "imports the plugin of somebody else",
            "refused: not grantable",
            || Forged::new(Kind::ChatTemplate).importing("mortise:plugin/policy@0.3.0"),
        ),
        file("imports sockets", "refused: not grantable", || {
            Forged::new(Kind::ChatTemplate).importing("wasi:sockets/tcp@0.2.6")
        }),
        file(
            "is built for a version that never was",
            "refused: another version",
            || renamed(&sound(), "@0.3.0", "@0.4.0"),
        ),
    ]
}

/// Plugins that would take too much time or memory to compile.
fn costly() -> Vec<Case> {
    vec![
        file(
            "has more functions than any plugin",
            "refused: too many functions",
            || {
                let many = usize::try_from(MAX_FUNCTIONS).unwrap() + 1;
                plus(&section(1, &functions(many, &[0, 0x0b])))
            },
        ),
        file(
            "has one function of a megabyte",
            "refused: too many bytes in one function",
            || {
                // No locals, then `nop`s, then `end`.
                let long = usize::try_from(MAX_FUNCTION_BYTES).unwrap() + 1;
                let mut body = vec![1; long];
                (body[0], body[long - 1]) = (0, 0x0b);
                plus(&section(1, &functions(1, &body)))
            },
        ),
        file("has 10 000 functions that nobody calls", ANSWERED, || {
            plus(&section(1, &functions(10_000, &[0, 0x0b])))
        }),
        file(
            "stretches 6 bytes of data to three images of 130 MB",
            "refused: too many bytes of initial memory",
            || {
                let image = "(module (memory 2000) (data (i32.const 0) \"a\") \
                              (data (i32.const 130000000) \"b\"))";
                let module = section(1, &wat::parse_str(image).unwrap());
                plus(&module.repeat(3))
            },
        ),
        file(
            "makes a million instances of components in components",
            "refused: too many instances of components inside",
            || wat::parse_str(doubling(20)).unwrap(),
        ),
        file(
            "nests 300 components",
            "refused: too many modules and components inside",
            || {
                plus(&(0..300).fold(Vec::new(), |inner, _| {
                    section(4, &[COMPONENT, &inner].concat())
                }))
            },
        ),
    ]
}

/// Features of WebAssembly that plugins do not have.
fn unsupported() -> Vec<Case> {
    let module = |does, text: &'static str| Case {
        kind: Kind::ChatTemplate,
        does,
        outcome: "refused: does not compile",
        attack: Attack::Text(text),
    };
    vec![
        module("has a memory of 64 bits", "(module (memory i64 1))"),
        Case {
            outcome: "refused: too many memories in one module",
            ..module(
                "has two memories in one module",
                "(module (memory 1) (memory 1))",
            )
        },
        module(
            "shares a memory between threads",
            "(module (memory 1 1 shared))",
        ),
        module(
            "wants a garbage collector",
            "(module (type (struct (field i32))) (func (param (ref 0))))",
        ),
    ]
}

/// Plugins with custom sections, which mean nothing to the runtime.
fn sections() -> Vec<Case> {
    vec![
        file("has a custom section of 60 MiB", ANSWERED, || {
            plus(&custom(b"junk", &vec![7; 60 << 20]))
        }),
        file(
            "has custom sections that are cut off inside",
            ANSWERED,
            || {
                let name = custom(b"name", b"\x01\xff\xff\xff\x0f");
                plus(&[name, custom(b"version", b"\x1b[31m\n")].concat())
            },
        ),
        file("has a settings schema that is not UTF-8", ANSWERED, || {
            plus(&custom(b"mortise:settings-schema", b"\xff\xfe{"))
        }),
        file(
            "has a custom section whose name is longer than itself",
            "refused: does not compile",
            || plus(&section(0, &[0xff, 0x7f, b'a'])),
        ),
    ]
}

fn renamed(wasm: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut wasm = wasm.to_vec();
    for start in 0..wasm.len() - from.len() {
        if wasm[start..].starts_with(from.as_bytes()) {
            wasm[start..start + from.len()].copy_from_slice(to.as_bytes());
        }
    }
    wasm
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn j7_files_that_are_no_plugins_or_cost_too_much_are_refused() {
    observe(files()).await;
}
