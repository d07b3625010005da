"""The schedulers of Diffusers on the device and on the CPU: a stand-in for the model, the same noise from a CPU generator, a few steps each.

Every intermediate sample is equal to 1e-5 of its largest magnitude, tokens exactly. A fallback is an error (conftest.py).
"""

import importlib.util
import inspect

import pytest
import torch

diffusers = pytest.importorskip("diffusers")

NAMES = sorted(name for name in dir(diffusers) if name.endswith("Scheduler"))
if not importlib.util.find_spec("torchsde"):
    NAMES = [name for name in NAMES if name not in ("CosineDPMSolverMultistepScheduler", "DPMSolverSDEScheduler")]

MASK, TOKENS = 15, 16
STEPS = 7  # of a trajectory at most: four, and for those of second order their corrections
CONFIGURATION = {
    "AmusedScheduler": dict(mask_token_id=MASK),
    "PiflowScheduler": dict(n_grid=2),
    "RFD4ProteinaScheduler": dict(schedule_mode="log", noise_mode="1/t", tsr_k=1.5, tsr_sigma=1.0),
    "VQDiffusionScheduler": dict(num_vec_classes=TOKENS),
}
TIMES = {
    "DDPMWuerstchenScheduler": dict(num_inference_steps=STEPS),  # its last time, as SCM's, is where the last step arrives
    "DiscreteDDIMScheduler": dict(num_inference_steps=1),  # the last step; those before it draw from the device's own generator
    "HeliosDMDScheduler": dict(stage_index=0),
    "HeliosScheduler": dict(stage_index=0),
    "RFD4ProteinaScheduler": dict(num_inference_steps=20),  # the least
    "SCMScheduler": dict(num_inference_steps=STEPS, intermediate_timesteps=None),
}


def wave(t, device):
    return torch.sin(torch.as_tensor(t, device=device).float())


def model(sample, t):
    """What a network would predict: smooth, of the sample's size or below, different at each step."""
    return torch.tanh(sample * 0.5) + 0.1 * wave(t, sample.device)


def logits(sample, t):
    """For tokens (batch, length): so sure of one at each place that what is drawn does not depend on the generator."""
    wanted = (torch.arange(sample.shape[1], device=sample.device) * 7 + sample.shape[0]) % MASK
    return 50 * torch.nn.functional.one_hot(wanted, TOKENS).float().expand(*sample.shape, TOKENS) + 0.01 * wave(t, sample.device)


def masked():
    return torch.full((2, 12), MASK)


# Those that are stepped in a way of their own: the first sample, and (scheduler, sample, t, generator) -> the next.


def karras(s, x, sigma, generator):
    noisy, raised = s.add_noise_to_input(x, sigma.item(), generator=generator)
    step = s.step(model(noisy, raised), raised, sigma.item() / 2, noisy)
    return s.step_correct(model(step.prev_sample, raised), raised, sigma.item() / 2, noisy, step.prev_sample, step.derivative).prev_sample


def helios_dmd(s, x, t, generator):
    noise = torch.randn(x.shape, generator=generator).to(x.device)
    options = dict(dmd_noisy_tensor=noise, dmd_sigmas=s.sigmas, dmd_timesteps=s.timesteps, all_timesteps=s.timesteps)
    return s.step(model(x, t), t, x, cur_sampling_step=s.timesteps.tolist().index(t), **options).prev_sample


def proteina(s, x, t, generator):
    each = [generator, torch.Generator("cpu").manual_seed(1)]
    return s.step(model(x, t), t, x, torch.ones_like(x[..., 0], dtype=torch.bool), each).prev_sample


def vq_diffusion(s, x, t, generator):
    """What the step draws from, at its likeliest; at the end, the step: its noise is the device's own, and the model is sure."""
    predicted = logits(x, t)[..., :MASK].mT.log_softmax(1)
    return s.q_posterior(predicted, x, t).argmax(1) if t > 0 else s.step(predicted, t, x).prev_sample


def sde_ve(s, x, t, generator):
    s.set_sigmas(4)
    x = s.step_correct(model(x, t), x, generator=generator).prev_sample
    return s.step_pred(model(x, t), t, x, generator=generator).prev_sample


OWN = {
    "AmusedScheduler": (masked, lambda s, x, t, g: s.step(logits(x, t), t, x, generator=g).prev_sample),
    "BlockRefinementScheduler": (masked, lambda s, x, t, g: s.step(logits(x, t), t, x, mask_token_id=MASK).prev_sample),
    "CogVideoXDPMScheduler": (None, lambda s, x, t, g: s.step(model(x, t), None, t, None, x, generator=g)[0]),
    "DDPMWuerstchenScheduler": (None, lambda s, x, t, g: s.step(model(x, t), t.expand(len(x)), x, generator=g).prev_sample),
    "DiscreteDDIMScheduler": (masked, lambda s, x, t, g: s.step(logits(x, t), t, x).prev_sample),
    "EntropyBoundScheduler": (masked, lambda s, x, t, g: s.step(logits(x, t), t, x, entropy_bound=100.0).prev_sample),
    "HeliosDMDScheduler": (lambda: torch.randn(1, 4, 2, 8, 8), helios_dmd),
    "KarrasVeScheduler": (None, lambda s, x, t, g: karras(s, x, s.schedule[t], g)),
    "PiflowScheduler": (lambda: torch.randn(2, 16, 8), lambda s, x, t, g: s.step(model(x, t).repeat(1, 1, 2), t, x).prev_sample),
    "RFD4ProteinaScheduler": (lambda: torch.randn(2, 8, 3), proteina),
    "RePaintScheduler": (None, lambda s, x, t, g: s.step(model(x, t), t, x, torch.zeros_like(x), (x > 0).float(), generator=g).prev_sample),
    "ScoreSdeVeScheduler": (None, sde_ve),
    "VQDiffusionScheduler": (masked, vq_diffusion),
}


def denoise(name, device):
    scheduler = getattr(diffusers, name)(**CONFIGURATION.get(name, {}))
    scheduler.set_timesteps(**dict(num_inference_steps=4, device=device) | TIMES.get(name, {}))
    torch.manual_seed(0)
    first, step = OWN.get(name, (None, None))
    sample = (first() if first else torch.randn(2, 4, 8, 8) * getattr(scheduler, "init_noise_sigma", 1)).to(device)
    generator = torch.Generator("cpu").manual_seed(0)
    if step is None:
        options = dict(generator=generator) if "generator" in inspect.signature(scheduler.step).parameters else {}

        def step(scheduler, sample, t, generator):
            scaled = scheduler.scale_model_input(sample, t) if hasattr(scheduler, "scale_model_input") else sample
            return scheduler.step(model(scaled, t), t, sample, **options).prev_sample

    for t in scheduler.timesteps[:STEPS]:
        sample = step(scheduler, sample, t, generator)
        yield sample


@pytest.mark.parametrize("name", NAMES)
def test_scheduler(name):
    for got, want in zip(denoise(name, "neuron"), denoise(name, "cpu"), strict=True):
        assert got.device.type == "neuron" and got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-5 * want.abs().max().item() if want.is_floating_point() else 0)
    assert torch.neuron.fallback_counts() == {}
