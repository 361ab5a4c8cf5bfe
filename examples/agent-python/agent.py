#!/usr/bin/env python3
"""An agent for evalrun in one file, standard library only. It speaks docs/protocol.md: JSON lines over stdin and stdout.

With a model it lets the model run commands until it has an answer; without one it looks around and gives up.
"""
import json
import sys


class Evalrun:
    """The other side of the pipe."""

    def __init__(self):
        self.start = json.loads(sys.stdin.readline())
        self.ids = 0
        self.send(type="start", protocol=1, name="agent-python", version="1")

    def send(self, **message):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()  # a pipe is buffered: without this evalrun waits for us, and we for evalrun

    def ask(self, **message):
        self.ids += 1
        self.send(id=self.ids, **message)
        answer = json.loads(sys.stdin.readline())
        if answer["type"] == "error":
            raise RuntimeError(f"{answer['error']['class']}: {answer['error']['text']}")
        return answer

    def run(self, command):
        """Runs a shell command in the sandbox and returns what came of it: {"code": 0, "output": "…", …}"""
        return self.ask(type="step", kind="run", body={"command": command})["event"]["body"]

    def finish(self, text="", gave_up=""):
        self.send(type="finish", answer={"parts": [{"text": text}] if text else [], "gave_up": gave_up})


SHELL = {"name": "sh", "description": "Runs a shell command.", "schema": {
    "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}}


def with_model(ev, messages):
    while True:
        reply = ev.ask(type="model", messages=messages, tools=[SHELL])["reply"]
        calls = reply.get("calls", [])
        if not calls:
            return "\n".join(p.get("text", "") for p in reply.get("parts", []))
        messages.append({"role": "assistant", "parts": reply.get("parts", []), "calls": calls})
        for call in calls:
            try:
                seen = ev.run(json.loads(call["args"])["command"])
                text = f"exit code {seen.get('code')}\n{seen.get('output', '')}"
            except (ValueError, KeyError, TypeError) as e:  # the model wrote something odd: it is told
                text = f"not a call of sh: {e!r}"
            messages.append({"role": "tool", "call_id": call["id"], "parts": [{"text": text}]})


def main():
    ev = Evalrun()
    if ev.start["model"] is None:
        print("no model; looking around", file=sys.stderr)  # stdout is for messages alone
        seen = ev.run("pwd; ls -a") if "run" in ev.start["kinds"] else {}
        return ev.finish(gave_up="no model; here is " + seen.get("output", "nothing").replace("\n", " "))
    ev.finish(with_model(ev, [{"role": "user", "parts": ev.start["goal"]["parts"]}]))


if __name__ == "__main__":
    main()
