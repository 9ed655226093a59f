//! A plugin file: loaded, and bound as every kind that it says it is.

use std::sync::OnceLock;

use mortise_plugin::{
    Binding, ChatTemplate, ComponentSource, Guardrail, HostConfig, Kind, OutputParser, PluginHost, Policy,
    Retriever, ComponentTools,
};
use tokio::runtime::Runtime;

/// Run on one input.
pub fn run(data: &[u8]) {
    static HOST: OnceLock<(PluginHost, Runtime)> = OnceLock::new();
    let (host, runtime) = HOST.get_or_init(|| {
        let host = PluginHost::new(HostConfig::default()).expect("a host");
        (host, Runtime::new().expect("a runtime"))
    });
    let source = ComponentSource::Bytes {
        name: "fuzzed".to_owned(),
        wasm: data.to_vec(),
    };
    let Ok(component) = host.load(source) else {
        return;
    };
    let mut binding = Binding::default();
    binding.limits.deadlines.prepare_ms = 50;
    runtime.block_on(async {
        for kind in component.kinds() {
            let binding = binding.clone();
            match kind {
                Kind::ChatTemplate => drop(ChatTemplate::bind(host, &component, binding).await),
                Kind::OutputParser => drop(OutputParser::bind(host, &component, binding).await),
                Kind::Policy => drop(Policy::bind(host, &component, binding).await),
                Kind::Guardrail => drop(Guardrail::bind(host, &component, binding).await),
                Kind::Retriever => drop(Retriever::bind(host, &component, binding).await),
                Kind::Tool => drop(ComponentTools::bind(host, &component, binding).await),
                // It wants a vocabulary, and is loaded all the same.
                Kind::Grammar => {}
            }
        }
    });
}
