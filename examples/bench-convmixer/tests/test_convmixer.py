"""The network keeps the harness's contract, on images and on what a transform with more channels gives."""

from bench_convmixer import ConvMixer, ConvMixerSettings

from bench.testing import check_network


def test_it_keeps_the_contract():
    check_network(ConvMixer(ConvMixerSettings(channels=16, depth=2)), shape=(16, 16, 3))
    check_network(ConvMixer(ConvMixerSettings(channels=8, depth=1, patch=1)), shape=(8, 8, 12))
