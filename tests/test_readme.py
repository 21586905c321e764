"""The README's generated parts and examples are those of the code."""

from __future__ import annotations

import yaml

from launcher.strategies import ALL
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
