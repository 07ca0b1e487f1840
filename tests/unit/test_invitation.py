"""The text of an invitation, which a person carries to a new host."""

from __future__ import annotations

import base64

import pytest

from torrentdist.model.errors import TorrentdistError
from torrentdist.security.authority.invitation import PREFIX, Invitation, invitation_text, parse_invitation


def invitation(secret: str = "s") -> Invitation:
    return Invitation(
        id="h1", role="supervisor", addresses=["10.0.0.1"], masters=["https://m1:7070"], ca="ab" * 32, secret=secret
    )


@pytest.mark.parametrize("length", range(4))
def test_an_invitation_survives_its_text(length: int) -> None:
    """A host could not join, depending on how long its secret is."""
    given = invitation("s" * length)
    text = invitation_text(given)

    assert text.startswith("td-invitation.")
    assert "=" not in text
    assert given == parse_invitation(f"  {text}\n", "f")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a token",
        invitation_text(invitation()).removeprefix(PREFIX),
        PREFIX,
        f"{PREFIX}!",
        f"{PREFIX}aaaaa",
        PREFIX + base64.urlsafe_b64encode(b'{"id":"h1"}').decode(),
    ],
)
def test_what_is_no_invitation_is_refused_with_its_path(text: str) -> None:
    """An operator who copied half of the text would read of a bug instead of the file."""
    with pytest.raises(TorrentdistError) as caught:
        parse_invitation(text, "/etc/invitation")

    assert "secret_invalid" == caught.value.code
    assert "/etc/invitation" in caught.value.message
