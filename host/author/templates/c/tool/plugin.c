/* A tool: it counts what a text has, since language models are bad at counting. The model calls
 * count_text with a text; the settings may bound the text: {"max_bytes": 1000}. */

#include <stdio.h>

#include "json.h"
#include "tool_plugin.h"

static const char parameters[] =
    "{\"type\": \"object\", \"properties\": {\"text\": {\"type\": \"string\", "
    "\"description\": \"The text to count.\"}}, \"required\": [\"text\"], "
    "\"additionalProperties\": false}";

/* The longest text that is counted. */
static unsigned long max_bytes = 100000;

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  tool_plugin_string_t settings;
  mortise_plugin_settings_get(&settings);
  const char *text = (const char *)settings.ptr;
  const char *limit = json_member(text, text + settings.len, "max_bytes");
  /* The text is JSON, so something that is no digit follows the number. */
  if (limit) max_bytes = strtoul(limit, NULL, 10);
  tool_plugin_string_free(&settings);
  return true;
}

void exports_mortise_plugin_tool_describe(exports_mortise_plugin_tool_list_declaration_t *ret) {
  ret->ptr = calloc(1, sizeof *ret->ptr);
  if (!ret->ptr) abort();
  ret->len = 1;
  tool_plugin_string_dup(&ret->ptr->name, "count_text");
  tool_plugin_string_dup(&ret->ptr->description, "Counts the characters, words and lines of a text.");
  tool_plugin_string_dup(&ret->ptr->parameters, parameters);
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool exports_mortise_plugin_tool_call(tool_plugin_string_t *name,
                                      exports_mortise_plugin_tool_json_t *arguments,
                                      exports_mortise_plugin_tool_context_t *context,
                                      tool_plugin_string_t *ret,
                                      exports_mortise_plugin_tool_failure_t *err) {
  /* The host has checked that the arguments follow the schema. */
  const char *object = (const char *)arguments->ptr, *end = object + arguments->len;
  char *text = json_string(json_member(object, end, "text"), end);
  char answer[128];
  bool counted = text && strlen(text) <= max_bytes;
  if (counted) {
    unsigned long characters = 0, words = 0, lines = 0;
    for (const char *at = text; *at; at++) {
      characters += (*at & 0xC0) != 0x80; /* not in the middle of a character */
      words += !is_space(*at) && (at == text || is_space(at[-1]));
      lines += *at == '\n' || !at[1];
    }
    snprintf(answer, sizeof answer, "{\"characters\":%lu,\"words\":%lu,\"lines\":%lu}", characters,
             words, lines);
    tool_plugin_string_dup(ret, answer);
  } else {
    /* The model reads this, and may try again with less. */
    snprintf(answer, sizeof answer, "the text has more than %lu bytes", max_bytes);
    err->tag = EXPORTS_MORTISE_PLUGIN_TOOL_FAILURE_REFUSED;
    tool_plugin_string_dup(&err->val.refused, answer);
  }
  free(text);
  tool_plugin_string_free(name);
  tool_plugin_string_free(arguments);
  exports_mortise_plugin_tool_context_free(context);
  return counted;
}
