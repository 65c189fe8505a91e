// How many bytes of text a GPT-2 token stands for, so that losses of token shards can be given per byte. Must not know
// the tokens' text. Thread rule: a pure function of constant data.
#pragma once

#include <cstdint>

namespace ablate {

// Bytes of the decoded text of `token`, 0 to 50256; 0 for the end-of-text token (50256). Source: the ranks of GPT-2's
// byte-pair encoding.
int Gpt2TokenBytes(int32_t token);

}  // namespace ablate
