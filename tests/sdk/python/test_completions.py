"""The legacy route."""

from conftest import MODEL


def test_a_prompt_is_continued(client):
    completion = client.completions.create(model=MODEL, prompt="mortise is", max_tokens=12)
    assert completion.object == "text_completion" and completion.id.startswith("cmpl-")
    assert completion.choices[0].text
    assert completion.usage.completion_tokens <= 12


def test_echo_repeats_the_prompt(client):
    completion = client.completions.create(
        model=MODEL, prompt="mortise is", max_tokens=4, echo=True
    )
    assert completion.choices[0].text.startswith("mortise is")


def test_a_list_of_prompts_gives_a_choice_each(client):
    completion = client.completions.create(
        model=MODEL, prompt=["mortise is", "What is"], max_tokens=4, n=2
    )
    assert [choice.index for choice in completion.choices] == [0, 1, 2, 3]


def test_a_stream_says_what_the_whole_says(client):
    options = dict(model=MODEL, prompt="mortise is", max_tokens=16)
    whole = client.completions.create(**options).choices[0].text
    stream = client.completions.create(**options, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == whole


def test_logprobs_are_aligned_with_the_text(client):
    choice = client.completions.create(
        model=MODEL, prompt="mortise is", max_tokens=5, logprobs=2
    ).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.text_offset)
    assert all(value <= 0 for value in logprobs.token_logprobs)
