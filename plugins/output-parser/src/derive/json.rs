//! Formats whose arguments are JSON.

use mortise_plugin_sdk::formats::{JsonCalls, Writing, Written};
use mortise_plugin_sdk::stream::CallKeys;
use serde_json::{Map, Value, json};

use super::marks::{Around, around, only};
use super::probe::{ALFA, BETA, ID_1, KEY_1, KEY_2, Seen, TEXT_1, TEXT_2};
use super::{Found, kept};

/// Objects around a name that are looked at.
const MAX_NESTING: usize = 4;

/// Place of a call in a text.
struct Place {
    start: usize,
    end: usize,
    /// The object of the call.
    fields: Map<String, Value>,
}

/// Formats in which name and arguments are in one object.
pub(super) fn object(seen: &Seen) -> Option<Found> {
    let one = &seen.one;
    let arguments = json!({KEY_1: TEXT_1});
    let place = place(one, ALFA, &arguments)?;
    let key_of = |wanted: &dyn Fn(&Value) -> bool| {
        let mut fields = place.fields.iter();
        fields.find(|(_, value)| wanted(value)).map(|(key, _)| key)
    };
    let name = key_of(&|value| value == ALFA)?;
    let holds = key_of(&|value| means(value, &arguments))?;
    let id = key_of(&|value| value == ID_1);
    let (before, behind) = (&one[..place.start], &one[place.end..]);
    let middle = match &seen.both {
        Some(both) => Some(between(both, before, behind)?),
        None => None,
    };
    let around = around(before, behind, middle);
    let keys = CallKeys {
        name: vec![kept(name)].leak(),
        arguments: vec![kept(holds)].leak(),
        id: id.map(|id| kept(id)).into_iter().collect::<Vec<_>>().leak(),
        only: false,
    };
    let text = &one[place.start..place.end];
    // An id is the model's to think of, and arguments in a text would be JSON within JSON.
    let object = match (id, &place.fields[holds]) {
        (None, Value::Object(_)) => head_and_tail(text),
        _ => None,
    };
    let written = object.and_then(|(head, tail)| written(&around, &head, tail));
    Some(Found {
        writing: written.map_or(Writing::Free, Writing::Json),
        opens: vec![
            kept(around.section.0.trim_end_matches('[')),
            kept(around.open),
        ],
        call: JsonCalls::Object {
            open: kept(around.open),
            close: kept(around.close),
            keys,
        },
    })
}

/// Formats in which the name stands before the arguments, between marks.
pub(super) fn named(seen: &Seen) -> Option<Found> {
    let one = &seen.one;
    let arguments = json!({KEY_1: TEXT_1});
    let (name, from) = (only(one, ALFA)?, arguments_at(one, KEY_1)?);
    let (value, length) = value_at(one, from)?;
    let inner = one.get(name + ALFA.len()..from)?;
    if value != arguments || one.contains(ID_1) {
        return None;
    }
    let (before, behind) = (&one[..name], &one[from + length..]);
    let middle = match &seen.both {
        Some(both) => {
            let first = both.strip_prefix(&one[..from + length])?;
            Some(&first[..only(first, BETA)?])
        }
        None => None,
    };
    let around = around(before, behind, middle);
    if around.open.trim().is_empty() {
        return None;
    }
    let written = written(&around, &format!("{{}}{inner}"), "");
    Some(Found {
        writing: written.map_or(Writing::Free, Writing::Json),
        opens: vec![kept(around.section.0), kept(around.open)],
        call: JsonCalls::Named {
            open: kept(around.open),
            middle: kept(inner),
            close: kept(around.close),
        },
    })
}

/// Marks as a grammar writes them; `None` for such as it would take for a name's place.
fn written(around: &Around, head: &str, tail: &str) -> Option<Written> {
    let literal = [
        around.section.0,
        around.section.1,
        around.open,
        around.close,
    ];
    let literal = literal.into_iter().chain(around.between);
    if literal
        .chain([tail])
        .any(|text| text.contains("{}") || text.contains("{#}"))
    {
        return None;
    }
    Some(Written {
        section: (kept(around.section.0), kept(around.section.1)),
        between: around.between.map(kept),
        head: kept(&format!("{}{head}", around.open)),
        tail: kept(&format!("{tail}{}", around.close)),
    })
}

/// Text of an object before its arguments, with a place for the name, and behind them.
fn head_and_tail(object: &str) -> Option<(String, &str)> {
    let from = arguments_at(object, KEY_1)?;
    let (_, length) = value_at(object, from)?;
    let (name, behind) = object.get(..from)?.split_once(ALFA)?;
    if [name, behind]
        .iter()
        .any(|text| text.contains("{}") || text.contains("{#}"))
    {
        return None;
    }
    Some((format!("{name}{{}}{behind}"), &object[from + length..]))
}

/// True if a value is these arguments, or a text that holds them.
fn means(value: &Value, arguments: &Value) -> bool {
    let inner = value
        .as_str()
        .and_then(|text| serde_json::from_str(text).ok());
    value == arguments || inner.is_some_and(|inner: Value| inner == *arguments)
}

/// The object of a call: the innermost that has both the name and the arguments.
fn place(text: &str, name: &str, arguments: &Value) -> Option<Place> {
    let at = only(text, name)?;
    let mut starts = text[..at].rmatch_indices('{').take(MAX_NESTING);
    starts.find_map(|(start, _)| {
        let (value, length) = value_at(text, start)?;
        let Value::Object(fields) = value else {
            return None;
        };
        let has = |wanted: &dyn Fn(&Value) -> bool| fields.values().any(wanted);
        let whole = has(&|value| value == name) && has(&|value| means(value, arguments));
        let end = start + length;
        whole.then_some(Place { start, end, fields })
    })
}

/// Text between two calls, where that before the first and behind the last is the same as around one.
fn between<'a>(both: &'a str, before: &str, behind: &str) -> Option<&'a str> {
    let first = place(both, ALFA, &json!({KEY_1: TEXT_1}))?;
    let second = place(both, BETA, &json!({KEY_2: TEXT_2}))?;
    let same = both[..first.start] == *before && both[second.end..] == *behind;
    both.get(first.end..second.start).filter(|_| same)
}

/// Place of the object whose first key is this one.
fn arguments_at(text: &str, key: &str) -> Option<usize> {
    let before = text[..only(text, key)?].strip_suffix('"')?;
    let before = before.trim_end().strip_suffix('{')?;
    Some(before.len())
}

/// The JSON value that begins at a place, and its length.
fn value_at(text: &str, at: usize) -> Option<(Value, usize)> {
    let mut values = serde_json::Deserializer::from_str(text.get(at..)?).into_iter();
    let value = values.next()?.ok()?;
    Some((value, values.byte_offset()))
}
