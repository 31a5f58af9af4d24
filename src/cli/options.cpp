// The flags of the command line, and their meaning.
// Called by every verb.
#include "cli/options.hpp"

#include <unistd.h>

#include <cmath>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/flag_files.hpp"
#include "cli/models.hpp"
#include "core/failing_writes.hpp"
#include "core/json_text.hpp"
#include "core/output_file.hpp"
#include "core/text.hpp"
#include "core/text_file.hpp"
#include "schedules/tiles.hpp"
#include "tilewire/env.hpp"
#include "tilewire/json.hpp"
#include "tilewire/spi/backend.hpp"
#include "tilewire/spi/operator.hpp"
#include "tilewire/spi/schedule.hpp"

namespace tilewire::cli {
namespace {

constexpr int64_t kDefaultTokens = 512;

void set_one(Config& config, const std::string& set) {
  const auto [knob, value] = key_and_value("--set", set, "KNOB=VALUE");
  require(knob != "schedule", "--set {}: use --schedule", set);
  set_knob(config, knob, value);
}

struct Sizes {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  std::string where{};  // the entry of --shapes
};

int64_t size_field(const nlohmann::json& item, const char* field, bool needed, const std::string& where) {
  if (!item.contains(field)) {
    require(!needed, "{}: no '{}'", where, field);
    return 0;
  }
  const nlohmann::json& value = item[field];
  require(value.is_number_integer() && (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX),
          "{}: '{}' = {}: want an integer", where, field, shown(value));
  return value.get<int64_t>();
}

std::vector<Sizes> sizes_of_file(const std::string& path, bool needs_k) {
  const nlohmann::json list = read_json(path);
  require(list.is_array() && !list.empty(), "{}: want a list of {{\"m\": .., \"n\": .., \"k\": ..}}", path);
  std::vector<Sizes> all;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("{}[{}]", path, i);
    require(list[i].is_object(), "{}: want {{\"m\": .., \"n\": .., \"k\": ..}}, got {}", where, shown(list[i]));
    for (const auto& [key, value] : list[i].items()) {
      require(key == "m" || key == "n" || key == "k", "{}: unknown field '{}'; known: m, n, k", where, shown_name(key));
    }
    all.push_back({size_field(list[i], "m", true, where), size_field(list[i], "n", true, where),
                   size_field(list[i], "k", needs_k, where), where});
  }
  return all;
}

std::vector<Sizes> sizes_of(const Options& options, const std::string& op) {
  const bool by_flags = options.m || options.n || options.k;
  const int ways = int{by_flags} + int{!options.shapes.empty()} + int{!options.model.empty()};
  require(ways == 1, "give the sizes in one way: -m -n -k, --shapes or --model (got {} of them)", ways);
  require(!options.tokens || !options.model.empty(), "--tokens goes with --model; without it give -m");
  const bool needs_k = find_operator(op).structure.multiplies;
  if (!options.shapes.empty()) return sizes_of_file(options.shapes, needs_k);
  if (by_flags) {
    require(options.m && options.n && (options.k || !needs_k), "{} needs -m, -n{}", op, needs_k ? " and -k" : "");
    return {{*options.m, *options.n, options.k.value_or(0), {}}};
  }
  std::vector<Sizes> all;
  for (const LayerShape& shape : layer_shapes(find_model(options.model), op)) {
    all.push_back({options.tokens.value_or(kDefaultTokens), shape.n, shape.k, {}});
  }
  return all;
}

}  // namespace

CLI::Option* add_operators(CLI::App& verb, Options& options, bool several) {
  CLI::Option* option =
      verb.add_option("operator", options.operators, fmt::format("Operator: {}", names_of(operators())));
  option->type_name("NAME");
  if (!several) option->expected(1);
  return option;
}

namespace {

void add_expert_flags(CLI::App& verb, Options& options, const std::string& group) {
  const auto number = [&](const char* flag, int64_t& place, const char* text) {
    verb.add_option(flag, place, text)->type_name("N")->group(group);
  };
  number("--experts", options.experts.count, "moe: experts, over all ranks (default 8)");
  number("--top-k", options.experts.top_k, "moe: experts of a token (default 2)");
  number("--ffn", options.experts.ffn, "moe: columns between the two products (default: -n)");
  number("--shared", options.experts.shared, "moe: experts that take every token (default 0)");
  number("--max-rows", options.experts.max_rows, "moe: most rows of a rank's experts (default: any number)");
  verb.add_flag("--drop", options.experts.drops, "moe: drop and count rows beyond --max-rows, instead of an error")
      ->group(group);
  verb.add_option("--expert-load", options.experts.load,
                  "moe: tokens that each expert is expected to take, relative to the others (default: equal numbers)")
      ->delimiter(',')
      ->type_name("X")
      ->group(group);
  verb.add_option("--placement", options.placement, "moe: the experts of each rank, as JSON: [[0,1],[2,3]]")
      ->type_name("JSON")
      ->group(group);
  verb.add_option("--activation", options.activation, "moe: none, relu, gelu, silu, swiglu (default) or swiglu_pairs")
      ->type_name("NAME")
      ->group(group);
}

}  // namespace

void add_problem_flags(CLI::App& verb, Options& options) {
  const std::string group = "Problem";
  verb.add_option("-m", options.m, "Rows of the output (tokens), over all ranks")->type_name("N")->group(group);
  verb.add_option("-n", options.n, "Columns of the output, over all ranks")->type_name("N")->group(group);
  verb.add_option("--more-n", options.more_n,
                  "all_gather_*: columns of further outputs, each of a B of its own: A is gathered once")
      ->delimiter(',')
      ->type_name("N")
      ->group(group);
  verb.add_option("-k", options.k, "Length of the dot products, over all ranks")->type_name("N")->group(group);
  verb.add_option("--shapes", options.shapes, "JSON file with a list of {m, n, k}")->type_name("FILE")->group(group);
  verb.add_option("--model", options.model, fmt::format("The shapes of a model's layer: {}", names_of(models())))
      ->type_name("NAME")
      ->group(group);
  verb.add_option("--tokens", options.tokens, fmt::format("Rows, with --model (default {})", kDefaultTokens))
      ->type_name("M")
      ->group(group);
  verb.add_option("--dtype", options.dtype, "fp32, bf16 or fp16 (default bf16; `run`: the type of the files)")
      ->type_name("TYPE")
      ->group(group);
  verb.add_option("--out-dtype", options.out_dtype, "Type of the output (default: --dtype)")
      ->type_name("TYPE")
      ->group(group);
  verb.add_option("--b-layout", options.b_layout, "nk (default): B as a Linear's weight; kn: B row by row")
      ->type_name("nk|kn")
      ->group(group);
  verb.add_option("--reduction", options.reduction, "repeatable (default): the same bits on every run; any: any order")
      ->type_name("repeatable|any")
      ->group(group);
  verb.add_flag("--bias", options.bias, "Add a bias to the output")->group(group);
  verb.add_option("--epilogue", options.epilogue,
                  "Steps for finished elements, in order: bias, gelu, relu, scale=FACTOR, residual; or swiglu_pairs")
      ->delimiter(',')
      ->type_name("STEP")
      ->group(group);
  verb.add_option("--norm", options.norm, "Sums over ranks: also return the output's rows normalised")
      ->type_name("rms|layer")
      ->group(group);
  verb.add_option("--norm-eps", options.norm_eps,
                  fmt::format("Added to the mean of squares, or to the variance (default {})", Norm{}.eps))
      ->type_name("EPS")
      ->group(group);
  verb.add_option("--norm-out-dtype", options.norm_out_dtype,
                  "Quantise the normalised rows; also return a scale for each row")
      ->type_name("fp8_e4m3|int8")
      ->group(group);
  add_expert_flags(verb, options, group);
  verb.add_flag("--gathered", options.gathered, "all_gather_gemm: also return the gathered input")->group(group);
  verb.add_flag("--allow-tf32", options.allow_tf32, "fp32 products may be rounded to TF32")->group(group);
  verb.add_option("--arena", options.arena, "Caller's buffers placed where peers can address them: a,c")
      ->delimiter(',')
      ->type_name("BUFFER")
      ->group(group);
  verb.add_option("--constant", options.constant, "Inputs that no work before a call writes, such as weights: b")
      ->delimiter(',')
      ->type_name("BUFFER")
      ->group(group);
}

void add_schedule_flags(CLI::App& verb, Options& options, const std::string& by_default) {
  options.schedule = by_default;
  const auto take = [&options](const std::string& text) {
    constexpr std::string_view kWithTuning = "auto_";
    const bool tunes = text.starts_with(kWithTuning);
    options.schedule = tunes ? "auto" : text;
    if (tunes) options.tuning = parse<Tuning>(text.substr(kWithTuning.size()), "--schedule auto_...");
  };
  verb.add_option_function<std::string>(
          "--schedule", take,
          fmt::format("{}, all of them, or auto: the remembered winner, else the one that tilewire ships for the "
                      "machine, else measured and remembered; auto_again measures in any case (default: {})",
                      names_of(schedules()), by_default))
      ->type_name("all|auto|NAME")
      ->group("Schedule");
  verb.add_option("--set", options.set,
                  "Set a knob of the schedule (tilewire info --knobs); may be repeated: --set tile_m=64")
      ->type_name("KNOB=VALUE")
      ->group("Schedule");
}

void add_rank_flags(CLI::App& verb, Options& options) {
  const std::string group = "Ranks";
  verb.add_option("--backend", options.backend, "What executes the plan (default: host)")
      ->check([](const std::string& name) {
        try {
          static_cast<void>(find_backend(name));
        } catch (const Error& error) {
          return std::string(error.what());
        }
        return std::string();
      })
      ->type_name("NAME")
      ->group(group);
  verb.add_option("--ranks", options.ranks,
                  fmt::format("Number of ranks (default: {}; under mpirun or torchrun theirs)", options.ranks))
      ->type_name("N")
      ->group(group);
  verb.add_flag("--threads", options.threads, "Ranks are threads of this process, not processes")->group(group);
  verb.add_option("--order", options.order,
                  "cuda: who keeps a rank's calls in order: any: the library, stream: one stream")
      ->type_name("any|stream")
      ->group(group);
  verb.add_option("--timeout", options.timeout_s, "Deadline of every wait (default: TILEWIRE_TIMEOUT_S, else 30)")
      ->check([](const std::string& text) {
        const bool good = std::strtod(text.c_str(), nullptr) > 0;
        return good ? std::string() : fmt::format("want more than 0 seconds, got {}", text);
      })
      ->type_name("SECONDS")
      ->group(group);
  verb.add_option("--arena-gib", options.arena_gib, "Most symmetric memory of a rank (default: 16)")
      ->type_name("GIB")
      ->group(group);
}

void add_seed_flag(CLI::App& verb, Options& options) {
  verb.add_option("--seed", options.seed, "Seed of random inputs and of sampled rows (default: 1)")
      ->type_name("N")
      ->group("Ranks");
}

void add_verify_flag(CLI::App& verb, Options& options, bool by_default) {
  options.verify = by_default;
  verb.add_flag("--verify,!--no-verify", options.verify,
                fmt::format("Compare with the reference in double (default: {})", by_default ? "yes" : "no"));
}

void add_json_flag(CLI::App& verb, Options& options, const std::string& what) {
  verb.add_option("--json", options.json, what)->type_name("FILE|-");
}

DType dtype_of(const std::string& flag, const std::string& name) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    if (to_string(dtype) == name) return dtype;
  }
  fail(ErrorKind::invalid_input, "{}: unknown '{}'; known: fp32, bf16, fp16", flag, shown_name(name));
}

std::vector<Epilogue> epilogue_of(const Options& options) {
  std::vector<Epilogue> steps;
  if (options.bias) steps.push_back({.kind = EpilogueKind::bias});
  for (const std::string& text : options.epilogue) {
    const size_t equals = text.find('=');
    Epilogue step{.kind = parse<EpilogueKind>(text.substr(0, equals), "--epilogue")};
    const bool scales = step.kind == EpilogueKind::scale;
    require(scales == (equals != std::string::npos), "--epilogue {}: {}", shown_name(text),
            scales ? "want scale=FACTOR" : "only scale has a value");
    if (scales) {
      char* end = nullptr;
      step.value = std::strtod(text.c_str() + equals + 1, &end);
      require(end != text.c_str() + equals + 1 && *end == 0 && std::isfinite(step.value),
              "--epilogue {}: want a number behind scale=", shown_name(text));
    }
    const bool given = options.bias && &text == &options.epilogue.front() && step.kind == EpilogueKind::bias;
    if (!given) steps.push_back(step);
  }
  return steps;
}

std::optional<Norm> norm_of(const Options& options) {
  require(!options.norm.empty() || options.norm_eps == Norm{}.eps, "--norm-eps {}: goes with --norm", options.norm_eps);
  require(!options.norm.empty() || options.norm_out_dtype.empty(), "--norm-out-dtype {}: goes with --norm",
          options.norm_out_dtype);
  if (options.norm.empty()) return std::nullopt;
  Norm norm{parse<NormKind>(options.norm, "--norm"), options.norm_eps};
  if (!options.norm_out_dtype.empty()) norm.out_dtype = parse<DType>(options.norm_out_dtype, "--norm-out-dtype");
  return norm;
}

Problem problem_of(const Options& options, const std::string& op, int64_t m, int64_t n, int64_t k) {
  Problem problem{.op = op, .m = m, .n = n, .k = k};
  const Structure structure = structure_of(problem);
  if (!structure.multiplies) problem.k = 0;
  problem.dtype = dtype_of("--dtype", options.dtype.empty() ? "bf16" : options.dtype);
  if (!options.out_dtype.empty()) problem.out_dtype = dtype_of("--out-dtype", options.out_dtype);
  problem.b_layout = parse<BLayout>(options.b_layout, "--b-layout");
  problem.reduction = parse<Reduction>(options.reduction, "--reduction");
  // A flag that this operator cannot use is for other operators of the command.
  const bool alone = options.operators.size() <= 1;
  if (alone || !structure.experts) problem.epilogue = epilogue_of(options);
  if (alone || leaves_summed_rows(structure)) problem.norm = norm_of(options);
  if (options.gathered) problem.gathered_output = alone || structure.before == Collective::all_gather;
  if (alone || (structure.before == Collective::all_gather && structure.multiplies)) problem.more_n = options.more_n;
  if (structure.experts) {
    problem.experts = options.experts;
    if (options.experts.ffn == 0) problem.experts->ffn = std::max<int64_t>(1, n);
    if (!options.placement.empty())
      problem.experts->placement =
          from_json_text<Experts>(fmt::format(R"({{"placement": {}}})", options.placement)).placement;
    problem.experts->activation = parse<Activation>(options.activation, "--activation");
  }
  problem.allow_tf32 = options.allow_tf32;
  problem.arena = options.arena;
  problem.constant = options.constant;
  validate(problem, options.ranks);
  return problem;
}

std::vector<Problem> problems_of(const Options& options) {
  std::vector<Problem> problems;
  for (const std::string& op : options.operators) {
    const bool experts = find_operator(op).structure.experts;
    // First check the flags alone, so that no entry of --shapes is blamed for them.
    if (!options.shapes.empty()) static_cast<void>(problem_of(options, op, 0, 0, experts ? 1 : 0));
    for (const Sizes& sizes : sizes_of(options, op)) {
      try {
        problems.push_back(problem_of(options, op, sizes.m, sizes.n, sizes.k));
      } catch (const Error& error) {
        if (sizes.where.empty()) throw;
        throw Error(error.kind(), sizes.where + ": " + error.what());
      }
    }
  }
  return problems;
}

Team team_of(const Options& options) { return {.num_ranks = options.ranks}; }

void check_names(const Options& options) {
  for (const std::string& op : options.operators) static_cast<void>(find_operator(op));
  static_cast<void>(schedules_of(options));
  static_cast<void>(with_knobs({}, options));
  require(options.schedule != "auto" || options.set.empty(), "--set goes with a schedule, not with auto");
}

std::vector<std::string> schedules_of(const Options& options) {
  if (options.schedule == "auto") return {"auto"};
  if (options.schedule != "all") return {find_schedule(options.schedule).name};
  std::vector<std::string> names;
  for (const Schedule& schedule : schedules()) names.emplace_back(schedule.name);
  return names;
}

Config with_knobs(Config config, const Options& options) {
  for (const std::string& text : options.set) set_one(config, text);
  return config;
}

namespace {

// --set may conflict with the other knobs of a candidate: choose, of those without conflict, the one that changes
// least.
std::optional<Config> nearest_candidate(const Schedule& schedule, const Problem& problem, const Team& team,
                                        const Options& options) {
  std::optional<Config> nearest;
  size_t least = 0;
  for (const Config& candidate : schedule.candidates(problem, team)) {
    const Config config = with_knobs(candidate, options);
    if (schedule.refuses(problem, team, config)) continue;
    const size_t changed = nlohmann::json::diff(candidate, config).size();
    if (nearest && changed >= least) continue;
    nearest = config;
    least = changed;
  }
  return nearest;
}

}  // namespace

Config config_of(const Options& options, const std::string& name, const Problem& problem, const Team& team) {
  const Schedule& schedule = find_schedule(name);
  Config config = with_knobs(default_config(schedule.name, problem, team), options);
  if (on_gpus(team) && schedule.refuses(problem, team, config)) {
    config = nearest_candidate(schedule, problem, team, options).value_or(config);
  }
  if (const auto reason = schedule.refuses(problem, team, config)) {
    fail(ErrorKind::unsupported, "schedule {} cannot do this: {}", name, *reason);
  }
  return config;
}

std::pair<Config, std::vector<std::string>> config_taken(const Options& options, const std::string& name,
                                                         const Problem& problem, const Team& team) {
  const Schedule& schedule = find_schedule(name);
  Config config = default_config(schedule.name, problem, team);
  std::vector<std::string> left_out;
  for (const std::string& set : options.set) {
    Config changed = config;
    set_one(changed, set);
    if (const auto reason = schedule.refuses(problem, team, changed)) {
      left_out.push_back(fmt::format("{} ({})", set, *reason));
    } else {
      config = changed;
    }
  }
  return {config, left_out};
}

std::pair<std::string, std::string> key_and_value(const std::string& flag, const std::string& text,
                                                  const std::string& wanted) {
  const size_t equals = text.find('=');
  require(equals != std::string::npos && equals > 0, "{} {}: want {}", flag, text, wanted);
  return {text.substr(0, equals), text.substr(equals + 1)};
}

int64_t bytes_of(const std::string& flag, const std::string& text) {
  static const std::map<std::string, double> kUnits{{"", 1},         {"B", 1},       {"KB", 1e3},     {"MB", 1e6},
                                                    {"GB", 1e9},     {"TB", 1e12},   {"KiB", 0x1p10}, {"MiB", 0x1p20},
                                                    {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  constexpr double kMost = 0x1p53;  // whole numbers up to here are exact
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const auto unit = kUnits.find(end);
  // NOTE: strtod also takes "inf", "nan" and hexadecimal numbers.
  const bool decimal = !text.empty() && text.find_first_not_of("0123456789.eE+KMGTiB") == std::string::npos;
  require(decimal && end != text.c_str() && unit != kUnits.end(),
          "{} {}: want a number of bytes, as 1048576, 1e6, 64KiB or 2MB", flag, text);
  const double bytes = number * unit->second;
  require(bytes >= 1 && bytes <= kMost && bytes == std::floor(bytes),
          "{} {}: want a whole number of bytes, 1 to {:.0f}", flag, text, kMost);
  return static_cast<int64_t>(bytes);
}

std::string read_file(const std::string& path) {
  TextFile file = read_text_file(path);
  require(file.call.ok(), "{}: {}", path, file.why());
  return std::move(file.text);
}

void write_file(const std::string& path, const std::string& text) {
  path == "-" ? print(text) : write_output(path, text);
}

void print(const std::string& text) {
  std::cout << std::flush;
  require(std::cout.good(), "standard output: cannot write it");
  const SystemCall put = write_all(STDOUT_FILENO, text);
  require(put.ok(), "standard output: cannot write it: {}", put.why());
}

}  // namespace tilewire::cli
