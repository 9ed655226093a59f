/* A chat template: turns stand between <|im_start|> and <|im_end|>, as ChatML has it. Rules from the
 * settings, {"rules": "…"}, stand before every conversation. */

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
  chat_template_plugin_string_dup(push(EXPORTS_MORTISE_PLUGIN_CHAT_TEMPLATE_SEGMENT_PLAIN), text);
}

/* One turn. Only the markers are special: whatever a user writes stays plain text, and never becomes
 * a control token. */
static void turn(const char *role, const char *content) {
  special("<|im_start|>");
  plain(role);
  plain("\n");
  plain(content);
  special("<|im_end|>");
  plain("\n");
}

bool exports_mortise_plugin_chat_template_render(exports_mortise_plugin_chat_template_input_t *input,
                                                 exports_mortise_plugin_chat_template_output_t *ret,
                                                 exports_mortise_plugin_chat_template_fault_t *err) {
  const char *messages = (const char *)input->messages.ptr, *end = messages + input->messages.len;
  bool renders = true;
  memset(&prompt, 0, sizeof prompt);
  memset(ret, 0, sizeof *ret);
  if (rules) turn("system", rules);
  int index = 0;
  for (const char *item = NULL; renders && (item = json_item(messages, item, end)); index++) {
    char *role = json_string(json_member(item, end, "role"), end);
    char *content = json_string(json_member(item, end, "content"), end);
    if (content) {
      turn(role ? role : "user", content);
    } else {
      char text[128];
      snprintf(text, sizeof text, "messages[%d].content must be text for this template", index);
      err->tag = MORTISE_PLUGIN_TYPES_FAULT_INVALID;
      chat_template_plugin_string_dup(&err->val.invalid, text);
      renders = false;
    }
    free(role);
    free(content);
  }
  if (input->add_generation_prompt) {
    special("<|im_start|>");
    plain("assistant\n");
  }
  ret->segments.ptr = prompt.segments;
  ret->segments.len = prompt.count;
  if (!renders) exports_mortise_plugin_chat_template_list_segment_free(&ret->segments);
  exports_mortise_plugin_chat_template_input_free(input);
  return renders;
}
