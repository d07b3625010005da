#!/usr/bin/env bash
# Builds libtnx and the PyTorch glue into torch_neuronx/: scripts/build_native.sh <build folder> <python>. Incremental.
# Used by set-up (`make build`) and by setup.py (wheels), so that there is one way to configure the build.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
python=${2:-python3}

# A glue file takes 1.5 GiB of memory to compile: no more jobs than fit, into the machine and into the container.
if [ -z "${JOBS:-}" ]; then
  JOBS=$(nproc)
  bytes=$(awk '/MemAvailable/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
  limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
  [ "$limit" = max ] || [ "$limit" -ge "$bytes" ] || bytes=$limit
  fit=$((bytes / (1536 << 20)))
  [ "$fit" -ge 1 ] || fit=1
  [ "$JOBS" -le "$fit" ] || JOBS=$fit
fi
# CMake and Ninja are packages of that interpreter, whose environment need not be the active one.
PATH=$("$python" -c 'import sysconfig; print(sysconfig.get_path("scripts"))'):$PATH
command -v cmake >/dev/null || { echo "build: missing: cmake (pip install -r requirements/build.txt)" >&2; exit 1; }
# For a new build folder; one that exists keeps its generator. Programs are looked up anew: the folder may have been configured
# from a temporary environment of pip.
if command -v ninja >/dev/null; then export CMAKE_GENERATOR=Ninja
elif ! command -v make >/dev/null; then echo "build: missing: ninja or make" >&2; exit 1; fi
log=$build/configure.log
mkdir -p "$build"
cmake -S . -B "$build" -U CMAKE_MAKE_PROGRAM -U CCACHE -DTNX_BUILD_GLUE=ON -DPython_EXECUTABLE="$python" >"$log" 2>&1 ||
  { cat "$log" >&2; echo "build: cmake failed; see above" >&2; exit 1; }
cmake --build "$build" --parallel "$JOBS"
