"""The error of a client that failed; it can be sent to another process."""

import re

_LONGEST_CLIENT_ID = 80
_LONGEST_CAUSE = 300


def _shorten(text: str, length: int) -> str:
  """Cuts a long text, and says how long it was."""
  if len(text) <= length:
    return text
  return f"{text[:length]}... ({len(text)} characters)"


def _reason(cause: BaseException) -> str:
  """Returns an error's message on one line.

  Args:
    cause: Any error. TensorFlow's begin with the place in the graph, which is
      left out.

  Returns:
    The message, with each run of white space as one space.
  """
  text = str(cause)
  # A message of TensorFlow begins with the place in the graph, as far as it is
  # known, and then says what happened; the last line of the first part names
  # the node.
  _, node, rest = text.rpartition("\nNode: ")
  if node:
    text = rest.partition("\n")[2]
  text = re.sub(r"\{\{function_node [^}]*\}\}", "", text)
  return " ".join(text.split())


class KilledError(RuntimeError):
  """A signal ended the process of a client.

  `ClientFold` counts it as the client's own failure, so `on_client_error=skip`
  leaves the client out.
  """


class ClientError(RuntimeError):
  """A client's computation failed.

  The id of a virtual client names every user it merges, hence the shortening;
  the error that TensorFlow raised is the `__cause__`.

  Attributes:
    client_id: The whole id of the client.

  Args:
    client_id: The client; of a longer id, the message has the first 80
      characters.
    cause: Error of the client's computation; the message has up to 300
      characters of its own.
  """

  def __init__(self, client_id: str, cause: BaseException):
    self.client_id = client_id
    super().__init__(
      f"client {_shorten(client_id, _LONGEST_CLIENT_ID)!r} failed:"
      f" {type(cause).__name__}: {_shorten(_reason(cause), _LONGEST_CAUSE)}"
    )

  def __reduce__(self):
    # The cause is not sent to another process: it holds on to TensorFlow's
    # objects.
    return _restore_client_error, (self.client_id, str(self))


def _restore_client_error(client_id: str, message: str) -> ClientError:
  """Makes an error again that was pickled."""
  error = ClientError.__new__(ClientError)
  RuntimeError.__init__(error, message)
  error.client_id = client_id
  return error
