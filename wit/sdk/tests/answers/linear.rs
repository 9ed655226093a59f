//! The work for an answer grows with its length and no faster. Counted in reads, not in time.

use mortise_plugin_sdk::formats::Format;

use crate::parsing;

/// Characters looked at, again or for the first time, for each character of an answer. Every mark of
/// a format is looked for at each place, and blanks are read again at most once by each reader.
const READS_A_CHARACTER: usize = 40;

/// Texts that make a careless reader go back again and again.
const TRAPS: &[&str] = &[
    "<",
    "<tool_call>",
    "<tool_call",
    " ",
    "\n",
    "[",
    "{",
    "{\"",
    "\"",
    "\\",
    "(",
    "((((",
    "f(",
    "time(",
    "[time(a=",
    "[time(a=[",
    "a(b=1,",
    "[time(b=1,",
    "[time(b=1),",
    "<function=",
    "<function=time>",
    "<function=time><parameter=a>",
    "<parameter=",
    "<think>",
    "</think",
    "[TOOL_CALLS]",
    "[TOOL_CALLS][",
    "[TOOL_CALLS]time[ARGS]",
    "[ARGS]",
    "<tool_call>{\"name\": \"time\", ",
    "<tool_call>{\"arguments\": {}, ",
    "{\"name\": \"time\"};",
    "; ",
    "<tool_call>time<arg_key>",
    "<｜tool▁call▁begin｜>",
    "<|tool_call_begin|>functions.",
    "<invoke name=\"",
    "<function_calls>",
    "<function_calls>time()",
    "<function_calls> \n",
    "<tool_call>{\"name\":\"time\"}\n",
    "<|tool_call_start|>[time(),",
    "<｜DSML｜function_calls><｜DSML｜invoke name=\"time\">",
];

#[test]
fn d2_no_text_is_read_again_and_again() {
    for format in Format::all() {
        for trap in TRAPS {
            let text = trap.repeat(3_000 / trap.len() + 1);
            for opens in [false, true] {
                let mut parsing = parsing(format, "auto", true, opens);
                for piece in text.split_inclusive(|_| true) {
                    parsing.feed(piece);
                }
                parsing.close();
                let reads = parsing.reads();
                assert!(
                    reads <= READS_A_CHARACTER * text.len(),
                    "{} reads {reads} times in {} bytes of {trap:?}",
                    format.name(),
                    text.len()
                );
            }
        }
    }
}
