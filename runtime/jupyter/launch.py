# Starts a kernel for the process that reads our standard output, and tells it the kernel's ports. The
# key of its messages comes from the standard input.
import json, os, shutil, sys, tempfile

say = os.dup(1)
os.dup2(2, 1)


def tell(**what):
    os.write(say, (json.dumps(what) + "\n").encode())


try:
    from ipykernel.kernelapp import IPKernelApp
except Exception as e:
    tell(error="%s: %s" % (type(e).__name__, e))
    sys.exit(3)

key = sys.stdin.readline().strip()
folder = tempfile.mkdtemp(prefix=".kernel-")
try:
    name = os.path.join(folder, "connection.json")
    ports = dict.fromkeys(("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port"), 0)
    with os.fdopen(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
        json.dump(dict(ports, transport="tcp", ip="127.0.0.1", key=key, signature_scheme="hmac-sha256"), f)
    app = IPKernelApp.instance()
    app.initialize(["-f", name, "--ipython-dir=" + folder, "--HistoryManager.enabled=False"])
    tell(shell=app.shell_port, iopub=app.iopub_port, control=app.control_port)
except Exception as e:
    tell(error="%s: %s" % (type(e).__name__, e))
    sys.exit(4)
finally:
    # The kernel has read what it needs, and nothing is left among the agent's files.
    shutil.rmtree(folder, ignore_errors=True)
os.close(say)
app.start()
