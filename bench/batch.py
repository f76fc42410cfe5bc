"""How fast a batch is, whole process: `python bench/batch.py [--rows-for-memory 100000]`.

A backend on loopback answers after a fixed time; the ratio is wall time over the time that the waiting
alone takes. CPU per row is that of our process, its start taken off.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def server(latency_s: float):
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "bench" / "batch_server.py"), "--latency", str(latency_s)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()


def batch(url: str, rows: int, *options: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds, resident megabytes at most, of one `batch run`."""
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/in.jsonl", "w") as stream:
            for number in range(rows):
                stream.write(json.dumps({"id": number, "prompt": f"question {number}"}) + "\n")
        words = [sys.executable, "-m", "assistant_runner", "batch", "run", "in.jsonl", "-o", "out.jsonl"]
        words += ["--backend", url, "--assistant", "asst_1", "--no-tools", "-q", *options]
        home = {"ASSISTANT_RUNNER_HOME": f"{folder}/home", "PYTHONPATH": str(ROOT)}
        began = time.monotonic()
        process = subprocess.Popen(words, cwd=folder, env={**os.environ, **home})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        assert os.waitstatus_to_exitcode(status) == 0, status
        with open(f"{folder}/out.jsonl") as stream:
            assert [json.loads(line)["index"] for line in stream] == list(range(rows))
        return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows-for-memory", type=int, default=0)
    given = options.parse_args()
    with server(0.0) as url:
        batch(url, 1)  # warms the byte code
        start_wall, start_cpu, _ = batch(url, 1)
        print(f"start and end alone: {start_wall:.2f} s, {start_cpu:.2f} s CPU")
        for workers in ("1", "8", "auto"):
            _, cpu, memory = batch(url, 2000, "-j", workers)
            print(
                f"CPU per zero-latency row, -j {workers}: {1000 * (cpu - start_cpu) / 2000:.2f} ms (aim: 2)"
            )
        if given.rows_for_memory:
            _, _, memory = batch(url, given.rows_for_memory, "-j", "8")
            print(f"{given.rows_for_memory:,} rows: {memory:.0f} MB resident (aim: 200)")
    with server(0.5) as url:
        for rows, at_once, aim in ((200, 50, 1.15), (2000, 200, 1.3)):
            ideal = 0.5 * rows / at_once
            for workers in (str(at_once), "auto"):
                wall, _, _ = batch(url, rows, "-j", workers)
                print(
                    f"{rows} rows of 500 ms, -j {workers}: {wall:.2f} s, {wall / ideal:.2f} of ideal "
                    f"{ideal:.1f} s (aim: {aim}); without start {(wall - start_wall) / ideal:.2f}"
                )


if __name__ == "__main__":
    main()
