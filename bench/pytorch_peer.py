"""The same model and step in PyTorch: what bench/train_bench is compared with (bench/train_vs_pytorch.sh).

pytorch_peer.py train|eval tiny|small softmax|lssar LENGTH BATCH STEPS [--threads N] [--by-hand] [--rows N]
Prints train_bench's line, and the BLAS that PyTorch found. bench/README.md says what makes this a fair peer: OpenBLAS's OpenMP build and
tuned malloc (the script sets both), fused ops where PyTorch has them, and attention in as few passes over the T x T scores
as eager ops allow.
--by-hand  takes p = 15 for granted: x^15 by six products in place where no gradient is wanted, instead of pow
--rows N   attention in blocks of N rows, each up to the diagonal only: tiling by hand, which halves the work (for eval)
"""

import argparse
import math
import resource
import time

import torch
import torch.nn.functional as F


def power15(y):
    """y^15 in y's place."""
    y2 = y * y
    y.mul_(y2)
    y.mul_(y2.mul_(y2))
    return y.mul_(y2.mul_(y2))


class Block(torch.nn.Module):
    def __init__(self, width, heads, layers, variant, rows, by_hand):
        super().__init__()
        self.heads, self.variant, self.rows, self.by_hand, self.p = heads, variant, rows, by_hand, 15
        self.ln1 = torch.nn.LayerNorm(width)
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.proj = torch.nn.Linear(width, width)
        self.ln2 = torch.nn.LayerNorm(width)
        self.fc = torch.nn.Linear(width, 4 * width)
        self.fcproj = torch.nn.Linear(4 * width, width)
        for layer, std in ((self.qkv, 0.02), (self.fc, 0.02), (self.proj, 0.02 / math.sqrt(2 * layers)),
                           (self.fcproj, 0.02 / math.sqrt(2 * layers))):
            torch.nn.init.normal_(layer.weight, std=std)
            torch.nn.init.zeros_(layer.bias)

    def attention(self, q, k, v, t):
        B, H, T, d = q.shape
        q, k, v = (z.reshape(B * H, T, d) for z in (q, k, v))
        if self.rows == 0:
            return self.attend(q, k, v, t, 0, T).view(B, H, T, d)
        # A block of rows needs the keys up to its end only, and its scores stay in the cache.
        blocks = [self.attend(q[:, i:i + self.rows], k[:, :i + self.rows], v[:, :i + self.rows], t, i, min(T, i + self.rows))
                  for i in range(0, T, self.rows)]
        return torch.cat(blocks, 1).view(B, H, T, d)

    def attend(self, q, k, v, t, begin, end):
        # The mask (0, or -inf above the diagonal) is where the product starts, so it costs no pass of its own, nor one backward.
        scores = torch.baddbmm(t["mask"][begin:end, :end], q, k.transpose(1, 2))
        if self.variant == "softmax":
            return scores.softmax(-1) @ v
        u = F.softplus(scores)
        # The last step is scale invariant, so relu(n u / sum - 1) may be taken times sum / n, and the row's maximum is a constant.
        y = (u - u.sum(-1, keepdim=True) * t["share"][begin:end]).relu_()
        top = 1 / y.detach().amax(-1, keepdim=True).clamp_min(1e-30)
        if torch.is_grad_enabled():
            w = (y * top).pow(self.p)
        else:
            w = power15(y.mul_(top)) if self.by_hand else y.mul_(top).pow_(self.p)
        return (w @ v) / w.sum(-1, keepdim=True)

    def forward(self, x, t):
        B, T, C = x.shape
        d = C // self.heads
        qkv = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, d).permute(2, 0, 3, 1, 4)
        qk, v = qkv[:2], qkv[2]
        a, b = qk[..., :d // 2], qk[..., d // 2:]
        q, k = torch.cat((a * t["cos"] - b * t["sin"], b * t["cos"] + a * t["sin"]), -1)
        if self.variant == "softmax":
            q = q * (1 / math.sqrt(d))
        else:
            q = F.normalize(q, dim=-1, eps=1e-12) * t["scale"]
            k = F.normalize(k, dim=-1, eps=1e-12)
        out = self.attention(q, k, v, t).transpose(1, 2).reshape(B, T, C)
        x = x + self.proj(out)
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, vocab, variant, length, rows, by_hand):
        super().__init__()
        self.wte = torch.nn.Parameter(torch.randn(vocab, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads, layers, variant, rows, by_hand) for _ in range(layers))
        self.lnf = torch.nn.LayerNorm(width)
        d = width // heads
        position = torch.arange(length, dtype=torch.float32)
        angle = position[:, None] * (10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32) / d))
        n = (position + 1)[:, None]
        self.tables = {"cos": angle.cos(), "sin": angle.sin(), "n": n, "scale": math.log(d) * n.log(),
                       "share": (n > 3).float() / n, "mask": torch.full((length, length), -math.inf).triu(1)}

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.wte)
        for block in self.blocks:
            x = block(x, self.tables)
        logits = F.linear(self.lnf(x), self.wte)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def blas():
    """The folder of the BLAS that this process has loaded, e.g. openblas-openmp."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        paths = {line.split()[-1] for line in maps if "/libblas" in line or "/libopenblas" in line or "/libmkl" in line}
    return ",".join(sorted({path.split("/")[-2] for path in paths})) or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("train", "eval"))
    parser.add_argument("size", choices=("tiny", "small"))
    parser.add_argument("variant", choices=("softmax", "lssar"))
    for name in ("length", "batch", "steps"):
        parser.add_argument(name, type=int)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--by-hand", action="store_true")
    args = parser.parse_args()
    mode, size, variant, length, batch, steps = args.mode, args.size, args.variant, args.length, args.batch, args.steps
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)  # x^15 makes some
    torch.manual_seed(1)
    layers, width, heads = {"tiny": (4, 128, 4), "small": (6, 384, 6)}[size]
    model = Model(layers, width, heads, 256, variant, length, args.rows, args.by_hand)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, foreach=True)
    tokens = (torch.rand(batch * length) ** 2 * 255).long()
    targets = tokens.roll(-1).view(batch, length)
    tokens = tokens.view(batch, length)
    rates = []
    for step in range(-1, steps):  # the first step allocates and is not counted
        start = time.process_time()
        if mode == "train":
            loss = model(tokens, targets)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        else:
            with torch.no_grad():
                loss = model(tokens, targets)
        value = loss.item()
        if step >= 0:
            rates.append(batch * length / (time.process_time() - start))
    rates.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{mode} {size} {variant} T={length} B={batch} tokens_per_cpu_second median {rates[len(rates) // 2]:.1f} "
          f"best {rates[-1]:.1f} peak_mb {peak:.1f} loss {value:.4f} blas {blas()}")


if __name__ == "__main__":
    main()
