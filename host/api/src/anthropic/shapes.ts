type AnthropicError = {
  type: "error";
  error: { type: string; message: string; details?: { error_code: string; unsupported: string[] } };
  request_id?: string;
};

type AnthropicUsage = {
  input_tokens: integer;
  cache_creation_input_tokens: integer;
  cache_read_input_tokens: integer;
  output_tokens: integer;
  output_tokens_details: { thinking_tokens: integer };
  service_tier: "standard";
};

type ThinkingBlock = { type: "thinking"; thinking: string; signature: string };
type TextBlock = { type: "text"; text: string };
type ToolUseBlock = { type: "tool_use"; id: string; name: string; input: object };
type ContentBlock = ThinkingBlock | TextBlock | ToolUseBlock;

type StopReason =
  | "end_turn"
  | "stop_sequence"
  | "max_tokens"
  | "tool_use"
  | "refusal";

type Message = {
  id: string;
  type: "message";
  role: "assistant";
  model: string;
  content: ContentBlock[];
  stop_reason: StopReason | null;
  stop_sequence: string | null;
  usage: AnthropicUsage;
};

/** An event of a stream, named by its `type`. */
type MessageEvent =
  | { type: "message_start"; message: Message }
  | { type: "ping" }
  | { type: "content_block_start"; index: integer; content_block: ContentBlock }
  | {
      type: "content_block_delta";
      index: integer;
      delta:
        | { type: "text_delta"; text: string }
        | { type: "thinking_delta"; thinking: string }
        | { type: "signature_delta"; signature: string }
        | { type: "input_json_delta"; partial_json: string };
    }
  | { type: "content_block_stop"; index: integer }
  | {
      type: "message_delta";
      delta: { stop_reason: StopReason | null; stop_sequence: string | null };
      usage: AnthropicUsage;
    }
  | { type: "message_stop" }
  | AnthropicError;

type TokenCount = { input_tokens: integer };

type AnthropicModel = {
  type: "model";
  id: string;
  display_name: string;
  created_at: string;
  lifecycle: "active" | "deprecated";
  deprecated_at: string | null;
  max_input_tokens: integer | null;
  max_tokens: integer | null;
};

type AnthropicModels = {
  data: AnthropicModel[];
  first_id: string | null;
  last_id: string | null;
  has_more: boolean;
};
