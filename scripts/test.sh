#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs the whole test suite.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

install_dependencies
configure
say "Building everything"
cmake --build --preset release
say "Running the test suite"
ctest --preset release "$@"
