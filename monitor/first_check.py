"""What is said of a swarm of which nothing is published yet: how far the first check is, or that nobody reports. Pure."""

from __future__ import annotations

from monitor.progress import Progress, Stage
from monitor.published import Watch, ago, timely


def first_check(seen: Watch) -> str:
    """How far the check is that nothing was published before; where none reports, that, and for how long."""
    progress, now = seen.progress, seen.read_at
    if progress is None:
        return "Nothing has been seen of this swarm yet."
    if progress.stage is None:
        since = seen.last_crawl.finished_at if seen.last_crawl is not None else progress.heard_at
        if timely(since, now, seen.interval_s):
            return f"Waiting for the first check; one is due every {seen.interval_s:g} s."
        return _nobody_reports(now - since)
    if progress.silent(now):
        return _nobody_reports(now - progress.heard_at)
    begun = "First check" if seen.last_crawl is None else "Another check"
    return f"{begun} running for {ago(max(0.0, now - progress.begun_at))}{_so_far(progress)}"


def _nobody_reports(silent_s: float) -> str:
    return f"No crawl has reported for {ago(silent_s)}; is the crawl worker running?"


def _so_far(progress: Progress) -> str:
    """` (bootstrap 2/3, 2 models, 41 of 126 blocks read)…`, as far as it is."""
    counts = progress.counts
    up, peers = counts.get(Stage.ENTRANCES, (0, 0))
    if progress.stage is Stage.STARTING:
        return ": starting a peer of our own…"
    if progress.stage is Stage.ENTRANCES and not up:
        return f": asking {peers} bootstrap {'peer' if peers == 1 else 'peers'}…"
    done = [f"bootstrap {up}/{peers}"]
    if Stage.MODELS in counts:
        models = counts[Stage.MODELS][0]
        done.append(f"{models} {'model' if models == 1 else 'models'}")
    if Stage.BLOCKS in counts:
        read, blocks = counts[Stage.BLOCKS]
        done.append(f"{read:,} of {blocks:,} blocks read")
    if Stage.SERVERS in counts:
        asked, servers = counts[Stage.SERVERS]
        done.append(f"{asked:,} of {servers:,} servers asked")
    return f" ({', '.join(done)})…"


def is_news(seen: Watch) -> bool:
    """Whether there is more to say than how the last crawl went: another one runs, or is overdue."""
    if seen.progress is None or seen.last_crawl is None or seen.published is not None:
        return False
    return seen.progress.stage is not None or not timely(seen.last_crawl.finished_at, seen.read_at, seen.interval_s)
