"""Whether a session passes a `SessionFilter`: the filter's meaning."""

from eventlog.log import SessionFilter, SessionInfo


def passes(info: SessionInfo, where: SessionFilter | None) -> bool:
    """Whether the session passes. A reward that is missing or NaN passes no bound on rewards."""
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
    return where.last_time_max is None or info.last_time <= where.last_time_max
