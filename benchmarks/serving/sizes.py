"""Memory and tokens per second of `elman serve` by the size of the model, for the sizing table of the deploy guide.

python -m benchmarks.serving.sizes
"""

import argparse
import re
import tempfile
from pathlib import Path

from benchmarks.reporting import write
from benchmarks.roofline import FORMS
from benchmarks.serving.__main__ import LENGTHS, free_port, make_run, server
from benchmarks.serving.load import requests, run_load

WIDTHS, STREAMS = (256, 512, 1024), (1, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    made, results = requests("lm", *LENGTHS), {}
    for width in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder), width)
            for form in FORMS:
                port = free_port()
                command = ["-m", "elman", "serve", str(run), "--no-token", "--log-level", "error", "--weights", form]
                with server([*command, "--threads", str(options.threads), "--port", str(port)], port) as process:
                    run_load(port, made, 4, 0.5)  # warm up
                    speeds = {str(n): run_load(port, made, n, options.seconds).figures for n in STREAMS}
                    status = Path(f"/proc/{process}/status").read_text()
                memory = int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]) / 1024  # type: ignore[index]
                results[f"{width} {form}"] = {"resident_mb": memory, "streams": speeds}
                tokens = {n: round(one["tokens_per_second"]) for n, one in speeds.items()}
                print(f"LSTM 2 x {width}, {form}: {memory:.0f} MB, tokens per second by streams {tokens}", flush=True)
    print(f"wrote {write('serving-sizes', results)}")


if __name__ == "__main__":
    main()
