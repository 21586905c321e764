"""The whole forecast of one plan: two worst updates and an evaluation on fake tensors."""

from __future__ import annotations

from launcher.batches import Update
from launcher.devices import Device
from launcher.forecast.fake_run import fake_run
from launcher.forecast.peak import find_peaks
from launcher.forecast.result import Forecast
from launcher.job import Job
from launcher.load import Loaded, load_data
from launcher.plan import Plan, make_plan
from launcher.train import worst_update


def trace(job: Job, device: Device) -> Forecast:
    """Of the run that `pipeline.run` would make of this job there; needs the data, for its lengths, and no weights.

    ForecastError where the run cannot be followed; never a number that is not believed.
    """
    plan = make_plan(job)
    return trace_plan(plan, load_data(plan), device)


def trace_plan(plan: Plan, loaded: Loaded, device: Device) -> Forecast:
    """The same of a plan whose data is loaded."""
    with fake_run(plan, loaded, device, with_work=False) as run:
        worst = worst_update(run.session)
        # Optimizer states are born in the first, and live from the second on.
        run.update(Update(worst.micro_batches[:1], len(worst.micro_batches[0].examples)))
        run.update(worst)
        if run.session.validation is not None:
            run.evaluate()
    return find_peaks(run.tracker, device)
