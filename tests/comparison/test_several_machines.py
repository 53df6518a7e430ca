"""A race over several machines: processes of torchrun and nodes of Ray, all of them on this one."""

import json
import sys
import threading

import pytest
from processes import HANG, environment, forked_python, run_forked, run_python, wait_for

from elman.comparison import Race, RaceRun, torchrun_workers
from elman.errors import MissingExtra
from elman.runs import FileManifest


class Store(dict):
    """As torch's: bytes under names."""

    def set(self, key, value):
        self[key] = value.encode()

    def check(self, keys):
        return all(key in self for key in keys)

    def get(self, key):
        return self[key]


class Recorder:
    """A place that trains nothing."""

    def __init__(self):
        self.trained, self.interrupts, self.ended = [], [], threading.Event()

    def train(self, folder):
        self.trained.append(folder)
        if folder.name == "lost":
            raise OSError("no disk")
        if folder.name == "long":
            self.ended.wait(HANG)
        return {"code": 0, "peak_bytes": 1}

    def interrupt(self, number=2):
        self.interrupts.append(number)
        self.ended.set()

    def close(self):
        self.trained.append("closed")


def test_a_process_serves_another_until_it_is_told_to_end(monkeypatch, tmp_path):
    """Catches an error of the disk that ends the service, and with interrupts left in the store."""
    own, store = Recorder(), Store()
    monkeypatch.setattr(torchrun_workers, "_own", lambda modules: own)
    server = threading.Thread(target=torchrun_workers.serve, kwargs={"store": store, "rank": 1}, daemon=True)
    server.start()
    place = torchrun_workers.RankWorker(store, 1)
    assert place.train(tmp_path / "one") == {"code": 0, "peak_bytes": 1}
    assert place.train(tmp_path / "lost")["code"] == 1
    interrupter = threading.Thread(target=interrupt_when, args=(lambda: tmp_path / "long" in own.trained, place))
    interrupter.start()
    assert place.train(tmp_path / "long")["code"] == 0
    interrupter.join()
    place.close()
    server.join(HANG)
    assert not server.is_alive()
    assert own.trained == [tmp_path / "one", tmp_path / "lost", tmp_path / "long", "closed"]
    assert own.interrupts == [2]


def interrupt_when(begun, place):
    wait_for(begun)
    place.interrupt()


def test_trainings_do_not_think_that_they_are_one_of_many(monkeypatch):
    """Catches the environment handed on as it is."""
    from elman.comparison.workers import SpawningWorker

    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"):
        monkeypatch.setenv(name, "2")
    assert not {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"} & {
        *SpawningWorker({}).environment
    }


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    from elman.comparison import ray_workers

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"elman\[ray\]"):
        ray_workers.places("local")


def race(small, folder, run, *command):
    """Run by a command of its own; one entrant cannot be trained."""
    settings = small | {"entrants": {"rnn": {}, "lost": {"pattern": ["rnn"]}}, "trials": 1}
    (folder / "race.yaml").write_text(json.dumps(settings))
    running = RaceRun(Race.make(settings), folder / "race", workers=1)
    for job in running.plan.runs(running.plan.entrants[1], None, None):
        running.plan.make_folder(job)
        FileManifest(job.folder).write("config.yaml", b"model: {type: nonsense}\n")
    words = ["compare", "race.yaml", "--run", "race", "--resume", "--json"]
    ended = run(*command, *words, cwd=folder, env=environment(CUDA_VISIBLE_DEVICES=""))
    assert "2 in parallel" in ended.stderr, ended.stderr[-3000:]
    assert "lost seed-1: failed" in ended.stderr
    return settings


def ends_as_at_home(settings, folder):
    """Nothing is left to train; the numbers are those of a race on this machine alone."""
    done = RaceRun(Race.make(settings), folder / "race", workers=1, resume=True)
    assert {event.job.entrant for event in done.events() if event.job} == {"lost"}
    home = RaceRun(Race.make(settings | {"entrants": ["rnn"], "seeds": 1}), folder / "home", workers=1)
    assert {event.kind for event in home.events()} >= {"done"}
    assert home.jobs["rnn"][0].results["test"] == done.jobs["rnn"][0].results["test"]
    assert (folder / "race" / "report.html").exists()


@pytest.mark.slow
def test_a_race_over_the_processes_of_torchrun(small, tmp_path):
    """Two at a time; one that fails is told of, and the others go on. Catches the race run by both."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "127.0.0.1:0", "--no-python", "--", *forked_python(), "-m", "elman"]
    settings = race(small, tmp_path, run_forked, *launcher)
    ends_as_at_home(settings, tmp_path)


@pytest.mark.slow
def test_a_race_over_the_nodes_of_a_ray_cluster(small, tmp_path):
    """Of two nodes with a core each; in processes of their own, whose warnings are theirs."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'elman[ray]'")
    code = """
import sys
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 10**8})
cluster.add_node(num_cpus=1, object_store_memory=10**8)
try:
    from elman.cli.main import main
    main([*sys.argv[1:], "--ray", cluster.address])
finally:
    cluster.shutdown()
"""
    settings = race(small, tmp_path, run_python, "-c", code)
    ends_as_at_home(settings, tmp_path)
