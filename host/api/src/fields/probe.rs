//! Results of asking a type what it reads.

/// Names of fields, or words.
pub(super) type Names = &'static [&'static str];

/// A value that is offered where a type takes values of several kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offer {
    Nothing,
    Boolean,
    Natural,
    Integer,
    Number,
    Text,
    List,
    Object,
}

/// Kind of value that a type asks for at a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// No value: the path does not exist.
    #[default]
    None,
    Boolean,
    /// A number from 0 on, up to a limit.
    Natural(u64),
    Integer,
    Number,
    Text,
    /// A text, one of these words.
    Words(Names),
    List,
    /// An object whose members have any names.
    Map,
    /// An object with these members.
    Fields(Names),
    /// Any value. The flag says whether the type took the offered value.
    Any(bool),
}

/// Result of a look at a path.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProbeResult {
    pub(super) kind: ValueKind,
    /// The value may be null, or absent.
    pub(super) optional: bool,
}
