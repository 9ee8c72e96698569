"""Root against the paper's gradient descent on the same Gramian, and the root against one `eigh` of its size."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh

from collidescope import recover
from studies.accuracy._record import best_of, save

SEED = 0


def planted(k: int, sharpness: float, rng: np.random.Generator) -> np.ndarray:
    """A symmetric collision matrix (uniform priors): posteriors at random inputs, balanced."""
    P = np.exp(sharpness * rng.standard_normal((6 * k, k)))
    P /= P.sum(axis=1, keepdims=True)
    B = P.T @ P
    d = np.ones(k)
    for _ in range(2000):
        d *= np.sqrt(1 / (d * (B @ d)))
    return B * np.outer(d, d)


def tvd(S: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(S - truth).sum(axis=1).mean() / 2)


def main() -> None:
    rng = np.random.default_rng(SEED)
    rows = []
    print(
        f"{'G':>8} {'K':>4} {'root ms':>9} {'gradient ms':>12} {'ratio':>8} {'root TVD':>10} {'gradient TVD':>13}"
        f"  gradient ended"
    )
    for k in (3, 5, 10, 20):
        S = planted(k, 3.0, rng)
        for kind, noise in (("exact", 0.0), ("noisy", 0.01)):
            # errors in proportion to the entries, as in an estimated Gramian
            E = noise * rng.standard_normal((k, k)) * (S @ S.T)
            G = S @ S.T + (E + E.T) / 2
            root, descent = recover(G), recover(G, method="gradient")
            fast = best_of(lambda G=G: recover(G), 50)
            slow = best_of(lambda G=G: recover(G, method="gradient"), 2)
            row = {
                "gramian": kind,
                "K": k,
                "root_ms": 1e3 * fast,
                "gradient_ms": 1e3 * slow,
                "ratio": slow / fast,
                "root_tvd": tvd(root.matrix, S),
                "gradient_tvd": tvd(descent.matrix, S),
                "gradient_status": descent.status,
            }
            rows.append(row)
            print(
                f"{kind:>8} {k:>4} {row['root_ms']:>9.3f} {row['gradient_ms']:>12.1f} {row['ratio']:>8.0f} "
                f"{row['root_tvd']:>10.2e} {row['gradient_tvd']:>13.2e}  {descent.status[:60]}"
            )
    k = 1000
    S = planted(k, 3.0, rng)
    G = S @ S.T
    one = best_of(lambda: eigh(G), 3)
    whole = best_of(lambda: recover(G), 3)
    large = {
        "K": k,
        "eigh_s": one,
        "recover_s": whole,
        "ratio": whole / one,
        "root_tvd": tvd(recover(G).matrix, S),
    }
    print(
        f"K = {k}: recover {whole:.2f} s, one scipy.linalg.eigh {one:.2f} s: {whole / one:.1f} ×; "
        f"TVD {large['root_tvd']:.1e}"
    )
    save("recovery", {"seed": SEED}, {"root_against_gradient": rows, "large": large})


if __name__ == "__main__":
    main()
