"""Seals of a relay's lines: only the board can tell a right one, so a folder that all can read gives no key away.

The board and a learner agree on a secret of both (Diffie and Hellman, in group 14 of RFC 3526): each keeps a number,
shows a power of it, and raises the other's. The secret stands for the learner's key on the board, and seals each line.
"""

from __future__ import annotations

import hashlib
import hmac
import json

_PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B"
    "302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7EDEE386BFB5A899FA5AE9F24117C4B1FE6"
    "49286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB9ED529077096966D"
    "670C354E4ABC9804F1746C08CA18217C32905E462E36CE3BE39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718"
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
_GENERATOR = 2


def shown(secret: str) -> str:
    """Return what everybody may read of a secret."""
    return f"{pow(_GENERATOR, _exponent(secret), _PRIME):x}"


def agreed(secret: str, others: str) -> str:
    """Return what only the two who have a secret each can know: 64 hexadecimal digits.

    Args:
        secret: One's own.
        others: What the other shows.

    Raises:
        ValueError: If that is nothing that anybody shows.
    """
    power = int(others, 16) if len(others) <= 512 else 0
    if not 1 < power < _PRIME - 1:
        raise ValueError("no number of the group")
    return hashlib.sha256(f"{pow(power, _exponent(secret), _PRIME):x}".encode()).hexdigest()


def seal(secret: str, *said: object) -> str:
    """Return the seal of what is said, which only who knows the secret can make."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret.encode(), text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def _exponent(secret: str) -> int:
    return int(hashlib.sha512(b"labkit relay\0" + secret.encode()).hexdigest(), 16)
