"""The strategy and the engine keep the harness's contract."""

from bench_momentum import BothWays, Momentum, MomentumSettings

from bench.testing import check_engine, check_strategy


def test_the_strategy_keeps_the_contract():
    check_strategy(BothWays)


def test_the_engine_keeps_the_contract():
    check_engine(Momentum(MomentumSettings(steps=4)))
