#!/usr/bin/env bash
# Builds llama-cpp-python into the virtual environment (VENV) for the llama.cpp row of `make bench`. Optional; takes ten minutes or more on two cores.
#
# Built for this processor's AVX2 or AVX-512 but without AMX, whose code path crashes on some virtual machines. The wheel holds each shared library three times
# (name.so, name.so.0, name.so.0.x) as copies, so a process may load one library twice; they are replaced by links.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -x "${VENV:-.venv}/bin/python" ] || { echo "no virtual environment ${VENV:-.venv}: make setup" >&2; exit 1; }
bin=$(cd "${VENV:-.venv}/bin" && pwd)
export PATH="$bin:$PATH"
version=0.3.36

has() { grep -m1 -qw "$1" <(grep -m1 '^flags' /proc/cpuinfo); }
options=(-DGGML_NATIVE=OFF -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF -DGGML_OPENMP=ON -DLLAVA_BUILD=OFF)
for pair in avx:AVX avx2:AVX2 fma:FMA f16c:F16C bmi2:BMI2 avx512f:AVX512 avx512_vnni:AVX512_VNNI avx512_vbmi:AVX512_VBMI avx512_bf16:AVX512_BF16; do
  if has "${pair%%:*}"; then options+=("-DGGML_${pair##*:}=ON"); else options+=("-DGGML_${pair##*:}=OFF"); fi
done
echo "llama-cpp-python $version: ${options[*]}"
"$bin/python" -m pip install "scikit-build-core" "diskcache" "jinja2" "numpy" "typing-extensions"
CMAKE_ARGS="${options[*]}" CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-$(nproc)} \
  "$bin/python" -m pip install --no-deps --no-build-isolation --no-binary llama-cpp-python "llama-cpp-python==$version"

lib=$("$bin/python" -c 'import importlib.util as u; print(u.find_spec("llama_cpp").submodule_search_locations[0])')/lib
cd "$lib"
for full in *.so.*; do
  short=${full%%.so.*}.so
  [ -L "$full" ] || [ ! -f "$short" ] || ! cmp -s "$full" "$short" || ln -sf "$short" "$full"
done
echo "installed; libraries in $lib:" && ls -l "$lib" | awk 'NR > 1 { print "  " $9, $10, $11 }'
