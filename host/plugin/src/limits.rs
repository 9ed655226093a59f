//! Limits of plugins. Every bound has its default here and nowhere else.

use std::path::PathBuf;
use std::time::Duration;

use crate::Kind;

/// Functions of all core modules of a component. The largest plugins, which carry an interpreter of
/// their own, have some 30 000.
pub const MAX_FUNCTIONS: u64 = 100_000;

/// Bytes of code of all core modules of a component.
pub const MAX_CODE_BYTES: u64 = 48 << 20;

/// Bytes of one function. Compiling takes more than linear time in it; the loop of an interpreter has
/// a quarter of this.
pub const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// Bytes of the first memory of all core modules of a component, which a few segments of data can
/// stretch far beyond the file.
pub const MAX_IMAGE_BYTES: u64 = 256 << 20;

/// Core modules and components within a component.
pub const MAX_NESTED: u64 = 200;

/// Linear memories of a core module. Compilers give it one, and the second of a component is that of another plugin in
/// it.
pub const MAX_MODULE_MEMORIES: u64 = 1;

/// Components that a component makes instances of. One that makes three of another, which makes three
/// of the next, and so on, takes three to the power of a third of this.
pub const MAX_NESTED_INSTANCES: u64 = 32;

/// Largest component file that is read: four times the largest plugin measured, which had the
/// vocabulary of a model baked in.
pub const MAX_COMPONENT_BYTES: u64 = 64 << 20;

/// Bytes of log lines that one call may write; further lines are dropped.
pub const MAX_LOG_BYTES_PER_CALL: usize = 64 << 10;

/// Bytes of log lines that one plugin may write in a second over all its calls, beyond what a single
/// call may. A line for each of three hundred requests a second fits.
pub const LOG_BYTES_PER_SECOND: u32 = 64 << 10;

/// Withdrawals of one call of `ledger.take-all`, and limits of a caller that a policy tells.
pub const MAX_WITHDRAWALS: usize = 64;

/// Bytes of the name of a limit that a policy tells of a caller.
pub const MAX_QUOTA_NAME_BYTES: usize = 64;

/// Bytes of the holder of such a limit, and of the name of its bucket.
pub const MAX_QUOTA_TEXT_BYTES: usize = 256;

/// Counter names that one plugin may use; further ones are counted under `other`.
pub const MAX_COUNTER_NAMES: usize = 16;

/// Texts to search for that a retriever makes of one query.
pub const MAX_REWRITTEN_QUERIES: usize = 8;

/// Bytes of a text to search for.
pub const MAX_QUERY_BYTES: usize = 16 * 1024;

/// Bytes of all chunks that a retriever makes of a document, as a multiple of its text: chunks overlap.
pub(crate) const MAX_CHUNK_COPIES: usize = 4;

/// Time in which the reader of files may run for one of them.
pub(crate) const MAX_READING: Duration = Duration::from_secs(30);

/// Time by the clock in which a file is read, as a multiple of the time in which its reader runs.
pub(crate) const READING_PATIENCE: u32 = 10;

/// Memory of the reader of files for one of them: the file, which has up to 16 MiB, what is made of it, and its text.
pub(crate) const MAX_READING_BYTES: usize = 256 << 20;

/// Bytes that the reader of files may hand over: the text of a document, with what keeps pages apart.
pub(crate) const MAX_READING_OUTPUT_BYTES: usize = 24 << 20;

/// Tools of one component.
pub const MAX_TOOLS_PER_COMPONENT: usize = 64;

/// Tool calls in one answer; far above what a model writes within its context.
pub const MAX_TOOL_CALLS: usize = 1024;

/// Settings of the whole plugin host.
#[derive(Debug, Clone)]
pub struct HostConfig {
    /// Instances of all plugins together that may live at once. 1000 is what the pool reserves
    /// 4 GiB of address space each for (4 TiB of 128), without touching memory.
    pub max_instances_total: u32,
    /// Folder of compiled plugins between starts; `None` compiles at every start. It is made with mode 0700,
    /// and not used if it belongs to another user or others may write to it, since its files are native code.
    pub cache_dir: Option<PathBuf>,
    /// WebAssembly call stack of one instance. 1 MiB matches the stack that Rust guests keep in
    /// their own memory, so that neither ends long before the other.
    pub stack_bytes: usize,
    /// Memory of all prepared instances together that further ones begin with, in bytes; each is kept once. 1 GiB is
    /// that of ten vocabularies of 150 000 tokens.
    pub max_image_bytes: usize,
    /// Note each millisecond where a running guest is, unless it is an embedded one. It costs some
    /// microseconds each time.
    pub profile: bool,
    /// Compile large plugins quickly rather than well, for hosts that make a few calls and end. Code that the
    /// cache has already is taken either way.
    pub quick: bool,
    /// Keep what each call took, for [`FunctionStats::timings`](crate::FunctionStats::timings).
    pub timings: bool,
    /// Fault injection: a function that the thread which counts epochs calls each time.
    pub fault: Option<fn()>,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            max_instances_total: 1000,
            max_image_bytes: 1 << 30,
            cache_dir: None,
            stack_bytes: 1 << 20,
            profile: false,
            quick: false,
            timings: false,
            fault: None,
        }
    }
}

/// Bounds on the instances of one binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of one instance. 64 MiB is ten times what a template, parser or policy was seen to
    /// use; grammars hold the vocabulary and get more (see [`Limits::for_kind`]).
    pub memory_bytes: usize,
    /// Bytes that one answer may carry, and one call into the host. 8 MiB holds the prompt of
    /// two million tokens.
    pub output_bytes: usize,
    /// Instances that may live at once, hence calls, sessions and matchers that may be open at
    /// once. 256 is above the sequences that an engine batches.
    pub max_instances: usize,
    /// Idle instances that are kept for the next call. 32 serves a burst of clients without
    /// preparing anew and bounds what idleness costs.
    pub max_idle: usize,
    /// Calls after which an instance is replaced, which bounds what a slow leak can gather.
    pub recycle_after_uses: u32,
    /// Growth of memory since `prepare` after which an instance is replaced, since memory of an
    /// instance never shrinks.
    pub recycle_growth_bytes: usize,
    /// Time for which an idle instance is kept; the one that was used last stays longer. A minute
    /// outlasts the pauses between requests, since preparing a large vocabulary anew takes a second.
    pub idle_ms: u64,
    /// Time for which an idle instance is kept that has grown by more than 2 MiB: a burst of requests that each needed
    /// much leaves no memory behind ten seconds later.
    pub idle_grown_ms: u64,
    /// Time of a preparation, in microseconds, from which on its result is kept for further instances to begin with.
    /// To begin so takes some 30; 2000 is a little more than what keeping costs for a small memory.
    pub keep_prepared_from_us: u64,
    /// Time for which a call waits for an instance when all are busy.
    pub checkout_wait_ms: u64,
    /// Deadlines of the functions.
    pub deadlines: Deadlines,
    /// Milliseconds that a guest may run over all calls of one session, or of one matcher and its
    /// forks: a plugin that stays just below each deadline still ends. 60 s is what the slowest masks
    /// that were measured (6 ms) come to over 10 000 tokens.
    pub budget_ms: u64,
    /// Failures after which the plugin is not called for a while.
    pub breaker: BreakerLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            output_bytes: 8 << 20,
            max_instances: 256,
            max_idle: 32,
            recycle_after_uses: 10_000,
            recycle_growth_bytes: 16 << 20,
            idle_ms: 60_000,
            idle_grown_ms: 7_000,
            keep_prepared_from_us: 2000,
            checkout_wait_ms: 1000,
            deadlines: Deadlines::default(),
            budget_ms: 60_000,
            breaker: BreakerLimits::default(),
        }
    }
}

impl Limits {
    /// The defaults for one kind. A grammar builds a trie of the vocabulary, measured at 74 MB for
    /// 128 000 tokens, and gets 256 MiB and fewer instances. So does a retriever, whose documents have up to 16 MiB. A
    /// tool or a guardrail may say and send 1 MiB.
    pub fn for_kind(kind: Kind) -> Self {
        let base = Self::default();
        match kind {
            Kind::Grammar => Self {
                memory_bytes: 256 << 20,
                max_instances: 64,
                max_idle: 16,
                recycle_growth_bytes: 64 << 20,
                ..base
            },
            // Two documents are divided at once; queries come as requests do.
            Kind::Retriever => Self {
                memory_bytes: 256 << 20,
                max_instances: 64,
                max_idle: 16,
                ..base
            },
            // What a tool says goes into a prompt, and what a guardrail says takes the place of a few tokens.
            Kind::Tool | Kind::Guardrail => Self {
                output_bytes: 1 << 20,
                ..base
            },
            Kind::ChatTemplate | Kind::OutputParser | Kind::Policy => base,
        }
    }
}

/// Deadlines of the functions, in milliseconds in which the guest runs; ten times that by the clock. They are
/// hundreds of times what the default plugins need, so that a busy machine ends no honest call, and short enough that a
/// broken plugin is noticed by its own request only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// `lifecycle.prepare`, with instantiation. 10 s, since a vocabulary of 128 000 tokens takes
    /// one on a busy core.
    pub prepare_ms: u64,
    /// `chat-template.render`. 1 s; 0.2 ms is usual.
    pub render_ms: u64,
    /// `output-parser.describe`, `constraint` and `open`. 1 s, since a constraint may rewrite large
    /// tool schemas.
    pub constraint_ms: u64,
    /// `session.feed` of an output parser or a guardrail. 100 ms; it holds up the stream it looks at.
    pub feed_ms: u64,
    /// `session.close` of an output parser or a guardrail. 100 ms.
    pub close_ms: u64,
    /// `grammar.compile`. 1 s; 3 ms is usual.
    pub compile_ms: u64,
    /// `mask`, `advance`, `probe`, `rollback` and `fork` of a matcher. 100 ms; 2 ms is the worst
    /// that was measured.
    pub mask_ms: u64,
    /// `policy.authorize`. 100 ms; nothing else is done for the request meanwhile.
    pub authorize_ms: u64,
    /// `policy.account`. 1 s; it is not on the path of a request.
    pub account_ms: u64,
    /// `tool.describe` and `tool.call`. 1 s, hence ten by the clock, most of which a tool that asks
    /// other servers waits.
    pub tool_ms: u64,
    /// `guardrail.describe`, `check-input` and `open`. 1 s, hence ten by the clock.
    pub check_ms: u64,
    /// `retriever.chunk`. 10 s, for a document of 16 MiB; no request waits for it.
    pub chunk_ms: u64,
    /// `retriever.describe`, `rewrite` and `assemble`. 1 s, hence ten by the clock.
    pub retrieve_ms: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            prepare_ms: 10_000,
            render_ms: 1000,
            constraint_ms: 1000,
            feed_ms: 100,
            close_ms: 100,
            compile_ms: 1000,
            mask_ms: 100,
            authorize_ms: 100,
            account_ms: 1000,
            tool_ms: 1000,
            check_ms: 1000,
            chunk_ms: 10_000,
            retrieve_ms: 1000,
        }
    }
}

/// Failures that suspend a plugin, and the time for which they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Failed calls within the window after which no call is made. 0 never suspends.
    pub failures: u32,
    /// The window.
    pub window_ms: u64,
    /// First pause. After each trial that fails it is twice as long.
    pub pause_ms: u64,
    /// The longest pause.
    pub max_pause_ms: u64,
}

impl Default for BreakerLimits {
    /// Five failures in ten seconds tell a broken plugin from bad luck; a second is short enough for
    /// one that was only overtaxed.
    fn default() -> Self {
        Self {
            failures: 5,
            window_ms: 10_000,
            pause_ms: 1000,
            max_pause_ms: 60_000,
        }
    }
}
