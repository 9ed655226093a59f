/* A retriever: chunks are paragraphs, put together up to the size that is asked for; a query of several questions is
 * searched for as a whole and question by question; and of one document only so many passages are used:
 * {"per_document": 2}. */

#include "json.h"
#include "retriever_plugin.h"

/* Queries that one may become. */
#define MOST_QUERIES 8

typedef retriever_plugin_string_t string_t;

/* Passages of one document that a model is given at most. */
static unsigned long per_document = 2;

static void *grown(void *memory, size_t size) {
  memory = realloc(memory, size);
  if (!memory) abort();
  return memory;
}

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  string_t settings;
  mortise_plugin_settings_get(&settings);
  const char *text = (const char *)settings.ptr;
  const char *limit = json_member(text, text + settings.len, "per_document");
  /* The text is JSON, so something that is no digit follows the number. */
  if (limit) per_document = strtoul(limit, NULL, 10);
  retriever_plugin_string_free(&settings);
  return true;
}

void exports_mortise_plugin_retriever_describe(exports_mortise_plugin_retriever_traits_t *ret) {
  ret->chunk = ret->rewrite = ret->assemble = true;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static bool is_blank(const char *at, const char *end) {
  while (at < end && is_space(*at)) at++;
  return at == end;
}

bool exports_mortise_plugin_retriever_chunk(exports_mortise_plugin_retriever_context_t *context,
                                            exports_mortise_plugin_retriever_document_t *document,
                                            exports_mortise_plugin_retriever_sizes_t *sizes,
                                            exports_mortise_plugin_retriever_list_span_t *ret,
                                            exports_mortise_plugin_retriever_fault_t *err) {
  const char *text = (const char *)document->text.ptr;
  size_t length = document->text.len;
  /* Two neighbours have more bytes than that, so that there are never too many chunks. */
  size_t most = sizes->max_chunks ? sizes->max_chunks : 1;
  size_t bytes = 2 * length / most + 2;
  if (bytes < sizes->about_bytes) bytes = sizes->about_bytes;
  *ret = (exports_mortise_plugin_retriever_list_span_t){0};
  for (size_t start = 0, end; start < length; start = end + 2) {
    for (end = start; end < length && !(text[end] == '\n' && end + 1 < length && text[end + 1] == '\n');) end++;
    if (is_blank(text + start, text + end)) continue;
    exports_mortise_plugin_retriever_span_t *last = ret->len ? &ret->ptr[ret->len - 1] : NULL;
    if (last && end - last->start <= bytes) {
      last->end = (uint32_t)end;
      continue;
    }
    ret->ptr = grown(ret->ptr, (ret->len + 1) * sizeof *ret->ptr);
    ret->ptr[ret->len++] = (exports_mortise_plugin_retriever_span_t){(uint32_t)start, (uint32_t)end};
  }
  exports_mortise_plugin_retriever_context_free(context);
  exports_mortise_plugin_retriever_document_free(document);
  return true;
}

static void add_query(retriever_plugin_list_string_t *queries, const char *text, size_t length) {
  queries->ptr = grown(queries->ptr, (queries->len + 1) * sizeof *queries->ptr);
  retriever_plugin_string_dup_n(&queries->ptr[queries->len++], text, length);
}

/* Whether there is anything to search for: a digit, a letter, or what is not ASCII. */
static bool has_word(const char *at, const char *end) {
  for (; at < end; at++)
    if ((*at >= '0' && *at <= '9') || ((*at | 32) >= 'a' && (*at | 32) <= 'z') || *at & 0x80) return true;
  return false;
}

bool exports_mortise_plugin_retriever_rewrite(exports_mortise_plugin_retriever_context_t *context, string_t *query,
                                              retriever_plugin_list_string_t *ret,
                                              exports_mortise_plugin_retriever_fault_t *err) {
  const char *at = (const char *)query->ptr, *end = at + query->len;
  *ret = (retriever_plugin_list_string_t){0};
  add_query(ret, at, query->len);
  while (at < end) {
    const char *start = at;
    while (at < end && *at != '?' && *at != ';') at++;
    if (at < end) at++;
    const char *last = at;
    while (start < last && is_space(*start)) start++;
    while (start < last && is_space(last[-1])) last--;
    if (has_word(start, last) && ret->len < MOST_QUERIES) add_query(ret, start, (size_t)(last - start));
  }
  /* One question is the query. */
  if (ret->len == 2) retriever_plugin_string_free(&ret->ptr[--ret->len]);
  exports_mortise_plugin_retriever_context_free(context);
  retriever_plugin_string_free(query);
  return true;
}

bool exports_mortise_plugin_retriever_assemble(exports_mortise_plugin_retriever_context_t *context, string_t *query,
                                               exports_mortise_plugin_retriever_list_candidate_t *candidates,
                                               exports_mortise_plugin_retriever_budget_t *budget,
                                               exports_mortise_plugin_retriever_assembly_t *ret,
                                               exports_mortise_plugin_retriever_fault_t *err) {
  uint32_t left = budget->tokens;
  ret->joint = EXPORTS_MORTISE_PLUGIN_RETRIEVER_JOINT_BLANK_LINE;
  ret->chosen.len = 0;
  ret->chosen.ptr = grown(NULL, (candidates->len + 1) * sizeof *ret->chosen.ptr);
  for (size_t i = 0; i < candidates->len && ret->chosen.len < budget->passages; i++) {
    exports_mortise_plugin_retriever_candidate_t *candidate = &candidates->ptr[i];
    unsigned long before = 0;
    for (size_t j = 0; j < i; j++) {
      string_t *other = &candidates->ptr[j].document;
      before += other->len == candidate->document.len &&
                !memcmp(other->ptr, candidate->document.ptr, other->len);
    }
    /* One that has no room is left out, and those behind it may still have. */
    if (before >= per_document || candidate->tokens > left) continue;
    left -= candidate->tokens;
    ret->chosen.ptr[ret->chosen.len++] = (uint32_t)i;
  }
  exports_mortise_plugin_retriever_context_free(context);
  retriever_plugin_string_free(query);
  exports_mortise_plugin_retriever_list_candidate_free(candidates);
  return true;
}
