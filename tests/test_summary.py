"""The last words of a run."""

import shlex

import pytest

from launcher.summary import quoted


@pytest.mark.parametrize("folder", ["runs/a", "my runs/a", "it's/a", 'the "best"/a', "costs $HOME/a", "a\\b"])
def test_the_line_that_uses_the_model_survives_a_shell(folder):
    code = f"print({folder!r})"
    assert shlex.split(f"python -c {quoted(code)}") == ["python", "-c", code]


def test_a_plain_folder_is_in_double_quotes_for_shells_that_know_no_others():
    assert quoted("print('runs/a')") == "\"print('runs/a')\""
