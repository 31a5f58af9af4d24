// JSON, printing, hashing and `--set`, all from the tables in fields.hpp.
// Called through tilewire/json.hpp and tilewire/print.hpp.
#include "tilewire/json.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "core/fields.hpp"
#include "core/json_text.hpp"
#include "core/renamed.hpp"
#include "core/text.hpp"

namespace tilewire {

template <class E>
std::string known_names() {
  std::string list;
  for (const auto& [value, name] : Names<E>::kList) list += (list.empty() ? "" : ", ") + std::string(name);
  return list;
}

template <class E>
E parse(const std::string& name, const std::string& what) {
  for (const auto& [value, known] : Names<E>::kList) {
    if (known == name) return value;
  }
  fail(ErrorKind::invalid_input, "{}: unknown '{}'; known: {}", what, shown_name(name), known_names<E>());
}

namespace {

using Json = nlohmann::json;

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

template <class T, class Visit>
void for_each_field(const Visit& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, Fields<T>::kList);
}

template <class T>
std::string known_fields() {
  std::string list;
  for_each_field<T>([&](const auto& f) { list += (list.empty() ? "" : ", ") + std::string(f.name); });
  return list;
}

/// Structs that people read and edit as a whole: JSON has their default values, too.
template <class T>
constexpr bool kWritesDefaults =
    std::is_same_v<T, Machine> || std::is_same_v<T, ComputeUnits> || std::is_same_v<T, DeviceMemory> ||
    std::is_same_v<T, MemoryController> || std::is_same_v<T, Tracker> || std::is_same_v<T, CopyEngines> ||
    std::is_same_v<T, Links> || std::is_same_v<T, Overheads>;

// NOTE: the text is valid: it was parsed before, or written by set_note.
Json json_of(const JsonText& value) { return parse_json(value.text, "a note"); }

template <class T>
void write_struct(Json& json, const T& value) {
  [[maybe_unused]] const T defaults{};
  json = Json::object();
  for_each_field<T>([&](const auto& f) {
    const auto& member = value.*f.member;
    if constexpr (kIsOptional<std::remove_cvref_t<decltype(member)>>) {
      if (member) json[f.name] = *member;
    } else if (kWritesDefaults<T> || !(member == defaults.*f.member)) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(member)>, JsonText>) {
        json[f.name] = json_of(member);
      } else {
        json[f.name] = member;
      }
    }
  });
}

template <class T>
void read_value(const Json& json, T& value, const std::string& where) {
  if constexpr (std::is_same_v<T, JsonText>) {
    value.text = json_text(json);
  } else if constexpr (kIsOptional<T>) {
    read_value(json, value.emplace(), where);
  } else if constexpr (std::is_same_v<T, bool>) {
    require(json.is_boolean(), "{}: want true or false, got {}", where, shown(json));
    value = json.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    require(json.is_number_integer(), "{}: want an integer, got {}", where, shown(json));
    const bool fits =
        json.is_number_unsigned() ? std::in_range<T>(json.get<uint64_t>()) : std::in_range<T>(json.get<int64_t>());
    require(fits, "{}: {} does not fit into {} bits", where, shown(json), 8 * sizeof(T));
    value = json.get<T>();
  } else if constexpr (std::is_floating_point_v<T>) {
    require(json.is_number(), "{}: want a number, got {}", where, shown(json));
    value = json.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    require(json.is_string(), "{}: want a string, got {}", where, shown(json));
    value = json.get<std::string>();
  } else if constexpr (requires { Names<T>::kList; }) {
    require(json.is_string(), "{}: want one of {}, got {}", where, known_names<T>(), shown(json));
    value = parse<T>(json.get<std::string>(), where);
  } else if constexpr (requires { Fields<T>::kList; }) {
    from_json(json, value);
  } else if constexpr (requires { typename T::mapped_type; }) {
    require(json.is_object(), "{}: want an object, got {}", where, shown(json));
    value.clear();
    for (const auto& [key, item] : json.items()) read_value(item, value[key], where + "." + key);
  } else {
    require(json.is_array(), "{}: want a list, got {}", where, shown(json));
    value.clear();
    value.reserve(json.size());
    for (size_t i = 0; i < json.size(); ++i) read_value(json[i], value.emplace_back(), fmt::format("{}[{}]", where, i));
  }
}

/// Name of T in messages: a part of a machine has its JSON key, any other struct its type.
template <class T>
std::string name_of() {
  std::string name = Fields<T>::kType;
  for_each_field<Machine>([&](const auto& f) {
    using Member = std::remove_cvref_t<decltype(std::declval<Machine>().*f.member)>;
    if constexpr (std::is_same_v<Member, T> || std::is_same_v<Member, std::optional<T>>) name = f.name;
  });
  return name;
}

template <class T>
void read_struct(const Json& json, T& value) {
  const std::string type = name_of<T>();
  require(json.is_object(), "{}: want an object, got {}", type, shown(json));
  value = T{};
  size_t num_read = 0;
  for_each_field<T>([&](const auto& f) {
    const auto found = json.find(f.name);
    if (found == json.end()) return;
    read_value(*found, value.*f.member, type + "." + f.name);
    ++num_read;
  });
  if (num_read == json.size()) return;
  for (const auto& [key, item] : json.items()) {
    bool known = false;
    for_each_field<T>([&](const auto& f) { known = known || key == f.name; });
    if (const auto now = renamed(Fields<T>::kType, key); now && !known)
      fail(ErrorKind::invalid_input, "{}: the field '{}' is now called '{}'", type, key, *now);
    require(known, "{}: unknown field '{}'; known: {}", type, shown_name(key), known_fields<T>());
  }
}

/// A hash of the values of all fields, in order: FNV-1a of strings, a multiply-xor step per number.
struct Hasher {
  uint64_t state = 1469598103934665603U;

  void add(const void* data, size_t size) {
    for (size_t i = 0; i < size; ++i) state = (state ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211U;
  }

  void add_word(uint64_t word) {
    state = (state ^ word) * 0x9E3779B97F4A7C15U;
    state ^= state >> 29;
  }

  template <class T>
  void add(const T& value) {
    if constexpr (std::is_same_v<T, JsonText>) {
      add(value.text);
    } else if constexpr (kIsOptional<T>) {
      add_word(value.has_value());
      if (value) add(*value);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      uint64_t word = 0;
      std::memcpy(&word, &value, sizeof value);
      add_word(word);
    } else if constexpr (std::is_same_v<T, std::string>) {
      add_word(value.size());
      add(value.data(), value.size());
    } else if constexpr (requires { Fields<T>::kList; }) {
      for_each_field<T>([&](const auto& f) { add(value.*f.member); });
    } else if constexpr (requires { typename T::mapped_type; }) {
      add_word(value.size());
      for (const auto& [key, item] : value) add(key), add(item);
    } else {
      add_word(value.size());
      for (const auto& item : value) add(item);
    }
  }
};

}  // namespace

#define TILEWIRE_DEFINE(E)                                                                 \
  std::string to_string(E value) {                                                         \
    for (const auto& [known, name] : Names<E>::kList) {                                    \
      if (known == value) return std::string(name);                                        \
    }                                                                                      \
    return fmt::format("{}({})", Names<E>::kType, static_cast<int>(value));                \
  }                                                                                        \
  void to_json(Json& json, const E& value) { json = to_string(value); }                    \
  void from_json(const Json& json, E& value) { read_value(json, value, Names<E>::kType); } \
  template E parse<E>(const std::string&, const std::string&);                             \
  template std::string known_names<E>();
TILEWIRE_FOR_EACH_ENUM(TILEWIRE_DEFINE)
#undef TILEWIRE_DEFINE

#define TILEWIRE_DEFINE(T)                                                 \
  void to_json(Json& json, const T& value) { write_struct(json, value); }  \
  void from_json(const Json& json, T& value) { read_struct(json, value); } \
  std::string to_string(const T& value) { return json_text(Json(value)); } \
  template <>                                                              \
  T from_json_text<T>(const std::string& text) {                           \
    return parse_json(text, Fields<T>::kType).get<T>();                    \
  }
TILEWIRE_FOR_EACH_STRUCT(TILEWIRE_DEFINE)
#undef TILEWIRE_DEFINE

void set_knob(Config& config, const std::string& name, const std::string& value) {
  bool known = false;
  for_each_field<Config>([&](const auto& f) {
    if (name != f.name) return;
    known = true;
    const Json parsed = json_or_text(value);
    read_value(parsed.is_string() ? Json(value) : parsed, config.*f.member, "knob " + name);
  });
  if (const auto now = renamed("Config", name); now && !known)
    fail(ErrorKind::invalid_input, "the knob '{}' is now called '{}'", name, *now);
  require(known, "unknown knob '{}'; known: {}", shown_name(name), known_fields<Config>());
}

uint64_t hash_of(const Plan& plan) {
  Hasher hasher;
  hasher.add(plan);
  return hasher.state;
}

}  // namespace tilewire
