type OllamaError = { error: string };

type OllamaTop = { token: string; logprob: number; bytes: integer[] };
type OllamaLogprob = OllamaTop & { top_logprobs?: OllamaTop[] };

type OllamaFigures = {
  model: string;
  created_at: string;
  done: boolean;
  done_reason?: "stop" | "length" | "load";
  logprobs?: OllamaLogprob[];
  /** Nanoseconds, here and in the other durations. */
  total_duration?: integer;
  load_duration?: integer;
  prompt_eval_count?: integer;
  prompt_eval_duration?: integer;
  eval_count?: integer;
  eval_duration?: integer;
};

/** A piece of an answer, or the whole of it where `stream` is false. */
type OllamaGenerated = OllamaFigures & { response: string; thinking?: string };

/** A piece of an answer, or the whole of it where `stream` is false. */
type OllamaChatted = OllamaFigures & {
  message: {
    role: "assistant";
    content: string;
    thinking?: string;
    tool_calls?: {
      id: string;
      function: { index: integer; name: string; arguments: object };
    }[];
  };
};

type OllamaEmbeddings = {
  model: string;
  embeddings: number[][];
  total_duration: integer;
  load_duration: integer;
  prompt_eval_count: integer;
};

type OllamaEmbedding = { embedding: number[] };

type OllamaDetails = {
  parent_model: string;
  format: string;
  family: string;
  families: string[];
  parameter_size: string;
  quantization_level: string;
};

type OllamaModel = {
  name: string;
  model: string;
  modified_at: string;
  size: integer;
  digest: string;
  details: OllamaDetails;
};

type OllamaRunning = OllamaModel & {
  expires_at: string;
  size_vram: integer;
  context_length: integer | null;
};

type OllamaTags = { models: OllamaModel[] };
type OllamaProcesses = { models: OllamaRunning[] };

type OllamaShown = {
  modelfile: string;
  parameters: string;
  template: string;
  license: string;
  details: OllamaDetails;
  model_info: object;
  capabilities: ("completion" | "tools" | "embedding")[];
  modified_at: string;
};

type OllamaVersion = { version: string };

/** Step of a pull; the last says `success`. */
type OllamaPulled = { status: string; digest?: string; total?: integer; completed?: integer };
