//! Content blocks as the wire has them.

use mortise_http::Problem;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::fields::{FieldPath, FieldReader, TextOr, missing, words};

/// A text or blocks.
pub(super) type BlockContent = TextOr<Block>;

/// A block of any type.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "some members are only checked for their types")]
pub(super) struct Block {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) text: Option<String>,
    pub(super) cache_control: Option<CacheControl>,
    pub(super) citations: Option<Value>,
    pub(super) thinking: Option<String>,
    pub(super) signature: Option<String>,
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) input: Option<Map<String, Value>>,
    pub(super) caller: Option<CallOrigin>,
    pub(super) tool_use_id: Option<String>,
    pub(super) content: Option<Box<BlockContent>>,
    pub(super) is_error: Option<bool>,
    pub(super) source: Option<BlockSource>,
    pub(super) data: Option<Value>,
    pub(super) title: Option<Value>,
    pub(super) context: Option<Value>,
    pub(super) toolset_name: Option<Value>,
}

/// A mark up to which a prompt is worth caching. Every prefix is cached here.
#[derive(Debug, Clone, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "prefixes are cached without being asked")]
pub(super) struct CacheControl {
    #[serde(rename = "type")]
    kind: CacheKind,
    ttl: Option<CacheTime>,
}

words! {
    /// Kind of a cache entry.
    CacheKind {
        Ephemeral = "ephemeral",
    }
}

words! {
    /// Time for which an entry is wanted.
    CacheTime {
        FiveMinutes = "5m",
        OneHour = "1h",
    }
}

/// Origin of a call: the model itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(expecting = "an object")]
#[allow(dead_code, reason = "there is one kind of callers")]
pub(super) struct CallOrigin {
    #[serde(rename = "type")]
    kind: CallerKind,
}

words! {
    /// Kind of a caller.
    CallerKind {
        Direct = "direct",
    }
}

/// An image or a document.
#[derive(Debug, Clone, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct BlockSource {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) media_type: Option<String>,
    pub(super) data: Option<String>,
    pub(super) url: Option<String>,
    pub(super) content: Option<Value>,
    pub(super) file_id: Option<Value>,
}

/// Names of the members that a block of a type may have, beside `type` and `cache_control`.
fn members_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "text" => &["text", "citations"],
        "thinking" => &["thinking", "signature"],
        "tool_use" => &["id", "name", "input", "caller", "toolset_name"],
        "tool_result" => &["tool_use_id", "content", "is_error", "toolset_name"],
        "image" => &["source"],
        _ => &[
            "source",
            "data",
            "title",
            "context",
            "citations",
            "content",
            "text",
        ],
    }
}

impl Block {
    /// Refuse members that a block of this type does not have. Those that mean nothing here are refused or left out, as
    /// configured.
    pub(super) fn check_members(
        &self,
        path: &FieldPath,
        reader: &mut FieldReader,
    ) -> Result<(), Problem> {
        let given = [
            ("text", self.text.is_some()),
            ("citations", self.citations.is_some()),
            ("thinking", self.thinking.is_some()),
            ("signature", self.signature.is_some()),
            ("id", self.id.is_some()),
            ("name", self.name.is_some()),
            ("input", self.input.is_some()),
            ("caller", self.caller.is_some()),
            ("tool_use_id", self.tool_use_id.is_some()),
            ("content", self.content.is_some()),
            ("is_error", self.is_error.is_some()),
            ("source", self.source.is_some()),
            ("data", self.data.is_some()),
            ("title", self.title.is_some()),
            ("context", self.context.is_some()),
            ("toolset_name", self.toolset_name.is_some()),
        ];
        let known = members_of(&self.kind);
        let foreign = given
            .iter()
            .find(|(name, given)| *given && !known.contains(name));
        if let Some((name, _)) = foreign {
            let (path, kind) = (path.key(name), &self.kind);
            let mut problem = Problem::invalid(
                path.to_string(),
                format!("`{path}` has no place in a block of the type `{kind}`"),
            );
            problem.code = "unknown_parameter".to_owned();
            return Err(problem);
        }
        let meaningless = [
            (
                "citations",
                self.citations
                    .as_ref()
                    .is_some_and(|list| list != &Value::Array(Vec::new())),
            ),
            ("toolset_name", self.toolset_name.is_some()),
        ];
        for (name, _) in meaningless.iter().filter(|(_, given)| *given) {
            reader.unsupported(&path.key(name), "this server has no such thing")?;
        }
        Ok(())
    }

    /// The text of a block of the type `text`.
    pub(super) fn into_text(self, path: &FieldPath) -> Result<String, Problem> {
        self.text.ok_or_else(|| missing(&path.key("text")))
    }
}

/// A part of a request that cannot be honoured.
pub(super) fn unsupported(path: &FieldPath, why: &str) -> Problem {
    Problem::unsupported(
        path.to_string(),
        format!("`{path}` is not supported: {why}"),
    )
}
