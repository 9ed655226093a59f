"""A policy: each tenant has a menu of models, as patterns. A caller says in the header `x-tenant` whom it
belongs to. Settings: {"menu": {"acme": ["small-*"], "*": ["*"]}}; the tenant `*` stands for all others."""

import json
from fnmatch import fnmatchcase

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

menu: dict[str, list[str]] = {}


class Lifecycle(exports.Lifecycle):
    def prepare(self) -> None:
        menu.update(json.loads(settings.get())["menu"])


class Policy(exports.Policy):
    def authorize(self, facts):
        tenant = dict(facts.headers).get("x-tenant")
        if tenant is not None and not 1 <= len(tenant) <= 256:
            raise Err(Fault_Invalid("the header `x-tenant` must have 1 to 256 characters"))
        patterns = menu.get(tenant, menu.get("*", []))
        # Lists of models and the like name none.
        if facts.model is not None and not any(fnmatchcase(facts.model, p) for p in patterns):
            return Decision_Deny(Deny(
                status=403,
                kind="permission_error",
                code="not_on_the_menu",
                message=f"`{facts.model}` is not among the models of `{tenant or 'anonymous'}`",
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
        """Nothing is kept."""
