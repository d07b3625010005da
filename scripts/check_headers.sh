#!/usr/bin/env bash
# Compiles each public header of the core alone, as C11 and as C++17: what calls itself a C header must be one, and the glue is C++.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
for header in core/include/tnx/*.h; do
  name=tnx/$(basename "$header")
  printf '#include "%s"\n' "$name" | "${CC:-cc}" -std=c11 -pedantic-errors -Wall -Wextra -Werror -Icore/include -fsyntax-only -x c - || { echo "$name: not C11"; status=1; }
  printf '#include "%s"\n' "$name" | "${CXX:-c++}" -std=c++17 -Wall -Wextra -Werror -Icore/include -fsyntax-only -x c++ - || { echo "$name: not C++17"; status=1; }
done
[ $status -eq 0 ] && echo "public headers: C11 and C++17"
exit $status
