//! Lines for the server's log, and counters among its metrics. In a test on your own machine lines go
//! to standard error, and counters nowhere.

pub use crate::bindings::imports::mortise::plugin::host::Level;

/// Write one line with facts as key and value. The server adds plugin, version and request.
pub fn log(level: Level, message: &str, fields: &[(&str, &str)]) {
    #[cfg(target_family = "wasm")]
    {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        let fields: Vec<(String, String)> = fields.iter().map(owned).collect();
        crate::bindings::imports::mortise::plugin::host::log(level, message, &fields);
    }
    #[cfg(not(target_family = "wasm"))]
    eprintln!("{level:?}: {message} {fields:?}");
}

/// Add to the counter `mortise_plugin_custom_total{plugin,name}`; 16 names at most.
pub fn count(name: &str, by: u64) {
    #[cfg(target_family = "wasm")]
    crate::bindings::imports::mortise::plugin::host::count(name, by);
    #[cfg(not(target_family = "wasm"))]
    let _ = (name, by);
}
