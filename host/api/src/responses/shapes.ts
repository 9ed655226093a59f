type OutputLogprob = {
  token: string;
  bytes: integer[];
  logprob: number;
  top_logprobs: { token: string; bytes: integer[]; logprob: number }[];
};

type ItemStatus = "in_progress" | "completed" | "incomplete" | "failed";

type OutputText = {
  type: "output_text";
  text: string;
  annotations: FileCitation[];
  logprobs: OutputLogprob[];
};
type FileCitation = {
  type: "file_citation";
  /** Place of the mark in the text, in characters. */
  index: integer;
  file_id: string;
  filename: string;
  start: integer;
  end: integer;
};
type ReasoningText = { type: "reasoning_text"; text: string };

type OutputMessage = {
  id: string;
  type: "message";
  status: ItemStatus;
  role: "assistant";
  content: OutputText[];
};

type ReasoningItem = {
  id: string;
  type: "reasoning";
  status: ItemStatus;
  summary: any[];
  content: ReasoningText[];
  /** The reasoning in an opaque form, for callers who keep the conversation themselves. */
  encrypted_content?: string;
};

type FunctionCallItem = {
  id: string;
  type: "function_call";
  status: ItemStatus;
  call_id: string;
  name: string;
  arguments: string;
};

/** A call of a tool that the server has run. */
type ServerCallItem = {
  id: string;
  type: "mcp_call";
  status: ItemStatus;
  server_label: string;
  name: string;
  arguments: string;
  output: string | null;
  error: string | null;
  approval_request_id: null;
};

type FileSearchItem = {
  id: string;
  type: "file_search_call";
  status: ItemStatus;
  queries: string[];
  results: FileSearchResult[] | null;
};

type FileSearchResult = {
  file_id: string;
  filename: string;
  score: number;
  attributes: object;
  text: string;
  /** Number by which the model names it. */
  number: integer;
  start: integer;
  end: integer;
};

type OutputItem =
  | OutputMessage
  | ReasoningItem
  | FunctionCallItem
  | ServerCallItem
  | FileSearchItem;

/** An item as it is kept. */
type Item = { id: string; type: string; [field: string]: any };

type Items = {
  object: "list";
  data: Item[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};

type ResponseUsage = {
  input_tokens: integer;
  input_tokens_details: { cached_tokens: integer; cache_write_tokens: integer };
  output_tokens: integer;
  output_tokens_details: { reasoning_tokens: integer };
  total_tokens: integer;
};

/** Timers of a request in milliseconds, each within the next. What is not known is null. */
type ResponseMetrics = { [name: string]: number | null };

type Response = {
  id: string;
  object: "response";
  created_at: integer;
  status: "queued" | "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
  background: boolean;
  completed_at: integer | null;
  error: { code: string; message: string } | null;
  incomplete_details: { reason: string } | null;
  model: string;
  output: OutputItem[];
  usage: ResponseUsage | null;
  instructions: string | null;
  max_output_tokens: integer | null;
  max_tool_calls: integer | null;
  parallel_tool_calls: boolean;
  previous_response_id: string | null;
  conversation: { id: string } | null;
  prompt_cache_key: string | null;
  prompt_cache_retention: string | null;
  reasoning: { effort: string | null; summary: string | null };
  safety_identifier: string | null;
  service_tier: "default";
  store: boolean;
  temperature: number;
  text: { format: object; verbosity: string };
  tool_choice: string | object;
  tools: object[];
  top_logprobs: integer;
  top_p: number;
  presence_penalty: number;
  frequency_penalty: number;
  truncation: "auto" | "disabled";
  user: string | null;
  metadata: { [key: string]: string };
  metrics?: ResponseMetrics | null;
};

/** What stands for the answers, calls and results of a conversation, in an opaque form. */
type CompactionItem = { id: string; type: "compaction"; encrypted_content: string };

type CompactedResponse = {
  id: string;
  object: "response.compaction";
  created_at: integer;
  model: string;
  /** Messages that are not the assistant's, and a `compaction` item at the end. */
  output: (Item | CompactionItem)[];
  usage: ResponseUsage;
};

/** The prompt of a request, token by token; an extension. */
type ResponsePrompt = {
  object: "response.prompt";
  model: string;
  prompt: string;
  prompt_token_ids: integer[];
  prompt_token_strs: string[];
  count: integer;
  max_model_len: integer | null;
  stop: string[];
  /** The component that rendered it, with its time. */
  template: { plugin: string | null; version: string | null; microseconds: integer } | null;
};

type ResponseTokens = { object: "response.input_tokens"; input_tokens: integer };

type DeletedResponse = { id: string; object: "response"; deleted: true };

type Conversation = {
  id: string;
  object: "conversation";
  created_at: integer;
  metadata: { [key: string]: string };
};

type DeletedConversation = { id: string; object: "conversation.deleted"; deleted: true };

type Numbered = { sequence_number: integer };
type InItem = Numbered & { item_id: string; output_index: integer };

/** An event of a stream, named by its `type`. The stream ends with the line `data: [DONE]`. */
type ResponseEvent =
  | (Numbered & {
      type:
        | "response.created"
        | "response.queued"
        | "response.in_progress"
        | "response.completed"
        | "response.incomplete"
        | "response.failed";
      response: Response;
    })
  | (Numbered & {
      type: "response.output_item.added" | "response.output_item.done";
      output_index: integer;
      item: OutputItem;
    })
  | (InItem & {
      type: "response.content_part.added" | "response.content_part.done";
      content_index: integer;
      part: OutputText | ReasoningText;
    })
  | (InItem & {
      type: "response.output_text.delta";
      content_index: integer;
      delta: string;
      logprobs: OutputLogprob[];
      obfuscation?: string;
    })
  | (InItem & {
      type: "response.output_text.done";
      content_index: integer;
      text: string;
      logprobs: OutputLogprob[];
    })
  | (InItem & { type: "response.reasoning_text.delta"; content_index: integer; delta: string })
  | (InItem & { type: "response.reasoning_text.done"; content_index: integer; text: string })
  | (InItem & {
      type: "response.function_call_arguments.delta" | "response.mcp_call_arguments.delta";
      delta: string;
    })
  | (InItem & { type: "response.mcp_call_arguments.done"; arguments: string })
  | (InItem & {
      type: "response.function_call_arguments.done";
      name: string;
      arguments: string;
    })
  | (InItem & {
      type:
        | "response.mcp_call.in_progress"
        | "response.mcp_call.completed"
        | "response.mcp_call.failed";
    })
  | (InItem & {
      type:
        | "response.file_search_call.in_progress"
        | "response.file_search_call.searching"
        | "response.file_search_call.completed";
    })
  | (InItem & {
      type: "response.output_text.annotation.added";
      content_index: integer;
      annotation_index: integer;
      annotation: FileCitation;
    })
  | (Numbered & { type: "response.metrics"; metrics: ResponseMetrics })
  | { type: "error"; code: string; message: string; param: string | null };
