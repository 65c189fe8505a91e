#!/usr/bin/env bash
# The texts of experiments/sweeps, into data/ (not committed). What is there already is left alone.
#   scripts/fetch_texts.sh [kjv|sqlite|typescript]...     (all of them)
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "fetch_texts.sh: $1" >&2; }

# The packages of npm are unpacked, not installed: nothing of them runs.
from_npm() {  # PACKAGE@VERSION PATH_IN_IT: prints the file
  command -v npm >/dev/null || { say "npm is needed for this text (scripts/install_packages.sh)"; return 1; }
  local folder
  folder=$(mktemp -d)
  if (cd "$folder" && npm pack --silent "$1" >/dev/null); then
    tar -xzOf "$folder"/*.tgz "package/$2"
  else
    say "npm could not fetch $1"
  fi
  rm -rf "$folder"
}

fetch() {  # NAME SHA256 COMMAND...
  local name=$1 sha256=$2 file=data/$1.txt
  shift 2
  if [ ! -s "$file" ]; then
    mkdir -p data
    "$@" > "$file.part"
    [ "$(stat -c %s "$file.part")" -ge 1000000 ] || { say "less than 1 MB came of: $*"; rm -f "$file.part"; return 1; }
    mv "$file.part" "$file"
  fi
  # Another release of a package may have another text: good to train on, but not what experiments/results are of.
  echo "$sha256  $file" | sha256sum --check --status ||
    say "$file is not, byte for byte, the text of experiments/results: its sha256 is not $sha256"
}

text() {
  case $1 in
    # The King James Bible, one verse a line, from the package bible-kjv (in /usr/games on some systems). Public domain.
    kjv) PATH="$PATH:/usr/games" fetch kjv cd45f0c9cedab8e4439bd6486c8952c77cc8b0ecc5d1f6ae3513f2039f47229d bible -f gen1:1-rev22:21 ;;
    # SQLite's amalgamation: its whole C source in one file, as better-sqlite3 brings it. Public domain.
    sqlite) fetch sqlite 60d2f39a3726cd6b9021da6f4e868608d66fbb6528a9f513dc8ffcc640493422 \
      from_npm better-sqlite3@12.11.1 deps/sqlite3/sqlite3.c ;;
    # The TypeScript compiler, compiled to JavaScript and not minified. Apache 2.0.
    typescript) fetch typescript e8f349eabd48486bdb2bf9dc1a00c89d58297270c54b745838879e2859194419 \
      from_npm typescript@5.9.3 lib/_tsc.js ;;
  esac
}

[ $# -gt 0 ] || set -- kjv sqlite typescript
for name in "$@"; do
  case $name in kjv|sqlite|typescript) ;; *) say "unknown text $name: kjv, sqlite or typescript"; exit 2 ;; esac
done
for name in "$@"; do text "$name"; done
