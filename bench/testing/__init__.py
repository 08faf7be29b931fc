"""The contract that plug-ins are held to, as functions to call from your own tests (docs/plugins.md).

    from bench.testing import check_defence

    def test_mirror_keeps_the_contract():
        check_defence(Mirror(MirrorSettings(share=0.25)))

Each raises ContractError, an AssertionError, with one sentence: what the plug-in did, and what it must do. None of them
needs pytest.
"""

from __future__ import annotations

from bench.support import devices

devices.tensorflow()  # quietly, before anything else here imports it

from bench.testing.contract import ContractError  # noqa: E402
from bench.testing.defences import check_defence  # noqa: E402
from bench.testing.engines import check_engine  # noqa: E402
from bench.testing.networks import check_network  # noqa: E402
from bench.testing.strategies import check_strategy  # noqa: E402

__all__ = ["ContractError", "check_defence", "check_engine", "check_network", "check_strategy"]
