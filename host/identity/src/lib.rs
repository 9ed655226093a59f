//! Callers: keys that the server issued, tokens of issuers that it trusts, and users who log in. It says who sent a
//! credential and by which terms; whether a request may go on is for the policies to say.

mod identity;
mod issuer;
mod jwk;
mod key;
mod key_source;
mod keys;
pub mod limits;
mod login;
mod terms;
mod token;

pub use identity::{CallerDirectory, IdentityConfig, IssuerOutage};
pub use issuer::{IssuerConfig, ScopeGrant};
pub use jwk::Algorithm;
pub use key::{IssuedKey, NoRandomness};
pub use key_source::{KeyPlace, KeyTimes, check_url};
pub use keys::{KeyError, Keys, NewKey};
pub use login::{LoginConfig, LoginError, PasswordError, User, check_password_hash, hash_password};
pub use terms::{Terms, TermsError, check_name};
