//! Format of a model that no list has, derived from its chat template: a few conversations are rendered, marks are
//! what stands around a name, a key and a value that the conversation put there, and what is found must read other
//! renderings of the same template back as the calls that went in. Where it does not, nothing is derived.

mod check;
mod json;
mod marks;
mod plain;
mod probe;

use mortise_plugin_sdk::Model;
use mortise_plugin_sdk::formats::{Described, Format, JsonCalls, Spec, Writing};
use mortise_plugin_sdk::stream::CallKeys;

use crate::response::Reader;
use probe::{Probe, Seen};

/// Name of a derived format.
pub const NAME: &str = "derived";

/// Marks of reasoning where the template tells of none.
const THINK: (&str, &str) = ("<think>", "</think>");

/// The format that the model's template writes calls in, if it can be told and reads back what the template writes.
pub fn derived(model: &Model) -> Option<Format> {
    let probe = Probe::new(model)?;
    let seen = Seen::new(&probe)?;
    let reasoning = reasoning(&probe);
    let mut found = [json::object, json::named, plain::python, plain::tags]
        .into_iter()
        .filter_map(|read| read(&seen))
        .map(|found| found.described(reasoning));
    let described: &'static Described =
        found.find_map(|described| check::holds(&probe, &described).then(|| leaked(described)))?;
    Some(Format::Described(described))
}

/// True if a listed or derived format and a response template both read back what the model's chat template writes. So a
/// grammar made from the marks of the one holds a model to what the other reads.
pub fn agree(model: &Model, format: Format, reader: &'static Reader) -> bool {
    Probe::new(model).is_some_and(|probe| {
        check::holds_listed(&probe, format) && check::holds_response(&probe, reader)
    })
}

/// A format as one engine found it.
struct Found {
    writing: Writing,
    call: JsonCalls,
    /// Marks that calls begin with.
    opens: Vec<&'static str>,
}

impl Found {
    fn described(self, reasoning: (&'static str, &'static str)) -> Described {
        let opens: Vec<&'static str> = (self.opens.into_iter())
            .map(str::trim)
            .filter(|mark| !mark.is_empty())
            .collect();
        Described {
            spec: Spec {
                name: NAME,
                about: "as the model's own chat template writes calls",
                signs: &[],
                architectures: &[],
                reasoning,
                opens: opens.leak(),
                answer: ("", ""),
                framed: false,
                writing: self.writing,
            },
            call: self.call,
        }
    }
}

/// Reading of calls for engines that do not ask for it.
pub(crate) const NO_JSON: JsonCalls = JsonCalls::Object {
    open: "",
    close: "",
    keys: CallKeys {
        name: &[],
        arguments: &[],
        id: &[],
        only: true,
    },
};

/// A text for as long as the instance lives. It serves one model, so there are few.
pub(crate) fn kept(text: &str) -> &'static str {
    String::leak(text.to_owned())
}

pub(crate) fn leaked(described: Described) -> &'static Described {
    Box::leak(Box::new(described))
}

/// Marks around the reasoning of an answer, where the template writes both and they read back.
fn reasoning(probe: &Probe) -> (&'static str, &'static str) {
    let found = probe
        .reasoning()
        .map(|(open, close)| (kept(&open), kept(&close)));
    found
        .filter(|marks| check::reads_reasoning(probe, *marks))
        .unwrap_or(THINK)
}
