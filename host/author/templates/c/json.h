/* Reads JSON text that lies in memory. Values are told by where they begin; nothing is copied but
 * strings, which are decoded. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Nesting that is still read. */
#define JSON_MAX_DEPTH 64

static inline const char *json_space(const char *at, const char *end) {
  while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) at++;
  return at;
}

static inline const char *json_string_end(const char *at, const char *end) {
  for (at++; at < end && *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) return NULL;
    if (*at == '\\') {
      if (++at == end || !strchr("\"\\/bfnrtu", *at)) return NULL;
      if (*at != 'u') continue;
      for (int i = 0; i < 4; i++)
        if (++at == end || !strchr("0123456789abcdefABCDEF", *at)) return NULL;
    }
  }
  return at < end ? at + 1 : NULL;
}

static inline const char *json_number_end(const char *at, const char *end) {
  const char *digits;
#define JSON_DIGITS                                          \
  for (digits = at; at < end && *at >= '0' && *at <= '9';) at++; \
  if (at == digits) return NULL;
  if (at < end && *at == '-') at++;
  if (at < end && *at == '0') at++;
  else { JSON_DIGITS }
  if (at < end && *at == '.') { at++; JSON_DIGITS }
  if (at < end && (*at == 'e' || *at == 'E')) {
    at++;
    if (at < end && (*at == '+' || *at == '-')) at++;
    JSON_DIGITS
  }
#undef JSON_DIGITS
  return at;
}

/* Behind the value that begins at `at`, blanks before it or not; NULL if none does. */
static inline const char *json_end(const char *at, const char *end, int depth) {
  at = json_space(at, end);
  if (at == end || depth == 0) return NULL;
  if (*at == '"') return json_string_end(at, end);
  if (*at == '{' || *at == '[') {
    bool object = *at == '{';
    char close = object ? '}' : ']';
    at = json_space(at + 1, end);
    if (at < end && *at == close) return at + 1;
    for (;;) {
      if (object) {
        at = json_space(at, end);
        if (at == end || *at != '"' || !(at = json_string_end(at, end))) return NULL;
        at = json_space(at, end);
        if (at == end || *at++ != ':') return NULL;
      }
      if (!(at = json_end(at, end, depth - 1))) return NULL;
      at = json_space(at, end);
      if (at == end) return NULL;
      if (*at == close) return at + 1;
      if (*at++ != ',') return NULL;
    }
  }
  static const char *const words[] = {"true", "false", "null"};
  for (int i = 0; i < 3; i++) {
    size_t length = strlen(words[i]);
    if ((size_t)(end - at) >= length && !memcmp(at, words[i], length)) return at + length;
  }
  return json_number_end(at, end);
}

/* The first item of an array, or with `item` the one behind it; NULL if there is none. */
static inline const char *json_item(const char *array, const char *item, const char *end) {
  const char *at = item ? json_end(item, end, JSON_MAX_DEPTH) : json_space(array, end);
  if (!at || at == end) return NULL;
  at = json_space(at, end);
  if (at == end || (*at != '[' && *at != ',')) return NULL;
  at = json_space(at + 1, end);
  return at < end && *at != ']' ? at : NULL;
}

/* The value of a key of an object; NULL if it has none, or `object` is none. */
static inline const char *json_member(const char *object, const char *end, const char *key) {
  if (!object || (object = json_space(object, end)) == end || *object != '{') return NULL;
  for (const char *at = object;;) {
    at = json_space(at + 1, end);
    if (at >= end || *at != '"') return NULL;
    const char *name = at + 1;
    if (!(at = json_string_end(at, end))) return NULL;
    size_t length = (size_t)(at - 1 - name);
    at = json_space(at, end);
    if (at == end || *at != ':') return NULL;
    const char *value = json_space(at + 1, end);
    if (length == strlen(key) && !memcmp(name, key, length)) return value;
    if (!(at = json_end(value, end, JSON_MAX_DEPTH))) return NULL;
    at = json_space(at, end);
    if (at == end || *at != ',') return NULL;
  }
}

static inline uint32_t json_hex(const char *at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) {
    char c = at[i];
    value = value * 16 + (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
  }
  return value;
}

static inline char *json_utf8(char *out, uint32_t code) {
  if (code < 0x80) {
    *out++ = (char)code;
    return out;
  }
  int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  static const uint8_t first[] = {0, 0xC0, 0xE0, 0xF0};
  *out++ = (char)(first[more] | (code >> (6 * more)));
  while (more--) *out++ = (char)(0x80 | ((code >> (6 * more)) & 0x3F));
  return out;
}

/* A string as UTF-8, ended by a zero byte, to be freed; NULL if the value is no string. */
static inline char *json_string(const char *value, const char *end) {
  if (!value || value == end || *value != '"') return NULL;
  const char *last = json_string_end(value, end);
  if (!last) return NULL;
  char *text = malloc((size_t)(last - value)), *out = text;
  if (!text) abort();
  for (const char *at = value + 1; at < last - 1; at++) {
    if (*at != '\\') {
      *out++ = *at;
      continue;
    }
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (*++at != 'u') {
      *out++ = meant[strchr(names, *at) - names];
      continue;
    }
    uint32_t code = json_hex(at + 1);
    at += 4;
    bool high = code >= 0xD800 && code < 0xDC00;
    if (high && last - at > 7 && at[1] == '\\' && at[2] == 'u') {
      code = 0x10000 + ((code - 0xD800) << 10) + ((json_hex(at + 3) - 0xDC00) & 0x3FF);
      at += 6;
    } else if ((code >= 0xD800 && code < 0xE000) || code == 0) {
      code = 0xFFFD; /* half of a pair, or what would end the text */
    }
    out = json_utf8(out, code);
  }
  *out = 0;
  return text;
}

#endif
