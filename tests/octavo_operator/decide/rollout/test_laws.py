"""Laws of rollouts, checked after every step of random edits, reverts, failures, restarts and waits."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octavo_operator.decide.rollout.values import CanaryStep, RolloutPolicy, Verdict
from tests.octavo_operator.decide.rollout.play import PASSED, Play

REVISIONS = ("a", "b", "c")
INCONCLUSIVE = Verdict(state="Inconclusive", reason="GateInconclusive", message="3 of 100 requests")
WORSE = Verdict(state="Failed", reason="SloGateFailed", message="80 % against 99 %")


@st.composite
def policies(draw: st.DrawFn) -> RolloutPolicy:
    weights = draw(st.sets(st.integers(1, 99), min_size=1, max_size=3))
    return RolloutPolicy(
        strategy=draw(st.sampled_from(["Auto", "Surge", "InPlace", "Canary"])),
        steps=tuple(CanaryStep(weight=weight, seconds=30) for weight in sorted(weights)),
        deadline_seconds=600,
        routed=draw(st.booleans()),
        terms="t",
    )


class Rollouts(RuleBasedStateMachine):
    """Pods that became ready stay so until the operator ends them: what is lost was taken by it."""

    @initialize(policy=policies(), replicas=st.integers(1, 4), is_full=st.booleans())
    def begin(self, policy: RolloutPolicy, replicas: int, is_full: bool) -> None:
        room = replicas if is_full and policy.strategy in ("Auto", "InPlace") else 1000
        self.play = Play(policy=policy, replicas=replicas, room=room)
        self.play.run()
        assert self.play.selected == "a"
        self.given_up = False
        self.was_late = False

    @rule(asked=st.none() | st.sampled_from(REVISIONS))
    def edit(self, asked: str | None) -> None:
        self.play.target = asked

    @rule(bad=st.sampled_from(REVISIONS[1:]), kind=st.sampled_from(["gate", "pods", "none"]))
    def spoil(self, bad: str, kind: str) -> None:
        self.play.bad = {bad} if kind == "gate" else set()
        self.play.broken = {bad} if kind == "pods" else set()

    @rule(slo=st.sampled_from([PASSED, INCONCLUSIVE, WORSE]))
    def judge(self, slo: Verdict) -> None:
        self.play.slo = slo

    @rule(
        asked=st.none() | st.sampled_from(REVISIONS),
        rounds=st.integers(1, 12),
        seconds=st.sampled_from([1, 6, 31]),
    )
    def go_on(self, asked: str | None, rounds: int, seconds: int) -> None:
        """An edit, and some time in which nothing else happens."""
        self.play.target = asked
        for _ in range(rounds):
            self.act(None)
            self.play.start()
            self.check()
            self.act(None)
            self.play.bury()
            self.check()
            self.play.now += seconds

    @rule(writes=st.none() | st.integers(0, 5))
    def act(self, writes: int | None) -> None:
        """A pass, perhaps cut short by a kill; the next one knows only what was written."""
        before, serving = len(self.play.answering()), self.play.selected
        wanted = dict(self.play.wanted)
        decision = self.play.act(writes=writes)
        self.given_up = decision.failed is not None
        assert serving in self.play.wanted or decision.serving != serving, "what serves was deleted"
        assert not set(decision.remove) & {decision.serving, decision.target} or decision.failed
        assert sum(decision.weights.values()) in (0, 100)
        assert set(decision.weights) <= {serving, decision.serving, *wanted}
        assert sum(weight > 0 for weight in decision.weights.values()) <= 2
        if not self.given_up and before >= self.enough():
            assert len(self.play.answering()) >= self.enough(), "the operator took too many away"

    def enough(self) -> int:
        spare = 0 if self.play.policy.strategy in ("Surge", "Canary") else 1
        return self.play.replicas - spare

    @rule(seconds=st.sampled_from([1, 10, 61, 700]))
    def wait(self, seconds: int) -> None:
        self.play.now += seconds
        self.was_late = self.was_late or seconds > 600

    @rule()
    def start(self) -> None:
        self.play.start()

    @rule()
    def bury(self) -> None:
        self.play.bury()

    @invariant()
    def check(self) -> None:
        seen, play = self.play.view(), self.play
        answering = {pod.revision for pod in play.answering()}
        assert len(answering) <= 2, "more than two revisions have traffic"
        assert all(one in play.proven or seen.record(one).passed for one in answering), "not cleared"
        staying = sum(not pod.ending for pod in play.pods)
        most = play.replicas if play.policy.strategy == "InPlace" else 2 * play.replicas
        assert staying <= most + self.leftovers(), "more pods than there is room for"

    def leftovers(self) -> int:
        """Of a third revision, whose pods end while its successor starts."""
        known = {self.play.selected, self.play.target}
        return sum(not pod.ending and pod.revision not in known for pod in self.play.pods)

    def teardown(self) -> None:
        """It ends: what spec asks for serves alone, or was given up for what served."""
        if not hasattr(self, "play"):
            return
        play = self.play
        failed_before = bool(play.view().record(play.target).failed)
        last = play.run()
        assert set(play.wanted) == {play.selected}
        assert play.selected == play.target or play.target is None or last.failed
        if not (play.bad | play.broken or play.slo is WORSE or failed_before or self.was_late):
            assert not last.failed, last.message
        assert len(play.answering()) == play.replicas
        assert len(play.pods) == play.replicas


Rollouts.TestCase.settings = settings(max_examples=200, stateful_step_count=15, deadline=None)
test_rollouts_keep_the_laws_at_every_step = Rollouts.TestCase
