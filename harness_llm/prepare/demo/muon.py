"""Muon: momentum whose matrices are orthogonalized (K. Jordan, 2024), in FP32, all matrices of one shape at a time.

The demo's model learns in a minute with it what AdamW alone takes several for.
"""

from collections import defaultdict
from collections.abc import Iterable

import torch

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
MOMENTUM = 0.95


class Muon:
    """For the matrices inside the layers; embeddings and norms need another optimizer."""

    def __init__(self, matrices: Iterable[torch.nn.Parameter], weight_decay: float) -> None:
        self._weight_decay = weight_decay
        self._averages = {matrix: torch.zeros_like(matrix) for matrix in matrices}
        self._by_shape: dict[torch.Size, list[torch.nn.Parameter]] = defaultdict(list)
        for matrix in self._averages:
            self._by_shape[matrix.shape].append(matrix)

    def step(self, rate: float) -> None:
        """Update all matrices by their gradients."""
        with torch.no_grad():
            for (rows, columns), matrices in self._by_shape.items():
                updates = orthogonalize(torch.stack([self._momentum(matrix) for matrix in matrices]))
                size = rate * max(1, rows / columns) ** 0.5
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - rate * self._weight_decay).sub_(size * update)

    def _momentum(self, matrix: torch.nn.Parameter) -> torch.Tensor:
        """Nesterov's, an average of gradients."""
        average = self._averages[matrix].lerp_(matrix.grad, 1 - MOMENTUM)
        return matrix.grad.lerp(average, MOMENTUM)


def orthogonalize(matrices: torch.Tensor) -> torch.Tensor:
    """Matrices of the same singular vectors with singular values of about 1, by Newton-Schulz iteration."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x
