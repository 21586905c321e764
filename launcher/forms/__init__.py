"""The forms in which processes share one model; the plan's settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from launcher.forms.base import Form

if TYPE_CHECKING:
    from launcher.plan import Plan

__all__ = ["Form", "make_form"]


def make_form(plan: Plan) -> Form:
    """The one that the plan's settings name."""
    from launcher.forms.ddp import Ddp

    # One process has nothing to share; it can only put things off its card.
    if plan.processes == 1 and not plan.settings.form_options.get("offload"):
        return Ddp(plan)
    if plan.settings.form == "zero":
        from launcher.forms.zero import Zero

        return Zero(plan)
    if plan.settings.form == "fsdp":
        from launcher.forms.fsdp import Fsdp

        return Fsdp(plan)
    return Ddp(plan)
