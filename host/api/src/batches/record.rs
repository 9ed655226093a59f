//! A batch as it is stored: the object that clients see, and what the server must know to go on with it.

use mortise_http::Problem;
use mortise_service::{Granted, Principal, ToolGrant};
use mortise_store::{Change, Key, Record};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::contents::{FileFacts, OUTPUT, key_of};
use crate::files_expiry::Expiry;
use crate::ids::now;
use crate::limits::MAX_BATCH_TIME;
use crate::retention::{Retention, after};

/// Times at which a batch came to its states.
const TIMES: [&str; 7] = [
    "in_progress_at",
    "finalizing_at",
    "completed_at",
    "failed_at",
    "expired_at",
    "cancelling_at",
    "cancelled_at",
];

/// A batch.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) key: Key,
    pub(super) created: i64,
    /// As clients see it.
    pub(super) object: Value,
    pub(super) inner: Inner,
}

/// Fields of the record that clients do not see.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Inner {
    /// The file of answers.
    pub(super) output: Output,
    /// The file of lines that failed.
    pub(super) error: Output,
    /// Seconds after which both are gone, if the caller said so.
    expires_after: Option<i64>,
    /// Grant of the policies when the batch was made.
    grant: Grant,
}

/// A file that a batch writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Output {
    pub(super) id: String,
    pub(super) bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Grant {
    subject: String,
    tenant: Option<String>,
    priority: i32,
    max_tokens: Option<u32>,
    tools: Tools,
    server_tools: Tools,
}

/// Tools that may be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Tools {
    All,
    Only(Vec<String>),
    AllBut(Vec<String>),
}

/// A batch that is asked for.
pub(super) struct BatchRequest {
    pub(super) key: Key,
    pub(super) endpoint: &'static str,
    /// Time in which it must be complete.
    pub(super) window: &'static str,
    pub(super) input: String,
    /// The model of its lines, if they name one.
    pub(super) model: Option<String>,
    pub(super) metadata: Value,
    pub(super) expiry: Option<Expiry>,
    pub(super) grant: Granted,
}

/// Tokens of answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    pub(super) input: u64,
    pub(super) cached: u64,
    pub(super) output: u64,
    pub(super) reasoning: u64,
}

impl Batch {
    /// A batch whose lines are not checked yet.
    pub(super) fn new(asked: BatchRequest) -> Self {
        let created = now();
        let mut object = json!({
            "id": asked.key.id,
            "object": "batch",
            "endpoint": asked.endpoint,
            "model": asked.model,
            "errors": null,
            "input_file_id": asked.input,
            "completion_window": asked.window,
            "status": "validating",
            "output_file_id": null,
            "error_file_id": null,
            "created_at": created,
            "expires_at": after(created, MAX_BATCH_TIME),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
            "metadata": asked.metadata,
        });
        for time in TIMES {
            object[time] = Value::Null;
        }
        let output = || Output {
            id: format!("file-{}", uuid::Uuid::new_v4().simple()),
            bytes: 0,
        };
        Self {
            key: asked.key,
            created,
            object,
            inner: Inner {
                output: output(),
                error: output(),
                expires_after: asked.expiry.map(|expiry| expiry.seconds),
                grant: Grant::of(asked.grant),
            },
        }
    }

    /// # Errors
    /// When the record cannot be read.
    pub(super) fn of(record: &Record) -> Result<Self, Problem> {
        let unreadable = |_| {
            let status = http::StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "unreadable_batch", "the batch cannot be read")
        };
        let (object, inner) = serde_json::from_slice(&record.body).map_err(unreadable)?;
        Ok(Self {
            key: record.key.clone(),
            created: record.created,
            object,
            inner,
        })
    }

    /// Its record. One that has ended is kept for as long as answers are.
    pub(super) fn record(&self, retention: Retention) -> Record {
        let open = !self.has_ended();
        let body = serde_json::to_vec(&(&self.object, &self.inner)).unwrap_or_default();
        Record {
            key: self.key.clone(),
            created: self.created,
            expires: retention.answer_expires(now()).filter(|_| !open),
            open,
            body,
        }
    }

    pub(super) fn status(&self) -> &str {
        self.object["status"].as_str().unwrap_or_default()
    }

    /// Whether nothing more happens to it.
    pub(super) fn has_ended(&self) -> bool {
        let ends = ["completed", "failed", "expired", "cancelled"];
        ends.contains(&self.status())
    }

    /// Come to a state.
    pub(super) fn enter(&mut self, status: &str) {
        self.object["status"] = json!(status);
        self.object[format!("{status}_at")] = json!(now());
    }

    /// The file that it reads.
    pub(super) fn input(&self) -> Key {
        let id = self.object["input_file_id"].as_str();
        key_of(&self.key.owner, id.unwrap_or_default())
    }

    /// When it expires, in seconds since 1970.
    pub(super) fn expires(&self) -> i64 {
        self.object["expires_at"].as_i64().unwrap_or_default()
    }

    /// The model that its lines name.
    pub(super) fn model(&self) -> Option<&str> {
        self.object["model"].as_str()
    }

    /// A number of its lines: `total`, `completed` or `failed`.
    pub(super) fn count(&self, which: &str) -> u64 {
        let counts = &self.object["request_counts"];
        counts[which].as_u64().unwrap_or_default()
    }

    /// Add to a number of its lines.
    pub(super) fn add(&mut self, which: &str, lines: u64) {
        let sum = self.count(which) + lines;
        self.object["request_counts"][which] = json!(sum);
    }

    /// Add the tokens of an answer.
    pub(super) fn spend(&mut self, tokens: Tokens) {
        let usage = &self.object["usage"];
        let sum =
            |path: &str, more: u64| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0) + more;
        let (input, output) = (
            sum("/input_tokens", tokens.input),
            sum("/output_tokens", tokens.output),
        );
        let cached = sum("/input_tokens_details/cached_tokens", tokens.cached);
        let reasoning = sum("/output_tokens_details/reasoning_tokens", tokens.reasoning);
        self.object["usage"] = json!({
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": output,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": input + output,
        });
    }

    /// Grant of the policies when it was made.
    pub(super) fn grant(&self) -> Granted {
        self.inner.grant.granted()
    }

    /// The files that it writes: each with the field that names it, and the end of its name.
    pub(super) fn outputs(&self) -> [(&Output, &'static str, &'static str); 2] {
        [
            (&self.inner.output, "output_file_id", "output"),
            (&self.inner.error, "error_file_id", "error"),
        ]
    }

    /// Put one of its files, which is not whole yet.
    pub(super) fn begin_output(&self, output: &Output, kind: &str) -> Change {
        let facts = FileFacts {
            expires: None,
            ..self.facts(output, kind, Retention::default())
        };
        Change::Put(facts.record(key_of(&self.key.owner, &output.id), true))
    }

    /// End one of its files; one that has nothing is removed.
    pub(super) fn end_output(&self, output: &Output, kind: &str, retention: Retention) -> Change {
        let key = key_of(&self.key.owner, &output.id);
        match output.bytes {
            0 => Change::Delete(key),
            _ => Change::Update(self.facts(output, kind, retention).record(key, false)),
        }
    }

    fn facts(&self, output: &Output, kind: &str, retention: Retention) -> FileFacts {
        let seconds = self.inner.expires_after;
        let expiry = seconds.map(|seconds| Expiry { seconds });
        let created = now();
        FileFacts {
            name: format!("{}_{kind}.jsonl", self.key.id),
            purpose: OUTPUT.to_owned(),
            bytes: output.bytes,
            created,
            expires: Expiry::at(expiry, created, retention),
        }
    }
}

impl Grant {
    fn of(granted: Granted) -> Self {
        let tools = |grant| match grant {
            ToolGrant::All => Tools::All,
            ToolGrant::Only(names) => Tools::Only(names),
            ToolGrant::AllBut(names) => Tools::AllBut(names),
        };
        Self {
            subject: granted.principal.subject,
            tenant: granted.principal.tenant,
            priority: granted.priority,
            max_tokens: granted.max_tokens,
            tools: tools(granted.tools),
            server_tools: tools(granted.server_tools),
        }
    }

    fn granted(&self) -> Granted {
        let tools = |tools: &Tools| match tools.clone() {
            Tools::All => ToolGrant::All,
            Tools::Only(names) => ToolGrant::Only(names),
            Tools::AllBut(names) => ToolGrant::AllBut(names),
        };
        Granted {
            principal: Principal {
                subject: self.subject.clone(),
                tenant: self.tenant.clone(),
                ..Principal::default()
            },
            priority: self.priority,
            max_tokens: self.max_tokens,
            tools: tools(&self.tools),
            server_tools: tools(&self.server_tools),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mortise_store::RecordKind;

    use super::*;

    #[test]
    fn feature_e29_a_batch_is_stored_with_what_its_owner_may() {
        let owner = Arc::from("tenant a");
        let grant = Granted {
            principal: Principal {
                subject: "alice".to_owned(),
                tenant: Some("a".to_owned()),
                ..Principal::default()
            },
            priority: -3,
            max_tokens: Some(7),
            tools: ToolGrant::Only(vec!["f".to_owned()]),
            server_tools: ToolGrant::AllBut(Vec::new()),
        };
        let mut batch = Batch::new(BatchRequest {
            key: Key::new(&owner, RecordKind::Batch, "batch_1"),
            endpoint: "/v1/embeddings",
            window: "24h",
            input: "file-1".to_owned(),
            model: None,
            metadata: Value::Null,
            expiry: None,
            grant: grant.clone(),
        });
        let tokens = Tokens {
            input: 3,
            cached: 1,
            output: 2,
            reasoning: 1,
        };
        batch.spend(tokens);
        batch.spend(tokens);
        batch.add("completed", 2);
        let retention = Retention {
            answers: Some(std::time::Duration::from_secs(60)),
            ..Retention::default()
        };
        let record = batch.record(retention);
        assert_eq!((record.open, record.expires), (true, None));
        let mut again = Batch::of(&record).expect("readable");
        assert_eq!((again.grant(), &again.object), (grant, &batch.object));
        assert_eq!(again.object["usage"]["total_tokens"], 10);
        assert_eq!(again.count("completed"), 2);
        again.enter("completed");
        let record = again.record(retention);
        assert!(!record.open && record.expires.is_some());
        assert!(again.object["completed_at"].is_i64());
    }
}
