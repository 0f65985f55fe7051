"""A policy trained by two ranks, which kill -9 cannot set back: run the same command again.

    python train_policy.py --workspace runs --steps 60

Customers come to a desk with a complaint; the policy learns which tool answers it (REINFORCE, with
a learned baseline). Sessions are recorded as in record_desk.py, each call with the policy version
that made it. They live over several updates, and a refund is answered one update after it was
called: whenever a set is saved some sessions are open, and some of those wait for an answer. The
five marked lines are what makes the training go on as if it had never stopped.
"""

import argparse
import hashlib
import multiprocessing
import os
import random
import sys
import tempfile
import threading
from multiprocessing.connection import wait

import torch
import torch.distributed as dist

import steplog  # 1

TRAINING = "desk-policy"
RANKS = 2
TASKS = 24  # in one epoch
NEW_TASKS = 4  # for all ranks together, every other step
SAVE_INTERVAL = PUBLISH_INTERVAL = 5
TOOLS = ("refund", "resend", "voucher", "apologize")
COMPLAINTS = ("broken", "lost", "late", "rude")  # TOOLS has the right answer to each


class Desk:
    """One task: so many customers, one after the other. All it knows is in `state`."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.state = {"left": rng.randint(2, 6), "complaint": rng.choice(COMPLAINTS), "rng": rng}

    def use(self, tool: str) -> float:
        """Answer the customer; the reward is 1.0 where the tool was the right one."""
        right = TOOLS[COMPLAINTS.index(self.state["complaint"])]
        self.state["left"] -= 1
        self.state["complaint"] = self.state["rng"].choice(COMPLAINTS)
        return float(tool == right)


class Policy(torch.nn.Module):
    """Of a complaint: logits of the tools, and the reward that is expected."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Embedding(len(COMPLAINTS), 16),
            torch.nn.Tanh(),
            torch.nn.Linear(16, len(TOOLS) + 1),
        )

    def forward(self, complaints: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and values."""
        both = self.layers(complaints)
        return both[:, :-1], both[:, -1]

    def choose(self, complaint: str) -> str:
        """Draw a tool."""
        with torch.no_grad():
            logits, _ = self(torch.tensor([COMPLAINTS.index(complaint)]))
        return TOOLS[int(torch.multinomial(logits.softmax(1), 1))]

    def loss(self, decisions: list[tuple[str, str, float]]) -> torch.Tensor:
        """Of what was complained of, which tool was used, and the reward; summed."""
        complaints = torch.tensor([COMPLAINTS.index(one) for one, _, _ in decisions]).long()
        tools = torch.tensor([TOOLS.index(tool) for _, tool, _ in decisions]).long()
        rewards = torch.tensor([reward for _, _, reward in decisions])
        logits, values = self(complaints)
        chosen = logits.log_softmax(1).gather(1, tools[:, None])[:, 0]
        advantages = (rewards - values).detach()
        return ((rewards - values) ** 2 - advantages * chosen).sum()


class Rollout:
    """A session under way: the recorder, the environment, and its rewards so far."""

    def __init__(self, session: steplog.SessionRecorder, desk: Desk) -> None:
        self.session = session
        self.desk = desk

    @classmethod
    def begin(cls, ws: steplog.Workspace, task: int, epoch: int, step: int) -> "Rollout":
        """A new session. A name that a killed run has used for it is taken: `~2` follows."""
        desk = Desk(seed=1000 * epoch + task)
        session = ws.record(
            f"{TRAINING}/epoch-{epoch}/task-{task}",
            environment="desk",
            sample_id=f"epoch-{epoch}/task-{task}",
            training=TRAINING,
            training_step=step,
            state=lambda: desk.state,
            if_exists="new",
        )
        return cls(session, desk)

    @classmethod
    def resume(cls, ws: steplog.Workspace, name: str) -> "Rollout":
        """A session of the set, where it stood there."""
        desk = Desk(seed=0)
        session = ws.resume(name, state=lambda: desk.state)
        desk.state = session.state
        return cls(session, desk)

    def play(self, policy: Policy, version: str) -> list[tuple[str, str, float]]:
        """Make one call, or answer the one that is open; the decision whose reward is known.

        What a killed run left open is answered here too: the desk stands before the call then, and
        does the same once more.
        """
        complaint = self.desk.state["complaint"]
        for call in self.session.open_calls:
            reward = self.desk.use(call.tool)
            self.session.record_tool_return(call.step, "done", reward=reward)
            return [(complaint, call.tool, reward)]
        self.session.policy = version
        tool = policy.choose(complaint)
        if tool == "refund":
            self.session.record_tool_call(tool, {"for": complaint}, effects="idempotent")
            self.session.flush()  # The call is in the log before a set is saved.
            return []
        with self.session.call(tool, {"for": complaint}, effects="idempotent") as call:
            call.reward = reward = self.desk.use(tool)
        return [(complaint, tool, reward)]

    def end_if_done(self) -> bool:
        """Close the session after the last customer."""
        if self.desk.state["left"] == 0:
            self.session.close()
        return self.session.closed


def train(rank: int, place: str, steps: int, meeting: str) -> None:
    """One rank."""
    threading.Thread(target=end_with_launcher, daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    policy, actor = Policy(), Policy()  # What is trained, and the version of it that acts.
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    tasks = steplog.SampleOrder(TASKS, batch_size=NEW_TASKS, seed=3, rank=rank, world_size=RANKS)
    parts = {"model": policy, "optimizer": optimizer, "scheduler": scheduler, "data": tasks}
    torch.manual_seed(1 + rank)  # The ranks draw different tools.
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)

    config = steplog.CheckpointConfig(save_interval=SAVE_INTERVAL, keep_last_n=2)
    with steplog.open_workspace(place) as ws, ws.training(TRAINING, config=config) as run:  # 2
        restored = run.restore_latest(**parts)  # 3
        done, names = (restored.step, restored.progress) if restored else (0, [])
        if rank == 0:
            if restored:
                tell(f"restored the set after step {done}: {restored.set_id}")
            begun_after = steplog.SessionFilter(
                training_session=TRAINING, training_step_min=done + 1
            )
            ws.void_sessions(begun_after, reason=f"trained again from step {done}", fence=True)
        dist.barrier()  # Nothing new begins before.
        rollouts = [Rollout.resume(ws, restored.sessions[name]) for name in names]

        acting = restored.policy if restored else run.publish_policy(0, policy)
        run.restore_policy(acting, actor)

        for step in range(done + 1, steps + 1):
            if step % 2:
                epoch = tasks.epoch
                rollouts += [Rollout.begin(ws, one, epoch, step) for one in tasks.next_batch()]
            decisions = [one for rollout in rollouts for one in rollout.play(actor, acting)]
            rollouts = [rollout for rollout in rollouts if not rollout.end_if_done()]
            update(policy, optimizer, decisions, rank, step)
            scheduler.step()
            if step % PUBLISH_INTERVAL == 0:
                acting = run.publish_policy(step, policy)  # 4
                actor.load_state_dict(policy.state_dict())
            if run.is_due(step) or step == steps:
                run.checkpoint(  # 5
                    step, **parts, progress=[one.session.session_id for one in rollouts]
                )
    if rank == 0:
        tell(f"weights {sha256_of(policy.state_dict())}")
        tell(f"optimizer {sha256_of(optimizer.state_dict()['state'])}")
    dist.destroy_process_group()


def update(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    decisions: list[tuple[str, str, float]],
    rank: int,
    step: int,
) -> None:
    """One update by the mean gradient over the decisions of all ranks."""
    optimizer.zero_grad()
    policy.loss(decisions).backward()
    gradients = [one.grad for one in policy.parameters()]
    sums = torch.tensor([sum(reward for _, _, reward in decisions), len(decisions)])
    flat = torch.cat([sums, *(one.flatten() for one in gradients)])
    dist.all_reduce(flat)
    sizes = [one.numel() for one in gradients]
    reward, count = flat[0].item(), max(flat[1].item(), 1.0)
    for one, summed in zip(gradients, flat[2:].split(sizes), strict=True):
        one.copy_(summed.view_as(one) / count)
    optimizer.step()
    if rank == 0:
        tell(f"step {step}: reward {reward / count:.2f}")


def tell(line: str) -> None:
    """Print it in one write: the lines of the ranks and the launcher never mix, nor end halfway."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sha256_of(tree: object) -> str:
    """Over all bytes of all tensors."""
    digest = hashlib.sha256()
    for name, value in sorted((str(key), value) for key, value in tree.items()):
        own = sha256_of(value) if isinstance(value, dict) else value.numpy().tobytes().hex()
        digest.update(f"{name}={own};".encode())
    return digest.hexdigest()


def end_with_launcher() -> None:
    """A rank whose launcher was killed must not go on alone."""
    multiprocessing.parent_process().join()
    os._exit(1)


def launch(place: str, steps: int) -> int:
    """Run all ranks. Where one of them ends badly, end the others at once."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    with tempfile.TemporaryDirectory() as folder:
        arguments = (place, steps, os.path.join(folder, "meeting"))
        ranks = [multiprocessing.Process(target=train, args=(n, *arguments)) for n in range(RANKS)]
        try:
            for number, one in enumerate(ranks):
                one.start()
                tell(f"rank {number} is process {one.pid}")
            running = {one.sentinel: one for one in ranks}
            while running:
                ended = [running.pop(one) for one in wait(running)]
                for one in ended:
                    one.join()
                bad = [(one.exitcode, ranks.index(one)) for one in ended if one.exitcode]
                if bad:
                    code, number = min(bad)  # A signal is below 0, and what the other failed of.
                    tell(f"rank {number} ended with {code}: run the same command again")
                    return 1
        finally:
            for one in ranks:
                one.kill()
                one.join()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workspace", default="runs")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    sys.exit(launch(given.workspace, given.steps))
