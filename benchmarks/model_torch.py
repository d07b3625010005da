"""One contestant of bench.py that runs on PyTorch, in a process of its own: model_torch.py JOB.json

The job names the device, the cache and the compiler; everything else is the same for all of them. Each figure is written to standard output as
soon as it is there, one JSON object a line, so that a contestant that runs out of time still leaves what it has measured.
"""
import json
import os
import resource
import statistics
import sys
import time


def emit(**figures) -> None:
    print(json.dumps(figures), flush=True)


def reset_peak_rss() -> None:
    try:
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
    except OSError:
        pass


def peak_rss() -> int:
    with open("/proc/self/status") as f:
        for line in f:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    with open(sys.argv[1]) as f:
        job = json.load(f)
    os.sched_setaffinity(0, job["cpus"])
    started = time.perf_counter()
    import torch
    from transformers import AutoModelForCausalLM, CompileConfig
    from transformers.generation.streamers import BaseStreamer

    torch.set_num_threads(len(job["cpus"]))
    device, rounds, new = job["device"], job["rounds"], job["new_tokens"]
    module = torch.get_device_module(device)

    class Clock(BaseStreamer):
        """The time of each token; the first call brings the prompt."""

        def __init__(self):
            self.times = []

        def put(self, value):
            self.times.append(time.perf_counter())

        def end(self):
            pass

    model = AutoModelForCausalLM.from_pretrained(
        job["checkpoint"], device_map=device, dtype=getattr(torch, job["dtype"])).eval()
    emit(load_s=time.perf_counter() - started, weight_bytes=sum(p.nbytes for p in model.parameters()))
    model.generation_config.eos_token_id = None  # every contestant makes the same number of tokens
    if hasattr(module, "reset_peak_memory_stats"):
        module.reset_peak_memory_stats()
    reset_peak_rss()

    options = {"do_sample": False}
    if job["static"]:
        options["cache_implementation"] = "static"
    if job["backend"]:
        options["compile_config"] = CompileConfig(backend=job["backend"], mode="default")
        options["compile_config"]._compile_all_devices = True

    def run(ids: list[int], tokens: int) -> tuple[float, list[float], list[int]]:
        clock = Clock()
        inputs = torch.tensor([ids], device=device)
        begin = time.perf_counter()
        out = model.generate(inputs, attention_mask=torch.ones_like(inputs), streamer=clock,
                             max_new_tokens=tokens, **options)
        answer = out[0, len(ids):].tolist()
        return begin, clock.times[1:] + [time.perf_counter()], answer

    def compiles() -> int:
        return sum(bool(m.compile_id) for m in torch._dynamo.utils.get_compilation_metrics())

    begin, times, answer = run(job["prompt"], new)
    emit(first_call_s=times[-1] - begin, first_token_cold_ms=(times[0] - begin) * 1e3, answer=answer)
    if job["static"]:
        records = [m for m in torch._dynamo.utils.get_compilation_metrics() if m.compile_id]
        emit(compile_ms=sum(m.duration_us or 0 for m in records) / 1e3, graphs=len(records))
        if hasattr(module, "get_dynamo_metrics"):
            stages = ("torch_neuronx_fx_passes_us", "torch_neuronx_lower_us", "torch_neuronx_compile_us")
            emit(compile_own_ms=sum(getattr(m, s) or 0 for m in module.get_dynamo_metrics() for s in stages) / 1e3)
    graphs = compiles()

    first, decode = [], []
    for _ in range(rounds):
        begin, times, _ = run(job["prompt"], new)
        first.append((times[0] - begin) * 1e3)
        decode.append((new - 1) / (times[new - 1] - times[0]))
        emit(first_token_ms=statistics.median(first), decode_tps=statistics.median(decode), decode_tps_all=decode)
    prefill = []
    for _ in range(rounds):
        begin, times, _ = run(job["long_prompt"], 1)
        prefill.append(len(job["long_prompt"]) / (times[0] - begin))
        emit(prefill_tps=statistics.median(prefill), prefill_tps_all=prefill)
    emit(recompilations=compiles() - graphs, peak_rss_bytes=peak_rss())
    if hasattr(module, "max_memory_allocated"):
        emit(peak_device_bytes=module.max_memory_allocated())
    if hasattr(module, "fallback_counts"):
        emit(fallbacks=sum(module.fallback_counts().values()))


if __name__ == "__main__":
    main()
