#!/usr/bin/env python3
"""Compares this project with its peers on one machine, in one run: `make bench`, or python benchmarks/bench.py --help.

Same weights, same prompt, the same processors, one process for each contestant, one after the other:

    neuron eager, neuron compiled (static cache), PyTorch CPU eager, Inductor (static cache, empty cache folder),
    llama.cpp on the 4-bit file (where llama-cpp-python is installed), and the limit set by the memory's bandwidth, measured here.

Prints a table, ratios and the price of an operator call; writes benchmarks/results/<time>.json (after each contestant: an interrupted run
keeps what it has; --report prints it), and a plot where matplotlib is installed. Ends with 1 where a contestant of this project did not finish.
Close other programs first: on a busy machine the figures mean little, which is why the load is recorded with them.
"""
import argparse
import contextlib
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(HERE))

PROMPT = "Explain in a few sentences how a bicycle stays upright, and what would change on the Moon."
CONTESTANTS = {
    "neuron eager": {"device": "neuron", "static": False, "backend": None},
    "neuron compiled": {"device": "neuron", "static": True, "backend": None},
    "cpu eager": {"device": "cpu", "static": False, "backend": None},
    "inductor": {"device": "cpu", "static": True, "backend": "inductor"},
    "llama.cpp": {"gguf": True},
}


def log(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def bandwidth(threads: int, cpus: list[int]) -> float | None:
    """Bytes per second that this many threads read; None without a C compiler."""
    compiler = shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory(prefix="tnx-bench-") as scratch:  # readable by nobody else
        program = f"{scratch}/bandwidth"
        try:
            subprocess.run([*compiler, "-O3", "-march=native", "-pthread", str(HERE / "bandwidth.c"), "-o", program], check=True)
            out = subprocess.run([program, str(threads), "256"], check=True, capture_output=True, text=True,
                                 preexec_fn=lambda: os.sched_setaffinity(0, cpus[:threads]))
            return float(out.stdout)
        except (OSError, subprocess.CalledProcessError) as error:
            log(f"memory bandwidth not measured: {error}")
            return None


def prepare(folder: pathlib.Path) -> tuple[list[int], list[int]]:
    """The checkpoint every PyTorch contestant loads, and the two prompts as tokens."""
    if subprocess.run([sys.executable, str(ROOT / "scripts/prepare_model.py"), str(folder)]).returncode:
        sys.exit("no model: see above")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    chat = tokenizer.apply_chat_template([{"role": "user", "content": PROMPT}], add_generation_prompt=True, return_dict=True)
    text = (ROOT / "LICENSE").read_text()
    return list(chat["input_ids"]), tokenizer(text)["input_ids"][:512]


def run(script: str, job: dict, timeout: float, threads: int) -> tuple[list[dict], str | None]:
    """Runs a contestant; the objects it printed, and why it ended early if it did."""
    with tempfile.TemporaryDirectory(prefix="tnx-bench-") as scratch:
        path = pathlib.Path(scratch) / "job.json"
        path.write_text(json.dumps(job))
        environment = dict(
            os.environ, TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1",
            OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), TORCH_NEURONX_NUM_THREADS=str(threads), NEURON_RT_NUM_CORES="1",
            TORCHINDUCTOR_COMPILE_THREADS=str(threads), PYTHONWARNINGS="ignore", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_PROGRESS_BARS="1")
        environment.pop("NEURON_RT_VISIBLE_CORES", None)
        with open(f"{scratch}/out", "w+") as out, open(f"{scratch}/err", "w+") as err:
            why = None
            command = [sys.executable, str(HERE / script), str(path)]
            with subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True) as process:
                try:
                    if code := process.wait(timeout):
                        why = f"ended with code {code}"
                except subprocess.TimeoutExpired:
                    why = f"not finished after {timeout:.0f} s"
                finally:  # its helpers too, such as Inductor's compile workers: the next contestant has the machine for itself
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
            out.seek(0)
            err.seek(0)
            lines = [json.loads(line) for line in out if line.startswith("{") and line.endswith("}\n")]
            if why and process.returncode != -signal.SIGKILL:
                tail = [line.strip() for line in err.read().splitlines() if line.strip()]
                why += f": {tail[-1][:300]}" if tail else ""
            return lines, why


def measure(args, cpus: list[int], save) -> dict:
    results: dict = {
        "time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cpus_used": len(cpus), "kernel": platform.release(), "load_before": os.getloadavg(),
                    "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(("TNX_", "NEURON_", "TORCH_NEURONX_"))}},
        "dtype": args.dtype, "rounds": args.rounds, "new_tokens": args.new_tokens, "contestants": {}, "operators": [],
    }
    folder = ROOT / "build/models/SmolLM2-135M-Instruct"
    prompt, long_prompt = prepare(folder)
    results["prompt_tokens"] = len(prompt)
    results["bandwidth"] = {n: bandwidth(n, cpus) for n in sorted({1, len(cpus)})}
    log("memory read: " + ", ".join(f"{n} thread{'s' * (n > 1)} {b / 1e9:.1f} GB/s" for n, b in results["bandwidth"].items() if b))
    base = {"cpus": cpus, "rounds": args.rounds, "new_tokens": args.new_tokens, "prompt": prompt, "long_prompt": long_prompt,
            "checkpoint": str(folder), "dtype": args.dtype}
    for name, how in CONTESTANTS.items():
        if args.only and name not in args.only:
            continue
        if how.get("gguf"):
            if importlib.util.find_spec("llama_cpp") is None:
                log("llama.cpp: skipped, llama-cpp-python is not installed (scripts/install_llama_cpp.sh builds it)")
                continue
            import generate
            job, script = {**base, "gguf": str(generate.smollm2())}, "model_llama.py"
        else:
            job, script = {**base, **how}, "model_torch.py"
        log(f"{name}: running (at most {args.timeout:.0f} s)")
        lines, why = run(script, job, args.timeout, len(cpus))
        figures = {k: v for line in lines for k, v in line.items()}
        if why:
            figures["incomplete"] = why
        log(f"{name}: " + (why or "done") + (f", decode {figures['decode_tps']:.1f} tokens/s" if "decode_tps" in figures else ""))
        results["contestants"][name] = figures
        save(results)
    if not args.only or "operators" in args.only:
        log("operator calls: running")
        results["operators"], why = run("operators.py", {**base, "device": "neuron", "calls": args.calls, "large_calls": 1}, args.timeout, len(cpus))
        if why:
            log(f"operator calls: {why}")
        save(results)
    # Other guests of the machine come and go: the better of the measurements before and after is the limit.
    for n in results["bandwidth"]:
        results["bandwidth"][n] = max(filter(None, (results["bandwidth"][n], bandwidth(n, cpus))), default=None)
    results["machine"]["load_after"] = os.getloadavg()
    save(results)
    return results


def cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--rounds", type=int, default=5, help="the figures are medians over this many (default 5)")
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--calls", type=int, default=2000, help="calls of each operator in one sample")
    parser.add_argument("--threads", type=int, default=2, help="processors for every contestant (default 2)")
    parser.add_argument("--timeout", type=float, default=1500, help="seconds for one contestant")
    parser.add_argument("--quick", action="store_true", help="3 rounds, 24 tokens, 600 s at most for each")
    names = [*CONTESTANTS, "operators"]
    parser.add_argument("--only", action="append", metavar="NAME", choices=names, help=f"one of {', '.join(names)}; may be repeated")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    parser.add_argument("--report", type=pathlib.Path, metavar="JSON", help="print an earlier run again and draw it")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.new_tokens, args.calls, args.timeout = 3, 24, 500, 600
    if args.rounds < 3:
        parser.error("a median needs 3 rounds")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # ends the contestant as Ctrl-C does
    import report

    if args.report:
        results = json.loads(args.report.read_text())
        results["bandwidth"] = {int(n): b for n, b in results["bandwidth"].items()}
        path = args.report
    else:
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"{time.strftime('%Y-%m-%dT%H%M%S')}-{args.dtype}.json"
        available = sorted(os.sched_getaffinity(0))
        results = measure(args, available[:args.threads], lambda results: path.write_text(json.dumps(results, indent=1)))
    print(report.text(results))
    plot = report.draw(results, path.with_suffix(".png"))
    print(f"written: {path}" + (f", {plot}" if plot else " (no plot: matplotlib is not installed)"))
    return int(any("incomplete" in figures for name, figures in results["contestants"].items() if name.startswith("neuron")))


if __name__ == "__main__":
    sys.exit(main())
