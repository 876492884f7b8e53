"""A web page to try an exported model: drop pictures, see who is who.

Two pictures are compared as in `verification`; one is looked up in a gallery as
in `match`. The page is one file, `demo.html`; this module answers it over HTTP,
on this machine alone.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
import dataclasses
import functools
from http import server
import importlib.resources
import io
import json
import math
import pathlib
import re
import threading
from typing import Any

from etils import epy
import numpy as np
from PIL import Image

from tff_fedemb import checks
from tff_fedemb import config as config_lib
from tff_fedemb import errors
from tff_fedemb import progress as progress_lib
from tff_fedemb.data import image_folder
from tff_fedemb.evaluation import pairs
from tff_fedemb.serving import class_search
from tff_fedemb.serving import gallery_index
from tff_fedemb.serving import match_rules

with epy.lazy_imports():
  from tff_fedemb.records import model_card
  from tff_fedemb.serving import saved_models

# Other machines cannot reach this address.
_HOST = "127.0.0.1"
# Largest request in bytes: two photos of a phone, in base64.
_MAX_REQUEST = 64 * 2**20
_THUMBNAIL = (320, 320)
# The page loads nothing from elsewhere, and no other site may show the page.
_POLICY = (
  "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
  " img-src blob: data:; connect-src 'self'; frame-src 'self'; frame-ancestors"
  " 'self'"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DemoConfig(match_rules.RuleConfig):
  """Settings of the page.

  Attributes:
    run_dir: Directory of a finished run, whose released model is tried.
    saved_model: Directory of a SavedModel, or a .tflite or .onnx file, in place
      of a run.
    gallery: Folder with one sub-folder of images a class, to look pictures up
      in.
    index: File of a gallery that `match` wrote, in place of the folder.
    port: Port of the page on this machine; 0 takes any free one.

  Raises:
    errors.FieldError: If there is no model or more than one, both a gallery and
      an index, or a rate for a gallery without either.
  """

  run_dir: str | None = None
  saved_model: str | None = None
  gallery: str | None = None
  index: str | None = None
  port: int = config_lib.field(8000, minimum=0, maximum=65535)

  def __post_init__(self):
    super().__post_init__()
    checks.check_one_of(run_dir=self.run_dir, saved_model=self.saved_model)
    if self.gallery and self.index:
      must = "not be given with gallery"
      raise errors.FieldError("index", must, self.index)
    if self.fpir is not None and not (self.gallery or self.index):
      must = "be given with fpir, or an index"
      raise errors.FieldError("gallery", must, "none")

  @property
  def model_path(self) -> str:
    """Directory or file of the model.

    Raises:
      errors.FieldError: If the run has no released model.
    """
    if self.saved_model:
      return self.saved_model
    found = pathlib.Path(str(self.run_dir), "release", "saved_model")
    if not found.is_dir():
      must = "be the directory of a finished run, with release/saved_model"
      raise errors.FieldError("run_dir", must, self.run_dir)
    return str(found)


class Demo:
  """Answers the page: a model, and a gallery if there is one.

  Two pictures are compared with a threshold for pairs, whatever rate is given
  for the gallery.
  """

  def __init__(self, config: DemoConfig):
    """Loads the model, and embeds the gallery.

    Args:
      config: The settings.

    Raises:
      errors.FieldError: If the model or the gallery cannot be opened, or the
        model carries no threshold and none is given.
      errors.DataError: If an image of the gallery cannot be used.
    """
    self._model = saved_models.load(config.model_path)
    if len(self._model.image_shape) != 3:
      must = "be a model of images"
      raise errors.FieldError("saved_model", must, config.model_path)
    of_pairs = dataclasses.replace(
      config, fpir=None, fpir_certainty=None, cohort=None
    )
    self._pair_rule = match_rules.find(of_pairs, self._model, 1, 1)
    self._index = _open_gallery(config, self._model)
    self._rule = None
    if self._index is not None:
      images = self._index.images
      num_classes = images["name"].nunique()
      of_gallery = config
      if config.cohort is not None:
        # With a cohort, a given threshold is for pairs only.
        of_gallery = dataclasses.replace(config, threshold=None)
      self._rule = match_rules.find(
        of_gallery, self._model, num_classes, len(images)
      )

  def about(self) -> dict[str, Any]:
    """Describes the model for the page.

    Returns:
      Sentences on `model`, `privacy` and `gallery`; None without a gallery.
    """
    height, width, channels = self._model.image_shape
    colours = "grey" if channels == 1 else "colour"
    gallery = None
    if self._index is not None and self._rule is not None:
      images = self._index.images
      gallery = (
        f"{len(images):,} images of {images['name'].nunique():,} classes."
        f" {self._rule.words}"
      )
    return {
      "model": f"Images of {height} x {width} pixels, {colours}.",
      "privacy": _tell_privacy(self._model.card),
      "gallery": gallery,
    }

  def compare(self, images: Sequence[bytes]) -> dict[str, Any]:
    """Compares two pictures.

    Args:
      images: Contents of two files, PNG or another format of `image_folder`.

    Returns:
      `similarity` in [-1, 1], `threshold`, and `is_same`, whether the
      similarity reaches the threshold.

    Raises:
      image_folder.ImageFolderError: If a file is no image.
    """
    first, second = self._embed(images)
    similarity = float(first @ second)
    threshold = self._pair_rule.threshold
    return {
      "similarity": similarity,
      "threshold": threshold,
      "is_same": similarity >= threshold,
    }

  def identify(self, image: bytes) -> dict[str, Any]:
    """Looks a picture up in the gallery.

    Args:
      image: Content of a file.

    Returns:
      `nearest_class`, `score`, `threshold`, `is_accepted`, `runner_up`, the
      next class or None, and `nearest_image`, a small picture as a data URL or
      None.

    Raises:
      errors.FieldError: If there is no gallery.
      image_folder.ImageFolderError: If the file is no image.
    """
    if self._index is None or self._rule is None:
      raise errors.FieldError("gallery", "be given to look pictures up", "none")
    query = self._embed([image])
    # The query has no file, and no file of a gallery has an empty name.
    matches = class_search.find(
      self._index, query, [pathlib.Path()], self._rule.compared
    )
    found = matches.iloc[0]
    score = float(self._rule.score(matches, query).iloc[0])
    runner_up = found["runner_up"]
    return {
      "nearest_class": found["nearest_class"],
      "score": score,
      "threshold": self._rule.threshold,
      "is_accepted": score >= self._rule.threshold,
      "runner_up": runner_up if isinstance(runner_up, str) else None,
      "nearest_image": _thumbnail(found["nearest_image"]),
    }

  def _embed(self, contents: Sequence[bytes]) -> np.ndarray:
    """Returns unit embeddings of pictures, `[n, dim]`.

    Args:
      contents: Contents of their files, at least one.

    Raises:
      image_folder.ImageFolderError: If a file is no image.
    """
    shape = self._model.image_shape
    images = []
    for number, content in enumerate(contents, 1):
      name = f"picture {number}"
      images.append(image_folder.read_image(name, shape, content=content))
    return pairs.normalize(self._model(np.stack(images)))


def _open_gallery(
  config: DemoConfig,
  model: saved_models.Model,
) -> gallery_index.GalleryIndex | None:
  """Reads the index, or embeds the folder; returns None without either.

  Args:
    config: The settings.
    model: The model, which embeds the images of the folder.

  Raises:
    errors.FieldError: If the index is of another model, or the folder has no
      images.
    errors.DataError: If an image cannot be used.
  """
  digest = saved_models.digest(config.model_path)
  if config.index:
    return gallery_index.read(config.index, digest)
  if not config.gallery:
    return None
  source = gallery_index.open_folder(
    config.gallery, model.image_shape, on_bad_example=config.on_bad_example
  )
  index = gallery_index.GalleryIndex(digest, gallery_index.EXACT)
  listed = gallery_index.list_images(source, with_digests=False)
  index.embed(model, source, listed)
  for warning in source.warnings:
    progress_lib.say(f"warning: {warning}")
  return index


def _tell_privacy(card: model_card.ModelCard | None) -> str:
  """Returns the guarantee on a model's card, in a sentence.

  Args:
    card: Card of the model; None if it has none.
  """
  if card is None or card.privacy is None:
    return "The model carries no statement on privacy."
  # A card has infinity as a text.
  epsilon = float(card.privacy["epsilon"])
  delta = card.privacy["delta"]
  if epsilon == math.inf:
    return "The model has no guarantee of privacy."
  return (
    f"Epsilon is {epsilon:.3g} at delta {delta:.2g} for one"
    f" {card.privacy['unit']}, as the model's card says."
  )


def _thumbnail(path: str) -> str | None:
  """Returns a small copy of a picture as a data URL; None without the file.

  Args:
    path: The file, in any format that Pillow reads.

  Returns:
    A PNG of at most 320 x 320 pixels, in base64.
  """
  try:
    # Upright, on white and in 8 bits, as the model sees it.
    whole = image_folder.convert_to_png(path)
  except image_folder.ImageFolderError:
    return None
  content = io.BytesIO()
  with Image.open(io.BytesIO(whole)) as small:
    small.thumbnail(_THUMBNAIL)
    small.save(content, "PNG")
  encoded = base64.b64encode(content.getvalue()).decode()
  return f"data:image/png;base64,{encoded}"


def create_server(
  demo: Demo,
  port: int,
  *,
  pages: Mapping[str, str] | None = None,
) -> server.ThreadingHTTPServer:
  """Creates the server of the page, which does not run yet.

  Only programs on this machine can reach the server.

  Args:
    demo: The model and gallery that answer.
    port: Port on this machine; 0 takes any free one.
    pages: Further pages, HTML by path, for tests.

  Returns:
    The server; `serve_forever` runs it, and each request is answered in a
    thread of its own.

  Raises:
    errors.FieldError: If the port is taken, or not yours to open.
  """
  page = importlib.resources.files("tff_fedemb.serving").joinpath("demo.html")
  all_pages = {"/": page.read_text(encoding="utf-8"), **(pages or {})}
  handler = functools.partial(_Handler, demo, all_pages, threading.Lock())
  try:
    return server.ThreadingHTTPServer((_HOST, port), handler)
  except OSError as error:
    must = "be free and open to you"
    found = f"{port} ({error.strerror})"
    raise errors.FieldError("port", must, found) from error


class _Handler(server.BaseHTTPRequestHandler):
  """Answers one request.

  `GET /` is the page, and `GET /about` describes the model. `POST /compare` and
  `POST /identify` take a JSON list of pictures in base64. Errors are JSON, too:
  `{"error": "..."}`.
  """

  def __init__(
    self,
    demo: Demo,
    pages: Mapping[str, str],
    lock: threading.Lock,
    *arguments: Any,
  ):
    """Answers the request.

    Args:
      demo: The model and gallery.
      pages: HTML by path.
      lock: Held while TensorFlow is called; shared by all handlers.
      *arguments: Request, address of the client and server, as `http.server`
        gives them.
    """
    self._demo = demo
    self._pages = pages
    self._lock = lock
    super().__init__(*arguments)

  def do_GET(self) -> None:
    """Answers with a page, or with facts about the model; 404 for others."""
    if not self._is_for_us():
      return
    if self.path == "/about":
      self._answer(self._demo.about())
    elif self.path in self._pages:
      content = self._pages[self.path].encode()
      self._send(200, "text/html; charset=utf-8", content)
    else:
      self._answer({"error": "There is no such page."}, 404)

  def do_POST(self) -> None:
    """Answers a question about pictures.

    The status is 413 if the request is no JSON, or has no length of up to 64
    MiB, and 400 if it is damaged or a picture cannot be used.
    """
    if not self._is_for_us():
      return
    # Browsers do not let a form on another site send JSON.
    is_json = self.headers.get_content_type() == "application/json"
    length = self.headers.get("Content-Length", "")
    size = int(length) if re.fullmatch("[0-9]{1,12}", length) else 0
    if not is_json or not 0 < size <= _MAX_REQUEST:
      self.close_connection = True
      limit = progress_lib.format_bytes(_MAX_REQUEST)
      self._answer({"error": f"Pictures must be below {limit}."}, 413)
      return
    try:
      asked = json.loads(self.rfile.read(size))
      images = [base64.b64decode(image, validate=True) for image in asked]
    except (ValueError, TypeError):
      self._answer({"error": "The request is damaged."}, 400)
      return
    try:
      # One request at a time calls TensorFlow.
      with self._lock:
        self._answer(self._ask(images))
    except (errors.FieldError, image_folder.ImageFolderError) as error:
      self._answer({"error": str(error)}, 400)

  def _ask(self, images: Sequence[bytes]) -> dict[str, Any]:
    """Asks the demo the question that the path stands for.

    Args:
      images: Contents of the pictures.

    Returns:
      JSON values by name, as `Demo.compare` or `Demo.identify` returns them.

    Raises:
      errors.FieldError: If path and number of pictures do not fit.
      image_folder.ImageFolderError: If a picture cannot be used.
    """
    if self.path == "/compare" and len(images) == 2:
      return self._demo.compare(images)
    if self.path == "/identify" and len(images) == 1:
      return self._demo.identify(images[0])
    must = "be two pictures to compare, or one to look up"
    raise errors.FieldError("request", must, f"{len(images)} at {self.path}")

  def _is_for_us(self) -> bool:
    """Whether a request names this address; refuses one that does not.

    A page of another site whose name leads to this address could otherwise ask
    the model (DNS rebinding).
    """
    port = self.server.server_port  # type: ignore[attr-defined]
    names = (f"{_HOST}:{port}", f"localhost:{port}")
    if self.headers.get("Host") in names:
      return True
    self._answer({"error": f"The page is at http://{names[0]}/."}, 403)
    return False

  def _answer(self, values: Mapping[str, Any], status: int = 200) -> None:
    """Sends JSON values.

    Args:
      values: JSON values by name.
      status: HTTP status.
    """
    self._send(status, "application/json", json.dumps(values).encode())

  def _send(self, status: int, kind: str, content: bytes) -> None:
    """Sends a response with the headers of all.

    Args:
      status: HTTP status.
      kind: Type of the content, as in the header Content-Type.
      content: The body.
    """
    self.send_response(status)
    self.send_header("Content-Type", kind)
    self.send_header("Content-Length", str(len(content)))
    self.send_header("Content-Security-Policy", _POLICY)
    self.send_header("X-Content-Type-Options", "nosniff")
    self.end_headers()
    self.wfile.write(content)

  def log_message(self, format: str, *arguments: Any) -> None:
    """Logs nothing: the page shows each answer."""


def execute(config: DemoConfig) -> None:
  """Serves the page until you interrupt it.

  Args:
    config: The settings.

  Raises:
    errors.FieldError: As `Demo` and `create_server`.
    errors.DataError: As `Demo`.
  """
  started = create_server(Demo(config), config.port)
  with started:
    address = f"http://{_HOST}:{started.server_port}/"
    progress_lib.say(f"Open {address} on this machine. Ctrl-C ends it.")
    try:
      started.serve_forever()
    except KeyboardInterrupt:
      progress_lib.say("The page is closed.")
