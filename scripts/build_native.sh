#!/usr/bin/env bash
# Builds libtnx and the PyTorch glue into torch_neuronx/: scripts/build_native.sh <build folder> <python>. Incremental.
# Used by set-up, by setup.py (wheels) and by `make build`, so that there is one way to configure the build.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
python=${2:-python3}

# A glue file takes 1.5 GiB of memory to compile: no more jobs than fit.
if [ -z "${JOBS:-}" ]; then
  JOBS=$(nproc)
  fit=$(awk '/MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo 2>/dev/null || echo "$JOBS")
  [ "$fit" -ge 1 ] || fit=1
  [ "$JOBS" -le "$fit" ] || JOBS=$fit
fi
command -v cmake >/dev/null || { echo "build: missing: cmake (pip install -r requirements/build.txt)" >&2; exit 1; }
generator=()
if [ ! -f "$build/CMakeCache.txt" ]; then
  if command -v ninja >/dev/null; then generator=(-G Ninja)
  elif command -v make >/dev/null; then generator=(-G "Unix Makefiles")
  else echo "build: missing: ninja or make" >&2; exit 1; fi
fi
log=$build/configure.log
mkdir -p "$build"
cmake "${generator[@]}" -S . -B "$build" -DTNX_BUILD_GLUE=ON -DPython_EXECUTABLE="$python" -DPython3_EXECUTABLE="$python" >"$log" 2>&1 ||
  { cat "$log" >&2; echo "build: cmake failed; see above" >&2; exit 1; }
cmake --build "$build" --parallel "$JOBS"
