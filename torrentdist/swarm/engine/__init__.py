"""The BitTorrent engine: one libtorrent session and its transfers, with an asyncio interface."""
