// The violations so far, by rule. The checker's stages add to it; check.cpp reads it.
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
  /// Whether further violations of this rule are dropped.
  [[nodiscard]] bool full(Rule rule) const {
    return std::ssize(by_rule_[static_cast<size_t>(rule)]) >= kMostViolations;
  }
  [[nodiscard]] bool empty() const;
  /// At most kMostViolations: first the first one of each rule, then the others.
  [[nodiscard]] std::vector<Violation> violations() const;

 private:
  std::array<std::vector<std::string>, 5> by_rule_{};
};

}  // namespace tilewire::checking
