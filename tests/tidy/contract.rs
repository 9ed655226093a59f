//! Documentation of the WIT contract.

use std::fs;

use crate::root;

#[test]
fn every_wit_item_is_documented() {
    let versions = ["wit/v0.1", "wit/v0.2", "wit/v0.3"].map(|version| root().join(version));
    let folders =
        versions.map(|version| fs::read_dir(version).expect("read a version of the contract"));
    for entry in folders.into_iter().flatten() {
        let path = entry.expect("read a folder entry").path();
        let text = fs::read_to_string(&path).expect("read a WIT file");
        let mut previous = "";
        for (number, line) in text.lines().enumerate() {
            let code = line.trim();
            let declares = [
                "interface ",
                "world ",
                "record ",
                "variant ",
                "enum ",
                "resource ",
            ]
            .iter()
            .any(|word| code.starts_with(word))
                || code.contains(": func(")
                || (code.starts_with("type ") && code.ends_with(';'));
            assert!(
                !declares || previous.starts_with("///"),
                "{}:{}: no doc comment above `{code}`",
                path.display(),
                number + 1
            );
            previous = code;
        }
    }
}
