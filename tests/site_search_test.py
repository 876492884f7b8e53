"""Asks the site's search what newcomers ask.

MkDocs Material searches in the browser with lunr, whose ranking is written out
here. It is BM25 (k1 = 1.2, b = 0) over the titles and texts of sections. A word
of the query stands for all words that begin with it. A word in a title counts a
thousand times; a section that opens a page counts more, and so does one that
has more words of the query. The reference is left out, because docs/site.py
gives it a hundredth of the others' weight.
"""

import collections
import functools
import math
import pathlib
import re

import pytest
import yaml

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_K1 = 1.2
_BOOSTS = (1000.0, 1.0)


def _words(text):
  site = yaml.safe_load((_ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
  separator = site["plugins"][0]["search"]["separator"]
  return [word for word in re.split(separator, text.lower()) if word]


@functools.cache
def _sections():
  """Pages, whether a section opens its page, and counts of its words."""
  paths = [_ROOT / "README.md", _ROOT / "CONTRIBUTING.md"]
  sections = []
  for path in paths + sorted((_ROOT / "docs").glob("*.md")):
    text = path.read_text(encoding="utf-8")
    # Neither a comment in a block of code nor the target of a link counts.
    blocks = re.split(r"^(```.*?^```)$", text, flags=re.MULTILINE | re.DOTALL)
    blocks[1::2] = [
      re.sub("^#", "", b, flags=re.MULTILINE) for b in blocks[1::2]
    ]
    text = re.sub(r"\]\([^)]*\)|[`*]", " ", "".join(blocks))
    for number, part in enumerate(
      re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]
    ):
      title, _, body = part.partition("\n")
      counts = [collections.Counter(_words(x)) for x in (title, body)]
      sections.append((path.stem, number == 0, counts))
  return sections


def _search(query):
  """The pages that the search shows, best first."""
  sections = _sections()
  found_in = collections.Counter(
    word for _, _, counts in sections for field in counts for word in field
  )
  terms = set(_words(query))
  expanded = [
    word for term in terms for word in found_in if word.startswith(term)
  ]
  scores = collections.Counter()
  for page, is_first, counts in sections:
    score = 0.0
    for boost, field in zip(_BOOSTS, counts, strict=True):
      for word in expanded:
        number = found_in[word]
        rarity = abs((len(sections) - number + 0.5) / (number + 0.5))
        often = field[word] * (_K1 + 1) / (_K1 + field[word])
        score += boost * math.log(1 + rarity) * often
    words = [*counts[0], *counts[1]]
    share = sum(any(w.startswith(t) for w in words) for t in terms) / len(terms)
    scores[page] = max(scores[page], score * (1 + (is_first + share) ** 2))
  return [page for page, _ in scores.most_common()]


@pytest.mark.parametrize(
  ("question", "page"),
  [
    ("how do I install it", "getting_started"),
    ("how do I train on my own data", "extending"),
    ("how do I train on my own photos", "photos"),
    ("how do I write my own aggregator", "extending"),
    ("how do I plug in a backbone of my own", "extending"),
    ("how do I use it in my TFF program", "from_tff"),
    ("which mechanism should I choose", "mechanisms"),
    ("how do I lower epsilon", "privacy"),
    ("how do I share a privacy budget between runs", "privacy"),
    ("how do I tune hyperparameters", "tuning"),
    ("how do I resume an interrupted run", "running"),
    ("how do I train on many machines", "cluster"),
    ("how do I train on a GPU", "running"),
    ("how do I make training faster", "speed"),
    ("how do I train on phones", "phones"),
    ("how do I run the model on a phone", "export"),
    ("how do I export the model", "export"),
    ("how do I start from a pretrained model", "models"),
    ("how do I recognise who is in a picture", "export"),
    ("which files may I publish", "running"),
    ("how do I attack a model to audit it", "audits"),
    ("how do I simulate devices that drop out", "deployment"),
    ("how do I write a report for my colleagues", "report"),
    ("what does a round do", "concepts"),
  ],
)
def test_a_question_finds_its_page_among_the_first_three(question, page):
  assert page in _search(question)[:3]
