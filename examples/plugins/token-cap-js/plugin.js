// A policy: a plan says how long answers may be, and who is served first. A caller names its plan in the
// header `x-plan`. Settings: {"plans": {"free": {"max_tokens": 100}, "pro": {"priority": 5}}}.

import { get as settings } from 'mortise:plugin/settings@0.3.0';
import { count } from 'mortise:plugin/host@0.3.0';

let plans = {};

export const lifecycle = {
  prepare() {
    plans = JSON.parse(settings()).plans;
  },
};

export const policy = {
  authorize(facts) {
    const [, name] = facts.headers.find(([header]) => header === 'x-plan') ?? [];
    if (name === undefined || !Object.hasOwn(plans, name)) {
      const message = `the header \`x-plan\` must be one of: ${Object.keys(plans).join(', ')}`;
      const val = { status: 403, kind: 'permission_error', code: 'no_plan', message, headers: [] };
      return { tag: 'deny', val };
    }
    count(`plan ${name}`, 1);
    const { max_tokens: maxTokens, priority = 0 } = plans[name];
    const principal = { subject: name, tenant: name, labels: [['plan', name]] };
    const all = { tag: 'all' };
    const grant = { principal, priority, maxTokens, tools: all, serverTools: all, rewrites: [] };
    return { tag: 'allow', val: { ...grant, headers: [['x-plan', name]] } };
  },

  account(usage) {},
};
