/* A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it; tools, their calls and
 * results as the models of Hermes and Qwen read them. Rules from the settings, {"rules": "…"}, stand before
 * every conversation. */

#include <stdio.h>

#include "chat_template_plugin.h"
#include "json.h"

typedef exports_mortise_plugin_chat_template_segment_t segment_t;

/* What the operator wants said first, or NULL. */
static char *rules;

/* The prompt so far; what it holds is freed by the glue once it has been handed out. */
static struct {
  segment_t *segments;
  size_t count, room;
} prompt;

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  chat_template_plugin_string_t settings;
  mortise_plugin_settings_get(&settings);
  const char *text = (const char *)settings.ptr;
  rules = json_string(json_member(text, text + settings.len, "rules"), text + settings.len);
  chat_template_plugin_string_free(&settings);
  return true;
}

static chat_template_plugin_string_t *push(uint8_t tag) {
  if (prompt.count == prompt.room) {
    prompt.room = prompt.room ? prompt.room * 2 : 16;
    prompt.segments = realloc(prompt.segments, prompt.room * sizeof *prompt.segments);
    if (!prompt.segments) abort();
  }
  segment_t *segment = &prompt.segments[prompt.count++];
  segment->tag = tag;
  return &segment->val.plain;
}

static void special(const char *text) {
  chat_template_plugin_string_dup(push(EXPORTS_MORTISE_PLUGIN_CHAT_TEMPLATE_SEGMENT_SPECIAL), text);
}

static void plain(const char *text) {
  if (!*text) return;
  chat_template_plugin_string_dup(push(EXPORTS_MORTISE_PLUGIN_CHAT_TEMPLATE_SEGMENT_PLAIN), text);
}

/* Only markers are special: whatever a user writes stays plain text, and never becomes a control token. */
static void marked(const char *before, const char *marker, const char *after) {
  plain(before);
  special(marker);
  plain(after);
}

/* A JSON value as plain text, with a blank behind each `,` and `:`, as models saw it when they were trained. */
static void json_plain(const char *value, const char *end) {
  const char *last = json_end(value, end, JSON_MAX_DEPTH);
  if (!last) return;
  char *text = malloc(2 * (size_t)(last - value) + 1), *out = text;
  if (!text) abort();
  bool quoted = false, escaped = false;
  for (const char *at = value; at < last; at++) {
    *out++ = *at;
    if (escaped) escaped = false;
    else if (*at == '\\') escaped = true;
    else if (*at == '"') quoted = !quoted;
    else if (!quoted && (*at == ',' || *at == ':')) *out++ = ' ';
  }
  *out = 0;
  plain(text);
  free(text);
}

static bool has_role(const char *message, const char *end, const char *wanted) {
  char *role = message ? json_string(json_member(message, end, "role"), end) : NULL;
  bool has = role && !strcmp(role, wanted);
  free(role);
  return has;
}

/* The calls of a message; NULL if it has none. */
static const char *calls_of(const char *message, const char *end) {
  const char *calls = json_member(message, end, "tool_calls");
  return calls && json_item(calls, NULL, end) ? calls : NULL;
}

/* The text of a message; NULL if it has no such thing. One with nothing but calls has none. */
static char *text_of(const char *message, const char *end) {
  const char *content = json_member(message, end, "content");
  if ((!content || *content == 'n') && calls_of(message, end)) return calloc(1, 1);
  if (!content || *content != '[') return json_string(content, end);
  char *text = calloc(1, 1);
  for (const char *part = NULL; text && (part = json_item(content, part, end));) {
    char *more = json_string(json_member(part, end, "text"), end);
    if (more) {
      if (!(text = realloc(text, strlen(text) + strlen(more) + 1))) abort();
      strcat(text, more);
    } else {
      free(text);
      text = NULL;
    }
    free(more);
  }
  return text;
}

/* The first turn: what the operator and the caller want said first, and the tools. */
static void system_turn(const char *first, const char *tools, const char *end) {
  bool says = first && *first, ruled = rules && *rules;
  if (!says && !ruled && !tools) return;
  marked("", "<|im_start|>", "system\n");
  if (ruled) plain(rules);
  if (ruled && says) plain("\n\n");
  if (says) plain(first);
  if (tools) {
    if (ruled || says) plain("\n\n");
    plain("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
          "You are provided with function signatures within <tools></tools> XML tags:\n<tools>");
    for (const char *tool = NULL; (tool = json_item(tools, tool, end));) {
      plain("\n");
      json_plain(tool, end);
    }
    plain("\n</tools>\n\nFor each function call, return a json object with function name and "
          "arguments within ");
    marked("", "<tool_call></tool_call>", " XML tags:\n");
    marked("", "<tool_call>", "\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n");
    special("</tool_call>");
  }
  marked("", "<|im_end|>", "\n");
}

static void calls_turn(const char *calls, const char *end, bool follows) {
  for (const char *call = NULL; (call = json_item(calls, call, end)); follows = true) {
    const char *function = json_member(call, end, "function");
    const char *name = json_member(function, end, "name");
    const char *arguments = json_member(function, end, "arguments");
    char *text = json_string(arguments, end);
    marked(follows ? "\n" : "", "<tool_call>", "\n{\"name\": ");
    if (name) json_plain(name, end);
    plain(", \"arguments\": ");
    if (text) plain(text);
    else if (arguments) json_plain(arguments, end);
    marked("}\n", "</tool_call>", "");
    free(text);
  }
}

/* One message. Results of tools that follow one another make one turn. */
static void turn(const char *before, const char *message, const char *after, const char *end,
                 const char *content, bool thoughts, bool open) {
  if (has_role(message, end, "tool")) {
    if (!has_role(before, end, "tool")) marked("", "<|im_start|>", "user");
    marked("\n", "<tool_response>", "\n");
    plain(content);
    marked("\n", "</tool_response>", "");
    if (!has_role(after, end, "tool")) marked("", "<|im_end|>", "\n");
    return;
  }
  char *role = json_string(json_member(message, end, "role"), end);
  marked("", "<|im_start|>", role ? role : "user");
  plain("\n");
  free(role);
  char *reasoning = thoughts ? json_string(json_member(message, end, "reasoning_content"), end) : NULL;
  if (reasoning) {
    char *first = reasoning + strspn(reasoning, "\n");
    for (size_t length = strlen(first); length && first[length - 1] == '\n';) first[--length] = 0;
    marked("", "<think>", "\n");
    plain(first);
    marked("\n", "</think>", "\n\n");
    free(reasoning);
  }
  plain(content);
  const char *calls = calls_of(message, end);
  if (calls) calls_turn(calls, end, *content);
  if (!open) marked("", "<|im_end|>", "\n");
}

/* The messages behind the first `from`; -1, or the number of one that has no text. */
static int turns(const char *messages, const char *end, int from, bool continues) {
  /* What the model thought before the last question is not shown to it again. */
  int question = -1, number = 0;
  for (const char *item = NULL; (item = json_item(messages, item, end)); number++)
    if (has_role(item, end, "user")) question = number;
  const char *before = NULL;
  number = 0;
  for (const char *item = NULL; (item = json_item(messages, item, end)); before = item, number++) {
    if (number < from) continue;
    char *content = text_of(item, end);
    if (!content) return number;
    const char *after = json_item(messages, item, end);
    turn(before, item, after, end, content, number > question, continues && !after);
    free(content);
  }
  return -1;
}

bool exports_mortise_plugin_chat_template_render(exports_mortise_plugin_chat_template_input_t *input,
                                                 exports_mortise_plugin_chat_template_output_t *ret,
                                                 exports_mortise_plugin_chat_template_fault_t *err) {
  const char *messages = (const char *)input->messages.ptr, *end = messages + input->messages.len;
  memset(&prompt, 0, sizeof prompt);
  memset(ret, 0, sizeof *ret);
  const char *item = json_item(messages, NULL, end);
  bool led = has_role(item, end, "system");
  char *first = led ? text_of(item, end) : NULL;
  const char *tools = input->tools.is_some ? (const char *)input->tools.val.ptr : NULL;
  const char *tools_end = tools ? tools + input->tools.val.len : NULL;
  system_turn(first, tools && json_item(tools, NULL, tools_end) ? tools : NULL, tools_end);
  int wrong = led && !first ? 0 : turns(messages, end, led, input->continue_final_message);
  free(first);
  if (input->add_generation_prompt) marked("", "<|im_start|>", "assistant\n");
  ret->segments.ptr = prompt.segments;
  ret->segments.len = prompt.count;
  if (wrong >= 0) {
    char text[128];
    snprintf(text, sizeof text, "messages[%d].content must be text for this template", wrong);
    err->tag = MORTISE_PLUGIN_TYPES_FAULT_INVALID;
    chat_template_plugin_string_dup(&err->val.invalid, text);
    exports_mortise_plugin_chat_template_list_segment_free(&ret->segments);
  }
  exports_mortise_plugin_chat_template_input_free(input);
  return wrong < 0;
}
