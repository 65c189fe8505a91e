#!/usr/bin/env bash
# Runs both README commands from a clean clone in a fresh, minimal Debian root (debootstrap), where nothing is installed.
# Needs root and the debootstrap package. Takes as long as two builds; keeps nothing.
#   scripts/clean_root_check.sh [SUITE]     default: this machine's own
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(id -u)" = 0 ] || { echo "clean_root_check.sh must be run as root (it uses chroot)" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "install debootstrap first: apt-get install debootstrap" >&2; exit 2; }
suite=${1:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
# The same mirror as this machine's own.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Codename: $suite" | head -n 1)
[ -n "$mirror" ] || { echo "no package source for $suite is configured on this machine" >&2; exit 2; }

root=$(mktemp -d "${TMPDIR:-/tmp}/ablate-root-XXXXXX")
cleanup() {
  umount -l "$root/proc" 2>/dev/null || true
  rm -rf --one-file-system "$root"
}
trap cleanup EXIT

debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$root" "$mirror"
cp -r /etc/apt/. "$root/etc/apt/"
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null || true
git clone --quiet . "$root/root/ablate"
mount -t proc proc "$root/proc"

# The dashboard's packages come from where this machine gets them.
registry=$(npm config get registry 2>/dev/null || true)
inside() {
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${registry:+npm_config_registry="$registry"} \
    bash -c "cd /root/ablate && $1"
}
inside scripts/quickstart.sh
inside "build/release/bin/ablate dashboard --data-dir runs/quickstart --stop"
inside scripts/test.sh
echo "both README commands work in a clean $suite root"
