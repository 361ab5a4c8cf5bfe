"""Leaves hostile things behind, as an agent could: leave.py FILE, where the file says "WAY KIND SEED COUNT".

It removes and replaces what it meets, /tmp for one: run it in a sandbox only.

KIND files makes COUNT cases below the working directory, each in a folder of its own; the other kinds make one case
of what is collected itself: root (what is there instead, or far too much of it), processes, answer.
What cannot be made here (devices, owners, attributes) is left out. Standard output is the answer."""
import ctypes, fcntl, os, random, re, signal, socket, stat, struct, sys, time

with open(sys.argv[1]) as task:
    way, kind, seed, count = re.search(r"(\w+) (files|root|processes|answer) (\d+) (\d+)", task.read()).groups()
here = os.getcwdb()
out = b""


def name(r):
    k = r.randrange(12)
    if k == 0:
        n = bytes(r.choice([0xff, 0xfe, 0x80, 0xc0, 0xe9, 0xed, 0xa0, 0xf5]) for _ in range(r.randint(1, 40)))
    elif k == 1:
        n = bytes(r.randrange(1, 256) for _ in range(r.randint(1, 255)))
    elif k == 2:
        n = bytes(r.randrange(1, 32) for _ in range(r.randint(1, 20)))
    elif k == 3:
        n = r.choice([b"a", b"\xff", b"\xc3\xa9", b" "]) * 255
    elif k == 4:
        n = r.choice([b"-rf", b"--", b"...", b"..a", b" ", b"~", b"*", b"a=b", b"20 path=x\n", b"a\\b", b"c:", b"con", b"a ", b"a.", b"\r\n"])
    elif k == 5:
        n = r.choice(["\u202egpj.exe", "\u200b", "\ufeff", "\u2028", "a\u0301", "\ud7ff", "\U0001f4a9", "\u001b[2J"]).encode()
    elif k == 6:
        n = r.choice([b"reward.txt", b"solution.py", b"conftest.py", b"PaxHeaders.0", b"GNUSparseFile.0", b"@LongLink", b"EVALRUN.left_out", b".git", b"manifest.json"])
    else:
        n = bytes(r.choice(b"abcdefgh.-_ ") for _ in range(r.randint(1, 12)))
    n = n.replace(b"/", b"_").replace(b"\0", b"_")[:255]
    return b"_" if n in (b"", b".", b"..") else n


def target(r):
    return r.choice([b".", b"..", b"/", b"/proc/self/mem", b"/proc/self/fd/0", b"/dev/zero", b"/etc/passwd", b"../" * 50, b"x" * 4095,
                     b"\xff\xfe", b"/" + b"a/" * 2000, name(r), b"/tests", b"/logs/verifier/reward.txt", b"./" * 100 + b"loop", here])


def content(r):
    return r.choice([b"", b"x", b"\0" * 100, b"\xff\xfe", bytes(r.randrange(256) for _ in range(200)), b"1\n", b"nan", b"{" * 5000, b"[1e999]", b"\x1b]0;x\a"])


def mode(r):
    return r.choice([0, 0o1, 0o100, 0o444, 0o755, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, r.randrange(0o10000)])


def times(r):
    big = [0, 1, -1, 2**31, -2**31, 2**32, 2**33, 2**34, -2**34, 253402300800, -62135596801, 2**40, 2**55, -2**55, 2**62]
    return r.choice(big) * 10**9 + r.randrange(10**9), r.choice(big) * 10**9


libc = ctypes.CDLL(None, use_errno=True)


def utimens(p, a, m):
    """Without Python's own bounds."""
    ts = struct.pack("qqqq", a // 10**9, a % 10**9, m // 10**9, m % 10**9)
    libc.utimensat(-100, p, ts, 0x100)


def new(p):
    """Opens a new file; what is there already, a pipe say, is not waited for."""
    return os.fdopen(os.open(p, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644), "wb")


def touch(r, p):
    """Changes what can be changed of a name."""
    for _ in range(r.randrange(4)):
        try:
            k = r.randrange(6)
            if k == 0:
                os.chmod(p, mode(r))
            elif k == 1:
                utimens(p, *times(r))
            elif k == 2:
                os.chown(p, r.choice([0, 1, 1000, 65534, 2**31, 2**32 - 2]), r.choice([0, 1, 65534, 2**32 - 2]), follow_symlinks=False)
            elif k == 3:
                os.setxattr(p, r.choice([b"user.a", b"user." + b"x" * 200, b"security.capability", b"trusted.a", b"user.mime_type"]), content(r), follow_symlinks=False)
            elif k == 4:
                fd = os.open(p, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
                try:
                    fcntl.ioctl(fd, 0x40086602, struct.pack("l", r.choice([0x10, 0x20, 0x30, 0x8])))  # immutable, append only, sync
                finally:
                    os.close(fd)
            else:
                os.setxattr(p, b"system.posix_acl_access", struct.pack("<IHHIHHIHHIHHI", 2, 1, 0, 0, 4, 0, 0, 16, 0, 0, 32, 0, 0))
        except (OSError, ValueError, OverflowError):
            pass


def one(r, p, depth=0):
    """Makes one thing at p."""
    k = r.randrange(20)
    try:
        if k < 6:
            with new(p) as f:
                f.write(content(r))
        elif k < 9 and depth < 6:
            os.mkdir(p)
            for _ in range(r.randrange(5)):
                one(r, os.path.join(p, name(r)), depth + 1)
        elif k < 12:
            os.symlink(target(r), p)
        elif k == 12:
            os.symlink(os.path.basename(p), p)
        elif k == 13:
            os.mkfifo(p)
        elif k == 14:
            s = socket.socket(socket.AF_UNIX)
            d = os.open(os.path.dirname(p), os.O_RDONLY)
            s.bind(b"/proc/self/fd/%d/" % d + os.path.basename(p)[:60])
            os.close(d)
        elif k == 15:
            os.mknod(p, r.choice([stat.S_IFCHR, stat.S_IFBLK]) | 0o666, os.makedev(r.choice([1, 5, 7, 0]), r.choice([0, 3, 5, 8])))
        elif k == 16:
            with new(p) as f:
                for _ in range(r.randrange(6)):
                    f.seek(r.randrange(1 << r.choice([10, 14, 18])))
                    f.write(content(r))
                f.truncate(r.randrange(1 << 18))
        elif k == 17:
            with new(p) as f:
                f.write(b"twice")
            os.link(p, p[:-1] + b"L")
        elif k == 18:
            down(p, r.randint(1, 60), name(r)[:60])
        else:
            os.mkdir(p)
            for i in range(r.randrange(30)):
                new(os.path.join(p, b"%d" % i)).close()
    except (OSError, ValueError):
        return
    touch(r, p)


def down(p, n, each):
    """Nests n folders, as deep as one likes."""
    os.mkdir(p)
    fd = os.open(p, os.O_RDONLY)
    for _ in range(n):
        os.mkdir(each, dir_fd=fd)
        fd, old = os.open(each, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd), fd
        os.close(old)
    os.close(os.open(b"bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def remove(p):
    os.system("chmod -R u+rwx %s 2>/dev/null; rm -rf %s 2>/dev/null" % (p.decode(), p.decode()))


# What the ways of grading collect, or look at.
places = [b".", b"solution.py", b"out", b"out/deep/a.txt", b"reward", b"/tmp/out", b"/app", b"/logs/artifacts", b"/logs/verifier", b"/tests"]


def root(r):
    """Makes what is collected something else, or far too much."""
    p = os.path.join(here, r.choice(places))
    p = os.path.normpath(p)
    os.chdir("/")
    k = r.randrange(16)
    if k < 9:
        remove(p)
        os.makedirs(os.path.dirname(p), exist_ok=True)
        if k == 1:
            new(p).close()
        elif k == 2:
            os.symlink(target(r), p)
        elif k == 3:
            os.mkfifo(p)
        elif k == 4:
            down(p, r.choice([900, 998, 999, 1000, 1001, 1002, 1100, 3000]), b"d")
        elif k == 5:
            down(p, r.choice([15, 16, 17, 20, 40]), b"x" * r.choice([250, 254, 255]))
        elif k == 6:  # a file where a folder on the way is wanted
            remove(os.path.dirname(p))
            os.symlink(r.choice([os.path.basename(os.path.dirname(p)), b"/proc/self", b"/dev/null", b"/"]), os.path.dirname(p))
        elif k == 7:
            os.makedirs(os.path.dirname(p), exist_ok=True)
            with new(p) as f:
                f.write(content(r))
            touch(r, p)
        elif k == 8:
            one(r, p)
        return
    os.makedirs(p, exist_ok=True)
    if k == 9:
        for i in range(r.choice([9990, 10001, 12000, 20005])):
            new(os.path.join(p, b"%d" % i)).close()
    elif k == 10:
        with new(os.path.join(p, b"hole")) as f:
            f.truncate(r.choice([1 << 26, (1 << 26) + 1, 1 << 29, 1 << 33, 1 << 40, 1 << 43, (1 << 63) - 1]))
    elif k == 11:
        for i in range(20):
            with new(os.path.join(p, b"hole%d" % i)) as f:
                f.truncate(1 << 24)
    elif k == 12:
        with new(os.path.join(p, b"full")) as f:
            for _ in range(r.choice([10, 70, 300])):
                f.write(b"\0" * (1 << 20))
    elif k == 13:
        os.rename(p, p + b"-away")
        os.symlink(os.path.basename(p) + b"-away", p)
    elif k == 14:
        for i in range(40):
            os.mkdir(os.path.join(p, b"m%d" % i), 0)
        os.chmod(p, mode(r))
    else:
        for i in range(60):
            one(r, os.path.join(p, name(r)))
        touch(r, p)


def processes(r):
    """Leaves processes behind that are at work."""
    p = os.path.join(here, b"busy")
    os.makedirs(p, exist_ok=True)
    for _ in range(r.randint(1, 4)):
        k = r.randrange(7)
        if os.fork():
            continue
        os.setsid()
        for s in range(1, 32):
            try:
                signal.signal(s, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        n = 0
        while True:
            n += 1
            try:
                if k == 0:
                    os.rename(p, p + b"2")
                    os.rename(p + b"2", p)
                elif k == 1:
                    f = os.path.join(p, b"grow")
                    with open(f, "ab") as h:
                        h.write(b"x" * 4096)
                    if n % 100 == 0:
                        os.truncate(f, 0)
                elif k == 2:
                    f = os.path.join(p, b"kind")
                    os.path.lexists(f) and (os.rmdir(f) if os.path.isdir(f) and not os.path.islink(f) else os.unlink(f))
                    [os.mkfifo, os.mkdir, lambda x: os.symlink(b"/", x), lambda x: open(x, "w").close()][n % 4](f)
                elif k == 3:
                    one(random.Random(n), os.path.join(p, b"%d" % (n % 50)))
                elif k == 4 and os.fork() == 0:
                    os._exit(0)
                elif k == 5:
                    open(os.path.join(here, b"reward"), "w").write("1")
                elif k == 6:
                    time.sleep(1)
                time.sleep(0.0005)
            except OSError:
                time.sleep(0.001)


def answer(r):
    number = r.choice(["9" * 5000, "1e999", "-1e-999", "nan", "inf", "1/0", "0x10", "\u0663", "1" + ",000" * 3000, "1_0", "--1", "1e", "+" * 5000, "\\boxed{" * 2000, "$" * 3000])
    return r.choice([
        lambda: b"", lambda: b"\0", lambda: b"\xff\xfe\xed\xa0\x80", lambda: number.encode(), lambda: (number + "\n").encode() * 50,
        lambda: bytes(r.randrange(256) for _ in range(3000)), lambda: b"A" * (1 << 20), lambda: b"\xff" * (300 << 10), lambda: b"(" * 200000,
        lambda: "\u202e\u0000\ufeff\u2028\U0010ffff".encode(), lambda: b"```python\ndef f():\n  return 1", lambda: b"def f(): return '\0'",
        lambda: b"```" * 50000, lambda: b"def f(:\n" * 5000, lambda: b"\t" * 100000 + b"def f(): pass", lambda: b"[" * 100000, lambda: b'{"a":' * 50000,
        lambda: b"\x1b[2J\x1b]0;x\x07<script>alert(1)</script>" * 100, lambda: b"\r" * 100000, lambda: ("a\u0301" * 50000).encode(),
    ])()


for s in range(int(seed), int(seed) + int(count)):
    r = random.Random("%s %s %d" % (way, kind, s))
    if kind == "files":
        d = os.path.join(here, b"case%d" % s)
        try:
            os.mkdir(d)
        except OSError:
            continue
        for _ in range(r.randint(1, 12)):
            one(r, os.path.join(d, name(r)))
        touch(r, d)
        if s == int(seed):
            for p in places[1:5]:
                try:
                    os.makedirs(os.path.join(here, os.path.dirname(p)), exist_ok=True)
                except OSError:
                    continue
                if r.random() < 0.5:
                    one(r, os.path.join(here, p))
    elif kind == "answer":
        out += answer(r)
    else:
        try:
            {"root": root, "processes": processes}[kind](r)
        except (OSError, ValueError):
            pass
    if kind != "answer" and r.random() < 0.3:
        out += answer(r)[:10000]

sys.stdout.buffer.write(out)
sys.stdout.buffer.flush()
