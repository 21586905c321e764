"""The commands. Only this file and the report print."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from launcher.check import check as check_recipe
from launcher.errors import LauncherError, LaunchError, MemoryExceededError
from launcher.hand_over import hand_over
from launcher.job import Job
from launcher.machine import is_started, speaks_here, started_processes, started_rank

INTERRUPTED = 130  # 128 + SIGINT, as shells count
SECONDS_TO_SPEAK = 30.0  # processes of one machine may start so far apart where it is busy

app = typer.Typer(
    name="launcher",
    help="Say what to train and how big your card is; the launcher works out the rest.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe, a YAML file", show_default=False)]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Such as training.epochs=2", show_default=False)
]
Processes = Annotated[int | None, typer.Option(min=1, help="Train on so many processes", show_default=False)]


@app.command()
def check(recipe: RecipeFile, overrides: Overrides = None, processes: Processes = None) -> None:
    """Find everything that is wrong with a recipe."""
    from launcher.plan import make_plan

    plan = make_plan(check_recipe(recipe, overrides or (), processes=processes or 1))
    print(f"{recipe}: no problem found")
    for reason in plan.reasons:
        print(f"  {reason}")


@app.command()
def run(recipe: RecipeFile, overrides: Overrides = None, processes: Processes = None) -> None:
    """Train: on every GPU that is here, or on as many processes as you say."""
    from launcher.start import default_processes, start_processes

    if is_started():
        if processes is not None and processes != started_processes():
            problem = f"--processes {processes}, and {started_processes()} have been started already; leave it out"
            raise LaunchError("launch", [problem])
        raise typer.Exit(worker([str(recipe), *(overrides or [])]))
    wanted = processes or default_processes()
    job = check_recipe(recipe, overrides or (), processes=wanted)
    try:
        code = start_processes(recipe, overrides or [], wanted) if wanted > 1 else train(job)
    except MemoryExceededError as error:
        from launcher.out_of_memory import can_relaunch, relaunch

        if not can_relaunch(error):
            raise
        print(f"{error.problems[0]}\nstarting again with smaller micro-batches", file=sys.stderr)
        relaunch(recipe, overrides or (), wanted, error)
    raise typer.Exit(code)


@app.command()
def forecast(
    recipe: RecipeFile,
    overrides: Overrides = None,
    device: Annotated[str, typer.Option(help='A card such as "RTX 3060" or "A100 80GB", or cpu')] = "cpu",
    processes: Processes = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines")] = False,
) -> None:
    """Tell the peak memory of a run before the run, of each process: no weights and no card are needed."""
    from launcher.devices import find_device
    from launcher.forecast.show import show_forecast
    from launcher.forecast.start import forecast as run_forecast
    from launcher.screen import Screen

    target = find_device(device)
    check_recipe(recipe, overrides or (), processes=processes or 1, target=target)
    answer = run_forecast(recipe, overrides or (), target, processes or 1)
    if as_json:
        print(json.dumps(answer.as_json(), indent=2))
    else:
        show_forecast(Screen(main=True), answer, target)


@app.command()
def plan(
    recipe: RecipeFile,
    overrides: Overrides = None,
    device: Annotated[
        str | None, typer.Option(help='Cards such as "GTX 1650,RTX 3060", or cpu; absent: this machine\'s')
    ] = None,
    budget: Annotated[str | None, typer.Option(help="Such as 4GB or 4GB,8GB; absent: the recipe's")] = None,
    gpus: Annotated[str | None, typer.Option(help="In each computer: 8, or 1..64 or 1,2,8 for a table")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Computers")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="For machines")] = False,
) -> None:
    """Find the fastest way to train within a memory budget, without changing what is learned unless allowed."""
    from launcher.planner.asked import command_of, find_devices, find_gpus, find_targets
    from launcher.planner.show import show_plan, show_plans, show_worlds
    from launcher.planner.start import plan as make_plans
    from launcher.screen import Screen

    devices = find_devices(device)
    target = devices[0] if devices else None
    jobs = [
        check_recipe(recipe, overrides or (), processes=each * nodes, nodes=nodes, target=target)
        for each in find_gpus(gpus)
    ]
    job, targets = jobs[0], find_targets(jobs[0], devices, budget)
    by_job = [make_plans(one, targets) for one in jobs]
    plans = [answer for answers in by_job for answer in answers]
    failed = [answer for answer in plans if isinstance(answer, LauncherError)]
    if as_json:
        print(json.dumps([answer.as_json() for answer in plans], indent=2))
    elif len(jobs) > 1:
        show_worlds(Screen(main=True), jobs, by_job, targets)
    elif len(plans) > 1:
        show_plans(Screen(main=True), plans, targets)
    elif not isinstance(plans[0], LauncherError):
        show_plan(Screen(main=True), plans[0], command_of(job, plans[0]))
    if len(failed) == len(plans):
        raise failed[0]


@app.command()
def strategies() -> None:
    """All strategies: what each does, and whether it is free, slower or changes what is learned."""
    from launcher.screen import Screen
    from launcher.strategies import ALL

    rows = [[cls.key, cls.cost.replace("_", " "), cls.summary, *cls.conflicts] for cls in ALL]
    rows = [[*row[:2], "; not with ".join(row[2:])] for row in rows]
    Screen(main=True).table("Strategies", ["key", "cost", "what it does"], rows)


@app.command()
def schema() -> None:
    """The recipe's JSON schema, which editors use to complete and check recipes."""
    from launcher.recipe import Recipe

    print(json.dumps(Recipe.model_json_schema(), indent=2, ensure_ascii=False))


def worker(arguments: list[str]) -> int:
    """One process that `accelerate launch` started: `RECIPE [KEY=VALUE]...`; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: accelerate launch launcher/run.py RECIPE [KEY=VALUE]...")
        return 0 if arguments else 2
    try:
        return train(check_recipe(Path(arguments[0]), arguments[1:], processes=started_processes()))
    except MemoryExceededError as error:
        hand_over(error)
        print(error, file=sys.stderr)  # on whichever rank: the others did not meet it
        return error.exit_code
    except LauncherError as error:
        return tell(error)


def train(job: Job) -> int:
    """Trains in this process, which may be one of several; returns the exit code."""
    try:
        from launcher.pipeline import run as run_job

        run_job(job)
    except KeyboardInterrupt:
        if started_rank() == 0:
            print("stopped by Ctrl-C; what the run folder holds stays", file=sys.stderr)
        return INTERRUPTED
    return 0


def tell(error: LauncherError) -> int:
    """Prints the error once a machine, however many processes met it; returns its exit code."""
    if not speaks_here():
        # The one that speaks ends first, and whoever started them then ends the others. Who is still there has met
        # alone what it tells.
        time.sleep(SECONDS_TO_SPEAK)
    print(error, file=sys.stderr)
    return error.exit_code


def main() -> None:
    """The console command."""
    try:
        app()
    except LauncherError as error:
        sys.exit(tell(error))
