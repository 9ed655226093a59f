/* A policy: it refuses callers of some tenants and lets all others pass. A caller says in the header
 * `x-tenant` whom it belongs to; the settings say who is refused: {"blocked": ["acme"]}. */

#include <stdio.h>

#include "json.h"
#include "policy_plugin.h"

typedef policy_plugin_string_t string_t;

/* The settings: JSON text that stays as long as the instance. */
static string_t settings;

static bool equals(string_t text, const char *other) {
  return text.len == strlen(other) && !memcmp(text.ptr, other, text.len);
}

bool exports_mortise_plugin_lifecycle_prepare(exports_mortise_plugin_lifecycle_fault_t *err) {
  mortise_plugin_settings_get(&settings);
  return true;
}

static bool is_blocked(string_t tenant) {
  const char *end = (const char *)settings.ptr + settings.len;
  const char *blocked = json_member((const char *)settings.ptr, end, "blocked");
  bool found = false;
  for (const char *item = NULL; blocked && !found && (item = json_item(blocked, item, end));) {
    char *name = json_string(item, end);
    found = name && equals(tenant, name);
    free(name);
  }
  return found;
}

bool exports_mortise_plugin_policy_authorize(exports_mortise_plugin_policy_facts_t *facts,
                                             exports_mortise_plugin_policy_decision_t *ret,
                                             exports_mortise_plugin_policy_fault_t *err) {
  string_t *tenant = NULL;
  for (size_t i = 0; i < facts->headers.len; i++)
    if (equals(facts->headers.ptr[i].f0, "x-tenant")) tenant = &facts->headers.ptr[i].f1;

  bool valid = !tenant || (tenant->len >= 1 && tenant->len <= 256);
  memset(ret, 0, sizeof *ret);
  if (!valid) {
    err->tag = MORTISE_PLUGIN_TYPES_FAULT_INVALID;
    policy_plugin_string_dup(&err->val.invalid, "the header `x-tenant` must have 1 to 256 bytes");
  } else if (tenant && is_blocked(*tenant)) {
    char message[512];
    snprintf(message, sizeof message, "the tenant `%.*s` may not use this server", (int)tenant->len,
             (const char *)tenant->ptr);
    ret->tag = EXPORTS_MORTISE_PLUGIN_POLICY_DECISION_DENY;
    ret->val.deny.status = 403;
    /* What is handed out is freed by the glue, so it is copied. */
    policy_plugin_string_dup(&ret->val.deny.kind, "permission_error");
    policy_plugin_string_dup(&ret->val.deny.code, "tenant_blocked");
    policy_plugin_string_dup(&ret->val.deny.message, message);
  } else {
    ret->tag = EXPORTS_MORTISE_PLUGIN_POLICY_DECISION_ALLOW;
    exports_mortise_plugin_policy_principal_t *principal = &ret->val.allow.principal;
    if (tenant) {
      const char *name = (const char *)tenant->ptr;
      policy_plugin_string_dup_n(&principal->subject, name, tenant->len);
      principal->tenant.is_some = true;
      policy_plugin_string_dup_n(&principal->tenant.val, name, tenant->len);
    } else {
      policy_plugin_string_dup(&principal->subject, "anonymous");
    }
  }
  exports_mortise_plugin_policy_facts_free(facts);
  return valid;
}

bool exports_mortise_plugin_policy_account(exports_mortise_plugin_policy_usage_t *usage,
                                           exports_mortise_plugin_policy_fault_t *err) {
  /* Here a policy learns what a request used. This one keeps no accounts. */
  exports_mortise_plugin_policy_usage_free(usage);
  return true;
}
