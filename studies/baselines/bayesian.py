"""A Bayesian neural network: mean-field variational inference with Pyro (Jospin et al., 2022).

Every weight w has a prior N(0, σ²) and an approximate posterior N(μ, s²); w = σ z, and z is what is
learned, one vector of all N weights and biases. With c the weight of the KL divergence, a step on b
of n rows lowers::

    - (n / b) Σ log softmax(f_w(x))_y + c KL(q ‖ prior),      w drawn from q once a step

The paper names the method and no number. σ = prior_scale · sqrt(2 / fan-in) (biases: prior_scale)
is the scale at which a ReLU layer passes signals on, and the one of the initial μ: from smaller
ones a deep network shows no signal above its noise and never leaves the prior. At c = 1 mean-field
posteriors of wide networks fall back to the prior and predict the class shares; c = 0.1 (a "cold"
posterior, Wenzel et al., 2020) learns, on few rows and many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from collidescope import _checks as check
from collidescope.training.config import TrainingConfig
from collidescope.training.networks import StackedMLP
from studies.baselines._base import AllRowsObjective, NetworkBase, stack_of

#: Scale of the posterior before training, in units of the prior's: at 1 the network would see noise
#: alone.
INITIAL_SCALE = 0.1


class MeanField(nn.Module):
    """q(z) = N(loc, exp(log_scale)²) over the weights of one network, in units of the prior's
    scale."""

    prior: Tensor

    def __init__(
        self,
        sizes: Sequence[int],
        prior_scale: float,
        generator: torch.Generator | None = None,
    ) -> None:
        """``sizes``: d, units of the hidden layers, K."""
        super().__init__()
        start, prior = [], []
        self.shapes: list[torch.Size] = []
        for a, b in pairwise(sizes):
            scale = math.sqrt(2 / a)
            start += [scale * torch.randn(a * b, generator=generator), torch.zeros(b)]
            prior += [
                torch.full((a * b,), prior_scale * scale),
                torch.full((b,), prior_scale),
            ]
            self.shapes += [torch.Size((a, b)), torch.Size((1, b))]
        self.register_buffer("prior", torch.cat(prior))
        self.loc = nn.Parameter(torch.cat(start) / self.prior)
        self.log_scale = nn.Parameter(
            torch.full_like(self.loc, math.log(INITIAL_SCALE))
        )

    def parts(self, z: Tensor) -> list[Tensor]:
        """Weight, bias, weight, … of the networks with the weights ``z``, of shape (M, N)."""
        pieces = torch.split(
            z * self.prior, [shape.numel() for shape in self.shapes], dim=-1
        )
        return [
            piece.view(-1, *shape)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def logits(self, z: Tensor, x: Tensor) -> Tensor:
        """(N,) weights and (B, d) rows → (B, K)."""
        *hidden, weight, bias = [part.squeeze(0) for part in self.parts(z)]
        for w, b in zip(hidden[::2], hidden[1::2], strict=True):
            x = torch.relu(torch.addmm(b, x, w))
        return torch.addmm(bias, x, weight)

    def divergence(self) -> Tensor:
        """KL(q ‖ prior)."""
        scale = self.log_scale.exp()
        return (
            scale.dot(scale) + self.loc.dot(self.loc) - len(scale)
        ) / 2 - self.log_scale.sum()

    def draw(self, n_draws: int, generator: torch.Generator) -> StackedMLP:
        """Networks with weights drawn from q."""
        noise = torch.randn(n_draws, len(self.loc), generator=generator).to(
            self.loc.device
        )
        parts = self.parts(self.loc.detach() + self.log_scale.detach().exp() * noise)
        return stack_of(parts[::2], parts[1::2])


class ElboObjective(AllRowsObjective):
    """-ELBO / n, computed by Pyro.

    The module's own parameters are optimised, so nothing is put into Pyro's global parameter store.
    """

    def __init__(
        self,
        X: Tensor,
        y: Tensor,
        n_classes: int,
        config: TrainingConfig,
        kl_weight: float,
    ) -> None:
        super().__init__(X, y, n_classes, config)
        pyro = _pyro()
        self.kl_weight, self.pyro, self.elbo = kl_weight, pyro, pyro.infer.Trace_ELBO()

    def loss(self, module: nn.Module, batch: Tensor) -> Tensor:
        # Pyro's own checks would take half of every step.
        with self.pyro.validation_enabled(False):
            loss = self.elbo.differentiable_loss(
                self._model, self._guide, module, batch.flatten()
            )
        return loss / len(self.y)

    def _model(self, module: MeanField, rows: Tensor) -> None:
        pyro, zero = self.pyro, module.prior.new_zeros(())
        # The KL divergence in closed form: less noise than log-densities at the draw, which are
        # masked, and faster.
        prior = pyro.distributions.Normal(zero, zero + 1).expand(module.loc.shape)
        z = pyro.sample("z", prior.to_event(1).mask(False))
        pyro.factor("divergence", -self.kl_weight * module.divergence())
        with pyro.plate("rows", len(self.y), subsample=rows):
            logits = module.logits(z, self.X[rows])
            pyro.sample(
                "y",
                pyro.distributions.Categorical(logits=logits),
                obs=self.y.index_select(0, rows),
            )

    def _guide(self, module: MeanField, rows: Tensor) -> None:
        posterior = self.pyro.distributions.Normal(module.loc, module.log_scale.exp())
        self.pyro.sample("z", posterior.to_event(1).mask(False))


@dataclass(eq=False, repr=False)
class BayesianClassifier(NetworkBase):
    """Mean posterior of ``n_draws`` networks drawn from a mean-field variational posterior over all
    weights.

    Needs pyro-ppl: ``pip install collidescope[experiments]``.

    Parameters
    ----------
    n_draws : int
        The paper's h.
    prior_scale : float
        Scale of the normal prior, times sqrt(2 / fan-in) for weights, as it is for biases.
    kl_weight : float
        Weight of the KL divergence; 1 is Bayes' rule, less trusts the data more (see the module's
        notes).
    hidden_layer_sizes, max_epochs, batch_size, learning_rate, device, random_state
        See :class:`~studies.baselines.NetworkClassifier`. ``train_loss`` in the history is -ELBO /
        n.

    Attributes
    ----------
    classes_, history_
    module_ : MeanField

    Examples
    --------
    >>> from collidescope.datasets import scenario_a
    >>> problem = scenario_a(3)
    >>> X, y = problem.sample(300, 0)
    >>> clf = BayesianClassifier(
    ...     hidden_layer_sizes=(16,), max_epochs=60, learning_rate=0.01, random_state=0
    ... ).fit(X, y)
    >>> bool(abs(clf.predict_proba(X) - problem.posteriors(X)).mean() < 0.1)
    True
    """

    n_draws: int = 50
    prior_scale: float = 1.0
    kl_weight: float = 0.1

    def _config(self) -> TrainingConfig:
        check.check_count(self.n_draws, "n_draws")
        check.check_between(self.prior_scale, 0, math.inf, "prior_scale")
        check.check_at_least(self.kl_weight, 0, "kl_weight")
        return super()._config()

    def _objective(
        self, X: Tensor, y: Tensor, n_classes: int, config: TrainingConfig, seed: int
    ) -> AllRowsObjective:
        return ElboObjective(X, y, n_classes, config, self.kl_weight)

    def _module(
        self, n_features: int, n_classes: int, generator: torch.Generator
    ) -> nn.Module:
        return MeanField(
            [n_features, *self.hidden_layer_sizes, n_classes],
            self.prior_scale,
            generator,
        )

    def _networks(self) -> StackedMLP:
        return self.module_.draw(
            self.n_draws, torch.Generator().manual_seed(self._prediction_seed)
        )


def _pyro() -> Any:
    try:
        import pyro
        import pyro.distributions
        import pyro.infer
    except ImportError as error:
        raise ImportError(
            "BayesianClassifier needs pyro-ppl: pip install collidescope[experiments]"
        ) from error
    return pyro
