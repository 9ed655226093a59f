//! The opposites of texts, numbers and lists of values.

use serde_json::{Value, json};

use super::super::strings::{self, Complement};
use super::super::types::Types;
use super::Opposite;

/// Words of an enumeration whose opposite is written out.
const MAX_WORDS: usize = 256;
/// Multiples on each side of 0 between which the opposite of `multipleOf` lies.
const MULTIPLES: i32 = 8;
/// Numbers of which the first multiples are exact.
const EXACT_BELOW: f64 = 1e12;

impl Opposite<'_> {
    /// The texts without a pattern, or without each of its alternatives where it is too large as a whole.
    pub(super) fn add_other_texts(&mut self, pattern: &str) {
        let parts = match self.document.complement(pattern) {
            Complement::Pattern(pattern) => {
                return self.add(Types::STRING, json!({"pattern": pattern}));
            }
            Complement::Empty => return,
            Complement::Unknown => strings::alternatives(pattern).unwrap_or_default(),
        };
        let mut all = Vec::new();
        for part in &parts {
            match self.document.complement(part) {
                Complement::Pattern(pattern) => all.push(json!({"pattern": pattern})),
                Complement::Empty => return,
                Complement::Unknown => return self.lose(Types::STRING, "pattern"),
            }
        }
        match all.is_empty() {
            true => self.lose(Types::STRING, "pattern"),
            false => self.add(Types::STRING, json!({"allOf": all})),
        }
    }

    pub(super) fn add_other_values(&mut self, values: &[Value]) {
        let listed = values
            .iter()
            .fold(Types::NONE, |types, value| types.or(Types::of(value)));
        let listed = match listed.meets(Types::NUMBER) {
            true => listed.or(Types::NUMBER),
            false => listed,
        };
        self.add(Types::ALL.without(listed), json!({}));
        let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
        if words.len() > MAX_WORDS {
            self.lose(Types::STRING, "enum");
        } else if !words.is_empty() {
            self.add(Types::STRING, json!({"pattern": strings::all_but(&words)}));
        }
        let truths: Vec<bool> = values.iter().filter_map(Value::as_bool).collect();
        if listed.meets(Types::BOOLEAN) && !(truths.contains(&true) && truths.contains(&false)) {
            self.add(Types::BOOLEAN, json!({"const": !truths[0]}));
        }
        self.add_other_numbers(values);
        for (types, least, most) in [
            (Types::ARRAY, "minItems", "maxItems"),
            (Types::OBJECT, "minProperties", "maxProperties"),
        ] {
            let own = values.iter().filter(|value| Types::of(value) == types);
            let sizes = own.map(|value| match value {
                Value::Array(items) => items.len(),
                Value::Object(members) => members.len(),
                _ => 0,
            });
            let sizes: Vec<usize> = sizes.collect();
            // Those of a size that none of them has.
            if let Some(largest) = sizes.iter().max() {
                self.add(types, json!({least: largest + 1}));
                if !sizes.contains(&0) {
                    self.add(types, json!({most: 0}));
                }
                if *largest > 0 {
                    self.lose(types, "enum");
                }
            }
        }
    }

    /// The numbers between two multiples, next to 0: no grammar has all of them.
    pub(super) fn add_between_multiples(&mut self, of: &Value) {
        let Some(of) = of.as_f64().filter(|of| of.is_finite() && *of != 0.0) else {
            return self.lose(Types::NUMBER, "multipleOf");
        };
        let of = of.abs();
        // Bounds must be multiples to the last digit.
        let gaps = match of.fract() == 0.0 && of < EXACT_BELOW {
            true => -MULTIPLES..MULTIPLES,
            false => -1..1,
        };
        let integers = self.among.and(Types::NUMBER) == Types::INTEGER;
        if integers && of <= 1.0 {
            return match of.fract() == 0.0 || (1.0 / of).fract() == 0.0 {
                true => {}
                false => self.lose(Types::NUMBER, "multipleOf"),
            };
        }
        for gap in gaps {
            let (low, high) = (f64::from(gap) * of, f64::from(gap + 1) * of);
            self.add(
                Types::NUMBER,
                json!({"exclusiveMinimum": low, "exclusiveMaximum": high}),
            );
        }
        self.lose(Types::NUMBER, "multipleOf");
    }

    /// The gaps between the numbers of an enumeration.
    pub(super) fn add_other_numbers(&mut self, values: &[Value]) {
        let mut numbers: Vec<&Value> = values.iter().filter(|value| value.is_number()).collect();
        numbers.sort_by(|a, b| {
            a.as_f64()
                .unwrap_or(0.0)
                .total_cmp(&b.as_f64().unwrap_or(0.0))
        });
        numbers.dedup_by(|a, b| a.as_f64() == b.as_f64());
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return;
        };
        self.add(Types::NUMBER, json!({"exclusiveMaximum": first}));
        for pair in numbers.windows(2) {
            let close = Types::INTEGER == self.among.and(Types::NUMBER)
                && pair[1].as_f64().unwrap_or(0.0) - pair[0].as_f64().unwrap_or(0.0) <= 1.0;
            if !close {
                self.add(
                    Types::NUMBER,
                    json!({"exclusiveMinimum": pair[0], "exclusiveMaximum": pair[1]}),
                );
            }
        }
        self.add(Types::NUMBER, json!({"exclusiveMinimum": last}));
    }
}
