from pathlib import Path


def test_price():
    assert Path("/app/price.txt").read_text().strip() == "4217"
