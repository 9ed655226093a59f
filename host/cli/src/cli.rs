//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use mortise_author::AuthorCommand;
use mortise_hub::ModelReference;
use mortise_models::DeviceChoice;
use mortise_models::lifecycle::KvTypeName;
use mortise_store::AuditHead;
use mortise_telemetry::{LogFormat, LogLevel};
use serde::de::value::{Error as WordError, StringDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use crate::admin_args::{Against, LorasCommand, ModelsCommand};
use crate::caller::server_url;
use crate::chat::ChatArgs;
use crate::commands::health::HealthArgs;
use crate::key_args::KeysCommand;
use crate::top::TopArgs;

const EXAMPLES: &str = "\
Examples:
  mortise serve
      serve the embedded demo model on http://127.0.0.1:8080
  mortise serve --model ./my-model --port 9000 --api-key s3cret
      serve a Hugging Face folder to callers who know a key
  mortise serve --upstream http://127.0.0.1:8000/v1 --port 9000
      stand in front of a vLLM or llama-server that runs already
  mortise config print-default > mortise.toml
  mortise serve --config mortise.toml
      serve what a file says

Then, with any OpenAI client:
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"model\":\"mortise-demo\",\"messages\":[{\"role\":\"user\",\"content\":\"What is mortise?\"}]}'

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

/// An LLM inference server whose policy is made of sandboxed WebAssembly plugins.
#[derive(Debug, Parser)]
#[command(name = "mortise", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve models over the OpenAI API.
    Serve(ServeArgs),
    /// Print or check configuration files.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Run the chat template plugin: a conversation in, a prompt out.
    #[command(subcommand)]
    Template(TemplateCommand),
    /// Run the output parser plugin: generated text in, content, reasoning and calls out.
    #[command(after_help = PARSE_HELP)]
    Parse(ParseArgs),
    /// Run the grammar plugin.
    #[command(subcommand)]
    Grammar(GrammarCommand),
    /// Turn text into token ids, and ids into text.
    #[command(after_help = TOKENIZE_HELP)]
    Tokenize(OfflineInput),
    /// Make, check, try and measure plugins.
    #[command(subcommand)]
    Plugin(PluginCommand),
    /// Download a model from the Hugging Face hub and print where it is.
    #[command(after_help = PULL_HELP)]
    Pull {
        /// The model: org/name, then :QUANT to choose a GGUF file, then @REVISION
        #[arg(value_name = "ORG/NAME[:QUANT][@REVISION]")]
        reference: ModelReference,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List, load and unload the models of a running server, over its admin side.
    #[command(subcommand, after_help = MODELS_HELP)]
    Models(ModelsCommand),
    /// Issue, list, rotate and revoke keys of callers, and hash passwords.
    #[command(subcommand, after_help = KEYS_HELP)]
    Keys(KeysCommand),
    /// List, load and unload the LoRA adapters of a running server, over its admin side.
    #[command(subcommand, after_help = LORAS_HELP)]
    Loras(LorasCommand),
    /// Check, copy or shrink the file in which a server keeps its state.
    #[command(subcommand, after_help = STORE_HELP)]
    Store(StoreCommand),
    /// Check or show the log of who did what on a server.
    #[command(subcommand, after_help = AUDIT_HELP)]
    Audit(AuditCommand),
    /// List the processor and the GPUs that models can be computed on.
    Devices {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how fast a model runs here, or how fast a running server answers.
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// Talk with a model of a running server, in a terminal or through pipes.
    #[command(after_help = CHAT_HELP)]
    Chat(ChatArgs),
    /// Watch a running server: models, tokens a second, the KV cache, plugins.
    Top(TopArgs),
    /// Ask a running server whether it is healthy: status 0 if it is, 1 if it is not or does not answer.
    #[command(after_help = HEALTH_HELP)]
    Health(HealthArgs),
    /// Print the script that makes a shell complete this command line.
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands to a folder.
    Man {
        /// The folder
        folder: Option<PathBuf>,
    },
    /// Stand between a server and a process that it started. Only the server itself asks for this.
    #[command(subcommand, hide = true)]
    ChildProcess(ChildProcessCommand),
    /// Describe a plugin (.wasm), a weights file (.safetensors, .gguf) or a model folder as JSON.
    #[command(after_help = INSPECT_HELP)]
    Inspect(InspectArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A Hugging Face model folder or a GGUF file; without it the file's models, or the embedded demo
    /// model
    #[arg(long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// A model on the Hugging Face hub, downloaded if it is not in the cache; see `mortise pull --help`
    #[arg(
        long,
        value_name = "ORG/NAME[:QUANT][@REVISION]",
        conflicts_with = "model"
    )]
    pub(crate) hf: Option<ModelReference>,
    /// A folder of models, those below it included: each is listed by its path from there, and loaded when it is asked
    /// for. May be given several times
    #[arg(long, value_name = "DIR", conflicts_with_all = ["model", "hf", "upstream"])]
    pub(crate) models_dir: Vec<PathBuf>,
    /// The base URL of a server with an OpenAI-compatible API, such as llama-server or vLLM: all models that it
    /// lists are served, under their names there. May be given several times for servers of the same models; the
    /// first that answers is asked. `[[models]]` of a configuration file are not served then
    #[arg(long, value_name = "URL", conflicts_with_all = ["model", "hf"])]
    pub(crate) upstream: Vec<String>,
    /// The environment variable that holds the key of the upstream
    #[arg(long, value_name = "VARIABLE", requires = "upstream")]
    pub(crate) upstream_key_env: Option<String>,
    /// A configuration file; see `mortise config print-default`. May be given several times: each is laid over those
    /// before it [default: MORTISE_CONFIG; MORTISE_LOCAL_CONFIG is laid over all]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub(crate) host: Option<String>,
    /// The port to listen on; 0 picks a free one [default: 8080]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Let other machines reach the server without TLS, as behind a proxy that speaks it, or in a network that is
    /// trusted
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// A folder of plugins; each *.wasm replaces the embedded plugin of its kind
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// A key that callers must send as `Authorization: Bearer KEY`; may be given several times.
    /// Other users of this machine can read command lines: `key_env` in the file is safer
    #[arg(long = "api-key", value_name = "KEY")]
    pub(crate) api_keys: Vec<String>,
    /// End the start when one of several models cannot be loaded
    #[arg(long)]
    pub(crate) strict: bool,
    /// Most tokens of prompt and answer together [default: 4096, or the model's own limit]
    #[arg(long, value_name = "TOKENS")]
    pub(crate) max_context: Option<usize>,
    /// Device to compute on: cpu, cuda, cuda:N or auto [default: auto]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// The model's public name; further ones are aliases
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Vec<String>,
    /// The file in which responses, conversations and other state survive the process [default: memory]
    #[arg(long, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,
    /// How log lines are written [default: text]
    #[arg(long, value_name = "FORMAT", value_parser = one_of::<LogFormat>(&LOG_FORMATS))]
    pub(crate) log_format: Option<LogFormat>,
    /// The least important line that is written [default: info]
    #[arg(long, value_name = "LEVEL", value_parser = one_of::<LogLevel>(&LOG_LEVELS))]
    pub(crate) log_level: Option<LogLevel>,
    /// Take over from the server that has started this process, which gives it its listeners
    #[arg(long, hide = true)]
    pub(crate) take_over: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ChildProcessCommand {
    /// Start a command, and end it when the server ends.
    Guard {
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Become a command that ends with its guard.
    Guarded {
        #[arg(long)]
        guard: u32,
        #[arg(last = true)]
        command: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print a commented file with every key and its default.
    PrintDefault,
    /// Read files, each laid over those before it, and say what is wrong with them.
    Check {
        /// The files [default: MORTISE_CONFIG; MORTISE_LOCAL_CONFIG is laid over all]
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        #[command(flatten)]
        against: Against,
    },
    /// Print the JSON file of a llama-router as a file of this server; what differs is said in comments.
    ImportRouter {
        /// The file
        file: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Render a conversation to the prompt that the model would get.
    #[command(after_help = TEMPLATE_HELP)]
    Render(OfflineInput),
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrammarCommand {
    /// Compile a grammar and match texts against it.
    #[command(after_help = GRAMMAR_HELP)]
    Check(OfflineInput),
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check the file, beside a running server or without one, and print what it holds as JSON
    Check {
        #[command(flatten)]
        file: StoreFile,
    },
    /// Copy the file, beside a running server or without one
    Backup {
        /// The copy, which must not be there yet
        copy: PathBuf,
        #[command(flatten)]
        file: StoreFile,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Give free space back to the disk; no server may use the file meanwhile
    Vacuum {
        #[command(flatten)]
        file: StoreFile,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that no entry was changed, taken out or put elsewhere, beside a running server or without one
    Verify {
        /// An entry that must be there, as the server's log had it: its number and hash
        #[arg(long, value_name = "NUMBER:HASH")]
        head: Option<AuditHead>,
        #[command(flatten)]
        place: AuditPlace,
    },
    /// Print the last entries, one JSON object a line
    Show {
        /// Entries
        #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = count(1..=1 << 20))]
        last: usize,
        #[command(flatten)]
        place: AuditPlace,
    },
}

/// The places of an audit log.
#[derive(Debug, Args)]
pub(crate) struct AuditPlace {
    /// The server's configuration file, which names them [default: MORTISE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// A log in a file
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) file: Option<PathBuf>,
    /// A store that holds a log
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) store: Option<PathBuf>,
}

/// The file of a store.
#[derive(Debug, Args)]
pub(crate) struct StoreFile {
    /// The server's configuration file, which names the store [default: MORTISE_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// The store itself
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    pub(crate) store: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// List the plugins that a server would have, and who would serve whom.
    List(PluginListArgs),
    /// Describe a plugin: kinds, version, digest, imports, the schema of its settings.
    Inspect {
        /// A .wasm file
        file: PathBuf,
    },
    #[command(flatten)]
    Author(Box<AuthorCommand>),
}

#[derive(Debug, Args)]
pub(crate) struct PluginListArgs {
    /// A configuration file [default: MORTISE_CONFIG]; without it only the embedded plugins and those of --plugins
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// A folder of plugins; each *.wasm replaces the embedded plugin of its kind
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
}

/// Input of an offline command: its JSON, its model and its plugins.
#[derive(Debug, Args)]
pub(crate) struct OfflineInput {
    /// A Hugging Face model folder or a GGUF file; without it the embedded demo model
    #[arg(long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// A folder of plugins; each *.wasm replaces the embedded plugin of its kind
    #[arg(long, value_name = "DIR")]
    pub(crate) plugins: Option<PathBuf>,
    /// A file with the JSON; without it standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
    #[command(flatten)]
    pub(crate) input: OfflineInput,
    /// List the formats that the output parser reads, and read nothing
    #[arg(long, conflicts_with_all = ["format", "input"])]
    pub(crate) formats: bool,
    /// With --formats: print JSON, as what is read otherwise gives in any case
    #[arg(long, requires = "formats")]
    pub(crate) json: bool,
    /// The format in which the text is written [default: by the model's files]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
}

const LOG_FORMATS: [(&str, &str); 2] = [("text", "For people"), ("json", "One JSON object a line")];

const KV_TYPES: [(&str, &str); 4] = [
    ("f32", "Exact"),
    ("f16", "Half of the memory"),
    ("bf16", "Half of the memory, with the range of f32"),
    ("q8_0", "Little more than a quarter of the memory"),
];

const LOG_LEVELS: [(&str, &str); 5] = [
    ("error", "Requests that failed because of us"),
    ("warn", "What we recovered from"),
    ("info", "Start, stop and one line for each request"),
    ("debug", "Connections and calls"),
    ("trace", "Everything"),
];

/// One of a few words with what each means, as the configuration file has them.
fn one_of<T: DeserializeOwned + Clone + Send + Sync + 'static>(
    words: &'static [(&'static str, &'static str)],
) -> impl TypedValueParser<Value = T> {
    let values = words
        .iter()
        .map(|(name, help)| PossibleValue::new(*name).help(*help));
    PossibleValuesParser::new(values).try_map(|word| {
        let word: StringDeserializer<WordError> = word.into_deserializer();
        T::deserialize(word)
    })
}

fn count(range: std::ops::RangeInclusive<u64>) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(range)
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// A Hugging Face model folder or a GGUF file; without it the embedded demo model
    #[arg(long, value_name = "PATH")]
    pub(crate) model: Option<PathBuf>,
    /// Tokens of a prompt; of a served model roughly, in words
    #[arg(long, value_name = "TOKENS", default_value_t = 512, value_parser = count(1..=1 << 20))]
    pub(crate) prompt: usize,
    /// Tokens to generate in each stream
    #[arg(long, value_name = "TOKENS", default_value_t = 64, value_parser = count(2..=1 << 20))]
    pub(crate) generate: usize,
    /// Streams at once, one measurement each
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', default_value = "1,2,4,8,16,32", value_parser = count(1..=4096))]
    pub(crate) streams: Vec<usize>,
    /// Runs of each measurement; the median counts
    #[arg(long, value_name = "RUNS", default_value_t = 5, value_parser = count(1..=1000))]
    pub(crate) repeat: usize,
    /// Threads that compute; 0 takes one for each processor
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    /// As what the KV cache keeps its numbers
    #[arg(long, default_value = "f32", value_parser = one_of::<KvTypeName>(&KV_TYPES), conflicts_with = "serve")]
    pub(crate) kv_type: KvTypeName,
    /// Device to compute on: cpu, cuda, cuda:N or auto
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure the server at this address over HTTP instead of the engine in this process
    #[arg(long, value_name = "URL", value_parser = server_url, conflicts_with_all = ["model", "threads", "device"])]
    pub(crate) serve: Option<String>,
    /// With --serve: the model's name
    #[arg(
        long,
        value_name = "NAME",
        requires = "serve",
        default_value = "mortise-demo"
    )]
    pub(crate) served_model: String,
    /// With --serve: the environment variable that holds the API key
    #[arg(long, value_name = "VARIABLE", requires = "serve")]
    pub(crate) api_key_env: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// A .wasm, .safetensors or .gguf file, or a model folder
    pub(crate) path: PathBuf,
}

const CHAT_HELP: &str = "\
In a terminal, /help lists the commands of a conversation, and Ctrl-C stops an answer. Reasoning is
dimmed; NO_COLOR leaves colours out. Where the output goes to a pipe or a file, it is the answer and
nothing else. Lines that were typed are remembered in $XDG_STATE_HOME/mortise/chat_history.

Examples:
  mortise chat
  mortise chat \"What is mortise?\"
  git diff | mortise chat \"Review this change:\" > review.md
  mortise chat --url http://gpu-box:8080 --api-key-env MORTISE_KEY --model qwen3";

const HEALTH_HELP: &str = "\
Without --ready it asks whether a restart would help, as a container does that restarts its server;
with --ready whether new work is welcome, as a load balancer does. It needs no key.

Examples:
  mortise health
  mortise health --ready --url https://models.example --ca authority.pem
  mortise health --socket /run/mortise/mortise.sock --json";

const COMPLETIONS_HELP: &str = "\
Examples:
  mortise completions bash > ~/.local/share/bash-completion/completions/mortise
  mortise completions zsh > ~/.zfunc/_mortise
  mortise completions fish > ~/.config/fish/completions/mortise.fish";

const MODELS_HELP: &str = "\
Examples:
  mortise models list --config mortise.toml
  mortise models load big --set max_context=8192 --set kv_type=q8_0 --config mortise.toml
  mortise models unload big --admin-url http://10.0.0.5:9000 --admin-key-env MORTISE_ADMIN_KEY";

const KEYS_HELP: &str = "\
Examples:
  mortise keys create alice --config mortise.toml --tenant research --set requests_per_minute=60
  mortise keys rotate alice --config mortise.toml --overlap 3600
  mortise keys list --store state.db";
const LORAS_HELP: &str = "\
Examples:
  mortise loras list --config mortise.toml
  mortise loras load base legal --path loras/legal --config mortise.toml
  mortise loras unload base legal --config mortise.toml";

const STORE_HELP: &str = "\
Examples:
  mortise store check --config mortise.toml
  mortise store backup state-copy.db --store state.db
  mortise store vacuum --store state.db";

const AUDIT_HELP: &str = "\
Examples:
  mortise audit verify --config mortise.toml
  mortise audit verify --file audit.jsonl --head 12:5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
  mortise audit show --last 50 --file audit.jsonl";

const TEMPLATE_HELP: &str = "\
In:   {\"messages\": [...], \"tools\": [...]?, \"arguments\": {...}?,
       \"add_generation_prompt\": true?, \"continue_final_message\": false?,
       \"today\": \"YYYY-MM-DD\"?}
Out:  {\"prompt\": \"...\", \"segments\": [{\"special\": \"...\"} | {\"plain\": \"...\"}, ...],
       \"tokens\": [...], \"stop\": [...], \"opens_reasoning\": false}

Example:
  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | mortise template render";

const PARSE_HELP: &str = "\
In:   {\"text\": \"...\", \"chunk\": 3?, \"tools\": [...]?,
       \"tool_choice\": \"auto\" | \"none\" | \"required\" | {\"named\": \"...\"}?,
       \"parallel\": true?, \"opens_reasoning\": false?}
      `chunk` feeds the text in pieces of so many characters; 0 feeds token by token.
Out:  {\"content\": \"...\", \"reasoning\": \"...\",
       \"tool_calls\": [{\"id\", \"name\", \"arguments\"}, ...],
       \"events\": [{\"content\": \"...\"} | {\"reasoning\": \"...\"} | {\"call_begin\": {...}} |
                  {\"call_arguments\": {...}} | {\"call_end\": 0}, ...]}

Examples:
  mortise parse --formats
  echo '{\"text\":\"<think>hm</think>Hello\"}' | mortise parse
  echo '{\"text\":\"[TOOL_CALLS]now[ARGS]{}\",
         \"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"now\"}}]}' | mortise parse --format mistral-args";

const GRAMMAR_HELP: &str = "\
In:   one of \"json_object\": true, \"json_schema\": {...}, \"regex\": \"...\", \"lark\": \"...\",
       and \"texts\": [\"...\", ...]?
Out:  {\"valid\": true, \"texts\": [{\"text\": \"...\", \"matches\": true, \"tokens\": 3,
       \"accepted_tokens\": 3, \"may_end\": true}, ...]} or {\"valid\": false, \"error\": \"...\"}
A text matches if the grammar takes all of it and may end there.

Example:
  echo '{\"json_schema\":{\"type\":\"integer\"},\"texts\":[\"12\",\"x\"]}' | mortise grammar check";

const TOKENIZE_HELP: &str = "\
In:   {\"text\": \"...\", \"special\": false?} or {\"tokens\": [1, 2, ...], \"special\": true?}
      `special` recognises, and prints, control tokens.
Out:  {\"tokens\": [...], \"pieces\": [\"...\", ...], \"text\": \"...\", \"count\": 2}

Example:
  echo '{\"text\":\"Hello there\"}' | mortise tokenize";

const PULL_HELP: &str = "\
Without :QUANT a repository's safetensors are taken, or its only GGUF file, or its
Q4_K_M, Q8_0 or Q4_0. A download that broke off goes on where it stopped. Files lie in
the cache that huggingface_hub uses.

Environment:
  HF_TOKEN, HF_TOKEN_PATH     who asks; needed for private and gated models
  HF_ENDPOINT                 another hub [https://huggingface.co]
  HF_HUB_CACHE, HF_HOME       where files are kept [~/.cache/huggingface/hub]
  HF_HUB_OFFLINE=1            do not ask the hub

Example:
  mortise serve --hf Qwen/Qwen3-0.6B";

const BENCH_HELP: &str = "\
In this process: prefill, decode with some streams at once, the same prefix twice, and a long prompt
among eight streams. With --serve: chat requests over HTTP, with so many at once as --streams says,
--repeat requests for each of them; time to first token, time between tokens, tokens a second.

Example:
  mortise bench --streams 1,8,32
  mortise bench --serve http://127.0.0.1:8080 --streams 1,4,16 --json";

const INSPECT_HELP: &str = "\
Out:  for a plugin    {\"type\": \"plugin\", \"kinds\": [...], \"version\": ..., \"digest\": ...,
                       \"imports\": [...]}
      for a model     {\"type\": \"model\", \"architecture\": ..., \"parameters\": ..., \"tensors\": [...]}
      for GGUF        {\"type\": \"gguf\", \"metadata\": {...}, \"parameters\": ..., \"tensors\": [...]}
      for weights     {\"type\": \"safetensors\", \"parameters\": ..., \"tensors\": [...]}";
