//! Attributes of all documents as numbers, so that a filter is compared once with each distinct value.

use std::collections::HashMap;

use crate::filter::{Attribute, AttributeFilter, Attributes};

/// Distinct values beyond those in use, before numbers are given anew.
const STALE: usize = 1024;

/// A value that can be looked up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key {
    Text(String),
    Number(u64),
    Flag(bool),
}

impl Key {
    fn of(value: &Attribute) -> Self {
        match value {
            Attribute::Text(text) => Self::Text(text.clone()),
            Attribute::Number(number) => Self::Number(number.to_bits()),
            Attribute::Flag(flag) => Self::Flag(*flag),
        }
    }
}

/// Distinct values of one name, with their numbers.
#[derive(Debug, Default)]
struct Values {
    numbers: HashMap<Key, u32>,
    values: Vec<Attribute>,
}

impl Values {
    fn number(&mut self, value: &Attribute) -> u32 {
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let values = &mut self.values;
        *self.numbers.entry(Key::of(value)).or_insert_with(|| {
            values.push(value.clone());
            next
        })
    }
}

/// An attribute: the numbers of its name and of its value.
pub(crate) type AttributeEntry = (u32, u32);

/// Attributes of each document, as numbers of names and values.
#[derive(Debug, Default)]
pub(crate) struct AttributeTable {
    names: HashMap<String, u32>,
    /// Distinct values of each name, by the number of the name.
    values: Vec<Values>,
    distinct: usize,
    value_bytes: usize,
    /// Attributes of all documents, those of one document after those of the other.
    entries: Vec<AttributeEntry>,
    /// End of each document's attributes in `entries`.
    ends: Vec<u32>,
}

impl AttributeTable {
    /// Add the next document.
    pub(crate) fn push(&mut self, attributes: &Attributes) {
        let entries = self.numbers(attributes);
        self.entries.extend(entries);
        self.ends.push(place(self.entries.len()));
    }

    /// Replace the attributes of a document, or remove it, without attributes.
    pub(crate) fn replace(&mut self, document: usize, attributes: Option<&Attributes>) {
        let Some(end) = self.ends.get(document).copied() else {
            return;
        };
        let before = document.checked_sub(1).and_then(|at| self.ends.get(at));
        let start = before.copied().unwrap_or(0);
        let new = attributes.map(|attributes| self.numbers(attributes));
        let kept = new.is_some();
        let new = new.unwrap_or_default();
        let new_end = start + place(new.len());
        self.entries.splice(start as usize..end as usize, new);
        for later in self.ends.iter_mut().skip(document) {
            *later = *later - end + new_end;
        }
        if !kept {
            self.ends.remove(document);
        }
    }

    /// True if many numbered values belong to no document any more.
    pub(crate) fn is_stale(&self) -> bool {
        self.distinct > 2 * self.entries.len() + STALE
    }

    /// Approximate size of the table in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.value_bytes + self.entries.len() * size_of::<AttributeEntry>() + self.ends.len() * 4
    }

    /// Documents that a filter admits: one truth value a document.
    pub(crate) fn admitted(&self, filter: &AttributeFilter) -> impl Iterator<Item = bool> {
        let test = filter.test(&|name: &str| {
            let number = *self.names.get(name)?;
            Some((number, self.values.get(number as usize)?.values.as_slice()))
        });
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let entries = self.entries.get(start..*end as usize);
            start = *end as usize;
            test.admits(entries.unwrap_or_default())
        })
    }

    fn numbers(&mut self, attributes: &Attributes) -> Vec<AttributeEntry> {
        let mut entries = Vec::with_capacity(attributes.len());
        for (name, value) in attributes {
            let number = match self.names.get(name) {
                Some(number) => *number,
                None => {
                    let number = place(self.values.len());
                    self.names.insert(name.clone(), number);
                    self.values.push(Values::default());
                    number
                }
            };
            if let Some(values) = self.values.get_mut(number as usize) {
                let before = values.values.len();
                entries.push((number, values.number(value)));
                if values.values.len() > before {
                    self.distinct += 1;
                    self.value_bytes += bytes(value);
                }
            }
        }
        entries
    }
}

/// About as many bytes as a distinct value takes, beside its text the entries of both of its places.
fn bytes(value: &Attribute) -> usize {
    let text = match value {
        Attribute::Text(text) => 2 * text.len(),
        Attribute::Number(_) | Attribute::Flag(_) => 0,
    };
    128 + text
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::filter::attributes_of;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            (-2i64..3).prop_map(|number| json!(number)),
            "[ab]{0,1}".prop_map(|text| json!(text)),
            any::<bool>().prop_map(|flag| json!(flag)),
        ]
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        prop::collection::btree_map("[xyz]", value(), 0..4).prop_map(|object| {
            let object = object.into_iter().collect();
            attributes_of(&object, "attributes").expect("attributes")
        })
    }

    fn filter() -> impl Strategy<Value = Value> {
        let kinds = prop::sample::select(vec!["eq", "ne", "gt", "gte", "lt", "lte"]);
        let compare = (kinds, "[xyzw]", value()).prop_map(|(kind, key, value)| match kind {
            "eq" | "ne" => json!({"type": kind, "key": key, "value": value}),
            _ => json!({"type": kind, "key": key, "value": value.as_f64().unwrap_or(0.5)}),
        });
        let among = prop::sample::select(vec!["in", "nin"]);
        let among = (among, "[xyzw]", prop::collection::vec(value(), 0..3));
        let among = among
            .prop_map(|(kind, key, values)| json!({"type": kind, "key": key, "value": values}));
        prop_oneof![compare, among].prop_recursive(3, 12, 3, |inner| {
            let kinds = prop::sample::select(vec!["and", "or"]);
            (kinds, prop::collection::vec(inner, 0..3))
                .prop_map(|(kind, filters)| json!({"type": kind, "filters": filters}))
        })
    }

    proptest! {
        /// A filter of the table admits what it admits of the attributes themselves, whatever was changed before.
        #[test]
        fn filters_mean_the_same(
            documents in prop::collection::vec(attributes(), 1..8),
            changes in prop::collection::vec((0usize..8, prop::option::of(attributes())), 0..8),
            filter in filter(),
        ) {
            let mut table = AttributeTable::default();
            documents.iter().for_each(|attributes| table.push(attributes));
            let mut documents = documents;
            for (document, change) in changes {
                table.replace(document, change.as_ref());
                match change {
                    _ if document >= documents.len() => {}
                    Some(attributes) => documents[document] = attributes,
                    None => {
                        documents.remove(document);
                    }
                }
            }
            let filter = AttributeFilter::of(&filter, "filters").expect("a filter");
            let found: Vec<bool> = table.admitted(&filter).collect();
            let expected: Vec<bool> = documents.iter().map(|one| filter.admits(one)).collect();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn values_that_nobody_has_are_noticed() {
        let mut table = AttributeTable::default();
        let with =
            |number: usize| Attributes::from([("a".to_owned(), Attribute::Number(number as f64))]);
        table.push(&with(0));
        for number in 0..STALE {
            assert!(!table.is_stale());
            table.replace(0, Some(&with(number)));
        }
        (0..3).for_each(|number| table.replace(0, Some(&with(STALE + number))));
        assert!(table.is_stale());
        assert!(table.bytes() > STALE);
    }
}
