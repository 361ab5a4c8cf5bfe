"""Functions to read and search files, for cells.

open_file, goto_line, scroll_down and scroll_up show a file by windows. search_file, search_dir and
find_file search. What they find is printed.
"""

import os as _os

__all__ = ["open_file", "goto_line", "scroll_down", "scroll_up", "search_file", "search_dir", "find_file"]

_MAX_HITS = 100
_MAX_LINE = 400  # characters shown of a line
_MAX_SIZE = 64 << 20  # bytes of a file that is read

_file = None  # the open file
_lines = []
_first = 1  # first line of the window
_height = 100


def _read(path):
    if _os.path.getsize(path) > _MAX_SIZE:
        raise ValueError("%s is larger than %d MiB" % (path, _MAX_SIZE >> 20))
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read().splitlines()


def _short(line):
    return line if len(line) <= _MAX_LINE else line[:_MAX_LINE] + " ..."


def _show(first):
    global _first
    last_start = max(len(_lines) - _height + 1, 1)
    _first = min(max(first, 1), last_start)
    end = min(_first + _height - 1, len(_lines))
    print("[File: %s (%d lines)]" % (_file, len(_lines)))
    if _first > 1:
        print("(%d lines above)" % (_first - 1))
    for n in range(_first, end + 1):
        print("%d|%s" % (n, _short(_lines[n - 1])))
    if end < len(_lines):
        print("(%d lines below)" % (len(_lines) - end))
    elif not _lines:
        print("(the file is empty)")


def _check_open():
    if _file is None:
        raise ValueError("no file is open: call open_file first")


def open_file(path, line_number=1, context_lines=100):
    """Opens a text file and shows context_lines lines of it, around line_number."""
    global _file, _lines, _height
    if not _os.path.isfile(path):
        raise FileNotFoundError("%s is not a file" % path)
    lines = _read(path)
    if not 1 <= line_number <= max(len(lines), 1):
        raise ValueError("line_number must be from 1 to %d" % max(len(lines), 1))
    if context_lines < 1:
        raise ValueError("context_lines must be at least 1")
    _file, _lines, _height = _os.path.abspath(path), lines, min(context_lines, 1000)
    _show(line_number - _height // 2)


def goto_line(line_number):
    """Shows the lines around a line of the open file, which is read again."""
    global _lines
    _check_open()
    _lines = _read(_file)
    if not 1 <= line_number <= max(len(_lines), 1):
        raise ValueError("line_number must be from 1 to %d" % max(len(_lines), 1))
    _show(line_number - _height // 2)


def scroll_down():
    """Shows the next lines of the open file."""
    _check_open()
    _show(_first + _height)


def scroll_up():
    """Shows the lines of the open file before those that were shown."""
    _check_open()
    _show(_first - _height)


def _matches(path, term):
    try:
        lines = _read(path)
    except (OSError, ValueError):
        return
    for n, line in enumerate(lines, 1):
        if term in line:
            yield n, line


def _walk(folder):
    if not _os.path.isdir(folder):
        raise NotADirectoryError("%s is not a folder" % folder)
    for root, dirs, files in _os.walk(folder):
        dirs[:] = sorted(d for d in dirs if not d.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield _os.path.join(root, name)


def _is_text(path):
    if not _os.path.isfile(path):  # such as a pipe, which would be waited for
        return False
    try:
        with open(path, "rb") as f:
            return b"\0" not in f.read(8192)
    except OSError:
        return False


def search_file(search_term, file_path=None):
    """Prints the lines of a file, by default the open one, that contain a text."""
    if file_path is None:
        _check_open()
        file_path = _file
    if not _os.path.isfile(file_path):
        raise FileNotFoundError("%s is not a file" % file_path)
    hits = 0
    for n, line in _matches(file_path, search_term):
        hits += 1
        if hits <= _MAX_HITS:
            print("%d|%s" % (n, _short(line)))
    _count(hits, search_term, file_path)


def search_dir(search_term, dir_path="./"):
    """Prints the lines that contain a text, of the text files below a folder. Hidden ones are left out."""
    hits = 0
    for path in _walk(dir_path):
        if hits > _MAX_HITS:
            break
        if not _is_text(path):
            continue
        for n, line in _matches(path, search_term):
            hits += 1
            if hits > _MAX_HITS:
                break
            print("%s:%d|%s" % (path, n, _short(line)))
    _count(hits, search_term, dir_path)


def find_file(file_name, dir_path="./"):
    """Prints the paths below a folder whose file name contains a text. Hidden ones are left out."""
    hits = 0
    for path in _walk(dir_path):
        if file_name in _os.path.basename(path):
            hits += 1
            if hits > _MAX_HITS:
                break
            print(path)
    _count(hits, file_name, dir_path)


def _count(hits, term, where):
    if hits > _MAX_HITS:
        print("[the first %d hits for %r in %s; there are more]" % (_MAX_HITS, term, where))
    else:
        print("[%d hits for %r in %s]" % (hits, term, where))
