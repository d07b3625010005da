#!/usr/bin/env bash
# The C tests under AddressSanitizer and UBSan, then under ThreadSanitizer; each in a build folder of its own.
# `scripts/test_sanitize.sh thread` runs one of the two.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
[ ! -d "$venv/bin" ] || PATH=$(cd "$venv/bin" && pwd):$PATH
command -v cmake >/dev/null || { echo "missing: cmake (make setup brings it)" >&2; exit 1; }
! command -v ninja >/dev/null || export CMAKE_GENERATOR=Ninja # for a new build folder
kinds=("$@")
[ ${#kinds[@]} -gt 0 ] || kinds=(address,undefined thread)
for kind in "${kinds[@]}"; do
  build=build-${kind//,/-}
  echo "== C tests, -fsanitize=$kind =="
  cmake -S . -B "$build" -DTNX_SANITIZE="$kind" -DTNX_BUILD_GLUE=OFF >/dev/null
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}"
  ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 \
  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
  TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 \
    ctest --test-dir "$build" --output-on-failure
done
