"""A one-step model applied to its own predictions, or to true frames."""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class Rollout(nn.Module):
    """Applies a one-step model again and again to a window of frames, its own output included.

    Frames are channels, oldest first. Each step reads as many frames as there were at the start
    and predicts the next one. Gradients flow through all steps.
    """

    def __init__(self, model: nn.Module, n_steps: int) -> None:
        super().__init__()
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}")
        self.model = model
        self.n_steps = n_steps

    def forward(
        self, history: Float[Tensor, "batch *space n_history"]
    ) -> Float[Tensor, "batch *space n_steps"]:
        """Return the frames that follow."""
        window, frames = history, []
        for _ in range(self.n_steps):
            frame = self.model(window)  # (batch, *space, 1)
            frames.append(frame)
            window = torch.cat([window[..., 1:], frame], dim=-1)
        return torch.cat(frames, dim=-1)

    def forced(
        self,
        history: Float[Tensor, "batch *space n_history"],
        frames: Float[Tensor, "batch *space n_steps"],
        noise: float,
    ) -> Float[Tensor, "batch *space n_steps"]:
        """Return each frame as predicted from the true ones before it, in one pass of the model.

        Noise of this part of their root mean square is on what it reads, as the errors of its own
        predictions will be.
        """
        n_history = history.shape[-1]
        known = torch.cat([history, frames], dim=-1)
        windows = torch.cat([known[..., i : i + n_history] for i in range(self.n_steps)])
        if noise:
            size = windows.square().flatten(1).mean(1).sqrt()
            scale = (noise * size).reshape(-1, *[1] * (windows.ndim - 1))
            windows = windows + scale * torch.randn_like(windows)
        predicted = self.model(windows)  # (step batch, *space, 1)
        return torch.cat(predicted.chunk(self.n_steps), dim=-1)
