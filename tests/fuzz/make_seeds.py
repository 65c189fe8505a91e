#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, valid ones and such as are broken in one place, into corpus/. By hand, from the root:

  python3 tests/fuzz/make_seeds.py            # needs protoc, for messages

What fuzzing found lies beside them under names of its own (found_*) and is left alone.
"""

import hashlib
import json
import os
import re
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CORPUS = os.path.join(HERE, "corpus")


def write(target, name, content):
    folder = os.path.join(CORPUS, target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "wb") as file:
        file.write(content if isinstance(content, bytes) else content.encode())


def message(kind, text):
    """A message of ablate.v1 from its text form."""
    files = ["proto/artifacts.proto", "proto/coordinator.proto", "proto/link.proto", "proto/trainer.proto"]
    return subprocess.run(["protoc", "-I", ROOT, "--encode=ablate.v1." + kind] + files, cwd=ROOT, input=text.encode(),
                          stdout=subprocess.PIPE, check=True).stdout


# --- sweep files ---

def sweeps():
    folder = os.path.join(ROOT, "experiments", "sweeps")
    for name in sorted(os.listdir(folder)):
        if name.endswith(".yaml"):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                lines = [line for line in file if not line.lstrip().startswith("#")]
            write("sweep", name, "".join(lines))
    head = "name: s\nexecutor: noop\n"
    texts = {
        "noop": head + "arms: [{attention.variant: softmax}, {attention.variant: ssmax}]\naxes: {eval.ntk: [off, on]}\n"
                       "seeds: [0, 7]\nevaluate: {lengths: [1x, 300], splits: [selection]}\n",
        "ranges": head + "axes: {train.learning_rate: {from: 1e-4, to: 1e-2, factor: 10}, model.width: {from: 64, to: 128, step: 64}}\n",
        "range_of_nothing": head + "axes: {attention.p: {from: 1, to: 1e300, step: 1e-300}}\n",
        "million_points": head + "axes: {train.warmup: {from: 1, to: 1000000, step: 1}, train.steps: {from: 1, to: 1000000, step: 1}}\n",
        "switch": head + "settings: {train.steps: 100}\narms:\n- attention.variant: softmax\n  switch: [{at_step: 50, attention.variant: ssmax}]\n"
                         "- {attention.variant: ssmax, factors: {kind: a}}\n",
        "exclude": head + "axes: {attention.variant: [softmax, ssmax], eval.ntk: [off, on]}\nexclude: [{attention.variant: softmax, eval.ntk: on}]\n"
                          "baseline: {attention.variant: ssmax}\n",
        "requires": head + "requires: {device: cuda, memory: 4GiB, labels: [a, b]}\npriority: 5\nkeep: all\ndescription: \"\\u00e9\"\n",
        "shards": "name: s\ndata: {paths: ['shard_{000001..000003}.bin', b.bin], format: token_shards}\narms: [{attention.variant: softmax}]\n",
        "shards_many": "name: s\ndata: {path: 'a{0..9223372036854775807}.bin'}\n",
        "tasks": "name: s\ndata: {path: a.txt}\narms: [{attention.variant: softmax}]\nseeds: 1\nevaluate:\n  lengths: [1x]\n  tasks:\n"
                 "    - passkey\n    - {task: mqar, lengths: [1x, 16x], eval.mqar.sequences: 256}\n    - {task: attention, lengths: [1x], splits: [selection]}\n"
                 "    - {task: attention_map, name: psalm, path: psalm.txt}\n    - {task: multiple_choice, name: arc, path: arc.jsonl, tokenizer: [e.json, v.bpe]}\n",
        "mqar": "data: {format: mqar}\narms: [{attention.variant: softmax}]\nseeds: 1\nevaluate: {lengths: [], tasks: [mqar]}\n",
        "anchor": head + "arms: &a [{attention.variant: softmax}]\naxes: *a\n",
        "billion_laughs": "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b, *b, *b, *b]\n",
        "deep_lists": head + "arms: " + "[" * 2000,
        "deep_maps": head + "arms: " + "{a: " * 2000,
        "deep_block": "".join(" " * i + "a:\n" for i in range(300)),
        "deep_dashes": "- " * 3000,
        "twice": "name: a\nname: b\n",
        "documents": "name: a\n---\nname: b\n",
        "tag": "name: !!python/object a\n",
        "nul": b"name: a\0b\n",
        "not_utf8": b"name: \xff\xfe\n",
        "escape_surrogate": 'name: "\\ud800"\n',
        "escape_nul": 'name: "\\0"\n',
        "escape_huge": 'name: "\\Uffffffff"\n',
        "byte_order_mark": b"\xff\xfen\0a\0m\0e\0",
        "directive": "%YAML 9.9\n%TAG ! tag:x,2000:\n---\nname: a\n",
        "empty": "\n", "null": "~\n", "list": "- a\n", "scalar": "x\n", "complex_key": "? [a, b]\n: c\n", "merge": "<<: {a: b}\n",
        "block_scalars": "description: |+9\n  a\nname: >-\n  b\n",
        "unclosed": "name: 'a\n", "tab": "name:\n\ta\n", "long_name": "name: " + "a" * 300 + "\n",
    }
    for name, text in texts.items():
        write("sweep", name, text)


# --- checkpoints ---

def checkpoint(header, data, version=1, magic=b"ABLATECK", digest=True):
    text = header if isinstance(header, bytes) else json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    content = magic + struct.pack("<II", version, len(text)) + text
    content += b"\0" * (-len(content) % 64) + data
    return content + (hashlib.sha256(content).hexdigest().encode() if digest else b"0" * 64)


def checkpoints():
    base = {"kind": "weights", "model": "layers=1 width=4", "config": "{}", "data_sha256": "0" * 64, "seed": 0, "step": 10, "samples": 40,
            "optimizer_step": 10, "numerics_version": 1, "data_bytes": 64,
            "tensors": [{"name": "a", "shape": [2, 3], "offset": 0}]}
    data = struct.pack("<6f", *range(6)) + b"\0" * 40
    totals = {"tokens": 1, "zero_rows": 0, "uncontrasted_rows": 0, "max_gradient_norm": 1.5, "recent_losses": [1.0, 2.0]}
    whole = checkpoint(base, data)
    tensor = base["tensors"][0]
    files = {
        "weights": whole,
        "optimizer": checkpoint({**base, "kind": "optimizer", "totals": totals}, data),
        "no_totals": checkpoint({**base, "kind": "optimizer"}, data),
        "cut": whole[:-1], "cut_in_header": whole[:40], "magic_alone": b"ABLATECK", "wrong_digest": checkpoint(base, data, digest=False),
        "version_2": checkpoint(base, data, version=2), "other_magic": checkpoint(base, data, magic=b"ABLATECX"),
        "no_tensors": checkpoint({**base, "tensors": [], "data_bytes": 0}, b""),
        "header_length_max": b"ABLATECK" + struct.pack("<II", 1, 0xffffffff) + b"{}" + b"\0" * 200,
        "shape_negative": checkpoint({**base, "tensors": [{**tensor, "shape": [-1, -6]}]}, data),
        "shape_zero": checkpoint({**base, "tensors": [{**tensor, "shape": [0]}]}, data),
        "shape_overflow": checkpoint({**base, "tensors": [{**tensor, "shape": [1 << 32, 1 << 32]}]}, data),
        "shape_wraps": checkpoint({**base, "tensors": [{**tensor, "shape": [1 << 62, 4]}]}, data),
        "shape_beyond": checkpoint({**base, "tensors": [{**tensor, "shape": [17]}]}, data),
        "offset_odd": checkpoint({**base, "tensors": [{**tensor, "offset": 4}]}, data),
        "offset_beyond": checkpoint({**base, "tensors": [{**tensor, "offset": 128}]}, data),
        "offset_negative": checkpoint({**base, "tensors": [{**tensor, "offset": -64}]}, data),
        "offset_max": checkpoint({**base, "tensors": [{**tensor, "offset": (1 << 64) - 64}]}, data),
        "offset_real": checkpoint({**base, "tensors": [{**tensor, "offset": 1e300}]}, data),
        "same_name": checkpoint({**base, "tensors": [tensor, tensor]}, data),
        "wrong_types": checkpoint({**base, "step": "ten"}, data), "numbers_real": checkpoint({**base, "step": 1e300, "seed": -1e300}, data),
        "deep": checkpoint(b"[" * 5000, data), "deep_map": checkpoint(b'{"a":' * 5000, data), "no_json": checkpoint(b"\xff\xfe{", data),
        "list": checkpoint(b"[]", data), "null": checkpoint(b"null", data),
        # The target also takes an input as the header's text itself.
        "as_header": json.dumps({**base, "data_bytes": 256}), "as_header_deep": "[" * 3000,
    }
    for name, content in files.items():
        write("checkpoint", name, content)


# --- data files; the first two bytes are the target's choices ---

def shard(tokens, count=None, version=1, magic=20240520):
    header = [magic, version, len(tokens) if count is None else count] + [0] * 253
    return struct.pack("<256i", *header) + struct.pack("<%dH" % len(tokens), *tokens)


def data():
    tokens = [50256, 1, 2, 3, 50256, 50256, 5, 6]
    files = {
        "shard": b"\0\0" + shard(tokens), "shard_empty": b"\0\0" + shard([]), "shard_of_one": b"\0\0" + shard([7]),
        "shard_count_negative": b"\0\0" + shard(tokens, -1), "shard_count_high": b"\0\0" + shard(tokens, 0x7fffffff),
        "shard_count_low": b"\0\0" + shard(tokens, 7), "shard_version_2": b"\0\0" + shard(tokens, version=2),
        "shard_other_magic": b"\0\0" + shard(tokens, magic=20240801), "shard_header_alone": b"\0\0" + shard(tokens)[:1024],
        "shard_cut_header": b"\0\0" + shard(tokens)[:1000], "shard_odd": b"\0\0" + shard(tokens) + b"x",
        "two_shards": b"\0\2" + shard(tokens) + shard(tokens), "four_shards": b"\0\6" + shard([1]) * 4,
        "tokens": b"\0\1" + struct.pack("<8H", *tokens), "tokens_in_three": b"\0\5" + struct.pack("<12H", *(tokens + tokens[:4])),
        "token_50257": b"\0\1" + struct.pack("<3H", 1, 50257, 2), "token_65535": b"\0\1\xff\xff",
        "text": b"\1\0In the beginning.\n", "text_four": b"\1\6" + "äöüß€𝄞".encode(), "text_nul": b"\1\0a\0b",
        "text_overlong": b"\1\0\xc0\xaf", "text_surrogate": b"\1\0\xed\xa0\x80", "text_above": b"\1\0\xf4\x90\x80\x80",
        "text_cut": b"\1\0" + "0123456789abcde€".encode()[:-1], "text_continuation": b"\1\0" + b"a" * 9 + b"\x80", "text_latin1": b"\1\0caf\xe9 au lait",
    }
    for name, content in files.items():
        write("data", name, content)


# --- the pipe; the first two bytes are the target's choices ---

def framed(content):
    length, prefix = len(content), b""
    while length > 0x7f:
        prefix += bytes([length & 0x7f | 0x80])
        length >>= 7
    return prefix + bytes([length]) + content


SHA = "a" * 64


def pipes():
    stage = message("TrainerRequest", """run_stage { task { stage_key: "%s" config { settings { axis: "attention.p" value { number: 3 } } }
      seed: 1 to_step: 100 data { name: "d" format: TEXT files { path: "a.txt" sha256: "%s" bytes: 9 } sha256: "%s" } executor: EXECUTOR_TRAINER }
      data_paths: "/tmp/a.txt" checkpoint_dir: "/tmp/c" checkpoint_seconds: 60 }""" % (SHA, SHA, SHA))
    evaluation = message("TrainerRequest", """run_evaluation { task { evaluation_key: "%s" stage_key: "%s" seed: 1 length_tokens: 256 split: "selection"
      eval_config { settings { axis: "eval.ntk" value { flag: true } } } } data_paths: "/tmp/a.txt" weights_path: "/tmp/w" }""" % (SHA, SHA))
    stop = message("TrainerRequest", "stop { checkpoint: true }")
    ready = message("TrainerEvent", 'ready { device_class: "cpu" device_kind: "cpu/Zen" build: "0.1" }')
    progress = message("TrainerEvent", """progress { step: 10 tokens_per_second: 1e5 resumed_from_step: 3
      points { metric: "train_loss" step: 10 value: nan } points { metric: "gradient_norm" step: 10 value: inf } }""")
    saved = message("TrainerEvent", """checkpoint { ref { stage_key: "%s" step: 10 weights { sha256: "%s" bytes: 100 } }
      weights_path: "/tmp/w" end_state: true }""" % (SHA, SHA))
    done = message("TrainerEvent", """done { outcome: COMPLETED metrics { metric: "loss" value: 1.5 } device_kind: "cpu/Zen" seconds: 1
      documents { document: 0 targets: 9 loss_sum: 3.5 } artifacts { name: "m.bin" media_type: "x" artifact { sha256: "%s" bytes: 1 } } }""" % SHA)
    failed = message("TrainerEvent", 'failed { kind: CODE_ERROR message: "no" exit_code: 1 stderr_tail: "x" }')
    streams = {
        "requests": b"\1\0" + framed(stage) + framed(stop) + framed(evaluation), "stop": b"\1\0" + framed(stop),
        "events": b"\0\7" + b"".join(map(framed, [ready, progress, saved, done])), "failed": b"\0\0" + framed(ready) + framed(failed),
        "stopped": b"\0\xff" + framed(message("TrainerEvent", "stopped { step: 9 }")), "empty_message": b"\0\0\0\0\0",
        "cut": b"\0\0" + framed(done)[:-1], "cut_in_length": b"\0\0\x80\x80", "length_of_six": b"\0\0" + b"\x80" * 5 + b"\1",
        "length_max": b"\0\0\xff\xff\xff\xff\x7f", "length_over_limit": b"\1\0" + framed(b"\0" * 4097), "length_limit": b"\1\0" + framed(b"\x7a\xfd\x1f" + b"\0" * 4093),
        "length_padded": b"\0\0\x82\x00" + b"\x32\x00", "no_message": b"\0\0" + framed(b"\xff\xff\xff"), "event_to_trainer": b"\1\0" + framed(progress),
        "text_not_utf8": b"\0\0" + framed(b"\x0a\x03\x0a\x01\xff"), "unknown_field": b"\0\0" + framed(b"\xfa\x3f\x02ab"),
        "group_deep": b"\0\0" + framed(b"\x0b" * 300), "two_kinds": b"\0\0" + framed(ready + failed), "nothing": b"\1\0",
    }
    for name, content in streams.items():
        write("pipe", name, content)


# --- items of tasks; the first byte is the target's choice ---

def items():
    arc = {"id": "q", "question": {"stem": "Why?", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]}, "answerKey": "B"}
    arc2 = {"question": "Why?", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"}
    hella = {"ctx_a": "A man [title] sits.", "ctx_b": "he", "activity_label": "Sitting", "endings": ["falls. [step]", "stands.  ", "x", "y"], "label": "1"}
    piqa = {"goal": "g", "sol1": "a", "sol2": "b"}
    sciq = {"question": "q", "correct_answer": "r", "distractor1": "a", "distractor2": "b", "distractor3": "c", "support": " s"}
    lines = lambda *objects: "\n".join(json.dumps(o) for o in objects) + "\n"
    files = {
        "arc": lines(arc, arc2), "hellaswag": lines(hella, {"ctx": "c", "endings": ["a", "b"], "label": 0}), "piqa": lines({**piqa, "label": 1}),
        "sciq": lines(sciq), "array": json.dumps([arc, sciq]), "blank_lines": "\n\r\n" + lines(sciq) + "\n", "nothing": " \n",
        "piqa_no_label": lines(piqa), "array_cut": json.dumps([arc])[:-1], "array_of_numbers": "[1, 2]", "number": "1\n", "cut": lines(arc)[:-4],
        "arc_one_choice": lines({**arc2, "choices": {"text": ["a"], "label": ["2"]}}), "arc_lists_differ": lines({**arc2, "choices": {"text": ["a"], "label": ["1", "2"]}}),
        "arc_wrong_types": lines({**arc, "question": 7}), "arc_null": lines({**arc, "question": None, "choices": None}),
        "arc_choices_text": lines({**arc, "question": {"stem": "s", "choices": "c"}}), "endings_none": lines({**hella, "endings": []}),
        "endings_numbers": lines({**hella, "endings": [1, 2]}), "label_high": lines({**hella, "label": 4}), "label_negative": lines({**hella, "label": -1}),
        "label_huge": lines({**hella, "label": (1 << 64) - 1}), "label_text": lines({**hella, "label": "one"}), "choice_empty": lines({**piqa, "sol1": "", "label": 0}),
        "deep": "[" * 3000, "deep_object": '{"a":' * 3000, "key_twice": '{"goal": "a", "goal": "b", "sol1": "c", "sol2": "d", "label": 0}\n',
        "surrogate": '{"goal": "\\ud800", "sol1": "c", "sol2": "d", "label": 0}\n', "nul": b'{"goal": "a\0b"}\n', "not_utf8": b'{"goal": "\xff"}\n',
        "brackets": lines({**hella, "endings": ["[" * 500 + "]" * 500, "[a"]}), "crlf": lines(sciq).replace("\n", "\r\n"),
    }
    for name, content in files.items():
        write("items", name, b"\0" + (content if isinstance(content, bytes) else content.encode()))
    write("items", "piqa_two_files", b"\3" + (lines(piqa, piqa) + " " * 20 + "\n0\n1\n" + "\n" * 36).encode())


# --- tokenizer files; the first byte is the target's choice ---

def tokenizers():
    files = {
        "tiktoken_start": b"\0IQ== 0\nIg== 1\nIw== 2\n", "tiktoken_twice": b"\0IQ== 0\nIg== 0\n", "tiktoken_number_high": b"\0IQ== 50257\n",
        "tiktoken_number_negative": b"\0IQ== -1\n", "tiktoken_no_base64": b"\0**** 0\n", "tiktoken_no_space": b"\0IQ==\n", "tiktoken_nothing": b"\0\n\n",
        "encoder_start": b"\x81" + b'{"!": 0, "\\u0120t": 256}#version: 0.2\n\xc4\xa0 t\n', "encoder_list": b"\x81[]", "encoder_deep": b"\x81" + b'{"a":' * 3000,
        "encoder_merges_first": b"\x41#version: 0.2\n\xc4\xa0 t\n" + b'{"!": 0, "\\u0120t": 256}', "three": b"\2abc", "encoder_cut": b"\xfd" + b'{"!": 0',
    }
    for name, content in files.items():
        write("tokenizer", name, content)


# --- every RPC; the first byte is the method: its index in kMethods of rpc_fuzz.cc ---

def methods():
    with open(os.path.join(HERE, "rpc_fuzz.cc"), encoding="utf-8") as file:
        table = re.search(r"kMethods\[\] = \{(.*?)\n\};", file.read(), re.S).group(1)
    names = re.findall(r'ABLATE_(?:READ|CHANGE)\((\w+), (\w+),|\{"(\w+)\.(\w+)"', table)
    return {b or d: i for i, (a, b, c, d) in enumerate(names)}


def rpcs():
    index = methods()
    text_sha = hashlib.sha256(b"In the beginning.\n").hexdigest()
    noop = "name: NAME\\nexecutor: noop\\narms: [{attention.variant: softmax}]\\nseeds: 1\\nevaluate: {lengths: [1x]}\\n"
    extended = ("name: done\\nexecutor: noop\\narms: [{attention.variant: softmax}, {attention.variant: ssmax}]\\naxes: {eval.ntk: [off, on]}\\n"
                "seeds: 3\\nevaluate: {lengths: [1x, 2x]}\\n")
    worker = 'protocol_version: 1 worker { worker_id: "WORKER" incarnation: "first" slots: 1 device_class: "cpu" device_kind: "cpu/fake" executor: EXECUTOR_NOOP } sequence: 9 '
    trainer = worker.replace("WORKER", "trainer").replace("EXECUTOR_NOOP", "EXECUTOR_TRAINER")
    running = 'job_id: "job_JOB" attempt: 1 slot: 0 '
    seeds = [
        ("plan", "PlanSweep", "PlanSweepRequest", f'yaml: "{noop}" file_name: "a.yaml"'),
        ("plan_data", "PlanSweep", "PlanSweepRequest", f'yaml: "data: {{path: a.txt}}\\narms: [{{attention.variant: softmax}}]\\nseeds: 1\\n" file_name: "s.yaml" '
         f'data {{ name: "d" format: TEXT files {{ path: "a.txt" sha256: "{text_sha}" bytes: 18 }} }}'),
        ("plan_tasks", "PlanSweep", "PlanSweepRequest", f'yaml: "data: {{path: a.txt}}\\narms: [{{attention.variant: softmax}}]\\nseeds: 1\\nevaluate: {{tasks: '
         f'[{{task: multiple_choice, name: a, path: b.jsonl}}]}}\\n" file_name: "s.yaml" data {{ files {{ path: "a.txt" sha256: "{text_sha}" bytes: 18 }} }} '
         f'task_files {{ path: "b.jsonl" sha256: "{text_sha}" bytes: 18 }}'),
        ("submit", "SubmitSweep", "SubmitSweepRequest", f'request_id: "r" yaml: "{noop}" file_name: "a.yaml"'.replace("NAME", "fresh")),
        ("submit_bad_yaml", "SubmitSweep", "SubmitSweepRequest", 'request_id: "r" yaml: "name: [" file_name: "a.yaml"'),
        ("submit_other_file", "SubmitSweep", "SubmitSweepRequest", f'request_id: "r" yaml: "{noop}" file_name: "a.yaml"'.replace("NAME", "done")),
        ("submit_no_id", "SubmitSweep", "SubmitSweepRequest", f'yaml: "{noop}"'),
        ("submit_path_for_hash", "SubmitSweep", "SubmitSweepRequest", 'request_id: "r" yaml: "a" data { files { sha256: "../../etc/passwd" } }'),
        ("get_sweep", "GetSweep", "GetSweepRequest", 'sweep: "done"'), ("get_sweep_id", "GetSweep", "GetSweepRequest", 'sweep: "sweep_1"'),
        ("get_sweep_none", "GetSweep", "GetSweepRequest", 'sweep: "x"'), ("list_sweeps", "ListSweeps", "ListSweepsRequest", 'page_size: 1'),
        ("list_sweeps_token", "ListSweeps", "ListSweepsRequest", 'page_size: 1 page_token: "1"'), ("list_sweeps_bad_token", "ListSweeps", "ListSweepsRequest", 'page_token: "-9"'),
        ("watch", "WatchSweep", "WatchSweepRequest", 'sweep: "running"'), ("cancel_sweep", "CancelSweep", "CancelSweepRequest", 'request_id: "r" sweep: "running"'),
        ("cancel_over", "CancelSweep", "CancelSweepRequest", 'request_id: "r" sweep: "done"'), ("retry", "RetrySweep", "RetrySweepRequest", 'request_id: "r" sweep: "done"'),
        ("lock", "LockSweep", "LockSweepRequest", 'request_id: "r" sweep: "sealed" arm_json: "{\\"attention.variant\\":\\"ssmax\\"}" why: "because"'),
        ("lock_bad_json", "LockSweep", "LockSweepRequest", 'request_id: "r" sweep: "sealed" arm_json: "{{{[" why: "because"'),
        ("lock_deep_json", "LockSweep", "LockSweepRequest", 'request_id: "r" sweep: "sealed" arm_json: "' + "[" * 3000 + '" why: "because"'),
        ("lock_none", "LockSweep", "LockSweepRequest", 'request_id: "r" sweep: "done" arm_json: "{}" why: "because"'),
        ("extend", "ExtendSweep", "ExtendSweepRequest", f'request_id: "r" sweep: "done" yaml: "{extended}" file_name: "fuzz.yaml"'),
        ("extend_less", "ExtendSweep", "ExtendSweepRequest", f'request_id: "r" sweep: "done" yaml: "{noop}" file_name: "fuzz.yaml"'.replace("NAME", "done")),
        ("list_jobs", "ListJobs", "ListJobsRequest", 'sweep: "done" states: SUCCEEDED page_size: 2'), ("list_jobs_all", "ListJobs", "ListJobsRequest", ""),
        ("list_jobs_page", "ListJobs", "ListJobsRequest", 'page_size: 1001'), ("list_jobs_token", "ListJobs", "ListJobsRequest", 'page_token: "99999999999999999999"'),
        ("get_job", "GetJob", "GetJobRequest", 'job_id: "job_1"'), ("logs", "GetJobLogs", "GetJobRequest", 'job_id: "job_1"'), ("explain", "ExplainJob", "GetJobRequest", 'job_id: "job_20"'),
        ("cancel_job", "CancelJob", "CancelJobRequest", 'request_id: "r" job_id: "job_20"'), ("verify", "VerifyJobs", "VerifyJobsRequest", 'request_id: "r" sweep: "done" sample: 2 seed: 5'),
        ("verify_job", "VerifyJobs", "VerifyJobsRequest", 'request_id: "r" job_id: "job_1"'), ("verifications", "ListVerifications", "ListVerificationsRequest", ""),
        ("table", "GetTable", "GetTableRequest", 'sweep: "done" metrics: "loss" level: 0.9'), ("table_level", "GetTable", "GetTableRequest", 'sweep: "done" level: nan'),
        ("table_level_tiny", "GetTable", "GetTableRequest", 'sweep: "done" level: 5e-324'), ("table_level_high", "GetTable", "GetTableRequest", 'sweep: "done" level: 0.9999999999999999'),
        ("compare", "CompareArms", "CompareArmsRequest", 'sweep: "done" baseline_arm_json: "{\\"attention.variant\\":\\"ssmax\\"}"'),
        ("compare_bad", "CompareArms", "CompareArmsRequest", 'sweep: "done" baseline_arm_json: "{\\"attention.p\\":1e999}"'),
        ("claims", "GetClaims", "GetClaimsRequest", 'sweep: "sealed"'), ("effects", "GetEffects", "GetEffectsRequest", 'sweep: "done" factors: "attention.variant"'),
        ("grid", "GetGrid", "GetGridRequest", 'sweep: "sealed"'), ("changes", "WatchChanges", "WatchChangesRequest", ""),
        ("curves", "GetCurves", "GetCurvesRequest", 'sweep: "running" metrics: "gradient_norm" arms_json: "{\\"attention.variant\\":\\"ssmax\\"}" max_points: 16 level: 0.9'),
        ("curves_bad", "GetCurves", "GetCurvesRequest", 'sweep: "done" metrics: "x" arms_json: "{{" max_points: -1 level: nan'),
        ("spread", "GetSpread", "GetSpreadRequest", 'sweep: "done"'), ("query", "Query", "QueryRequest", 'sql: "SELECT * FROM results"'),
        ("query_write", "Query", "QueryRequest", 'sql: "DELETE FROM jobs"'), ("query_two", "Query", "QueryRequest", 'sql: "SELECT 1; SELECT 2"'),
        ("query_attach", "Query", "QueryRequest", 'sql: "ATTACH \'/etc/passwd\' AS x"'), ("query_blob", "Query", "QueryRequest", "sql: \"SELECT x'ff', CAST(x'ff' AS TEXT), 1e999, NULL\""),
        ("query_endless", "Query", "QueryRequest", 'sql: "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c" time_limit_ms: 20'),
        ("query_zeroblob", "Query", "QueryRequest", 'sql: "SELECT zeroblob(1000000000)"'), ("query_rows", "Query", "QueryRequest", 'sql: "SELECT name FROM sqlite_master" max_rows: 1'),
        ("workers", "ListWorkers", "ListWorkersRequest", 'page_size: 1'), ("workers_token", "ListWorkers", "ListWorkersRequest", 'page_token: "trainer"'),
        ("drain", "DrainWorker", "DrainWorkerRequest", 'request_id: "r" worker_id: "trainer"'),
        ("sync", "Sync", "SyncRequest", worker.replace("WORKER", "new")), ("sync_drain", "Sync", "SyncRequest", trainer + "draining: true"),
        ("sync_no_worker", "Sync", "SyncRequest", "protocol_version: 1 sequence: 1"), ("sync_version", "Sync", "SyncRequest", worker.replace("version: 1", "version: 99")),
        ("sync_running", "Sync", "SyncRequest", trainer + "attempts { " + running + """phase: RUNNING step: 10 points { metric: "train_loss" step: 10 value: nan }
          points { metric: "x" step: -1 value: inf } points_sequence: 1 resumed_from_step: 3 checkpoint { stage_key: "k" step: 10 weights { sha256: "%s" bytes: 1 } } }""" % SHA),
        ("sync_done", "Sync", "SyncRequest", trainer + "attempts { " + running + """phase: SUCCEEDED result { outcome: COMPLETED device_kind: "cpu/fake" metrics { metric: "max_gradient_norm" value: 1 }
          end_state { stage_key: "k" step: 50 weights { sha256: "%s" bytes: 9 } optimizer { sha256: "%s" bytes: 9 } } seconds: 1 } }""" % (SHA, SHA)),
        ("sync_no_result", "Sync", "SyncRequest", trainer + "attempts { " + running + "phase: SUCCEEDED }"),
        ("sync_diverged", "Sync", "SyncRequest", trainer + "attempts { " + running + "phase: SUCCEEDED result { outcome: DIVERGED diverged_at_step: 7 } }"),
        ("sync_failed", "Sync", "SyncRequest", trainer + "attempts { " + running + 'phase: FAILED failure { kind: OUT_OF_MEMORY message: "no" signal: 9 stderr_tail: "x" } }'),
        ("sync_released", "Sync", "SyncRequest", trainer + "attempts { " + running + "phase: RELEASED }"),
        ("sync_evaluated", "Sync", "SyncRequest", worker.replace("WORKER", "noop_worker_2") + """attempts { job_id: "job_JOB2" attempt: 1 phase: SUCCEEDED result { outcome: COMPLETED metrics { metric: "loss" value: nan }
          documents { document: 0 targets: 5 loss_sum: 1 } documents { document: 0 } artifacts { name: "a.bin" artifact { sha256: "%s" bytes: 3 } } } }""" % SHA),
        ("sync_unknown_job", "Sync", "SyncRequest", trainer + 'attempts { job_id: "job_999" attempt: 3 phase: RUNNING }'),
        ("sync_future_attempt", "Sync", "SyncRequest", trainer + "attempts { " + running.replace("attempt: 1", "attempt: 9000000000000000000") + "phase: SUCCEEDED }"),
        ("sync_twice", "Sync", "SyncRequest", trainer + ("attempts { " + running + "phase: RUNNING } ") * 2),
        ("sync_slots_4096", "Sync", "SyncRequest", worker.replace("WORKER", "wide").replace("slots: 1", "slots: 4096")),
        ("sync_artifact_path", "Sync", "SyncRequest", trainer + "attempts { " + running + 'phase: SUCCEEDED result { artifacts { name: "../../x" } } }'),
        ("stat", "StatArtifact", "StatArtifactRequest", f'sha256: "{text_sha}"'), ("stat_path", "StatArtifact", "StatArtifactRequest", 'sha256: "../../../../etc/passwd"'),
        ("upload", "UploadArtifact", "UploadArtifactRequest", f'header {{ sha256: "{text_sha}" bytes: 18 }}'),
        ("upload_lie", "UploadArtifact", "UploadArtifactRequest", f'header {{ sha256: "{SHA}" bytes: 18 }}'),
        ("upload_beyond", "UploadArtifact", "UploadArtifactRequest", f'header {{ sha256: "{text_sha}" bytes: 18 offset: 7 }}'),
        ("upload_huge", "UploadArtifact", "UploadArtifactRequest", f'header {{ sha256: "{text_sha}" bytes: 9223372036854775807 }}'),
        ("upload_negative", "UploadArtifact", "UploadArtifactRequest", f'header {{ sha256: "{text_sha}" bytes: -1 offset: -1 }}'),
        ("download", "DownloadArtifact", "DownloadArtifactRequest", f'sha256: "{text_sha}" offset: 1'),
    ]
    for name, method, kind, text in seeds:
        # Jobs that the target's database has running: of the trainer and of noop_worker_2.
        text = text.replace("job_JOB2", RUNNING_NOOP).replace("job_JOB", RUNNING_STAGE)
        write("rpc", name, bytes([index[method]]) + message(kind, text))
    write("rpc", "no_such_method", b"\xff")
    write("rpc", "not_utf8", bytes([index["GetSweep"]]) + b"\x0a\x02\xff\xfe")
    write("rpc", "no_message", bytes([index["Sync"]]) + b"\xff\xff\xff")


def https():
    def request(method, target, body="", *headers):
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost", *headers]
        if body:
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()

    for name, target in (("sweeps", "/api/v1/sweeps?page_size=2&page_token=x"), ("table", "/api/v1/sweeps/a%2Fb/table?metrics=loss&metrics=acc*&level=0.9"),
                         ("jobs", "/api/v1/sweeps/s/jobs?states=FAILED&states=RUNNING"), ("curves", "/api/v1/sweeps/s/curves?arms_json=%7B%22attention.p%22%3A3%7D&max_points=16"),
                         ("comparison", "/api/v1/sweeps/s/comparison?baseline_arm_json={}&level=nan"), ("page", "/sweeps/p.15?tab=curves"), ("escape", "/%zz"),
                         ("unknown", "/api/v1/sweeps/s/spread?levell=1")):
        write("http", name, request("GET", target, "", "Range: bytes=0-", "Accept-Encoding: gzip"))
    for name, target, body in (("cancel", "/api/v1/sweeps/s/cancel", '{"request_id": "r"}'), ("lock", "/api/v1/sweeps/s/lock", '{"arm_json": "{}", "why": "\\u00e9"}'),
                               ("verify", "/api/v1/jobs/j/verify", '{"sample": 3, "seed": "9007199254740993"}'), ("resume", "/api/v1/sweeps/s/resume", '{"max_failures": 1e1}'),
                               ("taken", "/api/v1/workers/w/drain", '{"worker_id": "v"}'), ("deep", "/api/v1/sweeps/s/lock", "[" * 300)):
        write("http", name, request("POST", target, body))
    write("http", "two_lengths", b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab")
    write("http", "chunked", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    write("http", "bare_line_ends", b"GET / HTTP/1.1\nHost: a\n\r\n\r\n")


RUNNING_STAGE, RUNNING_NOOP = "job_19", "job_22"


def main():
    for make in (sweeps, checkpoints, data, pipes, items, tokenizers, rpcs, https):
        make()
    size = sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(CORPUS) for name in names)
    print(f"{size} bytes in {CORPUS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
