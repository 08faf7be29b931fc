"""The defence keeps the harness's contract, with its default settings and with others."""

from bench_mirror import Mirror, MirrorSettings

from bench.testing import check_defence


def test_it_keeps_the_contract():
    check_defence(Mirror)
    check_defence(Mirror(MirrorSettings(share=0.25)))
