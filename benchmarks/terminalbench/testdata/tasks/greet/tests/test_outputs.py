from pathlib import Path


def test_exists():
    assert Path("greeting.txt").is_file()


def test_says_hello():
    assert Path("greeting.txt").read_text().strip() == "hello"
