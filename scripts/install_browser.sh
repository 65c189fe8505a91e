#!/usr/bin/env bash
# Installs a browser (120 MB) for the dashboard's tests, where there is none and the distribution has one as a package. Of
# scripts/test.sh alone: using Ablate needs none. What fails here stops nobody: those tests are then counted as skipped.
set -uo pipefail
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null && exit 0
done
without() { echo "install_browser.sh: no browser ($1): the dashboard's tests in one are skipped" >&2; exit 0; }
command -v apt-get >/dev/null || without "not a Debian or Ubuntu system"
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || without "not run as root, and no sudo"
  as_root=(sudo)
fi
# Ubuntu's package is a stub that fetches a snap, which cannot use the tests' temporary folders.
candidate=$(apt-cache policy chromium 2>/dev/null | sed -n 's/^ *Candidate: //p')
case $candidate in ""|"(none)"|*snap*) without "the distribution has no package chromium" ;; esac
echo "installing, for the dashboard's tests: chromium"
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends chromium || without "apt-get failed"
