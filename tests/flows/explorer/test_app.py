"""The page's server answers or says a sentence, whatever it is asked."""

import http.client
import json
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import httpx
import psutil
import pytest
import uvicorn

from flows.engine.own_server import free_port
from flows.explorer.answers import WAITING_SOLVES
from flows.explorer.app import explorer
from flows.steps.models.shipped import shipped_names

NAMES = shipped_names()
NAME = NAMES[0]


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """Provide a client of a real server on this machine."""
    port = free_port()
    config = uvicorn.Config(explorer(), host="127.0.0.1", port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        yield client
    server.should_exit = True
    thread.join(timeout=30)


def asked(client: httpx.Client, address: str, **question: object) -> dict:
    answer = client.post(address, json={"problem": NAME, **question})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_a_sample_is_predicted_and_solved(client: httpx.Client) -> None:
    predicted = asked(client, "/predict", seed=3)
    assert predicted["expected_error"] > 0
    assert 0 < predicted["coverage"] <= 0.9
    assert len(predicted["panels"][-1]["values"]) > 10
    solved = asked(client, "/solve", seed=3)
    assert solved["panels"] == predicted["panels"]
    assert 0 < solved["rel_l2"] < 1
    assert len(solved["solution"]["values"]) == len(solved["difference"]["values"])


def test_what_the_input_does_not_show_is_told(client: httpx.Client) -> None:
    known = {each["name"]: each for each in client.get("/problems").json()}
    knobs = [(name, knob) for name in NAMES for knob in known[name]["knobs"] if not knob["shows"]]
    for name, knob in knobs:
        changes = {knob["name"]: knob["lowest"]}
        answer = client.post("/predict", json={"problem": name, "seed": 1, "changes": changes})
        assert answer.json()["is_strange"]
        assert "its input does not show" in answer.json()["reasons"][0]


def test_the_page_comes_whole_and_asks_nobody_else(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    "address", ["/../../etc/passwd", "/box/burgers.safetensors", "/docs", "//"]
)
def test_there_is_no_way_to_a_file(client: httpx.Client, address: str) -> None:
    server = client.base_url.host, client.base_url.port
    with closing(http.client.HTTPConnection(*server, timeout=60)) as connection:
        connection.request("GET", address)  # as it stands; the other client would tidy it up
        answer = connection.getresponse()
        assert answer.status == 404
        assert json.loads(answer.read())["sentence"]


def test_another_host_is_not_answered(client: httpx.Client) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_a_thousand_malformed_questions_get_a_sentence_each(client: httpx.Client) -> None:
    draw = random.Random(0)
    good = json.dumps({"problem": NAME, "seed": 1, "changes": {}}).encode()

    def malformed(number: int) -> bytes:
        kinds = (
            lambda: bytes(draw.randrange(256) for _ in range(draw.randrange(60))),
            lambda: good[: draw.randrange(1, len(good) - 1)],
            lambda: json.dumps({"problem": NAME, "seed": draw.choice([-1, 1e9, "x", None])}),
            lambda: json.dumps({"problem": draw.choice(["../x", 3, None, [], "euler"])}),
            lambda: json.dumps(
                {"problem": NAME, "changes": {"viscosity": draw.choice(["a", 1e9])}}
            ),
            lambda: json.dumps({"problem": NAME, "changes": {"tolerance": 1.0}}),
            lambda: json.dumps({"problem": NAME, "file": "/etc/passwd"}),
            lambda: b"[" * 3000,
            lambda: b"x" * 5000,
            lambda: b'{"problem": "' + NAME.encode() + b'", "seed": NaN}',
        )
        made = kinds[number % len(kinds)]()
        return made.encode() if isinstance(made, str) else made

    before = psutil.Process().memory_info().rss
    for number in range(1000):
        address = "/solve" if number % 2 else "/predict"
        answer = client.post(address, content=malformed(number))
        assert answer.status_code == 400, answer.text
        said = answer.json()["sentence"]
        assert 5 < len(said) < 300
        assert "Traceback" not in said
    assert psutil.Process().memory_info().rss - before < 200 * 2**20


@pytest.mark.slow
def test_fifty_questions_at_once_are_answered_or_told_to_come_again(client: httpx.Client) -> None:
    def one(number: int) -> int:
        address = "/solve" if number % 5 == 0 else "/predict"
        return client.post(address, json={"problem": NAME, "seed": number}).status_code

    with ThreadPoolExecutor(50) as pool:
        codes = list(pool.map(one, range(50)))
    assert set(codes) <= {200, 503}
    assert codes.count(200) >= 40
    assert codes.count(503) <= 10 - min(WAITING_SOLVES, 1)
