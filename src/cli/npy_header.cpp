// The dictionary in the header of .npy files, as numpy reads it.
// Called by npy.cpp.
#include "cli/npy_header.hpp"

#include <charconv>
#include <optional>
#include <set>
#include <string_view>

#include "core/text.hpp"

namespace tilewire::cli {
namespace {

class Parser {
 public:
  Parser(const std::string& path, std::string_view text) : path_(path), text_(text) {}

  NpyDictionary dictionary() {
    NpyDictionary read;
    std::set<std::string> keys;
    expect('{', "want a dictionary, '{'");
    while (!take('}')) {
      const std::string key = string("a key in quotes");
      expect(':', "want ':' after a key");
      read_value(key, read);
      keys.insert(key);
      if (take('}')) break;
      expect(',', "want ',' or '}' after a value");
    }
    for (const char* key : {"descr", "fortran_order", "shape"}) {
      require(keys.contains(key), "{}: malformed .npy header: no '{}'", path_, key);
    }
    skip_spaces();
    if (at_ < text_.size()) malformed("want nothing after the dictionary");
    return read;
  }

 private:
  void read_value(const std::string& key, NpyDictionary& read) {
    if (key == "descr") {
      require(peek() != '[', "{}: a structured dtype: want fields of their own, each saved alone", path_);
      read.descr = string("a dtype in quotes");
    } else if (key == "fortran_order") {
      read.fortran_order = boolean();
    } else if (key == "shape") {
      read.shape = extents();
    } else {
      fail(ErrorKind::invalid_input, "{}: malformed .npy header: key '{}': want descr, fortran_order and shape", path_,
           key);
    }
  }

  [[noreturn]] void malformed(const std::string& wanted) const {
    const std::string_view rest = text_.substr(at_, text_.substr(at_).find('\n'));
    const std::string found = rest.empty() ? "it does not end" : fmt::format("found {}", rest.substr(0, 20));
    fail(ErrorKind::invalid_input, "{}: malformed .npy header: {}; {}", path_, wanted, found);
  }
  void skip_spaces() {
    const size_t next = text_.find_first_not_of(" \t\r\n\f", at_);
    at_ = next == std::string_view::npos ? text_.size() : next;
  }
  // The next character that is no space; 0 at the end.
  char peek() {
    skip_spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    if (peek() != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted, const char* rule) {
    if (!take(wanted)) malformed(rule);
  }
  std::string string(const std::string& wanted) {
    // Python 2 marks unicode text by u; bytes may have a b.
    if (const char mark = peek(); mark == 'u' || mark == 'b') ++at_;
    const char quote = peek();
    if (quote != '\'' && quote != '"') malformed("want " + wanted);
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) {
      at_ = text_.size();
      malformed("want the end of " + wanted);
    }
    const std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return std::string(inside);
  }
  bool boolean() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    malformed("want True or False as fortran_order");
  }
  std::vector<int64_t> extents() {
    std::vector<int64_t> read;
    expect('(', "want a shape in parentheses");
    while (!take(')')) {
      read.push_back(extent());
      if (take(')')) break;
      expect(',', "want ',' or ')' in the shape");
    }
    return read;
  }
  int64_t extent() {
    skip_spaces();
    int64_t value = -1;
    const std::string_view rest = text_.substr(at_);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc{} || value < 0) malformed("want whole numbers of 0 or more in the shape");
    at_ += static_cast<size_t>(end - rest.data());
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2's long
    return value;
  }

  std::string path_;
  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

NpyDictionary parse_npy_dictionary(const std::string& path, const std::string& text) {
  return Parser(path, text).dictionary();
}

}  // namespace tilewire::cli
