"""Debian's Chromium for tests of pages, without downloads; `make browser` installs it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
_OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
_PAGE_S = 30


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """Runs a browser; skips the test on a laptop without one, and fails it in CI."""
    missing = [each for each in (CHROMIUM, DRIVER) if not Path(each).exists()]
    if missing:
        sentence = f"{' and '.join(missing)} are missing: make browser"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(sentence, pytrace=False)
        pytest.skip(sentence)
    options = Options()
    options.binary_location = CHROMIUM
    for each in _OPTIONS:
        options.add_argument(each)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(_PAGE_S)
    try:
        yield driver
    finally:
        driver.quit()


def show(
    driver: webdriver.Chrome,
    *,
    is_dark: bool = False,
    width: int = 1_000,
    height: int = 1_000,
    has_scripts: bool = True,
) -> None:
    """Sets how pages are shown from now on."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    theme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [theme]})
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not has_scripts})


def complaints(driver: webdriver.Chrome) -> list[str]:
    """Returns the lines of the console since the last call."""
    return [entry["message"] for entry in driver.get_log("browser")]  # type: ignore[no-untyped-call]
