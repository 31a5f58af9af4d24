// The checker's data structures against plain loops over elements.
// Built as the target `unit_check`. TILEWIRE_SEED repeats a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "check/bands.hpp"
#include "check/boxes.hpp"

namespace tilewire::checking {
namespace {

using Random = std::mt19937_64;

uint64_t seed() {
  const char* given = std::getenv("TILEWIRE_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

Rect random_rect(Random& random, int64_t rows, int64_t cols) {
  const auto below = [&](int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); };
  const int64_t row = below(rows);
  const int64_t col = below(cols);
  return {row, row + below(rows - row + 1), col, col + below(cols - col + 1)};
}

TEST(BoxTree, FindsWhatPlainLoopsFind) {
  const uint64_t first = seed();
  SCOPED_TRACE(fmt::format("TILEWIRE_SEED={}", first));
  Random random(first);
  for (int round = 0; round < 50; ++round) {
    std::vector<Rect> rects;
    for (uint64_t i = random() % 200; i > 0; --i) rects.push_back(random_rect(random, 60, 1 + random() % 60));
    const BoxTree tree(rects);
    for (int query = 0; query < 50; ++query) {
      const Rect rect = random_rect(random, 60, 60);
      std::vector<int> found;
      std::vector<int> wanted;
      tree.for_each_meeting(rect, [&](int i) { found.push_back(i); });
      for (int i = 0; i < std::ssize(rects); ++i) {
        if (!rect.empty() && !rects[i].empty() && !intersect(rect, rects[i]).empty()) wanted.push_back(i);
      }
      std::ranges::sort(found);
      ASSERT_EQ(found, wanted);
    }
  }
}

TEST(Bands, HoldWhatPlainLoopsHold) {
  constexpr int64_t kRows = 24;
  constexpr int64_t kCols = 18;
  const uint64_t first = seed();
  SCOPED_TRACE(fmt::format("TILEWIRE_SEED={}", first));
  Random random(first);
  for (int round = 0; round < 100; ++round) {
    Bands bands({kRows, kCols});
    std::vector<int> elements(kRows * kCols, -1);  // value held, -1 = none
    const auto at = [&](int64_t row, int64_t col) -> int& { return elements[row * kCols + col]; };
    for (int step = 0; step < 20; ++step) {
      const Patch patch{random_rect(random, kRows, kCols), {0, 0, static_cast<int>(random() % 3)}, step};
      bands.write(patch);
      for (int64_t row = patch.at.row0; row < patch.at.row1; ++row) {
        for (int64_t col = patch.at.col0; col < patch.at.col1; ++col) at(row, col) = patch.content.value;
      }
      const Rect rect = random_rect(random, kRows, kCols);
      std::map<std::pair<int64_t, int64_t>, int> held;
      for (const Patch& part : bands.read(rect)) {
        for (int64_t row = part.at.row0; row < part.at.row1; ++row) {
          for (int64_t col = part.at.col0; col < part.at.col1; ++col)
            ASSERT_TRUE(held.emplace(std::pair(row, col), part.content.value).second) << "patches overlap";
        }
      }
      bool gap = false;
      for (int64_t row = rect.row0; row < rect.row1; ++row) {
        for (int64_t col = rect.col0; col < rect.col1; ++col) {
          const auto found = held.find({row, col});
          ASSERT_EQ(found == held.end() ? -1 : found->second, at(row, col)) << row << ", " << col;
          gap |= found == held.end();
        }
      }
      const auto reported = bands.first_gap(rect);
      ASSERT_EQ(reported.has_value(), gap);
      if (reported) {
        ASSERT_EQ(at(reported->row0, reported->col0), -1);
      }
      ASSERT_EQ(bands.first_patch(rect).has_value(), !held.empty());
    }
  }
}

TEST(Bands, ReadJoinsNeighboursOfEqualContent) {
  Bands bands({8, 8});
  for (int64_t row = 0; row < 8; row += 2) {
    for (int64_t col = 0; col < 8; col += 4) bands.write({{row, row + 2, col, col + 4}, {3, 5, 1}, 0});
  }
  ASSERT_EQ(bands.read({0, 8, 0, 8}).size(), 1U);
  EXPECT_EQ(bands.read({1, 7, 2, 7})[0].at, (Rect{1, 7, 2, 7}));
}

TEST(Values, SumsAreUnionsOfDisjointTerms) {
  Values values;
  const int left = values.add({What::partial, {{0, 2}, {6, 8}}});
  const int right = values.add({What::partial, {{2, 4}}});
  EXPECT_EQ(values[values.sum(left, right)].terms, (std::vector<Range>{{0, 4}, {6, 8}}));
  EXPECT_EQ(values.sum(left, values.add({What::partial, {{1, 2}}})), -1);
  EXPECT_EQ(values.sum(left, values.add({What::partial, {{4, 9}}})), -1);
  EXPECT_EQ(values.sum(left, values.zero().value), left);
  EXPECT_EQ(terms_name(values[left].terms), "0..2, 6..8");
}

}  // namespace
}  // namespace tilewire::checking
