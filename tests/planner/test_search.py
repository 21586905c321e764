"""The fastest plan that fits: which of several is taken, and that its own trace has the last word."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from launcher.cutter import CostModel, Limits
from launcher.planner import search as searching
from launcher.planner.combinations import Combination
from launcher.planner.search import Found, Option, _best, _traced, demand, fullest, search, weigh
from launcher.planner.surface import Line, Surface
from launcher.strategies.adafactor import Adafactor
from launcher.strategies.gradient_accumulation import GradientAccumulation
from launcher.strategies.gradient_checkpointing import GradientCheckpointing
from launcher.units import MIB

SURFACE = Surface({"backward": Line(0, 1, 0, 0)}, 0, 0, CostModel(0.0, 0.0), 1e-6, 0.0)
PLAIN, CHECKPOINTING, ADAFACTOR = (), (GradientCheckpointing(),), (Adafactor(),)


def option(strategies, seconds, tokens=None):
    return Option(Combination(strategies), Limits(tokens=tokens), SURFACE, None, 0.0, seconds, 1.0, True)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ([option(PLAIN, 11.0), option(CHECKPOINTING, 10.0)], 1),  # the faster
        ([option(PLAIN, 10.4), option(CHECKPOINTING, 10.0)], 0),  # as good as equal: the simpler
        ([option(ADAFACTOR, 10.0), option(CHECKPOINTING, 10.4, tokens=9)], 1),  # what changes nothing before it
        ([option(PLAIN, 10.4, tokens=9), option(PLAIN, 10.0)], 1),  # without a limit where none is needed
        ([option(CHECKPOINTING, 10.4), option(CHECKPOINTING, 10.0)], 1),
    ],
)
def test_of_plans_as_fast_the_one_that_changes_least_is_taken(options, taken):
    assert _best(options) is options[taken]
    assert _best(options[::-1]) is options[taken]


@pytest.fixture
def tiny(ground):
    return ground()


def found_in(ground, room, allowed=()):
    found = search(ground, allowed, room)
    assert isinstance(found, Found)
    assert demand(found.forecast) <= room
    return found


def test_every_option_that_fits_says_its_largest_micro_batch_and_stays_in_the_room(tiny):
    for room in (9 * MIB, 4 * MIB, 2 * MIB):
        for strategies in (PLAIN, CHECKPOINTING):
            weighed = weigh(tiny, Combination(strategies), room, [])
            assert weighed.fits
            limits, surface = weighed.limits, weighed.surface
            assert weighed.peak == fullest(tiny, weighed.plan, limits, surface) <= room
            assert 1 <= weighed.micro_batches <= 24


def test_smaller_rooms_never_make_a_combination_faster(tiny):
    rooms = [9 * MIB, 6 * MIB, 4 * MIB, 3 * MIB, 2 * MIB]
    seconds = [weigh(tiny, Combination(), room, []).seconds for room in rooms]
    assert seconds == sorted(seconds)


def test_what_does_not_fit_says_the_size_of_one_text_alone(tiny):
    weighed = weigh(tiny, Combination(), MIB, [])
    assert not weighed.fits
    assert weighed.limits == Limits(examples=1)
    assert weighed.peak == weighed.surface.peak(1, 42)
    assert math.isinf(weighed.seconds)


@pytest.mark.parametrize("stated", [{"steps": 4}, {"micro_batch": 6}, {"tokens": 6 * 42}])
def test_the_recipes_own_micro_batches_are_left_as_they_are(ground, stated):
    weighed = weigh(ground(strategies={"gradient_accumulation": stated}), Combination(), 9 * MIB, [])
    assert weighed.limits is None
    assert weighed.strategies == ()
    assert weighed.peak == weighed.surface.peak(6, 42)
    assert not weigh(ground(strategies={"gradient_accumulation": stated}), Combination(), 2 * MIB, []).fits


def test_no_limit_is_set_where_a_whole_update_of_the_longest_texts_fits(tiny):
    surface = tiny.surface(())
    whole = math.ceil(surface.peak(24, 42))
    assert weigh(tiny, Combination(), 1.001 * whole, []).limits == Limits()
    limits = weigh(tiny, Combination(), 0.999 * whole, []).limits
    assert limits.tokens < 24 * limits.size(42)


def test_a_model_without_a_strategy_is_searched_without_it(tiny, monkeypatch):
    from launcher.errors import RecipeError

    surface = tiny.surface

    def refusing(strategies):
        if strategies:
            raise RecipeError("NoModel", ["it has no such layers"])
        return surface(strategies)

    monkeypatch.setattr(tiny, "surface", refusing)
    found = found_in(tiny, 9 * MIB)
    assert found.option.strategies == ()
    assert found.left_out == ("gradient_checkpointing: it has no such layers",)


def test_a_recipe_that_cannot_be_followed_at_all_says_why(ground, monkeypatch):
    from launcher.errors import ForecastError

    def cannot(*_):
        raise ForecastError("forecast", ["aten.nonzero asks this model for values"])

    monkeypatch.setattr("launcher.planner.ground.measure", cannot)
    fresh = ground(model={"config": {"layer_norm_eps": 1e-7}})  # no other test has measured this one
    with pytest.raises(ForecastError, match="asks this model for values"):
        search(fresh, (), 9 * MIB)


@pytest.fixture
def hopeful(tiny, monkeypatch):
    """Hides a share of what micro-batches take from every surface."""
    surface = tiny.surface

    def hide(share):
        def less(line):
            return replace(line, per_token=(1 - share) * line.per_token, per_square=(1 - share) * line.per_square)

        def hopeful_surface(strategies):
            true = surface(strategies)
            return replace(true, lines={phase: less(line) for phase, line in true.lines.items()})

        monkeypatch.setattr(tiny, "surface", hopeful_surface)

    return hide


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_surface_that_is_too_hopeful_is_put_right_by_the_winners_own_trace(tiny, hopeful, share):
    """Also where no smaller micro-batch would do by the surface itself: the plan that is found fits all the same."""
    honest = found_in(tiny, 3 * MIB).option
    hopeful(share)
    found = found_in(tiny, 3 * MIB).option
    assert found.limits.tokens <= 1.1 * honest.limits.tokens
    assert found.peak == searching.fullest(tiny, found.plan, found.limits, found.surface)
    assert found.micro_batches > 1


def test_what_is_refuted_to_the_last_is_said_of_one_text_alone(tiny, hopeful):
    hopeful(0.9)
    room = int(weigh(tiny, Combination(), 3 * MIB, []).surface.peak(1, 42))  # by the surface one text fits
    refuted, forecast = _traced(tiny, weigh(tiny, Combination(), room, []), room)
    assert forecast is None
    assert (refuted.fits, refuted.limits) == (False, Limits(examples=1))
    alone = tiny.plan([GradientAccumulation(micro_batch=1)])
    assert refuted.peak == pytest.approx(demand(searching.trace_plan(alone, tiny.loaded, tiny.device)), rel=1e-3)


def test_an_option_whose_trace_never_fits_says_what_that_took(tiny):
    honest = weigh(tiny, Combination(), 3 * MIB, [])
    stubborn = replace(honest, limits=None)
    refuted, forecast = _traced(tiny, stubborn, MIB)
    assert forecast is None
    assert not refuted.fits
    assert refuted.peak == demand(searching.trace_plan(tiny.plan(()), tiny.loaded, tiny.device))


def test_where_the_fastest_is_refuted_the_next_is_taken(tiny, monkeypatch):
    true, refused = searching._traced, []

    def refuse_first(ground, option, room):
        if not refused:
            refused.append(option.combination)
            return replace(option, fits=False, peak=12345.0), None
        return true(ground, option, room)

    monkeypatch.setattr(searching, "_traced", refuse_first)
    found = found_in(tiny, 3 * MIB)
    assert found.option.combination != refused[0]
    assert [(other.fits, other.peak) for other in found.others if other.combination == refused[0]] == [(False, 12345.0)]


def test_last_resorts_are_taken_only_where_nothing_fits_without(ground):
    allowing = ground(memory={"allow": ["freezing"]})
    assert not any(s.key == "freezing" for s in found_in(allowing, 2 * MIB, ["freezing"]).option.strategies)
    least = weigh(allowing, Combination(CHECKPOINTING), 1, []).peak
    tight = found_in(allowing, int(least) - 8192, ["freezing"]).option
    assert [s.first_layers for s in tight.combination.strategies if s.key == "freezing"] == [0]


def test_demand_is_what_the_allocator_takes_on_a_card_and_tensors_on_a_cpu(ground):
    on_card = ground("RTX 3060")
    forecast = searching.trace_plan(on_card.plan(()), on_card.loaded, on_card.device)
    assert demand(forecast) == forecast.reserved > forecast.allocated >= forecast.peak.size
    on_cpu = ground()
    forecast = searching.trace_plan(on_cpu.plan(()), on_cpu.loaded, on_cpu.device)
    assert demand(forecast) == forecast.peak.size


def test_a_model_that_was_made_leaves_the_config_as_it_was_and_nothing_is_measured_twice(ground):
    """transformers writes the dtype into the config of a model that it makes."""
    fresh = ground()
    fresh.loaded.config.dtype = None  # as in a config that was never saved with a model
    before = fresh.loaded.config.to_dict()
    fresh.surface([])
    assert fresh.loaded.config.to_dict() == before
    fresh.surface([])
    assert len(fresh.measured) == 1
