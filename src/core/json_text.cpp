// The JSON library's parser and writer, with limits of depth and size.
// Called through json_text.hpp.
#include "core/json_text.hpp"

#include <algorithm>
#include <vector>

#include "core/text.hpp"

namespace tilewire {
namespace {

using Json = nlohmann::json;

constexpr size_t kDeepest = 100;       // levels; our own files have a dozen
constexpr size_t kMostShown = 60;      // bytes of a value in a message
constexpr size_t kMostReported = 300;  // bytes of the parser's own message

/// Cut the text to `most` bytes, between two UTF-8 characters.
std::string cut(const std::string& text, size_t most) {
  if (text.size() <= most) return text;
  size_t end = most - 3;
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; };
  while (end > 0 && continues(end)) --end;
  return text.substr(0, end) + "...";
}

/// A SAX handler that limits the depth and refuses repeated keys.
class Limits : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_array(size_t /*elements*/) override { return open(); }
  bool end_array() override { return close(); }
  bool start_object(size_t /*elements*/) override { return open(); }
  bool key(string_t& key) override {
    keys_[depth_ - 1].push_back(key);
    return true;
  }
  bool end_object() override {
    std::vector<std::string>& keys = keys_[depth_ - 1];
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) fail(ErrorKind::invalid_input, "key {} appears twice in one object", shown(*twice));
    return close();
  }
  /// Stop; Json::parse then throws the parser's own error.
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& /*error*/) override {
    return false;
  }

 private:
  bool open() {
    require(depth_ < kDeepest, "it is nested deeper than {} levels", kDeepest);
    if (keys_.size() == depth_) keys_.emplace_back();
    keys_[depth_++].clear();
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::vector<std::vector<std::string>> keys_;  // of the open objects, by depth
  size_t depth_ = 0;
};

Json parse_within_limits(std::string_view text) {
  // NOTE: the parser treats a zero byte as the end.
  const size_t zero = text.find('\0');
  require(zero == text.npos, "malformed JSON: byte {} is zero", zero);
  Limits limits;
  static_cast<void>(Json::sax_parse(text, &limits));
  return Json::parse(text);
}

/// Append the value's JSON to the text until the text is long enough. NOTE: each level appends a character, so the
/// recursion is bounded.
void show(const Json& value, std::string& text) {
  if (value.is_string()) {
    text += json_text(cut(value.get_ref<const std::string&>(), kMostShown));
  } else if (!value.is_structured()) {
    text += json_text(value);
  } else {
    const char* before = value.is_object() ? "{" : "[";
    for (const auto& [key, item] : value.items()) {
      if (text.size() > kMostShown) return;
      text += before;
      if (value.is_object()) text += json_text(cut(key, kMostShown)) + ":";
      show(item, text);
      before = ",";
    }
    if (value.empty()) text += before;
    text += value.is_object() ? "}" : "]";
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& what) {
  try {
    return parse_within_limits(text);
  } catch (const Json::exception& error) {
    fail(ErrorKind::invalid_input, "{}: malformed JSON: {}", what, cut(valid_utf8(error.what()), kMostReported));
  } catch (const Error& error) {
    fail(ErrorKind::invalid_input, "{}: {}", what, error.what());
  }
}

Json json_or_text(const std::string& text) {
  try {
    return parse_within_limits(text);
  } catch (const Json::exception&) {
    return text;
  } catch (const Error&) {
    return text;
  }
}

std::string json_text(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  std::string text;
  show(value, text);
  return cut(text, kMostShown);
}

std::string shown_name(const std::string& name) {
  const std::string quoted = json_text(cut(name, kMostShown));
  return quoted.substr(1, quoted.size() - 2);
}

std::string plain_text(const Json& value) { return value.is_string() ? value.get<std::string>() : json_text(value); }

std::string valid_utf8(const std::string& text) { return Json::parse(json_text(text)).get<std::string>(); }

}  // namespace tilewire
