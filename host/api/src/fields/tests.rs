//! The reader against `serde_json` with `serde_ignored` and `serde_path_to_error` around it.

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::path::{FieldPath, PathSegment};
use super::reader::read;
use super::{TextOr, TextOrTexts, TokenId, WordOr, words};

words! {
    /// Words.
    Effort { Low = "low", High = "high" }
}

/// A request with a member of every kind that requests have.
#[derive(Debug, PartialEq, Deserialize)]
struct Request {
    a: Option<u32>,
    b: Option<Vec<Request>>,
    c: Option<TextOr<Request>>,
    d: Option<WordOr<Box<Request>>>,
    e: Option<Effort>,
    f: Option<Map<String, Value>>,
    g: Option<(String, f64)>,
    h: Option<Value>,
    i: Option<TextOrTexts>,
    j: Option<i64>,
    k: Option<bool>,
    l: Option<Vec<TokenId>>,
    #[serde(default)]
    m: u64,
    n: Option<Needs>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Needs {
    a: String,
    b: f64,
}

/// JSON whose members are those of [`Request`], and some that nothing reads.
fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_u64..9).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop_oneof![Just("low"), Just("high"), Just("x")].prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec(("[a-p]", inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Answer of the libraries: the value with the members that are not read, or the path of the failure.
fn by_libraries(value: &Value) -> Result<(Request, Vec<FieldPath>), FieldPath> {
    use serde_ignored::Path as Step;
    let mut unread = Vec::new();
    let mut note = |path: Step<'_>| {
        let (mut segments, mut step) = (Vec::new(), &path);
        loop {
            step = match step {
                Step::Root => break,
                Step::Seq { parent, index } => {
                    segments.push(PathSegment::Index(*index));
                    parent
                }
                Step::Map { parent, key } => {
                    segments.push(PathSegment::Key(key.clone()));
                    parent
                }
                Step::Some { parent }
                | Step::NewtypeStruct { parent }
                | Step::NewtypeVariant { parent } => parent,
            };
        }
        unread.push(segments.into_iter().rev().collect());
    };
    let deserializer = serde_ignored::Deserializer::new(value, &mut note);
    match serde_path_to_error::deserialize(deserializer) {
        Ok(read) => Ok((read, unread)),
        Err(error) => {
            use serde_path_to_error::Segment as Step;
            let path = error.path().iter().filter_map(|step| match step {
                Step::Seq { index } => Some(PathSegment::Index(*index)),
                Step::Map { key } => Some(PathSegment::Key(key.clone())),
                Step::Enum { .. } | Step::Unknown => None,
            });
            Err(path.collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn reads_what_the_libraries_read(members in prop::collection::vec(("[a-p]", values()), 0..5)) {
        let value = Value::Object(members.into_iter().collect());
        match (read::<Request>(&value), by_libraries(&value)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours, theirs),
            // The libraries also read an object from an array of its members' values.
            (Err((path, _)), _) if path.find(&value).is_some_and(Value::is_array) => {}
            (ours, theirs) => prop_assert_eq!(ours.map_err(|(path, _)| path), theirs),
        }
    }
}

#[test]
fn an_object_is_not_read_from_an_array() {
    let (path, _) = read::<Request>(&json!({"n": ["x", 1.5]})).expect_err("an array");
    assert_eq!(path, FieldPath::from("n"));
}
