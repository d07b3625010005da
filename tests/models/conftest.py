"""The Hugging Face libraries, unchanged, on the device: `make test-models`. Nothing here may reach the network or PyTorch's CPU kernels by way of the device."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TORCH_NEURONX_FALLBACK"] = "error"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
