/* A grammar for answers that are one of a few words: the regular expression `yes|no|perhaps`, without any
 * other operator. Everything else is unsupported, and a binding with `on_failure = "fallback"` hands it to
 * the grammar that is part of the server. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "grammar_plugin.h"

typedef grammar_plugin_list_u32_t tokens_t;
typedef exports_mortise_plugin_grammar_fault_t fault_t;
typedef exports_mortise_plugin_grammar_status_t status_t;

/* The model's tokens, as long as the instance lives. */
static mortise_plugin_vocabulary_table_t vocabulary;

/* One sequence. What was taken begins a word, so it is never longer than all words are. */
struct exports_mortise_plugin_grammar_matcher_t {
  char *words; /* with `|` between them */
  size_t length;
  char *text; /* what was taken */
  size_t taken;
  size_t *ends; /* where each of its tokens ends */
  size_t count;
};
typedef struct exports_mortise_plugin_grammar_matcher_t matcher_t;

static void *room(size_t count, size_t size) {
  void *room = calloc(count ? count : 1, size);
  if (!room) abort();
  return room;
}

static bool fail(fault_t *err, uint8_t tag, const char *text) {
  err->tag = tag;
  grammar_plugin_string_dup(&err->val.internal, text);
  return false;
}

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  mortise_plugin_vocabulary_get(&vocabulary);
  return true;
}

static int by_number(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

static size_t tokens_in_all(void) { return vocabulary.offsets.len ? vocabulary.offsets.len - 1 : 0; }

/* The bytes of a token, of which there is at least one; NULL if it is no text. */
static const char *text_of(uint32_t token, size_t *size) {
  const tokens_t *control = &vocabulary.control;
  if (token >= tokens_in_all()) return NULL;
  if (bsearch(&token, control->ptr, control->len, sizeof token, by_number)) return NULL;
  uint32_t begin = vocabulary.offsets.ptr[token], end = vocabulary.offsets.ptr[token + 1];
  *size = end - begin;
  return end > begin ? (const char *)vocabulary.bytes.ptr + begin : NULL;
}

/* The next of the texts that may follow what was taken; `*at` is 0 at first. */
static bool next_rest(const matcher_t *matcher, size_t *at, const char **rest, size_t *size) {
  while (*at <= matcher->length) {
    const char *word = matcher->words + *at, *bar = memchr(word, '|', matcher->length - *at);
    size_t length = bar ? (size_t)(bar - word) : matcher->length - *at;
    *at += length + 1;
    if (length < matcher->taken || memcmp(word, matcher->text, matcher->taken)) continue;
    *rest = word + matcher->taken;
    *size = length - matcher->taken;
    return true;
  }
  return false;
}

static bool fits(const matcher_t *matcher, const char *text, size_t size) {
  const char *rest;
  size_t length;
  for (size_t at = 0; next_rest(matcher, &at, &rest, &length);)
    if (length >= size && !memcmp(rest, text, size)) return true;
  return false;
}

static status_t status(const matcher_t *matcher) {
  const char *rest;
  size_t length, rests = 0;
  bool complete = false;
  for (size_t at = 0; next_rest(matcher, &at, &rest, &length); rests++) complete |= length == 0;
  if (!complete) return EXPORTS_MORTISE_PLUGIN_GRAMMAR_STATUS_ACTIVE;
  return rests == 1 ? EXPORTS_MORTISE_PLUGIN_GRAMMAR_STATUS_FINISHED
                    : EXPORTS_MORTISE_PLUGIN_GRAMMAR_STATUS_ACCEPTING;
}

/* Hand the mask to the host. */
static status_t push(const matcher_t *matcher, uint32_t slot) {
  status_t stands = status(matcher);
  const tokens_t *ends = &vocabulary.eos;
  tokens_t allowed = {room(tokens_in_all() + ends->len, sizeof *allowed.ptr), 0};
  for (uint32_t token = 0; token < tokens_in_all(); token++) {
    size_t size;
    const char *text = text_of(token, &size);
    if (text && fits(matcher, text, size)) allowed.ptr[allowed.len++] = token;
  }
  if (stands != EXPORTS_MORTISE_PLUGIN_GRAMMAR_STATUS_ACTIVE)
    for (size_t i = 0; i < ends->len; i++) allowed.ptr[allowed.len++] = ends->ptr[i];
  mortise_plugin_mask_sink_only(slot, &allowed);
  free(allowed.ptr);
  return stands;
}

/* Take tokens up to the first that does not fit; how many that were. */
static size_t take(matcher_t *matcher, const tokens_t *tokens) {
  size_t count = 0, size;
  for (; count < tokens->len; count++) {
    const char *text = text_of(tokens->ptr[count], &size);
    if (!text || !fits(matcher, text, size)) break;
    memcpy(matcher->text + matcher->taken, text, size);
    matcher->taken += size;
    matcher->ends[matcher->count++] = matcher->taken;
  }
  return count;
}

static void undo(matcher_t *matcher, size_t count) {
  matcher->count -= count;
  matcher->taken = matcher->count ? matcher->ends[matcher->count - 1] : 0;
}

static matcher_t *matcher_for(const char *words, size_t length) {
  matcher_t *matcher = room(1, sizeof *matcher);
  matcher->words = room(length, 1);
  matcher->text = room(length, 1);
  matcher->ends = room(length, sizeof *matcher->ends);
  matcher->length = length;
  memcpy(matcher->words, words, length);
  return matcher;
}

bool exports_mortise_plugin_grammar_compile(exports_mortise_plugin_grammar_grammar_source_t *source,
                                            exports_mortise_plugin_grammar_own_matcher_t *ret,
                                            fault_t *err) {
  static const char operators[] = "\\.^$*+?()[]{}";
  const char *problem = NULL;
  if (source->tag != MORTISE_PLUGIN_TYPES_GRAMMAR_SOURCE_REGEX) {
    problem = "only words, such as `yes|no`";
  } else {
    const char *words = (const char *)source->val.regex.ptr;
    size_t length = source->val.regex.len;
    for (size_t i = 0; i < length; i++)
      if (memchr(operators, words[i], sizeof operators - 1)) problem = "only words: no operator but `|`";
    if (!problem) *ret = exports_mortise_plugin_grammar_matcher_new(matcher_for(words, length));
  }
  exports_mortise_plugin_grammar_grammar_source_free(source);
  return !problem || fail(err, MORTISE_PLUGIN_TYPES_FAULT_UNSUPPORTED, problem);
}

void exports_mortise_plugin_grammar_matcher_destructor(matcher_t *matcher) {
  free(matcher->words);
  free(matcher->text);
  free(matcher->ends);
  free(matcher);
}

bool exports_mortise_plugin_grammar_method_matcher_mask(matcher_t *self, uint32_t slot, status_t *ret,
                                                        fault_t *err) {
  *ret = push(self, slot);
  return true;
}

bool exports_mortise_plugin_grammar_method_matcher_advance(
    matcher_t *self, tokens_t *tokens, uint32_t slot, exports_mortise_plugin_grammar_step_t *ret,
    fault_t *err) {
  size_t taken = take(self, tokens);
  bool all = taken == tokens->len;
  if (all) {
    memset(ret, 0, sizeof *ret);
    ret->status = push(self, slot);
  } else {
    /* The host hands in what the mask allowed, so this is nobody's request gone wrong. */
    char text[64];
    snprintf(text, sizeof text, "token %lu does not fit", (unsigned long)tokens->ptr[taken]);
    undo(self, taken);
    fail(err, MORTISE_PLUGIN_TYPES_FAULT_INTERNAL, text);
  }
  grammar_plugin_list_u32_free(tokens);
  return all;
}

bool exports_mortise_plugin_grammar_method_matcher_probe(matcher_t *self, tokens_t *tokens, uint32_t *ret,
                                                         fault_t *err) {
  *ret = (uint32_t)take(self, tokens);
  undo(self, *ret);
  grammar_plugin_list_u32_free(tokens);
  return true;
}

bool exports_mortise_plugin_grammar_method_matcher_rollback(matcher_t *self, uint32_t count, fault_t *err) {
  if (count > self->count)
    return fail(err, MORTISE_PLUGIN_TYPES_FAULT_INTERNAL, "so many tokens were not taken");
  undo(self, count);
  return true;
}

bool exports_mortise_plugin_grammar_method_matcher_fork(matcher_t *self,
                                                        exports_mortise_plugin_grammar_own_matcher_t *ret,
                                                        fault_t *err) {
  matcher_t *copy = matcher_for(self->words, self->length);
  memcpy(copy->text, self->text, self->taken);
  memcpy(copy->ends, self->ends, self->count * sizeof *copy->ends);
  copy->taken = self->taken;
  copy->count = self->count;
  *ret = exports_mortise_plugin_grammar_matcher_new(copy);
  return true;
}
