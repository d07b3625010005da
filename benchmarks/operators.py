"""Time of one operator call on small tensors, on the device and on PyTorch's CPU, in one process: operators.py JOB.json

What is measured is the price of a call, not of the arithmetic: a few hundred elements, many calls, one synchronisation at
the end. The two devices take turns, so that both see the same machine. One JSON object a line:
{"operator": name, "device_us": t, "cpu_us": t}.
"""
import json
import os
import statistics
import sys
import time


def operators(torch, device: str):
    """Name and call for each operator, on tensors of this device."""
    f = torch.nn.functional
    g = torch.Generator().manual_seed(0)

    def t(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=g).to(dtype).to(device)

    a, b, row, w = t(64), t(64), t(4, 64), t(64, 64)
    half, square, weight, bias = t(64, dtype=torch.bfloat16), t(16, 16), t(64), t(64)
    q, k = t(1, 2, 8, 16), t(1, 2, 8, 16)
    ids = torch.tensor([1, 5, 3, 2]).to(device)
    mask = (t(64) > 0)
    return {
        "add": lambda: a + b,
        "add_scalar": lambda: a + 1.5,
        "add_inplace": lambda: a.add_(b, alpha=0.0),
        "mul": lambda: a * b,
        "mul_bfloat16": lambda: half * half,
        "pow_2": lambda: a.pow(2),
        "exp": lambda: a.exp(),
        "silu": lambda: f.silu(a),
        "gelu": lambda: f.gelu(a),
        "where": lambda: torch.where(mask, a, b),
        "compare": lambda: a > b,
        "to_bfloat16": lambda: a.to(torch.bfloat16),
        "sum": lambda: row.sum(-1),
        "mean": lambda: row.mean(-1, keepdim=True),
        "argmax": lambda: row.argmax(-1),
        "softmax": lambda: row.softmax(-1),
        "layer_norm": lambda: f.layer_norm(row, (64,), weight, bias),
        "rms_norm": lambda: f.rms_norm(row, (64,), weight),
        "linear": lambda: f.linear(row, w),
        "matmul": lambda: square @ square,
        "attention": lambda: f.scaled_dot_product_attention(q, k, k),
        "embedding": lambda: f.embedding(ids, w),
        "index_select": lambda: w.index_select(0, ids),
        "cat": lambda: torch.cat((row, row)),
        "transpose_contiguous": lambda: w.t().contiguous(),
        "view": lambda: w.view(16, 256),
    }


def main() -> None:
    with open(sys.argv[1]) as f:
        job = json.load(f)
    os.sched_setaffinity(0, job["cpus"])
    import torch

    torch.set_num_threads(len(job["cpus"]))
    torch.set_grad_enabled(False)
    module = torch.get_device_module(job["device"])
    ours, cpu = operators(torch, job["device"]), operators(torch, "cpu")

    def batch(call, calls: int, finish) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        return (time.perf_counter() - begin) / calls * 1e6

    for name in ours:
        samples: dict[str, list[float]] = {"device": [], "cpu": []}
        for _ in range(max(3, job["rounds"]) + 1):
            samples["device"].append(batch(ours[name], job["calls"], module.synchronize))
            samples["cpu"].append(batch(cpu[name], job["calls"], lambda: None))
        # The first round warms caches and is not counted.
        print(json.dumps({"operator": name, "device_us": statistics.median(samples["device"][1:]),
                          "cpu_us": statistics.median(samples["cpu"][1:])}), flush=True)


if __name__ == "__main__":
    main()
