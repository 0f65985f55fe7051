"""`SetEntry`: what makes a checkpoint a checkpoint set, as its manifest has it in the field `set`.

The cut of the log it stands at, and who stood where. Read strictly, as all of a manifest is; whole
without any log. `snapshots.sets` reads it from a log, and tells the log of it.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventlog.cut import Cut
from eventlog.event import session_id_problem
from eventlog.merkle_root import MerkleRoot
from snapshots.checkpoints.fields import Json, JsonFields, refuse

SESSIONS_MAX: Final = 1_000_000
"""Most sessions in one set."""
FILES_MAX: Final = 1_000_000
"""Most files of one adopted folder."""

_FIELDS: Final = "training attempt step event cut log sessions"
_OPTIONAL: Final = "policy previous adopted"


class SessionPosition(NamedTuple):
    """Where a session stood at the cut: its last step, and the digest (32 bytes) of that event.

    `state_digest` is of the state after it; None where the session has none, or it was not known.
    `fork_event` is the digest of a branch's first own event, None for a session that is no branch.
    """

    step: int
    event_digest: bytes
    state_digest: bytes | None = None
    fork_event: bytes | None = None


class AdoptedFile(NamedTuple):
    """A file of a folder that somebody else saved: its path in it, size, and SHA-256 in hex."""

    path: str
    size: int
    digest: str


class AdoptedFolder(NamedTuple):
    """A finished folder that belongs to the set. Its files stay where they are."""

    folder: str
    files: tuple[AdoptedFile, ...]


class SetEntry(NamedTuple):
    """The set's place in the log.

    `training` is the training session, `attempt` the claim it was saved under, `step` and
    `event_digest` where that session stood. `log` holds, for each partition of the cut, the Merkle
    tree over every record below the cut. `policy` is the policy version published last, `previous`
    the id of the set this training came from.
    """

    training: str
    attempt: int
    step: int
    event_digest: bytes
    cut: Cut
    log: Mapping[int, MerkleRoot]
    sessions: Mapping[str, SessionPosition]
    policy: str | None = None
    previous: str | None = None
    adopted: AdoptedFolder | None = None

    def to_fields(self) -> Json:
        """The entry as JSON."""
        fields: Json = {
            "training": self.training,
            "attempt": self.attempt,
            "step": self.step,
            "event": self.event_digest.hex(),
            "cut": self.cut.as_names(),
            "log": {str(number): _tree_fields(tree) for number, tree in self.log.items()},
            "sessions": {name: _position_fields(one) for name, one in self.sessions.items()},
        }
        if self.policy is not None:
            fields["policy"] = self.policy
        if self.previous is not None:
            fields["previous"] = self.previous
        if self.adopted is not None:
            fields["adopted"] = {
                "folder": self.adopted.folder,
                "files": [
                    {"path": one.path, "bytes": one.size, "sha256": one.digest}
                    for one in self.adopted.files
                ],
            }
        return fields

    @classmethod
    def from_fields(cls, read: object) -> "SetEntry":
        """The entry of this JSON. Raises `CheckpointError`."""
        fields = JsonFields(read, "the set", _FIELDS, optional=_OPTIONAL)
        cut = _read_cut(fields.mapping("cut"))
        log = {_partition(name): _read_tree(one) for name, one in fields.mapping("log").items()}
        if set(log) != set(cut.partitions()):
            refuse("the set's cut and its trees are not of the same partitions")
        sessions = fields.mapping("sessions")
        if len(sessions) > SESSIONS_MAX:
            refuse(f"the set has {len(sessions)} sessions; at most {SESSIONS_MAX} are read")
        policy, previous = fields.get("policy"), fields.get("previous")
        adopted = fields.get("adopted")
        return cls(
            training=_session_id(fields.text("training")),
            attempt=fields.count("attempt"),
            step=fields.count("step"),
            event_digest=bytes.fromhex(fields.digest("event")),
            cut=cut,
            log=log,
            sessions={_session_id(name): _read_position(one) for name, one in sessions.items()},
            policy=None if policy is None else fields.text("policy"),
            previous=None if previous is None else fields.text("previous"),
            adopted=None if adopted is None else _read_adopted(adopted),
        )


def _tree_fields(tree: MerkleRoot) -> Json:
    count, peaks = tree.stored()
    return {"size": count, "root": tree.root().hex(), "peaks": peaks.hex()}


def _read_tree(read: object) -> MerkleRoot:
    fields = JsonFields(read, "a tree of the set", "size root peaks")
    try:
        tree = MerkleRoot.from_stored(fields.count("size"), bytes.fromhex(fields.text("peaks")))
    except ValueError as error:
        refuse(f"a tree of the set: {error}")
    if tree.root().hex() != fields.digest("root"):
        refuse("a tree of the set does not have its root")
    return tree


def _position_fields(position: SessionPosition) -> Json:
    fields: Json = {"step": position.step, "event": position.event_digest.hex()}
    if position.state_digest is not None:
        fields["state"] = position.state_digest.hex()
    if position.fork_event is not None:
        fields["fork"] = position.fork_event.hex()
    return fields


def _read_position(read: object) -> SessionPosition:
    fields = JsonFields(read, "a session of the set", "step event", optional="state fork")
    return SessionPosition(
        fields.count("step"),
        bytes.fromhex(fields.digest("event")),
        *(
            None if fields.get(key) is None else bytes.fromhex(fields.digest(key))
            for key in ("state", "fork")
        ),
    )


def _read_adopted(read: object) -> AdoptedFolder:
    fields = JsonFields(read, "the adopted folder", "folder files")
    files = fields.items("files")
    if len(files) > FILES_MAX:
        refuse(f"the adopted folder has {len(files)} files; at most {FILES_MAX} are read")
    return AdoptedFolder(fields.text("folder"), tuple(_read_file(one) for one in files))


def _read_file(read: object) -> AdoptedFile:
    fields = JsonFields(read, "an adopted file", "path bytes sha256")
    path = fields.text("path")
    if path.startswith("/") or "\0" in path or ".." in path.split("/"):
        refuse(f"an adopted file lies outside of its folder: {path!r}")
    return AdoptedFile(path, fields.count("bytes"), fields.digest("sha256"))


def _read_cut(ends: Json) -> Cut:
    return Cut({_partition(name): _end(end) for name, end in ends.items()})


def _partition(name: str) -> int:
    if not (name.isascii() and name.isdigit() and len(name) < 10 and str(int(name)) == name):
        refuse(f"the set names the partition {name!r}")
    return int(name)


def _end(end: object) -> int:
    if type(end) is not int or not 0 < end < 1 << 63:
        refuse(f"the set's cut ends at {end!r}")
    return end


def _session_id(name: str) -> str:
    problem = session_id_problem(name)
    if problem is not None:
        refuse(f"the set names a session whose id {problem}")
    return name
