"""The schema that editors use is the recipe that the launcher reads."""

from __future__ import annotations

import json

import jsonschema
import pytest
import yaml

from launcher.recipe import Recipe
from tests.conftest import ROOT

SCHEMA = ROOT / "recipe.schema.json"


def test_the_committed_schema_is_that_of_the_code():
    assert json.loads(SCHEMA.read_text()) == Recipe.model_json_schema(), "run: launcher schema > recipe.schema.json"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_recipes_fit_the_schema_and_tell_editors_where_it_is(path):
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=../recipe.schema.json\n")
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    content = yaml.safe_load(text.replace("2e-4", "0.0002").replace("1e-4", "0.0001").replace("2e-5", "0.00002"))
    assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize(
    "strategies",
    [
        {"max_length": {"token": 3}},
        {"max_length": {"tokens": "x"}},
        {"unknown": True},
        {"freezing": {"first_layers": -1}},
    ],
)
def test_the_schema_rejects_what_the_recipe_rejects(strategies):
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    content = yaml.safe_load((ROOT / "recipes" / "quickstart.yaml").read_text().replace("2e-4", "0.0002"))
    assert list(validator.iter_errors(content | {"strategies": strategies}))


def test_a_recipe_survives_json():
    content = yaml.safe_load((ROOT / "recipes" / "quickstart.yaml").read_text().replace("2e-4", "0.0002"))
    recipe = Recipe.model_validate(content | {"strategies": {"adafactor": True, "fast_tokenizer": False}})
    again = Recipe.model_validate_json(recipe.model_dump_json(exclude_none=True))
    assert again == recipe
    assert not again.strategies.is_open("fast_tokenizer")


def test_schedules_are_those_of_transformers():
    from transformers import SchedulerType

    from launcher.recipe import Training

    named = set(Training.model_json_schema()["properties"]["schedule"]["enum"])
    assert named == {kind.value for kind in SchedulerType} - {"reduce_lr_on_plateau", "greedy"}
