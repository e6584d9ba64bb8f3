"""Draw all random numbers from a key; only ``privsql.dp_random`` draws as well, for differential privacy."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from privsql import system
from privsql.errors import EngineError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

Origin = Literal["system", "key-file", "seed"]
KEY_BYTES = 32


class Shuffler(Protocol):
    """Draws uniform permutations and integers for mechanisms; a numpy ``Generator`` fits this protocol.

    Tests replace it by one that runs through all possible draws.
    """

    def integers(self, low: int, high: int, size: int | None = None) -> Any:
        """Return ``size`` independent integers, or one if it is None, exactly uniform on low, .., high - 1."""

    def permutation(self, items: int | NDArray[Any]) -> NDArray[Any]:
        """Return a copy of ``items`` in uniformly random order; a whole number stands for 0, .., items - 1."""

    def shuffle(self, items: NDArray[Any]) -> None:
        """Put ``items`` into uniformly random order in place."""


class Chooser(Protocol):
    """Chooses uniformly without replacement; a numpy ``Generator`` fits this protocol."""

    def choice(self, number: int, size: int, *, replace: bool, shuffle: bool) -> NDArray[np.int64]:
        """Return ``size`` different numbers from 0, .., number - 1; every set of them is equally likely."""


@dataclass(frozen=True)
class Key:
    """A secret key, whose bytes do not show in ``repr``.

    Attributes:
        origin: Where the key came from.
        secret: The bytes of the key.
        fresh: Whether it was drawn for a single use and is not stored, so that nothing else can have been made with it.
    """

    origin: Origin
    secret: bytes = field(repr=False)
    fresh: bool = False

    @property
    def reference(self) -> str:
        """Return where the key comes from and a one-way digest of it.

        The publisher's ledger tells keys apart by this text.
        """
        digest = hashlib.blake2b(b"reference", key=self.secret, digest_size=8, person=b"privsql").hexdigest()
        return f"{self.origin}:{digest}"

    def derive_key(self, *purpose: object) -> Key:
        """Return a key for one purpose; it reveals neither this key nor the keys for other purposes."""
        digest = hashlib.blake2b(
            _purpose_bytes(purpose), key=self.secret, digest_size=KEY_BYTES, person=b"privsql-derived"
        )
        return Key(self.origin, digest.digest())

    def word(self, *purpose: object, bits: int = 128) -> pa.Table:
        """Return a secret text for one purpose, with which engines compute keyed hashes.

        It holds ``bits`` bits derived from the key, in base 64. The default of 128 bits has 22 characters, so that the
        secret text and a few numbers still fit into one block of SHA-256, which makes hashing fast.

        Returns:
            A table of one row and one column ``word``.
        """
        import pyarrow as pa

        bits_of_key = self.derive_key("word", *purpose).secret[: bits // 8]
        return pa.table({"word": [base64.urlsafe_b64encode(bits_of_key).decode().rstrip("=")]})

    def random_generator(self, *purpose: object) -> np.random.Generator:
        """Return a generator of random numbers (ChaCha20) for one purpose, which the key and the purpose determine.

        Its seed is the BLAKE2b hash of the purpose, keyed with the secret; different purposes are independent. The same
        key and purpose repeat the random choices. So two tables with equal sensitive values and counts would share
        them: use a key file for one table only.
        """
        import numpy as np
        from randomgen import ChaCha

        digest = hashlib.blake2b(_purpose_bytes(purpose), key=self.secret, digest_size=KEY_BYTES, person=b"privsql")
        return np.random.Generator(ChaCha(key=int.from_bytes(digest.digest(), "little"), rounds=20))


def _purpose_bytes(purpose: tuple[object, ...]) -> bytes:
    return "\x1f".join(str(part) for part in purpose).encode()


def system_key() -> Key:
    """Return a fresh key from the operating system."""
    return Key("system", secrets.token_bytes(KEY_BYTES), fresh=True)


def random_token() -> str:
    """Return a random token for a web address that can't be guessed: 256 bits from the operating system."""
    return secrets.token_urlsafe(KEY_BYTES)


def seed_key(seed: int) -> Key:
    """Return a key for tests; anyone who knows the seed can repeat every random choice."""
    return Key("seed", hashlib.blake2b(str(seed).encode(), digest_size=KEY_BYTES, person=b"privsql-seed").digest())


def key_file(path: Path) -> Key:
    """Read the key in ``path`` (64 hexadecimal digits), or create the file with mode 0600 if it does not exist.

    Raises:
        UsageError: Other users can read the file, or it does not hold a key.
        EngineError: The file can't be read or written.
    """
    if path.exists():
        return Key("key-file", _read_key(path))
    try:
        # Create the file in one step, so that it is complete or missing, and never replaces another one.
        secret, draft = secrets.token_bytes(KEY_BYTES), path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(secret.hex() + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, path)
        finally:
            draft.unlink()
        return Key("key-file", secret)
    except FileExistsError:
        return Key("key-file", _read_key(path))
    except OSError as error:
        raise EngineError(f"key file {path}: {error.strerror}") from error


def _read_key(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(f"key file {path}: {error.strerror}") from error
    if system.for_others(mode):
        raise UsageError(f"key file {path} is readable by other users; run: chmod 600 {path}")
    try:
        secret = bytes.fromhex(content.decode("ascii").strip())
    except ValueError:
        secret = b""
    if len(secret) != KEY_BYTES:
        raise UsageError(f"key file {path} does not hold a key of {2 * KEY_BYTES} hexadecimal digits")
    return secret
