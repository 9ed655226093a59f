/* A guardrail: it refuses what asks for a word of a list, and ends or mends answers that say one. Settings:
 * {"words": ["swordfish"], "replace_with": "***"}. Letters of ASCII are alike in any case. */

#include "guardrail_plugin.h"
#include "json.h"

typedef exports_mortise_plugin_guardrail_session_t session_t;
typedef exports_mortise_plugin_guardrail_verdict_t verdict_t;

/* One answer being read. */
struct exports_mortise_plugin_guardrail_session_t {
  bool mends;
  char *text; /* since all of it went out */
  size_t length;
};

/* The words, each a C string, and the text that takes their place; NULL if answers are refused instead. */
static char **words;
static size_t word_count;
static char *replace_with;

static void *grown(void *memory, size_t size) {
  memory = realloc(memory, size);
  if (!memory) abort();
  return memory;
}

static void add_word(char *word) {
  words = grown(words, (word_count + 1) * sizeof *words);
  words[word_count++] = word;
}

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  guardrail_plugin_string_t settings;
  mortise_plugin_settings_get(&settings);
  const char *text = (const char *)settings.ptr, *end = text + settings.len;
  const char *list = json_member(text, end, "words");
  for (const char *item = NULL; list && (item = json_item(list, item, end));) {
    char *word = json_string(item, end);
    if (word) add_word(word);
  }
  if (!list) add_word(strdup("swordfish"));
  replace_with = json_string(json_member(text, end, "replace_with"), end);
  guardrail_plugin_string_free(&settings);
  return true;
}

void exports_mortise_plugin_guardrail_describe(exports_mortise_plugin_guardrail_traits_t *ret) {
  ret->input = ret->content = true;
  ret->reasoning = ret->call_arguments = false;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c; }

/* Bytes of the text that agree with the word. */
static size_t common(const char *text, size_t length, const char *word) {
  size_t at = 0;
  while (at < length && word[at] && lower(text[at]) == lower(word[at])) at++;
  return at;
}

/* The first word in the text: where it begins, and in `size` how long it is; NULL if there is none. */
static const char *find(const char *text, size_t length, size_t *size) {
  for (size_t at = 0; at < length; at++)
    for (size_t i = 0; i < word_count; i++) {
      *size = strlen(words[i]);
      if (common(text + at, length - at, words[i]) == *size) return text + at;
    }
  return NULL;
}

/* Whether the text ends in the middle of a word. */
static bool may_go_on(const char *text, size_t length) {
  for (size_t at = 0; at < length; at++)
    for (size_t i = 0; i < word_count; i++)
      if (common(text + at, length - at, words[i]) == length - at && words[i][length - at]) return true;
  return false;
}

static void refuse(verdict_t *ret, const char *message) {
  ret->tag = EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_REFUSE;
  guardrail_plugin_string_dup(&ret->val.refuse.code, "word");
  guardrail_plugin_string_dup(&ret->val.refuse.message, message);
}

/* Whether a JSON string has a word. */
static bool has_word(const char *value, const char *end) {
  size_t size;
  char *text = json_string(value, end);
  bool found = text && find(text, strlen(text), &size);
  free(text);
  return found;
}

/* Whether the content of a message has one: a text, or parts of which some have a text. */
static bool content_has_word(const char *content, const char *end) {
  bool found = has_word(content, end);
  for (const char *part = NULL; content && !found && (part = json_item(content, part, end));)
    found = has_word(json_member(part, end, "text"), end);
  return found;
}

bool exports_mortise_plugin_guardrail_check_input(exports_mortise_plugin_guardrail_context_t *context,
                                                  exports_mortise_plugin_guardrail_json_t *messages,
                                                  verdict_t *ret,
                                                  exports_mortise_plugin_guardrail_fault_t *err) {
  const char *all = (const char *)messages->ptr, *end = all + messages->len;
  /* A prompt is a text. */
  bool found = has_word(json_space(all, end), end);
  for (const char *message = NULL; !found && (message = json_item(all, message, end));)
    found = content_has_word(json_member(message, end, "content"), end);
  ret->tag = EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_PASS;
  if (found) refuse(ret, "the conversation has a word that may not be used");
  exports_mortise_plugin_guardrail_context_free(context);
  guardrail_plugin_string_free(messages);
  return true;
}

bool exports_mortise_plugin_guardrail_open(exports_mortise_plugin_guardrail_context_t *context,
                                           exports_mortise_plugin_guardrail_option_own_session_t *ret,
                                           exports_mortise_plugin_guardrail_fault_t *err) {
  session_t *session = grown(NULL, sizeof *session);
  /* Only what waits for the verdict can be mended. */
  *session = (session_t){.mends = context->holds && replace_with};
  ret->is_some = true;
  ret->val = exports_mortise_plugin_guardrail_session_new(session);
  exports_mortise_plugin_guardrail_context_free(context);
  return true;
}

void exports_mortise_plugin_guardrail_session_destructor(session_t *session) {
  free(session->text);
  free(session);
}

/* Append to a text. */
static void append(char **text, size_t *length, const char *more, size_t count) {
  *text = grown(*text, *length + count + 1);
  memcpy(*text + *length, more, count);
  *length += count;
}

/* The text with all words replaced, to be freed by the glue. */
static void mended(guardrail_plugin_string_t *ret, const char *text, size_t length) {
  char *said = NULL;
  size_t said_length = 0, size;
  for (const char *word; (word = find(text, length, &size));) {
    append(&said, &said_length, text, (size_t)(word - text));
    append(&said, &said_length, replace_with, strlen(replace_with));
    length -= (size_t)(word - text) + size;
    text = word + size;
  }
  append(&said, &said_length, text, length);
  ret->ptr = (uint8_t *)said;
  ret->len = said_length;
}

/* The verdict on the text, of which the first `out` bytes went out. */
static void judge(session_t *session, size_t out, verdict_t *ret) {
  size_t size;
  const char *word = find(session->text, session->length, &size);
  ret->tag = EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_PASS;
  if (!word) return;
  if (session->mends && word >= session->text + out) {
    ret->tag = EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_REPLACE;
    mended(&ret->val.replace, session->text + out, session->length - out);
  } else {
    refuse(ret, "the answer has a word that may not be used");
  }
}

static size_t out_of(session_t *session, uint32_t held) {
  return session->length > held ? session->length - held : 0;
}

bool exports_mortise_plugin_guardrail_method_session_feed(session_t *session,
                                                          exports_mortise_plugin_guardrail_part_t *part,
                                                          guardrail_plugin_string_t *text, uint32_t held,
                                                          verdict_t *ret,
                                                          exports_mortise_plugin_guardrail_fault_t *err) {
  size_t out = out_of(session, held);
  append(&session->text, &session->length, (const char *)text->ptr, text->len);
  judge(session, out, ret);
  /* The end may belong to another word; once it does not, the text is mended as a whole. */
  bool refused = ret->tag == EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_REFUSE;
  if (!refused && may_go_on(session->text, session->length)) {
    exports_mortise_plugin_guardrail_verdict_free(ret);
    ret->tag = EXPORTS_MORTISE_PLUGIN_GUARDRAIL_VERDICT_UNDECIDED;
  } else {
    session->length = 0;
  }
  exports_mortise_plugin_guardrail_part_free(part);
  guardrail_plugin_string_free(text);
  return true;
}

bool exports_mortise_plugin_guardrail_method_session_close(session_t *session,
                                                           exports_mortise_plugin_guardrail_finish_t reason,
                                                           uint32_t held, verdict_t *ret,
                                                           exports_mortise_plugin_guardrail_fault_t *err) {
  judge(session, out_of(session, held), ret);
  return true;
}
