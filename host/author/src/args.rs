//! The command line of `mortise plugin`, as far as it is about one plugin and its author.

use std::path::PathBuf;

use crate::registry_args::{
    PLUGIN_PULL_HELP, PLUGIN_PUSH_HELP, PLUGIN_SIGN_HELP, PluginPullArgs, PluginPushArgs,
    PluginSearchArgs, PluginSignArgs,
};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use mortise_harness::Moment;
use mortise_plugin::{Kind, Origin};
use mortise_plugin_manager::deserialize_kind;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error as WordError, StringDeserializer};

/// Commands about one plugin.
#[derive(Debug, Subcommand)]
pub enum AuthorCommand {
    /// Load a plugin, check it against what its kinds may import, prepare an instance as each kind, and run
    /// the golden cases that it carries: all that a server does before it takes a file.
    Verify(PluginFileArgs),
    /// Ask a plugin one thing and print what it says.
    #[command(after_help = PLUGIN_RUN_HELP)]
    Run(PluginRunArgs),
    /// Run the golden cases of a plugin, and abuse it.
    #[command(after_help = PLUGIN_TEST_HELP)]
    Test(PluginCheckArgs),
    /// Run the golden cases of a plugin many times and print what the calls took.
    Bench(PluginBenchArgs),
    /// Run the golden cases of a plugin many times and print which of its functions had the time.
    Profile(PluginProfileArgs),
    /// Make a project with a working plugin and its golden cases.
    #[command(after_help = PLUGIN_NEW_HELP)]
    New(PluginNewArgs),
    /// Make a plugin of what a compiler wrote: wrap a core module, add the sections that servers read.
    #[command(after_help = PLUGIN_PACK_HELP)]
    Pack(PluginPackArgs),
    /// Put a plugin into another one that was written around it.
    #[command(after_help = PLUGIN_COMPOSE_HELP)]
    Compose(PluginComposeArgs),
    /// Build, test and load a project whenever its sources change.
    #[command(after_help = PLUGIN_DEV_HELP)]
    Dev(PluginDevArgs),
    /// Hold a host of `mortise:plugin` to a kit of golden and hostile cases.
    #[command(after_help = PLUGIN_CONFORMANCE_HELP)]
    Conformance(PluginConformanceArgs),
    /// Sign a plugin, so that servers which require signatures take it.
    #[command(after_help = PLUGIN_SIGN_HELP)]
    Sign(PluginSignArgs),
    /// Push a plugin to an OCI registry.
    #[command(after_help = PLUGIN_PUSH_HELP)]
    Push(PluginPushArgs),
    /// Pull plugins from an OCI registry into a folder, and pin them in its lock file.
    #[command(after_help = PLUGIN_PULL_HELP)]
    Pull(PluginPullArgs),
    /// List the plugins of an OCI registry.
    Search(PluginSearchArgs),
    /// Print the reference of the interfaces as Markdown.
    Reference,
}

/// A plugin file and its grants.
#[derive(Debug, Clone, Args)]
pub struct PluginFileArgs {
    /// A .wasm file
    pub file: PathBuf,
    /// Its settings, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub settings: String,
    /// A Hugging Face model folder; without it the embedded demo model
    #[arg(long, value_name = "DIR")]
    pub model: Option<PathBuf>,
    /// Keep compiled code here between commands; worth it for plugins with an interpreter in them
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// Grants to a plugin while it is tried.
#[derive(Args)]
pub struct GrantArgs {
    /// Origin that a policy or a tool may send HTTP requests to, such as https://id.example; may be repeated
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub origins: Vec<Origin>,
    /// A secret that a policy can recognise; may be repeated. It can be seen in the list of processes
    #[arg(long = "secret", value_name = "NAME=VALUE", value_parser = named_secret)]
    pub secrets: Vec<(String, String)>,
    /// Time at which the clock stands still, such as 2024-01-31T12:00:00Z
    #[arg(long, value_name = "RFC3339")]
    pub now: Option<Moment>,
}

impl std::fmt::Debug for GrantArgs {
    /// The secrets must not come into a log.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.secrets.iter().map(|(name, _)| name);
        formatter
            .debug_struct("GrantArgs")
            .field("origins", &self.origins)
            .field("secrets", &names.collect::<Vec<_>>())
            .field("now", &self.now)
            .finish()
    }
}

fn named_secret(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err("write it as NAME=VALUE, neither of them empty".to_owned()),
    }
}

#[derive(Debug, Args)]
pub struct PluginRunArgs {
    #[command(flatten)]
    pub plugin: PluginFileArgs,
    #[command(flatten)]
    pub grants: GrantArgs,
    /// Kind that is asked, of a plugin with several
    #[arg(long, value_parser = kind())]
    pub kind: Option<Kind>,
    /// A file with the JSON; without it standard input
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PluginTestArgs {
    #[command(flatten)]
    pub plugin: PluginFileArgs,
    #[command(flatten)]
    pub grants: GrantArgs,
    /// The folder of the golden cases; without it `cases`, or else those that the plugin carries
    #[arg(long, value_name = "DIR")]
    pub cases: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PluginCheckArgs {
    #[command(flatten)]
    pub test: PluginTestArgs,
    /// Hold a chat template to the own one of this model, text and tokens, over a corpus of conversations: a
    /// Hugging Face model folder or a GGUF file
    #[arg(long, value_name = "DIR", conflicts_with = "model")]
    pub like_model: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "like_model")]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PluginBenchArgs {
    #[command(flatten)]
    pub test: PluginTestArgs,
    /// How often each case is run
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub rounds: u32,
}

#[derive(Debug, Args)]
pub struct PluginProfileArgs {
    #[command(flatten)]
    pub bench: PluginBenchArgs,
    /// Write the call stacks there, folded, as flame graphs and the Firefox Profiler read them
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct PluginNewArgs {
    /// Name of the plugin, and of the folder that is made
    pub name: String,
    /// Kind of the plugin
    #[arg(long, value_parser = kind())]
    pub kind: Kind,
    /// Language of the plugin
    #[arg(long, default_value = "rust")]
    pub lang: Language,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Language of a new plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Language {
    /// Rust, built with cargo for wasm32-wasip2.
    Rust,
    /// C, built with clang as zig packs it (from PyPI), or with wasi-sdk.
    C,
    /// Python, built with componentize-py.
    Python,
    /// JavaScript, built with componentize-qjs.
    Js,
}

#[derive(Debug, Args)]
pub struct PluginPackArgs {
    /// A core module built for one of the worlds, or a component
    pub file: PathBuf,
    /// Kind of plugin that a core module becomes
    #[arg(long, value_parser = kind())]
    pub kind: Option<Kind>,
    /// The JSON Schema of the settings, which servers check them by
    #[arg(long, value_name = "FILE")]
    pub settings_schema: Option<PathBuf>,
    /// A folder of golden cases (at most 64) that the plugin is to carry; servers run them before they take it
    #[arg(long, value_name = "DIR")]
    pub cases: Option<PathBuf>,
    /// Models that the plugin serves where the configuration does not say: a JSON file such as
    /// {"models": ["my-*"], "architectures": ["qwen3"]}
    #[arg(long, value_name = "FILE")]
    pub serves: Option<PathBuf>,
    /// The version that servers tell of
    #[arg(long, value_name = "TEXT")]
    pub plugin_version: Option<String>,
    /// File that the plugin is written to
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct PluginComposeArgs {
    /// The outer plugin, which calls another of its kind
    pub outer: PathBuf,
    /// The inner plugin; without it the embedded one of the kind
    pub inner: Option<PathBuf>,
    /// File that the plugin is written to
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
}

#[derive(Debug, Args)]
pub struct PluginDevArgs {
    /// The folder that a running server serves plugins from (`plugins.dir`, `serve --plugins`)
    #[arg(long, value_name = "DIR")]
    pub plugins: PathBuf,
    /// The project
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub project: PathBuf,
    /// The server, whose calls of the plugin are shown; without it they are not
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The server's log, whose lines about the plugin are shown
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Build with this command in place of the one of the language
    #[arg(long, value_name = "COMMAND", requires = "output")]
    pub build: Option<String>,
    /// The file that the command builds
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Settings for cases that state none, a JSON object
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub settings: String,
    #[command(flatten)]
    pub grants: GrantArgs,
    /// Build, test and load once, and end
    #[arg(long)]
    pub once: bool,
    /// Print JSON, one object an event
    #[arg(long, conflicts_with_all = ["server", "log"])]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PluginConformanceArgs {
    /// The folder of a kit, such as wit/conformance/v0.3; without it one question is read from standard input and answered
    pub kit: Option<PathBuf>,
    /// The command of another host, which answers one question; without it this one is held to the kit
    #[arg(long, value_name = "COMMAND", requires = "kit")]
    pub host: Option<String>,
    /// Print JSON; an answer to one question is JSON in any case
    #[arg(long, requires = "kit")]
    pub json: bool,
}

const KINDS: [(&str, &str); 7] = [
    ("chat-template", "Conversations to prompts"),
    (
        "output-parser",
        "Generated text to content, reasoning and calls",
    ),
    ("grammar", "What may be generated"),
    ("policy", "Who may ask"),
    ("tool", "Tools that the server runs"),
    ("guardrail", "What is looked at, and may be refused"),
    (
        "retriever",
        "Chunks of documents, queries, passages that a model is given",
    ),
];

/// A kind of plugins by its name.
fn kind() -> impl TypedValueParser<Value = Kind> {
    let values = KINDS.map(|(name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values).try_map(|name| {
        let name: StringDeserializer<WordError> = name.into_deserializer();
        deserialize_kind(name)
    })
}

const PLUGIN_RUN_HELP: &str = "\
The input is that of `mortise template render`, `mortise parse` and `mortise grammar check`.
For a policy
In:   {\"route\": \"/v1/chat/completions\"?, \"method\": \"POST\"?, \"peer\": \"127.0.0.1\"?,
       \"headers\": {\"name\": \"value\"}?, \"model\": \"...\"?, \"streaming\": false?,
       \"max_tokens\": 5?, \"tools\": [\"name\"]?, \"server_tools\": [\"name\"]?}
Out:  {\"allow\": {...}}, {\"deny\": {\"status\": 403, ...}} or {\"abstain\": true}
For a tool
In:   {\"name\": \"...\", \"arguments\": {...}?, \"subject\": \"...\"?, \"tenant\": \"...\"?};
       {} lists the tools
Out:  {\"result\": \"...\"} or {\"refused\": \"...\"}; for {} {\"tools\": [...]}
For a guardrail
In:   {\"messages\": [...]} or {\"answer\": [{\"content\": \"...\"} or {\"reasoning\": \"...\"} or
       {\"call_arguments\": {\"index\": 0, \"name\": \"...\", \"text\": \"...\"}}], \"holds\": true?},
       \"subject\": \"...\"?, \"tenant\": \"...\"?
Out:  {\"input\": VERDICT} or {\"answer\": [VERDICT], \"end\": VERDICT}; a verdict is \"pass\",
       \"undecided\", {\"replace\": \"...\"} or {\"refuse\": {\"code\": \"...\", \"message\": \"...\"}}
For a retriever
In:   {\"chunk\": {\"text\": \"...\", \"name\": \"a.txt\"?, \"media_type\": \"text/plain\"?,
       \"max_tokens\": 200?, \"overlap_tokens\": 0?, \"about_bytes\": 800?, \"max_chunks\": 1000?}}
      or {\"rewrite\": \"...\"} or
      {\"assemble\": {\"query\": \"...\", \"candidates\": [{\"text\": \"...\", \"document\": \"a.txt\"?,
       \"start\": 0?, \"end\": 9?, \"score\": 0.5?, \"similarity\": 0.5?, \"tokens\": 1?}],
       \"passages\": 5?, \"tokens\": 200?}},
       \"subject\": \"...\"?, \"tenant\": \"...\"?; {} tells what it does
Out:  {\"chunks\": [{\"start\": 0, \"end\": 9, \"text\": \"...\"}]}, {\"queries\": [\"...\"]} or
      {\"chosen\": [0], \"joint\": \"blank-line\", \"texts\": [\"...\"]}; for {} {\"traits\": {...}}

Example:
  echo '{\"headers\":{\"x-tenant\":\"acme\"}}' | mortise plugin run my-policy.wasm";

const PLUGIN_TEST_HELP: &str = "\
A case is a file *.json:
  {\"kind\": \"policy\"?, \"settings\": {...}?, \"now\": \"2024-01-01T00:00:00Z\"?,
   \"input\": {...}, \"expect\": {...} or \"error\": \"...\"}
`input` and the output are those of `mortise plugin run`; the clock stands still at
`now`, or else at --now, or else where it does above. All that `expect` names must be in
the output; `error` must be part of the message of a call that fails. A parser is fed
the text whole, in pieces of every small size, as tokens, and in two pieces cut at every
place; all must give the same.
After the cases of a kind, with the settings of the first that the plugin takes, come
inputs as nobody means them: they may be answered or refused, and must break nothing.";

const PLUGIN_NEW_HELP: &str = "\
Example:
  mortise plugin new my-policy --kind policy
  cd my-policy
  cargo build --release --target wasm32-wasip2
  mortise plugin test target/wasm32-wasip2/release/my_policy.wasm";

const PLUGIN_PACK_HELP: &str = "\
Compilers for Rust's wasm32-wasip2, componentize-py and componentize-qjs make components;
others make core modules, which this wraps.

Example:
  mortise plugin pack build/plugin.wasm --kind policy --output my-policy.wasm";

const PLUGIN_DEV_HELP: &str = "\
A plugin whose build or golden case fails is not loaded; what served before goes on.

Example:
  mortise serve --plugins plugins 2> server.log &
  cd my-policy
  mortise plugin dev --plugins ../plugins --server http://127.0.0.1:8080 --log ../server.log";

const PLUGIN_CONFORMANCE_HELP: &str = "\
A question is {\"component\": FILE, \"kind\": \"policy\", \"settings\": {...}, \"input\": {...}}; the
input is that of `mortise plugin run`. A host answers {\"answer\": {...}} or {\"fault\": \"trap\"}.

Examples:
  mortise plugin conformance wit/conformance/v0.3
  mortise plugin conformance wit/conformance/v0.3 --host './my-host answer'";

const PLUGIN_COMPOSE_HELP: &str = "\
The whole is one plugin with the name, limits and deadlines of one. Its settings are those
of the outer, and those of the inner below the key `inner`.

Examples:
  mortise plugin compose company_line.wasm --output plugins/company_line.wasm
  mortise plugin compose company_line.wasm house_rules.wasm --output plugins/both.wasm";
