#!/usr/bin/env bash
# From a clean clone to a table with confidence intervals and a page that shows it: installs what is missing, builds the
# programs, fetches the text, runs experiments/sweeps/quickstart.yaml, and leaves the dashboard running. Run it again to
# resume, or to see the tables again.
#   scripts/quickstart.sh [flags of `ablate run`, e.g. --slots 4]
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh

cmake --preset release
cmake --build --preset release --target ablate ablate-server ablate-worker ablate-trainer

scripts/fetch_texts.sh kjv

build/release/bin/ablate run experiments/sweeps/quickstart.yaml --data-dir runs/quickstart "$@"

# The link goes to stderr, as it comes after the tables, which may be for a program (-o json).
echo >&2
echo "The dashboard of this run:" >&2
build/release/bin/ablate dashboard --data-dir runs/quickstart --background >&2
