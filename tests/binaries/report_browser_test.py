"""Tests of the report in a real browser."""

import shutil

import pytest

from tasks.synthetic import emnist
from tests.binaries import browser
from tests.binaries import programs

pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(
    browser.find() is None,
    reason=f"needs one of {', '.join(browser.NAMES)} (apt install chromium)",
  ),
]
# Whatever is wider than the window, by its tag and class.
_TOO_WIDE = """
[...document.querySelectorAll("body *")].filter(e =>
  !e.closest(".scroll, .store") &&
  e.getBoundingClientRect().right > innerWidth + 1
).map(e => `${e.tagName}.${e.getAttribute("class")}`)
"""


@pytest.fixture(name="report", scope="module")
def _report(tmp_path_factory):
  """A report on two runs with all its pictures."""
  directory = tmp_path_factory.mktemp("report")
  emnist.write_emnist(directory, num_users=8, seed=2, examples_per_user=100)
  runs = [directory / "one", directory / "two"]
  ended = programs.call(
    "run_federated",
    "--task=emnist",
    f"--data_dir={directory}",
    f"--run_dir={runs[0]}",
    "--clients_per_round=4",
    "--noise_multiplier=4",
    "--deployment=ideal",
    "--rounds=3",
    "--evaluate_every=1",
    "--extrapolated_num_users=1000",
  )
  assert ended.status == 0, ended.errors
  shutil.copytree(*runs)
  output = directory / "report.html"
  ended = programs.call(
    "report",
    f"--run_dirs={runs[0]},{runs[1]}",
    f"--output={output}",
    "--show_images_of_training_users",
  )
  assert ended.status == 0, ended.errors
  return output


@pytest.fixture(name="page")
def _page():
  with browser.start() as page:
    yield page


@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_is_fetched_or_complained_of_and_all_fits(report, page, width):
  page.open(report, width)
  assert page.requests == [report.resolve().as_uri()]
  assert page.complaints == []
  assert page.evaluate("document.documentElement.scrollWidth") == width
  assert page.evaluate(_TOO_WIDE) == []
  # Both runs have devices, on a simulated clock.
  assert page.evaluate("document.querySelectorAll('[id^=deployment]').length")
  assert page.evaluate(
    "[...document.images].every(i => i.complete && i.naturalWidth > 0)"
  )
  # The other half of what can be seen is folded.
  page.evaluate("document.querySelectorAll('details').forEach(d => d.open = 1)")
  assert page.evaluate("document.documentElement.scrollWidth") == width
  assert page.evaluate(_TOO_WIDE) == []


def test_a_page_that_fetches_is_found(tmp_path, page):
  bad = tmp_path / "bad.html"
  bad.write_text("<script src='http://127.0.0.1:9/x.js'></script><p id=p>")
  page.open(bad, 400)
  assert "http://127.0.0.1:9/x.js" in page.requests
  assert page.complaints


def test_the_policy_forbids_what_the_page_does_not_need(report, page):
  page.open(report, 400)
  page.evaluate(
    "new Promise(done => { const i = new Image(); i.onerror = done;"
    " i.src = 'http://127.0.0.1:9/x.png'; })"
  )
  failures = [
    event["params"]
    for event in page.events
    if event["method"] == "Network.loadingFailed"
  ]
  assert [failure.get("blockedReason") for failure in failures] == ["csp"]


def test_the_map_can_be_played_with(report, page):
  page.open(report, 1000)
  first = "document.querySelector('[data-map] .point')"
  place = f"{first}.getAttribute('transform')"
  by_tsne = page.evaluate(place)
  press = "document.querySelector('[data-map] [data-projection=%s]').click()"
  page.evaluate(press % "pca")
  assert page.evaluate(place) != by_tsne
  assert page.evaluate("document.querySelector('.tsne-only').hidden")
  page.evaluate(press % "tsne")
  assert page.evaluate(place) == by_tsne
  page.evaluate(
    "document.querySelector('[data-map] [data-group=\"1\"]').click()"
  )
  faint = page.evaluate("document.querySelectorAll('.point.faint').length")
  assert 0 < faint < page.evaluate("document.querySelectorAll('.point').length")
  page.evaluate(f"{first}.dispatchEvent(new MouseEvent('click'))")
  assert page.evaluate("document.querySelectorAll('.point.up').length") == 1
  assert page.complaints == []


def test_a_class_is_searched_for_with_the_keyboard(report, page):
  page.open(report, 400)
  page.evaluate("document.querySelector('[data-classes] summary').focus()")
  for key, text in (("Enter", "\r"), ("Tab", "")):
    for kind in ("keyDown", "keyUp"):
      page.call(
        "Input.dispatchKeyEvent",
        type=kind,
        key=key,
        text=text if kind == "keyDown" else "",
        windowsVirtualKeyCode={"Enter": 13, "Tab": 9}[key],
      )
  assert page.evaluate("document.activeElement.type") == "search"
  names = "[...document.querySelectorAll('[data-classes] tbody tr')]"
  names += ".filter(r => r.closest('[data-classes]').open && !r.hidden)"
  names += ".map(r => r.cells[0].textContent)"
  everything = page.evaluate(names)
  page.call("Input.insertText", text=everything[0].upper())
  found = page.evaluate(names)
  assert everything[0] in found and len(found) < len(everything)
  status = "document.querySelector('[data-classes] [role=status]').textContent"
  assert page.evaluate(status) == f"{len(found)} of {len(everything)}"
  page.call("Input.insertText", text="no such class")
  assert page.evaluate(names) == []
  assert page.complaints == []


def test_folded_parts_are_printed(report, page):
  page.open(report, 1000)
  assert page.call("Page.printToPDF", preferCSSPageSize=True)["data"]
  page.evaluate("dispatchEvent(new Event('beforeprint'))")
  closed = "document.querySelectorAll('details:not([open])').length"
  assert page.evaluate(closed) == 0
  page.evaluate("dispatchEvent(new Event('afterprint'))")
  assert page.evaluate(closed) > 0


def test_without_scripts_nothing_is_missing(report, page):
  page.call("Emulation.setScriptExecutionDisabled", value=True)
  page.open(report, 400)
  root = page.call("DOM.getDocument")["root"]["nodeId"]
  found = page.call("DOM.querySelectorAll", nodeId=root, selector=".point use")
  assert len(found["nodeIds"]) > 20
