# Each target does all its own set-up. Windows has no make: the README shows the same in plain pip.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: quickstart test lint wheel clean

quickstart: $(INSTALLED)
	$(BIN)/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no launcher/run.py recipes/quickstart.yaml

test: $(INSTALLED)
	$(BIN)/python -m pytest -m ""

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict launcher

# Builds the wheel and trains with it in an environment and a folder that know nothing of this checkout.
wheel: $(INSTALLED)
	bash tests/launches/wheel.sh $(PYTHON)

$(INSTALLED): pyproject.toml constraints.txt quickstart-requirements.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[dev]"
	$(BIN)/python -m pip install --quiet --no-deps --requirement quickstart-requirements.txt
	touch $@

clean:
	rm -rf .venv build dist runs *.egg-info
