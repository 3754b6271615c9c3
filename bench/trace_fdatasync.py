"""Traces a broker's system calls and checks that every acknowledged command was synced before its answer.

A kill -9 cannot show this: what a process has written survives it, synced or not. So the broker runs under strace,
and for every changing command the trace must show, in this order: the request is read from a socket; bytes of the
command are written to a file of the store; fdatasync (or fsync) of that very file begins, and returns 0; the answer is
written to the socket.

First one command at a time, every changing method: all that was written to the file meanwhile must be synced. Then
many at a time, so that groups are committed: each command carries texts of its own, which are looked for in the bytes
of the writes.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

CALLS = "fdatasync,fsync,write,pwrite64,writev,pwritev,pwritev2,sendto,sendmsg,read,recvfrom,readv,recvmsg"
WRITES = {"write", "pwrite64", "writev", "pwritev", "pwritev2", "sendto", "sendmsg"}
READS = {"read", "recvfrom", "readv", "recvmsg"}
SYNCS = {"fdatasync", "fsync"}

DEADLINE_SECONDS = 60


@dataclass
class Command:
    """A changing command that was acknowledged."""

    ident: str
    method: str
    # Texts that must be in the store before the answer is on the socket.
    marks: list = field(default_factory=list)


@dataclass
class Event:
    """One system call; `start` and `end` are its places in the order of the trace."""

    name: str
    path: str
    text: str
    start: int
    end: int = -1
    result: int = -1


class Caller:
    """One keep-alive connection, one call at a time."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.connection = http.client.HTTPConnection(host, int(port), timeout=DEADLINE_SECONDS)
        self.commands = []

    def call(self, ident, method, params):
        body = json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params})
        self.connection.request("POST", "/rpc", body, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200 or "result" not in answer:
            raise SystemExit(f"{method}: HTTP {response.status}, {answer}")
        return answer["result"]

    def change(self, ident, method, params, marks=()):
        result = self.call(ident, method, params)
        if result.get("applied") is False:
            raise SystemExit(f"{method} was not applied: {result}")
        self.commands.append(Command(ident, method, list(marks)))
        return result

    def create(self, ident, **more):
        tool, payload = f"tool-of-{ident}", f"arguments-of-{ident}"
        params = {"toolName": tool, "arguments": {"text": payload}, **more}
        return self.change(ident, "store/create", params, [tool, payload])["task"]["taskId"]


def every_method(caller):
    """Each changing method, one call at a time."""
    number = iter(range(10_000))

    def ident():
        return f"single-{next(number):04}-end"

    def change(task, method, marks=(), **params):
        caller.change(ident(), method, {"taskId": task, **params}, marks)

    task = caller.create(ident())
    question = {"method": "elicitation/create", "params": {"message": "question-one"}}
    change(task, "store/requireInput", ["question-one"], inputRequests={"key-one": question})
    change(task, "store/applyInput", ["answer-one"], inputResponses={"key-one": {"text": "answer-one"}})
    change(task, "store/setStatus", ["message-one"], status="working", message="message-one")
    change(task, "store/setTtl", ttlMs=1_234_567)
    change(task, "store/setMeta", ["meta-one"], meta={"text": "meta-one"})
    change(task, "store/complete", ["result-one"], result={"text": "result-one"})
    change(task, "store/discard")
    task = caller.create(ident())
    change(task, "store/fail", ["error-one", "data-one"],
           error={"code": -1, "message": "error-one", "data": "data-one"})
    task = caller.create(ident())
    change(task, "store/cancel", ["reason-one"], reason="reason-one")
    task = caller.create(ident())
    change(task, "store/requireInput", ["question-two"], inputRequests={"key-two": question | {"x": "question-two"}})
    change(task, "tasks/update", ["answer-two"], inputResponses={"key-two": {"text": "answer-two"}})
    change(task, "tasks/cancel")
    # A payload of several pieces, and one call with an idempotency key.
    large = "x" * 100_000
    task = caller.create(ident(), idempotencyKey="trace-key-one")
    change(task, "store/complete", ["large-result"], result={"text": large + "large-result"})


def many_at_once(address, threads, each):
    """Commands of many connections, so that one sync serves several of them."""
    commands, failures = [], []

    def work(thread):
        try:
            caller = Caller(address)
            for number in range(each):
                name = f"thread-{thread:03}-{number:03}"
                task = caller.create(f"{name}-create")
                text = f"message-of-{name}"
                caller.change(f"{name}-status", "store/setStatus",
                              {"taskId": task, "status": "working", "message": text}, [text])
                text = f"result-of-{name}"
                caller.change(f"{name}-complete", "store/complete",
                              {"taskId": task, "result": {"text": text}}, [text])
            commands.extend(caller.commands)
        except (SystemExit, OSError, ValueError) as error:
            failures.append(f"thread {thread}: {error}")

    workers = [threading.Thread(target=work, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise SystemExit("\n".join(failures))
    return commands


COMPLETE = re.compile(r"^(\d+) +\S+ (\w+)\((.*)\) += (-?\d+)")
UNFINISHED = re.compile(r"^(\d+) +\S+ (\w+)\((.*) <unfinished \.\.\.>$")
RESUMED = re.compile(r"^(\d+) +\S+ <\.\.\. (\w+) resumed>(.*)\) += (-?\d+)")
DESCRIPTOR = re.compile(r"^\d+<(.*?)>(?=, |$| <)")


def read_trace(path):
    """The system calls, in the order in which they began."""
    events, open_calls = [], {}
    with open(path, encoding="utf-8", errors="replace") as lines:
        for place, line in enumerate(lines):
            if found := UNFINISHED.match(line):
                thread, name, text = found.groups()
                open_calls[thread] = event(name, text, place)
                events.append(open_calls[thread])
            elif found := RESUMED.match(line):
                thread, name, text, result = found.groups()
                call = open_calls.pop(thread, None)
                if call is not None and call.name == name:
                    call.text += text
                    call.end, call.result = place, int(result)
            elif found := COMPLETE.match(line):
                _, name, text, result = found.groups()
                call = event(name, text, place)
                call.end, call.result = place, int(result)
                events.append(call)
    return events


# The journal's files consist of sectors that begin with a mark (docs/storage.md); between the marks is what was committed.
SECTOR, MARK = 512, 12
JOURNAL = re.compile(r"/journal-[01]$")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def committed(write):
    """The bytes of a write as far as they are somebody's, written as strace writes them."""
    if not JOURNAL.search(write.path):
        return write.text
    texts = [match.group(1) for match in QUOTED.finditer(write.text)]
    # strace writes octal escapes and the usual letters, which are Python's too.
    raw = "".join(texts).encode("latin-1", "replace").decode("unicode_escape").encode("latin-1")
    if len(raw) % SECTOR:
        raise SystemExit(f"a write of {len(raw)} bytes to {write.path} is not made of whole sectors")
    return b"".join(raw[at + MARK:at + SECTOR] for at in range(0, len(raw), SECTOR)).decode("latin-1")


def event(name, text, place):
    found = DESCRIPTOR.match(text)
    path = found.group(1) if found else ""
    return Event(name, path, text, place)


class Trace:
    """The calls that matter, sorted by what they are."""

    def __init__(self, events, data):
        def in_store(call):
            return call.path.startswith(data + "/")

        self.writes = [call for call in events if call.name in WRITES and in_store(call)]
        for write in self.writes:
            write.text = committed(write)
        self.syncs = [call for call in events if call.name in SYNCS and in_store(call) and call.result == 0]
        self.failed_syncs = [call for call in events if call.name in SYNCS and call.end >= 0 and call.result != 0]
        self.sent = [call for call in events if call.name in WRITES and is_socket(call)]
        self.received = [call for call in events if call.name in READS and is_socket(call)]

    def window(self, command):
        """From the end of the read that brought the command to the beginning of the write of its answer."""
        quoted = f'\\"{command.ident}\\"'
        received = [call for call in self.received if quoted in call.text and call.end >= 0]
        sent = [call for call in self.sent if quoted in call.text]
        if not received or not sent:
            raise SystemExit(f"{command.ident} is not in the trace: {len(received)} reads, {len(sent)} sends")
        return received[0].end, sent[0].start

    def synced(self, write, before):
        """Whether a sync of the same file lies wholly between the end of this write and `before`."""
        if write.end < 0 or write.result < 0:
            return False
        return any(
            sync.path == write.path and write.end < sync.start and sync.end < before for sync in self.syncs
        )

    def check(self, command, alone):
        """What is wrong with this command, or None."""
        begin, answer = self.window(command)
        meanwhile = [write for write in self.writes if begin < write.start < answer]
        if not meanwhile:
            return "nothing was written to the store before the answer"
        for mark in command.marks:
            written = [write for write in meanwhile if mark in write.text]
            if not written:
                return f"{mark} was not written before the answer"
            if not self.synced(written[0], answer):
                return f"{mark} was written to {written[0].path} and not synced before the answer"
        if alone:
            files = {write.path for write in meanwhile}
            last = [[write for write in meanwhile if write.path == path][-1] for path in files]
            if not any(self.synced(write, answer) for write in last):
                return f"no sync between the last write to {', '.join(sorted(files))} and the answer"
        elif not any(self.synced(write, answer) for write in meanwhile):
            return "no sync of the store before the answer"
        return None


def is_socket(call):
    return call.path.startswith(("TCP:", "TCPv6:", "socket:"))


class Broker:
    """A broker under strace. With -D strace is the grandchild, so the process id is the broker's own."""

    def __init__(self, program, data, trace):
        strace = ["strace", "-D", "-f", "-tt", "-yy", "-s", str(16 << 20), "-e", f"trace={CALLS}", "-o", trace]
        serve = [program, "serve", "--listen", "127.0.0.1:0", "--store", f"sled:{data}", "--log-format", "json"]
        settings = {name: value for name, value in os.environ.items() if not name.startswith("TASK_BROKER_")}
        self.process = subprocess.Popen(
            strace + serve, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, env=settings)
        self.trace = trace
        self.lines = []
        self.address = self.find_address()
        # Reads on, so that the pipe never fills up.
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def find_address(self):
        timer = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        timer.start()
        for line in self.process.stderr:
            self.lines.append(line)
            try:
                fields = json.loads(line).get("fields", {})
            except ValueError:
                continue
            if fields.get("message") == "listening":
                timer.cancel()
                return fields["address"]
        raise SystemExit("the broker did not listen:\n" + "".join(self.lines[-20:]))

    def stop(self):
        """Ends the broker and waits until the trace is complete."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(DEADLINE_SECONDS)
        if status != 0:
            raise SystemExit(f"the broker ended with {status}:\n" + "".join(self.lines[-20:]))
        ended = f"{self.process.pid} "
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            with open(self.trace, "rb") as trace:
                trace.seek(max(0, os.path.getsize(self.trace) - 4096))
                tail = trace.read().decode("utf-8", "replace").splitlines()
            if any(line.startswith(ended) and "+++ exited" in line for line in tail):
                return
            time.sleep(0.05)
        raise SystemExit("the trace has no end")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--broker", default="target/release/task-broker")
    options.add_argument("--threads", type=int, choices=range(1, 129), default=32, metavar="1..128")
    options.add_argument("--each", type=int, choices=range(1, 11), default=3, metavar="1..10",
                         help="tasks of each thread")
    options.add_argument("--dir", default=None, help="where the temporary directory with the store is made")
    options.add_argument("--keep", metavar="FILE", help="keep the trace")
    options = options.parse_args()

    with tempfile.TemporaryDirectory(prefix="task-broker-trace-", dir=options.dir) as directory:
        directory = os.path.realpath(directory)
        data, path = os.path.join(directory, "data"), os.path.join(directory, "trace")
        broker = Broker(options.broker, data, path)
        try:
            caller = Caller(broker.address)
            every_method(caller)
            many = many_at_once(broker.address, options.threads, options.each)
            broker.stop()
        finally:
            if broker.process.poll() is None:
                broker.process.kill()
        trace = Trace(read_trace(path), data)
        if options.keep:
            shutil.copyfile(path, options.keep)

    return judge(trace, caller.commands, many)


def judge(trace, single, many):
    """Prints the verdict; 0 if every command was synced before its answer."""
    wrong = []
    for commands, alone in [(single, True), (many, False)]:
        for command in commands:
            if reason := trace.check(command, alone):
                wrong.append(f"{command.method} ({command.ident}): {reason}")
    wrong += [f"{call.name} of {call.path} returned {call.result}" for call in trace.failed_syncs]
    print(f"{len(single)} commands one at a time, {len(many)} commands in groups")
    print(f"{len(trace.writes)} writes to the store, {len(trace.syncs)} syncs")
    for line in wrong[:50]:
        print(line)
    print("FAIL" if wrong else "PASS every acknowledged command was written and synced before its answer")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
