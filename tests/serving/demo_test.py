"""Tests of the web page to try a model, the last ones in a real browser."""

import base64
import contextlib
import dataclasses
import html
import http.client
import io
import json
import re
import threading

import numpy as np
from PIL import Image
import pytest

from tests.serving import browsers
from tff_fedemb import errors
from tff_fedemb.records import model_card
from tff_fedemb.serving import demo as demo_lib
from tff_fedemb.serving import saved_models


def _encode(*pixels):
  """A PNG of two grey pixels."""
  file = io.BytesIO()
  Image.fromarray(np.array([pixels], np.uint8)).save(file, "PNG")
  return file.getvalue()


_LEFT, _RIGHT, _BETWEEN = _encode(200, 0), _encode(0, 100), _encode(90, 120)


@pytest.fixture(name="config")
def _config(tmp_path, monkeypatch):
  """The embedding of a picture is its two pixels."""
  card = model_card.ModelCard(
    image_shape=(1, 2, 1),
    embedding_dim=2,
    verification={"at_far": {"0.001": {"threshold": 0.75, "warning": None}}},
    privacy={"epsilon": 2.5, "delta": 1e-5, "unit": "user"},
  )
  model = saved_models.Model(
    (1, 2, 1), lambda images: np.float32(images)[:, 0, :, 0], int, card
  )
  monkeypatch.setattr(saved_models, "load", lambda path: model)
  released = tmp_path / "run" / "release" / "saved_model"
  released.mkdir(parents=True)
  for name, content in {"left": _LEFT, "right": _RIGHT}.items():
    folder = tmp_path / "known" / name
    folder.mkdir(parents=True)
    (folder / "1.png").write_bytes(content)
  return demo_lib.DemoConfig(
    run_dir=str(tmp_path / "run"), gallery=str(tmp_path / "known"), port=0
  )


@contextlib.contextmanager
def _served(config, **pages):
  server = demo_lib.create_server(demo_lib.Demo(config), 0, pages=pages)
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  try:
    yield server.server_port
  finally:
    server.shutdown()
    thread.join()
    server.server_close()


def _post(port, path, *contents, headers=(), body=None):
  """Status and values of the answer."""
  if body is None:
    body = json.dumps([base64.b64encode(x).decode() for x in contents])
  connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
  sent = {"Content-Type": "application/json", **dict(headers)}
  connection.request("POST", path, body, sent)
  response = connection.getresponse()
  return response.status, json.loads(response.read())


def test_pictures_are_compared_and_looked_up(config):
  with _served(config) as port:
    status, found = _post(port, "/compare", _LEFT, _RIGHT)
    assert (status, found["similarity"], found["is_same"]) == (200, 0, False)
    _, found = _post(port, "/compare", _RIGHT, _BETWEEN)
    # The vectors (0, 100) and (90, 120).
    assert found["similarity"] == pytest.approx(0.8)
    assert found["threshold"] == 0.75 and found["is_same"]
    _, found = _post(port, "/identify", _BETWEEN)
    assert found["nearest_class"] == "right" and found["is_accepted"]
    assert found["score"] == pytest.approx(0.8)
    assert found["runner_up"] == "left"
    kind, content = found["nearest_image"].split(",")
    assert kind == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(content))) as image:
      assert image.getpixel((1, 0)) == 100


def test_the_nearest_image_is_shown_as_the_model_sees_it(config, tmp_path):
  # It is stored on its side.
  exif = Image.Exif()
  exif[0x0112] = 6
  image = Image.fromarray(np.array([[100 << 8], [0]], np.uint16))
  image.save(tmp_path / "known" / "right" / "1.png", exif=exif)
  found = demo_lib.Demo(config).identify(_RIGHT)
  assert found["nearest_class"] == "right"
  _, content = found["nearest_image"].split(",")
  with Image.open(io.BytesIO(base64.b64decode(content))) as image:
    assert np.asarray(image).tolist() == [[0, 100]]


@pytest.mark.parametrize("privacy", [None, {"epsilon": "inf", "delta": 1e-5}])
def test_a_model_without_a_guarantee_is_tried(config, monkeypatch, privacy):
  model = saved_models.load(config.model_path)
  card = dataclasses.replace(model.card, privacy=privacy)
  model = dataclasses.replace(model, card=card)
  monkeypatch.setattr(saved_models, "load", lambda path: model)
  words = demo_lib.Demo(config).about()["privacy"]
  assert "no guarantee" in words if privacy else "no statement" in words


def test_a_threshold_beside_a_cohort_is_for_pairs(config, tmp_path):
  generator = np.random.default_rng(0)
  for label in range(8):
    folder = tmp_path / "others" / str(label)
    folder.mkdir(parents=True)
    center = generator.integers(10, 200, 2)
    for image in range(2):
      content = _encode(*(center + generator.integers(0, 30, 2)))
      (folder / f"{image}.png").write_bytes(content)
  config = dataclasses.replace(
    config, threshold=0.9, fpir=0.1, cohort=str(tmp_path / "others")
  )
  demo = demo_lib.Demo(config)
  found = demo.compare([_RIGHT, _BETWEEN])
  # The vectors (0, 100) and (90, 120).
  assert found["similarity"] == pytest.approx(0.8)
  assert (found["threshold"], found["is_same"]) == (0.9, False)
  assert demo.identify(_BETWEEN)["threshold"] != 0.9
  assert "less half the mean with the nearest" in demo.about()["gallery"]


def test_what_is_no_question_gets_one_line(config):
  with _served(config) as port:
    damaged = _post(port, "/compare", _LEFT, b"no picture")
    assert damaged[0] == 400 and "picture 2" in damaged[1]["error"]
    assert _post(port, "/compare", _LEFT)[0] == 400
    assert _post(port, "/compare", body='["?"]')[0] == 400
    assert _post(port, "/compare", body='{"a": 1')[0] == 400
    assert _post(port, "/nothing", _LEFT)[0] == 400
    # Another site: by a form, and by a name that leads here.
    form = {"Content-Type": "text/plain"}
    assert _post(port, "/compare", _LEFT, headers=form)[0] == 413
    for length in ("many", "-5"):
      headers = {"Content-Length": length}
      assert _post(port, "/compare", _LEFT, headers=headers)[0] == 413
    other = {"Host": "example.org"}
    assert _post(port, "/compare", _LEFT, _LEFT, headers=other)[0] == 403
    # It answers the next one.
    assert _post(port, "/compare", _LEFT, _LEFT)[1]["is_same"]


def test_mistakes(config, tmp_path):
  with pytest.raises(errors.FieldError, match="run_dir must be given"):
    demo_lib.DemoConfig()
  with pytest.raises(errors.FieldError, match="gallery must be given with fpi"):
    demo_lib.DemoConfig(run_dir="run", fpir=0.1)
  with pytest.raises(errors.FieldError, match="run_dir must be the directory"):
    demo_lib.Demo(demo_lib.DemoConfig(run_dir=str(tmp_path)))
  with (
    _served(config) as port,
    pytest.raises(errors.FieldError, match=f"port must be free .*{port}"),
  ):
    demo_lib.create_server(demo_lib.Demo(config), port)


# Drops files on the page in a frame, as a user does, and tells what it says.
_DROPS = """<!DOCTYPE html><title></title>
<iframe src="/" width="800" height="1100"></iframe><script>
const frame = document.querySelector("iframe"), files = %s;
const drop = (zone, name) => {
  const bytes = Uint8Array.from(atob(files[name]), x => x.charCodeAt(0));
  const moved = new frame.contentWindow.DataTransfer();
  moved.items.add(new File([bytes], name + ".png", {type: "image/png"}));
  zone.dispatchEvent(new frame.contentWindow.DragEvent(
    "drop", {dataTransfer: moved, bubbles: true, cancelable: true}));
};
const until = async condition => {
  while (!condition()) await new Promise(done => setTimeout(done, 50));
};
frame.onload = async () => {
  const page = frame.contentDocument, all = s => [...page.querySelectorAll(s)];
  const about = page.querySelector("#about"), told = {};
  await until(() => about.textContent);
  const [first, second] = all("#pair .drop");
  const answer = page.querySelector("#pair-answer");
  drop(first, "right");
  drop(second, "between");
  await until(() => !answer.hidden);
  told.pair = answer.textContent;
  const before = answer.firstChild;
  drop(second, "broken");
  await until(() => answer.firstChild !== before);
  told.broken = answer.textContent;
  drop(page.querySelector("#query .drop"), "between");
  await until(() => !page.querySelector("#query-answer").hidden);
  told.query = page.querySelector("#query-answer").textContent;
  told.about = about.textContent;
  told.nearest = all(".nearest img").length;
  document.title = JSON.stringify(told);
};
</script>"""


@pytest.mark.slow
@browsers.needed
def test_a_browser_drops_files(config, tmp_path):
  files = {"right": _RIGHT, "between": _BETWEEN, "broken": b"no picture"}
  encoded = {x: base64.b64encode(y).decode() for x, y in files.items()}
  page = _DROPS % json.dumps(encoded)
  with _served(config, **{"/drops": page}) as port:
    shown = browsers.open_page(
      f"http://127.0.0.1:{port}/drops",
      tmp_path,
      "--virtual-time-budget=20000",
      "--window-size=900,1200",
    )
  told = json.loads(
    html.unescape(re.search(r"<title>(.*)</title>", shown).group(1))
  )
  assert told["pair"].startswith("The sameSimilarity 0.800; from 0.750 on")
  assert told["broken"].startswith("That did not work")
  assert "picture 2" in told["broken"]
  assert told["query"].startswith("rightThe nearest class is right, at 0.800")
  assert "Epsilon is 2.5 at delta 1e-05 for one user" in told["about"]
  assert told["nearest"] == 1
