#!/usr/bin/env bash
# The house's own rules, checked over the sources: floors include only what stands below them, nothing
# above runtime/ names MPI, OpenBLAS or an address, and every test file is in the build.
set -u
cd "$(dirname "$0")/.." || exit 1
failures=0

# forbid WHAT PATTERN PATH...: no line of the sources under PATH may match.
forbid() {
  local what=$1 pattern=$2 found
  shift 2
  found=$(grep -rnE --include='*.h' --include='*.cpp' -- "$pattern" "$@")
  if [ -n "$found" ]; then
    printf '%s:\n%s\n' "$what" "$found"
    failures=$((failures + 1))
  fi
}

# From the ground up; models and collectives stand side by side.
forbid "runtime includes a floor above it" '#include "(collectives|models|parallel|training|planner|cli)/' runtime
forbid "collectives includes a floor above or beside it" '#include "(models|parallel|training|planner|cli)/' collectives
forbid "models includes a floor above or beside it" '#include "(collectives|parallel|training|planner|cli)/' models
forbid "parallel includes a floor above it" '#include "(training|planner|cli)/' parallel
forbid "training includes a floor above it" '#include "(planner|cli)/' training
forbid "planner includes a floor above it" '#include "cli/' planner
forbid "an address, MPI or OpenBLAS above runtime/" \
  '#include ["<](runtime/raw\.h|mpi\.h|cblas\.h)|\b(MPI_[A-Z]|cblas_|openblas_)' \
  collectives models parallel training planner cli
forbid "unfinished work" '\b(TODO|FIXME|XXX)\b|GTEST_SKIP|DISABLED_' \
  runtime collectives models parallel training planner cli tests bench

for file in $(find tests -name '*_test.cpp'); do
  if ! grep -q "$(basename "$file")" "$(dirname "$file")/CMakeLists.txt"; then
    echo "$file is not in the build"
    failures=$((failures + 1))
  fi
done

[ "$failures" -eq 0 ]
