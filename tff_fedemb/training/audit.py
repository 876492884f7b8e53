"""One audited training: canaries take part, or not, and are looked for."""

import secrets
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tff_fedemb import errors
from tff_fedemb import output_files
from tff_fedemb.algorithms import composition
from tff_fedemb.algorithms import server_optimizers
from tff_fedemb.evaluation import embedding
from tff_fedemb.plots import privacy_plots
from tff_fedemb.privacy import ledger as ledger_lib
from tff_fedemb.privacy.audit import canary_updates
from tff_fedemb.privacy.audit import registry
from tff_fedemb.privacy.audit import scores as scores_lib
from tff_fedemb.privacy.audit import trade_off
from tff_fedemb.privacy.audit import users as users_lib
from tff_fedemb.run import experiment as experiment_lib
from tff_fedemb.run import spec as spec_lib
from tff_fedemb.run import task as task_lib
from tff_fedemb.training import audit_settings
from tff_fedemb.training import audit_slots

_ASSUMES = (
  "a slot whose coin said no is drawn as the others and sends nothing; half of"
  " the users are left out so, and half of each user's images held out",
  "each canary has the participation, and so the claim, of a user",
  "bounds of one attack hold together, at the confidence stated; those of"
  " several attacks, and of several rounds, each by itself",
)
# At which true positive rates are told.
_FALSE_POSITIVE_RATES = np.geomspace(1e-3, 1.0, 31)


class _Attacks:
  """Looks at the models that are released."""

  def __init__(
    self,
    experiment: experiment_lib.Experiment,
    slots: audit_slots.Slots,
    canaries: canary_updates.CanaryUpdates,
    *,
    weights: Any,
    significance: float,
  ):
    self._experiment, self._slots = experiment, slots
    self._significance = significance
    self._weights = weights
    momentum = 0.0
    # The model moves by so much for one clip norm in a round's sum, if known.
    self._step = None
    optimizer = experiment.spec.server_optimizer
    config = experiment.mechanism.config
    if isinstance(optimizer, server_optimizers.SgdMomentum):
      momentum = optimizer.momentum
      if config.noise_multiplier and experiment.mechanism.strategy is None:
        self._step = (
          optimizer.learning_rate * config.clip_norm / config.clients_per_round
        )
    self._updates = canary_updates.UpdateScores(
      canaries, weights.trainable, momentum=momentum
    )
    self._drawn: list[np.ndarray] = []
    self._backbone = experiment.create_backbone()
    self._embed = embedding.create_embedder(self._backbone)
    self._images = {
      attack: slots.read_images(attack)
      for attack in (audit_slots.CANARY_USERS, audit_slots.USERS)
      if slots.are_enough(attack)
    }

  def add_round(self, drawn: np.ndarray, weights: Any) -> None:
    """Adds a round: the slots that were drawn, and the model it released."""
    self._drawn.append(np.isin(self._slots.of[audit_slots.UPDATES], drawn))
    self._updates.add(weights.trainable)
    self._weights = weights

  def _statistics(self, attack: str) -> dict[str, np.ndarray]:
    """Scores by statistic, of the models so far."""
    if attack != audit_slots.UPDATES:
      trainable = tuple(self._weights.trainable)
      composition.assign_weights(
        self._backbone,
        trainable[: len(self._backbone.trainable_variables)],
        self._weights.non_trainable,
      )
      return {
        "label_similarity": users_lib.score(
          self._embed, self._images[attack], len(self._slots.of[attack])
        )
      }
    found = {
      "final_cosine": self._updates.final_cosine(),
      "largest_cosine": self._updates.largest_cosine(),
    }
    if not self._experiment.participation.is_sampled:
      rounds = len(self._drawn)
      strategy = self._experiment.mechanism.strategy
      found["known_schedule"] = canary_updates.match(
        np.array(self._updates.projections),
        np.array(self._drawn),
        np.eye(rounds)
        if strategy is None
        else strategy.round_noise_matrix(rounds),
      )
    elif self._step is not None:
      participation = self._experiment.participation
      found["likelihood_ratio"] = self._updates.likelihood_ratio(
        # A probability of 1 has no opposite to compare with.
        sampling_probability=min(
          participation.users_per_round / participation.num_users, 1 - 1e-9
        ),
        noise_multiplier=self._experiment.mechanism.config.noise_multiplier,
        step=self._step,
      )
    return found

  def _attack(
    self, attack: str, curve: trade_off.Curve | None
  ) -> dict[str, Any]:
    # A sampled claim is not that of a Gaussian mechanism as a whole.
    unfit = registry.OF_MU if self._experiment.participation.is_sampled else ()
    options: dict[str, Any] = {
      name: {} for name in registry.METHODS if name not in unfit
    }
    options["area"] = {"curve": curve}
    if curve is None:
      del options["area"]
    included = self._slots.included[self._slots.of[attack]]
    scores = {
      name: scores_lib.Scores.of_coins(values, included)
      for name, values in self._statistics(attack).items()
    }
    # Bonferroni: any of them may be the largest.
    level = self._significance / (len(options) * len(scores))
    bounds = [
      {"statistic": name}
      | registry.bound_epsilon(
        *(method, some),
        delta=self._experiment.delta,
        significance=level,
        **more,
      )
      for name, some in scores.items()
      for method, more in options.items()
    ]
    best = max(bounds, key=lambda bound: bound["epsilon_lower"])
    return {
      "epsilon_lower": best["epsilon_lower"],
      "bounds": bounds,
      "true_positive_rates": scores[best["statistic"]].true_positive_rates(
        _FALSE_POSITIVE_RATES
      ),
    }

  def run(self, ledger: ledger_lib.Ledger) -> dict[str, dict[str, Any]]:
    """Findings of each attack in the models so far, of rounds so accounted."""
    curve = trade_off.Curve.of(ledger)
    return {
      attack: self._attack(attack, curve)
      for attack in (audit_slots.UPDATES, *self._images)
    }


def audit(
  config: audit_settings.AuditConfig,
  spec: spec_lib.RunSpec,
  *,
  task: task_lib.Task | None = None,
) -> dict[str, Any]:
  """Trains with canaries, attacks what is released, and writes what came out.

  Args:
    config: Settings of the audit.
    spec: The training.
    task: The task that `spec.task` creates, if it is at hand.

  Returns:
    The contents of audit.json.

  Raises:
    errors.FieldError: If it cannot be audited so.
  """
  for name, value, allowed, must in (
    (
      "deployment",
      spec.deployment.deployment,
      None,
      "not be given for an audit: its canaries take part as a fair coin says,"
      " and not as devices come and go",
    ),
    (
      "privacy_budget",
      spec.privacy_budget,
      None,
      "not be given for an audit, which releases no model",
    ),
    (
      "users_per_client",
      spec.participation.users_per_client,
      1,
      "be 1 in an audit, whose canaries are clients of their own",
    ),
  ):
    if value != allowed:
      raise errors.FieldError(name, must, value)
  task = task or spec.task.create()
  with output_files.directory(config.output_dir) as directory:
    pass
  canaries = canary_updates.CanaryUpdates(
    config.num_canaries, spec.mechanism.clip_norm, secrets.randbits(62)
  )
  slots = audit_slots.Slots(task, config, canaries)
  experiment = experiment_lib.resolve(spec, slots.create_task())
  ledger, points = _train(experiment, slots, canaries, config.significance)
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
      **{
        name: found["true_positive_rates"]
        for name, found in result["attacks"].items()
      },
    },
    false_positive_rates=result["false_positive_rates"],
    delta=ledger.delta,
    caption="Each lower bound holds with confidence"
    f" {1 - config.significance:g} by itself. Sampling:"
    f" {ledger.participation.sampling}.",
  )
  return result


def _train(
  experiment: experiment_lib.Experiment,
  slots: audit_slots.Slots,
  canaries: canary_updates.CanaryUpdates,
  significance: float,
) -> tuple[ledger_lib.Ledger, dict[int, dict[str, Any]]]:
  """Runs all rounds; returns what they cost, and findings by round."""
  spec = experiment.spec
  tf.keras.utils.set_random_seed(spec.seed)
  process = experiment.build_process(
    wrap_client_update_fn=canaries.wrap_client_update
  )
  ledger, key = experiment.create_ledger(), spec.sampling_seed
  if key is None:
    key = secrets.randbits(128)
  points: dict[int, dict[str, Any]] = {}
  rounds, every = spec.rounds, spec.evaluate_every
  with spec.runtime.create() as runtime:
    state = runtime.initialize(process)
    attacks = _Attacks(
      experiment,
      slots,
      canaries,
      weights=runtime.structured_state(state).global_model_weights,
      significance=significance,
    )
    for number in tqdm.trange(1, rounds + 1, unit="round", disable=None):
      clients = experiment.participation.sample(number - 1, key=key)
      drawn = np.concatenate([np.zeros(0, np.int64), *clients])
      taking_part = drawn[slots.included[drawn], np.newaxis]
      state, _ = runtime.next(
        state, experiment.task.train_users.client_ids(taking_part)
      )
      ledger = ledger.with_rounds(experiment.mechanism.round_event)
      attacks.add_round(
        drawn, runtime.structured_state(state).global_model_weights
      )
      if number == rounds or (every and number % every == 0):
        points[number] = attacks.run(ledger)
  return ledger, points


def _summarize(
  ledger: ledger_lib.Ledger,
  points: dict[int, dict[str, Any]],
  significance: float,
) -> dict[str, Any]:
  report = ledger.report()
  attacks = {
    name: {
      "epsilon_claimed": report.epsilon,
      "is_refuted": found["epsilon_lower"] > report.epsilon,
    }
    | found
    for name, found in points[ledger.rounds].items()
  }
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
    "attacks": attacks,
    "over_rounds": {
      "round": [*points],
      "epsilon_claimed": ledger.epsilon_curve(
        [*points], accountant=report.accountant
      ),
      "epsilon_lower": {
        name: [found[name]["epsilon_lower"] for found in points.values()]
        for name in attacks
      },
    },
  }


def to_text(result: dict[str, Any]) -> str:
  """Returns the contents of audit.json in a few lines."""
  lines = [
    f"epsilon claimed: {result['epsilon_claimed']:.4f} at delta ="
    f" {result['delta']:g}, {result['rounds']:,} rounds"
  ]
  for name, found in result["attacks"].items():
    best = max(found["bounds"], key=lambda bound: bound["epsilon_lower"])
    line = (
      f"{name}: at least {found['epsilon_lower']:.4f} with confidence"
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
  return "\n".join(lines)
