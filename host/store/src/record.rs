//! Records, their items, and changes to them.

use std::sync::Arc;

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RecordKind {
    /// A response of the Responses API, with its input items.
    Response,
    /// The events of a response that was made in the background.
    ResponseEvents,
    /// A conversation; its items are the items.
    Conversation,
    /// A stored chat completion; its items are the messages of the request.
    ChatCompletion,
    /// The answer to a request with an idempotency key.
    Idempotency,
    /// A file; its items are the pieces of its content.
    File,
    /// A batch.
    Batch,
    /// The audit log; its items are the entries.
    Audit,
    /// A key that was issued to a caller. The server owns it.
    ApiKey,
    /// The state of a counter that outlives the process. The server owns it.
    Counter,
    /// A key by which the server signs. The server owns it.
    SigningKey,
    /// A collection of documents.
    VectorStore,
    /// A document of a collection; its items are its chunks.
    VectorStoreFile,
    /// A mark that changes with something that hosts keep in memory. The server owns it.
    Revision,
    /// A request to cancel work, for the host that does it. The server owns it.
    Cancellation,
}

/// Owner of the server's own records, to which the quotas of owners do not apply and which make no room for others.
/// No caller's account has this name.
pub const SERVER: &str = "server";

impl RecordKind {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::Response,
        Self::ResponseEvents,
        Self::Conversation,
        Self::ChatCompletion,
        Self::Idempotency,
        Self::File,
        Self::Batch,
        Self::Audit,
        Self::ApiKey,
        Self::Counter,
        Self::SigningKey,
        Self::VectorStore,
        Self::VectorStoreFile,
        Self::Revision,
        Self::Cancellation,
    ];

    /// Name of the kind, as the file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Response => "response",
            Self::ResponseEvents => "response_events",
            Self::Conversation => "conversation",
            Self::ChatCompletion => "chat_completion",
            Self::Idempotency => "idempotency",
            Self::File => "file",
            Self::Batch => "batch",
            Self::Audit => "audit",
            Self::ApiKey => "api_key",
            Self::Counter => "counter",
            Self::SigningKey => "signing_key",
            Self::VectorStore => "vector_store",
            Self::VectorStoreFile => "vector_store_file",
            Self::Revision => "revision",
            Self::Cancellation => "cancellation",
        }
    }
}

/// Address of a record: nobody but its owner finds it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Owner.
    pub owner: Arc<str>,
    /// Kind.
    pub kind: RecordKind,
    /// Its id, unique among those of the owner and the kind.
    pub id: String,
}

impl Key {
    /// The key of a record.
    pub fn new(owner: &Arc<str>, kind: RecordKind, id: impl Into<String>) -> Self {
        Self {
            owner: Arc::clone(owner),
            kind,
            id: id.into(),
        }
    }
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its address.
    pub key: Key,
    /// Seconds since 1970 at which it was made.
    pub created: i64,
    /// Seconds since 1970 from which it is gone; `None` keeps it.
    pub expires: Option<i64>,
    /// Work on it is to be taken up again after a restart.
    pub open: bool,
    /// Its body.
    pub body: Vec<u8>,
}

/// An item of a record, in the order in which they were appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its id, unique among the items of the record.
    pub id: String,
    /// Its body.
    pub body: Vec<u8>,
}

/// One change. Those of a commit happen together or not at all.
#[derive(Debug, Clone)]
pub enum Change {
    /// Write a record, whether it is there or not. One that is there keeps its place in lists.
    Put(Record),
    /// Write a record that must be there.
    Update(Record),
    /// Write a record that must not be there, or must have been left open by a host that is gone.
    Create(Record),
    /// Write a record that must be there as it was read.
    Replace {
        /// The record.
        record: Record,
        /// The body that it must have.
        before: Vec<u8>,
    },
    /// Remove a record with its items, if it is there.
    Delete(Key),
    /// Append items to a record that must be there. An item that is there already stays as it is.
    Append {
        /// The record.
        parent: Key,
        /// The items.
        items: Vec<Item>,
    },
    /// Remove an item, if it is there.
    DeleteItem {
        /// The record.
        parent: Key,
        /// The item.
        id: String,
    },
}

impl Change {
    /// About as many bytes as the change takes while it waits.
    pub(crate) fn bytes(&self) -> usize {
        const OVERHEAD: usize = 256;
        OVERHEAD
            + match self {
                Self::Put(record) | Self::Update(record) | Self::Create(record) => {
                    record.body.len()
                }
                Self::Replace { record, before } => record.body.len() + before.len(),
                Self::Append { items, .. } => {
                    items.iter().map(|item| item.body.len() + OVERHEAD).sum()
                }
                Self::Delete(_) | Self::DeleteItem { .. } => 0,
            }
    }
}

/// Part of a list.
#[derive(Debug, Clone)]
pub struct Page {
    /// The id behind which it begins; from the beginning without one.
    pub after: Option<String>,
    /// Entries at most.
    pub limit: usize,
    /// Oldest first.
    pub ascending: bool,
}

/// Entries of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordPage<T> {
    /// The entries.
    pub entries: Vec<T>,
    /// Further ones follow.
    pub more: bool,
}
