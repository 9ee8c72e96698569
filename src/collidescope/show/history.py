"""How the training of a classifier went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from collidescope.show._base import COLOURS, INK, Display, check_fitted, in_legend, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

    History = Sequence[Mapping[str, Sequence[Mapping[str, float]]]]

KEYS = ("epoch", "train_loss", "val_loss")


class HistoryDisplay(Display):
    """Training and held-out loss after every epoch, a line for each fold and network.

    Colours tell networks apart, or folds where there is one network only.

    Parameters
    ----------
    history : list with a mapping for each fold
        Name of the network → its epochs: mappings with ``epoch``, ``train_loss`` and ``val_loss``.

    Attributes
    ----------
    lines_ : dict of (fold, network) → (Line2D of training, Line2D of held-out loss)
        Folds are counted from 0.
    ax_ : Axes
    figure_ : Figure

    Examples
    --------
    >>> epochs = [{"epoch": 1, "train_loss": 0.7, "val_loss": 0.8}, {"epoch": 2, "train_loss": 0.5, "val_loss": 0.6}]
    >>> display = HistoryDisplay([{"network-64": epochs}]).plot()
    >>> training, held_out = display.lines_[0, "network-64"]
    >>> held_out.get_ydata().tolist()
    [0.8, 0.6]
    """

    lines_: dict[tuple[int, str], tuple[Line2D, Line2D]]

    def __init__(self, history: History) -> None:
        self.history = history

    @classmethod
    def from_classifier(cls, clf: Any) -> Self:
        """The history of a fitted :class:`~collidescope.CollisionClassifier` (``history_``)."""
        check_fitted(clf, "history_")
        _check_history(clf.history_)
        return cls(clf.history_)

    def plot(self, ax: Axes | None = None, **kw: Any) -> Self:
        """Draw held-out (solid) and training loss (dotted).

        Parameters
        ----------
        ax : matplotlib Axes, optional
        **kw
            For ``Axes.plot``.
        """
        networks = _check_history(self.history)
        ax = self._axes(ax, (6.4, 4.0))
        from matplotlib.ticker import MaxNLocator

        by_network = len(networks) > 1
        dots: dict[str, Any] = {"linestyle": ":"}
        self.lines_ = {}
        named: dict[str, Line2D] = {}
        for fold, members in enumerate(self.history):
            for network, epochs in members.items():
                colour = COLOURS[(networks.index(network) if by_network else fold) % len(COLOURS)]
                epoch, training, held_out = ([entry[key] for entry in epochs] for key in KEYS)
                style: dict[str, Any] = {"color": colour, "linewidth": 1.4} | kw
                (dotted,) = ax.plot(epoch, training, **(dots | style))
                (solid,) = ax.plot(epoch, held_out, **style)
                self.lines_[fold, network] = dotted, solid
                named.setdefault(in_legend(network) if by_network else f"fold {fold + 1}", solid)
        styles = [ax.plot([], [], color=INK)[0], ax.plot([], [], color=INK, linestyle=":")[0]]
        ax.legend([*styles, *named.values()], ["held-out", "training", *named], fontsize="small")
        if not by_network:
            ax.set_title(in_legend(networks[0]), fontsize="medium")
        tidy(ax)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set(xlabel="epoch", ylabel="loss")
        return self


def _check_history(history: Any) -> list[str]:
    """Names of the networks, in order of their first appearance."""
    wanted = "history must have a mapping of network → epochs for each fold, an epoch with epoch, train_loss, val_loss"
    if isinstance(history, (str, Mapping)) or not isinstance(history, Sequence):
        raise ValueError(f"{wanted}; got {type(history).__name__}")
    for members in history:
        if not isinstance(members, Mapping):
            raise ValueError(f"{wanted}; got a fold that is {type(members).__name__}")
        for network, epochs in members.items():
            for entry in epochs:
                if not isinstance(entry, Mapping) or any(key not in entry for key in KEYS):
                    raise ValueError(f"{wanted}; got {entry!r} for {network!r}")
    networks = list(dict.fromkeys(network for members in history for network, epochs in members.items() if epochs))
    if not networks:
        raise ValueError("history holds no epochs: only networks are trained in epochs, and none was")
    return networks
