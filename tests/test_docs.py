"""The site builds without a warning, and whoever types what its pages and the README show gets what they show."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCS, MEASURED = ROOT / "docs", ROOT / "benchmarks" / "measured"
sys.path.insert(0, str(DOCS))
try:
    commands = importlib.import_module("commands")
finally:
    sys.path.remove(str(DOCS))

PAGES = [str(page.relative_to(ROOT)) for page in commands.pages()]
# What no test types, and why.
NOT_RUN = {
    ("README.md", "make is what runs the tests, and the demo takes minutes"),
    ("README.md", "it takes minutes; docs/howto/choose.md runs a small one"),
    ("docs/howto/ray.md", "it needs a Kubernetes cluster"),
    ("docs/howto/replay.md", "tests/audit/replay/test_recorded.py does"),
    ("docs/howto/text.md", "it needs a model on disk, and the extra [text]"),
    ("docs/howto/lora.md", "it needs a model on disk, and the extra [text]"),
    ("docs/howto/lora.md", "it installs, and takes minutes; tests/audit/record/test_lora_page.py types it"),
    ("README.md", "docs/howto/record.md runs a whole one"),
    ("docs/howto/mechanism.md", "it needs the extra [flower]"),
    ("docs/howto/opacus.md", "it installs, and takes a minute"),
    ("docs/howto/ci.md", "the tests of this page start no second Python"),
    ("docs/howto/record.md", "a simulation on Ray takes a minute; tests/audit/record/test_flower.py runs one"),
    ("docs/howto/flower.md", "it needs the extra [flower]; tests/audit/worlds/flower/test_app.py runs such apps"),
    ("docs/howto/flower.md", "it needs the extra [flower]"),
    ("docs/howto/nvflare.md", "it installs"),
    ("docs/howto/nvflare.md", "tests/audit/record/test_nvflare.py runs it where nvflare is installed"),
    ("docs/howto/nvflare.md", "the simulator takes two minutes; it ran with nvflare 2.8.1 and Opacus 1.6"),
    ("docs/howto/inversion.md", "trains with anonymous senders; tests/attacks/test_linking.py runs a small one"),
}


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with commands.programs() as environment:
        yield environment


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


SHORT = ("README.md",)  # the page that a newcomer begins with; `make full` has every page
SHOWN = [page for page in PAGES if any(commands.commands(text(page)))]


@pytest.mark.parametrize(
    "page", [page if page in SHORT else pytest.param(page, marks=pytest.mark.full) for page in SHOWN]
)
def test_a_page_prints_what_it_shows(page, environment, tmp_path):
    different = commands.run_page(ROOT / page, tmp_path, environment)
    assert different == [], (
        "\n".join(map(str, different)) + "\n`python docs/commands.py --write` writes what is printed"
    )


def test_what_no_test_types_has_a_reason():
    skipped = {(page, block.not_run) for page in PAGES for block in commands.blocks(text(page)) if block.not_run}
    assert skipped == NOT_RUN


def test_every_block_is_run_or_saved_or_what_something_prints():
    """No example of a language that nobody checks."""
    for page in PAGES:
        known = {"bash", "console", "python"}
        if any(
            isinstance(c, commands.Command) and c.kind == "python" and c.shown for c in commands.commands(text(page))
        ):
            known.add("text")
        for block in commands.blocks(text(page)):
            checked = block.language in known or "file" in block.marks or block.language.startswith("{")
            assert checked, f"{page}: a block of {block.language or 'no language'}"


def test_pages_do_not_show_commands_as_indented_code():
    """Such code is run by nobody."""
    for page in PAGES:
        assert not re.search(r"\n\n    (audit|python|make) ", text(page)), page


def test_links_and_paths_lead_to_files():
    """Sphinx looks at links within the site alone."""
    for page in (*PAGES, "CONTRIBUTING.md", *(f"benchmarks/measured/{path.name}" for path in MEASURED.glob("*.md"))):
        links = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", text(page))
        paths = re.findall(r"`((?:benchmarks|docs|examples)/[a-z0-9_./-]+\.\w+)`", text(page))
        missing = [link for link in links if not (ROOT / page).parent.joinpath(link).exists()]
        assert missing + [path for path in paths if not (ROOT / path).exists()] == [], page


def test_gallery_is_small_and_whole():
    pictures = sorted((DOCS / "gallery").glob("*.webp"))
    assert {f"gallery/{path.name}" for path in pictures} == set(
        re.findall(r"\]\((gallery/[^)]+)\)", text("docs/gallery.md"))
    )
    assert sum(path.stat().st_size for path in pictures) < 300_000


@pytest.mark.full
def test_the_site_builds_without_a_warning(tmp_path):
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason="the site's builder is an extra: pip install 'dpfl-audit[docs]'")
    call = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(tmp_path / "site")]
    built = subprocess.run([*call, "-d", str(tmp_path / "kept")], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    for page in (page for page in PAGES if page != "README.md"):
        assert (tmp_path / "site" / Path(page).relative_to("docs").with_suffix(".html")).is_file()
    reference = (tmp_path / "site" / "reference" / "python.html").read_text(encoding="utf-8")
    attacks = (tmp_path / "site" / "reference" / "attacks.html").read_text(encoding="utf-8")
    presets = importlib.import_module("dpfl_audit.attacks.inversion.presets.published").PRESETS
    assert set(presets) <= set(re.findall(r'<td><p><code[^>]*><span class="pre">([^<]*)</span>', attacks))
    for name in importlib.import_module("dpfl_audit").__all__:
        assert f'id="dpfl_audit.{name}"' in reference or name in ("Config", "__version__")


# --- the runner itself ---

PAGE = """# A page

<!-- file: hello.py -->
```python
print("hello")
```

```console
$ python hello.py
hello
$ echo one \\
  two
one two
```

<!-- run: touch there -->
<!-- not run: it takes hours -->
```bash
sleep 10000
```

<!-- measured -->
```console
$ ls there && echo 3.14 of 12
there
2.7 of 1,000
```
"""


def test_a_page_is_run_in_order(environment, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    folder = tmp_path / "empty"
    folder.mkdir()
    assert commands.run_page(page, folder, environment) == []


@pytest.mark.parametrize(
    ("before", "after"), [("\nhello\n", "\ngoodbye\n"), ("one two\n```", "one 2\n```"), ("of 1,000", "for 1,000")]
)
def test_another_text_is_a_difference_and_can_be_written(before, after, environment, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE.replace(before, after))
    folder = tmp_path / "empty"
    folder.mkdir()
    (different,) = commands.run_page(page, folder, environment)
    page.write_text(commands.written(page.read_text(), [different]))
    (tmp_path / "again").mkdir()
    assert commands.run_page(page, tmp_path / "again", environment) == []


def test_a_command_that_fails_stops_the_page(environment, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\naudit train nothing.toml -o setup\n```\n```bash\ntouch later\n```\n")
    (failed,) = commands.run_page(page, tmp_path, environment)
    assert failed.code == 2 and "nothing.toml" in failed.printed and not (tmp_path / "later").exists()
