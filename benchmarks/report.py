"""The tables and the plot of bench.py's results."""
import statistics

# Key, heading, format, True if more is better.
COLUMNS = [
    ("first_call_s", "first call s", "{:.1f}", False),
    ("first_token_ms", "first token ms", "{:.0f}", False),
    ("prefill_tps", "prefill 512 tok/s", "{:.0f}", True),
    ("decode_tps", "decode tok/s", "{:.1f}", True),
    ("compile_ms", "compile ms", "{:.0f}", False),
    ("compile_own_ms", "of it ours ms", "{:.0f}", False),
    ("peak_mib", "peak MiB", "{:.0f}", False),
    ("weights_mib", "weights MiB", "{:.0f}", False),
]
RATIO_COLUMNS = [(key, head, more) for key, head, _, more in COLUMNS if key not in ("compile_own_ms", "weights_mib")]
RATIOS = [
    ("neuron eager", "cpu eager"),
    ("neuron compiled", "inductor"),
    ("neuron compiled", "neuron eager"),
    ("neuron compiled", "llama.cpp"),
]


def with_limit(results: dict) -> dict[str, dict]:
    """The contestants and, last, what the memory's bandwidth allows: weights read once a token."""
    rows = {name: dict(figures) for name, figures in results["contestants"].items()}
    for figures in rows.values():
        for name, source in (("peak_mib", "peak_rss_bytes"), ("weights_mib", "weight_bytes")):
            if source in figures:
                figures[name] = figures[source] / 2**20
    weights = [f["weight_bytes"] for name, f in rows.items() if name != "llama.cpp" and "weight_bytes" in f]
    widest = results["bandwidth"].get(max(results["bandwidth"], default=0))
    if weights and widest:
        rows["memory limit"] = {"decode_tps": widest / min(weights)}
    return rows


def table(heads: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in [heads, *rows]) for i in range(len(heads))]
    def line(cells):
        return "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))).rstrip()
    return "\n".join([line(heads), "  ".join("-" * w for w in widths), *map(line, rows)])


def agreement(contestants: dict[str, dict]) -> list[str]:
    """How many of the first tokens are those of PyTorch's CPU: all in float32; in bfloat16 roundings differ and, sooner or later, so does the text."""
    expected = contestants.get("cpu eager", {}).get("answer")
    lines = []
    for name, figures in contestants.items():
        if expected and name != "cpu eager" and (answer := figures.get("answer")):
            same = next((i for i, (a, b) in enumerate(zip(answer, expected, strict=False)) if a != b), len(expected))
            lines.append(f"{name}: the first {same} of {len(expected)} tokens are those of cpu eager")
    return lines


def text(results: dict) -> str:
    rows = with_limit(results)
    machine = results["machine"]
    parts = [
        f"\nSmolLM2-135M-Instruct, {results['dtype']}, batch 1, {results['prompt_tokens']} prompt tokens, {results['new_tokens']} new tokens, "
        f"{machine['cpus_used']} threads, medians of {results['rounds']}\n{machine['cpu']}; load before {machine['load_before'][0]:.1f}; memory read "
        + ", ".join(f"{b / 1e9:.1f} GB/s with {n}" for n, b in results["bandwidth"].items() if b)
        + "".join(f"; {name}={value}" for name, value in machine.get("environment", {}).items()) + "\n"
    ]
    cells = [[name] + [fmt.format(f[key]) if f.get(key) is not None else "" for key, _, fmt, _ in COLUMNS] for name, f in rows.items()]
    parts.append(table(["", *(head for _, head, _, _ in COLUMNS)], cells))
    for name, figures in rows.items():
        if "incomplete" in figures:
            parts.append(f"{name}: {figures['incomplete']}")
        if figures.get("fallbacks"):
            parts.append(f"{name}: {figures['fallbacks']} CPU fallbacks")
        if figures.get("recompilations"):
            parts.append(f"{name}: {figures['recompilations']} recompilations after the first generate")
        if "peak_device_bytes" in figures:
            parts.append(f"{name}: peak device memory {figures['peak_device_bytes'] / 2**20:.0f} MiB")
    if "llama.cpp" in rows:
        parts.append("llama.cpp: computes with the 4-bit weights that the others' were unpacked from")
    parts += agreement(results["contestants"])

    ratios = []
    for a, b in RATIOS:
        line = [f"{a} / {b}"]
        for key, _, more in RATIO_COLUMNS:
            x, y = rows.get(a, {}).get(key), rows.get(b, {}).get(key)
            line.append(f"{x / y if more else y / x:.2f}x" if x and y else "")
        if any(line[1:]):
            ratios.append(line)
    limit = rows.get("memory limit", {}).get("decode_tps")
    for name, figures in rows.items():
        if limit and name not in ("memory limit", "llama.cpp") and "decode_tps" in figures:
            share = f"{figures['decode_tps'] / limit:.2f}x"
            ratios.append([f"{name} / memory limit"] + [share if key == "decode_tps" else "" for key, *_ in RATIO_COLUMNS])
    if ratios:
        parts += ["\nRatios (above 1: the first is better)", table(["", *(head for _, head, _ in RATIO_COLUMNS)], ratios)]

    for size, what in (("small", "small tensors"), ("large", "16 MiB")):
        operators = [o for o in results["operators"] if o.get("size", "small") == size]
        if not operators:
            continue
        lines = [[o["operator"], f"{o['device_us']:.2f}", f"{o['cpu_us']:.2f}", f"{o['device_us'] / o['cpu_us']:.2f}"] for o in operators]
        both = statistics.geometric_mean([o["device_us"] / o["cpu_us"] for o in operators])
        parts += [f"\nOne operator call on {what}", table(["", "neuron us", "cpu us", "neuron/cpu"], lines), f"geometric mean {both:.2f}"]
    return "\n".join(parts) + "\n"


def draw(results: dict, path) -> str | None:
    try:
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return None
    rows = with_limit(results)
    panels = [(key, head, more) for key, head, _, more in COLUMNS if key in ("first_call_s", "first_token_ms", "prefill_tps", "decode_tps")]
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.4), constrained_layout=True)
    for axis, (key, head, more) in zip(axes, panels, strict=True):
        names = [n for n in rows if rows[n].get(key) is not None]
        colours = ["#c4511b" if n.startswith("neuron") else "#999999" for n in names]
        bars = axis.barh(names, [rows[n][key] for n in names], color=colours)
        axis.bar_label(bars, fmt="%.4g", padding=3, fontsize=8)
        axis.set_title(f"{head} ({'more' if more else 'less'} is better)", fontsize=9)
        axis.invert_yaxis()
        axis.margins(x=0.2)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    machine = results["machine"]
    title = f"SmolLM2-135M-Instruct, {results['dtype']}, batch 1, {machine['cpus_used']} threads, {machine['cpu']}"
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return str(path)
