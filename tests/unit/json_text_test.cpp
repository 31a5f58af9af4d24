// JSON from other sources: too deep, not UTF-8, with repeated keys, cut off; and values in messages.
#include "core/json_text.hpp"

#include <gtest/gtest.h>

#include "core/text.hpp"
#include "tilewire/json.hpp"
#include "tilewire/sim/machine.hpp"
#include "tilewire/tilewire.hpp"

namespace tilewire {
namespace {

using Json = nlohmann::json;

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

std::string refusal_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_input);
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text.substr(0, 400);
}

/// Texts that are not tilewire's JSON, and the error for each.
const std::pair<std::string, const char*> kForeign[] = {
    {repeated("[", 100'000) + repeated("]", 100'000), "nested deeper than 100 levels"},
    {repeated("{\"a\":", 100'000) + "1" + repeated("}", 100'000), "nested deeper than 100 levels"},
    {repeated("[{\"a\":", 5'000'000), "nested deeper than 100 levels"},
    {"{\"m\": 4, \"m\": 5}", "key \"m\" appears twice in one object"},
    {"{\"x\": [{\"y\": 1, \"z\": {}, \"y\": 2}]}", "key \"y\" appears twice in one object"},
    {"{\"op\": \"\xff\xfe\"}", "malformed JSON"},
    {"{\"\xc3\x28\": 1}", "malformed JSON"},
    {"{\"m\": 4", "malformed JSON"},
    {"", "malformed JSON"},
    {std::string("{\"m\": 4}\0x", 10), "malformed JSON"},
    {"{\"m\": 1e999}", "malformed JSON"},
};

TEST(ForeignJson, IsRefusedInASentence) {
  for (const auto& [text, words] : kForeign) {
    const std::string refusal = refusal_of([&, &json = text] { static_cast<void>(parse_json(json, "x.json")); });
    expect_in("x.json: ", refusal);
    expect_in(words, refusal);
    EXPECT_LE(refusal.size(), 400U);
    EXPECT_EQ(valid_utf8(refusal), refusal) << "the text of an error is UTF-8";
  }
}

TEST(ForeignJson, IsRefusedByTheReadersOfAllStructs) {
  for (const auto& [text, words] : kForeign) {
    expect_in(words, refusal_of([&, &json = text] { static_cast<void>(from_json_text<Problem>(json)); }));
    expect_in(words, refusal_of([&, &json = text] { static_cast<void>(from_json_text<Config>(json)); }));
    expect_in(words, refusal_of([&, &json = text] { static_cast<void>(from_json_text<Plan>(json)); }));
    expect_in(words, refusal_of([&, &json = text] { static_cast<void>(from_json_text<Machine>(json)); }));
  }
}

TEST(ForeignJson, KeysOfDifferentObjectsMayBeAlikeAndDepthEndsAtTheLimit) {
  EXPECT_EQ(parse_json(R"([{"a": {"a": 1}}, {"a": 2}])", "x").dump(), R"([{"a":{"a":1}},{"a":2}])");
  EXPECT_NO_THROW(static_cast<void>(parse_json(repeated("[", 100) + repeated("]", 100), "x")));
  EXPECT_THROW(static_cast<void>(parse_json(repeated("[", 102) + repeated("]", 102), "x")), Error);
}

/// Values that a program has built itself and passes to from_json.
TEST(ForeignJson, ValuesThatWereNotReadByUsEndInASentenceToo) {
  Json deep = 1;
  for (int i = 0; i < 20'000; ++i) deep = Json::array({std::move(deep)});
  Problem problem;
  expect_in("want an object, got [[[", refusal_of([&] { from_json(deep, problem); }));
  Json field = {{"op", "all_reduce"}};
  field["m"] = std::move(deep);
  expect_in("want an integer, got [[[", refusal_of([&] { from_json(field, problem); }));
  const Json bytes = {{"op", "all_reduce"}, {"m", "\xff\xff"}};
  expect_in("want an integer, got ", refusal_of([&] { from_json(bytes, problem); }));
}

TEST(ForeignJson, KnobsAndNamesOfAnyBytes) {
  Config config;
  expect_in("knob tile_order", refusal_of([&] { set_knob(config, "tile_order", "\xfc"); }));
  expect_in("knob tile_order", refusal_of([&] { set_knob(config, "tile_order", repeated("[", 100'000)); }));
  expect_in("knob tile_m", refusal_of([&] { set_knob(config, "tile_m", "{\"a\": 1, \"a\": 2}"); }));
  set_knob(config, "tile_order", "naive");
  EXPECT_EQ(config.tile_order, TileOrder::naive);
  set_knob(config, "tile_m", "64");
  EXPECT_EQ(config.tile_m, 64);
  // Printing never throws.
  const Problem problem{.op = "\xff", .m = 1};
  expect_in("\xEF\xBF\xBD", to_string(problem));
}

TEST(Shown, IsShortWhateverTheValue) {
  EXPECT_EQ(shown(1), "1");
  EXPECT_EQ(shown("text"), "\"text\"");
  EXPECT_EQ(shown({{"a", 1}, {"b", {1, 2, Json::object(), Json::array()}}}), R"({"a":1,"b":[1,2,{},[]]})");
  EXPECT_EQ(shown(repeated("x", 1'000)).size(), 60U);
  EXPECT_LE(shown(Json::array({repeated("\xc3\xa9", 100)})).size(), 60U);
  EXPECT_EQ(valid_utf8(shown(repeated("\xe2\x82\xac", 100))), shown(repeated("\xe2\x82\xac", 100)));
  EXPECT_EQ(plain_text("a b"), "a b");
  EXPECT_EQ(plain_text({1, 2}), "[1,2]");
  EXPECT_EQ(valid_utf8("a\xff"
                       "b"),
            "a\xEF\xBF\xBD"
            "b");
}

}  // namespace
}  // namespace tilewire
