#!/usr/bin/env bash
# Builds everything and runs all tests: what CI runs, and the README's second command.
#   scripts/test.sh          release build, unit and black-box tests (15 minutes at most on 2 cores)
#   scripts/test.sh --full   also every page of the dashboard in a browser, AddressSanitizer + UndefinedBehaviorSanitizer,
#                            ThreadSanitizer, and both README commands in a clean Debian root
set -euo pipefail
cd "$(dirname "$0")/.."

full=false
case "${1:-}" in
  "") ;;
  --full) full=true ;;
  *) echo "usage: scripts/test.sh [--full]" >&2; exit 2 ;;
esac

scripts/install_packages.sh
scripts/install_browser.sh

run_preset() {  # preset, then arguments for ctest
  local preset=$1
  shift
  cmake --preset "$preset"
  cmake --build --preset "$preset"
  ctest --preset "$preset" "$@"
}

# Some scenarios of faults take long or burn every core, the pages of the dashboard take minutes: --full runs them.
run_preset release -j 2 -LE 'scenarios|dashboard_full'
if $full; then
  ctest --preset release -L 'scenarios|dashboard_full'
  # Sanitizers slow the other black-box tests beyond their own time limits; the unit tests cover the same code.
  run_preset asan -LE end_to_end
  ctest --preset asan -L sanitized
  # Debian's gRPC and OpenMP are not instrumented: only what is labelled free of both is meaningful here.
  cmake --preset tsan
  cmake --build --preset tsan --target tsan_tests
  ctest --preset tsan -L tsan
  scripts/clean_root_check.sh
fi
