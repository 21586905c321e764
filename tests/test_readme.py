"""The README's generated parts and examples are those of the code."""

from __future__ import annotations

from pathlib import Path

import yaml

from launcher.strategies import ALL
from tests.accelerate_exports import launch_arguments
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def strategy_table() -> str:
    rows = ["| strategy | cost | what it does | example |", "| --- | --- | --- | --- |"]
    for cls in ALL:
        cost = cls.cost.replace("_", " ")
        example = yaml.safe_dump({cls.key: cls.example or True}, default_flow_style=True, width=200).strip()
        rows.append(f"| `{cls.key}` | {cost} | {cls.summary} | `{example[1:-1]}` |")
    return "\n".join(rows)


def test_the_strategy_table_is_that_of_the_code():
    between = README.split("<!-- strategies -->\n")[1].split("\n<!-- /strategies -->")[0]
    assert between == strategy_table()


def test_the_recipe_shown_is_the_one_that_is_shipped():
    shown = yaml.safe_load(README.split("```yaml\n")[1].split("```")[0])
    shipped = yaml.safe_load((ROOT / "recipes" / "quickstart.yaml").read_text(encoding="utf-8"))
    assert shown == shipped


def test_the_launches_shown_are_of_configurations_that_are_shipped_and_flags_that_accelerate_knows():
    section = README.split("## Several processes")[1].split("\n## ")[0]
    commands = [part.split()[2:] for part in section.split("`") if part.startswith("accelerate launch --config_file")]
    assert {Path(words[1]) for words in commands} == {
        p.relative_to(ROOT) for p in (ROOT / "accelerate_configs").iterdir()
    }
    for words in commands:
        read = launch_arguments(ROOT / words[1], *words[2:-2])
        assert words[-2:] == ["launcher/run.py", "r.yaml"]
        assert read.num_processes == int(words[words.index("--num_processes") + 1] if "--num_processes" in words else 1)
