"""The checker of traces must be able to fail. Run with `python3 -m unittest discover bench`."""

import tempfile
import unittest

from trace_fdatasync import Command, Trace, read_trace

REQUEST = r'7 10:00:00.1 recvfrom(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, "POST {\"id\":\"call-1\",\"x\":\"mark-1\"}", 8192, 0) = 40'
WRITE = r'8 10:00:00.2 pwrite64(5</data/db>, "\0\1mark-1\377", 4096, 0) = 4096'
SYNC = "8 10:00:00.3 fdatasync(5</data/db>) = 0"
ANSWER = r'7 10:00:00.4 sendto(9<TCP:[127.0.0.1:1->127.0.0.1:2]>, "HTTP {\"id\":\"call-1\"}", 20, MSG_NOSIGNAL, NULL, 0) = 20'


def verdict(*lines, alone=True, marks=("mark-1",)):
    with tempfile.NamedTemporaryFile("w", suffix=".trace") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        trace = Trace(read_trace(file.name), "/data")
    return trace.check(Command("call-1", "store/create", list(marks)), alone)


class ACommandIsFine(unittest.TestCase):
    def test_when_it_is_read_written_synced_and_answered_in_this_order(self):
        self.assertIsNone(verdict(REQUEST, WRITE, SYNC, ANSWER))
        self.assertIsNone(verdict(REQUEST, WRITE, SYNC, ANSWER, alone=False))

    def test_when_calls_of_other_threads_come_in_between(self):
        self.assertIsNone(verdict(
            REQUEST,
            r'8 10:00:00.2 pwrite64(5</data/db>, "mark-1", 6, 0 <unfinished ...>',
            '6 10:00:00.2 write(2</dev/pts/0>, "x", 1) = 1',
            "8 10:00:00.2 <... pwrite64 resumed>) = 6",
            "8 10:00:00.3 fdatasync(5</data/db> <unfinished ...>",
            "8 10:00:00.3 <... fdatasync resumed>) = 0",
            ANSWER))

    def test_when_the_marks_of_the_journals_sectors_cut_its_text(self):
        begin, end = "\\1" * 12 + "x" * 496 + "mark", "\\2" * 12 + "-1" + "\\0" * 498
        write = f'8 10:00:00.2 pwrite64(5</data/journal-0>, "{begin}{end}", 1024, 512) = 1024'
        sync = SYNC.replace("/data/db", "/data/journal-0")
        self.assertIsNone(verdict(REQUEST, write, sync, ANSWER))
        self.assertIn("mark-2 was not written", verdict(REQUEST, write, sync, ANSWER, marks=["mark-2"]))

    def test_in_a_group_when_the_next_group_is_written_before_its_answer(self):
        later = r'8 10:00:00.35 pwrite64(5</data/db>, "other", 5, 4096) = 5'
        self.assertIsNone(verdict(REQUEST, WRITE, SYNC, later, ANSWER, alone=False))


class ACommandIsWrong(unittest.TestCase):
    def test_when_nothing_was_written(self):
        self.assertIn("nothing was written", verdict(REQUEST, SYNC, ANSWER))

    def test_when_something_else_was_written(self):
        self.assertIn("mark-2 was not written", verdict(REQUEST, WRITE, SYNC, ANSWER, marks=["mark-2"]))

    def test_when_there_is_no_sync(self):
        self.assertIn("not synced", verdict(REQUEST, WRITE, ANSWER))
        self.assertIn("no sync", verdict(REQUEST, WRITE, ANSWER, marks=[]))
        self.assertIn("no sync", verdict(REQUEST, WRITE, ANSWER, marks=[], alone=False))

    def test_when_the_sync_comes_before_the_write_or_after_the_answer(self):
        self.assertIn("not synced", verdict(REQUEST, SYNC, WRITE, ANSWER))
        self.assertIn("not synced", verdict(REQUEST, WRITE, ANSWER, SYNC))

    def test_when_the_sync_began_before_the_write_or_ended_after_the_answer(self):
        begun = "6 10:00:00.15 fdatasync(5</data/db> <unfinished ...>"
        ended = "6 10:00:00.45 <... fdatasync resumed>) = 0"
        self.assertIn("not synced", verdict(REQUEST, begun, WRITE, ended, ANSWER))
        self.assertIn("not synced", verdict(REQUEST, WRITE, begun, ANSWER, ended))

    def test_when_the_sync_failed_or_was_of_another_file(self):
        self.assertIn("not synced", verdict(REQUEST, WRITE, SYNC.replace("= 0", "= -1 EIO (Input/output error)"), ANSWER))
        self.assertIn("not synced", verdict(REQUEST, WRITE, SYNC.replace("/data/db", "/data/other"), ANSWER))

    def test_alone_when_the_last_write_was_not_synced(self):
        head = r'8 10:00:00.35 pwrite64(5</data/db>, "head", 4, 4096) = 4'
        self.assertIn("no sync between the last write", verdict(REQUEST, WRITE, SYNC, head, ANSWER))


if __name__ == "__main__":
    unittest.main()
