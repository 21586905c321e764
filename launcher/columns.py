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


def missing_columns(names: dict[str, str], present: list[str]) -> list[str]:
    """A line for each column that the data does not have."""
    there = ", ".join(repr(name) for name in present)
    return [
        f"data.columns.{role}: no column {name!r}; there are {there}"
        for role, name in names.items()
        if name not in present
    ]
