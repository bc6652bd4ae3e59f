"""Two instances: kill -9 of routers, transports and brokers of both sides, and a link that is cut, under load.

Each message comes once, and in order. FAULTS_MOMENTS sets the number of faults. FAULTS_SEED replays a plan.
"""

import os
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from streaming.system.ports import HOST
from streaming.system.relay import Relay
from tests.support.fault_scene import KillableBroker, Report, kill_with_java
from tests.support.killable_programs import Program
from tests.support.seeds import fresh_seed
from tests.support.service_scene import ORDERS, RESERVE, ServiceScene
from tests.support.service_traffic import Traffic
from tests.support.transporting import headers_of
from tests.support.waiting import wait_until

MOMENTS = int(os.environ.get("FAULTS_MOMENTS") or 4)
SIDES = ("north", "south")
VICTIMS = ("link", *(f"{victim} {side}" for victim in ("router", "transport", "broker") for side in SIDES))
# After an attempt to connect that failed, a destination is left alone for up to 70 s.
DEADLINE_S = 240.0


class Side:
    """An instance, with a broker of its own, to which the other instance comes through a relay."""

    def __init__(self, name: str, folder: Path, relay: Relay) -> None:
        folder.mkdir()
        self.name = name
        self.relay = relay
        self.broker = KillableBroker(folder, relay)
        self._folder = folder

    def open(self) -> None:
        """Makes the scene; the broker must run."""
        self.scene = ServiceScene(self.broker.bootstrap_servers, self._folder)
        self.programs: dict[str, Program] = {each: self.scene.program(each) for each in ("router", "transport")}

    def define(self, far: "Side") -> None:
        """Creates the own service, and the route to the other instance's."""
        scene, run = self.scene, self.scene.shell.run
        own = {"north": ("shop", ORDERS, scene.orders, RESERVE), "south": ("stock", RESERVE, scene.reserve, ORDERS)}
        database, service, queue, far_service = own[self.name]
        run("database", "create", database)
        run("service", "create", service, "--database", database, "--queue", queue)
        address = f"tcp://{HOST}:{far.relay.port}/{far.scene.prefix}"
        run("route", "create", "far", "--database", database, "--service", far_service, "--address", address)

    def waiting(self) -> int:
        """Returns the number of conversations with messages that are held or not acknowledged."""
        return len(self.scene.rows(self.scene.topics.service_transmissions))

    def hit(self, victim: str, random: Random) -> None:
        """Kills a program or the broker, and starts it again."""
        if victim == "broker":
            self.broker.kill()
            time.sleep(random.uniform(0, 3))  # the length of the outage
            self.broker.start()
            return
        program = self.programs[victim]
        if victim == "router":
            kill_with_java(program)
        else:
            program.kill()
        program.start()
        program.wait_until_ready()


@pytest.mark.timeout(420 + 40 * MOMENTS)
@pytest.mark.usefixtures("java_and_jars")
def test_each_message_between_instances_comes_once_and_in_order(tmp_path: Path, report: Report) -> None:
    seed = fresh_seed("FAULTS_SEED")
    print(f"FAULTS_SEED={seed} FAULTS_MOMENTS={MOMENTS} pytest {__file__}")  # noqa: T201  (shown if the test fails)
    random = Random(seed)  # noqa: S311  (no secret)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(MOMENTS)]
    random.shuffle(victims)
    with Relay() as to_north, Relay() as to_south:
        north, south = Side("north", tmp_path / "north", to_north), Side("south", tmp_path / "south", to_south)
        sides = {"north": north, "south": south}

        def hit(victim: str) -> None:
            if victim == "link":
                cut = random.choice(([to_north], [to_south], [to_north, to_south]))
                for relay in cut:
                    relay.cut()
                time.sleep(random.uniform(1, 12))  # the length of the cut
                for relay in cut:
                    relay.mend()
                return
            what, side = victim.split()
            sides[side].hit(what, random)

        with north.broker, south.broker:
            for side in sides.values():
                side.open()
            north.define(south)
            south.define(north)
            with (
                north.scene.running(*north.programs.values()),
                south.scene.running(*south.programs.values()),
            ):
                traffic = Traffic(north.scene, random, south.scene)
                with traffic.going_on():
                    for victim in victims:
                        time.sleep(random.uniform(1, 4))  # a moment by the plan; this does not wait for a result
                        hit(victim)
                    time.sleep(random.uniform(1, 4))
                traffic.settle(DEADLINE_S)
                wait_until(lambda: not any(map(Side.waiting, sides.values())), DEADLINE_S, "all acknowledgements")
                for side in sides.values():
                    for program in side.programs.values():
                        program.check()
            outcome = traffic.faults()
            letters = [
                headers_of(letter)
                for side in sides.values()
                for letter in side.scene.read(side.scene.topics.service_dead_letters, 0)
            ]
    counts = Counter(victim.split()[0] for victim in victims)
    fault = "instances: " + ", ".join(f"{victim} {count}" for victim, count in sorted(counts.items()))
    report(fault, MOMENTS, outcome)
    assert not letters, letters[:3]
    assert (outcome.lost, outcome.invented, outcome.repeated) == (0, 0, 0)
