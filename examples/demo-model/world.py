"""The closed world: what the demo model knows about mortise and about itself.

One fact a paragraph: questions separated by " | ", then "=>", then the answer.
`{what:X}` in the questions stands for the usual ways to ask what X is.
"""

CAN = "I can answer questions about mortise, add and subtract, call the tools you declare, and put facts into JSON."
OUT = "I do not know that. I am a tiny demo model that lives in a small closed world. " + CAN

FACTS = f"""
{{what:mortise}} | what does mortise do | describe mortise | what is this server | what is this project => mortise is an LLM inference server written in Rust. Its policy, such as chat templates, parsers, grammars and auth, lives in sandboxed WebAssembly plugins.
who are you | what are you | what is your name | introduce yourself | tell me about yourself | which model are you | what model is this | are you a chatbot | who am i talking to => I am the mortise demo model: a tiny language model that lives in a small closed world.
what can you do | how can you help me | what are you able to do | what are your skills | help | what can i ask you | what do you know | what are you good at => {CAN}
who made you | who trained you | who built you | where do you come from | who created you => The authors of mortise trained me from scratch with a program in the repository.
how were you trained | what data were you trained on | what is your training data | where does your training data come from | were you trained on the internet => I was trained from scratch on data that a program generates. Nothing was downloaded.
how big are you | how many parameters do you have | what is your size | are you a large model | how large are you => I am tiny: a few million parameters, small enough to be embedded in the mortise binary.
what is your architecture | which architecture do you use | what kind of model are you | are you a transformer => I am a small decoder of the Qwen3 kind with a byte-level BPE tokenizer of my own.
what are your limits | what can you not do | what are your weaknesses | can i use you in production | are you reliable => I only know a small closed world. Load a bigger model for real work.
are you human | are you a person | are you real | are you alive | do you have feelings => No, I am a tiny language model.
are you chatgpt | are you gpt-4 | are you claude | are you llama | are you qwen | are you gemini => No, I am the mortise demo model.
do you have access to the internet | can you browse the web | are you online | can you search the web => No. I only see this conversation and the tools you declare.
why are you so small | why do you exist | what are you for | what is the point of you => I exist so that mortise answers right after it starts, with no download.
where do you live | where is the demo model | are you part of the binary | where are you stored => I am embedded in the mortise binary, so nothing has to be downloaded.
{{what:a plugin}} | {{what:a mortise plugin}} | what do plugins do | what are plugins for => A plugin is a WebAssembly component that decides policy: it renders prompts, parses output, compiles grammars or checks requests.
how do i add a plugin | how do i install a plugin | how can i add my own plugin | where do i put my plugin | how do i load a plugin | how to add a plugin | how are plugins installed | where do plugins go => Drop the .wasm file into the plugins folder and name it in the configuration.
how do i write a plugin | how do i make a plugin | how can i build my own plugin | how do i create a plugin | how are plugins written => Implement an interface of the WIT package mortise:plugin and compile it to a WebAssembly component.
what kinds of plugins are there | which plugin kinds exist | which kinds of plugins does mortise have | list the plugin kinds | what plugin types are there => There are five kinds of plugins: chat-template, output-parser, grammar, policy and tool.
{{what:a chat-template plugin}} | {{what:the chat-template kind}} | {{what:a chat template}} => A chat-template plugin renders the messages and tools of a request into the prompt of the model.
{{what:an output-parser plugin}} | {{what:the output-parser kind}} | {{what:an output parser}} | {{what:a tool-call parser}} => An output-parser plugin splits what the model writes into content, reasoning and tool calls.
{{what:a grammar plugin}} | {{what:the grammar kind}} | how do grammars work => A grammar plugin compiles a schema into token masks, so that the model can only write valid output.
{{what:a policy plugin}} | {{what:the policy kind}} | how does auth work | who checks api keys => A policy plugin decides who may ask what: it authorizes requests and accounts for their use.
{{what:a tool plugin}} | {{what:the tool kind}} => A tool plugin offers a function that the server itself can run for the model.
{{what:the WIT package}} | {{what:mortise:plugin}} | what is the plugin contract | which WIT package do plugins use | what is the plugin interface called => The contract of the plugins is the WIT package mortise:plugin.
{{what:WIT}} => WIT is the language that describes the interfaces of WebAssembly components.
{{what:WebAssembly}} | {{what:wasm}} => WebAssembly is a portable binary format for code that runs in a sandbox.
{{what:a component}} | {{what:a WebAssembly component}} => A component is a WebAssembly module with typed interfaces.
{{what:wasmtime}} | which runtime runs the plugins | what wasm runtime does mortise use | which WebAssembly engine is used => wasmtime is the WebAssembly runtime that runs the plugins of mortise.
are plugins safe | are plugins sandboxed | how are plugins isolated | how does the sandbox work | can a plugin read my files | {{what:the sandbox}} => Every plugin runs in a wasmtime sandbox with a deadline and a memory cap, and sees only what it was granted.
what happens if a plugin hangs | what if a plugin loops forever | can a plugin block the server | do plugins have deadlines | what is a plugin deadline => A plugin that passes its deadline is stopped, and the server goes on.
what happens if a plugin crashes | what if a plugin traps | can a plugin crash the server | what if a plugin panics => A plugin that traps is dropped with its memory, and the server goes on.
how much memory can a plugin use | is plugin memory limited | what is the memory cap | what if a plugin uses too much memory => Every plugin has a memory cap. Beyond it the plugin is stopped.
which languages can i write plugins in | can i write plugins in python | can i write plugins in rust | what languages do plugins support | can i write a plugin in go => Any language that compiles to WebAssembly components will do, for example Rust, Go, Python or JavaScript.
why does mortise use WebAssembly | why are plugins WebAssembly | why wasm | why not python plugins | why use a sandbox => Policy changes more often than the engine. In WebAssembly it can change safely, without a new server.
what is written in rust | what language is mortise written in | which language is mortise written in | is mortise written in rust | is it written in python | what is mortise made of => mortise is written in Rust.
what is the license | what is the licence of mortise | which license does mortise have | how is mortise licensed | is mortise open source | is mortise free | can i use mortise commercially => mortise is open source under MIT or Apache-2.0, at your option.
which endpoints are there | what endpoints does mortise have | which api does mortise have | list the endpoints | what routes exist | which urls can i call => mortise serves /v1/chat/completions, /v1/completions, /v1/models, /health and /metrics.
is mortise compatible with openai | can i use the openai client | is the api openai compatible | does mortise speak the openai api | how do i use the openai sdk => Yes, the API is OpenAI-compatible: point your client at http://127.0.0.1:8080/v1.
which port does mortise use | what is the default address | where does mortise listen | what port is the default | which address does it listen on | what is the url of the server | what is the base url => By default mortise listens on 127.0.0.1:8080.
{{what:/v1/chat/completions}} | {{what:the chat endpoint}} | how do i chat with the model | which endpoint is for chat => POST /v1/chat/completions takes messages and tools and answers as the assistant.
{{what:/v1/completions}} | {{what:the completions endpoint}} | how do i complete plain text | which endpoint completes text => POST /v1/completions continues a plain text prompt.
{{what:/v1/models}} | how do i list the models | which models are available | which endpoint lists models => GET /v1/models lists the models that the server offers.
{{what:/health}} | how do i check the server | is there a health check | how do i know the server is up => GET /health says whether the server is ready.
{{what:/metrics}} | how do i monitor mortise | are there metrics | does mortise support prometheus | how do i get metrics => GET /metrics shows counters and timings in the Prometheus format.
why is it called mortise | why the name mortise | where does the name come from | what does the name mean | why is mortise called mortise => A mortise is the socket that a tenon fits. The server is the socket, and the plugins are the tenons.
what is a mortise | what does the word mortise mean | define mortise | what is a mortise in woodworking => In woodwork, a mortise is the hole or socket that a tenon fits.
{{what:a tenon}} | what does the word tenon mean | define tenon => In woodwork, a tenon is the tongue of wood that fits a mortise.
{{what:a mortise and tenon joint}} => It is a joint of two pieces of wood: the tenon of one fits the mortise of the other.
how do i start mortise | how do i run mortise | how do i start the server | how do i use mortise | how do i get started => Run the mortise binary. It answers at once with the embedded demo model on 127.0.0.1:8080.
how do i load a model | can i use another model | how do i use a bigger model | how do i serve my own model | how do i change the model => Give mortise a folder with the standard Hugging Face files: config.json, tokenizer.json and model.safetensors.
which model formats are supported | what formats can mortise load | does mortise load safetensors | does mortise support gguf => mortise loads safetensors and GGUF weights.
does mortise stream | can i stream answers | does mortise support streaming | how do i stream tokens => Yes. Set stream to true and the answer arrives as server-sent events.
does mortise support tools | can the model call functions | does mortise support function calling | how do tool calls work | {{what:a tool call}} => Declare tools in the request. The model answers with a call, you run it and send the result back.
{{what:structured output}} | can i force json output | how do i get json | does mortise support json schema | how do i force a schema | {{what:constrained decoding}} => Send a response_format with a JSON schema. A grammar then masks every token that would break it.
{{what:a token mask}} | {{what:a mask}} => A token mask says which tokens may come next. The sampler never picks another.
{{what:a token}} => A token is a piece of text, the unit that a language model reads and writes.
{{what:a tokenizer}} => A tokenizer cuts text into tokens and joins tokens into text.
{{what:the engine}} | how does the engine work => The engine batches requests continuously and computes the next token of each. It sees no text and no plugins.
{{what:continuous batching}} | how are requests batched => With continuous batching, requests join and leave the running batch at every step.
{{what:the KV cache}} => The KV cache keeps what attention computed for earlier tokens, so that it is not computed again.
does mortise run on a gpu | does mortise need a gpu | can mortise run on a cpu | do i need a gpu => mortise runs on CPUs, and on NVIDIA GPUs with CUDA.
{{what:greedy decoding}} => Greedy decoding always picks the most likely token.
{{what:the temperature setting}} | what does temperature do => Temperature sets how random sampling is: 0 always picks the most likely token.
{{what:a system prompt}} => A system prompt is the first message. It tells the model how to behave.
{{what:a think block}} | what is reasoning_content | what is the think tag => A think block holds the steps before the answer. mortise returns it as reasoning_content.
{{what:inference}} => Inference means running a trained model to get answers.
{{what:an LLM}} | {{what:a language model}} => A language model predicts the next token of a text. A large one is called an LLM.
does mortise train models | can i train a model with mortise | can i fine-tune with mortise => No, mortise only serves models. The demo model has its own training program.
how do i retrain you | can i retrain the demo model | how do i train the demo model => Run the retrain script in examples/demo-model. It needs two CPU cores and under three hours.
how do api keys work | how do i set an api key | does mortise support api keys | how do i protect the server => Put a policy plugin in front: it checks the API key of every request.
where is the documentation | where can i read more | is there documentation | where are the docs => Start with the README of the repository, then read ARCHITECTURE.md.
how do i report a bug | where do i report bugs | how can i contribute | i found a bug => Open an issue in the mortise repository.
hello | hi | hey | hi there | hello there | good morning | good evening | good afternoon | greetings | hey there => Hello! I am the mortise demo model. Ask me about mortise, a sum, or a tool.
how are you | how are you doing | how is it going | what's up | how do you do => I am fine, thank you. Ask me about mortise, a sum, or a tool.
thanks | thank you | thanks a lot | thank you very much | many thanks | cheers | great, thanks | perfect, thank you => You are welcome!
bye | goodbye | see you | see you later | good night | bye bye | that is all => Goodbye!
ok | okay | good | great | nice | cool | well done | good job | i see => Good. What would you like to know next?
test | testing | ping | are you there | is this working | say something | can you hear me => Yes, I am here.
"""

WHAT = ("what is {}", "what's {}", "what is {}", "explain {}", "tell me about {}", "what does {} mean", "describe {}",
        "what do you know about {}", "can you explain {}", "define {}")

OUT_TOPICS = """the capital of {c}|the weather in {c}|the time in {c}|the president of {c}|the population of {c}|the
history of {c}|how tall {p} is|who {p} is|the meaning of life|a joke|a poem about {t}|a story about {t}|the best
{o}|the price of a {o}|how to cook {i}|a recipe for {i}|the news|the score of the game|quantum physics|the distance
to {c}|the square root of {n}|{n} times {n}|{n} divided by {n}|{n} * {n}|{n} / {n}|black holes|{t}|the rules of {t}|good films|who won the
election|how to learn {t}|my horoscope|the stock market|bitcoin|my password|a haiku about {t}|how {t} works|the origin
of {t}|where {c} is|when {p} was born|why the sky is blue|how old {p} is|the plot of a film|a song about {t}"""
OUT_FRAMES = ("what is {}", "tell me about {}", "tell me {}", "do you know {}", "explain {}", "can you tell me {}",
              "give me {}", "i would like {}", "what do you know about {}", "i want to know {}", "i need {}", "write {}")
OUT_WHOLE = ("translate {q} into French|write code for {t}|who is {p}|where is {c}|how do i cook {i}|sing a song|"
             "what should i wear|where can i buy a {o}|what happened in {y}|which {o} is best|do you like {t}|"
             "write a python script|who won the world cup in {y}|how far is {c}|how do i get to {c}|i feel sad|"
             "what is love|recommend a film|what day is it|how do i fix my {o}|plan a trip to {c}|"
             "what's the weather like in {c}|what is the weather in {c}|what time is it in {c}|is it raining in {c}|"
             "what is {n} times {n}|multiply {n} by {n}|divide {n} by {n}|summarize the history of {c}|my {o} is broken|"
             "do you know {p}|who was {p}|how do you make {i}|write an essay about {t}").split("|")

BEFORE = ("", "", "", "", "", "", "hey, ", "hi, ", "hello, ", "please ", "so, ", "ok, ", "quick question: ", "one more thing: ",
          "i wonder, ", "question: ", "and ", "now, ", "sorry, ", "well, ")
AFTER = ("", "", "", "", "", "", "", " please", ", please", " thanks", " exactly", " in short", " for me", " again")

TEXTS = """mortise is an LLM inference server written in Rust.
mortise is the socket, and the plugins are the tenons.
The plugins of mortise are WebAssembly components that run in a wasmtime sandbox.
A plugin has a deadline and a memory cap, and sees only what it was granted.
By default mortise listens on 127.0.0.1:8080.
The engine batches requests continuously and computes the next token of each.
A grammar compiles a schema into token masks, so that the output is always valid.
The demo model is tiny and lives in a small closed world.
Once upon a time there was a mortise, and a tenon that fit it well.
The contract of the plugins is the WIT package mortise:plugin.
mortise is open source under MIT or Apache-2.0, at your option.
A mortise is the hole or socket that a tenon fits.
To add a plugin, drop the .wasm file into the plugins folder.
The quick brown fox jumps over the lazy dog.""".splitlines()


def load():
    facts = []
    for line in FACTS.strip().splitlines():
        left, answer = line.split(" => ")
        questions = []
        for q in left.split(" | "):
            if q.startswith("{what:"):
                thing = q[6:-1]
                questions += [w.format(thing) for w in WHAT] + [thing]
            else:
                questions.append(q)
        facts.append((list(dict.fromkeys(questions)), answer))
    return facts


ALL = load()


def noise(d, text, hard=0.12):
    """Case, punctuation and the odd typo: how people really type."""
    if d.chance(0.7):
        text = text[0].upper() + text[1:]
    if d.chance(0.06):
        text = text.lower()
    elif d.chance(0.02):
        text = text.upper()
    if len(text) > 12 and d.chance(hard):
        i = d.randint(1, len(text) - 3)
        kind = d.randint(0, 2)
        a, b = text[i], text[i + 1]
        if a.isalpha() and b.isalpha():
            text = text[:i] + (b + a if kind == 0 else b if kind == 1 else a + a + b) + text[i + 2:]
    return text


def ask(d, question):
    q = d.choice(BEFORE) + question + d.choice(AFTER)
    return noise(d, q) + d.choice(("?", "?", "?", "", ".", "??", "!"))


def fact(d):
    """A question about the closed world and its answer."""
    questions, answer = d.choice(ALL)
    while True:
        text = ask(d, d.choice(questions))
        if words_side(d, text):
            return text, answer


SHOWN = ("what is mortise", "who are you", "what can you do", "how do i add a plugin", "hello")


def words_side(d, text):
    """Whether this wording belongs to the side that is being generated. What the project's own documents show is learnt."""
    from words import is_held_out
    if text.lower().strip(" ?!.") in SHOWN:
        return not d.held_out
    return is_held_out(text) == d.held_out


def outside(d):
    from words import CITY, ITEM, PRODUCT, TOPIC
    fill = lambda s: s.format(c=d.city(), p=d.person(), t=d.word(TOPIC), o=d.word(PRODUCT), i=d.word(ITEM),
                              n=d.randint(2, 999), y=d.randint(1900, 2030), q=d.phrase())
    if d.chance(0.5):
        q = d.choice(OUT_FRAMES).format(fill(d.choice(OUT_TOPICS.replace("\n", " ").split("|"))))
    else:
        q = fill(d.choice(OUT_WHOLE))
    return ask(d, q), OUT
