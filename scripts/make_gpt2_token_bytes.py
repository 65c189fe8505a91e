#!/usr/bin/env python3
"""Writes worker/trainer/gpt2_token_bytes.cc from a .tiktoken file of GPT-2 (a line a token: base64 of its bytes, rank).

usage: make_gpt2_token_bytes.py RANKS.tiktoken > worker/trainer/gpt2_token_bytes.cc
"""
import base64
import sys

TEMPLATE = r'''// The table of Gpt2TokenBytes, one character a token. Made from the ranks of OpenAI's GPT-2 encoding (MIT licence), as the npm
// package js-tiktoken 1.0.21 ships them, by scripts/make_gpt2_token_bytes.py.
#include "worker/trainer/gpt2_token_bytes.h"

#include "base/log.h"

namespace ablate {
namespace {

constexpr int kTokens = 50256;
// Character 35 + i (quote, backslash and question mark passed over) stands for kLengths[i] bytes.
constexpr int kLengths[] = {LENGTHS};
constexpr char kSymbols[] = "SYMBOLS";
constexpr char kTable[] =
TABLE;
static_assert(sizeof(kTable) == kTokens + 1 && sizeof(kSymbols) == std::size(kLengths) + 1);

}  // namespace

int Gpt2TokenBytes(int32_t token) {
  CHECK(token >= 0 && token <= kTokens) << token;
  if (token == kTokens) return 0;
  for (size_t i = 0; i < std::size(kLengths); ++i) {
    if (kSymbols[i] == kTable[token]) return kLengths[i];
  }
  return 0;
}

}  // namespace ablate
'''


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    lengths = {}
    with open(sys.argv[1], encoding="ascii") as ranks:
        for line in ranks:
            text, rank = line.split()
            lengths[int(rank)] = len(base64.b64decode(text))
    if sorted(lengths) != list(range(50256)):
        print(f"{sys.argv[1]}: expected the ranks 0 to 50255, found {len(lengths)} lines", file=sys.stderr)
        return 1
    known = sorted(set(lengths.values()))
    symbols = [c for c in map(chr, range(35, 127)) if c not in '"?\\'][: len(known)]
    text = "".join(symbols[known.index(lengths[rank])] for rank in range(50256))
    table = "\n".join(f'    "{text[i : i + 108]}"' for i in range(0, len(text), 108))
    replaced = TEMPLATE.replace("LENGTHS", ", ".join(map(str, known))).replace("SYMBOLS", "".join(symbols))
    sys.stdout.write(replaced.replace("TABLE", table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
