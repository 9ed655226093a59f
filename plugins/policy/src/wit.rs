//! The types of the interface `policy`, and what the policy uses of the host.

/// Host functions that the policy uses.
pub trait Host {
    /// `ledger.take-all`
    fn take_all(&self, withdrawals: &[Withdrawal<'_>]) -> Vec<Verdict>;
    /// `ledger.adjust`
    fn adjust(&self, bucket: &str, delta: i64, capacity: u64, period_ms: u64);
    /// `secrets.find`
    fn find_secret(&self, candidate: &str) -> Option<String>;
    /// `clock.unix-millis`
    fn now_ms(&self) -> u64;
}

/// `ledger.withdrawal`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Withdrawal<'a> {
    /// Name of the bucket.
    pub bucket: &'a str,
    /// Amount to take.
    pub cost: u64,
    /// Amount that the bucket holds.
    pub capacity: u64,
    /// Time in which it refills.
    pub period_ms: u64,
}

/// `ledger.verdict`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The cost was taken.
    pub allowed: bool,
    /// Amount left.
    pub remaining: u64,
    /// Time until it could be taken; `u64::MAX` for never.
    pub retry_after_ms: u64,
}

/// The parts of `policy.facts` that this policy looks at.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Route pattern.
    pub route: &'a str,
    /// IP address of the peer.
    pub peer: &'a str,
    /// Headers, names in lower case.
    pub headers: &'a [(String, String)],
    /// The model asked for.
    pub model: Option<&'a str>,
    /// Limit on generated tokens over all choices, if the request set one.
    pub max_tokens: Option<u32>,
    /// Names of the functions that the caller declares.
    pub tools: &'a [String],
    /// Names of the server's tools that the request opts in to.
    pub server_tools: &'a [String],
}

/// `policy.decision`; this policy never abstains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The request may go on.
    Allow(Allow),
    /// The request ends here.
    Deny(Deny),
}

/// `policy.allow`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allow {
    /// Id of the key, or `anonymous`.
    pub subject: String,
    /// Account that usage is kept by.
    pub tenant: Option<String>,
    /// Higher is served first.
    pub priority: i32,
    /// A tighter limit on generated tokens.
    pub max_tokens: Option<u32>,
    /// Of the functions that the caller declares, those that it may not.
    pub denied_tools: Vec<String>,
    /// Of the server's tools that the request opts in to, those that it may not use.
    pub denied_server_tools: Vec<String>,
    /// Response headers.
    pub headers: Vec<(String, String)>,
    /// The reservation: names the buckets that were drawn from and what was taken there; handed back to
    /// [`account`].
    pub lease: Option<String>,
}

/// `policy.deny`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deny {
    /// HTTP status.
    pub status: u16,
    /// `error.type`
    pub kind: &'static str,
    /// `error.code`
    pub code: String,
    /// `error.message`
    pub message: String,
    /// Becomes `Retry-After`.
    pub retry_after_ms: Option<u64>,
    /// Response headers.
    pub headers: Vec<(String, String)>,
}

/// `quotas.unit`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Requests.
    Requests,
    /// Tokens of prompts and answers.
    Tokens,
    /// Answers under way.
    Answers,
}

/// `quotas.quota`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// Name of the limit, that of the term.
    pub name: &'static str,
    /// Unit that it counts.
    pub unit: Unit,
    /// Holder that shares it with others: the tenant.
    pub shared_by: Option<String>,
    /// Name of the bucket.
    pub bucket: String,
    /// Amount that the bucket holds.
    pub capacity: u64,
    /// Time in which it refills.
    pub period_ms: u64,
}
