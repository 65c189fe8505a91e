"""The dashboard's server: `ablate-server --http` and `ablate dashboard` as programs, asked by Python's own HTTP client. What it
answers is what the command line prints; it lives and dies with its server; tokens and TLS beyond loopback."""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from harness import BIN, ClusterTest, noop_yaml, sweep_yaml


def request(link, method, path, body=None, headers=None, context=None):
    scheme, _, rest = link.partition("://")
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    connection = kind(rest.strip("/"), timeout=60, **({"context": context} if scheme == "https" else {}))
    try:
        send = {"Content-Type": "application/json"} if method == "POST" else {}
        connection.request(method, path, body, {**send, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


class Events(threading.Thread):
    """Reads server-sent events into a list until the stream ends."""

    def __init__(self, link, path, headers=None, context=None):
        super().__init__(daemon=True)
        scheme, _, rest = link.partition("://")
        kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
        self.connection = kind(rest.strip("/"), timeout=60, **({"context": context} if scheme == "https" else {}))
        self.connection.request("GET", path, headers=headers or {})
        self.response = self.connection.getresponse()
        self.events, self.ended = [], None
        self.start()

    def run(self):
        name = ""
        try:
            for line in self.response:
                text = line.decode().rstrip("\n")
                if text.startswith("event: "):
                    name = text[7:]
                elif text.startswith("data: "):
                    self.events.append((name, json.loads(text[6:])))
        except (OSError, http.client.HTTPException):
            pass  # the server was stopped
        self.ended = time.monotonic()
        self.connection.close()


class Http(ClusterTest):
    def setUp(self):
        self.box = self.cluster()

    def link(self):
        with open(os.path.join(self.box.data_dir, "dashboard.address")) as file:
            return file.read().strip()

    def get(self, path, **kwargs):
        status, headers, body = request(self.link(), "GET", path, **kwargs)
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def test_says_what_the_command_line_says_and_ends_with_its_server(self):
        server = self.box.start_server("--http", "127.0.0.1:0")
        self.box.submit(sweep_yaml("small", steps=20), "small")
        watched = Events(self.link(), "/api/v1/changes?sweep=small")
        self.box.start_worker("w", slots=2)
        self.box.wait("small")
        watched.join(60)
        self.assertEqual(watched.events[-1][0], "end", watched.events[-1])
        states = [data["state"] for name, data in watched.events if name == "sweep"]
        self.assertEqual((states[0], states[-1]), ("SWEEP_RUNNING", "SWEEP_SUCCEEDED"))

        rows = self.get("/api/v1/sweeps/small/table?metrics=loss&metrics=loss_targets")["rows"]
        printed = self.box.json("table", "small", "--metric", "loss,loss_targets")
        self.assertEqual(len(rows), len(printed))
        self.assertGreater(len(rows), 0)
        for row, line in zip(rows, printed):
            self.assertEqual(json.loads(row["arm_json"]), line["arm"])
            self.assertEqual((row["metric"], int(row["length"]), row["n"]), (line["metric"], line["length"], line["n"]))
            for field in ("mean", "sd", "low", "high"):
                self.assertEqual(row.get(field), line[field], (field, row))  # the same double, bit for bit
        compared = self.get("/api/v1/sweeps/small/comparison")["rows"]
        self.assertEqual([row.get("p_adjusted") for row in compared if row["metric"] == "loss"],
                         [row["p_adjusted"] for row in self.box.json("compare", "small", "--metric", "loss")])
        jobs = self.get("/api/v1/sweeps/small/jobs?states=SUCCEEDED&page_size=1")
        self.assertEqual(len(jobs["jobs"]), 1)
        self.assertNotEqual(jobs["next_page_token"], "")
        job = jobs["jobs"][0]["job_id"]
        self.assertEqual(self.get(f"/api/v1/jobs/{job}")["job"]["state"], "SUCCEEDED")
        self.assertGreater(len(self.get(f"/api/v1/jobs/{job}/logs")["events"]), 0)
        self.assertEqual(len(self.get("/api/v1/workers")["workers"]), 1)

        # A change, once.
        self.box.submit(noop_yaml("slow", 50, seconds=60), "slow")
        for _ in range(2):
            status, _, body = request(self.link(), "POST", "/api/v1/sweeps/slow/cancel", '{"request_id": "once"}')
            self.assertEqual((status, json.loads(body)["state"]), (200, "SWEEP_CANCELLED"), body)
        self.assertEqual(request(self.link(), "POST", "/api/v1/sweeps/slow/cancel", "{}")[0], 409)
        status, headers, body = request(self.link(), "GET", "/sweeps/small")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))

        # Who keeps a stream open does not keep the server.
        open_stream = Events(self.link(), "/api/v1/changes")
        self.box.poll("a change is told", lambda: open_stream.events)
        address = os.path.join(self.box.data_dir, "dashboard.address")
        began = time.monotonic()
        worker = self.box.workers.pop("w")
        worker.terminate()
        self.assertEqual(worker.wait(timeout=30), 0)
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=30), 0)
        open_stream.join(30)
        self.assertLess(open_stream.ended - began, 20)
        self.assertFalse(os.path.exists(address))
        self.box.server = None

        self.folder_of_a_finished_run()

    def folder_of_a_finished_run(self):
        command = [os.path.join(BIN, "ablate"), "dashboard", "--data-dir", self.box.data_dir]
        missing = self.box.ablate("dashboard", "--data-dir", self.box.dir, check=False)
        self.assertEqual(missing.returncode, 5)
        self.assertEqual(self.box.ablate("dashboard", check=False).returncode, 2)
        try:
            link = self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--background", "--http", "127.0.0.1:0").stdout.strip()
            self.assertEqual(link, self.link())
            self.assertGreater(len(self.get("/api/v1/sweeps/small/table")["rows"]), 0)
            # Again: the same one. Other commands use its server.
            again = self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--background")
            self.assertEqual(again.stdout.strip(), link)
            self.assertIn("--stop", again.stderr)
            self.assertGreater(len(self.box.json("table", "small", "--data-dir", self.box.data_dir)), 0)
            # A run takes the folder over, as the quickstart does at its second time.
            with open(os.path.join(self.box.dir, "noop.yaml"), "w", encoding="utf-8") as file:
                file.write(noop_yaml("noop", 3))
            run = self.box.ablate("run", "noop.yaml", "--data-dir", self.box.data_dir)
            self.assertIn("was stopped", run.stderr)
            # At the same address: a page that is open goes on.
            self.assertIn(f"dashboard: {link}\n", run.stderr)
            self.assertEqual(self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--stop", check=False).returncode, 5)
            # Two at once: one server, and both say which.
            both = [subprocess.Popen([*command, "--background"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
            for process in both:
                out, err = process.communicate(timeout=60)
                self.assertEqual((process.returncode, out.strip()), (0, link), err)
                self.assertIn("--stop", err)
            # Whose address counts is said.
            other = self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--http", "127.0.0.1:1")
            self.assertEqual(other.stdout.strip(), link)
            self.assertIn("--http 127.0.0.1:1 was not used", other.stderr)
            for wrong in ("127.0.0.1:99999", "foo", ":1", "127.0.0.1:-1", "::1:80", "127.0.0.1:"):
                for words in (["dashboard"], ["run", "noop.yaml"]):
                    answer = self.box.ablate(*words, "--data-dir", self.box.data_dir, "--http", wrong, check=False)
                    self.assertEqual(answer.returncode, 2, answer.stderr)
                    self.assertIn("HOST:PORT", answer.stderr)
            self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--stop")
            self.assertFalse(os.path.exists(os.path.join(self.box.data_dir, "tls")))
            # A port that somebody else has now is left to them.
            with socket.create_server(("127.0.0.1", int(link.rstrip("/").rsplit(":", 1)[1]))):
                moved = self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--background").stdout.strip()
            self.assertNotEqual(moved, link)
            self.assertEqual(moved, self.link())
            self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--stop")
            # Beyond loopback: what one needs to get in.
            beyond = self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--background", "--http", "0.0.0.0:0")
            self.assertTrue(beyond.stdout.startswith("https://"), beyond.stdout)
            self.assertRegex(beyond.stderr, r"sha256:[0-9a-f]{64}")
            self.assertIn(f"ablate token create --role read --name NAME --data-dir {self.box.data_dir}", beyond.stderr)
        finally:
            self.box.ablate("dashboard", "--data-dir", self.box.data_dir, "--stop", check=False)
        for name in ("dashboard.pid", "dashboard.address", "server.address"):
            self.assertFalse(os.path.exists(os.path.join(self.box.data_dir, name)), name)
        self.only_read()
        # In the foreground, until Ctrl-C.
        process = subprocess.Popen([*command, "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        self.assertEqual(process.stdout.readline().strip(), self.link())
        self.assertEqual(self.get("/api/v1/me")["role"], "admin")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(timeout=30), 0)

    def only_read(self):
        process = subprocess.Popen([os.path.join(BIN, "ablate-server"), "--data-dir", self.box.data_dir, "--read-only", "--listen", "127.0.0.1:0",
                                    "--http", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        lines = [process.stdout.readline(), process.stdout.readline()]
        link = lines[1].removeprefix("dashboard ").strip()
        self.assertTrue(link.startswith("http://"), lines)
        self.assertGreater(len(json.loads(request(link, "GET", "/api/v1/sweeps/small/table")[2])["rows"]), 0)
        self.assertTrue(json.loads(request(link, "GET", "/api/v1/me")[2])["read_only"])
        status, _, body = request(link, "POST", "/api/v1/sweeps/small/retry", "{}")
        self.assertEqual(status, 409)
        self.assertIn("--read-only", body.decode())
        process.terminate()
        self.assertEqual(process.wait(timeout=30), 0)

    def test_beyond_loopback_tls_and_tokens(self):
        self.box.start_server("--http", "0.0.0.0:0")
        make = lambda role: self.box.ablate("token", "create", "--role", role, "--name", role).stdout.strip()
        reader, submitter = make("read"), make("submit")
        port = self.link().rstrip("/").rsplit(":", 1)[1]
        self.assertTrue(self.link().startswith("https://"))
        context = ssl.create_default_context(cafile=os.path.join(self.box.data_dir, "tls", "certificate.pem"))
        link = f"https://localhost:{port}"

        def ask(method, path, token, body=None, **headers):
            sent = {**headers, **({"Authorization": f"Bearer {token}"} if token else {})}
            return request(link, method, path, body, sent, context)

        self.box.submit(noop_yaml("slow", 2, seconds=60), "slow")
        self.assertEqual(ask("GET", "/api/v1/sweeps", "")[0], 401)
        self.assertEqual(ask("GET", "/api/v1/sweeps", reader)[0], 200)
        self.assertEqual(ask("POST", "/api/v1/sweeps/slow/cancel", reader, "{}")[0], 403)
        self.assertEqual(ask("POST", "/api/v1/sweeps/slow/cancel", submitter, "{}", Origin="https://evil.example")[0], 403)
        self.assertIn("Sweeps/CancelSweep", json.loads(ask("GET", "/api/v1/me", submitter)[2])["may"])
        stream = Events(link, "/api/v1/changes", {"Authorization": f"Bearer {reader}"}, context)
        self.box.poll("a change is told", lambda: stream.events)
        self.box.ablate("token", "revoke", "read")
        revoked = time.monotonic()
        stream.join(30)
        self.assertEqual(stream.events[-1][1]["error"]["code"], "UNAUTHENTICATED")
        self.assertLess(stream.ended - revoked, 10)
        self.assertEqual(ask("POST", "/api/v1/sweeps/slow/cancel", submitter, "{}")[0], 200)
        with self.assertRaises((OSError, http.client.HTTPException)):
            request(f"http://localhost:{port}", "GET", "/")


if __name__ == "__main__":
    unittest.main()
