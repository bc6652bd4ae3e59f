"""Takes the pictures of the dashboard for the documents, from one that runs.

    make demo                                                  # prints the dashboard's address; --keep keeps it up
    .venv/bin/python -m docs.generate_screenshots ADDRESS [QUEUE]

It writes docs/images/dashboard.png and dashboard-*.png; commit those that a document shows. It needs Chromium
(`make browser`).
"""

import sys
from pathlib import Path
from urllib.parse import quote

from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from tests.support.browsers import browser, show

_IMAGES = Path(__file__).parent / "images"
_WIDTH, _MOST_HEIGHT = 1_000, 1_100
_PAGE_S = 20


def main(address: str, queue: str) -> None:
    """Writes a picture of each page in each theme."""
    pages = {"queues": "", "queue": f"queue?name={quote(queue)}&period=5m", "activity": "activity"}
    with browser() as driver:
        for name, path in pages.items():
            for theme in ("light", "dark"):
                _take(driver, address.rstrip("/") + "/" + path, _file(name, theme), theme)


def _file(name: str, theme: str) -> Path:
    """Returns the file of a picture; the one that the README shows has the short name."""
    is_first = (name, theme) == ("queue", "light")
    return _IMAGES / ("dashboard.png" if is_first else f"dashboard-{name}-{theme}.png")


def _take(driver: webdriver.Chrome, address: str, file: Path, theme: str) -> None:
    show(driver, is_dark=theme == "dark", width=_WIDTH, height=1)
    driver.get(address)
    is_live = "return document.getElementById('live').className === 'is-live'"
    WebDriverWait(driver, _PAGE_S).until(lambda shown: shown.execute_script(is_live))
    height = min(_MOST_HEIGHT, int(driver.execute_script("return document.documentElement.scrollHeight")))
    show(driver, is_dark=theme == "dark", width=_WIDTH, height=height)
    file.write_bytes(driver.get_screenshot_as_png())
    sys.stdout.write(f"{file}: {file.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "orders")
