// Messages of the ranks' exchange: a verb, which says what the rank is doing, and a text.
// Called by what is collective: make_op, barrier, allocate, and by the group that carries them.
#include "backends/messages.hpp"

#include <algorithm>

#include "core/caught.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

/// Before a verb; no caller's text begins so.
constexpr std::string_view kMark = "\x01tilewire:";
/// After it.
constexpr char kEnd = '\x01';

/// Where the text of a message begins; 0 where it has no verb.
size_t begin_of_text(std::string_view message) {
  if (!message.starts_with(kMark)) return 0;
  const size_t end = message.find(kEnd, kMark.size());
  return end == std::string_view::npos ? 0 : end + 1;
}

}  // namespace

std::string_view verb_of(std::string_view message) {
  const size_t text = begin_of_text(message);
  return text == 0 ? "all_gather" : message.substr(kMark.size(), text - 1 - kMark.size());
}

std::vector<std::string> exchange(Group& group, std::string_view verb, std::string_view mine) {
  std::vector<std::string> all = group.all_gather(fmt::format("{}{}{}{}", kMark, verb, kEnd, mine));
  for (std::string& message : all) message.erase(0, begin_of_text(message));
  return all;
}

namespace {

/// A rank's text, or its failure.
nlohmann::json outcome_of(const std::function<std::string()>& step) {
  try {
    return {{"value", step()}};
  } catch (...) {
    const Error error = caught_error();
    return {{"kind", error.kind()}, {"text", error.what()}};
  }
}

}  // namespace

std::vector<std::string> agree(Group& group, std::string_view verb, const std::function<std::string()>& step) {
  std::vector<nlohmann::json> all;
  for (const std::string& text : exchange(group, verb, json_text(outcome_of(step)))) {
    all.push_back(parse_json(text, "a message of the ranks"));
  }
  const auto failed = [](const nlohmann::json& one) { return one.contains("kind"); };
  const auto first = std::ranges::find_if(all, failed);
  if (first != all.end()) {
    const auto text = (*first)["text"].get<std::string>();
    const bool alike = std::ranges::all_of(all, [&](const nlohmann::json& one) { return one == *first; });
    throw Error((*first)["kind"].get<ErrorKind>(),
                alike ? text : fmt::format("rank {}: {}", first - all.begin(), text));
  }
  std::vector<std::string> values;
  for (const nlohmann::json& one : all) values.push_back(one["value"]);
  return values;
}

void require_one_verb(const std::vector<std::string>& messages) {
  for (size_t rank = 1; rank < messages.size(); ++rank) {
    require(verb_of(messages[rank]) == verb_of(messages[0]), "ranks call different collectives: rank 0 {}, rank {} {}",
            verb_of(messages[0]), rank, verb_of(messages[rank]));
  }
}

}  // namespace tilewire
