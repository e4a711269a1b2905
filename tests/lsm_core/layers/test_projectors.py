import pytest
import torch

from lsm_core.layers.projectors import ProjectorConfig, build_projector

POINTS = torch.randn(5, 6, 8, generator=torch.Generator().manual_seed(0))


def test_the_papers_form_attends_with_raw_points_to_projected_tokens():
    projector = build_projector(ProjectorConfig(n_heads=1, form="paper"), 8)
    latent = projector.tokens[0]
    scores = projector.key(POINTS) @ latent.T
    expected = latent + torch.softmax(scores, dim=1).mT @ projector.value(POINTS)
    tokens = projector.to_latent(POINTS)
    torch.testing.assert_close(tokens, expected)

    scores = POINTS @ projector.token_key(tokens).mT
    expected = POINTS + torch.softmax(scores, dim=2) @ projector.token_value(tokens)
    torch.testing.assert_close(projector.to_coordinates(POINTS, tokens), expected)


@pytest.mark.parametrize(
    ("kind", "n_tokens"),
    [("attention", 4), ("convolution", 6), ("average", 1), ("self-attention", 6), ("none", 6)],
)
def test_projectors_say_how_many_tokens_they_make(kind, n_tokens):
    projector = build_projector(ProjectorConfig(kind=kind), 8)
    tokens = projector.to_latent(POINTS)
    assert projector.n_tokens(6) == n_tokens
    assert tokens.shape == (5, n_tokens, 8)
    assert projector.to_coordinates(POINTS, tokens).shape == POINTS.shape


def test_average_pooling_adds_the_mean_of_the_patch():
    projector = build_projector(ProjectorConfig(kind="average"), 8)
    mean = POINTS.mean(1, keepdim=True)
    torch.testing.assert_close(
        projector.to_coordinates(POINTS, projector.to_latent(POINTS)), POINTS + mean
    )


def test_self_attention_mixes_points_and_keeps_a_residual():
    projector = build_projector(ProjectorConfig(kind="self-attention", n_heads=1), 8)
    scores = projector.query(POINTS) @ projector.key(POINTS).mT / 8**0.5
    expected = POINTS + torch.softmax(scores, -1) @ projector.value(POINTS)
    torch.testing.assert_close(projector.to_latent(POINTS), expected)


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="does not split"):
        build_projector(ProjectorConfig(n_heads=3), 8)
