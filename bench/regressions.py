"""This tree beside an earlier commit, in scenarios whose data is cached: is anything slower?"""

import before

from scenarios import HDMLP, Figures, Hand, Scenario, Warm

OLD = dict(HDMLP, name="HDMLP before", before=before.COMMIT)


def _ratios(scenario: Scenario, medians: dict[str, Figures], keys: list[str]) -> list[str]:
    if {HDMLP["name"], OLD["name"]} - medians.keys():
        return []
    new, old = medians[HDMLP["name"]], medians[OLD["name"]]
    return [
        f"{scenario.key}: {key} is {new[key] / old[key]:.3f} times that of commit {before.COMMIT}"
        for key in keys
    ]


class WarmBeside(Warm):
    """Samples that are in memory: more samples per second is better."""

    contenders = [HDMLP, OLD]

    def prepare(self) -> None:
        super().prepare()
        before.tree()

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, ["rate", "cpu"])


class HandBeside(Hand):
    """Batches that are ready: less time is better."""

    key = "before/d"
    contenders = [HDMLP, OLD]

    def prepare(self) -> None:
        super().prepare()
        before.tree()

    def conclusions(self, medians: dict[str, Figures]) -> list[str]:
        return _ratios(self, medians, list(self.sizes))


def all_regressions(quick: bool) -> list[Scenario]:
    """(a), (b) and (d) of scenarios.py, of this tree and of the earlier commit."""
    return [
        WarmBeside("before/a", "photos", 500 if quick else 2000, 60, {}),
        WarmBeside("before/b", "tiny", 4000 if quick else 20_000, 120, {}),
        HandBeside(100 if quick else 300),
    ]
