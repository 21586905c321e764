"""Which of the data's columns the task reads, and which of them are not there."""

from launcher.recipe import Recipe


def column_names(recipe: Recipe) -> dict[str, str]:
    """The task's word for each column that is used -> the data's name of it."""
    stated = recipe.data.columns
    required = {role: role for role, need in recipe.task.columns.items() if need == "required"}
    return {
        role: stated.get(role, required.get(role, ""))
        for role in recipe.task.columns
        if role in stated or role in required
    }


def column_problems(names: dict[str, str], present: list[str], where: str) -> list[str]:
    """A line for each column that is not there, or is read or stands there twice; `where` is the data in a message."""
    there = "there are " + ", ".join(repr(name) for name in present)
    if not present:
        there = 'its rows are no mappings such as {"text": "...", "label": "..."}'
    elif len(present) == 1 and set(present[0]) & set(",;\t|"):
        there += "; .csv has commas between columns, .tsv tabs"
    first: dict[str, str] = {}
    for role, name in names.items():
        first.setdefault(name, role)
    return (
        [
            f"data.columns.{role}: {name!r} is read as {first[name]} already; name another column"
            for role, name in names.items()
            if first[name] != role
        ]
        + [
            f"data.columns.{role}: no column {name!r} in {where}; {there}"
            for role, name in names.items()
            if name not in present
        ]
        + [
            f"data.columns.{role}: {where} has {present.count(name)} columns {name!r}; rename all but one"
            for role, name in names.items()
            if present.count(name) > 1
        ]
    )
