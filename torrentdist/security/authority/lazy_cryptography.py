"""The parts of the library `cryptography` that we use, each loaded when it is first used.

It takes 8 MB and 50 ms. A daemon without TLS spends neither. Modules that name its types postpone
the evaluation of their annotations.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography import exceptions, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519
    from cryptography.hazmat.primitives.kdf import hkdf
    from cryptography.x509 import oid
else:

    class _Lazy:
        def __init__(self, name: str) -> None:
            self._name = f"cryptography.{name}"

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    exceptions, x509, oid = map(_Lazy, ("exceptions", "x509", "x509.oid"))
    hashes, serialization = _Lazy("hazmat.primitives.hashes"), _Lazy("hazmat.primitives.serialization")
    ec, ed25519 = _Lazy("hazmat.primitives.asymmetric.ec"), _Lazy("hazmat.primitives.asymmetric.ed25519")
    hkdf = _Lazy("hazmat.primitives.kdf.hkdf")

__all__ = ["ec", "ed25519", "exceptions", "hashes", "hkdf", "oid", "serialization", "x509"]
