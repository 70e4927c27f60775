"""Every case of the onnx package passes, unless `exceptions.toml` says why not."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.onnx.node_suite import Case, cases, excused, exemptions, failure

DEVICES = ("reference", "cpu")


MOST = 24
"""Cases of one test: several processes share an operator that has many."""


def batches() -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = defaultdict(list)
    for case in cases():
        found[case.operator if case.required else f"{case.operator} (newer opsets)"].append(case)
    return {name if len(chosen) <= MOST else f"{name}, {i // MOST + 1}": chosen[i:i + MOST]
            for name, chosen in found.items() for i in range(0, len(chosen), MOST)}


BATCHES = batches()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", sorted(BATCHES))
def test_cases_pass_or_are_listed(batch: str, device: str) -> None:
    wrong: list[str] = []
    for case in BATCHES[batch]:
        why, excuse = failure(case, device), excused(case.name, device)
        if why and not excuse:
            wrong.append(f"{case.name}: {why}")
        elif excuse and not why:
            wrong.append(f"{case.name} passes, but exceptions.toml lists it: {excuse}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("device", DEVICES)
def test_most_cases_of_the_required_opsets_pass(device: str) -> None:
    node = [c for c in cases() if c.kind == "node" and c.required]
    listed = [c for c in node if excused(c.name, device)]
    assert len(listed) <= 0.05 * len(node)


def test_every_exception_names_a_case() -> None:
    names = [c.name for c in cases()]
    unused = [e.pattern for e in exemptions() if not any(e.covers(n, d) for n in names
                                                          for d in (*e.devices, *DEVICES))]
    assert not unused
