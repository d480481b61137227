# Sourced by the other scripts: says what is being done, installs what is missing, configures, and
# knows how this machine's mpiexec starts more ranks than cores.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n\033[1m==> %s\033[0m\n' "$*"; }
fail() { printf '\nringworld: %s\n' "$*" >&2; exit 1; }

# An MPI is taken as it is when there is one; MPICH is the default.
debian_packages=(g++ cmake ninja-build pkg-config libopenblas-openmp-dev libgtest-dev libbenchmark-dev
  libcli11-dev nlohmann-json3-dev libfmt-dev librandom123-dev libhwy-dev liburing-dev)
command -v mpicxx >/dev/null 2>&1 && command -v mpiexec >/dev/null 2>&1 ||
  debian_packages+=(mpich libmpich-dev)
fedora_line='sudo dnf install gcc-c++ cmake ninja-build pkgconf-pkg-config mpich-devel openblas-devel gtest-devel google-benchmark-devel cli11-devel json-devel fmt-devel random123-devel highway-devel liburing-devel && module load mpi'
macos_line='brew install cmake ninja pkg-config mpich openblas googletest google-benchmark cli11 nlohmann-json fmt random123 highway libomp coreutils'

install_debian() {
  local missing=() package
  for package in "${debian_packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)" = installed ] ||
      missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "Everything that is needed is installed"
    return
  fi
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      fail "needs root to install packages; as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  say "Installing ${missing[*]} (up to 190 MB, a minute or two)"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
}

install_dependencies() {
  if command -v apt-get >/dev/null 2>&1; then
    install_debian
  elif command -v dnf >/dev/null 2>&1; then
    fail "on Fedora, install what is needed with this line, then run this script again:
  $fedora_line"
  elif [ "$(uname)" = Darwin ]; then
    fail "on macOS, install what is needed with this line, then run this script again:
  $macos_line"
  else
    fail "knows the packages of Debian and Ubuntu only; here, install the like of: ${debian_packages[*]}"
  fi
}

configure() {
  say "Configuring the release preset"
  cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; exit 1; }
  rm -f build-configure.log
}

# launch RANKS PROGRAM ARGUMENTS...: what a README reader types as mpiexec -n RANKS ...
launch() {
  local ranks=$1 options=()
  shift
  if mpiexec --version 2>/dev/null | grep -qE 'Open MPI|OpenRTE|PRRTE'; then
    options=(--oversubscribe)
    [ "$(id -u)" -ne 0 ] || options+=(--allow-run-as-root)
  fi
  mpiexec "${options[@]}" -n "$ranks" "$@"
}
