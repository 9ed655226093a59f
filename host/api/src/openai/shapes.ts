type Usage = {
  prompt_tokens: integer;
  completion_tokens: integer;
  total_tokens: integer;
  prompt_tokens_details: { cached_tokens: integer };
  completion_tokens_details: { reasoning_tokens: integer };
};

type TopLogprob = { token: string; bytes: integer[]; logprob: number };
type TokenLogprob = TopLogprob & { top_logprobs: TopLogprob[] };
type Logprobs = { content: TokenLogprob[]; refusal: null };

/** For each token of a prompt but the first: log-probabilities by token id, of the likeliest tokens and of its own. */
type PromptLogprobs = (
  { [id: string]: { logprob: number; rank: integer; decoded_token: string } } | null
)[];

type FinishReason = "stop" | "length" | "tool_calls" | "function_call" | "content_filter";

type FunctionCall = { name: string; /** A JSON object as text. */ arguments: string };
type ToolCall = { id: string; type: "function"; function: FunctionCall };

/** A call of a tool that the server has run. */
type ServerToolCall = {
  index: integer;
  id: string;
  name: string;
  arguments: string;
  outcome: string;
  output: string;
};

type ChatMessage = {
  role: "assistant";
  content: string | null;
  refusal: null;
  /** Reasoning, under the two names that clients know. */
  reasoning?: string;
  reasoning_content?: string;
  tool_calls?: ToolCall[];
  function_call?: FunctionCall;
  server_tool_calls?: ServerToolCall[];
};

type ChatChoice = {
  index: integer;
  message: ChatMessage;
  logprobs: Logprobs | null;
  finish_reason: FinishReason;
  /** With `return_token_ids`, here and below. */
  token_ids?: integer[] | null;
};

type ChatCompletion = {
  id: string;
  object: "chat.completion";
  /** Seconds since 1970. */
  created: integer;
  model: string;
  system_fingerprint: string;
  choices: ChatChoice[];
  usage: Usage;
  prompt_token_ids?: integer[] | null;
  /** With `prompt_logprobs`. */
  prompt_logprobs?: PromptLogprobs;
};

type StoredChatCompletion = ChatCompletion & { metadata: { [key: string]: string } };

type StoredChatCompletions = {
  object: "list";
  data: StoredChatCompletion[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type StoredMessages = {
  object: "list";
  data: { id: string; [field: string]: any }[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type DeletedChatCompletion = { object: "chat.completion.deleted"; id: string; deleted: true };

type ChatDelta = {
  role?: "assistant";
  content?: string;
  refusal?: null;
  reasoning_content?: string;
  reasoning?: string;
  tool_calls?: {
    index: integer;
    id?: string;
    type?: "function";
    function: { name?: string; arguments: string };
  }[];
  function_call?: { name?: string; arguments: string };
  server_tool_calls?: ServerToolCall[];
};

/** A piece of an answer. The stream ends with the line `data: [DONE]`. */
type ChatCompletionChunk = {
  id: string;
  object: "chat.completion.chunk";
  created: integer;
  model: string;
  system_fingerprint: string;
  choices: {
    index: integer;
    delta: ChatDelta;
    logprobs: Logprobs | null;
    finish_reason: FinishReason | null;
    token_ids?: integer[] | null;
  }[];
  usage?: Usage | null;
  obfuscation?: string;
  prompt_token_ids?: integer[] | null;
};

type CompletionLogprobs = {
  tokens: string[];
  /** Null for the first token of a prompt that is repeated, here and below. */
  token_logprobs: (number | null)[];
  top_logprobs: ({ [token: string]: number } | null)[] | null;
  text_offset: integer[];
};

type Completion = {
  id: string;
  object: "text_completion";
  created: integer;
  model: string;
  system_fingerprint: string;
  choices: {
    index: integer;
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: "stop" | "length" | "content_filter";
    prompt_token_ids?: integer[] | null;
    token_ids?: integer[] | null;
    prompt_logprobs?: PromptLogprobs;
  }[];
  usage: Usage;
};

/** A piece of an answer. The stream ends with the line `data: [DONE]`. */
type CompletionChunk = {
  id: string;
  object: "text_completion";
  created: integer;
  model: string;
  system_fingerprint: string;
  choices: {
    index: integer;
    text: string;
    logprobs: CompletionLogprobs | null;
    finish_reason: "stop" | "length" | "content_filter" | null;
    prompt_token_ids?: integer[] | null;
    token_ids?: integer[] | null;
  }[];
  usage?: Usage | null;
  obfuscation?: string;
};

type PromptUsage = { prompt_tokens: integer; total_tokens: integer };

type Embeddings = {
  object: "list";
  data: {
    object: "embedding";
    index: integer;
    /** Numbers, or their little-endian single precision in base64. */
    embedding: number[] | string;
  }[];
  model: string;
  usage: PromptUsage;
};

type Model = {
  id: string;
  object: "model";
  created: integer;
  owned_by: string;
  aliases: string[];
  max_model_len: integer | null;
  loaded: boolean;
  /** `generate`, `embed`, `rerank`: what it can do, once it is loaded. */
  capabilities: string[] | null;
  /** Inputs and outputs, once it is loaded. */
  features: {
    modalities: string[];
    file_inputs: string[];
    multi_turn: boolean;
    thinking_modes: string[];
    response_formats: string[];
  } | null;
  deprecation_date?: string;
  /** The model that an adapter belongs to. */
  parent?: string;
  /** The model that an alias stands for, where it can be switched. */
  root?: string;
};

type Models = { object: "list"; data: Model[] };

type Tokens = {
  count: integer;
  max_model_len: integer | null;
  tokens: integer[];
  token_strs?: string[];
};

type Text = { prompt: string };

type RenderedPrompt = {
  model: string;
  prompt: string;
  prompt_token_ids: integer[];
  count: integer;
  max_model_len: integer | null;
  stop: string[];
  /** The component that rendered it, with its time; an extension. */
  template: { plugin: string | null; version: string | null; microseconds: integer } | null;
};

type ParsedText = {
  model: string;
  content: string;
  reasoning_content: string | null;
  tool_calls: ToolCall[];
};

type Props = {
  default_generation_settings: { n_ctx: integer | null };
  total_slots: integer;
  model_alias: string;
  model_path: string;
  modalities: { vision: boolean; audio: boolean };
  chat_template: string;
  bos_token: string;
  eos_token: string;
  build_info: string;
};

type Slot = {
  id: integer;
  n_ctx: integer | null;
  speculative: boolean;
  is_processing: boolean;
};

type DeletedModel = { id: string; object: "model"; deleted: true };
type ModelHealth = { status: "ok" };

type Sums = {
  total_requests: integer;
  total_prompt_tokens: integer;
  total_completion_tokens: integer;
};

/** Requests and tokens of the caller since the start, of all models that it may use and of each. */
type CallersSums = Sums & { uptime_seconds: integer; models: { [name: string]: Sums } };
