# Reads pages from standard input and writes what BrowserGym's own functions make of them: see differential.go. Each text has its length
# before it, as eight digits of base 16.
import importlib.util
import os
import sys
import unittest.mock
import warnings

warnings.simplefilter("ignore")


def load(name, folder):
    spec = importlib.util.spec_from_file_location(name, os.path.join(folder, *name.split(".")) + ".py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# The texts need neither pictures nor a browser: what BrowserGym imports for these is a sham.
for name in ("numpy", "PIL", "PIL.Image", "PIL.ImageDraw", "PIL.ImageFont", "browsergym", "browsergym.core", "browsergym.utils"):
    sys.modules[name] = unittest.mock.MagicMock()
folder = next(p for p in sys.path if os.path.exists(os.path.join(p, "browsergym", "utils", "obs.py")))
load("browsergym.core.constants", folder)
obs = load("browsergym.utils.obs", folder)

import bs4
from lxml import etree


def read():
    n = sys.stdin.buffer.read(8)
    return sys.stdin.buffer.read(int(n, 16)).decode() if n else None


def write(text):
    raw = text.encode()
    sys.stdout.buffer.write(b"%08x" % len(raw) + raw)


def made(kind, f, *args):
    try:
        write("=" + f(*args))
    except Exception as e:
        write("!%s" % type(e).__name__)


# A snapshot of text in text: the inner one is put into the page as it is.
def dom(page):
    nodes = {
        "nodeType": [3, 3], "nodeName": [1, 1], "nodeValue": [-1, 0], "parentIndex": [-1, 0], "attributes": [[], []],
        "contentDocumentIndex": {"index": [], "value": []},
    }
    return obs.flatten_dom_to_str({"strings": [page, "#text"], "documents": [{"nodes": nodes}]})


write("lxml %s with libxml2 %s, bs4 %s" % (etree.__version__, ".".join(map(str, etree.LIBXML_VERSION)), bs4.__version__))
sys.stdout.buffer.flush()
while (page := read()) is not None:
    made("dom", dom, page)
    made("prune", obs.prune_html, page)
    sys.stdout.buffer.flush()
