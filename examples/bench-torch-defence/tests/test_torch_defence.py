"""The defence keeps the harness's contract, and the classifier that of a network."""

from bench_torch_defence import TorchShuffle

from bench.testing import check_defence, check_network


def test_the_defence_keeps_the_contract():
    check_defence(TorchShuffle)


def test_the_classifier_keeps_the_contract():
    check_network("torch[factory=bench_torch_defence:classifier]")
