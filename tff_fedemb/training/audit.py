"""One audited training: canaries take part, or not, and are looked for.

Every canary and every user has a slot of the participation, and every canary a
fair coin. A canary whose coin says no is drawn as the others and sends nothing:
this is the neighbour that each of the participations names (with fixed-size
sampling, that in which the user is replaced by one who sends nothing). The
epsilon that a lower bound is compared with is therefore the run's own, of all
slots.
"""

import dataclasses
import os
import secrets
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_fedemb import checks
from tff_fedemb import errors
from tff_fedemb import progress
from tff_fedemb.accounting import composition
from tff_fedemb.accounting import ledger as ledger_lib
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.audit import canary_updates
from tff_fedemb.audit import registry
from tff_fedemb.audit import scores as scores_lib
from tff_fedemb.audit import trade_off
from tff_fedemb.data import population
from tff_fedemb.plots import privacy_plots
from tff_fedemb.records import output_files
from tff_fedemb.spec import experiment as experiment_lib
from tff_fedemb.spec import spec as spec_lib
from tff_fedemb.spec import task as task_lib
from tff_fedemb.training import audit_settings

# Name of the attack in audit.json.
_ATTACK = "canary_updates"
_ASSUMES = (
  "a canary whose coin said no is drawn as the others and sends nothing",
  "each canary has the participation, and so the claim, of a user",
  "the bounds of one round hold together, at the confidence stated; those of"
  " several rounds hold each by itself",
)
# False positive rates at which true positive rates are reported.
_FALSE_POSITIVE_RATES = np.geomspace(1e-3, 1.0, 31)
# Bounds, and rates at which canaries are found, for the models up to a round.
_Findings = dict[str, Any]


class _Audit:
  """A training, whose first slots are users and whose others are canaries.

  A canary that is drawn and included sends a random direction of its own in
  place of an update, so long that clipping makes it as large as any update can
  be. Its score says how much of the direction is in the models.
  """

  def __init__(
    self,
    config: audit_settings.AuditConfig,
    spec: spec_lib.RunSpec,
    task: task_lib.Task,
  ):
    """Tosses the coins, draws the directions, and resolves the spec.

    The accounted population is that of users and canaries together.

    Args:
      config: Settings of the audit.
      spec: The training, with one user in each client.
      task: The task, without canaries.

    Raises:
      errors.FieldError: If the spec does not fit the data and the canaries.
    """
    num_users, private = len(task.train_users), spec.check_private()
    self._slots = num_users + np.arange(config.num_canaries)
    rng = np.random.default_rng(secrets.randbits(128))
    self._included = rng.random(config.num_canaries) < 0.5
    self._canaries = canary_updates.CanaryUpdates(
      config.num_canaries, private.mechanism.clip_norm, secrets.randbits(62)
    )
    self._significance = config.significance
    self._experiment = experiment_lib.resolve(spec, self._add_canaries(task))
    # Whether each canary was drawn, `[canaries]`, by round.
    self._drawn: list[np.ndarray] = []

  def _add_canaries(self, task: task_lib.Task) -> task_lib.Task:
    """The task with a slot for each canary.

    Args:
      task: The task of the users alone.

    Returns:
      The task whose users are followed by the canaries. A canary's data are one
      blank image, whose label tells its number.
    """
    users = task.train_users

    def client_id(slot: int) -> str:
      if slot >= len(users):
        return self._canaries.client_id(slot - len(users))
      return users.user_id(slot)

    num_slots = len(users) + len(self._slots)
    return dataclasses.replace(
      task,
      train_users=population.Population(num_slots, client_id),
      create_client_dataset=self._canaries.wrap_dataset(
        task.create_client_dataset, users.user_id(0)
      ),
      find_bad_examples=task_lib.find_none,
    )

  def train(self) -> tuple[ledger_lib.Ledger, dict[int, _Findings]]:
    """Runs all rounds.

    Returns:
      The ledger of the rounds, and findings by the number of the round.

    Raises:
      errors.FieldError: If the spec cannot be trained or accounted for.
    """
    experiment, spec = self._experiment, self._experiment.spec
    tf.keras.utils.set_random_seed(spec.seed)
    process = experiment.build_process(
      wrap_client_update_fn=self._canaries.wrap_client_update
    )
    ledger = experiment.predict_ledger().without_rounds()
    key = spec.sampling_seed
    noise = composition.noise_of(experiment.mechanism)
    if key is None:
      key = secrets.randbits(128)
    optimizer, momentum = spec.server_optimizer, 0.0
    if isinstance(optimizer, server_optimizers.SgdMomentum):
      momentum = optimizer.momentum
    points: dict[int, _Findings] = {}
    rounds, every = spec.rounds, spec.evaluate_every
    # Only canaries are left out: users always take part.
    left_out = self._slots[~self._included]
    with spec.runtime.create() as runtime:
      state = runtime.initialize(process)
      weights = runtime.structured_state(state).global_model_weights
      updates = canary_updates.UpdateScores(
        self._canaries, weights.trainable, momentum=momentum
      )
      for number in tqdm.trange(1, rounds + 1, unit="round", disable=None):
        clients = experiment.participation.sample(number - 1, key=key)
        drawn = np.concatenate([np.zeros(0, np.int64), *clients])
        taking_part = list(drawn[~np.isin(drawn, left_out), np.newaxis])
        state, _ = runtime.next(
          state, experiment.task.train_users.client_ids(taking_part)
        )
        weights = runtime.structured_state(state).global_model_weights
        ledger = ledger.with_rounds(noise)
        self._drawn.append(np.isin(self._slots, drawn))
        updates.add(weights.trainable)
        if number == rounds or (every and number % every == 0):
          points[number] = self._find(updates, ledger)
    return ledger, points

  def _score(
    self, updates: canary_updates.UpdateScores
  ) -> dict[str, np.ndarray]:
    """Scores of canary updates by statistic, of the models so far.

    Args:
      updates: Projections of the models on the canaries' directions.

    Returns:
      Scores `[canaries]` by name: `final_cosine` and `largest_cosine` always,
      `known_schedule` if users are not sampled, and `likelihood_ratio` for
      independent noise on sampled users with server SGD.
    """
    found = {
      "final_cosine": updates.final_cosine(),
      "largest_cosine": updates.largest_cosine(),
    }
    claim = self._experiment.participation
    mechanism = self._experiment.mechanism
    config = mechanism.config
    optimizer = self._experiment.spec.check_private().server_optimizer
    is_sgd = isinstance(optimizer, server_optimizers.SgdMomentum)
    if not claim.is_sampled:
      noise_of_rounds = np.eye(len(self._drawn))
      if mechanism.strategy is not None:
        noise_of_rounds = mechanism.strategy.round_noise_matrix(
          len(self._drawn)
        )
      found["known_schedule"] = canary_updates.match(
        np.array(updates.projections), np.array(self._drawn), noise_of_rounds
      )
    elif is_sgd and config.noise_multiplier and mechanism.strategy is None:
      # Move of the model for one clip norm in a round's sum.
      step = optimizer.learning_rate * config.clip_norm
      share = claim.users_per_round / claim.num_slots
      found["likelihood_ratio"] = updates.likelihood_ratio(
        # The likelihood ratio needs a probability below 1.
        sampling_probability=min(share, 1 - 1e-9),
        noise_multiplier=config.noise_multiplier,
        step=step / mechanism.clients_per_round,
      )
    return found

  def _find(
    self,
    updates: canary_updates.UpdateScores,
    ledger: ledger_lib.Ledger,
  ) -> _Findings:
    """Findings in the models so far.

    Each score and each method give a lower bound. The largest is reported, at a
    level that is divided by their number (Bonferroni), so that choosing it does
    not overstate epsilon.

    Args:
      updates: Projections of the models on the canaries' directions.
      ledger: Ledger of the rounds so far.

    Returns:
      `epsilon_lower`, the largest bound; `bounds`, all of them; and
      `true_positive_rates` of its statistic.
    """
    # Rates that the claim of the rounds so far allows.
    curve = trade_off.Curve.of(ledger)
    # With sampling, the run as a whole is no Gaussian mechanism.
    unfit = registry.OF_MU if self._experiment.participation.is_sampled else ()
    options: dict[str, Any] = {
      name: {} for name in registry.METHODS if name not in unfit
    }
    options["area"] = {"curve": curve}
    if curve is None:
      del options["area"]
    scores = {
      name: scores_lib.Scores.of_coins(values, self._included)
      for name, values in self._score(updates).items()
    }
    # Bonferroni correction: the largest bound of all is reported.
    level = self._significance / (len(options) * len(scores))
    delta = self._experiment.delta
    bounds = []
    for name, some in scores.items():
      for method, more in options.items():
        bound = registry.bound_epsilon(
          method, some, delta=delta, significance=level, **more
        )
        bounds.append({"statistic": name} | bound)
    best = max(bounds, key=lambda bound: bound["epsilon_lower"])
    return {
      "epsilon_lower": best["epsilon_lower"],
      "bounds": bounds,
      "true_positive_rates": scores[best["statistic"]].true_positive_rates(
        _FALSE_POSITIVE_RATES
      ),
    }


def _check_fits(spec: spec_lib.RunSpec) -> None:
  """Refuses settings that an audit cannot have.

  Args:
    spec: The training.

  Raises:
    errors.FieldError: If data are pooled, there is a deployment or a privacy
      budget, or a client has several users.
  """
  private = spec.check_private()
  deployment = spec.deployment.deployment
  users_per_client = private.participation.users_per_client
  if deployment is not None:
    raise errors.FieldError(
      "deployment",
      "not be given for an audit: its canaries take part as a fair coin says,"
      " and not as devices come and go",
      deployment,
    )
  if spec.privacy_budget is not None:
    raise errors.FieldError(
      "privacy_budget",
      "not be given for an audit, which releases no model",
      spec.privacy_budget,
    )
  if users_per_client != 1:
    raise errors.FieldError(
      "users_per_client",
      "be 1 in an audit, whose canaries are clients of their own",
      users_per_client,
    )


def audit(
  config: audit_settings.AuditConfig,
  spec: spec_lib.RunSpec,
  *,
  task: task_lib.Task | None = None,
) -> dict[str, Any]:
  """Trains with canaries, attacks the released models, and writes the result.

  Canaries and coins are drawn anew each time, so two audits of one spec differ.
  No model is kept.

  Args:
    config: Settings of the audit; audit.json and audit.png go to its
      `output_dir`.
    spec: The training, with one user in each client.
    task: The task that `spec.task` creates, if it is at hand.

  Returns:
    The contents of audit.json.

  Raises:
    errors.FieldError: If the spec cannot be audited, or does not fit the data;
      if there is no `output_dir`.
    errors.DataError: If the data cannot be used.
  """
  output_dir = checks.check_given("output_dir", config.output_dir)
  _check_fits(spec)
  checks.check_not_forked()
  task = task or spec.task.create()
  with output_files.directory(output_dir) as directory:
    for name in ("audit.json", "audit.png"):
      outputs = {"output_dir": os.fspath(directory / name)}
      output_files.check(outputs, overwrite=True)
  ledger, points = _Audit(config, spec, task).train()
  result = _summarize(ledger, points, config.significance)
  output_files.json_writer(result)(directory / "audit.json")
  over_rounds = result["over_rounds"]
  privacy_plots.plot_audit(
    directory / "audit.png",
    over_rounds["round"],
    over_rounds["epsilon_claimed"],
    over_rounds["epsilon_lower"],
    rates={
      "allowed": result["true_positive_rates_allowed"],
      _ATTACK: result["attacks"][_ATTACK]["true_positive_rates"],
    },
    false_positive_rates=result["false_positive_rates"],
    delta=ledger.delta,
    caption="Each lower bound holds with confidence"
    f" {1 - config.significance:g} by itself. Sampling:"
    f" {ledger.participation.sampling}.",
  )
  return result


def _summarize(
  ledger: ledger_lib.Ledger,
  points: dict[int, _Findings],
  significance: float,
) -> dict[str, Any]:
  """The contents of audit.json.

  Args:
    ledger: Ledger of all rounds.
    points: Findings by the number of the round, the last one among them.
    significance: Maximum probability that the bounds of one round are wrong.

  Returns:
    Values by name; infinity is left to the writer of the file.
  """
  report = ledger.report()
  found = points[ledger.rounds]
  claim = {
    "epsilon_claimed": report.epsilon,
    "is_refuted": found["epsilon_lower"] > report.epsilon,
  }
  # Computing epsilon may take seconds, so the last round's is the report's.
  earlier = [number for number in points if number < ledger.rounds]
  claimed = ledger.epsilon_curve(earlier, accountant=report.accountant)
  return {
    "epsilon_claimed": report.epsilon,
    "delta": ledger.delta,
    "false_positive_rates": list(_FALSE_POSITIVE_RATES),
    "true_positive_rates_allowed": trade_off.allowed_rates(
      ledger, report.epsilon, _FALSE_POSITIVE_RATES
    ).tolist(),
    "accountant": report.accountant,
    "rounds": ledger.rounds,
    "confidence": 1 - significance,
    "claim": report.statement,
    "assumes": list(_ASSUMES),
    "attacks": {_ATTACK: claim | found},
    "over_rounds": {
      "round": list(points),
      "epsilon_claimed": [*claimed, report.epsilon],
      "epsilon_lower": {
        _ATTACK: [each["epsilon_lower"] for each in points.values()]
      },
    },
  }


def to_text(result: dict[str, Any], config: audit_settings.AuditConfig) -> str:
  """Summarizes an audit in four lines; audit.json has the rest.

  Args:
    result: As `audit` returns it.
    config: Settings of the audit.

  Returns:
    Lines: the claim, the largest lower bound, what the claim allows attacks to
    find, and where the files are.
  """
  lines = [
    f"epsilon claimed: {result['epsilon_claimed']:.4f} at delta ="
    f" {result['delta']:g}, {result['rounds']:,} rounds"
  ]
  found = result["attacks"][_ATTACK]
  best = max(found["bounds"], key=lambda bound: bound["epsilon_lower"])
  line = (
    f"{_ATTACK}: at least {found['epsilon_lower']:.4f} with confidence"
    f" {result['confidence']:g} ({best['statistic']}, {best['method']})"
  )
  refuted = "; THE CLAIM IS REFUTED" if found["is_refuted"] else ""
  lines.append(line + refuted)
  wanted = trade_off.FALSE_POSITIVE_RATES
  allowed = np.interp(
    wanted,
    result["false_positive_rates"],
    result["true_positive_rates_allowed"],
  )
  told = (
    f"{100 * most:.3g} % of the members at {100 * rate:g} % false alarms"
    for rate, most in zip(wanted, allowed, strict=True)
  )
  lines.append(f"The claim allows any attack to find {', '.join(told)}.")
  rest = f"Written to {config.output_dir}: audit.json, audit.png."
  return progress.end(lines, rest=rest)
