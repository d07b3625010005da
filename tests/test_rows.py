"""Rows of the operator table on the device: recorded calls (row_calls.py), each compiled as a graph of its own, against PyTorch's CPU results.

Run as a program it prints the counts: ``python tests/test_rows.py``.
"""

from __future__ import annotations

import pytest

_C = pytest.importorskip("torch_neuronx._C", reason="the native part is not built")
from row_calls import record  # noqa: E402


def run_call(call):
    """Compiles and runs a call. NotImplementedError: the core does not cover it."""
    builder, inputs = _C.GraphBuilder("row"), []
    results = call.build(builder, inputs)
    for r in results:
        if r is not None:
            builder.output(r, None, None)
    got = iter(builder.compile().run([x.to("neuron") for x in inputs], []))
    return [next(got).cpu() if r is not None else None for r in results]


def run_all():
    """(number of calls run, of calls not covered, what is wrong)."""
    ran, uncovered, wrong = 0, 0, []
    for _, calls in sorted(record().by_row.items()):
        for call in calls:
            try:
                got = run_call(call)
                ran += 1
                call.check(got)
            except NotImplementedError:
                uncovered += 1
            except (AssertionError, RuntimeError, TypeError, IndexError, ValueError) as error:
                wrong.append(f"{call.label}: {error}")
    return ran, uncovered, wrong


@pytest.mark.timeout(600)
def test_rows():
    ran, _, wrong = run_all()
    assert ran > 1000
    assert not wrong, f"{len(wrong)} of {ran} calls are wrong:\n" + "\n".join(wrong)


if __name__ == "__main__":
    ran, uncovered, wrong = run_all()
    print(f"{len(record().by_row)} rows in {ran} calls, {len(wrong)} wrong, {uncovered} calls not covered")
    print("\n".join(wrong))
