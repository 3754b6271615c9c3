"""What schemathesis has to know about this wire; scripts/schema.sh hands it over."""

import re

import schemathesis

# RFC 9110, 5.1 and 5.5: the names and values that a header can have. A head that breaks these is no HTTP request; it is
# answered with 400 and nothing else, before any path is looked at, and not for this document to describe.
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@schemathesis.hook
def filter_case(context, case):
    """Whether the headers of a request are HTTP at all."""
    return all(NAME.fullmatch(str(name)) and VALUE.fullmatch(str(value)) for name, value in (case.headers or {}).items())


@schemathesis.deserializer("text/event-stream")
def stream(context, response):
    """A stream is a text for the document. client.py looks at its messages."""
    return response.content.decode("utf-8")
