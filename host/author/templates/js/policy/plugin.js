// A policy: it refuses callers of some tenants and lets all others pass. A caller says in the header
// `x-tenant` whom it belongs to; the settings say who is refused: {"blocked": ["acme"]}.

import { get as settings } from 'mortise:plugin/settings@0.3.0';

// Tenants that are refused.
let blocked = [];

export const lifecycle = {
  prepare() {
    blocked = JSON.parse(settings()).blocked ?? [];
  },
};

/** @type {import('mortise:plugin/policy@0.3.0').Policy} */
export const policy = {
  authorize(facts) {
    const [, tenant] = facts.headers.find(([name]) => name === 'x-tenant') ?? [];
    if (tenant !== undefined && (tenant.length < 1 || tenant.length > 256)) {
      throw { tag: 'invalid', val: 'the header `x-tenant` must have 1 to 256 characters' };
    }
    if (blocked.includes(tenant)) {
      const val = {
        status: 403,
        kind: 'permission_error',
        code: 'tenant_blocked',
        message: `the tenant \`${tenant}\` may not use this server`,
        headers: [],
      };
      return { tag: 'deny', val };
    }
    const principal = { subject: tenant ?? 'anonymous', tenant, labels: [] };
    return {
      tag: 'allow',
      val: {
        principal,
        priority: 0,
        tools: { tag: 'all' },
        serverTools: { tag: 'all' },
        headers: [],
        rewrites: [],
      },
    };
  },

  account(usage) {
    // Here a policy learns what a request used. This one keeps no accounts.
  },
};
