// Messages of collective functions: a verb, which names the function, and a text.
// Called by all collective functions (make_op, barrier, allocate), and by the group's all_gather.
#include "backends/messages.hpp"

#include <algorithm>

#include "core/caught.hpp"
#include "core/json_text.hpp"
#include "core/text.hpp"
#include "tilewire/json.hpp"

namespace tilewire {
namespace {

/// Prefix of a verb. No caller's text begins with it.
constexpr std::string_view kMark = "\x01tilewire:";
/// The same if the text is the rank's failure.
constexpr std::string_view kFailure = "\x01tilewire!";
static_assert(kMark.size() == kFailure.size());
/// Suffix of a verb.
constexpr char kEnd = '\x01';

/// Index of a message's text; 0 if the message has no verb.
size_t begin_of_text(std::string_view message) {
  if (!message.starts_with(kMark) && !message.starts_with(kFailure)) return 0;
  const size_t end = message.find(kEnd, kMark.size());
  return end == std::string_view::npos ? 0 : end + 1;
}

std::string message_of(std::string_view mark, std::string_view verb, std::string_view text) {
  return fmt::format("{}{}{}{}", mark, verb, kEnd, text);
}

/// Throw the first failure among the messages. Its text names the rank unless all ranks failed with the same text.
void throw_failure(const std::vector<std::string>& messages) {
  const auto failed = [](const std::string& message) { return message.starts_with(kFailure); };
  const auto first = std::ranges::find_if(messages, failed);
  if (first == messages.end()) return;
  const auto object = parse_json(std::string_view(*first).substr(begin_of_text(*first)), "a failure of a rank");
  const auto text = object["text"].get<std::string>();
  const bool alike = std::ranges::count(messages, *first) == std::ssize(messages);
  throw Error(object["kind"].get<ErrorKind>(),
              alike ? text : fmt::format("rank {}: {}", first - messages.begin(), text));
}

}  // namespace

std::string_view verb_of(std::string_view message) {
  const size_t text = begin_of_text(message);
  return text == 0 ? "all_gather" : message.substr(kMark.size(), text - 1 - kMark.size());
}

std::vector<std::string> exchange(Group& group, std::string_view verb, std::string_view mine) {
  std::vector<std::string> all = group.all_gather(message_of(kMark, verb, mine));
  for (std::string& message : all) message.erase(0, begin_of_text(message));
  return all;
}

std::vector<std::string> agree(Group& group, std::string_view verb, const std::function<std::string()>& step) {
  std::string mine;
  try {
    mine = step();
  } catch (...) {
    const Error error = caught_error();
    const std::string text = json_text({{"kind", error.kind()}, {"text", error.what()}});
    static_cast<void>(group.all_gather(message_of(kFailure, verb, text)));
    fail(ErrorKind::internal, "{}: a failure was not told: {}", verb, error.what());
  }
  return exchange(group, verb, mine);
}

void require_one_step(const std::vector<std::string>& messages) {
  throw_failure(messages);
  for (size_t rank = 1; rank < messages.size(); ++rank) {
    require(verb_of(messages[rank]) == verb_of(messages[0]), "ranks call different collectives: rank 0 {}, rank {} {}",
            verb_of(messages[0]), rank, verb_of(messages[rank]));
  }
}

}  // namespace tilewire
