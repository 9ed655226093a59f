"""Makes tokens.json: a set of public keys and tokens by PyJWT and cryptography, with what a server that trusts the
issuer must say to each. Run it with PyJWT 2 and cryptography: python3 make.py > tokens.json"""

import base64
import hashlib
import hmac
import json

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.test", "mortise"
FAR, PAST = 4102444800, 1577836800
SHARED = "a secret that the issuer and the server share, long enough"

rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
stranger = rsa.generate_private_key(public_exponent=65537, key_size=2048)
weak = rsa.generate_private_key(public_exponent=65537, key_size=1024)
p256 = ec.generate_private_key(ec.SECP256R1())
p384 = ec.generate_private_key(ec.SECP384R1())
ed = ed25519.Ed25519PrivateKey.generate()


def public(algorithm, key, kid, **more):
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, **more}


keys = [
    public(RSAAlgorithm, rsa_key, "rsa", use="sig"),
    public(RSAAlgorithm, weak, "weak"),
    public(RSAAlgorithm, rsa_key, "for-encryption", use="enc"),
    public(RSAAlgorithm, rsa_key, "only-ps256", alg="PS256"),
    public(ECAlgorithm, p256, "p256"),
    public(ECAlgorithm, p384, "p384"),
    public(OKPAlgorithm, ed, "ed"),
    {"kty": "oct", "kid": "oct", "k": base64.urlsafe_b64encode(SHARED.encode()).decode().rstrip("=")},
]
claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": FAR, "tid": "acme", "scope": "chat", "org": "one"}


def signed(key, alg, kid, drop=(), headers=None, **change):
    payload = {name: value for name, value in {**claims, **change}.items() if name not in drop}
    return jwt.encode(payload, key, algorithm=alg, headers={**({"kid": kid} if kid else {}), **(headers or {})})


def part(value):
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def by_hand(header, payload, sign):
    text = f"{part(header)}.{part(payload)}"
    return f"{text}.{part(sign(text.encode()))}"


pem = rsa_key.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)
confused = lambda secret: lambda text: hmac.new(secret, text, hashlib.sha256).digest()
good = signed(rsa_key, "RS256", "rsa")
head, body, signature = good.split(".")
der = p256.sign(f"{part({'alg': 'ES256', 'kid': 'p256'})}.{part(claims)}".encode(), ec.ECDSA(
    __import__("cryptography.hazmat.primitives.hashes", fromlist=["SHA256"]).SHA256()
))
cases = [
    ("RS256", good, 200, ""),
    ("PS256", signed(rsa_key, "PS256", "rsa"), 200, ""),
    ("ES256", signed(p256, "ES256", "p256"), 200, ""),
    ("ES384", signed(p384, "ES384", "p384"), 200, ""),
    ("EdDSA", signed(ed, "EdDSA", "ed"), 200, ""),
    ("no kid, one key for the algorithm", signed(p256, "ES256", None), 200, ""),
    ("several audiences", signed(rsa_key, "RS256", "rsa", aud=["other", AUDIENCE]), 200, ""),
    ("scopes in a list", signed(rsa_key, "RS256", "rsa", scope=["a", "chat"]), 200, ""),
    ("an end with a fraction", signed(rsa_key, "RS256", "rsa", exp=FAR + 0.5), 200, ""),
    ("alg none", f"{part({'alg': 'none', 'kid': 'rsa'})}.{body}.", 401, "unsupported_algorithm"),
    ("alg None", f"{part({'alg': 'None', 'kid': 'rsa'})}.{body}.", 401, "unsupported_algorithm"),
    ("no signature", f"{head}.{body}.", 401, "invalid_token"),
    ("public key as a secret", by_hand({"alg": "HS256", "kid": "rsa"}, claims, confused(pem)), 401, "unsupported_algorithm"),
    ("secret of the set", signed(SHARED, "HS256", "oct"), 401, "unsupported_algorithm"),
    ("algorithm that is not listed", signed(rsa_key, "RS512", "rsa"), 401, "unsupported_algorithm"),
    ("algorithm of another key", signed(rsa_key, "RS256", "p256"), 401, "unknown_token_key"),
    ("algorithm that the key is not for", signed(rsa_key, "RS256", "only-ps256"), 401, "unknown_token_key"),
    ("key for encryption", signed(rsa_key, "RS256", "for-encryption"), 401, "unknown_token_key"),
    ("weak key", signed(weak, "RS256", "weak"), 401, "invalid_token"),
    ("key that nobody has", signed(rsa_key, "RS256", "absent"), 401, "unknown_token_key"),
    ("no kid, several keys", signed(rsa_key, "RS256", None), 401, "unknown_token_key"),
    ("signed by a stranger", signed(stranger, "RS256", "rsa"), 401, "invalid_token"),
    ("key in the header", signed(stranger, "RS256", "rsa", headers={"jwk": public(RSAAlgorithm, stranger, "rsa")}), 401, "invalid_token"),
    ("changed claims", f"{head}.{part({**claims, 'sub': 'root'})}.{signature}", 401, "invalid_token"),
    ("signature in DER", f"{part({'alg': 'ES256', 'kid': 'p256'})}.{part(claims)}.{part(der)}", 401, "invalid_token"),
    ("critical extension", by_hand({"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False}, claims, lambda _: b"x"), 401, "invalid_token"),
    ("padding", good + "=", 401, "invalid_token"),
    ("claims that are a list", by_hand({"alg": "RS256", "kid": "rsa"}, [1], lambda _: b"x"), 401, "invalid_token"),
    ("expired", signed(rsa_key, "RS256", "rsa", exp=PAST), 401, "expired_token"),
    ("without an end", signed(rsa_key, "RS256", "rsa", drop=("exp",)), 401, "invalid_token"),
    ("shared secret without a key id", by_hand({"alg": "HS256"}, claims, lambda _: b""), 401, "unsupported_algorithm"),
    ("not yet", signed(rsa_key, "RS256", "rsa", nbf=FAR - 1), 401, "token_not_yet_valid"),
    ("made in the future", signed(rsa_key, "RS256", "rsa", iat=FAR - 1), 401, "token_not_yet_valid"),
    ("another issuer", signed(rsa_key, "RS256", "rsa", iss="https://evil.test"), 401, "unknown_issuer"),
    ("issuer with a slash", signed(rsa_key, "RS256", "rsa", iss=ISSUER + "/"), 401, "unknown_issuer"),
    ("the server itself as issuer", signed(rsa_key, "RS256", "rsa", iss="mortise"), 401, "unknown_issuer"),
    ("another audience", signed(rsa_key, "RS256", "rsa", aud="other"), 401, "wrong_audience"),
    ("no audience", signed(rsa_key, "RS256", "rsa", drop=("aud",)), 401, "wrong_audience"),
    ("no subject", signed(rsa_key, "RS256", "rsa", drop=("sub",)), 401, "missing_claim"),
    ("no tenant", signed(rsa_key, "RS256", "rsa", drop=("tid",)), 401, "missing_claim"),
    ("tenant that is no name", signed(rsa_key, "RS256", "rsa", tid="a b"), 401, "missing_claim"),
    ("claim of another value", signed(rsa_key, "RS256", "rsa", org="two"), 401, "missing_claim"),
    ("no scope", signed(rsa_key, "RS256", "rsa", scope="chatter"), 403, "insufficient_scope"),
    ("oversized", signed(rsa_key, "RS256", "rsa", more="x" * 9000), 401, "invalid_token"),
]


def resigned(payload):
    """A token whose claims no library would write."""
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    sign = lambda text: rsa_key.sign(text, padding.PKCS1v15(), SHA256())
    return by_hand({"alg": "RS256", "kid": "rsa"}, payload, sign)


cases += [
    ("an end that is a text", resigned({**claims, "exp": str(FAR)}), 401, "invalid_token"),
    ("a beginning that is a text", resigned({**claims, "nbf": str(FAR)}), 401, "invalid_token"),
    ("an end that is null", resigned({**claims, "exp": None}), 401, "invalid_token"),
]
shared = jwt.encode({**claims, "iss": "https://shared.test"}, SHARED, algorithm="HS256")
wrong = jwt.encode({**claims, "iss": "https://shared.test"}, SHARED + "!", algorithm="HS256")
print(json.dumps({
    "jwks": {"keys": keys},
    "cases": [{"name": n, "token": t, "status": s, "code": c} for n, t, s, c in cases],
    "shared": {"secret": SHARED, "token": shared, "wrong": wrong},
    "rotated": {"jwks": {"keys": [public(RSAAlgorithm, stranger, "next")]}, "token": signed(stranger, "RS256", "next")},
}, indent=1))
