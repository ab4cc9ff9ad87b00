"""Keys as libp2p writes them, and what is signed with them. Interoperation is tested with hivemind's own files and its p2pd."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hivemind.p2p import P2P, PeerID
from hypothesis import given
from hypothesis import strategies as st

from blockserver.serving.identity import read_signer
from swarm.errors import BadRecord, LocalError
from swarm.wire.identity import (
    Proof,
    Signed,
    Signer,
    check,
    decode_public_key,
    encode_public_key,
    parse_proof,
    peer_id_of,
)
from swarm.wire.keys import parse_peer_id

NONCE = "n" * 24
ED25519 = Signer.from_seed(bytes(range(32)))
RSA = Signer(rsa.generate_private_key(65537, 2048))


def request(signer: Signer, body: bytes = b"{}") -> Signed:
    return Signed("POST", "swarm.example", "/api/v1/hint", body, NONCE, signer.peer_id)


def proof(signer: Signer, body: bytes = b"{}") -> Proof:
    return parse_proof(signer.prove("POST", "swarm.example", "/api/v1/hint", body, NONCE).header())


@pytest.mark.parametrize("signer", [ED25519, RSA], ids=["Ed25519", "RSA"])
def test_what_a_peer_signs_is_checked_against_its_peer_id(signer: Signer) -> None:
    assert parse_peer_id(signer.peer_id) == signer.peer_id
    assert signer.peer_id.startswith("12D3KooW" if signer is ED25519 else "Qm")
    check(proof(signer), request(signer))


@pytest.mark.parametrize("signer", [ED25519, RSA], ids=["Ed25519", "RSA"])
@pytest.mark.parametrize(
    "change",
    [
        {"method": "GET"},
        {"host": "other.example"},
        {"path": "/api/v1/lease/1/accept"},
        {"body": b"{ }"},
        {"nonce": "m" * 24},
    ],
)
def test_a_signature_fits_one_request_only(signer: Signer, change: dict[str, object]) -> None:
    with pytest.raises(BadRecord, match="does not fit"):
        check(proof(signer), replace(request(signer), **change))  # type: ignore[arg-type]


def test_the_key_must_be_that_of_the_peer() -> None:
    with pytest.raises(BadRecord, match="not that of the peer"):
        check(proof(ED25519), request(RSA))
    with pytest.raises(BadRecord, match="does not fit"):
        check(replace(proof(ED25519), signature=proof(RSA).signature), request(ED25519))


def test_a_field_with_a_line_break_cannot_pass_for_two() -> None:
    with pytest.raises(BadRecord, match="line break"):
        replace(request(ED25519), path="/api\nx").canonical()


@pytest.mark.parametrize("bits", [1024, 16_384])
def test_rsa_keys_that_are_weak_or_too_dear_to_check_are_refused(bits: int) -> None:
    numbers = rsa.RSAPublicNumbers(65537, (1 << (bits - 1)) | 1)
    with pytest.raises(BadRecord):
        decode_public_key(encode_public_key(numbers.public_key()))


def test_other_kinds_of_keys_are_refused() -> None:
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for kind in (0, 2, 3):
        with pytest.raises(BadRecord):
            decode_public_key(b"\x08" + bytes([kind, 0x12, len(der)]) + der)


@given(st.binary(max_size=400))
def test_no_bytes_are_more_than_refused(data: bytes) -> None:
    for read in (decode_public_key, lambda d: parse_proof(d.decode("latin-1"))):
        try:
            read(data)
        except BadRecord:
            continue
    with pytest.raises(LocalError):
        Signer.from_identity(data[:60])


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer x",
        "SepalPeer",
        'SepalPeer nonce="short", key="", signature=""',
        f'SepalPeer nonce="{NONCE}", key="=", signature="AA=="',
        f'SepalPeer nonce="{NONCE}", key="AA=="',
        f'SepalPeer nonce="{NONCE}", key="' + "A" * 20_000 + '", signature="AA=="',
    ],
)
def test_a_header_that_is_no_proof_is_refused(header: str) -> None:
    with pytest.raises(BadRecord):
        parse_proof(header)


def test_a_key_in_another_encoding_is_not_the_same_key() -> None:
    """Whoever could write one key in two ways could be two peers."""
    key = ED25519.public_key
    longer = key[:3] + b"\xa0\x00" + key[4:]
    assert peer_id_of(longer) != ED25519.peer_id
    with pytest.raises(BadRecord):
        decode_public_key(longer)


@pytest.mark.parametrize("signer", [ED25519, RSA], ids=["Ed25519", "RSA"])
def test_an_identity_file_holds_the_same_peer(signer: Signer) -> None:
    assert Signer.from_identity(signer.to_identity()).peer_id == signer.peer_id
    assert "PRIVATE" not in repr(signer) and signer.peer_id in repr(signer)


def test_hivemind_reads_our_rsa_identity_and_we_read_its(tmp_path: Path) -> None:
    P2P.generate_identity(str(tmp_path / "theirs"))
    theirs = (tmp_path / "theirs").read_bytes()
    assert Signer.from_identity(theirs).peer_id == PeerID.from_identity(theirs).to_base58()
    assert PeerID.from_identity(RSA.to_identity()).to_base58() == RSA.peer_id


@pytest.mark.slow
@pytest.mark.parametrize("made_by", ["hivemind", "us"])
async def test_p2pd_has_the_peer_id_that_we_sign_for(tmp_path: Path, made_by: str) -> None:
    path = tmp_path / "identity"
    if made_by == "hivemind":
        P2P.generate_identity(str(path))
    else:
        path.write_bytes(ED25519.to_identity())
    signer = read_signer(path)
    p2p = await P2P.create(identity_path=str(path), nat_port_map=False, use_relay=False)
    try:
        peer_id = p2p.peer_id.to_base58()
        assert peer_id == signer.peer_id
        assert peer_id.startswith("Qm" if made_by == "hivemind" else "12D3KooW")
        check(proof(signer), replace(request(signer), peer_id=peer_id))
    finally:
        await p2p.shutdown()


def test_a_file_that_is_no_identity_is_named(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    with pytest.raises(LocalError, match="cannot be read"):
        read_signer(path)
    path.write_bytes(b"-----BEGIN PRIVATE KEY-----")
    with pytest.raises(LocalError, match=r"identity: this is no libp2p identity"):
        read_signer(path)
