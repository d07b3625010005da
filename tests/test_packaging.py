"""The project as a package: entry points, layers, headers, names that leave the library, what set-up says."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_includes  # noqa: E402


@pytest.mark.parametrize("group, name, value", [
    ("torch.backends", "torch_neuronx", "torch_neuronx:_autoload"),
    ("torch_dynamo_backends", "neuron", "torch_neuronx.compile:neuron_backend"),
])
def test_entry_points(group, name, value):
    found = {e.name: e.value for e in importlib.metadata.entry_points(group=group)}
    assert found.get(name) == value


def test_device_needs_no_import():
    code = "import sys, torch; print(torch.ones(2, device='neuron').sum().item(), torch.accelerator.current_accelerator().type)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=300)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["2.0", "neuron"]


@pytest.mark.parametrize("environment", [{}, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}], ids=["autoload", "no autoload"])
def test_the_package_may_be_imported_first(run_python, environment):
    assert run_python("import torch_neuronx, torch; print(torch.ones(2, device='neuron').sum().item())", **environment) == "2.0"


def test_versions_agree():
    cmake = re.search(r"project\(\w+ VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    assert re.search(r'^version = "([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1] == cmake
    assert re.search(r"^## \[?([\d.]+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == cmake
    assert importlib.metadata.version("torch-neuronx").split("+")[0] == cmake
    assert re.search(r'^__version__ = "([\d.]+)"', (ROOT / "torch_neuronx/__init__.py").read_text(), re.M)[1] == cmake


def test_the_oldest_python_is_the_same_everywhere():
    oldest = re.search(r'^requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
    assert f"Python {oldest} or later" in (ROOT / "README.md").read_text()
    assert f"Python {oldest} or later" in (ROOT / "scripts/setup.sh").read_text()


def test_pinned_torch_is_the_one_declared():
    pinned = re.search(r"^torch==(\S+)", (ROOT / "requirements/run.txt").read_text(), re.M)[1]
    assert (ROOT / "pyproject.toml").read_text().count(f"torch=={pinned}") == 2


def test_layers():
    assert check_includes.check(ROOT) == []


@pytest.mark.parametrize("path, text, words", [
    ("core/base/a.c", '#include "ir/graph.h"\n', "base/ includes ir/"),
    ("core/kernels/matmul/a.c", '#include "plan/plan.h"\n', "kernels/ includes plan/"),
    ("core/runtime/a.c", '#include "kernels/kernel.h"\n', "runtime/ includes kernels/"),
    ("core/plan/a.c", "#include <torch/extension.h>\n", "the core includes torch/extension.h"),
    ("core/ir/a.c", '#include "ir/gone.h"\n', "not in the tree"),
    ("core/include/tnx/a.h", '#include "base/arena.h"\n', "public header includes base/"),
    ("torch_glue/A.cpp", '#include "../core/base/arena.h"\n', "not a public header"),
])
def test_a_breach_of_the_layers_is_found(tmp_path, path, text, words):
    for name in ("ir/graph.h", "plan/plan.h", "kernels/kernel.h", "base/arena.h"):
        (tmp_path / "core" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "core" / name).write_text("")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text)
    breaches = check_includes.check(tmp_path)
    assert len(breaches) == 1 and words in breaches[0] and breaches[0].startswith(f"{path}:1:")


def test_public_headers_are_c11_and_cpp17():
    out = subprocess.run([str(ROOT / "scripts/check_headers.sh")], capture_output=True, text=True)
    assert out.returncode == 0, out.stdout + out.stderr


def test_the_glue_computes_nothing_but_the_fallback():
    pattern = re.compile(r"at::(native|cpu)\b")
    hits = {p.name for p in (ROOT / "torch_glue").glob("*.*") if pattern.search(p.read_text())}
    assert hits <= {"Fallback.cpp", "Fallback.h"}


@pytest.mark.skipif(shutil.which("nm") is None, reason="no nm")
def test_libtnx_exports_its_own_names_only():
    import torch_neuronx

    library = pathlib.Path(torch_neuronx.__file__).parent / "libtnx.so"
    out = subprocess.run(["nm", "-D", "--defined-only", str(library)], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in out.stdout.splitlines()]
    assert names and [n for n in names if not n.startswith("tnx_")] == []
    listed = subprocess.run(["ldd", str(library)], capture_output=True, text=True).stdout
    needed = " ".join(line.split()[0] for line in listed.splitlines())  # the names: an address can hold "c10" by chance
    assert "libc.so" in needed and not re.search(r"torch|c10|python|stdc\+\+", needed)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf")
def test_libraries_are_looked_for_beside_the_package_only():
    import torch_neuronx

    for library in pathlib.Path(torch_neuronx.__file__).parent.glob("*.so"):
        out = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
        assert set(re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", out)) <= {"$ORIGIN"}


def test_files_stay_small():
    long = {str(p.relative_to(ROOT)): n for folder in ("core", "torch_glue", "torch_neuronx", "benchmarks", "examples", "scripts", "tests")
            for p in (ROOT / folder).rglob("*") if p.suffix in {".c", ".h", ".cpp", ".py", ".def", ".sh"}
            if (n := len(p.read_text(encoding="utf-8").splitlines())) > 1200}
    assert long == {}


def test_setup_names_what_is_missing_in_one_line(tmp_path):
    environment = dict(os.environ, PYTHON="no-such-python", VENV=str(tmp_path / "venv"))
    out = subprocess.run([str(ROOT / "scripts/setup.sh")], capture_output=True, text=True, env=environment)
    assert out.returncode == 1
    assert len(out.stderr.splitlines()) == 1 and "missing: no-such-python" in out.stderr
