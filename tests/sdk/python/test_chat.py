"""Plain chat: whole, streamed, several turns, several choices, seeds, limits."""

import time

import pytest

from conftest import MODEL


def test_a_question_gets_an_answer(ask):
    completion = ask("What is mortise?")
    choice = completion.choices[0]
    assert completion.id.startswith("chatcmpl-")
    assert completion.object == "chat.completion"
    assert completion.model == MODEL
    assert abs(completion.created - time.time()) < 60
    assert choice.message.role == "assistant"
    assert "mortise" in choice.message.content.lower()
    assert choice.finish_reason == "stop"
    usage = completion.usage
    assert usage.prompt_tokens > 0 and usage.completion_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_reasoning_is_apart_from_the_answer(ask):
    message = ask("What is 17 + 25?").choices[0].message
    assert "42" in message.content
    assert "<think>" not in message.content
    assert message.reasoning_content


def test_a_stream_says_what_the_whole_answer_says(client, ask):
    whole = ask("What is mortise?", temperature=0.8, seed=7).choices[0].message.content
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "What is mortise?"}],
        temperature=0.8,
        seed=7,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    pieces = [c.choices[0].delta.content for c in chunks if c.choices and c.choices[0].delta.content]
    assert "".join(pieces) == whole
    assert len(pieces) > 3, "the answer came in one burst"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.completion_tokens > 0
    assert len({c.id for c in chunks}) == 1


def test_without_include_usage_no_chunk_has_usage(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], stream=True
    )
    assert all(chunk.usage is None and chunk.choices for chunk in stream)


def test_the_stream_helper_of_the_sdk_works(client):
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "What is mortise?"}]
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert "mortise" in final.choices[0].message.content.lower()


def test_several_turns(client):
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    first = client.chat.completions.create(model=MODEL, messages=messages)
    messages.append(first.choices[0].message.to_dict())
    messages.append({"role": "user", "content": "Thank you!"})
    second = client.chat.completions.create(model=MODEL, messages=messages)
    assert second.choices[0].message.content
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_n_gives_as_many_choices(ask):
    completion = ask("Hello", n=3, temperature=1.0, seed=1)
    assert [choice.index for choice in completion.choices] == [0, 1, 2]
    assert all(choice.message.content for choice in completion.choices)


def test_streamed_choices_carry_their_index(client):
    stream = client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hello"}], n=2, stream=True
    )
    finished = [c.index for chunk in stream for c in chunk.choices if c.finish_reason]
    assert sorted(finished) == [0, 1]


def test_a_seed_repeats_the_answer_and_another_does_not(ask):
    def answer(seed):
        return ask("Hello", temperature=2.0, seed=seed, max_tokens=24).choices[0].message.content

    assert answer(11) == answer(11)
    assert len({answer(seed) for seed in range(8)}) > 1


def test_max_tokens_cuts(ask):
    for field in ("max_tokens", "max_completion_tokens"):
        completion = ask("What is mortise?", **{field: 3})
        assert completion.choices[0].finish_reason == "length"
        assert completion.usage.completion_tokens == 3


def test_stop_strings_end_the_answer_and_are_left_out(ask):
    whole = ask("What is mortise?").choices[0].message.content
    stop = whole[len(whole) // 3 : len(whole) // 3 + 5]
    cut = ask("What is mortise?", stop=[stop])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"


def test_logprobs_are_those_of_the_text(ask):
    choice = ask("Hello", logprobs=True, top_logprobs=3, max_tokens=6).choices[0]
    tokens = choice.logprobs.content
    assert "".join(t.token for t in tokens) == choice.message.content
    for token in tokens:
        assert token.logprob <= 0
        assert bytes(token.bytes).decode() == token.token
        assert len(token.top_logprobs) == 3
        # Greedy: the chosen token is the most likely one.
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == pytest.approx(token.logprob, abs=1e-4)


def test_logit_bias_decides(client):
    # With everything at its default but one token pushed up, that token is all that is said.
    completion = client.completions.create(
        model=MODEL, prompt="mortise is", max_tokens=4, logit_bias={"40": 100}, logprobs=1
    )
    tokens = completion.choices[0].logprobs.tokens
    assert len(set(tokens)) == 1 and len(tokens) == 4


async def _collect(async_client, text):
    stream = await async_client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": text}], stream=True
    )
    return "".join([c.choices[0].delta.content or "" async for c in stream if c.choices])


@pytest.mark.asyncio
async def test_thirty_two_clients_at_once_all_get_their_own_answer(async_client):
    import asyncio

    sums = [(i, 3 * i + 1) for i in range(32)]
    alone = [await _collect(async_client, f"What is {a} + {b}?") for a, b in sums[:4]]
    together = await asyncio.gather(
        *(_collect(async_client, f"What is {a} + {b}?") for a, b in sums)
    )
    assert together[:4] == alone
    right = sum(str(a + b) in answer for (a, b), answer in zip(sums, together))
    assert right >= 30, list(zip(sums, together))


@pytest.mark.asyncio
async def test_the_async_client_streams_token_by_token(async_client):
    stream = await async_client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "What is mortise?"}], stream=True
    )
    count = 0
    async for _ in stream:
        count += 1
    assert count > 5
