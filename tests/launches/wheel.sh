#!/usr/bin/env bash
# Builds the wheel, installs it into a new environment and trains with it from an empty folder.
set -euo pipefail
python=${1:-python3}
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp "$root/constraints.txt" "$root/quickstart-requirements.txt" "$root/recipes/quickstart.yaml" "$folder"
# From a copy: a build leaves folders behind, and files that git does not know must not get into the wheel.
git -C "$root" ls-files -z launcher pyproject.toml README.md | (cd "$root" && tar --null --files-from - --create) | (mkdir "$folder/source" && tar --extract --directory "$folder/source")
"$python" -m venv "$folder/env"
cd "$folder"
env/bin/python -m pip wheel --quiet --no-deps --wheel-dir . ./source
env/bin/python -m pip install --quiet --constraint constraints.txt ./frugal_launcher-*.whl
env/bin/python -m pip install --quiet --no-deps --requirement quickstart-requirements.txt
mkdir empty
cd empty
unset PYTHONPATH
../env/bin/launcher check ../quickstart.yaml
../env/bin/launcher run ../quickstart.yaml training.updates=2 data.max_rows=60
../env/bin/python -m launcher schema > schema.json
../env/bin/accelerate launch --num_processes 1 --num_machines 1 --mixed_precision no --dynamo_backend no \
    -m launcher.run ../quickstart.yaml training.updates=1 data.max_rows=60
test -f runs/quickstart/model/model.safetensors
test -f runs/quickstart-2/model/model.safetensors
echo "the wheel works"
