"""A policy: it refuses callers of some tenants and lets all others pass. A caller says in the header
`x-tenant` whom it belongs to; the settings say who is refused: {"blocked": ["acme"]}."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.policy import (
    Allow,
    Decision_Allow,
    Decision_Deny,
    Deny,
    Principal,
    ToolGrant_All,
)
from wit_world.imports import settings
from wit_world.imports.types import Fault_Invalid

# Tenants that are refused.
blocked: set[str] = set()


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        blocked.update(json.loads(settings.get()).get("blocked", []))


class Policy(exports.Policy):
    def authorize(self, facts):
        tenant = dict(facts.headers).get("x-tenant")
        if tenant is not None and not 1 <= len(tenant) <= 256:
            raise Err(Fault_Invalid("the header `x-tenant` must have 1 to 256 characters"))
        if tenant in blocked:
            return Decision_Deny(Deny(
                status=403,
                kind="permission_error",
                code="tenant_blocked",
                message=f"the tenant `{tenant}` may not use this server",
                retry_after_ms=None,
                headers=[],
            ))
        return Decision_Allow(Allow(
            principal=Principal(subject=tenant or "anonymous", tenant=tenant, labels=[]),
            priority=0,
            max_tokens=None,
            tools=ToolGrant_All(),
            server_tools=ToolGrant_All(),
            headers=[],
            lease=None,
            rewrites=[],
        ))

    def account(self, usage):
        """Here a policy learns what a request used. This one keeps no accounts."""
