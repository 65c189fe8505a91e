"""The same model and step in PyTorch on a GPU: what bench/device_bench is compared with (scripts/gpu_check.sh).

pytorch_gpu_peer.py train PRESET softmax|lssar LENGTH BATCH STEPS [--precision bf16|float32] [--device cuda|cpu] [--eager]
pytorch_gpu_peer.py attention softmax|lssar LENGTH TOKENS HEADS HEAD_DIM [--precision ...] [--device ...] [--eager]
Prints device_bench's line. softmax is scaled_dot_product_attention; lssar is the paper's formula in ordinary operations (p = 15).
Both go through torch.compile, AdamW is the fused one, matrix products run in bf16 under autocast with float32 master weights.
A run that does not fit says "out of memory" and ends with 0: that is a result.
"""

import argparse
import math
import statistics
import time

import torch
import torch.nn.functional as F

PRESETS = {"tiny": (4, 128, 4, 256), "small": (6, 384, 6, 256), "gpt2-45m": (6, 512, 8, 50257),
           "gpt2-124m": (12, 768, 12, 50257), "gpt2-355m": (24, 1024, 16, 50257)}
P = 15


def lssar(q, k, v):
    """q, k, v [B, H, T, d] before normalisation. Scores and weights in float32, as the method needs them."""
    T, d = q.shape[-2:]
    n = torch.arange(1, T + 1, device=q.device, dtype=torch.float32)[:, None]
    q = F.normalize(q.float(), dim=-1, eps=1e-12).to(q.dtype)
    k = F.normalize(k.float(), dim=-1, eps=1e-12).to(k.dtype)
    scores = (q @ k.transpose(-1, -2)).float() * (math.log(d) * n.log())
    u = F.softplus(scores).masked_fill(torch.ones(T, T, device=q.device, dtype=torch.bool).triu(1), 0.0)
    offset = (n > 3).float()
    y = F.relu(n * u / u.sum(-1, keepdim=True) - offset)
    y = y / y.detach().amax(-1, keepdim=True).clamp_min(1e-30)
    w = y.pow(P)
    w = w / w.sum(-1, keepdim=True).clamp_min(1e-30)
    return w.to(v.dtype) @ v


def softmax(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    T, d = q.shape[-2:]  # PyTorch 1: only to try this file out
    scores = (q @ k.transpose(-1, -2)) / math.sqrt(d)
    return scores.masked_fill(torch.ones(T, T, device=q.device, dtype=torch.bool).triu(1), -math.inf).softmax(-1) @ v


class Block(torch.nn.Module):
    def __init__(self, width, heads, layers, attend):
        super().__init__()
        self.heads, self.attend = heads, attend
        self.ln1, self.ln2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.fc, self.fcproj = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        for layer, std in ((self.qkv, 0.02), (self.fc, 0.02), (self.proj, 0.02 / math.sqrt(2 * layers)),
                           (self.fcproj, 0.02 / math.sqrt(2 * layers))):
            torch.nn.init.normal_(layer.weight, std=std)
            torch.nn.init.zeros_(layer.bias)

    def forward(self, x, cos, sin):
        B, T, C = x.shape
        d = C // self.heads
        q, k, v = self.qkv(self.ln1(x)).view(B, T, 3, self.heads, d).permute(2, 0, 3, 1, 4)
        q, k = (torch.cat((z[..., :d // 2] * cos - z[..., d // 2:] * sin, z[..., d // 2:] * cos + z[..., :d // 2] * sin),
                          -1).to(v.dtype) for z in (q, k))
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(B, T, C))
        return x + self.fcproj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    def __init__(self, layers, width, heads, vocab, attend, length):
        super().__init__()
        # Rows to a multiple of 128, as everyone who trains GPT-2 quickly does; the targets never name the extra ones.
        self.wte = torch.nn.Parameter(torch.randn((vocab + 127) // 128 * 128, width) * 0.02)
        self.blocks = torch.nn.ModuleList(Block(width, heads, layers, attend) for _ in range(layers))
        self.lnf = torch.nn.LayerNorm(width)
        d = width // heads
        angle = torch.arange(length)[:, None] * (10000.0 ** (-torch.arange(0, d, 2) / d))
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.wte)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.lnf(x), self.wte)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.view(-1))


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()


def name_of(device):
    return torch.cuda.get_device_name() if device == "cuda" else "cpu"


def train(args, attend):
    preset = args.words[0]
    length, batch, steps = (int(word) for word in args.words[2:5])
    layers, width, heads, vocab = PRESETS[preset]
    torch.manual_seed(1)
    model = Model(layers, width, heads, vocab, attend, length).to(args.device)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    fused = {"fused": True} if args.device == "cuda" else {}
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=1e-3, betas=(0.9, 0.95), eps=1e-8, **fused)
    compiled = model if args.eager else torch.compile(model)
    tokens = (torch.rand(batch * length, device=args.device) ** 2 * (vocab - 1)).long()
    targets, tokens = tokens.roll(-1).view(batch, length), tokens.view(batch, length)
    seconds = []
    for step in range(-5, steps):
        synchronize(args.device)
        start = time.perf_counter()
        with torch.autocast(args.device, dtype=torch.bfloat16, enabled=args.precision == "bf16"):
            loss = compiled(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        synchronize(args.device)
        if step >= 0:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    flops = batch * length * (6 * (12 * layers * width**2 + vocab * width) + 6 * layers * width * length)
    print(f"pytorch train {preset} {args.words[1]} {args.precision} T={length} B={batch} tokens_per_second "
          f"{batch * length / median:.0f} tflops {1e-12 * flops / median:.2f} loss {value:.4f} "
          f"torch {torch.__version__} device {name_of(args.device)}")


def attention(args, attend):
    length, tokens, heads, d = (int(word) for word in args.words[1:5])
    batch = max(1, tokens // length)
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    torch.manual_seed(1)
    q, k, v, dout = (torch.randn(batch, heads, length, d, device=args.device, dtype=dtype) for _ in range(4))
    for z in (q, k, v):
        z.requires_grad_(True)
    compiled = attend if args.eager else torch.compile(attend)

    def timed(work):
        times = []
        for i in range(8):
            synchronize(args.device)
            start = time.perf_counter()
            work()
            synchronize(args.device)
            if i >= 3:
                times.append(time.perf_counter() - start)
        return statistics.median(times)

    out = compiled(q, k, v)
    forward = timed(lambda: compiled(q, k, v))
    backward = timed(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True))
    pairs = 0.5 * length * (length + 1) * heads * batch
    print(f"pytorch attention {args.words[0]} {args.precision} B={batch} T={length} H={heads} D={d} forward_ms {1e3 * forward:.4f} "
          f"tflops {4e-12 * d * pairs / forward:.2f} backward_ms {1e3 * backward:.4f} tflops {10e-12 * d * pairs / backward:.2f} "
          f"torch {torch.__version__} device {name_of(args.device)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("train", "attention"))
    parser.add_argument("words", nargs=5)
    parser.add_argument("--precision", choices=("bf16", "float32"), default="bf16")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    args = parser.parse_args()
    attend = {"softmax": softmax, "lssar": lssar}[args.words[1 if args.mode == "train" else 0]]
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        (train if args.mode == "train" else attention)(args, attend)
    except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
        if "out of memory" not in str(error).lower():
            raise
        print(f"pytorch {args.mode} {' '.join(args.words)} {args.precision}: out of memory")


if __name__ == "__main__":
    main()
