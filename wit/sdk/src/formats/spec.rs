//! Specification of a format: its signs in a model's files, and its writing.

use crate::stream::CallKeys;

/// Description of a format. Its reader and the grammar that forces calls are made from the same marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// Name by which settings choose it, such as `qwen-coder`.
    pub name: &'static str,
    /// One line: how a call looks, and whose models write it.
    pub about: &'static str,
    /// Marks that show it: a chat template, or the control tokens of a model, that have all of one of these
    /// sets.
    pub signs: &'static [&'static [&'static str]],
    /// Architectures (`model_type`) whose models write it, where nothing else tells.
    pub architectures: &'static [&'static str],
    /// Marks of reasoning.
    pub reasoning: (&'static str, &'static str),
    /// Marks that calls begin with; none if calls begin without.
    pub opens: &'static [&'static str],
    /// Marks around what is for the user; empty if it stands bare.
    pub answer: (&'static str, &'static str),
    /// Answers without calls have marks too, and are read whether there are tools or not.
    pub framed: bool,
    /// Writing of a call.
    pub writing: Writing,
}

impl Spec {
    /// Marks with which answers are written.
    pub fn marks(&self) -> impl Iterator<Item = &'static str> {
        let written: Vec<&str> = match &self.writing {
            Writing::Json(json) => vec![json.section.0, json.section.1, json.head, json.tail],
            Writing::Tags(tags) => {
                let sections = tags
                    .sections
                    .iter()
                    .flat_map(|(open, close)| [*open, *close]);
                let (call, key, value) = (tags.call, tags.key, tags.value);
                let own = [
                    call.0,
                    call.1,
                    call.2,
                    key.0,
                    key.1,
                    value.0,
                    value.1,
                    tags.behind,
                ];
                sections.chain(own).collect()
            }
            Writing::Python(python) => vec![python.section.0, python.section.1],
            Writing::Literals(literals) => vec![literals.open, literals.close, literals.quote],
            Writing::Nested(nested) => vec![nested.tag],
            Writing::Free => Vec::new(),
        };
        let around = [self.answer.0, self.answer.1];
        self.opens.iter().copied().chain(around).chain(written)
    }
}

/// Writing of the calls of a format, to which a grammar holds the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// The arguments are one JSON object.
    Json(Written),
    /// The arguments stand between tags, each by itself.
    Tags(Tags),
    /// The calls are Python's.
    Python(Python),
    /// The arguments are an object with bare keys and quotes of the format's own.
    Literals(Literals),
    /// The arguments stand between tags, their items and members between tags within those.
    Nested(Nested),
    /// No grammar is made for the format.
    Free,
}

/// Calls such as `call:NAME{key:<|"|>text<|"|>,other:[1,2]}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Literals {
    /// Text before the name.
    pub open: &'static str,
    /// Text behind the arguments.
    pub close: &'static str,
    /// Mark around a text, on both sides.
    pub quote: &'static str,
}

/// Calls such as `<invoke name="NAME"><key><item>1</item></key></invoke>`, with a mark before each tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nested {
    /// Mark before each tag.
    pub tag: &'static str,
    /// Name of the tag around all calls.
    pub section: &'static str,
    /// Name of the tag around each item of a list.
    pub item: &'static str,
}

/// Calls whose arguments are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// Marks around all calls.
    pub section: (&'static str, &'static str),
    /// Text between two calls; without it there is only one.
    pub between: Option<&'static str>,
    /// Text before the arguments. `{}` stands for the name of the tool, `{#}` for the number of the call.
    pub head: &'static str,
    /// Text behind the arguments.
    pub tail: &'static str,
}

/// Source that tells whether the value of an argument is a text or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typing {
    /// The schema of the tool.
    Schema,
    /// An attribute behind the key: this text for a text, the other for JSON.
    Attribute(&'static str, &'static str),
}

/// Calls whose arguments stand between tags. Blanks may stand between all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tags {
    /// Marks around calls, those that are written first; empty if there are none.
    pub sections: &'static [(&'static str, &'static str)],
    /// Marks before the name of a tool, behind it (empty: a line break or the next mark), and behind the
    /// arguments.
    pub call: (&'static str, &'static str, &'static str),
    /// Mark behind each call that says nothing.
    pub behind: &'static str,
    /// Marks around a key.
    pub key: (&'static str, &'static str),
    /// Marks around a value, with the line breaks that belong to them.
    pub value: (&'static str, &'static str),
    /// Source that tells the type of a value.
    pub typing: Typing,
    /// Text between two tags.
    pub gap: &'static str,
    /// One section holds all calls; else each has its own.
    pub together: bool,
}

/// Calls of Python's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Python {
    /// Marks around the calls, brackets included.
    pub section: (&'static str, &'static str),
    /// Text between two calls.
    pub between: &'static str,
}

/// A format of which marks tell all: neither its reader nor the grammar that forces its calls needs code of its own.
/// Made where a model's files show a format that nobody has listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Described {
    /// Marks of the format.
    pub spec: Spec,
    /// Reading of a call whose arguments are JSON.
    pub call: JsonCalls,
}

/// Reading of calls whose arguments are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonCalls {
    /// Name and arguments stand in one object, or in objects of a list.
    Object {
        /// Text before an object; empty if nothing is.
        open: &'static str,
        /// Text behind an object.
        close: &'static str,
        /// Keys of the objects.
        keys: CallKeys,
    },
    /// The name stands between marks, and the arguments behind it.
    Named {
        /// Text before the name.
        open: &'static str,
        /// Text between the name and the arguments; empty if the arguments follow at once.
        middle: &'static str,
        /// Text behind the arguments.
        close: &'static str,
    },
}

/// Values of most formats.
pub(super) const USUAL: Spec = Spec {
    name: "",
    about: "",
    signs: &[],
    architectures: &[],
    reasoning: ("<think>", "</think>"),
    opens: &[],
    answer: ("", ""),
    framed: false,
    writing: Writing::Free,
};
