"""The llama.cpp contestant of bench.py, in a process of its own: model_llama.py JOB.json

The same tokens through llama-cpp-python (scripts/install_llama_cpp.sh) on the 4-bit file; the figures are those of model_torch.py.
"""
import itertools
import json
import os
import statistics
import sys
import time

from model_torch import emit, peak_rss, reset_peak_rss


def main() -> None:
    with open(sys.argv[1]) as f:
        job = json.load(f)
    os.sched_setaffinity(0, job["cpus"])
    started = time.perf_counter()
    from llama_cpp import Llama

    threads, new, rounds = len(job["cpus"]), job["new_tokens"], job["rounds"]
    llama = Llama(job["gguf"], n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads, verbose=False)
    emit(load_s=time.perf_counter() - started, weight_bytes=os.path.getsize(job["gguf"]))
    reset_peak_rss()

    def run(ids: list[int], tokens: int) -> tuple[float, list[float], list[int]]:
        llama.reset()
        begin, times, answer = time.perf_counter(), [], []
        for token in itertools.islice(llama.generate(ids, temp=0.0, repeat_penalty=1.0, reset=False), tokens):
            times.append(time.perf_counter())
            answer.append(token)
        return begin, times, answer

    begin, times, answer = run(job["prompt"], new)
    emit(first_call_s=times[-1] - begin, answer=answer)
    first, decode, prefill = [], [], []
    for _ in range(rounds):
        begin, times, _ = run(job["prompt"], new)
        first.append((times[0] - begin) * 1e3)
        decode.append((new - 1) / (times[-1] - times[0]))
        emit(first_token_ms=statistics.median(first), decode_tps=statistics.median(decode), decode_tps_all=decode)
    for _ in range(rounds):
        begin, times, _ = run(job["long_prompt"], 1)
        prefill.append(len(job["long_prompt"]) / (times[0] - begin))
        emit(prefill_tps=statistics.median(prefill), prefill_tps_all=prefill)
    emit(peak_rss_bytes=peak_rss())


if __name__ == "__main__":
    main()
