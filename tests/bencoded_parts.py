"""Changes one part of a bencoded dictionary, as a rogue host or a bad disk would."""

from collections.abc import Callable

from torrentdist.bundle import bencode


def changed(key: bytes, change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Returns a function that changes the encoded value of this key."""

    def change_one(raw: bytes) -> bytes:
        parts = bencode.parts(raw)
        return bencode.encode_dict_of_encoded(parts | {key: change(parts[key])})

    return change_one
