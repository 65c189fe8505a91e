#!/usr/bin/env python3
"""How fast the dashboard answers on a large database while workers write into it, and whether the workers notice.

bench/dashboard_load.py [--dir DIR] [--build build/release] [--rounds 8] [--seconds 12] [--readers 2] [--sweeps load-1,load-2,live]

DIR holds the database of 100,000 jobs and 50 million points: made first where it is not there (a few minutes, 4 GB), kept and used again
otherwise. Then `ablate-server --http` is started on it, with 32 workers in one process that each report progress and 30 points every half
second and hand in results (`dashboard_load write`). Rounds alternate: workers alone, workers with readers.

A reader is a browser: it opens the first page (the page itself, /me, the list of sweeps), then a sweep's page: every request that the
page's overview, curves and differences make, four connections at once, gzip allowed. A page's time runs from its first request to its last
byte. The sweep `live` is the one that the workers write into: nothing of it stays the same from one opening to the next.

Required: first page under 200 ms and a sweep's page under 1 s at the 95th percentile; the workers' calls as fast with readers as without:
of the pairs of neighbouring rounds, their p50 and p95 do not rise in so many that chance would not do it (sign test, 0.05).
"""

import argparse
import concurrent.futures
import http.client
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

FIRST_MS, SWEEP_MS = 200, 1000
METRICS = ["loss_targets", "loss", "passkey_accuracy", "mqar_accuracy", "attention_entropy", "acc", "gain"]


def percentile(values, share):
    """The smallest value that `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * share // 100) - 1))] if ordered else float("nan")


def sign_test(changes):
    """Exact, two-sided; ties are left out."""
    up, down = sum(c > 0 for c in changes), sum(c < 0 for c in changes)
    n = up + down
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(min(up, down) + 1)) / 2**n)


class Browser:
    """Up to four connections, kept open."""

    def __init__(self, port):
        self.port, self.local, self.pool = port, threading.local(), concurrent.futures.ThreadPoolExecutor(4)
        self.times = {}  # what was asked -> ms
        self.bytes = {}

    def get(self, what, path, query=()):
        if query:
            path += "?" + urllib.parse.urlencode(query)
        begin = time.monotonic()
        connection = getattr(self.local, "connection", None)
        if connection is None:
            connection = self.local.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):  # it was idle for too long: a browser opens another one
            connection.close()
            connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            sys.exit(f"dashboard_load: {path}: {answer.status} {body[:300]}")
        self.times.setdefault(what, []).append((time.monotonic() - begin) * 1000)
        self.bytes[what] = len(body)
        return body

    def page(self, requests):
        begin = time.monotonic()
        for done in [self.pool.submit(self.get, *request) for request in requests]:
            done.result()
        return (time.monotonic() - begin) * 1000

    def first_page(self):
        return self.page([("page", "/"), ("me", "/api/v1/me"), ("sweeps", "/api/v1/sweeps", [("page_size", 50)])])

    def sweep_page(self, sweep, arms):
        path = f"/api/v1/sweeps/{sweep}"
        return self.page([
            ("sweep", path), ("me", "/api/v1/me"), ("grid", path + "/grid"),
            ("table", path + "/table", [("metrics", m) for m in METRICS] + [("level", 0.95)]),
            ("comparison", path + "/comparison", [("metrics", "loss_targets"), ("level", 0.95)]),
            ("curves", path + "/curves", [("metrics", "train_loss"), ("level", 0.95), ("max_points", 400)] + [("arms_json", a) for a in arms]),
            ("jobs", path + "/jobs", [("page_size", 1)]),
        ])


def arms_of(port, sweep):
    """The baseline and the first others, as the page chooses them; the tool asks once."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/api/v1/sweeps/{sweep}/grid")
    grid = json.loads(connection.getresponse().read())
    return [arm["arm_json"] for arm in grid["arms"]][:8]


def memory_mib(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        found = dict(line.split(":", 1) for line in file)
    return int(found["VmRSS"].split()[0]) / 1024


def seconds_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=os.path.join(tempfile.gettempdir(), "ablate-dashboard-load"))
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--readers", type=int, default=2)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--contact-ms", type=int, default=500)
    parser.add_argument("--sweeps", default="load-1,load-2,load-3,live")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two pages of a reader")
    args = parser.parse_args()
    load = os.path.join(args.build, "bin", "dashboard_load")
    if not os.path.exists(os.path.join(args.dir, "made")):
        begin = time.monotonic()
        os.makedirs(args.dir, exist_ok=True)
        subprocess.run([load, "make", args.dir], check=True)
        open(os.path.join(args.dir, "made"), "w").close()
        print(f"made in {time.monotonic() - begin:.0f} s")
    size = os.path.getsize(os.path.join(args.dir, "ablate.db")) / 2**30

    with tempfile.TemporaryDirectory() as scratch:
        socket, ready = os.path.join(scratch, "s.sock"), os.path.join(scratch, "server.log")
        begin = time.monotonic()
        with open(ready, "w") as log:
            server = subprocess.Popen([os.path.join(args.build, "bin", "ablate-server"), "--data-dir", args.dir, "--listen", f"unix:{socket}",
                                       "--http", "127.0.0.1:0"], stdout=log, stderr=subprocess.STDOUT)
        try:
            run(args, load, server, socket, ready, scratch, begin, size)
        finally:
            server.terminate()
            server.wait()


def run(args, load, server, socket, ready, scratch, begin, size):
    port = None
    while port is None:
        if server.poll() is not None:
            sys.exit("dashboard_load: the server ended:\n" + open(ready).read())
        found = re.search(r"http://[^\s/]*:(\d+)", open(ready).read())
        port = int(found.group(1)) if found else None
        time.sleep(0.05)
    print(f"database {size:.1f} GiB; start {time.monotonic() - begin:.1f} s, {seconds_of(server.pid):.1f} s of processor, "
          f"{memory_mib(server.pid):.0f} MiB; load of the machine {os.getloadavg()[0]:.1f}")
    sweeps = args.sweeps.split(",")
    arms = {sweep: arms_of(port, sweep) for sweep in sweeps}

    total = args.rounds * 2 * (args.seconds + 1) + 6
    calls_file = os.path.join(scratch, "calls")
    writers = subprocess.Popen([load, "write", f"unix:{socket}", str(args.workers), str(total), str(args.contact_ms), calls_file])
    time.sleep(4)  # until each has a job
    first, pages, windows = [], {sweep: [] for sweep in sweeps}, {False: [], True: []}
    spent, browsers = {False: 0.0, True: 0.0}, [Browser(port) for _ in range(args.readers)]

    def read(reader, until):
        at = reader
        while time.monotonic() < until:
            first.append(browsers[reader].first_page())
            time.sleep(args.pause)
            sweep = sweeps[at % len(sweeps)]
            at += 1
            pages[sweep].append(browsers[reader].sweep_page(sweep, arms[sweep]))
            time.sleep(args.pause)

    for _ in range(args.rounds):
        for reading in (False, True):
            start, used = time.time(), seconds_of(server.pid)
            until = time.monotonic() + args.seconds
            if reading:
                threads = [threading.Thread(target=read, args=(i, until)) for i in range(args.readers)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            else:
                time.sleep(args.seconds)
            windows[reading].append((start, time.time()))
            spent[reading] += (seconds_of(server.pid) - used) / (time.time() - start) / args.rounds
            time.sleep(1)
    writers.wait()
    with open(calls_file, encoding="utf-8") as file:
        calls = [tuple(map(float, line.split())) for line in file]

    of_rounds = {}
    for reading in (False, True):
        rounds = [[ms for at, ms in calls if start <= at < end] for start, end in windows[reading]]
        of_rounds[reading] = [(percentile(r, 50), percentile(r, 95), len(r)) for r in rounds]
        print(f"workers' calls {'with' if reading else 'without'} readers, p50/p95 ms: "
              + "  ".join(f"{a:.1f}/{b:.1f}" for a, b, _ in of_rounds[reading])
              + f"  ({sum(n for _, _, n in of_rounds[reading])} calls); server {spent[reading]:.2f} cores")
    bad = []
    for index, name in ((0, "p50"), (1, "p95")):
        without, with_readers = ([r[index] for r in of_rounds[reading]] for reading in (False, True))
        changes = [b - a for a, b in zip(without, with_readers)]  # a round with readers less the one before it
        p = sign_test(changes)
        print(f"workers' {name}: {statistics.median(without):.1f} ms without, {statistics.median(with_readers):.1f} ms with; "
              f"from round to round {statistics.median(changes):+.1f} ms at the median, {sum(c > 0 for c in changes)} of {len(changes)} up (sign test p = {p:.2f})")
        if p < 0.05 and statistics.median(changes) > 0:
            bad.append(f"the workers' {name} grows with readers")
    for name, times, bar in [("first page", first, FIRST_MS)] + [(f"page of {s}", pages[s], SWEEP_MS) for s in sweeps]:
        print(f"{name:16} p50 {percentile(times, 50):6.0f} ms   p95 {percentile(times, 95):6.0f} ms   largest {max(times):6.0f} ms   ({len(times)} times)")
        if percentile(times, 95) > bar:
            bad.append(f"{name}: p95 over {bar} ms")
    every = [t for s in sweeps for t in pages[s]]
    print(f"{'all sweeps':16} p50 {percentile(every, 50):6.0f} ms   p95 {percentile(every, 95):6.0f} ms")
    for what in browsers[0].times:
        times = [t for browser in browsers for t in browser.times.get(what, [])]
        print(f"  {what:12} p50 {percentile(times, 50):6.1f} ms  p95 {percentile(times, 95):6.1f} ms  {browsers[0].bytes[what]:8d} bytes as sent")
    print(f"server at the end: {memory_mib(server.pid):.0f} MiB; load of the machine {os.getloadavg()[0]:.1f}")
    for line in bad:
        print("MISSED: " + line)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
