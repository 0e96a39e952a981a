"""A device that is not the CPU, for tests: CUDA where there is one, else a stand-in (`second_device.cpp`), built once a
process, which must not have computed a gradient yet: torch counts its devices at the first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import types
from functools import cache
from pathlib import Path

import torch

NAME = "second"
SOURCE = Path(__file__).with_suffix(".cpp")


def compiler() -> str | None:
    """Of C++; None where there is none."""
    return os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")


@cache
def second_device() -> str:
    """Its name."""
    if torch.cuda.is_available():
        return "cuda"
    with tempfile.TemporaryDirectory() as folder:
        torch.ops.load_library(_built(Path(folder) / "second_device.so"))
    torch.utils.rename_privateuse1_backend(NAME)
    module = types.ModuleType(f"torch.{NAME}")
    asked = {"is_available": True, "device_count": 1, "current_device": 0, "_is_in_bad_fork": False}
    for name, answer in asked.items():
        setattr(module, name, lambda answer=answer: answer)
    module.manual_seed_all = lambda seed: None  # type: ignore[attr-defined]
    torch._register_device_module(NAME, module)
    return NAME


def _built(path: Path) -> Path:
    torch_folder = Path(torch.__file__).parent
    includes = [torch_folder / "include", torch_folder / "include" / "torch" / "csrc" / "api" / "include"]
    flags = [
        *("-std=c++20", "-O0", "-fPIC", "-shared", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}"),
        *(f"-I{one}" for one in includes),
    ]
    libraries = [f"-L{torch_folder / 'lib'}", "-lc10", "-ltorch_cpu"]
    command = [compiler() or "c++", *flags, str(SOURCE), "-o", str(path), *libraries]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr[-3000:]
    return path
