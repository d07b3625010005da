"""docs/operators.md names every overload with the state it has now (its dtypes and StableHLO are measured by `make operators-page` only)."""

import pytest
import torch

pytest.importorskip("torch_neuronx._C", reason="the native part is not built")
import operators_page  # noqa: E402


def test_overloads_and_states():
    wrong = operators_page.stale(operators_page.PAGE.read_text())
    assert not wrong, "run `make operators-page`:\n" + "\n".join(wrong[:40])


def test_every_row_has_a_family():
    families = operators_page.families()
    rows = operators_page._C.rows()
    missing = [r["functional"] for r in rows if r["functional"] and not families.get(r["functional"])]
    assert not missing


def test_kinds_of_tensors_that_do_not_exist():
    x = torch.ones(3, 4, device="neuron")
    scale, zero = torch.ones(3, device="neuron"), torch.zeros(3, dtype=torch.int64, device="neuron")
    for make in (
        x.to_mkldnn,
        lambda: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8),
        lambda: torch.quantize_per_channel(x, scale, zero, 0, torch.qint8),
    ):
        with pytest.raises(RuntimeError):
            make()
