"""Spark's progress files: a torn one is not taken for a whole one."""

import pytest

from streaming.spark.progress_files import _is_whole

OFFSETS = b'v1\n{"batchWatermarkMs":0}\n{"arrivals":{"0":5}}\n-'


@pytest.mark.parametrize("content", [OFFSETS, b'v1\n{"nextBatchWatermarkMs":0}', OFFSETS + b"\n"])
def test_what_spark_writes_is_whole(content: bytes) -> None:
    assert _is_whole(content)


@pytest.mark.parametrize("content", [b"", b"v1", b"v1\n", OFFSETS[:40], b"\0" * 100, b"\xff\xfe"])
def test_what_a_crash_leaves_is_not(content: bytes) -> None:
    assert not _is_whole(content)
