#!/usr/bin/env python3
"""Our statistics against SciPy's at random inputs with a fixed seed.

usage: statistics_peer_test.py STATISTICS_VALUES
Exit 0: they agree. 1: they do not. 77: skipped, because no SciPy is installed (Debian: python3-scipy); it says so.
Knows the requests of statistics_values.cc. Bounds are relative; SciPy's own t quantiles stop at about 1e-9.
"""
import collections
import math
import random
import subprocess
import sys

try:
    import numpy as np
    import scipy
    from scipy import integrate, optimize, special, stats
except ImportError as error:
    print(f"SKIPPED: every comparison with SciPy ({error}); install Debian's python3-scipy to run them")
    sys.exit(77)

BOUND = 1e-8
rng = random.Random(20261130)
requests = []  # (line, expected numbers, bound)


def ask(line, expected, bound=BOUND):
    requests.append((line, [None if e is None else float(e) for e in expected], bound))


def text(values):
    return " ".join(repr(float(v)) for v in values)


def holm(p):
    # By the definition, apart from our code: the running maximum of (m - rank) p in ascending order.
    order = sorted(range(len(p)), key=lambda i: p[i])
    out, running = [0.0] * len(p), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, (len(p) - rank) * p[i]))
        out[i] = running
    return out


def paired_power(n, effect, alpha):
    df, nc = n - 1, abs(effect) * math.sqrt(n)
    critical = stats.t.isf(alpha / 2, df)
    return stats.nct.sf(critical, df, nc) + stats.nct.cdf(-critical, df, nc)


def equivalence_power(n, margin, alpha):
    df, scaled, critical = n - 1, margin * math.sqrt(n), stats.t.isf(alpha, n - 1)

    def integrand(u):
        # Density of s / sigma: chi_df at u sqrt(df), times sqrt(df).
        return stats.chi.pdf(u * math.sqrt(df), df) * math.sqrt(df) * (2 * stats.norm.cdf(scaled - critical * u) - 1)

    end = min(scaled / critical, 1 + 12 / math.sqrt(2 * df))
    return integrate.quad(integrand, 0, end, epsabs=1e-12, epsrel=1e-12, limit=400)[0]


def difference_numbers(d, level):
    n, mean, sd = len(d), np.mean(d), np.std(d, ddof=1)
    t, p = stats.ttest_1samp(d, 0)
    low, high = stats.t.interval(level, n - 1, loc=mean, scale=sd / math.sqrt(n))
    return [mean, sd, t, p, low, high]


for _ in range(60):
    df, level = rng.choice([1, 2, 3, 4, 7, 9, 19, 50, 400]), rng.uniform(0.5, 0.9999)
    ask(f"t_critical {df} {level!r}", [stats.t.isf((1 - level) / 2, df)])
    t = rng.uniform(-8, 8)
    ask(f"upper_tail {df} {t!r}", [stats.t.sf(t, df)])
    p = rng.uniform(0.0001, 0.9999)
    ask(f"normal_quantile {p!r}", [stats.norm.ppf(p)])
    n, sd, confidence = rng.randint(2, 60), rng.uniform(0.001, 3), rng.uniform(0.5, 0.99)
    ask(f"sd_upper {sd!r} {n} {confidence!r}", [sd * math.sqrt((n - 1) / stats.chi2.ppf(1 - confidence, n - 1))])

for _ in range(60):
    n, level = rng.randint(2, 15), rng.choice([0.9, 0.95, 0.99])
    a = [3 + rng.gauss(0, 0.1) for _ in range(n)]
    b = [x + rng.gauss(0.01, 0.03) for x in a]
    d = np.array(a) - np.array(b)
    low, high = stats.t.interval(level, n - 1, loc=np.mean(a), scale=stats.sem(a))
    ask(f"summary {level} {text(a)}", [n, np.mean(a), np.std(a, ddof=1), low, high])
    t, p = stats.ttest_rel(a, b)
    numbers = difference_numbers(d, level)
    assert abs(numbers[3] - p) < 1e-9 and abs(numbers[2] - t) < 1e-9 * max(1, abs(t))
    ask(f"paired {level} {n} {text(a)} {text(b)}", numbers)
    family = rng.randint(1, 30)
    sem = np.std(d, ddof=1) / math.sqrt(n)
    half = stats.t.isf((1 - level) / family / 2, n - 1) * sem
    ask(f"bonferroni {level} {family} {n} {text(a)} {text(b)}", [np.mean(d) - half, np.mean(d) + half])
    margin, alpha = rng.uniform(0.005, 0.1), rng.choice([0.05, 0.01])
    above = stats.ttest_1samp(d, -margin, alternative="greater").pvalue
    below = stats.ttest_1samp(d, margin, alternative="less").pvalue
    low, high = stats.t.interval(1 - 2 * alpha, n - 1, loc=np.mean(d), scale=sem)
    ask(f"tost {margin!r} {alpha} {n} {text(a)} {text(b)}", [max(above, below), low, high])
    c = [x + rng.gauss(1, 0.1) for x in a]
    e = [x + rng.gauss(1.2, 0.1) for x in b]
    ask(f"did {level} {n} {text(a)} {text(c)} {text(b)} {text(e)}",
        difference_numbers((np.array(c) - np.array(a)) - (np.array(e) - np.array(b)), level))

for _ in range(40):
    p = [rng.random() ** 3 for _ in range(rng.randint(1, 40))]
    if len(p) > 3:
        p[1] = p[2]  # ties
    ask(f"holm {text(p)}", holm(p))
    trials = rng.randint(1, 500)
    successes, level = rng.randint(0, trials), rng.choice([0.9, 0.95, 0.99])
    interval = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    ask(f"wilson {successes} {trials} {level}", [interval.low, interval.high])
    wins, losses = rng.randint(0, 30), rng.randint(0, 30)
    if wins + losses > 0:
        ask(f"sign {wins} {losses}", [stats.binomtest(wins, wins + losses, 0.5).pvalue])

for _ in range(30):
    n, alpha, power = rng.randint(2, 40), rng.choice([0.05, 0.01, 0.05 / 15]), rng.choice([0.5, 0.8, 0.9])
    nc = optimize.brentq(lambda x: paired_power(n, x / math.sqrt(n), alpha) - power, 1e-6, 2e4, xtol=1e-12, rtol=1e-12)
    ask(f"detectable {n} {alpha!r} {power}", [nc / math.sqrt(n)], 1e-6)
    effect = rng.uniform(0.1, 3)
    if stats.t.isf(alpha / 2, n - 1) < 200:
        ask(f"power {n} {effect!r} {alpha!r}", [paired_power(n, effect, alpha)], 1e-6)
    margin = rng.uniform(0.3, 4)
    ask(f"equivalence_power {n} {margin!r} {alpha!r}", [equivalence_power(n, margin, alpha)], 1e-6)

for _ in range(12):
    effect, alpha = rng.uniform(0.3, 3), rng.choice([0.05, 0.01])
    n = next(n for n in range(2, 1000) if paired_power(n, effect, alpha) >= 0.8)
    ask(f"seeds_to_detect {effect!r} {alpha} 0.8", [n])
    margin = rng.uniform(0.4, 4)
    n = next(n for n in range(2, 1000) if equivalence_power(n, margin, alpha) >= 0.8)
    ask(f"seeds_to_show {margin!r} {alpha} 0.8", [n])
    n0, s0, width, most = rng.randint(2, 12), rng.uniform(0.01, 1), rng.uniform(0.01, 1), rng.randint(12, 80)
    wanted = math.ceil((stats.t.isf(0.025, n0 - 1) * s0 / width) ** 2)
    ask(f"stein {n0} {s0!r} {width!r} {most} 0.95", [min(most, max(n0, wanted))])

done = subprocess.run([sys.argv[1]], input="".join(line + "\n" for line, _, _ in requests), capture_output=True,
                      text=True, check=False)
answers = done.stdout.splitlines()
if done.returncode != 0 or len(answers) != len(requests):
    sys.exit(f"statistics_values failed: exit {done.returncode}, {len(answers)} answers to {len(requests)} requests: "
             f"{done.stderr[-500:]}")
worst, count, failures = collections.defaultdict(float), collections.Counter(), []
for (line, expected, bound), answer in zip(requests, answers):
    what = line.split()[0]
    ours = [None if value == "-" else float(value) for value in answer.split()]
    count[what] += len(expected)
    if len(ours) != len(expected):
        failures.append(f"{line[:120]}: {len(ours)} numbers, expected {len(expected)}")
        continue
    # A bound near 0 carries SciPy's error of t times the half-width: both bounds have the scale of the farther one.
    interval = what in ("summary", "paired", "bonferroni", "tost", "did")
    scale = max(abs(expected[-1]), abs(expected[-2])) if interval else 0.0
    for i, (got, want) in enumerate(zip(ours, expected)):
        if got is None or want is None:
            error = 0.0 if got is want else math.inf
        else:
            # Differences of nearly equal numbers have no relative precision: 1e-12 absolute is allowed beside it.
            size = max(abs(want), scale if i >= len(expected) - 2 else 0.0, 1e-300)
            error = max(0.0, abs(got - want) - 1e-12) / size
        worst[what] = max(worst[what], error)
        if not error <= bound:
            failures.append(f"{line[:120]}: {got} and SciPy's {want}")
for what in count:
    print(f"{what:18} {count[what]:5} numbers, largest relative difference {worst[what]:.1e}")
for failure in failures[:20]:
    print("FAILED", failure)
print(f"{sum(count.values())} numbers against SciPy {scipy.__version__}, {len(failures)} apart")
sys.exit(1 if failures else 0)
