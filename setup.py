"""Builds the native part with the project's CMake and puts it beside the Python files. Everything else is in pyproject.toml."""
import pathlib
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).resolve().parent


class BuildNative(build_ext):
    """The build writes into torch_neuronx/ of the source tree; for a wheel the libraries are copied from there."""

    def run(self):
        subprocess.run([str(ROOT / "scripts/build_native.sh"), "build", sys.executable], check=True)
        if not self.inplace:
            target = pathlib.Path(self.build_lib) / "torch_neuronx"
            target.mkdir(parents=True, exist_ok=True)
            for library in self.libraries_built():
                shutil.copy2(library, target / library.name)

    @staticmethod
    def libraries_built():
        return [p for pattern in ("_C*.so", "libtnx*.so*") for p in (ROOT / "torch_neuronx").glob(pattern)]

    def get_outputs(self):
        return [str(pathlib.Path(self.build_lib) / "torch_neuronx" / p.name) for p in self.libraries_built()]


# The extension is named so that the wheel is tagged for this platform and Python; CMake compiles it, not setuptools.
setup(ext_modules=[Extension("torch_neuronx._C", sources=[])], cmdclass={"build_ext": BuildNative})
