#!/usr/bin/env python3
"""Checks the order of the layers: which folder may include which (ARCHITECTURE.md, "Layers").

    base < ops < ir < {aten, passes} < plan;  base < kernels < plan;  base < runtime < drivers;  {kernels, runtime} < {comm, plan}
    {drivers, plan} < nrt_host < tools

A folder includes its own headers, the public headers in core/include/tnx and the folders listed for it below. The core includes
nothing of PyTorch or Python; the glue includes nothing of the core but its public headers. Prints one line for each breach.
"""
import pathlib
import re
import sys

LAYERS: dict[str, set[str]] = {
    "base": set(),
    "ops": {"base"},
    "ir": {"base", "ops"},
    "aten": {"base", "ops", "ir"},
    "passes": {"base", "ops", "ir"},
    "kernels": {"base"},
    "runtime": {"base"},
    "drivers": {"base", "runtime"},
    "comm": {"base", "kernels", "runtime"},
    "plan": {"base", "ops", "ir", "aten", "passes", "kernels", "runtime"},
    "nrt_host": {"base", "ops", "ir", "kernels", "runtime", "drivers", "plan"},
    "tools": {"base", "ir", "plan", "nrt_host"},
}
# The seam between the runtime and the kinds of device: drivers fill it, the runtime calls it. It belongs to the runtime's layer.
SEAM = "drivers/driver.h"
SUFFIXES = {".c", ".h", ".cc", ".cpp", ".hpp", ".def", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
FOREIGN = re.compile(r"^(torch|ATen|c10|caffe2|pybind11|pytorch)/|^Python\.h$|^[\w/]*\.hpp$")


def includes(path: pathlib.Path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := INCLUDE.match(line):
            yield number, match[1] or match[2], match[1] is not None


def sources(folder: pathlib.Path):
    return sorted(p for p in folder.rglob("*") if p.suffix in SUFFIXES)


def layer_of(path: pathlib.Path, core: pathlib.Path) -> str | None:
    """"base" ... "plan", "include" for public headers, "tests"; None outside the core."""
    try:
        inside = path.resolve().relative_to(core.resolve())
        return "runtime" if inside.as_posix() == SEAM else inside.parts[0]
    except ValueError:
        return None


def resolve(name: str, path: pathlib.Path, core: pathlib.Path) -> pathlib.Path | None:
    """The file an include in quotes means: beside the file, from core/, or from core/include/."""
    for base in (path.parent, core, core / "include", core / "tests"):
        if (base / name).is_file():
            return base / name
    return None


def check(root: pathlib.Path) -> list[str]:
    core, breaches = root / "core", []
    for path in sources(core):
        where, layer = path.relative_to(root), layer_of(path, core)
        for number, name, quoted in includes(path):
            if FOREIGN.search(name):
                breaches.append(f"{where}:{number}: the core includes {name}, which is not C's or its own")
                continue
            if layer == "tests":
                continue
            target = resolve(name, path, core) if quoted or name.startswith("tnx/") else None
            if target is None:
                if quoted:
                    breaches.append(f"{where}:{number}: {name} is not in the tree")
                continue
            other = layer_of(target, core)
            if layer == "include":
                if other != "include":
                    breaches.append(f"{where}:{number}: a public header includes {other}/")
            elif layer not in LAYERS:
                breaches.append(f"{where}:{number}: core/{layer}/ is not a layer")
            elif other not in LAYERS[layer] | {layer, "include"}:
                breaches.append(f"{where}:{number}: {layer}/ includes {other}/ ({name})")
    glue = root / "torch_glue"
    for path in sources(glue):
        for number, name, quoted in includes(path):
            if not name.startswith("tnx/") and layer_of(path.parent / name, core):
                breaches.append(f"{path.relative_to(root)}:{number}: the glue includes {name}, not a public header")
            elif quoted and not name.startswith("tnx/") and not (path.parent / name).is_file() and not FOREIGN.search(name):
                if (core / name).is_file():
                    breaches.append(f"{path.relative_to(root)}:{number}: the glue includes core/{name}, not a public header")
    return breaches


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    breaches = check(root)
    for line in breaches:
        print(line)
    print(f"include order: {len(breaches)} breach{'es' * (len(breaches) != 1)}")
    return bool(breaches)


if __name__ == "__main__":
    sys.exit(main())
