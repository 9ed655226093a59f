//! Lines that begin with a slash.

use std::path::PathBuf;

use anyhow::bail;

/// The commands, as `/help` lists them.
pub(super) const HELP: &str = "\
/help           this list
/model [NAME]   ask another model; without a name, list the models
/system [TEXT]  set the system prompt; without a text, have none
/file FILE      put the text of a file before the next message
/retry          ask for the last answer again
/clear          begin anew
/save FILE      write the conversation to a new file
/load FILE      go on with a conversation of /save
/quit           end, as Ctrl-D does
Ctrl-C stops an answer. A line that ends with \\ goes on in the next one.
";

/// A command.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Slash {
    Help,
    Model(Option<String>),
    System(Option<String>),
    File(PathBuf),
    Retry,
    Clear,
    Save(PathBuf),
    Load(PathBuf),
    Quit,
}

/// The command of a line; none if it is a message.
pub(super) fn parse(line: &str) -> anyhow::Result<Option<Slash>> {
    let Some(rest) = line.strip_prefix('/') else {
        return Ok(None);
    };
    let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let value = value.trim();
    let text = (!value.is_empty()).then(|| value.to_owned());
    let file = || match value {
        "" => bail!("/{name} wants a file: /{name} FILE"),
        value => Ok(PathBuf::from(value)),
    };
    Ok(Some(match name {
        "help" => Slash::Help,
        "model" => Slash::Model(text),
        "system" => Slash::System(text),
        "file" => Slash::File(file()?),
        "retry" => Slash::Retry,
        "clear" => Slash::Clear,
        "save" => Slash::Save(file()?),
        "load" => Slash::Load(file()?),
        "quit" | "exit" => Slash::Quit,
        _ => bail!("there is no command /{name}; /help lists them"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_commands() {
        let parsed = |line: &str| parse(line).expect("a line");
        assert_eq!(parsed("Hi /help"), None);
        assert_eq!(parsed("/help"), Some(Slash::Help));
        assert_eq!(parsed("/model"), Some(Slash::Model(None)));
        let brief = Slash::System(Some("Be brief.".to_owned()));
        assert_eq!(parsed("/system  Be brief. "), Some(brief));
        assert_eq!(parsed("/file a b.txt"), Some(Slash::File("a b.txt".into())));
        assert!(parse("/file").is_err() && parse("/nothing").is_err());
    }

    #[test]
    fn the_list_has_every_command() {
        for name in [
            "help", "model", "system", "file", "retry", "clear", "save", "load", "quit",
        ] {
            assert!(
                HELP.contains(&format!("\n/{name} ")) || HELP.starts_with(&format!("/{name} "))
            );
            assert!(
                parse(&format!("/{name} x")).is_ok_and(|found| found.is_some()),
                "{name}"
            );
        }
    }
}
