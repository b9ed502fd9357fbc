"""Least squares that a few wild points cannot bend: soft-L1 loss, Levenberg-Marquardt, a numeric Jacobian."""

from collections.abc import Callable

import numpy as np

from experiments.planning.load import Floats

STEP = 1e-6  # of a parameter, for the Jacobian
ENOUGH = 1e-10  # relative fall of the loss below which a fit has ended
MOST_STEPS = 200


def least_squares(residuals: Callable[[Floats], Floats], start: Floats, scale: float) -> Floats:
    """Parameters that minimise sum(2 s^2 (sqrt(1 + (r / s)^2) - 1)): squares of small residuals, sizes of large ones.

    ``scale`` s is where small ends. Deterministic; the same start gives the same answer.
    """
    at, damping = start, 1e-3
    loss = _loss(residuals(at), scale)
    for _ in range(MOST_STEPS):
        r = residuals(at)
        weight = 1 / np.sqrt(1 + (r / scale) ** 2)
        slope = _jacobian(residuals, at, r)
        normal, pull = slope.T @ (slope * weight[:, None]), slope.T @ (weight * r)
        step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), -pull)
        tried = _loss(residuals(at + step), scale)
        if tried < loss:
            done = loss - tried < ENOUGH * loss
            at, loss, damping = at + step, tried, damping / 3
            if done:
                break
        elif damping > 1e12:
            break
        else:
            damping *= 4
    return at


def _loss(r: Floats, scale: float) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # a wild step is worse than any other, however wild
        loss = float(np.sum(np.sqrt(1 + (r / scale) ** 2) - 1))
    return loss if np.isfinite(loss) else np.inf


def _jacobian(residuals: Callable[[Floats], Floats], at: Floats, r: Floats) -> Floats:
    return np.stack([(residuals(at + STEP * axis) - r) / STEP for axis in np.eye(len(at))], axis=1)
