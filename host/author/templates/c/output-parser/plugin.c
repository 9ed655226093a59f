/* An output parser for models that write a name and a JSON object between two marks, as format.h says. A
 * call of a tool that was not declared, or one whose arguments are no JSON object, stays content, exactly
 * as it was generated; so does a call whose arguments hold the closing mark. */

#include "format.h"
#include "json.h"
#include "output_parser_plugin.h"

typedef output_parser_plugin_string_t string_t;
typedef exports_mortise_plugin_output_parser_event_t event_t;
typedef exports_mortise_plugin_output_parser_list_event_t events_t;

/* {"open": …, "close": …} in the settings replace them. */
static char *open_mark = OPEN_MARK, *close_mark = CLOSE_MARK;

/* One answer. */
struct exports_mortise_plugin_output_parser_session_t {
  string_t tools;  /* the declarations, JSON text; empty if nothing may be called */
  char *held;      /* text that may yet turn out to be a call */
  size_t length, room;
  size_t searched; /* how much of it is known to hold no closing mark */
  uint32_t calls;
  bool parallel;
};
typedef struct exports_mortise_plugin_output_parser_session_t session_t;

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  string_t settings;
  mortise_plugin_settings_get(&settings);
  const char *text = (const char *)settings.ptr, *end = text + settings.len;
  char *open = json_string(json_member(text, end, "open"), end);
  char *close = json_string(json_member(text, end, "close"), end);
  if (open) open_mark = open;
  if (close) close_mark = close;
  output_parser_plugin_string_free(&settings);
  return true;
}

void exports_mortise_plugin_output_parser_describe(exports_mortise_plugin_output_parser_traits_t *ret) {
  ret->keep_special_tokens = false;
}

bool exports_mortise_plugin_output_parser_constraint(
    exports_mortise_plugin_output_parser_setup_t *setup,
    exports_mortise_plugin_output_parser_grammar_source_t *wanted,
    exports_mortise_plugin_output_parser_option_grammar_source_t *ret,
    exports_mortise_plugin_output_parser_fault_t *err) {
  /* A parser whose calls may be forced returns the grammar of its format here. */
  ret->is_some = wanted != NULL;
  if (wanted) ret->val = *wanted;
  exports_mortise_plugin_output_parser_setup_free(setup);
  return true;
}

bool exports_mortise_plugin_output_parser_open(
    exports_mortise_plugin_output_parser_setup_t *setup,
    exports_mortise_plugin_output_parser_option_own_session_t *ret,
    exports_mortise_plugin_output_parser_fault_t *err) {
  session_t *session = calloc(1, sizeof *session);
  if (!session) abort();
  const char *tools = (const char *)setup->tools.ptr;
  bool none = setup->tool_choice.tag == EXPORTS_MORTISE_PLUGIN_OUTPUT_PARSER_TOOL_CHOICE_NONE;
  session->parallel = setup->parallel;
  if (!none && json_item(tools, NULL, tools + setup->tools.len)) {
    session->tools = setup->tools; /* kept, so not freed with the rest */
    setup->tools.len = 0;
  }
  ret->is_some = session->tools.len > 0;
  /* Where nothing can be a call the host passes the text on without asking. */
  if (ret->is_some) ret->val = exports_mortise_plugin_output_parser_session_new(session);
  else free(session);
  exports_mortise_plugin_output_parser_setup_free(setup);
  return true;
}

void exports_mortise_plugin_output_parser_session_destructor(session_t *session) {
  output_parser_plugin_string_free(&session->tools);
  free(session->held);
  free(session);
}

static event_t *push(events_t *events, uint8_t tag) {
  events->ptr = realloc(events->ptr, (events->len + 1) * sizeof *events->ptr);
  if (!events->ptr) abort();
  event_t *event = &events->ptr[events->len++];
  memset(event, 0, sizeof *event);
  event->tag = tag;
  return event;
}

static bool is_declared(session_t *session, const char *name, size_t length) {
  const char *tools = (const char *)session->tools.ptr, *end = tools + session->tools.len;
  bool found = false;
  for (const char *item = NULL; !found && (item = json_item(tools, item, end));) {
    char *known = json_string(json_member(json_member(item, end, "function"), end, "name"), end);
    found = known && strlen(known) == length && !memcmp(known, name, length);
    free(known);
  }
  return found;
}

/* Whether `text` is a name and its arguments, a call of a declared tool; then it is handed out. */
static bool call(session_t *session, events_t *events, const char *text, size_t length) {
  const char *end = text + length, *name_end = memchr(text, NAME_END, length);
  if (!name_end || !is_declared(session, text, (size_t)(name_end - text))) return false;
  const char *arguments = json_space(name_end + 1, end);
  const char *behind = json_end(arguments, end, JSON_MAX_DEPTH);
  if (!behind || *arguments != '{' || json_space(behind, end) != end) return false;
  if (session->calls > 0 && !session->parallel) return true; /* one too many is dropped */

  event_t *event = push(events, EXPORTS_MORTISE_PLUGIN_OUTPUT_PARSER_EVENT_CALL_BEGIN);
  event->val.call_begin.index = session->calls;
  output_parser_plugin_string_dup_n(&event->val.call_begin.name, text, (size_t)(name_end - text));
  event = push(events, EXPORTS_MORTISE_PLUGIN_OUTPUT_PARSER_EVENT_CALL_ARGUMENTS);
  event->val.call_arguments.index = session->calls;
  output_parser_plugin_string_dup_n(&event->val.call_arguments.delta, arguments,
                                    (size_t)(behind - arguments));
  event = push(events, EXPORTS_MORTISE_PLUGIN_OUTPUT_PARSER_EVENT_CALL_END);
  event->val.call_end = session->calls++;
  return true;
}

/* Take `count` bytes off what is held; as content, if `said`. */
static void release(session_t *session, events_t *events, size_t count, bool said) {
  if (count == 0) return;
  if (said) {
    event_t *event = push(events, EXPORTS_MORTISE_PLUGIN_OUTPUT_PARSER_EVENT_CONTENT);
    output_parser_plugin_string_dup_n(&event->val.content, session->held, count);
  }
  session->length -= count;
  memmove(session->held, session->held + count, session->length);
  session->searched = 0;
}

static const char *find(const char *text, size_t length, const char *mark) {
  size_t size = strlen(mark);
  for (const char *at = text; length >= size; at++, length--)
    if (!memcmp(at, mark, size)) return at;
  return NULL;
}

/* Length of the longest end of `text` that begins `mark`. */
static size_t beginning_of(const char *text, size_t length, const char *mark) {
  size_t size = strlen(mark) - 1;
  if (size > length) size = length;
  while (size > 0 && memcmp(text + length - size, mark, size)) size--;
  return size;
}

/* Hand out all that is certain. How the text was cut into pieces changes nothing: what happens next
 * depends on the held text alone. */
static void parse(session_t *session, events_t *events, bool last) {
  size_t open_size = strlen(open_mark), close_size = strlen(close_mark);
  for (;;) {
    const char *start = find(session->held, session->length, open_mark);
    if (!start) {
      size_t keep = last ? 0 : beginning_of(session->held, session->length, open_mark);
      release(session, events, session->length - keep, true);
      return;
    }
    release(session, events, (size_t)(start - session->held), true);
    size_t from = session->searched > open_size ? session->searched : open_size;
    const char *close = find(session->held + from, session->length - from, close_mark);
    if (!close) {
      /* The mark may be cut in two. */
      if (session->length - open_size >= close_size) session->searched = session->length - close_size + 1;
      if (last) release(session, events, session->length, true);
      return;
    }
    size_t size = (size_t)(close - session->held) + close_size;
    bool is_call = call(session, events, session->held + open_size, size - open_size - close_size);
    release(session, events, size, !is_call);
  }
}

bool exports_mortise_plugin_output_parser_method_session_feed(
    exports_mortise_plugin_output_parser_borrow_session_t self, string_t *text,
    output_parser_plugin_list_u32_t *tokens, events_t *ret,
    exports_mortise_plugin_output_parser_fault_t *err) {
  if (self->length + text->len > self->room) {
    self->room = 2 * (self->length + text->len);
    self->held = realloc(self->held, self->room);
    if (!self->held) abort();
  }
  if (text->len) memcpy(self->held + self->length, text->ptr, text->len);
  self->length += text->len;
  memset(ret, 0, sizeof *ret);
  parse(self, ret, false);
  output_parser_plugin_string_free(text);
  output_parser_plugin_list_u32_free(tokens);
  return true;
}

bool exports_mortise_plugin_output_parser_method_session_close(
    exports_mortise_plugin_output_parser_borrow_session_t self,
    exports_mortise_plugin_output_parser_finish_t reason, events_t *ret,
    exports_mortise_plugin_output_parser_fault_t *err) {
  memset(ret, 0, sizeof *ret);
  parse(self, ret, true);
  return true;
}
