"""The page in a real browser: nothing is wider than a phone, nothing is cut off, the console stays silent."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from itertools import product
from pathlib import Path

import pytest
from dpfl_audit.audit.report.render import render
from tiers import quick

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome in PATH")

# The page in a frame of the width asked for: a headless window may refuse to be narrow. A srcdoc frame shares its
# parent's origin, so the parent can measure it without a script entering the page. "cut": elements that hide what does
# not fit in them, save captions that are there for screen readers alone.
FRAME = """<!doctype html><body style="margin:0"><iframe id="page" width="{width}" height="900" style="border:0"
    srcdoc="{page}"></iframe>
<script>
onload = () => {{
  const inside = document.getElementById("page").contentDocument, view = inside.defaultView, shown = [];
  inside.querySelectorAll("details").forEach(details => details.open = true);
  const scrolls = node => node && (view.getComputedStyle(node).overflowX === "auto" || scrolls(node.parentElement));
  inside.querySelectorAll("body *").forEach(node => {{
    const box = node.getBoundingClientRect();
    if (box.width && box.right > view.innerWidth + 0.5 && !scrolls(node))
        shown.push(node.tagName + ": " + node.textContent.slice(0, 40));
  }});
  document.title = JSON.stringify({{width: view.innerWidth, content: inside.documentElement.scrollWidth, beyond: shown,
    broken: [...inside.images].filter(image => !image.naturalWidth).length, images: inside.images.length,
    cut: [...inside.querySelectorAll("body *")].filter(node =>
        view.getComputedStyle(node).overflowX === "hidden" && !node.matches(".unseen")
        && node.scrollWidth > node.clientWidth).length}});
}};
</script>"""


def opened(page: str, width: int, folder: Path) -> tuple[dict[str, object], str]:
    """What the frame measured, and what the browser logged."""
    frame = folder / f"frame-{width}.html"
    frame.write_text(FRAME.format(width=width, page=html.escape(page)), encoding="utf-8")
    command = [
        str(BROWSER),
        "--headless",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
        "--enable-logging=stderr",
        "--virtual-time-budget=5000",
        "--window-size=1500,1000",
        "--dump-dom",
        frame.as_uri(),
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.insert(1, "--no-sandbox")  # chromium refuses to run as root with one
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(\{.*?\})</title>", done.stdout)
    assert title is not None, done.stderr[-2000:]
    return json.loads(html.unescape(title[1])), done.stderr


@pytest.mark.parametrize(("which", "width"), quick(product(("everything", "side_by_side"), (390, 1440)), 0, 2))
def test_nothing_is_wider_than_the_screen(
    which: str, width: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    folders = request.getfixturevalue(which)
    measured, log = opened(str(render(folders if isinstance(folders, list) else [folders])), width, tmp_path)
    assert measured["width"] == width and measured["content"] <= width  # type: ignore[operator]
    assert measured["beyond"] == [] and measured["cut"] == 0
    assert measured["broken"] == 0 and measured["images"] > 10  # type: ignore[operator]
    assert "CONSOLE" not in log


def test_the_measurement_sees_a_page_that_is_too_wide(tmp_path: Path) -> None:
    page = (
        '<!doctype html><p style="width:500px">wide</p><img src="data:image/png;base64,AAAA"'
        ' alt="broken"><script>console.error("seen")</script>'
    )
    measured, log = opened(page, 390, tmp_path)
    assert "CONSOLE" in log
    assert measured["content"] > 390 and measured["beyond"] and measured["broken"] == 1  # type: ignore[operator]


def test_long_unbroken_names_fit_a_phone(make_results, tmp_path: Path) -> None:
    folders = [
        make_results(
            tmp_path / letter, letter * 150, n=2, noise_std=0.1, warnings=["w" * 200], setup={"scheme": "s" * 120}
        )
        for letter in "ab"
    ]
    for chosen in (folders, folders[:1]):
        measured, _ = opened(str(render(chosen)), 390, tmp_path)
        assert measured["content"] <= 390 and measured["beyond"] == []  # type: ignore[operator]
