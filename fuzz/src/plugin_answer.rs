//! Every value that a guest returns: guests of all kinds answer with these bytes.

use std::sync::{Arc, OnceLock};

use mortise_plugin::{Component, HostConfig, Kind, PluginHost};
use tokio::runtime::Runtime;

#[allow(dead_code)]
#[path = "../../host/plugin/tests/hostile_guests/exercise.rs"]
mod exercise;
#[allow(dead_code)]
#[path = "../../host/plugin/tests/hostile_guests/forged.rs"]
mod forged;
#[allow(dead_code)]
#[path = "../../host/plugin/tests/hostile_guests/guests.rs"]
mod guests;

struct Guests {
    host: PluginHost,
    components: Vec<(Kind, Arc<Component>)>,
    runtime: Runtime,
}

/// Run on one input.
pub fn run(data: &[u8]) {
    static GUESTS: OnceLock<Guests> = OnceLock::new();
    let Guests {
        host,
        components,
        runtime,
    } = GUESTS.get_or_init(|| {
        let host = PluginHost::new(HostConfig::default()).expect("a host");
        let load = |kind| {
            let wasm = forged::Forged::new(kind).dictated().build();
            (
                kind,
                host.load(guests::source("dictated", &wasm))
                    .expect("a component"),
            )
        };
        Guests {
            components: Kind::ALL.map(load).into(),
            runtime: Runtime::new().expect("a runtime"),
            host,
        }
    });
    // What further settings could say is the guests' own.
    let data = &data[..data.len().min(1024)];
    let digits: String = data.iter().map(|byte| format!("{byte:02x}")).collect();
    for (kind, component) in components {
        let mut binding = guests::binding();
        binding.settings = format!("{{\"\":\"{digits}\"}}");
        let _ = runtime.block_on(exercise::exercise(host, component, *kind, binding));
    }
}
