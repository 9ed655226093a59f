//! A caller's token: header, zero byte, claims, zero byte, signature, encoded here; or, without zero bytes, the whole

#![cfg_attr(fuzzing, no_main)]

mortise_fuzz::target!(bearer_token);
