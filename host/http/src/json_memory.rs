//! Memory that JSON takes once it is parsed: of a text, before it is parsed, and of values.

use serde_json::Value;

use crate::json::MAX_DEPTH;

/// Bytes that an allocation takes beside what was asked for, rounding included.
const ALLOCATION_BYTES: usize = 16;

/// Entry of an object: its hash, its key and its value.
const ENTRY_BYTES: usize = size_of::<usize>() + size_of::<(String, Value)>();

/// Entry of an object's hash table, with its control byte.
const SLOT_BYTES: usize = size_of::<usize>() + 1;

/// Control bytes behind a hash table.
const GROUP_BYTES: usize = 16;

/// Least capacity of an array with an item.
const LEAST_ITEMS: usize = 4;

/// Memory of the values that a text has, beside the characters of its strings. Of a text that is not sound, the parser
/// sees no more than what is counted here.
pub(crate) fn structure_bytes(body: &[u8]) -> usize {
    let mut open: Vec<Container> = Vec::new();
    let mut bytes = 0_usize;
    let mut rest = body;
    while let [byte, behind @ ..] = rest {
        rest = behind;
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' | b':' => continue,
            b',' => {
                if let Some(container) = open.last_mut() {
                    container.commas += 1;
                }
                continue;
            }
            b']' | b'}' => {
                bytes = bytes.saturating_add(open.pop().map_or(0, |container| container.bytes()));
                continue;
            }
            _ => {}
        }
        if let Some(container) = open.last_mut() {
            container.filled = true;
        }
        match byte {
            b'"' => {
                let length = string_length(rest);
                rest = rest.get(length + 1..).unwrap_or_default();
                bytes = bytes.saturating_add(string_bytes(length) - length);
            }
            // The parser goes no deeper.
            b'[' | b'{' if open.len() >= MAX_DEPTH => break,
            b'[' | b'{' => open.push(Container {
                is_object: *byte == b'{',
                commas: 0,
                filled: false,
            }),
            _ => {}
        }
    }
    open.iter()
        .fold(bytes, |bytes, one| bytes.saturating_add(one.bytes()))
}

/// Memory of a text once it is parsed.
pub fn parsed_bytes(text: &[u8]) -> usize {
    text.len().saturating_add(structure_bytes(text))
}

/// Memory of a value, beside the value itself.
pub fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => string_bytes(text.len()),
        Value::Array(items) => {
            let inside: usize = items.iter().map(value_bytes).sum();
            array_bytes(items.len()) + inside
        }
        Value::Object(entries) => {
            let inside = entries.iter();
            let inside = inside.map(|(key, value)| string_bytes(key.len()) + value_bytes(value));
            object_bytes(entries.len()) + inside.sum::<usize>()
        }
    }
}

/// An array or an object whose end has not come.
struct Container {
    is_object: bool,
    commas: usize,
    filled: bool,
}

impl Container {
    fn bytes(&self) -> usize {
        let count = self.commas + usize::from(self.filled);
        match self.is_object {
            true => object_bytes(count),
            false => array_bytes(count),
        }
    }
}

/// Bytes of a string up to its end.
fn string_length(text: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match text.get(at) {
            None => return text.len(),
            Some(b'"') => return at,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

fn string_bytes(length: usize) -> usize {
    match length {
        0 => 0,
        length => length + ALLOCATION_BYTES + ALLOCATION_BYTES / 2,
    }
}

fn array_bytes(items: usize) -> usize {
    match items {
        0 => 0,
        // It doubles as it grows.
        items => {
            let room = items.next_power_of_two().max(LEAST_ITEMS);
            room * size_of::<Value>() + ALLOCATION_BYTES
        }
    }
}

fn object_bytes(entries: usize) -> usize {
    match entries {
        0 => 0,
        // An eighth of a hash table stays free. There is room for as many entries as it can name.
        entries => {
            let slots = match entries {
                0..4 => 4,
                4..8 => 8,
                _ => (entries.saturating_mul(8) / 7).next_power_of_two(),
            };
            let room = (slots - slots / 8).min(slots - 1);
            let table = slots * SLOT_BYTES + GROUP_BYTES;
            room * ENTRY_BYTES + table + 2 * ALLOCATION_BYTES
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_kind_of_value_has_its_memory() {
        assert_eq!(structure_bytes(b""), 0);
        assert_eq!(structure_bytes(b"7"), 0);
        let value = size_of::<Value>();
        for (text, least) in [
            // Small strings take no less than the allocator's smallest piece.
            (r#""a""#, 20),
            ("[0]", 4 * value),
            ("[0,0,0,0,0]", 8 * value),
            (r#"{"a":0}"#, 3 * ENTRY_BYTES + 4 * SLOT_BYTES),
            (
                r#"{"a":0,"b":0,"c":0,"d":0}"#,
                7 * ENTRY_BYTES + 8 * SLOT_BYTES,
            ),
            ("[[],[],{}]", 4 * value),
        ] {
            let counted = structure_bytes(text.as_bytes());
            assert!(
                counted >= least && counted < least + 200,
                "{text}: {counted} of {least}"
            );
        }
        assert!(structure_bytes(br#""plain text""#) <= 32);
    }

    /// Bodies that were refused too late: each of these took many times its length.
    #[test]
    fn small_bodies_of_many_values_are_known_to_be_large() {
        for (body, times) in [
            ("[0,0,0,0]", 3),
            ("{\"a\":0,\"b\":0}", 3),
            ("[[],[],[]]", 3),
            ("{\"type\":\"x\"},", 30),
            ("{\"role\":\"user\",\"content\":\"a\"},", 15),
        ] {
            let many = body.repeat(1000);
            assert!(
                structure_bytes(many.as_bytes()) >= times * many.len(),
                "{body}"
            );
        }
    }

    #[test]
    fn a_text_that_is_not_sound_is_counted_as_far_as_it_is_read() {
        for text in ["[{\"a", "\"\\", "]]}},,", "{{{{", "[1,2", "\"a\\\"b"] {
            let _ = structure_bytes(text.as_bytes());
        }
        let open = "[0,".repeat(MAX_DEPTH + 1000);
        let deep = "[0,".repeat(MAX_DEPTH);
        assert_eq!(
            structure_bytes(open.as_bytes()),
            structure_bytes(deep.as_bytes())
        );
    }

    fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z\"\\\\ ]{0,20}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 200, 20, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..20).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{0,9}", inner, 0..20)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    /// Characters of all strings, keys included.
    fn characters(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(characters).sum(),
            Value::Object(entries) => {
                let entries = entries.iter();
                entries
                    .map(|(key, value)| key.len() + characters(value))
                    .sum()
            }
            _ => 0,
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_is_counted_as_its_values_are(value in any_json(), spaced: bool) {
            let text = match spaced {
                true => serde_json::to_string_pretty(&value).unwrap_or_default(),
                false => value.to_string(),
            };
            let counted = structure_bytes(text.as_bytes()) + characters(&value);
            proptest::prop_assert_eq!(counted, value_bytes(&value));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes: Vec<u8>) {
            let _ = structure_bytes(&bytes);
        }
    }
}
