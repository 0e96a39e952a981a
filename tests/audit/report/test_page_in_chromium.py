"""The page in a real browser, used: axe-core's rules, the keyboard, links, sorting, enlarging, paper."""

from __future__ import annotations

import importlib.resources
import json
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from dpfl_audit.audit.report.render import render
from dpfl_audit.audit.say.sharing import UPDATES
from tiers import quick

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if BROWSER is None:
    pytest.skip("no chromium or google-chrome in PATH", allow_module_level=True)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright, of the extra `dev`, is not installed")
pypdf = pytest.importorskip("pypdf", reason="pypdf, of the extra `dev`, is not installed")

pytestmark = pytest.mark.full  # test_report.py has the page's text and order

FIRST_SCREEN = 1200  # pixels
LARGEST_PAGE = 3_000_000  # bytes
PAPER = 703  # pixels between the margins of an A4 sheet, 186 mm at 96 dpi
WIDTHS = (1440, 390)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture(scope="module")
def pages(
    everything: Path, side_by_side: list[Path], make_results: Any, row: Any, canary: Any, tmp_path_factory: Any
) -> dict[str, Path]:
    """Every kind of page by name: all that one can show, several settings, a proof, canaries alone, nothing at all."""
    folder = tmp_path_factory.mktemp("pages")
    proven = {"quality": 0.0, "n": 6, "noise_std": 0.3, "epsilon": [row(proven=2.0, accountant="closed form")]}
    kinds = {
        "everything": [everything],
        "several": side_by_side,
        "proven": [make_results(folder / "proven", "proven", **proven)],
        "canary": [make_results(folder / "canary", "canary", n=2, truth=False, extra_attacks=[canary()])],
        "nothing": [make_results(folder / "nothing", "nothing", n=2, truth=False, epsilon=[])],
    }
    return {name: Path(render(folders, folder / f"{name}.html")) for name, folders in kinds.items()}


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a file; the page fails the test where it logs an error."""
    contexts, complaints = [], []

    def of(path: Path, fragment: str = "", **options: Any) -> Any:
        contexts.append(browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(path.as_uri() + fragment)
        return page

    yield of
    for context in contexts:
        context.close()
    assert complaints == []


# Why axe leaves a contrast open: ∞ and ↑ might be pictures, and on a phone tables scroll out of their frame; their
# colours are those of the texts that it does measure, there and on a wide screen.
UNMEASURED = {"nonBmp", "elmPartiallyObscured"}
KINDS = ("everything", "several", "proven", "canary", "nothing")

# Folded text is not rendered, so it is unfolded; a colour behind text that is a gradient cannot be measured, so the
# shadows that say that a table scrolls are taken off.
UNFOLD = "document.querySelectorAll('details').forEach(details => { details.open = true; })"
NO_SHADOWS = ".scroll { background: var(--card) !important; } nav { overflow: visible !important; }"


@pytest.mark.parametrize(
    ("kind", "width", "scheme"), quick(product(KINDS, WIDTHS, ("light", "dark")), 0, 3, 5, 10, 13, 18)
)
def test_axe_has_nothing_to_complain_of(
    kind: str, width: int, scheme: str, pages: dict[str, Path], opened: Open
) -> None:
    """All of axe-core's rules, best practices too, on everything the page holds; no contrast is left unmeasured."""
    axe = importlib.resources.files("axe_playwright_python") / "axe.min.js"
    page = opened(pages[kind], color_scheme=scheme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page.evaluate(axe.read_text(encoding="utf-8"))
    for unfold in (False, True):
        if unfold:
            page.evaluate(UNFOLD)
            page.add_style_tag(content=NO_SHADOWS)
        report = page.evaluate("axe.run()")
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in report["violations"]] == []
        assert len(report["passes"]) > 25
    contrasts = (rule["nodes"] for rule in report["incomplete"] if rule["id"] == "color-contrast")
    reasons = {
        (check["data"] or {}).get("messageKey") for nodes in contrasts for node in nodes for check in node["any"]
    }
    assert reasons <= UNMEASURED


def test_axe_sees_a_page_with_faults(tmp_path: Path, opened: Open) -> None:
    """Else the test above could pass because nothing ran."""
    path = tmp_path / "faulty.html"
    path.write_text('<!doctype html><title>x</title><img src="data:,"><p style="color:#ccc">pale</p>')
    page = opened(path)
    page.evaluate((importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    rules = {rule["id"] for rule in page.evaluate("axe.run()")["violations"]}
    assert {"image-alt", "color-contrast", "html-has-lang"} <= rules


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_decision_fits_one_screen(kind: str, width: int, pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages[kind], viewport={"width": width, "height": 900})
    box = page.locator(".first").bounding_box()
    assert box["y"] + box["height"] <= FIRST_SCREEN
    seen = page.locator(".first").inner_text()
    assert UPDATES.question in seen and "Which noise?" in seen and "noise_std" in seen
    assert "Accuracy" in seen
    assert kind == "nothing" or all(word in seen for word in ("proven", "claimed", "demonstrated"))
    assert pages[kind].stat().st_size < LARGEST_PAGE


# beyond: wider than the screen, but for what scrolls in its frame. cut: elements that hide what does not fit in them,
# but for captions that are there for screen readers alone.
MEASURE = """() => {
  const scrolls = node => node && (getComputedStyle(node).overflowX === "auto" || scrolls(node.parentElement));
  const all = [...document.querySelectorAll("body *")], boxes = node => node.getBoundingClientRect();
  return {
    content: document.documentElement.scrollWidth,
    beyond: all.filter(node => boxes(node).width && boxes(node).right > innerWidth + 0.5 && !scrolls(node)).length,
    cut: all.filter(node => getComputedStyle(node).overflowX === "hidden" && !node.matches(".unseen")
        && node.scrollWidth > node.clientWidth).length,
    broken: [...document.images].filter(image => !image.naturalWidth).length,
    images: document.images.length};
}"""


def measured(page: Any) -> dict[str, int]:
    page.evaluate(UNFOLD)
    return page.evaluate(MEASURE)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", ["everything", "several"])
def test_nothing_is_wider_than_the_screen(kind: str, width: int, pages: dict[str, Path], opened: Open) -> None:
    found = measured(opened(pages[kind], viewport={"width": width, "height": 900}))
    assert found["content"] <= width and found["images"] > 10
    assert found["beyond"] == found["cut"] == found["broken"] == 0


def test_long_unbroken_names_fit_a_phone(make_results: Any, tmp_path: Path, opened: Open) -> None:
    more = {"n": 2, "noise_std": 0.1, "warnings": ["w" * 200], "setup": {"scheme": "s" * 120}}
    folders = [make_results(tmp_path / letter, letter * 150, **more) for letter in "ab"]
    for chosen in (folders, folders[:1]):
        path = Path(render(chosen, tmp_path / f"{len(chosen)}.html"))
        found = measured(opened(path, viewport={"width": 390, "height": 900}))
        assert found["content"] <= 390 and found["beyond"] == 0


def test_the_measurement_sees_a_page_that_is_too_wide(tmp_path: Path, opened: Open) -> None:
    path = tmp_path / "wide.html"
    path.write_text('<!doctype html><p style="width:500px">wide</p><img src="data:image/png;base64,AAAA" alt="broken">')
    found = measured(opened(path, viewport={"width": 390, "height": 900}))
    assert found["content"] > 390 and found["beyond"] and found["broken"] == 1


def test_the_page_opens_folded_and_short(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["several"])
    assert page.locator("details[open]").count() == 0 and page.locator("details").count() > 20
    short = page.evaluate("document.documentElement.scrollHeight")
    page.evaluate(UNFOLD)
    assert page.evaluate("document.documentElement.scrollHeight") > 3 * short


@pytest.mark.parametrize("key", ["Enter", "Space"])
def test_folds_open_by_keyboard(key: str, pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["everything"])
    for _ in range(200):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "SUMMARY":
            break
    style = page.evaluate(
        "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
    )
    assert style == ["solid", "3px"]  # where the focus is can be seen
    page.keyboard.press(key)
    assert page.evaluate("document.activeElement.parentElement.open") is True


@pytest.mark.parametrize("script", [True, False])
def test_a_link_to_what_is_folded_opens_it(script: bool, pages: dict[str, Path], opened: Open) -> None:
    """Also without the script: the browser unfolds what holds the target."""
    page = opened(pages["several"], "#setting-3-config", java_script_enabled=script)
    target = page.locator("#setting-3-config")
    playwright.expect(target).to_be_visible()
    page.locator('a[href="#setting-2"]').click()
    playwright.expect(page.locator("#setting-2")).to_be_visible()
    assert not page.locator("#setting-4").is_visible()


def test_a_header_sorts_its_table(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["several"])
    table = page.locator("#side-by-side table")

    def names() -> list[str]:
        return table.locator("tbody th").all_inner_texts()

    ascending = ["no noise", "some noise", "more noise", "strong noise"]
    head = table.locator("th", has_text="noise_std").first
    assert head.get_attribute("aria-sort") is None
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending" and names() == ascending
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending" and names() == ascending[::-1]
    proven = table.locator("th", has_text="proven ε")  # 600, 12, 2 and ∞: infinity is a number
    proven.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None and proven.get_attribute("aria-sort") == "ascending"
    assert names() == ["strong noise", "more noise", "some noise", "no noise"]
    table.locator("th", has_text="claimed ε").get_by_role("button").click()
    assert names()[-1] == "no noise"  # claims nothing: what is missing comes last


def test_a_group_of_rows_is_sorted_below_its_name(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["everything"], "#setting-1-membership")
    table = page.locator("#setting-1-membership table.sortable").first
    table.locator("th", has_text="AUC").get_by_role("button").click()
    rows = table.locator("tbody tr")
    assert rows.nth(0).get_attribute("class") == "group"
    assert [rows.nth(i).locator("td").first.get_attribute("data-sort") for i in (1, 2)] == ["0.6", "0.71"]


def test_a_picture_enlarges_and_gives_the_focus_back(pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages["several"])
    picture = page.locator(".strip .enlarge").first
    small = picture.locator("img").bounding_box()["width"]
    picture.press("Enter")
    dialog = page.locator("dialog")
    playwright.expect(dialog).to_be_visible()
    images = dialog.locator("img")
    assert images.count() == 2 and images.first.get_attribute("alt") == "Original 1"  # the original beside it
    assert images.first.bounding_box()["width"] > 3 * small and "no noise" in dialog.inner_text()
    page.keyboard.press("Escape")
    playwright.expect(dialog).to_be_hidden()
    assert page.evaluate("document.activeElement.className") == "enlarge"


@pytest.mark.parametrize("kind", KINDS)
def test_without_its_script_nothing_is_missing(kind: str, pages: dict[str, Path], opened: Open) -> None:
    def said(page: Any) -> list[str]:
        return page.evaluate("document.querySelector('main').textContent").split()

    plain = opened(pages[kind], java_script_enabled=False)
    assert "".join(plain.locator("main").text_content().split()) == "".join(said(opened(pages[kind])))
    assert plain.locator("button").count() == 0


def test_a_strangers_script_does_not_run(pages: dict[str, Path], tmp_path: Path, browser: Any) -> None:
    """Were one ever to get into the page, its hash would not be the policy's."""
    path = tmp_path / "broken-into.html"
    path.write_text(pages["nothing"].read_text().replace("<main>", "<main><script>document.title = 'taken'</script>"))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.title() != "taken" and page.evaluate("document.querySelector('dialog') !== null")
    page.close()


def test_motion_is_only_for_those_who_want_it(pages: dict[str, Path], opened: Open) -> None:
    behaviour = "getComputedStyle(document.documentElement).scrollBehavior"
    assert opened(pages["nothing"], reduced_motion="reduce").evaluate(behaviour) == "auto"
    assert opened(pages["nothing"], reduced_motion="no-preference").evaluate(behaviour) == "smooth"


# --- paper ---


@pytest.mark.parametrize(("kind", "script"), quick(product(("everything", "several"), (True, False)), 0, 3))
def test_paper_has_everything(kind: str, script: bool, pages: dict[str, Path], opened: Open, tmp_path: Path) -> None:
    """Every word of the page is in the PDF, folded or not, by the print event or by CSS alone."""
    page = opened(pages[kind], java_script_enabled=script, color_scheme="dark")
    seen = page.evaluate(
        """() => { const main = document.querySelector("main"), texts = [];
            const walk = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
            while (walk.nextNode()) {
              const text = walk.currentNode;
              if (!text.parentElement.closest(".unseen")) texts.push(text.data);
            }
            return texts.join(" "); }"""
    )
    words = {word for word in seen.split() if word.isascii() and word.isalnum()}
    path = tmp_path / "page.pdf"
    page.pdf(path=path, prefer_css_page_size=True)
    printed = pypdf.PdfReader(path)
    text = unicodedata.normalize("NFKC", " ".join(sheet.extract_text() for sheet in printed.pages))  # ﬁ is f and i
    assert len(words) > 200
    # A word broken at a line's end has lost nothing: it is looked for without the spaces between.
    assert [word for word in sorted(words) if word not in "".join(text.split())] == []
    assert len(printed.pages) > 3 and sum(len(sheet.images) for sheet in printed.pages) > 10


@pytest.mark.parametrize("kind", ["everything", "several"])
def test_nothing_is_cut_on_paper(kind: str, pages: dict[str, Path], opened: Open) -> None:
    page = opened(pages[kind], viewport={"width": PAPER, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    page.evaluate(UNFOLD)
    cut = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(node => !node.matches(".unseen")
            && node.getBoundingClientRect().right > innerWidth + 0.5).map(node => node.outerHTML.slice(0, 80))"""
    )
    assert cut == []
    ink, paper = page.evaluate(
        "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
    )
    assert [re.findall(r"\d+", colour) for colour in (ink, paper)] == [["0"] * 3, ["255"] * 3]


@pytest.mark.full
def test_print_to_pdf_of_the_command_line(pages: dict[str, Path], tmp_path: Path) -> None:
    """As a user would: `chromium --headless --print-to-pdf`."""
    path = tmp_path / "page.pdf"
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    subprocess.run(
        [*command, f"--print-to-pdf={path}", pages["everything"].as_uri()], check=True, capture_output=True, timeout=600
    )
    text = unicodedata.normalize("NFKC", "".join(sheet.extract_text() for sheet in pypdf.PdfReader(path).pages))
    last = json.dumps({"seed": 0}, indent=2).splitlines()[1].strip()  # of the configuration, folded in a fold
    assert last in text and "was assumed" in text
