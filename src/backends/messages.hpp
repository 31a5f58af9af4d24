// Messages of the ranks' exchange: a verb, which says what the rank is doing, and a text.
// Called by what is collective: make_op, barrier, allocate. Group::all_gather carries them, and compares the verbs.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tilewire/group.hpp"

namespace tilewire {

/// What the sender of a message is doing, "make_op"; "all_gather" where the message has no verb.
[[nodiscard]] std::string_view verb_of(std::string_view message);

/// Everybody's texts, by rank, for a step that all ranks must be at. Throws Error(invalid_input) on all of them where
/// some are at another one. Collective.
[[nodiscard]] std::vector<std::string> exchange(Group& group, std::string_view verb, std::string_view mine);

/// Do `step` on every rank; returns their texts, by rank. Where it throws on some, all ranks throw the Error of the
/// lowest of these, "rank 1: ...", without a number where all failed in the same words, and also where the others are
/// at another collective; the group lives. Collective.
std::vector<std::string> agree(Group& group, std::string_view verb, const std::function<std::string()>& step);

/// Throw the Error of a rank that failed before it came, or Error(invalid_input) unless all messages, by rank, have the
/// same verb.
void require_one_step(const std::vector<std::string>& messages);

}  // namespace tilewire
