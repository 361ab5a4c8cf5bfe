# Runs check(candidate) here, and the candidate's code in a forked process that gets arguments and gives back values as
# JSON. What the candidate does to its own process is its own business: the tests, the verdict's nonce and the way out
# for the verdict are only here. Input: two frames (8 bytes of length, JSON), the second read after the fork.
import os, sys


def codec():
    # The C core of the module json. The module itself imports re, and that would be a third of the time of a whole grading.
    try:
        import _json

        class context:
            strict, object_hook, object_pairs_hook, memo = True, None, None, {}
            parse_float, parse_int, parse_constant = float, int, float

        def refuse(v):
            raise TypeError(type(v).__name__)

        scan = _json.make_scanner(context)
        chunks = _json.make_encoder(None, refuse, _json.encode_basestring_ascii, None, ":", ",", False, False, True)

        def loads(b):
            text = b.decode()
            try:
                v, end = scan(text, 0)
            except StopIteration:
                raise ValueError("not JSON") from None
            if end != len(text):
                raise ValueError("more than one value")
            return v

        def dumps(v):
            return "".join(chunks(v, 0))

        sample = {"a": [1, -2.5, "\u2603\ud800\"", None, True, []], "b": {}}
        if loads(dumps(sample).encode()) != sample:
            raise ValueError
        return loads, dumps
    except Exception:  # a Python that has another core, or none
        import json
        return json.loads, json.dumps


loads, dumps = codec()


def fill(fd, n):
    parts = []
    while n > 0:
        b = os.read(fd, min(n, 1 << 20))
        if not b:
            raise EOFError
        parts.append(b)
        n -= len(b)
    return b"".join(parts)


def recv(fd):
    n = int.from_bytes(fill(fd, 8), "big")
    if n > 16 << 20:
        raise ValueError("a value of more than 16 MiB")
    return loads(fill(fd, n))


def send(fd, v):
    b = dumps(v).encode()
    b = len(b).to_bytes(8, "big") + b
    while b:
        b = b[os.write(fd, b):]


class Other:  # a value that cannot cross; equal to nothing
    given = False  # whether the candidate has given one

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return "<%s>" % self.name


class Items(Other):  # an iterable of another type
    def __init__(self, name, items):
        self.name, self.items = name, items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


def enc(v):
    if v is None or v is True or v is False:
        return v
    if isinstance(v, int):
        return int(v) if -1 << 63 <= v < 1 << 63 else ["i", hex(v)]
    if isinstance(v, float):
        return float(v)
    if isinstance(v, str):
        return str(v)
    for tag, t in (("l", list), ("t", tuple), ("s", set), ("z", frozenset)):
        if isinstance(v, t):
            return [tag, *map(enc, t.__iter__(v))]
    if isinstance(v, dict):
        return ["d", *([enc(k), enc(x)] for k, x in dict.items(v))]
    if isinstance(v, (bytes, bytearray)):
        return ["b", bytes(v).hex()]
    if isinstance(v, complex):
        return ["c", v.real, v.imag]
    name = type(v).__name__
    if (type(v).__module__, name) in (("fractions", "Fraction"), ("decimal", "Decimal")):
        return ["n", name, str(v)]
    if hasattr(v, "__iter__"):
        items = []
        for x in v:
            items.append(enc(x))
            if len(items) > 100000:
                return ["o", name]
        return ["I", name, *items]
    return ["o", name]


def dec(v):
    if not isinstance(v, list):
        return v
    tag, rest = v[0], v[1:]
    if tag == "i":
        return int(rest[0], 16)
    if tag in SEQ:
        return SEQ[tag](map(dec, rest))
    if tag == "d":
        return {dec(k): dec(x) for k, x in rest}
    if tag == "b":
        return bytes.fromhex(rest[0])
    if tag == "c":
        return complex(*rest)
    if tag == "n":
        import decimal, fractions
        return {"Fraction": fractions.Fraction, "Decimal": decimal.Decimal}[rest[0]](rest[1])
    if tag == "I":
        return Items(rest[0], [dec(x) for x in rest[1:]])
    Other.given = True
    return Other(rest[0])


SEQ = {"l": list, "t": tuple, "s": set, "z": frozenset}


class Site:  # python runs without site-packages, which saves a third of its start; whoever imports from there gets them
    def find_spec(self, name, path, target=None):
        if path is None and self in sys.meta_path:
            sys.meta_path.remove(self)
            import importlib.machinery, site
            site.main()
            return importlib.machinery.PathFinder.find_spec(name)


def play(first, calls, values):
    try:
        m = sys.modules["solution"] = type(sys)("solution")
        sys.meta_path.append(Site())
        exec(compile(first["source"], "solution.py", "exec"), m.__dict__)
        if not callable(m.__dict__.get(first["entry"])):
            raise NameError("there is no function %s" % first["entry"])
        f = m.__dict__[first["entry"]]
    except BaseException as e:
        send(values, {"dead": "%s: %s" % (type(e).__name__, str(e)[:2000])})
        return
    send(values, {"ready": 1})
    while True:
        raw = recv(calls)
        args, kwargs = dec(raw[0]), dec(raw[1])
        try:
            reply = {"value": enc(f(*args, **kwargs))}
        except BaseException as e:
            reply = {"raise": [type(e).__name__, str(e)[:2000]]}
        after = enc(args)
        if after != raw[0]:
            reply["args"] = after  # it changed its arguments, as the tests may see
        send(values, reply)


def drop():
    # A Python that only root can read, as below /root, could import nothing more as somebody else.
    path, bit = os.__file__, 4
    while path != "/":
        if not os.stat(path).st_mode & bit:
            return False
        path, bit = os.path.dirname(path), 1
    try:
        os.setgroups([])
    except OSError:
        pass
    try:
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        return True
    except OSError:
        return False


class Failed(Exception):
    pass


def main():
    first = recv(0)
    names = {}
    for tail in ("", "\n    pass\n"):  # what the prompt defines, for the tests; and its imports, once for both processes
        try:
            code = compile(first["prompt"] + tail, "prompt.py", "exec")
        except SyntaxError:
            continue
        exec(code, names)
        break
    verdict, null = os.dup(1), os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 1)
    calls, to_child = os.pipe()
    from_child, values = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for fd in (0, 2):
                os.dup2(null, fd)
            for fd in (verdict, null, to_child, from_child):
                os.close(fd)
            send(values, {"apart": drop()})
            recv(calls)
            play(first, calls, values)
        finally:
            os._exit(1)
    os.close(calls)
    os.close(values)
    out, state = {}, {"dead": None, "task": None}

    def candidate(*args, **kwargs):
        if state["dead"]:
            raise Failed(state["dead"])
        request = [enc(list(args)), enc(kwargs)]
        if '["o"' in dumps(request):
            if Other.given:  # the tests may have it from the candidate, whose fault it then is
                raise Failed("the function gave a value that cannot be handed to another process, and is called again")
            state["task"] = "the tests call the function with a value that cannot be handed to another process"
            raise Failed(state["task"])
        try:
            send(to_child, request)
            reply = recv(from_child)
            if "args" in reply:
                for a, b in zip(args, dec(reply["args"])):
                    if type(a) is type(b) is list:
                        a[:] = b
                    elif type(a) is type(b) and type(a) in (dict, set):
                        a.clear()
                        a.update(b)
            if "raise" not in reply:
                return dec(reply["value"])
            name, text = reply["raise"]
        except Exception as e:
            state["dead"] = "its process ended or gave no value: %s" % type(e).__name__
            raise Failed(state["dead"]) from None
        import builtins
        cls = getattr(builtins, str(name), None)
        if isinstance(cls, type) and issubclass(cls, Exception):
            try:
                error = cls(text)
            except TypeError:
                error = Failed("%s: %s" % (name, text))
            raise error
        raise Failed("%s: %s" % (name, text))

    candidate.__name__ = candidate.__qualname__ = first["entry"]
    names[first["entry"]] = candidate
    second, check, unfit = None, None, None

    def load():
        nonlocal second, check, unfit
        second = recv(0)
        try:
            exec(compile(second["test"], "tests.py", "exec"), names)
            check = names["check"]
        except BaseException as e:
            state["task"] = "the tests cannot be set up: %s: %s" % (type(e).__name__, e)
            unfit = e

    try:
        if not recv(from_child)["apart"]:
            # Same user: nobody may look into this process, nor at its open files (PR_SET_DUMPABLE). And where that user may write the
            # system's files, modules that are loaded later could be the candidate's: the tests load theirs before it runs.
            import ctypes, decimal, fractions
            out["shared"] = ctypes.CDLL(None).prctl(4, 0, 0, 0, 0) != 0
            load()
        send(to_child, 1)
        state["dead"] = recv(from_child).get("dead")
    except Exception:
        state["dead"] = "it ended before its function could be called"
    if second is None:
        load()
    try:
        if unfit is not None:
            raise unfit
        if state["dead"]:
            raise Failed(state["dead"])
        check(candidate)
        if state["dead"]:
            raise Failed(state["dead"])  # the tests caught it
        out["passed"] = True
    except BaseException as e:
        why, tb = "%s: %s" % (type(e).__name__, e), e.__traceback__
        while tb:
            if tb.tb_frame.f_code.co_filename == "tests.py":
                line = second["test"].splitlines()[tb.tb_lineno - 1:tb.tb_lineno]
                why = "tests.py:%d: %s: %s" % (tb.tb_lineno, "".join(line).strip()[:300], "%s %s" % (type(e).__name__, e))
            tb = tb.tb_next
        out["passed"], out["why"] = False, why[:2000]
    if state["task"]:
        out["passed"], out["task"] = False, state["task"][:2000]
    try:
        os.kill(pid, 9)
    except OSError:
        pass
    os.write(verdict, (second["nonce"] + " " + dumps(out) + "\n").encode())
    os._exit(0)


main()
