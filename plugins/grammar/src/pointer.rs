//! JSON pointers into schemas, for messages.

/// Append a key to a JSON pointer.
pub(crate) fn push_key(path: &mut String, key: &str) {
    path.push('/');
    path.push_str(&key.replace('~', "~0").replace('/', "~1"));
}

/// A JSON pointer as messages show it.
pub(crate) fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
