// tilewire run: an operator on real matrices from .npy files.
// Called by main.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <sstream>

#include "cli/files.hpp"
#include "cli/flag_files.hpp"
#include "cli/options.hpp"
#include "cli/ranks.hpp"
#include "cli/traces.hpp"
#include "cli/verbs.hpp"
#include "core/text.hpp"
#include "operators/verify.hpp"
#include "tilewire/op.hpp"
#include "tilewire/print.hpp"
#include "tilewire/spi/operator.hpp"

namespace tilewire::cli {
namespace {

struct Run {
  Options options;
  std::vector<std::string> input_texts;
  std::vector<std::string> output_texts;
  FileNames inputs;
  FileNames outputs;
  bool uint16 = false;
};

// The header of an input's file, of rank 0 if there is one file per rank; nothing if the input is not given.
std::optional<NpyHeader> header_of(const Run& run, const std::string& input) {
  const auto found = run.inputs.find(input);
  if (found == run.inputs.end()) return std::nullopt;
  const std::string path = path_of_rank(found->second, 0);
  const NpyHeader header =
      read_npy_header(path, dtype_of("--dtype", run.options.dtype.empty() ? "bf16" : run.options.dtype));
  require(is_number(header.dtype), "{}: holds {}, input '{}' must be fp32, bf16 or fp16", path, to_string(header.dtype),
          input);
  return header;
}

bool is_global(const Run& run, const std::string& input) {
  const auto found = run.inputs.find(input);
  return found != run.inputs.end() && !is_per_rank(found->second);
}

// Check the names before the sizes are known, as these come from files.
void check_run_names(const Run& run) {
  const Options& options = run.options;
  Problem problem{.op = options.operators.front(), .m = 1, .n = 1, .k = 1};
  problem.epilogue = epilogue_of(options);
  problem.norm = norm_of(options);
  problem.gathered_output = options.gathered;
  problem.more_n = options.more_n;
  check_buffer_names(problem, run.inputs, run.outputs);
  require(!run.outputs.empty() || options.verify || !options.trace.empty(),
          "nothing is asked of the result: give --output NAME=FILE, --verify or --trace FILE");
}

// Take the type and the sizes that are not given from the files.
void complete_from_files(Run& run) {
  Options& options = run.options;
  const auto a = header_of(run, "a");
  const auto b = header_of(run, "b");
  const auto x = header_of(run, "x");
  if (options.dtype.empty() && (a || x)) options.dtype = to_string((a ? a : x)->dtype);
  const auto complete = [](std::optional<int64_t>& size, int64_t value) {
    if (!size) size = value;
  };
  if (a && is_global(run, "a")) {
    complete(options.m, a->rows);
    complete(options.k, a->cols);
  }
  // A file of all ranks has each rank's own B side by side.
  const int64_t num_b = has_own_b(find_operator(options.operators.front()).structure) ? options.ranks : 1;
  if (b && is_global(run, "b")) complete(options.n, (options.b_layout == "nk" ? b->rows : b->cols) / num_b);
  if (x) {
    complete(options.m, x->rows);
    complete(options.n, x->cols);
  }
  const bool needs_k = find_operator(options.operators.front()).structure.multiplies;
  require(options.m && options.n && (options.k || !needs_k),
          "-m, -n and -k are needed where a file holds one rank's part");
}

void run_on_rank(Group& group, const Run& run, const Problem& problem, const ProblemFiles& files) {
  const Options& options = run.options;
  const int rank = group.team().rank;
  const int num_ranks = group.team().num_ranks;
  const RankTensors tensors(group, problem);
  tensors.fill(files.reader());
  std::optional<Config> config;
  if (options.schedule != "auto") config = config_of(options, options.schedule, problem, group.team());
  Op op = make_op(group, problem, config, {.trace = !options.trace.empty(), .tuning = options.tuning});
  tensors.poison();
  group.barrier();
  const auto start = std::chrono::steady_clock::now();
  op.run_and_wait(tensors.inputs(), tensors.outputs());
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  std::ostringstream text;
  text << op.explain() << fmt::format("\none call: {:.3f} ms\n", passed.count());
  Comparison comparison;
  if (options.verify) {
    const Expected expected(problem, num_ranks, rank, files.reader(), {.seed = options.seed});
    comparison = verify(group, expected, tensors.results(), tolerance_of(problem, op.config()));
    text << fmt::format("verified: {}\n", comparison.text());
  }
  std::optional<Trace> trace;
  if (!options.trace.empty()) trace = op.gather_trace();
  // NOTE: from here on no rank waits for another: a pipe may block a rank for any time.
  files.write(group, tensors);
  if (trace && rank == 0) {
    TraceFile file;
    file.add(op.config().schedule, op.plan(), *trace);
    file.write(options.trace);
    text << file.summary() << fmt::format("trace in {}: open it in ui.perfetto.dev\n", options.trace);
  }
  if (rank == 0) {
    for (const auto& [name, path] : run.outputs) text << fmt::format("{} in {}\n", name, path);
    print(text.str());
  }
  if (!comparison.ok()) fail(ErrorKind::wrong_result, "the result is wrong: {}", comparison.text());
}

void run_verb(Run& run) {
  Options& options = run.options;
  require(options.schedule != "all", "--schedule all: run does one schedule, or auto");
  check_names(options);
  require(options.shapes.empty() && options.model.empty(), "run takes its sizes from the files, or -m -n -k");
  const FlagFile trace = trace_file(options);
  run.inputs = parse_file_names("--input", run.input_texts);
  run.outputs = parse_file_names("--output", run.output_texts);
  const Structure& structure = find_operator(options.operators.front()).structure;
  options.bias = options.bias || run.inputs.contains("bias");
  const bool asked = std::ranges::count(options.epilogue, "residual") > 0;
  if (run.inputs.contains("residual") && !asked) options.epilogue.emplace_back("residual");
  options.gathered =
      options.gathered || (structure.before == Collective::all_gather && run.outputs.contains("gathered"));
  check_run_names(run);
  complete_from_files(run);
  const Problem problem = problems_of(options).front();
  const ProblemFiles files(problem, options.ranks, run.inputs, run.outputs, {trace, tuner_file(options)}, run.uint16);
  run_on_ranks(options, [&](Group& group) { run_on_rank(group, run, problem, files); });
}

constexpr const char* kRunFooter =
    R"(Files: a path with {rank} in it, in its name or its folders, stands for one file per rank, which holds that rank's
part; a path without it for one file that holds the whole matrix, which is cut up (inputs) or put together (outputs) by
the operator's rule. Sizes and type come from the files where they hold whole matrices. An output may be a device or a
pipe: /dev/null, /dev/stdout.
  inputs   a, b of the GEMM operators; x of all_reduce, always per rank; bias, residual; norm_weight, norm_bias with --norm
  outputs  c, and gathered of all_gather_gemm; y of all_reduce; normed with --norm
With --more-n also b1, bias1, residual1 and c1, b2 and so on.
--input bias=FILE implies --bias, residual=FILE a residual as the last step. --output gathered=FILE implies --gathered. Without --output give --verify or --trace.
A file of one dimension is a matrix of one row.
Types: '<f4' fp32, '<f2' fp16; bf16 as '<V2' or 'bfloat16' (what ml_dtypes saves) or, with --dtype bf16, as
'<u2'. float64 is refused, and so are big endian and matrices in Fortran order. A NaN or an Inf in an input goes where
arithmetic takes it.

Examples:
  tilewire run gemm_reduce_scatter --input a=A.npy --input b=B.npy --output c=C.npy --verify
  tilewire run all_gather_gemm --ranks 2 -m 64 -n 96 -k 128 --dtype fp32 --input a=a{rank}.npy \
    --input b=b{rank}.npy --output c=c{rank}.npy --schedule fused --set tile_m=32)";

}  // namespace

void add_run(CLI::App& app) {
  auto run = std::make_shared<Run>();
  Options& options = run->options;
  CLI::App* verb = app.add_subcommand("run", "Run an operator on matrices from .npy files");
  verb->footer(kRunFooter);
  add_operators(*verb, options, false)->required();
  verb->add_option("--input", run->input_texts, "File of an input; may be repeated")->type_name("NAME=FILE");
  verb->add_option("--output", run->output_texts, "File for an output; may be repeated")->type_name("NAME=FILE");
  verb->add_flag("--uint16", run->uint16, "Write bf16 outputs as '<u2' instead of '<V2'");
  verb->add_option("--trace", options.trace, "Write a Chrome trace of the call")->type_name("FILE");
  add_problem_flags(*verb, options);
  add_schedule_flags(*verb, options, "auto");
  add_rank_flags(*verb, options);
  add_seed_flag(*verb, options);
  add_verify_flag(*verb, options, false);
  verb->callback([run, verb] {
    adopt_launcher(run->options, verb->count("--ranks") > 0);
    run_verb(*run);
  });
}

}  // namespace tilewire::cli
