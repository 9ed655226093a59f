//! Grammars with texts that follow them, and vocabularies: what masks are compared over.

use std::collections::HashMap;
use std::path::Path;

use mortise_grammar::engine::Vocabulary as NativeVocabulary;
use mortise_grammar::source::Source;
use mortise_plugin::{GrammarSource, Vocabulary};
use mortise_service::vocabulary;
use mortise_tokenizer::{Tokenizer, TokenizerFiles};

/// A grammar, and a text to walk through it.
pub(crate) struct Walk {
    pub(crate) name: &'static str,
    pub(crate) source: Source,
    pub(crate) text: &'static str,
}

impl Walk {
    /// As the host hands it to the component.
    pub(crate) fn to_host(&self) -> GrammarSource {
        match &self.source {
            Source::JsonObject => GrammarSource::JsonObject,
            Source::JsonSchema(text) => GrammarSource::JsonSchema(text.clone()),
            Source::Regex(text) => GrammarSource::Regex(text.clone()),
            Source::Lark(text) => GrammarSource::Lark(text.clone()),
        }
    }
}

const PERSON: &str = r#"{
  "type": "object", "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "maxLength": 40},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "email": {"type": "string", "format": "email"},
    "born": {"type": "string", "format": "date"},
    "tags": {"type": "array", "items": {"enum": ["new", "old", "lost"]}, "maxItems": 4},
    "address": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {
      "zip": {"type": "string", "pattern": "^[0-9]{5}$"}, "city": {"type": "string"}},
      "required": ["zip"], "additionalProperties": false}]}
  },
  "required": ["name", "age", "tags"]
}"#;

const ARITHMETIC: &str = r#"start: sum
sum: product (("+" | "-") product)*
product: atom (("*" | "/") atom)*
atom: NUMBER | "(" sum ")"
NUMBER: /[0-9]+(\.[0-9]+)?/
"#;

/// The corpus.
pub(crate) fn walks() -> Vec<Walk> {
    let schema = |text: &str| Source::JsonSchema(text.to_owned());
    vec![
        Walk {
            name: "schema of a person",
            source: schema(PERSON),
            text: r#"{"name": "Ada Löve\n", "age": 36, "email": "ada@example.org", "born": "1815-12-10", "tags": ["new", "lost"], "address": {"zip": "12345", "city": "London"}}"#,
        },
        Walk {
            name: "any JSON object",
            source: Source::JsonObject,
            text: r#"{"a": [1, -2.5e3, true, null], "b": {"c": "text with \"quotes\" and ünïcode", "d": []}}"#,
        },
        Walk {
            name: "schema that refers to itself",
            source: schema(
                r##"{"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
                "value": {"type": "number"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
                "required": ["value", "children"], "additionalProperties": false}}}"##,
            ),
            text: r#"{"value": 1, "children": [{"value": 2.5, "children": []}, {"value": -3, "children": [{"value": 0, "children": []}]}]}"#,
        },
        Walk {
            name: "schema with options, opposites and conditions",
            source: schema(
                r#"{"type": "object", "properties": {"name": {"type": "string", "not": {"enum": ["none", "nil"]}},
                "size": {"oneOf": [{"type": "integer", "maximum": 9}, {"type": "integer", "minimum": 5}]}, "unit": {"enum": ["m", "kg"]}},
                "required": ["name"], "dependentRequired": {"size": ["unit"]}, "additionalProperties": false}"#,
            ),
            text: r#"{"name": "nonesuch", "size": 42, "unit": "kg"}"#,
        },
        Walk {
            name: "enumeration and constant",
            source: schema(
                r#"{"type": "object", "properties": {"kind": {"const": "circle"}, "colour": {"enum": ["red", "green", "reddish"]}},
                "required": ["kind", "colour"], "additionalProperties": false}"#,
            ),
            text: r#"{"kind": "circle", "colour": "reddish"}"#,
        },
        Walk {
            name: "regex of a date and time",
            source: Source::Regex(
                r"[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]T[0-2][0-9]:[0-5][0-9](:[0-5][0-9])?(Z|[+-][0-9]{2}:[0-9]{2})".to_owned(),
            ),
            text: "2024-02-29T23:59:07+01:00",
        },
        Walk {
            name: "regex with bounded repeats",
            source: Source::Regex(r"([a-z]{1,8} ){3,12}[A-Z][a-z]{0,20}[.!?]".to_owned()),
            text: "so it goes on and on until the End.",
        },
        Walk {
            name: "regex over all of Unicode",
            source: Source::Regex(r"[^\x00-\x1f]{1,200}".to_owned()),
            text: "Grüße, 世界! 👋 naïve café",
        },
        Walk {
            name: "arithmetic in Lark",
            source: Source::Lark(ARITHMETIC.to_owned()),
            text: "(1+2.5)*3-4/(5+6*(7-8))",
        },
    ]
}

/// A vocabulary with a name.
pub(crate) struct Named {
    pub(crate) name: &'static str,
    pub(crate) vocabulary: Vocabulary,
}

impl Named {
    /// As the engine takes it natively.
    pub(crate) fn to_native(&self) -> NativeVocabulary {
        NativeVocabulary {
            bytes: self.vocabulary.bytes.clone(),
            offsets: self.vocabulary.offsets.clone(),
            eos: self.vocabulary.eos.clone(),
            control: self.vocabulary.control.clone(),
        }
    }

    /// The text in the longest tokens that fit, from the left.
    pub(crate) fn tokens_of(&self, text: &str) -> Vec<u32> {
        let Vocabulary {
            bytes,
            offsets,
            control,
            ..
        } = &self.vocabulary;
        let mut known: HashMap<&[u8], u32> = HashMap::new();
        for (id, range) in (0..).zip(offsets.windows(2)) {
            let token = &bytes[range[0] as usize..range[1] as usize];
            if !token.is_empty() && !control.contains(&id) {
                known.entry(token).or_insert(id);
            }
        }
        let longest = known.keys().map(|token| token.len()).max().unwrap_or(1);
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while !rest.is_empty() {
            let mut lengths = (1..=longest.min(rest.len())).rev();
            let found = lengths.find_map(|length| Some((length, *known.get(&rest[..length])?)));
            let (length, id) = found.expect("every byte is a token");
            tokens.push(id);
            rest = &rest[length..];
        }
        tokens
    }
}

/// The demo model's.
pub(crate) fn demo() -> Named {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/demo-model/model");
    let file = std::fs::read(folder.join("tokenizer.json")).expect("the demo's tokenizer");
    let tokenizer = Tokenizer::load(TokenizerFiles {
        tokenizer: &file,
        ..TokenizerFiles::default()
    });
    let tokenizer = tokenizer.expect("a tokenizer");
    let end = tokenizer.control_tokens()[0].id;
    Named {
        name: "demo model",
        vocabulary: vocabulary(&tokenizer, &[end], tokenizer.vocabulary_size()),
    }
}

/// One token for each byte.
pub(crate) fn byte_level() -> Named {
    made("bytes", Vec::new())
}

/// As large as a large model's: all bytes, all pairs of printable characters, and pieces of words and
/// of JSON in every combination, `size` tokens in all.
pub(crate) fn large(size: usize) -> Named {
    const PIECES: &[&str] = &[
        "the", "of", "and", "to", "in", "is", "on", "for", "name", "age", "zip", "city", "tags",
        "value", "children", "kind", "colour", "red", "new", "old", "lost", "true", "false",
        "null", "\": ", "\", \"", "{\"", "\"}", "[", "]", "}, {\"", ", ", ": [", "0", "12", "345",
        "1815", "20", ".", "-", " ", "\n", "é", "ü", "世", "界", "ing", "ed",
    ];
    let printable = || (0x20..0x7fu8).map(char::from);
    let pairs = printable().flat_map(|a| printable().map(move |b| format!("{a}{b}")));
    let all = joined(PIECES, 1)
        .chain(pairs)
        .chain(joined(PIECES, 2))
        .chain(joined(PIECES, 3))
        .chain(joined(PIECES, 4));
    let mut seen = std::collections::HashSet::new();
    let all: Vec<String> = all
        .filter(|token| token.len() > 1 && seen.insert(token.clone()))
        .take(size - 257)
        .collect();
    assert_eq!(all.len(), size - 257, "the pieces make no more tokens");
    made("large", all)
}

/// Every sequence of so many pieces, as one text.
fn joined(pieces: &'static [&'static str], count: u32) -> impl Iterator<Item = String> {
    (0..pieces.len().pow(count)).map(move |mut number| {
        let mut text = String::new();
        for _ in 0..count {
            text.push_str(pieces[number % pieces.len()]);
            number /= pieces.len();
        }
        text
    })
}

/// All bytes, these tokens, and one that ends a text.
fn made(name: &'static str, tokens: Vec<String>) -> Named {
    let mut bytes: Vec<u8> = (0..=255).collect();
    let mut offsets: Vec<u32> = (0..=256).collect();
    for token in tokens.iter().map(String::as_str).chain(["<end>"]) {
        bytes.extend_from_slice(token.as_bytes());
        offsets.push(u32::try_from(bytes.len()).expect("a small vocabulary"));
    }
    let end = u32::try_from(offsets.len() - 2).expect("a small vocabulary");
    Named {
        name,
        vocabulary: Vocabulary {
            bytes,
            offsets,
            eos: vec![end],
            control: vec![end],
            digest: String::new(),
        },
    }
}
