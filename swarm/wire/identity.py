"""What a peer signs when it talks to the coordinator, and how a signature is checked against a peer id (docs/protocol.md).

Pure: keys, nonces and bytes are arguments. Knows libp2p's two keys in use: Ed25519 (peer ids `12D3KooW…`, which hold the key
itself) and RSA (`Qm…`, a hash of the key). Files are `blockserver.serving.identity`'s, single use of a nonce the coordinator's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass

import base58
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey

from swarm.errors import BadRecord, LocalError

SCHEME = "SepalPeer"
"""The scheme of the `Authorization` header that carries a signature."""
NONCE_HEADER = "Sepal-Nonce"
"""Every answer to a signed request brings the next nonce, so that a server asks for one only once."""

API = "/api/v1"
"""Where a site's API lies; a signature holds the path from here on."""

_DOMAIN = b"sepal-request-v1"
"""Opens whatever is signed here, so that no signature made for libp2p or the DHT can be passed off as one of these."""
_RSA_KEY, _ED25519_KEY = 0, 1
_RSA_BITS = range(2048, 8193)
"""libp2p's own bounds: weaker keys can be broken, larger ones cost the checker too much."""
_MAX_KEY_BYTES = 2_048
_MAX_SIGNATURE_BYTES = 1_024
_OF_A_SWARM = re.compile(r"/s/[A-Za-z0-9_\-]{1,64}$")
_NONCE = re.compile(r"[A-Za-z0-9_-]{16,64}")
_FIELD = re.compile(r'(\w+)="([A-Za-z0-9+/=_-]*)"')

PublicKey = Ed25519PublicKey | RSAPublicKey


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as it is signed: `host` is the name, without a port, under which the server knows the coordinator, so that
    another coordinator that the server trusts as well cannot pass the signature on."""

    method: str
    host: str
    path: str
    body: bytes
    nonce: str
    peer_id: str

    def canonical(self) -> bytes:
        """No field can hold the separator: names and paths are single lines, the body stands as its hash."""
        fields = (self.method, self.host.lower(), self.path, hashlib.sha256(self.body).hexdigest(), self.nonce, self.peer_id)
        if any("\n" in field for field in fields):
            raise BadRecord("signature", "a signed field holds a line break")
        return b"\n".join((_DOMAIN, *(field.encode() for field in fields)))


@dataclass(frozen=True, slots=True)
class Proof:
    """What stands in the `Authorization` header: the key as libp2p writes it, the nonce, the signature."""

    key: bytes
    nonce: str
    signature: bytes

    def header(self) -> str:
        key, signature = (base64.b64encode(part).decode() for part in (self.key, self.signature))
        return f'{SCHEME} nonce="{self.nonce}", key="{key}", signature="{signature}"'


class Signer:
    """A peer's private key. `repr` shows the peer id only."""

    def __init__(self, key: Ed25519PrivateKey | RSAPrivateKey) -> None:
        self._key = key
        self.public_key = encode_public_key(key.public_key())
        self.peer_id = peer_id_of(self.public_key)

    def __repr__(self) -> str:
        return f"Signer({self.peer_id})"

    @classmethod
    def from_seed(cls, seed: bytes) -> Signer:
        """The Ed25519 key of 32 secret bytes."""
        return cls(Ed25519PrivateKey.from_private_bytes(seed))

    @classmethod
    def from_identity(cls, data: bytes) -> Signer:
        """An identity file as libp2p and hivemind write it: the protobuf message PrivateKey(key_type, data)."""
        try:
            kind, raw = _read_key_message(data)
            if kind == _ED25519_KEY:
                # 64 bytes: seed and public key; older files repeat the public key once more.
                return cls.from_seed(raw[:32]) if len(raw) in (64, 96) else _refuse_identity(f"{len(raw)} bytes of key")
            loaded = serialization.load_der_private_key(raw, password=None) if kind == _RSA_KEY else None
        except (BadRecord, ValueError, UnsupportedAlgorithm) as error:
            raise LocalError(f"this is no libp2p identity: {error}") from error
        return cls(loaded) if isinstance(loaded, RSAPrivateKey) else _refuse_identity(f"key type {kind} is not supported")

    def to_identity(self) -> bytes:
        """The bytes of an identity file, which p2pd reads."""
        if isinstance(self._key, Ed25519PrivateKey):
            raw = self._key.private_bytes_raw() + self._key.public_key().public_bytes_raw()
            return _write_key_message(_ED25519_KEY, raw)
        form = serialization.PrivateFormat.TraditionalOpenSSL
        der = self._key.private_bytes(serialization.Encoding.DER, form, serialization.NoEncryption())
        return _write_key_message(_RSA_KEY, der)

    def prove(self, method: str, host: str, path: str, body: bytes, nonce: str) -> Proof:
        message = Signed(method, host, path, body, nonce, self.peer_id).canonical()
        if isinstance(self._key, Ed25519PrivateKey):
            return Proof(self.public_key, nonce, self._key.sign(message))
        return Proof(self.public_key, nonce, self._key.sign(message, PKCS1v15(), hashes.SHA256()))


def signed_base(site: str) -> str:
    """What comes before the API's own path in a signature: the swarm, where the site's address ends in one (`/s/NAME`).
    Whatever else stands there is a proxy's doing, and unknown to the coordinator."""
    found = _OF_A_SWARM.search(site.rstrip("/"))
    return (found[0] if found else "") + API


def is_nonce(text: str) -> bool:
    return _NONCE.fullmatch(text) is not None


def parse_proof(header: str) -> Proof:
    """The header's proof; BadRecord where it is none. Nothing is checked against a key yet."""
    scheme, _, rest = header.partition(" ")
    fields = dict(_FIELD.findall(rest)) if len(header) <= 4 * _MAX_KEY_BYTES else {}
    if scheme != SCHEME or set(fields) != {"nonce", "key", "signature"}:
        raise BadRecord("signature", f'Authorization must read {SCHEME} nonce="…", key="…", signature="…"')
    if not is_nonce(fields["nonce"]):
        raise BadRecord("signature", "this is no nonce")
    try:
        key, signature = (base64.b64decode(fields[name], validate=True) for name in ("key", "signature"))
    except binascii.Error as error:
        raise BadRecord("signature", "key and signature are base64") from error
    return Proof(key, fields["nonce"], signature)


def check(proof: Proof, request: Signed) -> None:
    """Raises BadRecord unless the key is the peer's and has signed just this request with just this nonce."""
    if peer_id_of(proof.key) != request.peer_id:
        raise BadRecord("signature", "the key is not that of the peer in the request")
    key = decode_public_key(proof.key)
    if len(proof.signature) > _MAX_SIGNATURE_BYTES:
        raise BadRecord("signature", "a signature is not that long")
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(proof.signature, request.canonical())
        else:
            key.verify(proof.signature, request.canonical(), PKCS1v15(), hashes.SHA256())
    except InvalidSignature as error:
        raise BadRecord("signature", "the signature does not fit this request") from error


def peer_id_of(public_key: bytes) -> str:
    """libp2p: a short key stands in the id itself, a long one as its sha2-256."""
    if len(public_key) <= 42:
        return base58.b58encode(b"\x00" + bytes([len(public_key)]) + public_key).decode()
    return base58.b58encode(b"\x12\x20" + hashlib.sha256(public_key).digest()).decode()


def encode_public_key(key: PublicKey) -> bytes:
    if isinstance(key, Ed25519PublicKey):
        return _write_key_message(_ED25519_KEY, key.public_bytes_raw())
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return _write_key_message(_RSA_KEY, key.public_bytes(serialization.Encoding.DER, form))


def decode_public_key(data: bytes) -> PublicKey:
    """libp2p's PublicKey(key_type, data), in the one form in which it is hashed; BadRecord for anything else."""
    if len(data) > _MAX_KEY_BYTES:
        raise BadRecord("signature", "a public key is not that long")
    kind, raw = _read_key_message(data)
    try:
        if kind == _ED25519_KEY:
            return Ed25519PublicKey.from_public_bytes(raw)
        loaded = serialization.load_der_public_key(raw) if kind == _RSA_KEY else None
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadRecord("signature", "the public key cannot be read") from error
    if not isinstance(loaded, RSAPublicKey):
        raise BadRecord("signature", "only Ed25519 and RSA keys can sign")
    if loaded.key_size not in _RSA_BITS:
        raise BadRecord("signature", f"an RSA key of {loaded.key_size} bits is not accepted")
    return loaded


def _write_key_message(kind: int, data: bytes) -> bytes:
    """Protobuf by hand: field 1 is the type, field 2 the bytes. This order and the shortest numbers are what libp2p hashes."""
    return b"\x08" + bytes([kind]) + b"\x12" + _varint(len(data)) + data


def _read_key_message(message: bytes) -> tuple[int, bytes]:
    if len(message) < 4 or message[0] != 0x08 or message[1] > 0x7F or message[2] != 0x12:
        raise BadRecord("signature", "this is no key as libp2p writes it")
    for width in (1, 2, 3):
        data = message[3 + width :]
        if message[3 : 3 + width] == _varint(len(data)):
            return message[1], data
    raise BadRecord("signature", "this is no key as libp2p writes it")


def _varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def _refuse_identity(why: str) -> Signer:
    raise LocalError(f"this is no libp2p identity: {why}")
