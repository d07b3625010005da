"""Time of one operator call, on the device and on PyTorch's CPU, in one process: operators.py JOB.json

"small" tensors have some dozens of elements: what counts is the price of a call, measured over many calls with one synchronisation at the
end. "large" ones fill 16 MiB (less where the work grows faster than the data): what counts is the arithmetic. The two devices take turns, so that
both see the same machine. One JSON object a line: {"operator": name, "size": "small" | "large", "device_us": t, "cpu_us": t}.
"""
import json
import os
import statistics
import sys
import time


def operators(torch, device: str, large: bool):
    """Name and call for each operator, on tensors of this device."""
    f = torch.nn.functional
    g = torch.Generator().manual_seed(0)

    def t(*shape, dtype=torch.float32):
        return torch.randn(*shape, generator=g).to(dtype).to(device)

    def integers(high, *shape):
        return torch.randint(0, high, shape, generator=g).to(device)

    rows, cols = (2048, 2048) if large else (4, 64)
    n = rows * cols
    a, b, c, positive = t(n), t(n), t(n), t(n).abs() + 0.5
    half, double, whole, mask = t(n, dtype=torch.bfloat16), t(n, dtype=torch.float64), integers(100, n), t(n) > 0
    row, row2, weight, bias = t(rows, cols), t(rows, cols), t(cols), t(cols)
    side = 1024 if large else 16
    square, square2 = t(side, side), t(side, side)
    batch, batch2 = (t(16, 256, 256), t(16, 256, 256)) if large else (t(2, 8, 8), t(2, 8, 8))
    q, k = (t(1, 16, 512, 64), t(1, 16, 512, 64)) if large else (t(1, 2, 8, 16), t(1, 2, 8, 16))
    ids, labels = integers(rows, rows), integers(cols, rows)
    places = integers(cols, rows, cols)
    image = t(4, 64, 128, 128) if large else t(1, 4, 8, 8)
    filters, channel = t(image.shape[1], image.shape[1], 3, 3), t(image.shape[1])
    signal, taps = (t(4, 64, 8192), t(64, 64, 3)) if large else (t(1, 4, 16), t(4, 4, 3))
    chance = t(rows, cols).sigmoid()
    mean, spread = torch.zeros_like(channel), torch.ones_like(channel)
    return {
        # pointwise
        "add": lambda: a + b,
        "add_scalar": lambda: a + 1.5,
        "add_inplace": lambda: a.add_(b, alpha=0.0),
        "add_broadcast": lambda: row + weight,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "mul_bfloat16": lambda: half * half,
        "mul_float64": lambda: double * double,
        "mul_int64": lambda: whole * whole,
        "div": lambda: a / positive,
        "floor_divide": lambda: a // 3.0,
        "remainder": lambda: a % 3.0,
        "reciprocal": lambda: positive.reciprocal(),
        "pow_2": lambda: a.pow(2),
        "pow": lambda: positive.pow(b),
        "sqrt": lambda: positive.sqrt(),
        "rsqrt": lambda: positive.rsqrt(),
        "exp": lambda: a.exp(),
        "log": lambda: positive.log(),
        "sin": lambda: a.sin(),
        "cos": lambda: a.cos(),
        "tanh": lambda: a.tanh(),
        "atan2": lambda: torch.atan2(a, b),
        "erf": lambda: a.erf(),
        "abs": lambda: a.abs(),
        "neg": lambda: -a,
        "sign": lambda: a.sign(),
        "floor": lambda: a.floor(),
        "round": lambda: a.round(),
        "clamp": lambda: a.clamp(-1, 1),
        "maximum": lambda: torch.maximum(a, b),
        "lerp": lambda: a.lerp(b, 0.3),
        "addcmul": lambda: torch.addcmul(a, b, c),
        "addcdiv": lambda: torch.addcdiv(a, b, positive),
        "isnan": lambda: a.isnan(),
        "compare": lambda: a > b,
        "compare_scalar": lambda: whole == 7,
        "logical_and": lambda: mask & mask,
        "logical_not": lambda: ~mask,
        "where": lambda: torch.where(mask, a, b),
        "masked_fill": lambda: a.masked_fill(mask, 0.0),
        "relu": lambda: f.relu(a),
        "leaky_relu": lambda: f.leaky_relu(a),
        "elu": lambda: f.elu(a),
        "silu": lambda: f.silu(a),
        "gelu": lambda: f.gelu(a),
        "gelu_tanh": lambda: f.gelu(a, approximate="tanh"),
        "sigmoid": lambda: a.sigmoid(),
        "softplus": lambda: f.softplus(a),
        "hardswish": lambda: f.hardswish(a),
        "to_bfloat16": lambda: a.to(torch.bfloat16),
        "to_float32": lambda: half.float(),
        "to_int64": lambda: a.to(torch.int64),
        # reductions and scans
        "sum": lambda: row.sum(-1),
        "sum_all": lambda: a.sum(),
        "sum_first": lambda: row.sum(0),
        "sum_int64": lambda: whole.sum(),
        "mean": lambda: row.mean(-1, keepdim=True),
        "amax": lambda: row.amax(-1),
        "max_dim": lambda: row.max(-1),
        "argmax": lambda: row.argmax(-1),
        "argmin_first": lambda: row.argmin(0),
        "var": lambda: row.var(-1),
        "std_all": lambda: a.std(),
        "prod": lambda: row.prod(-1),
        "norm": lambda: row.norm(),
        "any": lambda: mask.any(),
        "logsumexp": lambda: row.logsumexp(-1),
        "cumsum": lambda: row.cumsum(-1),
        "cumsum_first": lambda: row.cumsum(0),
        "cumprod": lambda: row.cumprod(-1),
        # normalisation
        "softmax": lambda: row.softmax(-1),
        "softmax_first": lambda: row.softmax(0),
        "log_softmax": lambda: row.log_softmax(-1),
        "layer_norm": lambda: f.layer_norm(row, (cols,), weight, bias),
        "rms_norm": lambda: f.rms_norm(row, (cols,), weight),
        "group_norm": lambda: f.group_norm(image, 2, channel, channel),
        "batch_norm": lambda: f.batch_norm(image, mean, spread, channel, channel),
        # products
        "linear": lambda: f.linear(square, square2),
        "addmm": lambda: torch.addmm(square, square, square2),
        "matmul": lambda: square @ square2,
        "bmm": lambda: torch.bmm(batch, batch2),
        "mv": lambda: row.mv(weight),
        "dot": lambda: a.dot(b),
        "outer": lambda: torch.outer(weight, bias),
        "attention": lambda: f.scaled_dot_product_attention(q, k, k),
        # convolution and pooling
        "conv1d": lambda: f.conv1d(signal, taps, padding=1),
        "conv2d": lambda: f.conv2d(image, filters, padding=1),
        "max_pool2d": lambda: f.max_pool2d(image, 2),
        "avg_pool2d": lambda: f.avg_pool2d(image, 2),
        "interpolate_nearest": lambda: f.interpolate(image, scale_factor=2, mode="nearest"),
        "interpolate_bilinear": lambda: f.interpolate(image, scale_factor=0.5, mode="bilinear"),
        "pad": lambda: f.pad(row, (1, 1)),
        # indexing
        "embedding": lambda: f.embedding(ids, row),
        "index_select": lambda: row.index_select(0, ids),
        "index": lambda: row[ids],
        "index_put": lambda: row2.index_put((ids,), row),
        "gather": lambda: row.gather(1, places),
        "scatter": lambda: row2.scatter(1, places, row),
        "index_add": lambda: row2.index_add(0, ids, row),
        "masked_select": lambda: row[row > 1],
        "nonzero": lambda: mask.nonzero(),
        "topk": lambda: row.topk(8, -1),
        "sort": lambda: row.sort(-1),
        # data movement
        "cat": lambda: torch.cat((row, row2)),
        "stack": lambda: torch.stack((a, b)),
        "flip": lambda: row.flip(1),
        "roll": lambda: row.roll(3, 1),
        "tril": lambda: row.tril(),
        "repeat": lambda: row.repeat(1, 2),
        "transpose_contiguous": lambda: row.t().contiguous(),
        "clone": lambda: a.clone(),
        "copy": lambda: b.copy_(a),
        "zeros": lambda: torch.zeros(n, device=device),
        "full": lambda: torch.full((n,), 1.5, device=device),
        "arange": lambda: torch.arange(n, device=device),
        "view": lambda: row.view(-1),
        "slice": lambda: row[:, 1:3],
        # losses
        "cross_entropy": lambda: f.cross_entropy(row, labels),
        "mse_loss": lambda: f.mse_loss(row, row2),
        "bce_with_logits": lambda: f.binary_cross_entropy_with_logits(row, chance),
        # random numbers
        "rand": lambda: torch.rand(n, device=device),
        "randn": lambda: torch.randn(n, device=device),
        "randint": lambda: torch.randint(0, 100, (n,), device=device),
        "bernoulli": lambda: torch.bernoulli(chance),
        "dropout": lambda: f.dropout(a, 0.1),
    }


def main() -> None:
    with open(sys.argv[1]) as f:
        job = json.load(f)
    os.sched_setaffinity(0, job["cpus"])
    import torch

    torch.set_num_threads(len(job["cpus"]))
    torch.set_grad_enabled(False)
    module = torch.get_device_module(job["device"])

    def batch(call, calls: int, finish) -> float:
        time.sleep(0.02)  # the threads of the other side spin for some milliseconds after their last call
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        return (time.perf_counter() - begin) / calls * 1e6

    for size, calls in (("small", job["calls"]), ("large", job["large_calls"])):
        ours, cpu = operators(torch, job["device"], size == "large"), operators(torch, "cpu", size == "large")
        for name in ours:
            samples: dict[str, list[float]] = {"device": [], "cpu": []}
            for _ in range(max(3, job["rounds"]) + 1):
                samples["device"].append(batch(ours[name], calls, module.synchronize))
                samples["cpu"].append(batch(cpu[name], calls, lambda: None))
            # The first round warms caches and is not counted.
            print(json.dumps({"operator": name, "size": size, "device_us": statistics.median(samples["device"][1:]),
                              "cpu_us": statistics.median(samples["cpu"][1:])}), flush=True)


if __name__ == "__main__":
    main()
