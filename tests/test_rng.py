"""Random numbers: seeds, states, generators."""

import pytest
import torch

DEVICE = "neuron"


def draws():
    return [
        torch.rand(5, device=DEVICE),
        torch.randn(3, 4, device=DEVICE),
        torch.randint(0, 1000, (7,), device=DEVICE),
        torch.randperm(9, device=DEVICE),
        torch.bernoulli(torch.full((20,), 0.5, device=DEVICE)),
        torch.nn.functional.dropout(torch.ones(50, device=DEVICE), 0.5),
        torch.empty(6, device=DEVICE).exponential_(),
        torch.multinomial(torch.ones(10, device=DEVICE), 4),
    ]


def test_manual_seed_repeats():
    torch.manual_seed(5)
    first = draws()
    torch.manual_seed(5)
    for a, b in zip(first, draws(), strict=True):
        assert torch.equal(a.cpu(), b.cpu())
    torch.neuron.manual_seed(6)
    assert not torch.equal(first[0].cpu(), torch.rand(5, device=DEVICE).cpu())


def test_consecutive_draws_differ():
    torch.manual_seed(0)
    a, b = torch.rand(100, device=DEVICE).cpu(), torch.rand(100, device=DEVICE).cpu()
    assert not torch.equal(a, b)
    assert len(set(torch.cat([a, b]).tolist())) > 190


def test_state():
    torch.neuron.manual_seed(11)
    torch.rand(3, device=DEVICE)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.numel() == 16
    a = torch.rand(8, device=DEVICE).cpu()
    torch.neuron.set_rng_state(state)
    assert torch.equal(a, torch.rand(8, device=DEVICE).cpu())
    torch.neuron.set_rng_state(state.to(DEVICE))
    assert torch.equal(a, torch.rand(8, device=DEVICE).cpu())


def test_seed_only_state():
    torch.neuron.manual_seed(123)
    a = torch.rand(4, device=DEVICE).cpu()
    torch.neuron.set_rng_state(torch.neuron.get_rng_state()[:8])
    assert torch.equal(a, torch.rand(4, device=DEVICE).cpu())


def test_bad_states():
    with pytest.raises(RuntimeError, match="wrong size"):
        torch.neuron.set_rng_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        torch.neuron.set_rng_state(torch.zeros(16))


def test_all_devices():
    states = torch.neuron.get_rng_state_all()
    assert len(states) == torch.neuron.device_count()
    torch.neuron.manual_seed_all(9)
    a = torch.rand(4, device=DEVICE).cpu()
    torch.neuron.manual_seed_all(9)
    assert torch.equal(a, torch.rand(4, device=DEVICE).cpu())
    torch.neuron.set_rng_state_all(states)
    assert torch.equal(torch.neuron.get_rng_state(), states[0])


def test_seeds():
    value = torch.neuron.seed()
    assert torch.neuron.initial_seed() == value
    value = torch.neuron.seed_all()
    assert torch.neuron.initial_seed() == value
    torch.neuron.manual_seed(77)
    assert torch.neuron.initial_seed() == 77
    assert torch.neuron.default_generators[0].initial_seed() == 77


def test_generator_objects():
    g = torch.Generator(device=DEVICE)
    assert g.device.type == DEVICE
    g.manual_seed(42)
    a = torch.rand(5, device=DEVICE, generator=g).cpu()
    copy = torch.Generator(device=DEVICE)
    copy.set_state(g.get_state())
    b = torch.randn(5, device=DEVICE, generator=g).cpu()
    assert torch.equal(b, torch.randn(5, device=DEVICE, generator=copy).cpu())
    g.manual_seed(42)
    assert torch.equal(a, torch.rand(5, device=DEVICE, generator=g).cpu())
    assert torch.equal(a, torch.rand(5, device=DEVICE, generator=torch.Generator(DEVICE).manual_seed(42)).cpu())
    with pytest.raises(RuntimeError, match="generator"):
        torch.rand(5, device=DEVICE, generator=torch.Generator())


def test_generator_does_not_move_the_default_one():
    torch.neuron.manual_seed(1)
    before = torch.neuron.get_rng_state()
    torch.rand(5, device=DEVICE, generator=torch.Generator(DEVICE))
    assert torch.equal(before, torch.neuron.get_rng_state())


@pytest.mark.parametrize(
    "draw",
    [
        lambda **options: torch.randn(3, 4, **options),
        lambda **options: torch.rand(7, dtype=torch.bfloat16, **options),
        lambda **options: torch.randint(1000, (9,), **options),
        lambda device, generator: torch.empty(3, 4, device=device).t().exponential_(generator=generator),
        lambda device, generator: torch.nn.init.trunc_normal_(torch.empty(5, device=device), generator=generator),
    ],
)
def test_generator_of_the_device_fills_host_memory(draw):
    """A library may make its noise on the CPU whatever the generator, as Diffusers does: the numbers are those the device would draw."""
    on_host, on_device = (draw(device=device, generator=torch.Generator(DEVICE).manual_seed(3)) for device in ("cpu", DEVICE))
    assert on_host.device.type == "cpu"
    assert torch.equal(on_host, on_device.cpu())
    x = torch.empty(3)
    assert x.normal_(generator=torch.Generator(DEVICE)) is x


def test_fork_rng():
    torch.manual_seed(2)
    a = torch.rand(3, device=DEVICE).cpu()
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type=DEVICE):
        torch.rand(100, device=DEVICE)
    assert torch.equal(a, torch.rand(3, device=DEVICE).cpu())


def test_checkpoint_keeps_dropout():
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(200, device=DEVICE, requires_grad=True)
    y = checkpoint(lambda t: torch.nn.functional.dropout(t, 0.5) * t, x, use_reentrant=False)
    y.sum().backward()
    # d(m t^2)/dt = 2 m t with the same mask m as in the forward pass
    assert torch.equal(x.grad.cpu(), 2 * y.detach().cpu())


def test_distributions():
    torch.manual_seed(0)
    n = 100_000
    u = torch.rand(n, device=DEVICE).cpu()
    assert 0 <= u.min() and u.max() < 1 and abs(u.mean() - 0.5) < 0.01
    z = torch.randn(n, device=DEVICE).cpu()
    assert abs(z.mean()) < 0.02 and abs(z.std() - 1) < 0.02
    i = torch.randint(-3, 4, (n,), device=DEVICE).cpu()
    assert set(i.tolist()) == set(range(-3, 4))
    p = torch.randperm(1000, device=DEVICE).cpu()
    assert torch.equal(p.sort().values, torch.arange(1000))
