"""A coordinator that other machines could reach: TLS with a pinned certificate, tokens, roles, and a worker end to end."""

import os
import re
import signal
import stat
import subprocess
import unittest

from harness import BIN, ClusterTest, sweep_yaml

SECRET = re.compile(r"ablate_[A-Za-z0-9_-]{43}")


class Access(ClusterTest):
    def setUp(self):
        self.box = self.cluster()
        self.ready = os.path.join(self.box.dir, "ready")
        self.issued = []
        # No token of whoever runs the tests.
        self.box.environment = {"XDG_CONFIG_HOME": os.path.join(self.box.dir, "config"), "ABLATE_TOKEN": ""}

    def start(self, *flags):
        """On all addresses of this machine, so with everything on."""
        if os.path.exists(self.ready):
            os.remove(self.ready)
        server = self.box._spawn("server", [
            os.path.join(BIN, "ablate-server"), "--data-dir", self.box.data_dir, "--listen", "0.0.0.0:0", "--ready-file", self.ready,
            "--lease-seconds", "5", "--contact-seconds", "0.1", *flags])
        self.box.server = server
        self.box.poll("the server is ready", lambda: os.path.exists(self.ready))
        with open(self.ready) as file:
            self.port = file.read().strip().rpartition(":")[2]
        self.box.address = "127.0.0.1:" + self.port
        self.pin = re.findall(r"certificate (sha256:[0-9a-f]{64})", self.box.logs())[-1]
        return server

    def stop(self, server):
        server.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(timeout=30), 0)

    def token(self, role, name):
        out = self.box.ablate("token", "create", "--role", role, "--name", name, "--data-dir", self.box.data_dir)
        token = out.stdout.strip()
        self.assertRegex(token, "^" + SECRET.pattern + "$")
        self.assertNotIn(token, out.stderr)
        self.issued.append(token)
        return token

    def file(self, name, content, mode=0o600):
        path = os.path.join(self.box.dir, name)
        with open(path, "w") as file:
            file.write(content)
        os.chmod(path, mode)
        return path

    def call(self, token, *args, pin=None):
        """(exit code, what it said) of a command with this token."""
        self.box.environment["ABLATE_TOKEN"] = token
        try:
            result = self.box.ablate(*args, "--tls-pin", pin or self.pin, check=False)
        finally:
            self.box.environment["ABLATE_TOKEN"] = ""
        self.assertNotRegex(result.stderr, SECRET)
        return result.returncode, result.stderr

    def start_worker(self, name, token, pin=None):
        argv = [os.path.join(BIN, "ablate-worker"), "--server", self.box.address, "--tls-pin", pin or self.pin, "--slots", "1",
                "--threads-per-slot", "1", "--work-dir", os.path.join(self.box.dir, "work-" + name),
                "--token-file", self.file(name + ".token", token)]
        return self.box._spawn("worker-" + name, argv)

    def test_a_cluster_from_first_token_to_table(self):
        server = self.start()
        key = os.path.join(self.box.data_dir, "tls", "key.pem")
        self.assertEqual(stat.S_IMODE(os.stat(key).st_mode), 0o600)
        for name, mode in (("", 0o700), ("artifacts", 0o700), ("ablate.db", 0o600), ("ablate.db-wal", 0o600)):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.box.data_dir, name)).st_mode), mode, name)
        with open(os.path.join(self.box.data_dir, "server.address")) as file:
            socket = file.read().strip().removeprefix("unix:")
        self.assertEqual(stat.S_IMODE(os.stat(socket).st_mode), 0o600)

        reader, submitter, worker, admin = (self.token(role, role + "-1") for role in ("read", "submit", "worker", "admin"))

        # Who is not who they say, on either side.
        code, said = self.call(reader, "sweep", "list", pin="sha256:" + "0" * 64)
        self.assertEqual(code, 5, said)
        self.assertIn("not the pinned one", said)
        self.assertIn(self.pin, said)
        code, said = self.call("ablate_" + "x" * 43, "sweep", "list")
        self.assertEqual(code, 5, said)
        self.assertIn("does not know this token", said)
        code, said = self.call("", "sweep", "list")
        self.assertEqual(code, 5, said)
        self.assertIn("ABLATE_TOKEN", said)
        plain = self.box.ablate("sweep", "list", check=False)
        self.assertEqual(plain.returncode, 4, plain.stderr)
        self.assertIn("--tls-pin", plain.stderr)
        loose = self.box.ablate("sweep", "list", "--tls-pin", self.pin, "--token-file", self.file("loose", reader, 0o644), check=False)
        self.assertEqual(loose.returncode, 5)
        self.assertIn("chmod 600", loose.stderr)

        # One call of each kind by each role: looking, changing, working (a worker's own call is its daemon's), administering.
        path = self.file("small.yaml", sweep_yaml("small", seeds=2))
        calls = {"look": ("sweep", "list"), "submit": ("sweep", "submit", path), "cancel": ("sweep", "cancel", "small"),
                 "drain": ("worker", "drain", "nobody"), "tokens": ("token", "list")}
        may = {reader: {"look"}, submitter: {"look", "submit", "cancel"}, worker: set(), admin: set(calls)}
        for token, allowed in may.items():
            for kind, args in calls.items():
                code, said = self.call(token, *args)
                refused = "has the role" in said and "needs" in said
                self.assertEqual(refused, kind not in allowed, (kind, code, said))
                self.assertEqual(code == 5, refused or kind == "drain", (kind, code, said))
        self.assertEqual(self.call(submitter, "sweep", "submit", path)[0], 0)  # taken up again

        # A worker with the wrong token, one with the wrong pin, and one that does the work.
        for name, token, pin, exit_code, words in (("reader", reader, None, 5, "has the role read; Sync needs worker or admin"),
                                                   ("elsewhere", worker, "sha256:" + "1" * 64, 1, "not the pinned one")):
            process = self.start_worker(name, token, pin)
            self.assertEqual(process.wait(timeout=60), exit_code, self.box.logs())
            self.assertIn(words, self.box.logs())
        process = self.box.workers["good"] = self.start_worker("good", worker)
        code, said = self.call(submitter, "sweep", "wait", "small", "--timeout", "120")
        self.assertEqual(code, 0, said + self.box.logs())
        self.assertGreater(len(self.box.results()), 0)
        listed = {t["name"]: t for t in self.box.json("token", "list", "--data-dir", self.box.data_dir)}
        self.assertRegex(listed["worker-1"]["workers"], r"^worker_\w+$")
        self.assertIsNotNone(listed["read-1"]["last_used_at"])
        code, said = self.call(reader, "query", "SELECT sha256 FROM tokens")
        self.assertEqual(code, 5, said)

        # Revoked in the middle of a watch, and under a working daemon.
        self.box.ablate("sweep", "submit", self.file("long.yaml", sweep_yaml("long", steps=1_000_000)), "--data-dir", self.box.data_dir)
        watch = subprocess.Popen([os.path.join(BIN, "ablate"), "sweep", "watch", "long", "--server", self.box.address, "--tls-pin", self.pin],
                                 env={**os.environ, **self.box.environment, "ABLATE_TOKEN": reader}, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(watch.kill)
        self.box.poll("the long sweep runs", lambda: any(
            j["state"] == "RUNNING" for j in self.box.json("job", "list", "long", "--data-dir", self.box.data_dir)))
        del self.box.workers["good"]
        for name in ("read-1", "worker-1"):
            self.box.ablate("token", "revoke", name, "--data-dir", self.box.data_dir)
        _, said = watch.communicate(timeout=30)
        self.assertEqual(watch.returncode, 5, said)
        self.assertIn("the token read-1 was revoked", said)
        self.assertEqual(process.wait(timeout=60), 5, self.box.logs())
        self.assertIn("does not let this worker in: the token worker-1 was revoked", self.box.logs())
        # Its worker goes on with another token.
        process = self.box.workers["good"] = self.start_worker("good", self.token("worker", "worker-2"))
        self.box.poll("the worker is back", lambda: any(
            t["workers"] for t in self.box.json("token", "list", "--data-dir", self.box.data_dir) if t["name"] == "worker-2"))

        # The server comes back with another certificate: whoever holds the old pin says so and stays away.
        del self.box.workers["good"]
        self.stop(server)
        for name in ("key.pem", "certificate.pem"):
            os.remove(os.path.join(self.box.data_dir, "tls", name))
        old_pin, port = self.pin, self.port
        os.remove(self.ready)
        self.box.server = self.box._spawn("server", [os.path.join(BIN, "ablate-server"), "--data-dir", self.box.data_dir, "--listen",
                                                     "0.0.0.0:" + port, "--ready-file", self.ready])
        self.assertEqual(process.wait(timeout=120), 1, self.box.logs())
        self.assertIn("not the pinned one: it shows", self.box.logs())
        code, said = self.call(admin, "sweep", "list", pin=old_pin)
        self.assertEqual(code, 5, said)

        # What was issued is nowhere but with those it was issued to.
        for folder, _, names in os.walk(self.box.dir):
            for name in names:
                if name.endswith(".token") or name == "loose" or not os.path.isfile(os.path.join(folder, name)):
                    continue
                with open(os.path.join(folder, name), "rb") as file:
                    content = file.read()
                for token in self.issued:
                    self.assertNotIn(token[7:].encode(), content, os.path.join(folder, name))

    def test_the_first_token_without_a_running_server(self):
        made = subprocess.run([os.path.join(BIN, "ablate-server"), "--data-dir", self.box.data_dir, "--create-token", "admin"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.start()
        self.assertEqual(self.call(made.stdout.strip(), "token", "list")[0], 0)
        # From the configuration file of the user, which must be the user's alone.
        os.makedirs(os.path.join(self.box.dir, "config", "ablate"))
        config = self.file("config/ablate/config", f"server = {self.box.address}\ntls_pin = {self.pin}\ntoken = {made.stdout}")
        self.box.environment["ABLATE_SERVER"] = ""
        self.assertEqual(self.box.ablate("sweep", "list").returncode, 0)
        os.chmod(config, 0o640)
        self.assertEqual(self.box.ablate("sweep", "list", check=False).returncode, 5)
        busy = subprocess.run([os.path.join(BIN, "ablate-server"), "--data-dir", self.box.data_dir, "--create-token", "admin"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(busy.returncode, 5, busy.stderr)
        self.assertIn("ablate token create", busy.stderr)

    def test_a_read_only_server_lets_in_whom_the_database_knows_and_changes_nothing(self):
        server = self.start()
        tokens = {role: self.token(role, role + "-1") for role in ("read", "submit", "worker", "admin")}
        gone = self.token("read", "gone")
        path = self.file("small.yaml", sweep_yaml("small", seeds=1))
        self.assertEqual(self.call(tokens["submit"], "sweep", "submit", path)[0], 0)
        self.box.ablate("token", "revoke", "gone", "--data-dir", self.box.data_dir)
        pin = self.pin
        self.stop(server)
        database = os.path.join(self.box.data_dir, "ablate.db")
        with open(database, "rb") as file:
            before = file.read()
        files = sorted(os.listdir(self.box.data_dir))

        server = self.start("--read-only")
        self.assertEqual(self.pin, pin)  # who pinned the certificate reads on
        for token, words in ((gone, "the token gone was revoked"), ("", "ABLATE_TOKEN"),
                             ("ablate_" + "x" * 43, "does not know this token")):
            code, said = self.call(token, "sweep", "list")
            self.assertEqual(code, 5, said)
            self.assertIn(words, said)
        code, said = self.call(tokens["read"], "sweep", "list", pin="sha256:" + "0" * 64)
        self.assertEqual(code, 5, said)
        for role in ("read", "submit", "admin"):
            self.assertEqual(self.call(tokens[role], "sweep", "list")[0], 0)
            self.assertEqual(self.call(tokens[role], "query", "SELECT name FROM sweeps")[0], 0)
        for role, args, words in (("worker", ("sweep", "list"), "has the role worker"),
                                  ("read", ("sweep", "cancel", "small"), "has the role read"),
                                  ("submit", ("sweep", "cancel", "small"), "only reads (--read-only)"),
                                  ("admin", ("worker", "drain", "nobody"), "only reads (--read-only)"),
                                  ("submit", ("token", "list"), "has the role submit")):
            code, said = self.call(tokens[role], *args)
            self.assertEqual(code, 5, (args, said))
            self.assertIn(words, said)
        for args in (("token", "create", "--role", "read", "--name", "late"), ("token", "revoke", "read-1")):
            code, said = self.call(tokens["admin"], *args)
            self.assertNotEqual(code, 0, args)
            self.assertIn("--read-only", said)
        process = self.start_worker("hopeful", tokens["worker"])
        self.assertNotEqual(process.wait(timeout=60), 0)
        self.assertIn("refuses this worker: the database is open for reading only (--read-only)", self.box.logs())
        self.stop(server)
        self.box.server = None
        with open(database, "rb") as file:
            self.assertEqual(file.read(), before)
        self.assertEqual(sorted(os.listdir(self.box.data_dir)), files)


if __name__ == "__main__":
    unittest.main()
