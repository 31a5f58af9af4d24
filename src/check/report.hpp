// The violations found so far, counted by rule. Filled by the checker's stages, read by check.cpp.
#pragma once

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "tilewire/check.hpp"

namespace tilewire::checking {

inline constexpr int kMostViolations = 20;

class Report {
 public:
  template <class... Args>
  void add(Rule rule, fmt::format_string<Args...> format, Args&&... args) {
    auto& texts = by_rule_[static_cast<size_t>(rule)];
    if (!full(rule)) texts.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  /// No more violations of this rule will be kept.
  [[nodiscard]] bool full(Rule rule) const {
    return std::ssize(by_rule_[static_cast<size_t>(rule)]) >= kMostViolations;
  }
  [[nodiscard]] bool empty() const;
  /// At most kMostViolations, the first of each rule first.
  [[nodiscard]] std::vector<Violation> violations() const;

 private:
  std::array<std::vector<std::string>, 5> by_rule_{};
};

}  // namespace tilewire::checking
