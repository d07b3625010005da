"""Every causal language model of Transformers on the device, in each mode, in float32: `-k llama`, `-k "static and gpt2"`.

docs/architectures.md is the table of the same (`make architectures-page`). A case that the CPU itself cannot do is skipped, with the reason.
"""

import pytest

pytest.importorskip("transformers")
from architectures import CANNOT, MODES, NAMES, Examiner  # noqa: E402


@pytest.fixture(scope="module")
def examine():
    """In a process of its own: a crash is one failure, and the next case has a new process."""
    examiner = Examiner()
    yield examiner
    examiner.close()


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "bfloat16"])
@pytest.mark.parametrize("model_type", NAMES)
def test_architecture(examine, model_type, mode):
    verdict, reason = examine(model_type, mode)
    if verdict == CANNOT:
        pytest.skip(f"the CPU cannot: {reason}")
    assert verdict == "pass", reason


def test_page():
    """docs/architectures.md has each of them in each mode, and no failure."""
    from architectures_page import on_page

    page = on_page()
    assert page.keys() == {(name, mode) for name in NAMES for mode in MODES}, "run `make architectures-page`"
    assert not [case for case, (verdict, _) in page.items() if verdict == "fail"]
