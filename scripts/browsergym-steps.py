"""Measures BrowserGym on one MiniWoB page: medians of a step and a reset, with its own delays and with none. Called by scripts/browsergym."""

import json
import statistics
import sys
import time

import browsergym.miniwob  # registers the tasks
import gymnasium
import playwright.sync_api
from browsergym.core.action.highlevel import HighLevelActionSet
from browsergym.utils.obs import flatten_axtree_to_str, flatten_dom_to_str, prune_html

STEPS = 11


def texts(obs):
    extra = obs["extra_element_properties"]
    flatten_axtree_to_str(obs["axtree_object"], extra, with_visible=True, with_clickable=True)
    prune_html(flatten_dom_to_str(obs["dom_object"], extra, with_visible=True, with_clickable=True))


def timed(f):
    t = time.perf_counter()
    texts(f())
    return time.perf_counter() - t


def use(browser):
    """Makes every launch, that of the chat's own browser too, one of this program."""
    launch = playwright.sync_api.BrowserType.launch
    playwright.sync_api.BrowserType.launch = lambda self, **options: launch(self, **{**options, "executable_path": browser})


def measure(**options):
    actions = HighLevelActionSet(subsets=["chat", "infeas", "bid", "coord", "nav", "tab"])
    env = gymnasium.make(
        "browsergym/miniwob.login-user",
        action_mapping=actions.to_python_code,
        **options,
    ).unwrapped
    try:
        resets = [timed(lambda: env.reset(seed=seed)[0]) for seed in range(3)]
        obs, _ = env.reset(seed=1)
        text = flatten_axtree_to_str(obs["axtree_object"])
        field = next(line.strip() for line in text.splitlines() if "] textbox" in line)[1:].split("]")[0]
        steps = {
            name: statistics.median(timed(lambda: env.step(code)[0]) for _ in range(STEPS))
            for name, code in (("nothing", "noop(0)"), ("a click", f"click('{field}')"), ("a fill", f"fill('{field}', 'abc')"))
        }
    finally:
        env.close()
    return statistics.median(resets), steps


def main():
    use(sys.argv[1])
    out = []
    for name, options in (("", {}), (", all its delays at zero", {"slow_mo": 0, "pre_observation_delay": 0})):
        reset, steps = measure(**options)
        out += [{"name": f"a full step, {what}{name}", "seconds": s} for what, s in steps.items()]
        out.append({"name": f"a reset{name}", "seconds": reset})
    json.dump(out, sys.stdout)


main()
