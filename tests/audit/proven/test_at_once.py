"""What a platform's settings cannot promise is said at once: from bare numbers, without torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

RUN = """
import sys
from dpfl_audit.cli import main
try:
    main(sys.argv[1:])
finally:
    heavy = {"torch", "dp_accounting", "pandas", "networkx", "sklearn"} & set(sys.modules)
    assert not heavy, heavy
"""
DEFAULTS = ("--clip", "1", "--noise-std", "4.8448e-5", "--claimed", "10")  # sensitivity 1e-4 at ε = 10, δ = 1e-5


@pytest.mark.few(1)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_platforms_defaults_are_refuted_without_torch(form):
    """The exact ε of multiplier 4.8448e-5 at δ = 1e-5 is μ²/2 + μΦ⁻¹(1 − δ) for large μ: 2.131·10⁸."""
    place = ("--unit", "client", "--adjacency", "zero_out")
    made = subprocess.run(
        [sys.executable, "-c", RUN, "epsilon", *DEFAULTS, *place, *form], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    assert "10 cannot" in made.stdout and ("2.132·10⁸" in made.stdout or "2131" in made.stdout)
