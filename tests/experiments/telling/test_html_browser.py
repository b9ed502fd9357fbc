"""report.html in headless Chromium: no error, no request, the planner's numbers, no text over another."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from experiments.planned import planner
from experiments.telling.tell import Beside, tell
from tests.builders import CONF
from tests.experiments.telling.rows import failed, row, rule, write
from tests.experiments.test_planned import by_script, plan_of

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
COLUMNS = ("token", "sequence", "fit", "attend", "step", "model")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: none of chromium, chromium-browser, google-chrome"),
]

# Says which visible texts cover each other, what of a text container scrolls is shown not counted, and how wide it is.
MEASURE = """
<script>
addEventListener("load", () => {
  document.querySelectorAll("details").forEach((it) => { it.open = OPEN; });
  const shown = (node, rect) => {
    let [left, top, right, bottom] = [rect.left, rect.top, rect.right, rect.bottom];
    for (let it = node.parentElement; it !== document.body; it = it.parentElement) {
      if (getComputedStyle(it).overflowX === "visible") continue;
      const box = it.getBoundingClientRect();
      [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right),
        Math.min(bottom, box.bottom)];
    }
    return { left, top, right, bottom, text: node.data.trim().slice(0, 40) };
  };
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const boxes = [];
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const parent = node.parentElement;
    if (!node.data.trim() || parent.closest("script, style, noscript, option") || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const rect of range.getClientRects()) {
      const box = shown(node, rect);
      if (box.right - box.left > 1 && box.bottom - box.top > 1) boxes.push({ ...box, node });
    }
  }
  const covered = [];
  boxes.forEach((a, i) => boxes.slice(i + 1).forEach((b) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (a.node !== b.node && wide > 1 && high > 3) covered.push(a.text + " / " + b.text);
  }));
  const said = { texts: boxes.length, covered: covered.length + " " + covered.slice(0, 3).join("; ") };
  parent.postMessage({ ...said, wanted: document.documentElement.scrollWidth, width: innerWidth }, "*");
});
</script>
</body>
"""

# A window has a least width, a frame has none.
FRAME = """<!doctype html>
<script>addEventListener("message", ({ data }) => Object.assign(document.documentElement.dataset, data));</script>
<iframe src="NAME" style="width: WIDTHpx; height: 2000px; border: 0"></iframe>
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of some rows of Llama-3-8B."""
    folder = tmp_path_factory.mktemp("page")
    rows = [row(a, s, c, us=c / 10) for a in ("mha", "gqa", "mla") for s in ("attend", "step") for c in (1024, 2048)]
    write(folder / "runs", *rows, failed("mqa", "step", 1024, "crash", "signal 9 " * 30, kernel="a" * 200))
    tell(folder / "runs", folder / "out", rule(), "again " * 60, Beside(planner=planner(CONF)))
    return folder / "out" / "report.html"


def opened(page: Path, *flags: str, fragment: str = "") -> tuple[str, str]:
    """The page's elements once its scripts have run, and what was said on the console."""
    assert CHROMIUM is not None
    own = f"--user-data-dir={page.parent / 'profile'}"
    command = [CHROMIUM, *FLAGS, own, "--enable-logging=stderr", *flags, "--dump-dom", f"{page.as_uri()}{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def planned(dom: str) -> dict[str, list[float]]:
    """The exact values in the planner's table, by variant."""
    lines = re.findall(r'<th scope="row">(\w+)</th>(.*?)</tr>', dom)
    return {name: [float(v) for v in re.findall(r'data-value="([^"]+)"', cells)] for name, cells in lines}


def test_the_page_loads_without_a_word_on_the_console_which_is_heard(page: Path) -> None:
    assert opened(page)[1] == ""
    loud = page.with_name("loud.html")
    loud.write_text(page.read_text(encoding="utf-8").replace("</body>", "<img src='http://127.0.0.1:9/x.png'></body>"))
    assert "Content Security Policy" in opened(loud)[1]


@pytest.mark.parametrize(
    "at",
    [
        {"context": 131072, "batch": 16, "tp": 8, "kv": "bf16", "memory": 141, "device": "h200"},
        {"context": 8192, "batch": 128, "tp": 1, "kv": "fp8_e4m3", "memory": 40, "device": "a100_sxm"},
        {"context": 1048576, "batch": 1, "tp": 2, "kv": "int8", "memory": 8, "device": "cpu"},
    ],
)
def test_sliders_show_the_planners_numbers(page: Path, at: dict[str, Any]) -> None:
    dom, said = opened(page, fragment="#" + "&".join(f"{name}={value}" for name, value in at.items()))
    shown = planned(dom)
    points = [{**at, "memory": at["memory"] * 10**9, "attention": name} for name in shown]
    rows = by_script(plan_of("Llama-3-8B"), points)
    assert said == ""
    assert len(shown) == 6
    for name, wanted in zip(shown, rows, strict=True):
        assert shown[name] == [pytest.approx(wanted[column], rel=1e-12) for column in COLUMNS], name


def test_moving_a_slider_changes_the_numbers(page: Path) -> None:
    moved = page.with_name("moved.html")
    move = """<script>
      const slider = document.getElementById("context-input");
      slider.value = Number(slider.value) + 1;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    </script></body>"""
    moved.write_text(page.read_text(encoding="utf-8").replace("</body>", move), encoding="utf-8")
    before, after = planned(opened(page)[0]), planned(opened(moved)[0])
    for name in before:
        assert after[name][0] == before[name][0], "bytes of a token do not depend on the context"
        assert after[name][1] == 2 * before[name][1]
        assert after[name][4] > before[name][4]
    assert 'aria-valuetext="16k tokens"' in opened(moved)[0]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("behind", ["true", "false"])
def test_no_text_covers_another_and_nothing_is_wider_than_the_screen(page: Path, width: int, behind: str) -> None:
    measured, frame = (page.with_name(f"{name}-{width}-{behind}.html") for name in ("measured", "frame"))
    measure = MEASURE.replace("OPEN", behind)
    measured.write_text(page.read_text(encoding="utf-8").replace("</body>", measure), encoding="utf-8")
    frame.write_text(FRAME.replace("NAME", measured.name).replace("WIDTH", str(width)), encoding="utf-8")
    dom, said = opened(frame, "--window-size=1400,2000", "--virtual-time-budget=10000")
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', dom))
    assert said == ""
    assert int(found["texts"]) > 300
    assert found["covered"] == "0 "
    assert int(found["wanted"]) <= int(found["width"]) == width


def test_a_dark_screen_gets_a_dark_page(page: Path) -> None:
    """That both are there is what a style sheet can say; that the dark one is used, what a browser does."""
    told = page.with_name("told.html")
    say = "<script>document.documentElement.dataset.ground = getComputedStyle(document.body).backgroundColor</script>"
    told.write_text(page.read_text(encoding="utf-8").replace("</body>", say + "</body>"), encoding="utf-8")
    assert 'data-ground="rgb(255, 255, 255)"' in opened(told)[0]
    dark = opened(told, "--force-dark-mode", "--blink-settings=preferredColorScheme=0")[0]
    assert 'data-ground="rgb(22, 24, 27)"' in dark
