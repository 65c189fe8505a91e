#!/usr/bin/env bash
# Installs what scripts/packages.txt names and this machine lacks. Does nothing, and asks for nothing, when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(grep -v '^#' scripts/packages.txt)
if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  echo "install_packages.sh: not a Debian or Ubuntu system, nothing is installed; needed are the likes of:" >&2
  printf '  %s\n' "${wanted[@]}" >&2
  exit 0  # the build says what it misses
fi

# Whoever has a node that will do keeps it: the distribution's packages would replace one from elsewhere, or clash with it.
node_will_do() {
  command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)' 2>/dev/null
}
for_dashboard=()
missing=()
for package in "${wanted[@]}"; do
  case $package in nodejs|npm)
    node_will_do || for_dashboard+=("$package")
    continue
  esac
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done
[ $((${#missing[@]} + ${#for_dashboard[@]})) -gt 0 ] || exit 0

without_dashboard() {  # why
  echo "install_packages.sh: $1; the dashboard is not built without node (18 or newer) and npm, everything else is" >&2
}
as_root=()
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    [ ${#missing[@]} -gt 0 ] || { without_dashboard "run as root: apt-get install --no-install-recommends ${for_dashboard[*]}"; exit 0; }
    echo "install_packages.sh: run as root: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q "$@"; }
apt_get update || [ ${#missing[@]} -eq 0 ]
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing: ${missing[*]}"
  apt_get install -y --no-install-recommends "${missing[@]}"
fi
if [ ${#for_dashboard[@]} -gt 0 ]; then
  # Nothing is to be removed for it, and what fails here stops nobody.
  if ! planned=$(apt_get install -s --no-install-recommends "${for_dashboard[@]}" 2>&1) || grep -q '^Remv' <<< "$planned"; then
    without_dashboard "${for_dashboard[*]} do not go together with what is installed"
  else
    echo "installing, for the dashboard: ${for_dashboard[*]}"
    apt_get install -y --no-install-recommends "${for_dashboard[@]}" || without_dashboard "apt-get failed"
    node_will_do || without_dashboard "the distribution's node is too old"
  fi
fi
