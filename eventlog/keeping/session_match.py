"""Whether a session passes a `SessionFilter`: the filter's meaning."""

from collections.abc import Callable

from eventlog.log import SessionFilter, SessionInfo
from eventlog.policy_order import is_in_range, policy_text
from eventlog.training_facts import TrainingFacts


def passes(
    info: SessionInfo, where: SessionFilter | None, read_facts: Callable[[], TrainingFacts]
) -> bool:
    """Whether the session passes. A reward that is missing or NaN passes no bound on rewards.

    `read_facts` reads them off the session's events (`facts_of`): asked only where what is kept
    beside the session does not decide.
    """
    if where is None:
        return True
    exact = (
        (where.environment, info.environment),
        (where.status, info.status),
        (where.task_id, info.task_id),
        (where.sample_id, info.sample_id),
        (where.group_id, info.group_id),
        (where.policy, info.policy),
        (where.writer, info.writer),
    )
    if any(wanted is not None and wanted != found for wanted, found in exact):
        return False
    if where.id_prefix is not None and not info.session_id.startswith(where.id_prefix):
        return False
    if where.reward_min is not None and not (
        info.reward is not None and info.reward >= where.reward_min
    ):
        return False
    if where.reward_max is not None and not (
        info.reward is not None and info.reward <= where.reward_max
    ):
        return False
    if where.last_time_min is not None and info.last_time < where.last_time_min:
        return False
    if where.last_time_max is not None and info.last_time > where.last_time_max:
        return False
    return not where.asks_of_training or _passes_training(info, where, read_facts)


def _passes_training(
    info: SessionInfo, where: SessionFilter, read_facts: Callable[[], TrainingFacts]
) -> bool:
    facts = _facts_in(info) if info.training_known else read_facts()
    if where.training_session not in (None, facts.training_session):
        return False
    if where.voided is not None and where.voided != (facts.voided is not None):
        return False
    step, least, most = facts.training_step, where.training_step_min, where.training_step_max
    if least is not None and (step is None or step < least):
        return False
    if most is not None and (step is None or step > most):
        return False
    if where.policy_min is None and where.policy_max is None:
        return True
    if _names_one(facts, where):
        return True
    return facts.policies_more and _names_one(read_facts(), where)


def _names_one(facts: TrainingFacts, where: SessionFilter) -> bool:
    """Whether one of the versions lies in the filter's range."""
    least, most = policy_text(where.policy_min), policy_text(where.policy_max)
    return any(is_in_range(version, least, most) for version in facts.policies)


def _facts_in(info: SessionInfo) -> TrainingFacts:
    return TrainingFacts(
        info.training_session,
        info.training_step,
        info.policies,
        info.policies_more,
        info.voided,
    )
