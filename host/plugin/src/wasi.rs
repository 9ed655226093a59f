//! The deny shim. Rust's standard library imports parts of WASI whether a plugin uses them or
//! not; they are linked to a world without files, arguments, environment, input or time. What is
//! printed goes to the log. Anything that could reach further is not linked at all.

use wasmtime::component::types::ComponentItem;
use wasmtime::component::{ComponentType, Lift, LinkerInstance, Lower, Resource, ResourceType};
use wasmtime::{Engine, StoreContextMut};

use crate::kind::InterfaceName;
use crate::state::StoreData;

/// Most random bytes that are given at once.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// Bytes that a guest may print in one write.
const MAX_PRINT_BYTES: u64 = 4096;

/// The numbers by which we know the two streams that can be written to.
const STDOUT: u32 = 1;
const STDERR: u32 = 2;

// Handles carry no data: the types only keep them apart.
enum IoError {}
enum Pollable {}
enum InputStream {}
enum OutputStream {}
enum TerminalInput {}
enum TerminalOutput {}
enum Descriptor {}
enum Unused {}

#[allow(unsafe_code, reason = "lifting and lowering are unsafe traits")]
mod lowered {
    use super::*;

    #[derive(ComponentType, Lift, Lower)]
    #[component(variant)]
    pub(super) enum StreamError {
        #[component(name = "last-operation-failed")]
        LastOperationFailed(Resource<IoError>),
        #[component(name = "closed")]
        Closed,
    }

    #[derive(ComponentType, Lift, Lower)]
    #[component(record)]
    pub(super) struct Datetime {
        pub(super) seconds: u64,
        pub(super) nanoseconds: u32,
    }
}
use lowered::{Datetime, StreamError};

type Context<'a> = StoreContextMut<'a, StoreData>;

/// Define everything that the component imports from one tolerated interface.
pub(crate) fn link(
    engine: &Engine,
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    items: &wasmtime::component::types::ComponentInstance,
) -> wasmtime::Result<()> {
    for (item, external) in items.exports(engine) {
        match external.ty {
            ComponentItem::Resource(_) => {
                linker.resource(item, resource_type(item), |_, _| Ok(()))?;
            }
            ComponentItem::ComponentFunc(_) => define(linker, name, item)?,
            _ => {}
        }
    }
    Ok(())
}

fn resource_type(name: &str) -> ResourceType {
    match name {
        "error" => ResourceType::host::<IoError>(),
        "pollable" => ResourceType::host::<Pollable>(),
        "input-stream" => ResourceType::host::<InputStream>(),
        "output-stream" => ResourceType::host::<OutputStream>(),
        "terminal-input" => ResourceType::host::<TerminalInput>(),
        "terminal-output" => ResourceType::host::<TerminalOutput>(),
        "descriptor" => ResourceType::host::<Descriptor>(),
        _ => ResourceType::host::<Unused>(),
    }
}

fn define(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match name.interface {
        "environment" | "exit" | "stdin" | "stdout" | "stderr" => cli(linker, name, function),
        "terminal-stdin" | "terminal-stdout" | "terminal-stderr" => {
            terminal(linker, name, function)
        }
        "streams" if function.starts_with("[method]input-stream.") => input(linker, name, function),
        "streams" => output(linker, name, function),
        "error" | "poll" => io(linker, name, function),
        "monotonic-clock" | "wall-clock" => clocks(linker, name, function),
        "random" | "insecure" | "insecure-seed" => random(linker, name, function),
        "preopens" if function == "get-directories" => linker
            .func_wrap(function, |_: Context<'_>, ()| {
                Ok((Vec::<(Resource<Descriptor>, String)>::new(),))
            }),
        _ => refuse(linker, name, function),
    }
}

/// A function that a sandboxed plugin has no use for: calling it traps, and says so.
fn refuse(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    let message = format!(
        "called {}/{}#{function}, which the sandbox does not grant",
        name.package, name.interface
    );
    linker.func_new(function, move |_, _, _, _| {
        Err(wasmtime::Error::msg(message.clone()))
    })
}

fn cli(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "get-environment" => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((Vec::<(String, String)>::new(),))
        }),
        "get-arguments" => {
            linker.func_wrap(function, |_: Context<'_>, ()| Ok((Vec::<String>::new(),)))
        }
        "initial-cwd" => linker.func_wrap(function, |_: Context<'_>, ()| Ok((None::<String>,))),
        "exit" => linker.func_wrap(
            function,
            |_: Context<'_>, (_status,): (Result<(), ()>,)| -> wasmtime::Result<()> {
                Err(wasmtime::Error::msg("called exit"))
            },
        ),
        "get-stdin" => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((Resource::<InputStream>::new_own(0),))
        }),
        "get-stdout" => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((Resource::<OutputStream>::new_own(STDOUT),))
        }),
        "get-stderr" => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((Resource::<OutputStream>::new_own(STDERR),))
        }),
        _ => refuse(linker, name, function),
    }
}

fn terminal(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "get-terminal-stdin" => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((None::<Resource<TerminalInput>>,))
        }),
        "get-terminal-stdout" | "get-terminal-stderr" => linker
            .func_wrap(function, |_: Context<'_>, ()| {
                Ok((None::<Resource<TerminalOutput>>,))
            }),
        _ => refuse(linker, name, function),
    }
}

fn input(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "[method]input-stream.read" | "[method]input-stream.blocking-read" => linker.func_wrap(
            function,
            |_: Context<'_>, (_stream, _count): (Resource<InputStream>, u64)| {
                Ok((Err::<Vec<u8>, _>(StreamError::Closed),))
            },
        ),
        "[method]input-stream.subscribe" => linker.func_wrap(
            function,
            |_: Context<'_>, (_stream,): (Resource<InputStream>,)| {
                Ok((Resource::<Pollable>::new_own(0),))
            },
        ),
        _ => refuse(linker, name, function),
    }
}

fn output(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "[method]output-stream.check-write" => linker.func_wrap(
            function,
            |_: Context<'_>, (_stream,): (Resource<OutputStream>,)| {
                Ok((Ok::<_, StreamError>(MAX_PRINT_BYTES),))
            },
        ),
        "[method]output-stream.write" | "[method]output-stream.blocking-write-and-flush" => linker
            .func_wrap(
                function,
                |mut context: Context<'_>, (stream, bytes): (Resource<OutputStream>, Vec<u8>)| {
                    let level = match stream.rep() {
                        STDERR => tracing::Level::WARN,
                        _ => tracing::Level::INFO,
                    };
                    context.data_mut().print(level, &bytes);
                    Ok((Ok::<_, StreamError>(()),))
                },
            ),
        "[method]output-stream.flush" | "[method]output-stream.blocking-flush" => linker.func_wrap(
            function,
            |_: Context<'_>, (_stream,): (Resource<OutputStream>,)| Ok((Ok::<_, StreamError>(()),)),
        ),
        "[method]output-stream.subscribe" => linker.func_wrap(
            function,
            |_: Context<'_>, (_stream,): (Resource<OutputStream>,)| {
                Ok((Resource::<Pollable>::new_own(0),))
            },
        ),
        _ => refuse(linker, name, function),
    }
}

fn io(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "[method]error.to-debug-string" => linker.func_wrap(
            function,
            |_: Context<'_>, (_error,): (Resource<IoError>,)| Ok((String::from("denied"),)),
        ),
        "[method]pollable.ready" => linker.func_wrap(
            function,
            |_: Context<'_>, (_pollable,): (Resource<Pollable>,)| Ok((true,)),
        ),
        // Nothing is ever waited for: the clock stands still.
        "[method]pollable.block" => linker.func_wrap(
            function,
            |_: Context<'_>, (_pollable,): (Resource<Pollable>,)| Ok(()),
        ),
        "poll" => linker.func_wrap(
            function,
            |_: Context<'_>, (pollables,): (Vec<Resource<Pollable>>,)| {
                let all: Vec<u32> = (0..).take(pollables.len()).collect();
                Ok((all,))
            },
        ),
        _ => refuse(linker, name, function),
    }
}

fn clocks(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match (name.interface, function) {
        ("monotonic-clock", "now") => linker.func_wrap(function, |_: Context<'_>, ()| Ok((0u64,))),
        ("monotonic-clock", "resolution") => {
            linker.func_wrap(function, |_: Context<'_>, ()| Ok((1u64,)))
        }
        ("monotonic-clock", "subscribe-instant" | "subscribe-duration") => linker
            .func_wrap(function, |_: Context<'_>, (_when,): (u64,)| {
                Ok((Resource::<Pollable>::new_own(0),))
            }),
        ("wall-clock", "now" | "resolution") => linker.func_wrap(function, |_: Context<'_>, ()| {
            Ok((Datetime {
                seconds: 0,
                nanoseconds: 0,
            },))
        }),
        _ => refuse(linker, name, function),
    }
}

fn random(
    linker: &mut LinkerInstance<'_, StoreData>,
    name: &InterfaceName<'_>,
    function: &str,
) -> wasmtime::Result<()> {
    match function {
        "get-random-u64" | "get-insecure-random-u64" => linker
            .func_wrap(function, |mut context: Context<'_>, ()| {
                Ok((context.data_mut().next_random(),))
            }),
        "get-random-bytes" | "get-insecure-random-bytes" => {
            linker.func_wrap(function, |mut context: Context<'_>, (count,): (u64,)| {
                if count > MAX_RANDOM_BYTES {
                    let message =
                        format!("asked for {count} random bytes of at most {MAX_RANDOM_BYTES}");
                    return Err(wasmtime::Error::msg(message));
                }
                let state = context.data_mut();
                let words = std::iter::repeat_with(|| state.next_random().to_le_bytes());
                let count = usize::try_from(count).unwrap_or(0);
                Ok((words.flatten().take(count).collect::<Vec<u8>>(),))
            })
        }
        "insecure-seed" => linker.func_wrap(function, |mut context: Context<'_>, ()| {
            let state = context.data_mut();
            Ok(((state.next_random(), state.next_random()),))
        }),
        _ => refuse(linker, name, function),
    }
}
