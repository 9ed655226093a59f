// Answers that search in documents. The route for them has another shape than that of chats; here it becomes the same chunks.

import { partOf } from "./attachments.js";
import { respond } from "./api.js";

/** Results of a search that the model is given at most. */
const RESULTS = 8;

/** Fields of both routes. */
const SAME = ["temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "seed", "stop", "server_tools"];

const textOf = (text) => ({ type: "input_text", text });

function inputPart(file) {
  const part = partOf(file);
  return part.type === "image_url" ? { type: "input_image", image_url: part.image_url.url } : part;
}

function items(message) {
  const { role, content } = message;
  if (role === "user") return [{ type: "message", role, content: message.files.length ? [textOf(content), ...message.files.map(inputPart)] : content }];
  if (role === "tool") return [{ type: "function_call_output", call_id: message.call, output: content }];
  const searches = message.searches.map(({ query, results }) => ({ type: "file_search_call", status: "completed", queries: [query], results }));
  const ran = message.ran.map((call) => ({ type: "mcp_call", server_label: "server", name: call.name, arguments: call.arguments, output: call.output }));
  const calls = message.calls.map((call) => ({ type: "function_call", call_id: call.id, name: call.name, arguments: call.arguments }));
  return [
    ...(message.reasoning ? [{ type: "reasoning", summary: [], content: [{ type: "reasoning_text", text: message.reasoning }] }] : []),
    ...searches,
    ...ran,
    ...(content ? [{ type: "message", role, content: [{ type: "output_text", text: content, annotations: [] }] }] : []),
    ...calls,
  ];
}

/** The request of a chat as one that searches in collections. */
function bodyOf(chat, stores, messages) {
  const { model, max_tokens, reasoning_effort: effort, tools, response_format: format, logprobs, top_logprobs } = chat;
  const [first] = chat.messages;
  return {
    model,
    input: messages.flatMap(items),
    ...(first?.role === "system" && { instructions: first.content }),
    ...(max_tokens !== undefined && { max_output_tokens: max_tokens }),
    ...(effort && { reasoning: { effort } }),
    ...(format && { text: { format: { type: "json_schema", ...format.json_schema } } }),
    ...(logprobs && { top_logprobs }),
    ...Object.fromEntries(SAME.filter((name) => chat[name] !== undefined).map((name) => [name, chat[name]])),
    include: ["file_search_call.results", ...(logprobs ? ["message.output_text.logprobs"] : [])],
    tools: [...(tools ?? []).map(({ function: declared }) => ({ type: "function", ...declared })), { type: "file_search", vector_store_ids: stores, max_num_results: RESULTS }],
    store: false,
    stream: true,
  };
}

/** The request by which the prompt of an answer that searches is rendered. */
export const renderOf = (chat, { stores, messages }) => ({ ...bodyOf(chat, stores, messages), stream: false });

const chunk = (delta, more = {}) => ({ choices: [{ delta, ...more }] });

/** The end of a response: why it ended, and what it took. */
function* ending({ status, incomplete_details: why, usage }) {
  const reasons = { max_output_tokens: "length", content_filter: "content_filter" };
  yield chunk({}, { finish_reason: status === "incomplete" ? (reasons[why?.reason] ?? why?.reason) : "stop" });
  if (usage) yield { choices: [], usage: { prompt_tokens: usage.input_tokens, completion_tokens: usage.output_tokens, prompt_tokens_details: usage.input_tokens_details } };
}

/** Chunks of an answer to a chat's request that searches in collections. */
export async function* searched(chat, { stores, messages }, signal) {
  const calls = new Map();
  for await (const event of respond(bodyOf(chat, stores, messages), signal)) {
    const { type, item, delta } = event;
    if (type === "response.output_text.delta") {
      yield chunk({ content: delta }, event.logprobs?.length ? { logprobs: { content: event.logprobs } } : {});
    } else if (type === "response.reasoning_text.delta") {
      yield chunk({ reasoning_content: delta });
    } else if (type === "response.output_item.added" && item.type === "function_call") {
      calls.set(event.output_index, calls.size);
      yield chunk({ tool_calls: [{ index: calls.get(event.output_index), id: item.call_id, function: { name: item.name } }] });
    } else if (type === "response.function_call_arguments.delta") {
      yield chunk({ tool_calls: [{ index: calls.get(event.output_index), function: { arguments: delta } }] });
    } else if (type === "response.output_item.done" && item.type === "mcp_call") {
      const { id, name, arguments: given, error, output } = item;
      yield chunk({ server_tool_calls: [{ id, name, arguments: given, outcome: error ? "failed" : "answered", output: error ?? output ?? "" }] });
    } else if (type === "response.output_item.done" && item.type === "file_search_call") {
      yield chunk({ searches: [{ query: item.queries?.[0], results: item.results, failed: item.status === "failed" }] });
    } else if (type === "response.output_text.annotation.added") {
      yield chunk({ citations: [event.annotation] });
    } else if (["response.completed", "response.incomplete"].includes(type)) {
      yield* ending(event.response);
    }
  }
}
