"""CodeDistributor plug-ins: what one is, the loader, and the implementations that come with torrentdist."""

from torrentdist.distributor.protocol import CodeDistributor, Holder, HostServices

__all__ = ["CodeDistributor", "Holder", "HostServices"]
