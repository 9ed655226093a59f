//! Formats that are known, with the marks of each. The first that a model's files tell of is its format, so the
//! particular come before the general.

use super::spec::{
    Described, Literals, Nested, Python, Spec, Tags, Typing, USUAL, Writing, Written,
};

macro_rules! formats {
    ($($format:ident $name:literal $about:literal { $($field:ident: $value:expr,)* })*) => {
        /// A way to write tool calls.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Format {
            $(#[doc = $about] $format,)*
            /// A format that is not listed, and of which marks tell all.
            Described(&'static Described),
        }

        #[allow(clippy::needless_update)] // Some rows say everything.
        pub(super) const TABLE: &[(Format, Spec)] = &[$((Format::$format, Spec {
            name: $name,
            about: $about,
            $($field: $value,)*
            ..USUAL
        }),)*];
    };
}

/// Calls side by side, each with its own marks.
const fn each(between: &'static str, head: &'static str, tail: &'static str) -> Writing {
    Writing::Json(Written {
        section: ("", ""),
        between: Some(between),
        head,
        tail,
    })
}

/// Calls between the marks of all of them.
const fn all(
    section: (&'static str, &'static str),
    between: &'static str,
    head: &'static str,
    tail: &'static str,
) -> Writing {
    Writing::Json(Written {
        section,
        between: Some(between),
        head,
        tail,
    })
}

/// A list of objects with a name and arguments.
const fn list(open: &'static str, close: &'static str) -> Writing {
    all(
        (open, close),
        ", ",
        "{\"name\": \"{}\", \"arguments\": ",
        "}",
    )
}

const fn python(open: &'static str, close: &'static str, between: &'static str) -> Writing {
    Writing::Python(Python {
        section: (open, close),
        between,
    })
}

/// Marks of Qwen's kind; Seed-OSS has them within its own.
const QWEN_CODER: Tags = Tags {
    sections: &[("<tool_call>", "</tool_call>")],
    call: ("<function=", ">", "</function>"),
    behind: "",
    key: ("<parameter=", ">"),
    value: ("\n", "\n</parameter>"),
    typing: Typing::Schema,
    gap: "\n",
    together: false,
};

formats! {
    Harmony "harmony" "`<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{…}<|call|>`: gpt-oss" {
        signs: &[&["<|channel|>", "<|constrain|>"], &["<|channel|>", "<|message|>", "functions."]],
        architectures: &["gpt_oss", "gpt-oss"],
        reasoning: ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        opens: &["<|channel|>", "<|start|>"],
        answer: ("<|channel|>final<|message|>", ""),
        framed: true,
        writing: Writing::Json(Written {
            section: ("", ""),
            between: None,
            head: "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>",
            tail: "",
        }),
    }
    KimiK3 "kimi-k3" "`<|open|>call tool=\"NAME\" index=\"1\"<|sep|>` with an `argument` for each key: Kimi K3" {
        signs: &[&["<|open|>", "<|sep|>", "<|close|>"]],
        architectures: &["kimi_k3"],
        reasoning: ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
        opens: &["<|open|>tools<|sep|>"],
        answer: ("<|open|>response<|sep|>", "<|close|>response<|sep|>"),
        framed: true,
        writing: Writing::Tags(Tags {
            sections: &[("<|open|>tools<|sep|>", "<|close|>tools<|sep|>")],
            call: ("<|open|>call tool=\"", "\" index=\"{#}\"<|sep|>", "<|close|>call<|sep|>"),
            behind: "",
            key: ("<|open|>argument key=\"", "\""),
            value: ("<|sep|>", "<|close|>argument<|sep|>"),
            typing: Typing::Attribute(" type=\"string\"", " type=\"object\""),
            gap: "",
            together: true,
        }),
    }
    KimiK2 "kimi-k2" "`<|tool_call_begin|>functions.NAME:0<|tool_call_argument_begin|>{…}<|tool_call_end|>`: Kimi K2" {
        signs: &[&["<|tool_call_argument_begin|>"]],
        architectures: &["kimi_k2", "kimi_k25"],
        opens: &["<|tool_calls_section_begin|>", "<|tool_call_begin|>"],
        writing: all(
            ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
            "",
            "<|tool_call_begin|>functions.{}:{#}<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ),
    }
    MiniMaxM3 "minimax-m3" "`]<]minimax[>[<invoke name=\"NAME\">]<]minimax[>[<KEY>VALUE…`: MiniMax M3" {
        signs: &[&["]<]minimax[>["]],
        architectures: &["minimax_m3"],
        reasoning: ("<mm:think>", "</mm:think>"),
        opens: &["]<]minimax[>[<tool_call>"],
        writing: Writing::Nested(Nested {
            tag: "]<]minimax[>[",
            section: "tool_call",
            item: "item",
        }),
    }
    MiniMax "minimax" "`<minimax:tool_call><invoke name=\"NAME\"><parameter name=\"KEY\">VALUE</parameter></invoke>`: MiniMax M2" {
        signs: &[&["<minimax:tool_call>"]],
        architectures: &["minimax_m2"],
        opens: &["<minimax:tool_call>"],
        writing: Writing::Tags(Tags {
            sections: &[("<minimax:tool_call>", "</minimax:tool_call>")],
            call: ("<invoke name=\"", "\">", "</invoke>"),
            behind: "",
            key: ("<parameter name=\"", "\">"),
            value: ("", "</parameter>"),
            typing: Typing::Schema,
            gap: "\n",
            together: true,
        }),
    }
    MiniMaxM1 "minimax-m1" "`<tool_calls>` with `{\"name\": …, \"arguments\": …}` on each line: MiniMax M1" {
        signs: &[&["<tool_calls>", "<beginning_of_sentence>"]],
        architectures: &["minimax_m1", "minimax"],
        opens: &["<tool_calls>"],
        writing: all(("<tool_calls>\n", "\n</tool_calls>"), "\n", "{\"name\": \"{}\", \"arguments\": ", "}"),
    }
    DeepSeekDsml "deepseek-dsml" "`<｜DSML｜invoke name=\"NAME\"><｜DSML｜parameter name=\"KEY\" string=\"true\">VALUE</｜DSML｜parameter>`: DeepSeek V3.2 and V4" {
        signs: &[&["｜DSML｜"]],
        architectures: &["deepseek_v32", "deepseek_v4"],
        opens: &["<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"],
        writing: Writing::Tags(Tags {
            sections: &[
                ("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"),
                ("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
            ],
            call: ("<｜DSML｜invoke name=\"", "\">", "</｜DSML｜invoke>"),
            behind: "",
            key: ("<｜DSML｜parameter name=\"", "\""),
            value: (">", "</｜DSML｜parameter>"),
            typing: Typing::Attribute(" string=\"true\"", " string=\"false\""),
            gap: "\n",
            together: true,
        }),
    }
    DeepSeekV3 "deepseek-v3" "`<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME` and a block of JSON in a fence: DeepSeek V3 and R1" {
        signs: &[&["<｜tool▁call▁begin｜>", "```json"]],
        architectures: &["deepseek_v3"],
        opens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        writing: all(
            ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
            "\n",
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{}\n```json\n",
            "\n```<｜tool▁call▁end｜>",
        ),
    }
    DeepSeek "deepseek" "`<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`: DeepSeek V3.1" {
        signs: &[&["<｜tool▁call▁begin｜>"]],
        opens: &["<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"],
        writing: all(
            ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
            "",
            "<｜tool▁call▁begin｜>{}<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
        ),
    }
    Step3 "step3" "`<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"NAME\"><steptml:parameter name=\"KEY\">VALUE`: Step-3" {
        signs: &[&["<steptml:"], &["<｜tool_call_begin｜>", "<｜tool_sep｜>"]],
        architectures: &["step3_vl", "step3_text"],
        opens: &["<｜tool_calls_begin｜>", "<｜tool_call_begin｜>"],
        writing: Writing::Tags(Tags {
            sections: &[("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>")],
            call: (
                "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name=\"",
                "\">",
                "</steptml:invoke>",
            ),
            behind: "<｜tool_call_end｜>",
            key: ("<steptml:parameter name=\"", "\">"),
            value: ("", "</steptml:parameter>"),
            typing: Typing::Schema,
            gap: "",
            together: true,
        }),
    }
    Hy3 "hy3" "`<tool_call:opensource>NAME<tool_sep:opensource><arg_key:opensource>KEY</arg_key:opensource>…`: Hunyuan 3" {
        signs: &[&["<tool_call:opensource>"], &["<tool_call{}>", "<arg_key{}>", ":opensource"]],
        reasoning: ("<think:opensource>", "</think:opensource>"),
        opens: &["<tool_calls:opensource>", "<tool_call:opensource>"],
        writing: Writing::Tags(Tags {
            sections: &[("<tool_calls:opensource>", "</tool_calls:opensource>")],
            call: ("<tool_call:opensource>", "<tool_sep:opensource>", "</tool_call:opensource>"),
            behind: "",
            key: ("<arg_key:opensource>", "</arg_key:opensource>"),
            value: ("<arg_value:opensource>", "</arg_value:opensource>"),
            typing: Typing::Schema,
            gap: "\n",
            together: true,
        }),
    }
    Glm "glm" "`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>`: GLM 4.5 and later" {
        signs: &[&["<arg_key>"]],
        architectures: &["glm4_moe", "glm4_moe_lite", "glm_moe_dsa"],
        opens: &["<tool_call>"],
        writing: Writing::Tags(Tags {
            sections: &[],
            call: ("<tool_call>", "", "</tool_call>"),
            behind: "",
            key: ("<arg_key>", "</arg_key>"),
            value: ("<arg_value>", "</arg_value>"),
            typing: Typing::Schema,
            gap: "\n",
            together: true,
        }),
    }
    SeedOss "seed-oss" "`<seed:tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></seed:tool_call>`: Seed-OSS" {
        signs: &[&["<seed:tool_call>"]],
        architectures: &["seed_oss"],
        reasoning: ("<seed:think>", "</seed:think>"),
        opens: &["<seed:tool_call>"],
        writing: Writing::Tags(Tags {
            sections: &[("<seed:tool_call>", "</seed:tool_call>")],
            ..QWEN_CODER
        }),
    }
    Atem "atem" "`<atem:invoke name=\"NAME\"><atem:parameter name=\"KEY\">VALUE</atem:parameter></atem:invoke>`: Muse Glimmer" {
        signs: &[&["<atem:"]],
        architectures: &["muse_glimmer"],
        reasoning: ("to=self<|message|>", "<|eom|>"),
        opens: &["<atem:function_calls>"],
        framed: true,
        writing: Writing::Tags(Tags {
            sections: &[("<atem:function_calls>", "</atem:function_calls>")],
            call: ("<atem:invoke name=\"", "\">", "</atem:invoke>"),
            behind: "",
            key: ("<atem:parameter name=\"", "\">"),
            value: ("", "</atem:parameter>"),
            typing: Typing::Schema,
            gap: "\n",
            together: true,
        }),
    }
    QwenCoder "qwen-coder" "`<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>`: Qwen3-Coder, Qwen 3.5 and later, Nemotron 3, MiMo, Step 3.5" {
        signs: &[&["<function=", "<parameter="]],
        architectures: &["qwen3_next", "qwen3_5", "qwen3_5_moe", "nemotron_h", "step3p5"],
        opens: &["<tool_call>", "<function="],
        writing: Writing::Tags(QWEN_CODER),
    }
    MiniCpm5 "minicpm5" "`<function name=\"NAME\"><param name=\"KEY\">VALUE</param></function>`, a value in CDATA or not: MiniCPM 5" {
        signs: &[&["<function name=\"", "<param name=\""]],
        opens: &["<function name=\""],
        writing: Writing::Tags(Tags {
            sections: &[],
            call: ("<function name=\"", "\">", "</function>"),
            behind: "",
            key: ("<param name=\"", "\">"),
            value: ("", "</param>"),
            typing: Typing::Schema,
            gap: "",
            together: false,
        }),
    }
    MistralArgs "mistral-args" "`[TOOL_CALLS]NAME[ARGS]{…}`, with `[CALL_ID]` between them or not: Mistral since v11" {
        signs: &[&["[TOOL_CALLS]", "[ARGS]"]],
        architectures: &["ministral3", "mistral3"],
        reasoning: ("[THINK]", "[/THINK]"),
        opens: &["[TOOL_CALLS]"],
        writing: each("", "[TOOL_CALLS]{}[ARGS]", ""),
    }
    Mistral "mistral" "`[TOOL_CALLS][{\"name\": …, \"arguments\": …}]`: Mistral before v11" {
        signs: &[&["[TOOL_CALLS]"]],
        architectures: &["mistral", "mixtral"],
        reasoning: ("[THINK]", "[/THINK]"),
        opens: &["[TOOL_CALLS]"],
        writing: list("[TOOL_CALLS][", "]"),
    }
    Lfm2 "lfm2" "`<|tool_call_start|>[f(a=\"x\")]<|tool_call_end|>`: LFM2 and LFM2.5" {
        signs: &[&["<|tool_call_start|>"], &["<|tool_list_start|>"]],
        architectures: &["lfm2", "lfm2_moe"],
        opens: &["<|tool_call_start|>"],
        writing: python("<|tool_call_start|>[", "]<|tool_call_end|>", ", "),
    }
    Olmo3 "olmo3" "`<function_calls>` with a Python call on each line: OLMo 3" {
        signs: &[&["<function_calls>"]],
        architectures: &["olmo3"],
        opens: &["<function_calls>"],
        writing: python("<function_calls>", "</function_calls>", "\n"),
    }
    Gemma4 "gemma4" "`<|tool_call>call:NAME{k:<|\"|>v<|\"|>,n:3}<tool_call|>`: Gemma 4" {
        signs: &[&["<|tool_call>"], &["<|turn>", "<|channel>"]],
        architectures: &["gemma4", "gemma4_text"],
        reasoning: ("<|channel>thought", "<channel|>"),
        opens: &["<|tool_call>"],
        writing: Writing::Literals(Literals {
            open: "<|tool_call>call:",
            close: "<tool_call|>",
            quote: "<|\"|>",
        }),
    }
    FunctionGemma "functiongemma" "`<start_function_call>call:NAME{k:<escape>v<escape>}<end_function_call>`: FunctionGemma" {
        signs: &[&["<start_function_call>"]],
        opens: &["<start_function_call>"],
        writing: Writing::Literals(Literals {
            open: "<start_function_call>call:",
            close: "<end_function_call>",
            quote: "<escape>",
        }),
    }
    Nemotron "nemotron" "`<TOOLCALL>[{\"name\": …, \"arguments\": …}]</TOOLCALL>`: Nemotron Nano v2, Llama-Nemotron" {
        signs: &[&["<TOOLCALL>"], &["<toolcall>"]],
        opens: &["<TOOLCALL>", "<toolcall>"],
        writing: list("<TOOLCALL>[", "]</TOOLCALL>"),
    }
    InternLm "internlm" "`<|action_start|><|plugin|>{\"name\": …, \"parameters\": …}<|action_end|>`: InternLM 2.5" {
        signs: &[&["<|action_start|>"]],
        architectures: &["internlm2"],
        opens: &["<|action_start|><|plugin|>"],
        writing: each("", "<|action_start|><|plugin|>\n{\"name\": \"{}\", \"parameters\": ", "}<|action_end|>"),
    }
    CommandA "command-a" "`<|START_ACTION|>[{\"tool_call_id\": …, \"tool_name\": …, \"parameters\": …}]<|END_ACTION|>`: Command R7B, Command A" {
        signs: &[&["<|START_ACTION|>"]],
        architectures: &["cohere2", "cohere2_moe"],
        reasoning: ("<|START_THINKING|>", "<|END_THINKING|>"),
        opens: &["<|START_ACTION|>"],
        answer: ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
        framed: true,
        writing: all(
            ("<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"),
            ",\n    ",
            "{\"tool_call_id\": \"{#}\", \"tool_name\": \"{}\", \"parameters\": ",
            "}",
        ),
    }
    CommandR "command-r" "`Action:` and a list of `{\"tool_name\": …, \"parameters\": …}` in a fence: Command R" {
        signs: &[&["Action:", "tool_name", "parameters"]],
        architectures: &["cohere"],
        opens: &["Action: ```json", "Action:```json"],
        writing: all(
            ("Action: ```json\n[\n    ", "\n]\n```"),
            ",\n    ",
            "{\"tool_name\": \"{}\", \"parameters\": ",
            "}",
        ),
    }
    Phi4Mini "phi4-mini" "`<|tool_call|>[{\"name\": …, \"arguments\": …}]<|/tool_call|>`: Phi-4-mini" {
        signs: &[&["<|/tool_call|>"], &["<|/tool|>"]],
        opens: &["<|tool_call|>", "functools"],
        writing: list("<|tool_call|>[", "]<|/tool_call|>"),
    }
    Functools "functools" "`functools[{\"name\": …, \"arguments\": …}]`: Phi-4-mini by some prompts, FireFunction v2" {
        signs: &[&["functools"]],
        opens: &["functools"],
        writing: list("functools[", "]"),
    }
    Granite "granite" "`<|tool_call|>[{\"name\": …, \"arguments\": …}]`: Granite 3" {
        signs: &[&["<|tool_call|>"]],
        opens: &["<|tool_call|>", "<tool_call>"],
        writing: list("<|tool_call|>[", "]"),
    }
    GraniteCode "granite-20b" "`<function_call> {\"name\": …, \"arguments\": …}`: Granite 20B function calling" {
        signs: &[&["<function_call>"]],
        opens: &["<function_call>"],
        writing: each("\n", "<function_call> {\"name\": \"{}\", \"arguments\": ", "}"),
    }
    Apertus "apertus" "`<|tools_prefix|>[{\"NAME\": {…}}]<|tools_suffix|>`: Apertus" {
        signs: &[&["<|tools_prefix|>"]],
        architectures: &["apertus"],
        reasoning: ("<|inner_prefix|>", "<|inner_suffix|>"),
        opens: &["<|tools_prefix|>"],
        writing: all(("<|tools_prefix|>[", "]<|tools_suffix|>"), ", ", "{\"{}\": ", "}"),
    }
    SolarOpen "solar-open" "`<|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{…}<|tool_call:end|>`: Solar Open" {
        signs: &[&["<|tool_call:args|>"]],
        reasoning: ("<|think|>", "<|end|>"),
        opens: &["<|tool_calls|>", "<|tool_call:begin|>"],
        answer: ("<|content|>", "<|end|>"),
        framed: true,
        writing: all(
            ("<|tool_calls|>", ""),
            "",
            "<|tool_call:begin|>{#}<|tool_call:name|>{}<|tool_call:args|>",
            "<|tool_call:end|>",
        ),
    }
    Sarashina "sarashina" "`<|tool_calls|>[{'name': …, 'arguments': …}]` with Python's literals: Sarashina" {
        signs: &[&["<|tool_calls|>"]],
        opens: &["<|tool_calls|>"],
        writing: list("<|tool_calls|>[", "]"),
    }
    LongCat "longcat" "`<longcat_tool_call>{\"name\": …, \"arguments\": …}</longcat_tool_call>`: LongCat" {
        signs: &[&["<longcat_tool_call>"]],
        architectures: &["longcat_flash"],
        reasoning: ("<longcat_think>", "</longcat_think>"),
        opens: &["<longcat_tool_call>"],
        writing: each(
            "\n",
            "<longcat_tool_call>\n{\"name\": \"{}\", \"arguments\": ",
            "}\n</longcat_tool_call>",
        ),
    }
    GigaChat "gigachat" "`<|function_call|>{\"name\": …, \"arguments\": …}`, or `function call<|role_sep|>` before it: GigaChat 3" {
        signs: &[&["<|function_call|>"], &["<|role_sep|>", "function call"]],
        opens: &["<|message_sep|>\n\nfunction call<|role_sep|>\n", "<|function_call|>"],
        writing: Writing::Json(Written {
            section: ("", ""),
            between: None,
            head: "<|function_call|>{\"name\": \"{}\", \"arguments\": ",
            tail: "}",
        }),
    }
    Inkling "inkling" "`NAME<|content_invoke_tool_json|>{\"name\": …, \"args\": …}<|end_message|>`: Inkling" {
        signs: &[&["<|content_invoke_tool_json|>"]],
        architectures: &["inkling"],
        reasoning: ("<|content_thinking|>", "<|end_message|>"),
        opens: &["<|message_model|>"],
        framed: true,
        writing: each(
            "<|message_model|>",
            "{}<|content_invoke_tool_json|>{\"name\": \"{}\", \"args\": ",
            "}<|end_message|>",
        ),
    }
    Ernie "ernie" "`<tool_call>{\"name\": …, \"arguments\": …}</tool_call>`, and answers in `<response>`: ERNIE 4.5" {
        signs: &[&["<tool_call>", "<response>"]],
        architectures: &["ernie4_5", "ernie4_5_moe"],
        opens: &["<tool_call>"],
        answer: ("<response>\n", "\n</response>\n"),
        framed: true,
        writing: each("\n", "<tool_call>\n{\"name\": \"{}\", \"arguments\": ", "}\n</tool_call>"),
    }
    ToolCalls "tool-calls" "`<tool_calls>[{\"name\": …, \"arguments\": …}]</tool_calls>`: Hunyuan A13B, Jamba 1.5" {
        signs: &[&["<tool_calls>"]],
        architectures: &["hunyuan_v1_moe", "hunyuan_v1_dense", "jamba"],
        opens: &["<tool_calls>"],
        writing: list("<tool_calls>[", "]</tool_calls>"),
    }
    Hermes "hermes" "`<tool_call>{\"name\": …, \"arguments\": …}</tool_call>`: Hermes, Qwen 2.5 and 3, QwQ, Granite 3.1 and 4" {
        signs: &[&["<tool_call>"]],
        architectures: &["qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "granitemoehybrid"],
        opens: &["<tool_call>"],
        writing: each("\n", "<tool_call>\n{\"name\": \"{}\", \"arguments\": ", "}\n</tool_call>"),
    }
    Pythonic "pythonic" "`[f(a=1), g(b='x')]` at the beginning of an answer or in `<|python_start|>`: Llama 3.2 and 4" {
        signs: &[&["<|python_start|>"], &["[func_name1(params_name1"], &["[func_name1(param1="]],
        architectures: &["llama4", "llama4_text"],
        opens: &["<|python_start|>"],
        writing: python("[", "]", ", "),
    }
    Functionary "functionary" "`<function=NAME>{…}</function>`: Functionary 3.1, Llama 3 with custom tools" {
        signs: &[&["<function="]],
        opens: &["<function="],
        writing: each("", "<function={}>", "</function>"),
    }
    FunctionaryV3 "functionary-v3.2" "`>>>NAME`, a line break and `{…}`: Functionary 3.2" {
        signs: &[&[">>>all"]],
        opens: &[">>>"],
        answer: ("all\n", ""),
        framed: true,
        writing: each(">>>", "{}\n", ""),
    }
    XLam "xlam" "`[{\"name\": …, \"arguments\": …}]` alone, in a fence, or behind the marks of others: xLAM" {
        signs: &[
            &["\"tool_calls\": [", "\"name\": \"api_name1\""],
            &["\"func_name1\"", "\"arguments\""],
            &["[{\"name\": \"tool_call_name\""],
        ],
        opens: &["[TOOL_CALLS]", "<tool_call>", "```json"],
        writing: list("[", "]"),
    }
    ToolCode "tool-code" "a fence of `tool_code` with Python calls, or JSON alone or in a fence: Gemma 2 and 3 by usual prompts" {
        signs: &[&["tool_code"]],
        architectures: &["gemma2", "gemma3", "gemma3_text"],
        opens: &["```tool_code\n", "```json\n"],
        writing: python("```tool_code\n", "\n```", "\n"),
    }
    Llama3Json "llama3-json" "`{\"name\": …, \"parameters\": …}` alone or behind `<|python_tag|>`: Llama 3.1 and 3.3" {
        signs: &[&["<|python_tag|>"], &["ipython", "\"parameters\""]],
        architectures: &["mllama"],
        opens: &["<|python_tag|>", "<function="],
        writing: each("; ", "{\"name\": \"{}\", \"parameters\": ", "}"),
    }
}
