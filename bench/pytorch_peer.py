"""The same model and step in ordinary PyTorch: what bench/train_bench is compared with (bench/train_vs_pytorch.sh).

pytorch_peer.py train|eval tiny|small softmax|lssar LENGTH BATCH STEPS [THREADS]
Prints train_bench's line. Fused ops where PyTorch has them (layer_norm, gelu, softmax, cross_entropy, AdamW foreach, clip_grad_norm_);
attention in eager ops, in place where autograd allows, with its row factors folded into q and into the output.
Run it with OpenBLAS's OpenMP build and tuned malloc; the script sets both.
"""

import math
import resource
import sys
import time

import torch
import torch.nn.functional as F


class Block(torch.nn.Module):
    def __init__(self, width, heads, layers, variant, length):
        super().__init__()
        self.heads, self.variant, self.p = heads, variant, 15
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
        if self.variant == "softmax":
            scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
            return scores.masked_fill_(t["above"], -math.inf).softmax(-1) @ v
        q = F.normalize(q, dim=-1, eps=1e-12) * t["scale"]
        k = F.normalize(k, dim=-1, eps=1e-12)
        u = F.softplus(q @ k.transpose(-2, -1)).mul_(t["below"])
        y = (u * (t["n"] / u.sum(-1, keepdim=True))).sub_(t["offset"]).relu_()
        y = y * (1 / y.detach().amax(-1, keepdim=True).clamp_min(1e-3))  # exact: the last step is scale invariant
        w = y.pow(self.p)
        return (w @ v) / w.sum(-1, keepdim=True)

    def forward(self, x, t):
        B, T, C = x.shape
        qkv = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        half = q.shape[-1] // 2

        def rotate(z):
            a, b = z[..., :half], z[..., half:]
            return torch.cat((a * t["cos"] - b * t["sin"], b * t["cos"] + a * t["sin"]), -1)

        out = self.attention(rotate(q), rotate(k), v, t).transpose(1, 2).reshape(B, T, C)
        x = x + self.proj(out)
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, vocab, variant, length):
        super().__init__()
        self.wte = torch.nn.Parameter(torch.randn(vocab, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads, layers, variant, length) for _ in range(layers))
        self.lnf = torch.nn.LayerNorm(width)
        d = width // heads
        position = torch.arange(length, dtype=torch.float32)
        angle = position[:, None] * (10000.0 ** (-torch.arange(0, d, 2, dtype=torch.float32) / d))
        n = (position + 1)[:, None]
        self.tables = {"cos": angle.cos(), "sin": angle.sin(), "n": n, "scale": math.log(d) * n.log(),
                       "offset": (n > 3).float()}
        if variant == "softmax":
            self.tables["above"] = torch.ones(length, length, dtype=torch.bool).triu(1)
        else:
            self.tables["below"] = torch.ones(length, length).tril()

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.wte)
        for block in self.blocks:
            x = block(x, self.tables)
        logits = F.linear(self.lnf(x), self.wte)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main(mode, size, variant, length, batch, steps, threads="1"):
    length, batch, steps = int(length), int(batch), int(steps)
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    layers, width, heads = {"tiny": (4, 128, 4), "small": (6, 384, 6)}[size]
    model = Model(layers, width, heads, 256, variant, length)
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
            optimizer.zero_grad(set_to_none=False)
        else:
            with torch.no_grad():
                loss = model(tokens, targets)
        value = loss.item()
        if step >= 0:
            rates.append(batch * length / (time.process_time() - start))
    rates.sort()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{mode} {size} {variant} T={length} B={batch} tokens_per_cpu_second median {rates[len(rates) // 2]:.1f} "
          f"best {rates[-1]:.1f} peak_mb {peak:.1f} loss {value:.4f}")


if __name__ == "__main__":
    if len(sys.argv) not in (7, 8):
        sys.exit(__doc__)
    main(*sys.argv[1:])
