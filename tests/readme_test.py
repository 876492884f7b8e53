"""Runs the Python of the README and of the pages below docs/."""

import ast
import importlib
import inspect
import pathlib
import re
import shlex
import types

import pytest

from binaries import config_flags
from tests.binaries import programs
import tff_fedemb
from tff_fedemb.spec import run_cost
from tff_fedemb.spec import suggestions

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAGES = [
  _ROOT / "README.md",
  _ROOT / "CONTRIBUTING.md",
  *sorted((_ROOT / "docs").glob("*.md")),
]


def _blocks(page, language="python"):
  return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_python_blocks_run(capsys):
  # A block may stand on two pages; it runs once.
  blocks = dict.fromkeys(block for page in _PAGES for block in _blocks(page))
  for block in blocks:
    exec(compile(block, "block", "exec"), {})
  assert len(blocks) == 3
  assert "@SERVER" in capsys.readouterr().out


def test_a_first_run_names_what_the_library_offers():
  # Examples have data of their own, and run these lines.
  blocks = [block for page in _PAGES for block in _blocks(page, "py")]
  assert len(blocks) == 4
  calls = [
    node
    for block in blocks
    for node in ast.walk(ast.parse(block))
    if isinstance(node, ast.Call) and ast.unparse(node.func)[:3] == "fe."
  ]
  assert len(calls) > 16
  for call in calls:
    found = getattr(tff_fedemb, call.func.attr)
    keywords = {keyword.arg: None for keyword in call.keywords}
    inspect.signature(found).bind(*call.args, **keywords)


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_files_and_sections_that_a_page_names_exist(page):
  text = page.read_text()
  for link, section in re.findall(r"\]\(([^):#]*)(?:#([\w-]+))?\)", text):
    target = page.parent / link if link else page
    assert target.exists(), link
    if section:
      titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
      anchors = {re.sub(r"[^\w -]", "", title).lower() for title in titles}
      assert section.replace("-", " ") in anchors
  folders = "docs|binaries/flagfiles|tff_fedemb|tasks|benchmarks"
  for path in re.findall(rf"(?<![\w/.])(?:{folders})/[\w/.]+", text):
    assert (_ROOT / path.rstrip(".")).exists(), path


def test_programs_that_pages_name_exist():
  text = "".join(page.read_text() for page in _PAGES)
  for module in set(re.findall(r"-m ((?:binaries|tasks)[\w.]*)", text)):
    path = _ROOT.joinpath(*module.split("."))
    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def _commands():
  """Programs that the pages' commands start, and their arguments by program."""
  commands = {}
  for page in _PAGES:
    text = page.read_text().replace("\\\n", " ")
    for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL):
      # A shell puts numbers in the place of variables such as $seed.
      block = re.sub(r"\$\w+", "1", block)
      for program, rest in re.findall(r"/python -m binaries\.(\w+)(.*)", block):
        words = shlex.split(rest, comments=True)
        commands.setdefault(program, []).append(
          [word for word in words if word != "${@:2}"]
        )
  return commands


class _ParsedError(Exception):
  """The flags of a command are known."""


@pytest.mark.parametrize(("program", "commands"), _commands().items())
def test_commands_have_flags_that_there_are(program, commands, monkeypatch):
  monkeypatch.chdir(_ROOT)
  main = importlib.import_module(f"binaries.{program}").main
  parse = config_flags.Parser.parse

  def parse_only(*arguments, **options):
    parse(*arguments, **options)
    raise _ParsedError

  monkeypatch.setattr(config_flags.Parser, "parse", parse_only)
  for words in commands:
    with pytest.raises(_ParsedError):
      main([program, *(word for word in words if word != "...")])
    # Those that are cut short lack some.
    if program == "run_federated" and words[-1] != "...":
      with monkeypatch.context() as whole:
        whole.setattr(config_flags.Parser, "parse", parse)
        programs.read_spec(program, *words)


_TABLE = re.findall(
  r"^\| `(\w+)` \|.*\*\*([\d.]+)\*\*, (\S+) \|$",
  _PAGES[0].read_text(),
  re.MULTILINE,
)
_DEMO = re.search(
  r"costs epsilon ([\d.]+) at delta ([\de-]+)\*\*", _PAGES[0].read_text()
)


@pytest.mark.parametrize(
  ("name", "epsilon", "delta"), [*_TABLE, ("demo", *_DEMO.groups())]
)
def test_flagfiles_cost_what_the_readme_says(name, epsilon, delta, monkeypatch):
  assert len(_TABLE) == 4
  monkeypatch.chdir(_ROOT)
  _check_cost([f"--flagfile=binaries/flagfiles/{name}.flags"], epsilon, delta)


def test_a_deployment_costs_what_its_page_says(monkeypatch):
  monkeypatch.chdir(_ROOT)
  found = re.search(
    r"at epsilon ([\d.]+) and delta ([\de-]+)\.",
    (_ROOT / "docs/deployment.md").read_text(),
  )
  (words,) = (
    words
    for words in _commands()["run_federated"]
    if "--deployment=phones" in words
  )
  _check_cost(words, *found.groups())


def test_rules_for_photos_cost_what_their_page_says():
  text = " ".join((_ROOT / "docs/photos.md").read_text().split())
  found = re.search(
    r"epsilon (\S+) for 1,000 users with a class each, (\S+) for 10,000, (\S+)"
    r" for 100,000 and (\S+) for a million\.",
    text,
  )
  for power, told in enumerate(found.groups(), 3):
    users = 10**power
    task = types.SimpleNamespace(
      train_users=range(users),
      one_class_per_user=True,
      image_shape=(28, 28, 1),
      default_backbone="lenet",
    )
    chosen = suggestions.choose(task, {}, federated=True)
    values = {name: choice.value for name, choice in chosen.items()}
    clients, of_client = values["clients_per_round"], values["users_per_client"]
    epsilon = tff_fedemb.epsilon(
      tff_fedemb.Gaussian(noise_multiplier=values["noise_multiplier"]),
      tff_fedemb.FixedSize(
        users_per_round=clients * of_client, users_per_client=of_client
      ),
      num_users=users,
      rounds=values["rounds"],
    )
    # The page has one or two digits.
    assert epsilon == pytest.approx(float(told.replace(",", "")), rel=0.15)


def _check_cost(flags, epsilon, delta):
  spec = programs.read_spec("run_federated", *flags)
  # As a plan has it, which takes seconds to tell it for other noise too.
  run = run_cost.resolve_cost(spec, spec.task.num_train_users)
  ledger = run.predict_ledger()
  digits = len(epsilon.partition(".")[2])
  assert f"{ledger.tightest_epsilon():.{digits}f}" == epsilon
  assert ledger.delta == float(delta)


def test_the_pages_are_short():
  lengths = [len(page.read_text().split()) for page in _PAGES]
  assert lengths[0] <= 1550
  # All but those for contributors.
  assert sum(lengths) - lengths[1] <= 16_000
