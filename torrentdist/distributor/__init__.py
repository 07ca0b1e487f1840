"""CodeDistributor plug-ins: their interface, the loader, and the implementations that come with
torrentdist."""

from torrentdist.distributor.protocol import CodeDistributor, Holder, HostServices

__all__ = ["CodeDistributor", "Holder", "HostServices"]
