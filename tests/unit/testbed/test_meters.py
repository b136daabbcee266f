import os

from pulsarcast.testbed import meters


def test_of_a_process_that_has_just_ended_there_is_no_memory_to_count() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # it is over, and nobody has asked how
    try:
        assert meters.pss_bytes(pid) == meters.own_rss_bytes(pid) == meters.rss_bytes(pid) == 0
        assert meters.cpu_s(pid) >= 0
    finally:
        os.waitpid(pid, 0)
    assert meters.pss_bytes(os.getpid()) > 0
