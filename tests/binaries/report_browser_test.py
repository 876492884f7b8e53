"""Tests of the report in a real browser."""

import html
import json
import re

import pytest

from tasks.synthetic import emnist
from tests.binaries import programs
from tests.serving import browsers

pytestmark = [
  pytest.mark.slow,
  browsers.needed,
]

# Keeps what the page's own scripts, loads and policy complain of.
_LISTEN = """<script>
for (const kind of ["error", "securitypolicyviolation"]) addEventListener(
  kind,
  e => parent.found.push(e.blockedURI || e.target.src || e.message),
  true
);
</script>"""
# Opens a page in a frame, and shows what a function finds in it as JSON.
_FRAME = """<!DOCTYPE html><iframe width="%d" height="900"></iframe><script>
var found = [];
const frame = document.querySelector("iframe");
frame.onload = async () => {
  const page = frame.contentDocument, all = s => [...page.querySelectorAll(s)];
  let value;
  try {
    value = await (async () => { %s })();
  } catch (error) {
    value = String(error);
  }
  const requests = frame.contentWindow.performance.getEntriesByType("resource");
  found.push(...requests.map(x => x.name).filter(x => !x.startsWith("data:")));
  document.title = JSON.stringify({value, found});
};
frame.srcdoc = %s;
</script>"""
# Whatever is wider than the window, by its tag and class, folded or not.
_FITS = """
const tooWide = () => all("body *").filter(e =>
  !e.closest(".scroll, .store") &&
  e.getBoundingClientRect().right > frame.clientWidth + 1
).map(e => `${e.tagName}.${e.getAttribute("class")}`);
const widths = [page.documentElement.scrollWidth];
const found = tooWide();
for (const details of all("details")) details.open = true;
widths.push(page.documentElement.scrollWidth);
return {
  widths, tooWide: [...found, ...tooWide()],
  deployments: all("[id^=deployment]").length,
  images: [...page.images].every(i => i.complete && i.naturalWidth > 0),
};
"""
_PLAYS = """
const click = selector => page.querySelector(selector).click();
const place = () => all(".point")[0].getAttribute("transform");
const places = [place()];
click("[data-projection=pca]");
places.push(place());
const isHidden = page.querySelector(".tsne-only").hidden;
click("[data-projection=tsne]");
places.push(place());
click('[data-map] [data-group="1"]');
const map = page.querySelector("[data-map]");
const count = name => map.querySelectorAll(name).length;
const faint = count(".point.faint");
all(".point")[0].dispatchEvent(new MouseEvent("click"));

const rows = () => [...page.querySelector("[data-classes]").querySelectorAll(
  "tbody tr")].filter(r => !r.hidden).map(r => r.cells[0].textContent);
const everything = rows();
const input = page.querySelector("[data-classes] input");
const searches = [everything[0].toUpperCase(), "no such class"].map(text => {
  input.value = text;
  input.dispatchEvent(new Event("input"));
  return [rows(), page.querySelector("[role=status]").textContent];
});
const closed = ["beforeprint", "afterprint"].map(kind => {
  frame.contentWindow.dispatchEvent(new Event(kind));
  return all("details:not([open])").length;
});
return {
  places, isHidden, faint, points: count(".point"), up: count(".point.up"),
  everything, searches, closed
};
"""
_FETCHES = """
const image = new frame.contentWindow.Image();
return await new Promise(done => {
  image.onerror = () => setTimeout(done, 100);
  image.src = "http://127.0.0.1:9/x.png";
});
"""


def _open(tmp_path, text, script, width=1000):
  """What a script returns about a page, and what the page asked for."""
  listening = re.sub("(?=<title>)|$", _LISTEN, text, count=1)
  source = json.dumps(listening).replace("</", "<\\/")
  path = tmp_path / "frame.html"
  path.write_text(_FRAME % (width, script, source))
  shown = browsers.open_page(
    path.as_uri(),
    tmp_path,
    "--hide-scrollbars",
    "--virtual-time-budget=9000",
    "--window-size=1500,1000",
  )
  (title,) = re.findall(r"<title>(\{.*\})</title>", shown)
  found = json.loads(html.unescape(title))
  return found.get("value"), found["found"]


@pytest.fixture(name="report", scope="module")
def _report(tmp_path_factory):
  """A report on two runs with all its pictures."""
  directory = tmp_path_factory.mktemp("report")
  emnist.write_emnist(directory, num_users=8, seed=2, examples_per_user=100)
  runs = [directory / "one", directory / "two"]
  for run in runs:
    programs.succeed(
      "run_federated",
      *("--task=emnist", f"--data_dir={directory}", f"--run_dir={run}"),
      *("--clients_per_round=4", "--noise_multiplier=4", "--deployment=ideal"),
      *("--rounds=3", "--evaluate_every=1", "--extrapolated_num_users=1000"),
    )
  output = directory / "report.html"
  programs.succeed(
    *("report", f"--run_dirs={runs[0]},{runs[1]}", f"--output={output}"),
    "--show_images_of_training_users",
  )
  return output.read_text()


@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_is_fetched_or_complained_of_and_all_fits(
  report, tmp_path, width
):
  found, complaints = _open(tmp_path, report, _FITS, width)
  assert complaints == []
  # Both runs have devices, on a simulated clock.
  assert found == {
    **{"widths": [width, width], "tooWide": [], "images": True},
    "deployments": 2,
  }


def test_the_policy_forbids_what_the_page_does_not_need(report, tmp_path):
  _, complaints = _open(tmp_path, report, _FETCHES)
  assert "http://127.0.0.1:9/x.png" in complaints
  # A page that fetches, or whose script is wrong, is found.
  bad = "<script src='http://127.0.0.1:9/x.js'></script><script>x.y</script>"
  _, complaints = _open(tmp_path, f"<title></title>{bad}", "")
  assert "http://127.0.0.1:9/x.js" in complaints
  assert any("x is not defined" in line for line in complaints)


def test_map_search_and_print(report, tmp_path):
  found, complaints = _open(tmp_path, report, _PLAYS)
  assert complaints == []
  by_tsne, by_pca, again = found["places"]
  assert by_tsne == again != by_pca and found["isHidden"]
  assert 0 < found["faint"] < found["points"] and found["up"] == 1
  (names, status), (none, _) = found["searches"]
  everything = found["everything"]
  assert everything[0] in names and len(names) < len(everything) and not none
  assert status == f"{len(names)} of {len(everything)}"
  # Folded parts are printed as well.
  printed, afterwards = found["closed"]
  assert printed == 0 < afterwards
