"""Huge pages: the same tensor, in other pages where the system has them."""

import re
import resource
import sys
from pathlib import Path

import pytest
import torch

from variants.pages import HUGE, advise, contact_s, reserve

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def huge_kib(tensor):
    """KiB in huge pages of the mapping that holds the middle of a tensor."""
    maps = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    for part in filter(None, maps):
        begin, end = (int(number, 16) for number in part.split(" ", 1)[0].split("-"))
        if begin <= tensor.data_ptr() + tensor.nbytes // 2 < end:
            found = re.search(r"AnonHugePages:\s+(\d+)", part)
            assert found
            return int(found[1])
    raise AssertionError("no mapping holds this tensor")


def resident():
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_it_gives_back_what_it_was_given():
    for tensor in (torch.arange(4), torch.arange(HUGE, dtype=torch.float32), torch.empty(HUGE, device="meta")):
        assert advise(tensor) is tensor
    assert torch.equal(advise(torch.arange(HUGE)), torch.arange(HUGE))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says what lies where")
def test_large_memory_lies_in_huge_pages():
    if not SETTING.exists() or "[never]" in SETTING.read_text():
        pytest.skip("transparent huge pages are turned off")
    tensor = advise(torch.empty(64 * HUGE, dtype=torch.uint8)).fill_(1)
    assert huge_kib(tensor) >= 60 * HUGE // 1024


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says what lies where")
def test_advised_memory_is_there_before_it_is_written():
    """Resident pages of the mapping, and that waiting for them is counted; what a page held, it holds."""
    before, waited = resident(), contact_s()
    tensor = advise(torch.empty(64 * HUGE, dtype=torch.uint8))
    assert 60 * HUGE <= resident() - before < 80 * HUGE
    assert contact_s() > waited
    held = torch.arange(4 * HUGE)
    assert torch.equal(advise(held), torch.arange(4 * HUGE))
    waited = contact_s()
    advise(torch.empty(16))
    assert contact_s() == waited
    del tensor


def test_reserved_memory_begins_with_a_huge_page_and_is_as_large_as_asked():
    for shape in ((3, 1, HUGE), (1, 2, HUGE + 16)):
        made = reserve(shape, torch.device("cpu"))
        assert made.shape == shape
        assert made.dtype == torch.uint8
        assert made.data_ptr() % HUGE == 0
        assert made.is_contiguous()
    assert reserve((4, 16), torch.device("cpu")).shape == (4, 16)
    assert reserve((HUGE,), torch.device("meta")).device.type == "meta"
