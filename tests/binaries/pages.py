"""Parses a report's page, and checks that it is whole."""

import html.parser
import re

_VOID = {"meta", "link", "img", "br", "wbr", "input"}
# Attributes that make a browser fetch something.
_FETCHING = {"src", "href", "srcset", "poster", "data", "action", "background"}


class Parsed(html.parser.HTMLParser):
  """A page's elements, if they are nested as they should be."""

  def __init__(self, text):
    super().__init__()
    self.elements, self._open, self._texts = [], [], []
    self.feed(text)
    self.close()
    assert not self._open

  def handle_starttag(self, tag, attributes):
    self.elements.append((tag, dict(attributes)))
    names = [name for name, _ in attributes]
    assert len(names) == len(set(names))
    if tag not in _VOID:
      self._open.append(tag)

  def handle_startendtag(self, tag, attributes):
    self.elements.append((tag, dict(attributes)))

  def handle_endtag(self, tag):
    assert self._open.pop() == tag

  def handle_data(self, data):
    if self._open and self._open[-1] not in ("script", "style"):
      self._texts.append(data)

  @property
  def text(self):
    return " ".join(" ".join(self._texts).split())

  def all(self, tag):
    return [attributes for name, attributes in self.elements if name == tag]


def check(text):
  """The page is whole in itself; returns it parsed."""
  parsed = Parsed(text)
  for tag, attributes in parsed.elements:
    for name, value in attributes.items():
      assert not name.startswith("on"), (tag, name)
      if name in _FETCHING:
        assert value.startswith(("data:", "#")), (tag, value[:80])
  assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import ", text)
  (policy,) = [m["content"] for m in parsed.all("meta") if "http-equiv" in m]
  assert policy.startswith("default-src 'none'; img-src data:;")
  identifiers = [a["id"] for _, a in parsed.elements if "id" in a]
  assert len(identifiers) == len(set(identifiers))
  targets = {a["href"].removeprefix("#") for a in parsed.all("use")}
  assert targets <= {a["id"] for a in parsed.all("symbol")}
  for attributes in parsed.all("img"):
    assert len(attributes["alt"]) > 20
  for _, attributes in parsed.elements:
    if attributes.get("role") in ("img", "region"):
      assert attributes["aria-label"]
  assert len(text.encode()) < 3e6
  return parsed
