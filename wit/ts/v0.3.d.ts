// Types of `mortise:plugin@0.3.0`, made of its WIT files. A module that a plugin imports has functions; one that it exports
// has an interface of the same name, which its object follows:
//
//   /** @type {import('mortise:plugin/policy@0.3.0').Policy} */
//   export const policy = { … };
//
// What may be none is null where a plugin is told it, and may be left out in what it answers. A fault is thrown.
// Integers of 64 bits are numbers, exact up to 2^53; the maximum of a `u64` is -1.

declare module 'mortise:plugin/clock@0.3.0' {
  /** Milliseconds since 1970-01-01T00:00:00Z. */
  export function unixMillis(): number;
}

declare module 'mortise:plugin/ledger@0.3.0' {
  /** The outcome of a withdrawal. */
  export interface Verdict {
    /** Whether the cost was taken. If not, nothing was taken. */
    allowed: boolean;
    /** What is left in the bucket, in units of cost. Zero when it is overdrawn. */
    remaining: number;
    /** When the same withdrawal could succeed; 0 if it did. `u64` maximum if it never can. */
    retryAfterMs: number;
  }
  /** One of several withdrawals; see `take`. */
  export interface Withdrawal {
    /** The bucket. */
    bucket: string;
    /** What to take. */
    cost: number;
    /** What the bucket holds at most. */
    capacity: number;
    /** The time in which it refills. */
    periodMs: number;
  }
  /**
   * Take `cost` from the token bucket `bucket`, which holds at most `capacity` and refills
   * evenly by `capacity` every `period-ms`. A bucket starts full. A cost of 0 asks whether the
   * bucket is overdrawn and takes nothing. The call is atomic.
   */
  export function take(bucket: string, cost: number, capacity: number, periodMs: number): Verdict;
  /**
   * Take from several buckets, or from none: atomic, and one exchange with whoever keeps the counters.
   * At most 64 withdrawals; more trap. There is a verdict for each, in their order, as if they
   * were made one after the other. If one of them is not allowed, nothing is taken from any:
   * those that were allowed say so, and `remaining` is what is left without them.
   */
  export function takeAll(withdrawals: Withdrawal[]): Verdict[];
  /**
   * Charge `delta` more (positive) or give it back (negative) once the true cost is known. The
   * bucket may become overdrawn. Capacity and period must be those of `take`.
   */
  export function adjust(bucket: string, delta: number, capacity: number, periodMs: number): void;
}

declare module 'mortise:plugin/secrets@0.3.0' {
  /**
   * The name of the granted secret that equals `candidate`, if any. The host compares digests
   * in constant time and always visits every secret.
   */
  export function find(candidate: string): string | null | undefined;
}

declare module 'mortise:plugin/outbound-http@0.3.0' {
  /** What to ask. */
  export interface Request {
    /** `GET`, `HEAD`, `POST`, `PUT`, `PATCH` or `DELETE`. */
    method: string;
    /** An absolute URL of `https` or `http`, without user name and password. */
    url: string;
    /**
     * Names and values. Those that frame the message or name the host (`host`, `content-length`,
     * `connection` and the like) are the host's to write and are refused.
     */
    headers: [string, string][];
    /** The content; empty if there is none. */
    body: Uint8Array;
    /** How long the whole exchange may take, if that is less than the binding allows. */
    timeoutMs?: number | null | undefined;
  }
  /**
   * What was answered, whatever the status. Redirects are not followed: to go where `location`
   * points is another request, checked like the first.
   */
  export interface Response {
    /** The HTTP status. */
    status: number;
    /** Names in lower case, and values. */
    headers: [string, string][];
    /** The content. */
    body: Uint8Array;
  }
  /** Why there is no answer. */
  export type Error =
    // The request is malformed; the text says how.
    | { tag: 'invalid'; val: string }
    // The origin is not listed, or its name stands for an address that is not allowed.
    | { tag: 'denied'; val: string }
    // There was no connection, or what came over it was not HTTP.
    | { tag: 'unreachable'; val: string }
    // It took too long.
    | { tag: 'timeout' }
    // The answer is larger than the binding allows.
    | { tag: 'too-large' }
    // This call has made as many requests as it may.
    | { tag: 'spent' };
  /**
   * Make one request. Waiting for the answer does not count towards the time that a call may run,
   * only towards the time that may pass by the clock.
   * @throws {Error}
   */
  export function send(request: Request): Response;
}

declare module 'mortise:plugin/vocabulary@0.3.0' {
  /** All tokens. Their texts are bytes, since a token need not be valid UTF-8. */
  export interface Table {
    /** The bytes of all tokens, back to back. Token `i` is `bytes[offsets[i]..offsets[i+1]]`. */
    bytes: Uint8Array;
    /** One more entry than there are tokens. */
    offsets: number[];
    /** Tokens that end a sequence. */
    eos: number[];
    /** Ids of control tokens, in rising order. Their bytes are their text. */
    control: number[];
    /** SHA-256 of the above in hexadecimal, to cache by. */
    digest: string;
  }
  /** The vocabulary of the model that this instance serves. */
  export function get(): Table;
}

declare module 'mortise:plugin/mask-sink@0.3.0' {
  /**
   * A bit for each token, bit `i % 32` of word `i / 32`, 1 for allowed; exactly
   * `ceil(vocabulary / 32)` words.
   */
  export function dense(slot: number, words: number[]): void;
  /** Only these tokens are allowed, in any order. */
  export function only(slot: number, tokens: number[]): void;
  /** All tokens but these are allowed, in any order. */
  export function allBut(slot: number, tokens: number[]): void;
}

declare module 'mortise:plugin/reasoning@0.3.0' {
  /** Texts around a block of reasoning, as the model writes them. Control tokens are recognised in them. */
  export interface Marks {
    /** The text that opens a block; empty if blocks are opened by the prompt only. At most 256 bytes. */
    open: string;
    /** The text that closes it, which the host makes the model write: 1 to 256 bytes. */
    close: string;
  }
  /** The marks of this model; none if a text does not end its reasoning. Asked once after `prepare`. */
  export function describe(): Marks | null | undefined;
}

declare module 'mortise:plugin/quotas@0.3.0' {
  /** A caller that the host knows, as requests of the caller have it in the header `mortise-identity`. */
  export interface Caller {
    /** Id of the caller, such as that of a key. */
    id: string;
    /** Kind of the credential: `key` or `token`. */
    kind: string;
    /** The account of the caller, if it has one. */
    tenant?: string | null | undefined;
    /** Scopes and limits of the caller: UTF-8 JSON text, an object. */
    terms: string;
  }
  /** What a limit counts. */
  export type Unit =
    // Requests.
    | 'requests'
    // Tokens of prompts and answers.
    | 'tokens'
    // Answers under way.
    | 'answers'
    // Something else.
    | 'other';
  /** A limit, and the bucket of the ledger that it is counted in. */
  export interface Quota {
    /** Name by which operators know the limit, such as `requests_per_day`: 1 to 64 bytes. */
    name: string;
    /** What it counts. */
    unit: Unit;
    /** Who shares it, such as `tenant acme`: 1 to 256 bytes; none if it is the caller's own. */
    sharedBy?: string | null | undefined;
    /** The bucket, as `ledger.take` is given it. */
    bucket: string;
    /** What the bucket holds at most, as `ledger.take` is given it. */
    capacity: number;
    /** The time in which it refills, as `ledger.take` is given it. */
    periodMs: number;
  }
  /**
   * The limits that requests of this caller count against, at most 64, in the order in which they are shown; none if the
   * policy does not know a caller's limits beforehand. An error is a text for the operator that says why they cannot be
   * told. The ledger stays as it is in this call, whatever is taken, and HTTP requests are not sent.
   * @throws {string}
   */
  export function describe(caller: Caller): Quota[] | null | undefined;
}

declare module 'mortise:plugin/types@0.3.0' {
  /**
   * UTF-8 JSON text. Used where the shape belongs to the caller of the API and not to this
   * package: messages, tool schemas, operator settings. Object keys keep their order.
   */
  export type Json = string;
  /**
   * Why a plugin did not do what it was asked. `invalid` and `too-complex` are the caller's faults at
   * any time: while an answer is streamed, they end it with an error of type `invalid_request_error`.
   * They count towards no circuit breaker, and no fallback is asked.
   */
  export type Fault =
    // The request is wrong. The host answers 400 with this text (cut to 1 KiB).
    | { tag: 'invalid'; val: string }
    // The request makes sense and takes more work than the plugin spends on one: a grammar with too
    // many states, a conversation that is too long. The caller's fault like `invalid`, answered by a
    // 400 with the code `too_complex`.
    | { tag: 'too-complex'; val: string }
    // The plugin cannot serve this input. The host applies the failure policy of the binding.
    | { tag: 'unsupported'; val: string }
    // A defect or a spent budget of the plugin. The host applies the failure policy.
    | { tag: 'internal'; val: string };
  /** Why a sequence ended. */
  export type Finish =
    // An end-of-sequence token or a stop string.
    | 'stop'
    // The limit on generated tokens or the context length.
    | 'length'
    // The client went away or the server is stopping.
    | 'cancelled'
    // The engine, the constraint or a plugin failed.
    | 'error';
  /** What generated text must look like. */
  export type GrammarSource =
    // Any JSON object.
    | { tag: 'json-object' }
    // A JSON Schema document, as JSON text.
    | { tag: 'json-schema'; val: Json }
    // A regular expression over the whole output.
    | { tag: 'regex'; val: string }
    // A grammar in llguidance's dialect of Lark. `<name>` stands for a control token.
    | { tag: 'lark'; val: string };
}

declare module 'mortise:plugin/lifecycle@0.3.0' {
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  /**
   * Called once on a fresh instance before any other export. The host may keep a snapshot of
   * the memory afterwards and start further instances from it.
   */
  export interface Lifecycle {
    /**
     * Read the settings and the model and build whatever later calls need. A fault here fails
     * the load of the plugin, so that a bad setting never reaches a request.
     * @throws {Fault}
     */
    prepare(): void;
  }
}

declare module 'mortise:plugin/chat-template@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  /** A piece of the prompt. */
  export type Segment =
    // Text in which control tokens are recognised.
    | { tag: 'special'; val: string }
    // Text that never yields a control token, whatever it contains. Everything that came from
    // the caller belongs in here.
    | { tag: 'plain'; val: string };
  /** What to render. */
  export interface Input {
    /** Array of OpenAI chat messages. */
    messages: Json;
    /** Array of OpenAI tool declarations, if there are any. */
    tools?: Json | null | undefined;
    /** Object of further template arguments (`chat_template_kwargs`), such as `enable_thinking`. */
    arguments?: Json | null | undefined;
    /** End the prompt with the opening of an assistant turn. */
    addGenerationPrompt: boolean;
    /** Leave the last message, an assistant's, open, so that the model continues it. */
    continueFinalMessage: boolean;
    /** Today as `YYYY-MM-DD`. The host decides it, so a template needs no clock. */
    today: string;
  }
  /** A rendered prompt. */
  export interface Output {
    /** The prompt; adjacent plain segments are tokenized as one text. */
    segments: Segment[];
    /** Further strings that end the answer. */
    stop: string[];
    /** The prompt ends inside an open reasoning block. */
    opensReasoning: boolean;
  }
  /** Turns a conversation into the prompt of a model. */
  export interface ChatTemplate {
    /**
     * Render one conversation. Equal input gives equal output.
     * @throws {Fault}
     */
    render(input: Input): Output;
  }
}

declare module 'mortise:plugin/output-parser@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  export type Finish = import('mortise:plugin/types@0.3.0').Finish;
  export type GrammarSource = import('mortise:plugin/types@0.3.0').GrammarSource;
  /** Which tools the model may, must or must not call. */
  export type ToolChoice =
    // Calls are not allowed; what looks like one is content.
    | { tag: 'none' }
    // The model decides.
    | { tag: 'auto' }
    // At least one call of any declared tool.
    | { tag: 'required' }
    // A call of this tool.
    | { tag: 'named'; val: string };
  /** What is known before the first token. */
  export interface Setup {
    /** Array of OpenAI tool declarations; `[]` if there are none. */
    tools: Json;
    /** How they may be used. */
    toolChoice: ToolChoice;
    /** Whether one answer may hold several calls. */
    parallel: boolean;
    /** The prompt ended inside an open reasoning block. */
    opensReasoning: boolean;
  }
  /** The opening of a tool call. */
  export interface CallBegin {
    /** Which call of the answer. */
    index: number;
    /** The id that the model gave, if its format has one; else the host makes one. */
    id?: string | null | undefined;
    /** Name of a declared tool. */
    name: string;
  }
  /** A piece of arguments. */
  export interface CallArguments {
    /** Which call of the answer. */
    index: number;
    /** JSON text to append. */
    delta: string;
  }
  /** What the model said, in order. */
  export type Event =
    // Text for the user.
    | { tag: 'content'; val: string }
    // Text of the reasoning block.
    | { tag: 'reasoning'; val: string }
    // A tool call begins. Indices count from 0 without gaps.
    | { tag: 'call-begin'; val: CallBegin }
    // More of the arguments of a call that has begun. The concatenation is JSON text.
    | { tag: 'call-arguments'; val: CallArguments }
    // The arguments of this call are complete.
    | { tag: 'call-end'; val: number };
  /** What the parser needs of the host. */
  export interface Traits {
    /**
     * Generated text must include tokens marked special (all but end-of-sequence), since the
     * format is written with them.
     */
    keepSpecialTokens: boolean;
  }
  /** The state of one answer being parsed. */
  export interface Session {
    /**
     * Take the next text, which is whole UTF-8, and the tokens it came from. How the text was
     * cut into calls must not change the concatenated events.
     * @throws {Fault}
     */
    feed(text: string, tokens: number[]): Event[];
    /**
     * The answer has ended; hand out what was held back. Called once, last.
     * @throws {Fault}
     */
    close(reason: Finish): Event[];
  }
  /** Splits generated text into content, reasoning and tool calls. */
  export interface OutputParser {
    Session: new (...args: any[]) => Session;
    /** Asked once after `prepare`. */
    describe(): Traits;
    /**
     * The grammar that the whole raw output must follow so that `setup` and the wanted answer
     * format both hold; none if anything may be generated. `wanted` is the caller's own
     * constraint on the content.
     * @throws {Fault}
     */
    constraint(setup: Setup, wanted: GrammarSource | null | undefined): GrammarSource | null | undefined;
    /**
     * Open a session for one answer; none if nothing in it could need parsing, in which case the
     * host passes the text on as content without further calls.
     * @throws {Fault}
     */
    open(setup: Setup): Session | null | undefined;
  }
}

declare module 'mortise:plugin/grammar@0.3.0' {
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  export type GrammarSource = import('mortise:plugin/types@0.3.0').GrammarSource;
  /** Where a matcher stands. */
  export type Status =
    // More text is needed.
    | 'active'
    // The text so far is complete; it may go on or end here.
    | 'accepting'
    // The text is complete and nothing but an end-of-sequence token may follow.
    | 'finished';
  /** The outcome of an advance. */
  export interface Step {
    /** Where the matcher stands now. */
    status: Status;
    /** Tokens that must follow whatever the model says, possibly none. */
    forced: number[];
  }
  /**
   * One sequence being constrained. The host hands in tokens that the mask before allowed; any other
   * is a defect, so a fault about it is `internal`. Where the text so far has made the grammar too
   * hard to follow, the fault is `too-complex`.
   */
  export interface Matcher {
    /**
     * Push the mask of the present state to `slot`.
     * @throws {Fault}
     */
    mask(slot: number): Status;
    /**
     * Take these tokens, then push the mask of the new state to `slot`: one crossing a step.
     * @throws {Fault}
     */
    advance(tokens: number[], slot: number): Step;
    /**
     * How many of these tokens, from the first, would be accepted. The state stays.
     * @throws {Fault}
     */
    probe(tokens: number[]): number;
    /**
     * Take back the last `count` tokens.
     * @throws {Fault}
     */
    rollback(count: number): void;
    /**
     * An independent copy in the present state.
     * @throws {Fault}
     */
    fork(): Matcher;
  }
  /** Constrains generation to a grammar by masks over the vocabulary. */
  export interface Grammar {
    Matcher: new (...args: any[]) => Matcher;
    /**
     * Compile a grammar. The matcher stands at the start of the text.
     * @throws {Fault}
     */
    compile(source: GrammarSource): Matcher;
  }
}

declare module 'mortise:plugin/policy@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  export type Finish = import('mortise:plugin/types@0.3.0').Finish;
  /** What is known when a request arrives. */
  export interface Facts {
    /** The server's id of the request. */
    requestId: string;
    /** The route pattern, such as `/v1/chat/completions`. */
    route: string;
    /** HTTP method in capitals. */
    method: string;
    /** IP address of the peer. */
    peer: string;
    /** Request headers that were granted to this binding, names in lower case. */
    headers: [string, string][];
    /** The model asked for; none on routes without one. */
    model?: string | null | undefined;
    /** The answer is streamed. */
    streaming: boolean;
    /** Limit on generated tokens over all choices, if the request set one. */
    maxTokens?: number | null | undefined;
    /** Names of the functions that the caller declares, which the caller runs. */
    tools: string[];
    /** Names of the server's tools that the request opts in to. */
    serverTools: string[];
  }
  /** Which tools a request may have, by their names. */
  export type ToolGrant =
    // All that it asks for.
    | { tag: 'all' }
    // No others than these.
    | { tag: 'only'; val: string[] }
    // All but these.
    | { tag: 'all-but'; val: string[] };
  /** Who is asking. */
  export interface Principal {
    /** Stable id of the caller, fit for logs: never the credential itself. */
    subject: string;
    /** The account that usage and fairness are kept by. */
    tenant?: string | null | undefined;
    /** Further labels for the access log. */
    labels: [string, string][];
  }
  /** Where the text of a system prompt goes. */
  export type SystemPlace =
    // Before the conversation, if it has no system message of its own; else nowhere.
    | 'if-absent'
    // Before the conversation, and before a system message of its own.
    | 'before'
    // In place of the system messages with which the conversation begins.
    | 'instead';
  /** A system prompt. */
  export interface SystemPrompt {
    /** Its text. */
    text: string;
    /** Where it goes. */
    place: SystemPlace;
  }
  /**
   * A change of the request. The operator grants each of them to a binding by the name in quotes;
   * one that was not granted is a defect of the plugin, and the request fails by the binding's
   * failure policy. At most one of each.
   */
  export type Rewrite =
    // `system`: a system prompt. Prompts without messages stay as they are.
    | { tag: 'system'; val: SystemPrompt }
    // `max_tokens`: the limit on generated tokens of each choice where the request sets none.
    | { tag: 'max-tokens'; val: number }
    // `model`: this model answers instead. It must exist, and the other policies that concern it are asked
    // about it, too. The answer names the model that gave it.
    | { tag: 'model'; val: string }
    // `temperature`: the sampling temperature, from 0 to 2, where the request sets none.
    | { tag: 'temperature'; val: number };
  /** The request may go on. */
  export interface Allow {
    /** Who is asking. */
    principal: Principal;
    /** Higher is served first; 0 is normal. */
    priority: number;
    /** A tighter limit on generated tokens. */
    maxTokens?: number | null | undefined;
    /**
     * Which functions the caller may declare. A request that declares another is refused with 403
     * `tool_not_allowed`, which names it; nothing is left out in silence.
     */
    tools: ToolGrant;
    /** Which of the server's tools the request may opt in to; any other is refused likewise. */
    serverTools: ToolGrant;
    /** Response headers to add; the host passes on `x-…` and `ratelimit-…` only. */
    headers: [string, string][];
    /** Handed back in `account`. */
    lease?: string | null | undefined;
    /** Changes of the request, as far as the binding is granted them. */
    rewrites: Rewrite[];
  }
  /** The request ends here. */
  export interface Deny {
    /** HTTP status, 400 to 499. */
    status: number;
    /** `error.type`, such as `authentication_error`. */
    kind: string;
    /** `error.code`, such as `invalid_api_key`. */
    code: string;
    /** `error.message`. */
    message: string;
    /** Becomes `Retry-After`. */
    retryAfterMs?: number | null | undefined;
    /** Response headers to add; the host passes on `x-…`, `ratelimit-…` and `www-authenticate`. */
    headers: [string, string][];
  }
  /** What a policy says. If every policy of a chain abstains, the request is refused. */
  export type Decision =
    // Let it pass, as this principal.
    | { tag: 'allow'; val: Allow }
    // Refuse it.
    | { tag: 'deny'; val: Deny }
    // Not for this policy to say; ask the next one.
    | { tag: 'abstain' };
  /** What a request came to. */
  export interface Usage {
    /** The server's id of the request. */
    requestId: string;
    /** From `allow`. */
    lease?: string | null | undefined;
    /** From `allow`. */
    subject: string;
    /** From `allow`. */
    tenant?: string | null | undefined;
    /** The model that answered. */
    model: string;
    /** Tokens of the prompt. */
    promptTokens: number;
    /** Of those, tokens whose keys and values were cached. */
    cachedTokens: number;
    /** Tokens generated over all choices. */
    completionTokens: number;
    /** How the first choice ended. */
    finish: Finish;
    /** From arrival to the last byte. */
    wallMs: number;
  }
  /** Decides who may do what, and learns what was used. */
  export interface Policy {
    /**
     * Called before anything else is done for a request.
     * @throws {Fault}
     */
    authorize(facts: Facts): Decision;
    /**
     * Called after an allowed request has ended, however it ended; never on its path.
     * @throws {Fault}
     */
    account(usage: Usage): void;
  }
}

declare module 'mortise:plugin/tool@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  /** A tool, as the model is told of it. */
  export interface Declaration {
    /** 1 to 64 ASCII letters, digits, `_` or `-`; unique in the component. */
    name: string;
    /** What it does and when to use it. */
    description: string;
    /** JSON Schema of the arguments. Its root describes an object. */
    parameters: Json;
  }
  /** What a call is made for. */
  export interface Context {
    /** The server's id of the request. */
    requestId: string;
    /** The id of the call within the request. */
    callId: string;
    /** The model that calls. */
    model: string;
    /** Who is asking, as a policy has it: `policy.principal.subject`. */
    subject: string;
    /** The account of the caller, if a policy named one. */
    tenant?: string | null | undefined;
  }
  /** Why a call has no result. */
  export type Failure =
    // It cannot be done as asked: arguments that make no sense, nothing found, a site that does not
    // answer. The model is told so with this text (cut to 1 KiB), and goes on.
    | { tag: 'refused'; val: string }
    // A defect or a spent budget of the plugin. The host applies the failure policy of the binding.
    | { tag: 'internal'; val: string };
  /**
   * Offers tools that the server runs itself while a model answers.
   *
   * A request opts in to tools by their names. The model is told of them as of any other; when it
   * calls one, the host calls the plugin, shows the result to the model, and lets it go on. Calls of
   * one answer may run side by side, each on an instance of its own.
   */
  export interface Tool {
    /** The tools that this component has under its settings: 1 to 64. Asked once after `prepare`. */
    describe(): Declaration[];
    /**
     * Run the tool `name`. The host has checked `arguments`, an object, against `parameters`. The
     * result is text for the model; JSON if the author likes.
     * @throws {Failure}
     */
    call(name: string, arguments_: Json, context: Context): string;
  }
}

declare module 'mortise:plugin/guardrail@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  export type Finish = import('mortise:plugin/types@0.3.0').Finish;
  /** What the guardrail looks at. Of the rest it is told nothing. */
  export interface Traits {
    /** Conversations and prompts, before the model sees them. */
    input: boolean;
    /** Text for the user. */
    content: boolean;
    /** Text of the reasoning block. */
    reasoning: boolean;
    /** Arguments of tool calls. */
    callArguments: boolean;
  }
  /** What a text belongs to. */
  export interface Context {
    /** The server's id of the request. */
    requestId: string;
    /** The model that answers. */
    model: string;
    /** Who is asking, as a policy has it: `policy.principal.subject`. */
    subject: string;
    /** The account of the caller, if a policy named one. */
    tenant?: string | null | undefined;
    /** Text waits for the verdict. If not, it is out already. */
    holds: boolean;
  }
  /** A tool call that the model writes. */
  export interface Call {
    /** Which call of the choice, from 0. */
    index: number;
    /** Name of the tool. */
    name: string;
  }
  /** Part of a choice. */
  export type Part =
    // Text for the user.
    | { tag: 'content' }
    // Text of the reasoning block.
    | { tag: 'reasoning' }
    // Arguments of a tool call: JSON text.
    | { tag: 'call-arguments'; val: Call };
  /** Why a text is refused. */
  export interface Refusal {
    /** For logs and metrics: 1 to 64 small ASCII letters, digits or `_`. */
    code: string;
    /** For the caller, where the input is refused (cut to 1 KiB). */
    message: string;
  }
  /** What a guardrail says of the text so far. */
  export type Verdict =
    // All of it may go out.
    | { tag: 'pass' }
    // It takes more text to tell. Held text stays back until the next verdict on this part, or until as
    // much is held as the binding allows, or the part ends; then it goes out, the oldest first.
    | { tag: 'undecided' }
    // This text goes out in place of what is held of the part. For content and reasoning
    // where `context.holds`; anywhere else it is an invalid answer.
    | { tag: 'replace'; val: string }
    // The choice ends here, with the finish reason `content_filter`. What is held does not go out.
    | { tag: 'refuse'; val: Refusal };
  /** One choice being looked at. */
  export interface Session {
    /**
     * Take the next text of a part. It is cut where tokens end, and a verdict stands for all that was
     * handed over so far. Of that, the last `held` bytes before `text` are still held back.
     * @throws {Fault}
     */
    feed(part: Part, text: string, held: number): Verdict;
    /**
     * The choice has ended. Of the part that came last, the last `held` bytes are held back. Called once,
     * last.
     * @throws {Fault}
     */
    close(reason: Finish, held: number): Verdict;
  }
  /**
   * Looks at what callers ask and at what models answer, and may refuse it.
   *
   * The operator chooses when the verdict comes: while the text is on its way already, or before it, in
   * which case the host holds back a bounded number of tokens.
   */
  export interface Guardrail {
    Session: new (...args: any[]) => Session;
    /** Asked once after `prepare`. */
    describe(): Traits;
    /**
     * Look at the messages of a request: an array of OpenAI chat messages, or a string, the prompt. Only
     * `pass` and `refuse` are verdicts on them.
     * @throws {Fault}
     */
    checkInput(context: Context, messages: Json): Verdict;
    /**
     * Open a session for one choice; none if nothing in it is to be looked at.
     * @throws {Fault}
     */
    open(context: Context): Session | null | undefined;
  }
}

declare module 'mortise:plugin/retriever@0.3.0' {
  export type Fault = import('mortise:plugin/types@0.3.0').Fault;
  /** What the retriever does. It is not called for the rest. */
  export interface Traits {
    /** `chunk`. */
    chunk: boolean;
    /** `rewrite`. */
    rewrite: boolean;
    /** `assemble`. */
    assemble: boolean;
  }
  /** What a call is made for. */
  export interface Context {
    /** The server's id of the request, or of the work in the background. */
    requestId: string;
    /** The id of the collection. */
    collection: string;
    /** Who is asking, as a policy has it: `policy.principal.subject`. */
    subject: string;
    /** The account of the caller, if a policy named one. */
    tenant?: string | null | undefined;
  }
  /** A document that is to be divided. */
  export interface Document {
    /** The name of its file. */
    name: string;
    /** `text/plain`, `text/markdown`, `text/html` or `application/pdf`: what the text was taken from. */
    mediaType: string;
    /** Its text. Of Markdown, HTML and PDF, headings are lines that begin with `#`. */
    text: string;
  }
  /** How large chunks may be. */
  export interface Sizes {
    /** Tokens of the embedding model that a chunk may have. The host divides what has more. */
    maxTokens: number;
    /** Tokens that a chunk may share with the one before. */
    overlapTokens: number;
    /** Bytes of this text that have about `max-tokens`, by its beginning. */
    aboutBytes: number;
    /** Chunks that there may be. */
    maxChunks: number;
  }
  /** Part of the text, in bytes of UTF-8. */
  export interface Span {
    /** The first byte. */
    start: number;
    /** Behind the last byte. */
    end: number;
  }
  /** A passage that was found. */
  export interface Candidate {
    /** The name of its document. */
    document: string;
    /** The first byte in the document's text. */
    start: number;
    /** Behind its last byte. */
    end: number;
    /** Its text. */
    text: string;
    /** How well it fits, by the search. */
    score: number;
    /** Cosine of its vector and that of the query. */
    similarity: number;
    /** Tokens of the answering model that it takes, with what the host writes around it. */
    tokens: number;
  }
  /** Room for passages. */
  export interface Budget {
    /** Passages at most. */
    passages: number;
    /** Tokens of all of them together at most. */
    tokens: number;
  }
  /** What stands between two passages. Each has a line with its number and the name of its document before it. */
  export type Joint =
    // An empty line.
    | 'blank-line'
    // A line `---` between empty ones.
    | 'rule';
  /** The passages that the model is given. */
  export interface Assembly {
    /** Indices of candidates, in the order in which the model reads them: each once, and within the budget. */
    chosen: number[];
    /** How they are joined. */
    joint: Joint;
  }
  /**
   * Divides documents into chunks, rewrites queries, and chooses the passages that a model is given.
   *
   * A plugin does one of these or several; for the others the host's own way serves. Texts of documents are the host's: a
   * plugin points at them, by offsets and by indices, and adds no text to what a model reads.
   */
  export interface Retriever {
    /** Asked once after `prepare`. At least one of them. */
    describe(): Traits;
    /**
     * Divide a document. Spans are not empty, begin and end on the boundaries of characters, and each begins and ends behind
     * where the one before does. They may overlap; together they have at most four times the bytes of the text. What
     * no span has is not found.
     * @throws {Fault}
     */
    chunk(context: Context, document: Document, sizes: Sizes): Span[];
    /**
     * The texts to search for in place of a query: 1 to 8, none of them blank or of more than 16 KiB.
     * @throws {Fault}
     */
    rewrite(context: Context, query: string): string[];
    /**
     * Choose passages, the best of which stands first among the candidates.
     * @throws {Fault}
     */
    assemble(context: Context, query: string, candidates: Candidate[], budget: Budget): Assembly;
  }
}

declare module 'mortise:plugin/host@0.3.0' {
  /** Severity of a log line. */
  export type Level =
    // Step-by-step detail.
    | 'trace'
    // For the author of the plugin.
    | 'debug'
    // For the operator, in normal running.
    | 'info'
    // Something was wrong and was dealt with.
    | 'warn'
    // A request failed because of the plugin.
    | 'error';
  /**
   * Write one structured line to the server's log. The host adds plugin, version and request,
   * escapes control characters, and drops lines beyond 64 KiB a call.
   */
  export function log(level: Level, message: string, fields: [string, string][]): void;
  /**
   * Add to the counter `mortise_plugin_custom_total{plugin,name}`. A plugin may use 16 names;
   * further ones are counted under `other`.
   */
  export function count(name: string, by: number): void;
}

declare module 'mortise:plugin/settings@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  /**
   * The binding's table of the configuration file as a JSON object; `{}` when there is none.
   * It does not change while an instance lives.
   */
  export function get(): Json;
}

declare module 'mortise:plugin/inner-settings@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  /**
   * The member `inner` of the binding's table as a JSON object, which `settings` then leaves out; `{}` when there is
   * none.
   */
  export function get(): Json;
}

declare module 'mortise:plugin/model@0.3.0' {
  export type Json = import('mortise:plugin/types@0.3.0').Json;
  /** A token that the tokenizer treats as one unit, outside its ordinary vocabulary. */
  export interface ControlToken {
    /** Token id. */
    id: number;
    /** Its text, such as `<|im_end|>`. */
    text: string;
    /** Marked `special` in the tokenizer file: left out of generated text. */
    special: boolean;
  }
  /** What the model's files say. */
  export interface Description {
    /** The public name of the model. */
    name: string;
    /** `model_type` or GGUF architecture, such as `qwen3`. */
    architecture: string;
    /** The Jinja source of the chat template, if the model has one. */
    chatTemplate?: string | null | undefined;
    /** Text of the beginning-of-sequence token; empty if there is none. */
    bosToken: string;
    /** Text of the end-of-sequence token; empty if there is none. */
    eosToken: string;
    /** Every control token of the tokenizer. */
    controlTokens: ControlToken[];
  }
  /** The model this instance serves. */
  export function describe(): Description;
  /**
   * The `response_template` of the model's `tokenizer_config.json`, which says how answers of the model are taken apart;
   * none if there is none.
   */
  export function responseTemplate(): Json | null | undefined;
}
