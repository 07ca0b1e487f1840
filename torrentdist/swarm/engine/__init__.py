"""The BitTorrent engine: one libtorrent session and its transfers, with asyncio outside."""
