"""Some random programs (fuzz.py) on each run; `make fuzz ARGS=--seconds=3600` runs many."""

import os
import warnings

import pytest
import torch

fuzz = pytest.importorskip("fuzz")

SEED = int(os.environ.get("TNX_FUZZ_SEED", "20789000"))
PROGRAMS = 40


@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(4))
def test_random_programs(part):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(SEED + part * PROGRAMS, SEED + (part + 1) * PROGRAMS):
            program = fuzz.program_of(seed)
            wrong = fuzz.failure(program, compiled=seed % PROGRAMS == 0)
            if wrong:
                program = fuzz.smaller(program, wrong[0])
                pytest.fail(f"seed {seed}, {wrong[0]}: {wrong[1]}\n\n{program.snippet()}")


# What the programs have found.
FOUND = {
    "sign of a product with zeros": lambda d: torch.tensor([3.0, 0.0, -2.0, 1.0]).to(d).prod(-1).signbit(),
    "epsilon of rms_norm": lambda d: torch.nn.functional.rms_norm(torch.ones(2, 1, dtype=torch.bfloat16).to(d), (1,)),
    "cumsum_ of no bools": lambda d: torch.zeros(2, 0, dtype=torch.bool).to(d).cumsum_(0),
}


@pytest.mark.parametrize("name", FOUND)
def test_found(name):
    assert torch.equal(FOUND[name]("neuron").cpu(), FOUND[name]("cpu"))
