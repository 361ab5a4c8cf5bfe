"""Plays recorded episodes on pages with BrowserGym itself, and keeps its pictures: one PNG for each that is new, and a line of runs.jsonl for each step.
So one sees how far the reference agrees with itself. Called by scripts/browsergym -replay.

As when they were recorded, the session that draws stays attached, so that the layout viewport is kept."""

import base64
import gzip
import hashlib
import http.server
import json
import pathlib
import sys
import threading
import urllib.parse

import browsergym.core.env
import playwright.sync_api
from browsergym.core.action.highlevel import HighLevelActionSet
from browsergym.core.observation import extract_screenshot
from browsergym.core.task import OpenEndedTask
from browsergym.utils.obs import flatten_axtree_to_str

browser, recordings, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
drawn = {}


class Pages(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        page = recordings / "pages" / pathlib.PurePosixPath(urllib.parse.urlparse(self.path).path).name
        self.send_response(200 if page.is_file() else 404)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(page.read_bytes() if page.is_file() else b"<title>404</title>not found")


class Session:
    def __init__(self, page):
        self.real = page.context.new_cdp_session(page)

    def send(self, method, params=None):
        answer = self.real.send(method, params)
        if method == "Page.captureScreenshot":
            drawn["png"] = base64.b64decode(answer["data"])
        return answer

    def detach(self):
        pass


class Drawn:
    """A page whose sessions stay attached."""

    def __init__(self, page):
        self.page, self.context = page, self

    def new_cdp_session(self, _):
        return Session(self.page)

    def __getattr__(self, name):
        return getattr(self.page, name)


def play(name, run):
    with gzip.open(recordings / f"{name}.jsonl.gz", "rt") as f:
        header, *observations = map(json.loads, f)
    actions = HighLevelActionSet(subsets=["chat", "infeas", "bid", "coord", "nav", "tab"], **header["action_set"])
    same = ("viewport", "slow_mo", "timeout", "tags_to_mark", "pre_observation_delay", "terminate_on_infeasible")
    env = browsergym.core.env.BrowserEnv(
        task_entrypoint=OpenEndedTask,
        task_kwargs={"start_url": header["start_url"], "goal": observations[0]["goal"]},
        action_mapping=actions.to_python_code,
        **{k: header[k] for k in same},
    )
    try:
        for o in observations:
            obs = env.reset(seed=header["seed"])[0] if o["kind"] == "reset" else env.step(o["action"])[0]
            digest = hashlib.sha256(obs["screenshot"].tobytes()).hexdigest()
            (out / f"{pathlib.Path(name).name}.{o['index']:02d}.{digest[:12]}.png").write_bytes(drawn["png"])
            text = flatten_axtree_to_str(obs["axtree_object"])
            yield {
                "name": name,
                "run": run,
                "index": o["index"],
                "picture": digest == o["screenshot"]["sha256_rgb"],
                "text": text == o["texts"].get("ax_default", text),
                "error": obs["last_action_error"].split("\n")[0] == o["last_action_error"].split("\n")[0],
                "sha256_rgb": digest,
            }
    finally:
        env.close()


def main():
    launch = playwright.sync_api.BrowserType.launch
    playwright.sync_api.BrowserType.launch = lambda self, **o: launch(self, **{**o, "executable_path": browser})
    browsergym.core.env.extract_screenshot = lambda page: extract_screenshot(Drawn(page))
    for port in (8931, 8932):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Pages)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "runs.jsonl", "a") as log:
        for run in range(int(sys.argv[4])):
            for name in sys.argv[5:]:
                steps = list(play(name, run))
                log.writelines(json.dumps(s) + "\n" for s in steps)
                print(name, run, *(f"{k} differ: {[s['index'] for s in steps if not s[k]]}" for k in ("picture", "text", "error")), flush=True)


main()
