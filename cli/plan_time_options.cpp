#include "cli/plan_time_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "cli/plan_options.h"
#include "planner/search.h"
#include "runtime/error.h"

namespace ringworld {
namespace {

constexpr Interval not_negative{0, 1e12, true, true};

void declare_program(OptionSet& set, PlannedProgram& o) {
  set.group("How the program is written");
  set.custom("overlap", "AXIS,...", "data,tensor,pipeline",
             "Communication that passes while the GPU computes: of data, tensor, context, expert, "
             "pipeline; or none.",
             true, [&set, &o](const std::vector<std::string>& values) {
               o.overlap_given = true;
               for (const OverlapAxis axis : all_overlap_axes) {
                 overlap_of(o.software, axis) = false;
               }
               std::vector<std::string> known = {"none"};
               for (const OverlapAxis axis : all_overlap_axes) {
                 known.emplace_back(name_of(axis));
               }
               const std::vector<std::string> axes = split_list(values);
               for (const std::string& text : axes) {
                 const auto found = std::ranges::find(known, text);
                 if (found == known.end()) {
                   set.refuse_unknown("overlap", text, known);
                 }
                 if (text == "none" && axes.size() > 1) {
                   set.refuse("overlap", text, "goes with no other; leave it out, or the others");
                 }
                 if (text != "none") {
                   overlap_of(o.software, all_overlap_axes[found - known.begin() - 1]) = true;
                 }
               }
             });
  set.flag("fp8", o.software.fp8, "Matrix products with factors of 8 bits, as DeepSeek-V3's.");
}

void declare_tokens(OptionSet& set, std::string& tokens, const std::string& sentence) {
  set.custom("tokens", "SIZE", "", sentence, false,
             [&tokens](const std::vector<std::string>& values) {
               parse_count(values.front(), "--tokens");
               tokens = values.front();
             });
}

void declare_price(OptionSet& set, std::optional<double>& price) {
  set.custom("price", "DOLLARS", "the machine's; none where it is unknown",
             "Of one GPU for an hour.", false,
             [&set, &price](const std::vector<std::string>& values) {
               price = set.parse_number("price", values.front(), {0, 1e6, false, true});
             });
}

void declare_files(OptionSet& set, std::string& json) {
  set.text("json", json, "FILE.json",
           "Write everything to this file; - is standard output, instead of the text.");
}

}  // namespace

// --- plan step ----------------------------------------------------------------------------------

void declare(OptionSet& set, PlanStepOptions& o) {
  set.usage("ringworld plan step");
  declare_planned_training(set, o);
  declare_program(set, o.program);
  set.group("Output");
  set.text("svg", o.svg, "FILE.svg", "Draw where the time goes.");
  declare_files(set, o.json);
  set.examples(
      "Models and GPUs are those of plan memory --help.\n\nExamples:\n"
      "  ringworld plan step --model llama-3-8b --gpus 8 --sharding fsdp --gpu H100-80GB\n"
      "  ringworld plan step --model llama-3-405b --gpus 16384 --tensor 8 --pipeline 16 --chunks 7 "
      "\\\n"
      "      --sequence-parallel --sharding zero1 --global-batch 2048 --sequence-length 8192 \\\n"
      "      --gpu H100-80GB --svg step.svg");
}

void check(PlanStepOptions& /*o*/) {}

// --- plan cost ----------------------------------------------------------------------------------

void declare(OptionSet& set, PlanCostOptions& o) {
  set.usage("ringworld plan cost");
  set.group("Cost");
  declare_tokens(set, o.tokens, "Tokens to train on, such as 15.6T. Required.");
  declare_price(set, o.price);
  set.number("overhead", o.overhead, {1, 10, true, true}, "X",
             "Power of the building over that of its computers (PUE); 1.1 as in LLaMA's paper.");
  declare_planned_training(set, o);
  declare_program(set, o.program);
  set.group("Output");
  set.text("svg", o.svg, "FILE.svg", "Draw cost against days, over numbers of GPUs.");
  declare_files(set, o.json);
  set.examples(
      "Models and GPUs are those of plan memory --help.\n\nExamples:\n"
      "  ringworld plan cost --tokens 1T --model llama-3-8b --gpus 64 --sharding fsdp \\\n"
      "      --global-batch 512 --gpu H100-80GB\n"
      "  ringworld plan cost --tokens 15.6T --model llama-3-405b --gpus 16384 --tensor 8 \\\n"
      "      --pipeline 16 --chunks 7 --sequence-parallel --sharding zero1 --global-batch 2048 \\\n"
      "      --sequence-length 8192 --gpu H100-80GB --svg cost.svg");
}

void check(PlanCostOptions& o) {
  if (o.tokens.empty()) {
    throw UsageError("--tokens: missing; say how many to train on, for example --tokens 15.6T");
  }
}

// --- plan search --------------------------------------------------------------------------------

void declare(OptionSet& set, PlanSearchOptions& o) {
  set.usage("ringworld plan search");
  set.group("Search");
  set.custom("gpus", "N|A..B", "", "How many; of a range every doubling is searched. Required.",
             false, [&o](const std::vector<std::string>& values) {
               o.gpu_counts = parse_gpu_range(values.front(), "--gpus");
             });
  set.choice("rank", o.order, all_search_orders,
             "By time of a step, or by cost of a token: they differ over a range of GPUs.");
  set.integer("keep", o.keep, 1, "N", "How many of the best are shown.");
  set.flag("explain", o.explain, "An example for each reason for which layouts were rejected.");
  set.flag("no-offload", o.no_offload, "Weigh no layout that offloads.");
  declare_tokens(set, o.tokens, "Tokens to train on, for days and cost of the whole.");
  declare_price(set, o.price);
  set.custom("global-batch", "N", "4M tokens", "Sequences of an optimizer step.", false,
             [&set, &o](const std::vector<std::string>& values) {
               o.layout.global_batch = set.parse_integer("global-batch", values.front(), 1);
             });
  set.custom("sequence-length", "N", "the model's context, at most 4096", "Tokens of a sequence.",
             false, [&set, &o](const std::vector<std::string>& values) {
               o.layout.sequence_length = set.parse_integer("sequence-length", values.front(), 1);
             });
  declare_model(set, o.model);
  declare_precision(set, o);
  set.group("Hardware");
  set.text("gpu", o.gpu, "NAME", "Which accelerator. Required.");
  declare_hardware(set, o.hardware);
  declare_program(set, o.program);
  set.group("Output");
  declare_files(set, o.json);
  set.examples(
      "Models and GPUs are those of plan memory --help.\n\nExamples:\n"
      "  ringworld plan search --model llama-3-405b --gpus 16384 --gpu H100-80GB \\\n"
      "      --global-batch 2048 --sequence-length 8192\n"
      "  ringworld plan search --model llama-3-70b --gpus 8..1024 --gpu H100-80GB --rank cost \\\n"
      "      --tokens 1T --explain");
}

void check(PlanSearchOptions& o) {
  if (o.gpu_counts.empty()) {
    throw UsageError("--gpus: missing; say how many, for example --gpus 1024 or --gpus 8..1024");
  }
}

// --- plan validate ------------------------------------------------------------------------------

void declare(OptionSet& set, PlanValidateOptions& o) {
  set.usage("ringworld plan validate");
  set.group("Machines");
  declare_hardware(set, o.hardware);
  set.group("Output");
  set.flag("all", o.all, "Every row of every table; else tables of formulas are one line each.");
  set.text("markdown", o.markdown, "FILE.md", "Write everything as docs/validation.md is.");
  declare_files(set, o.json);
  set.examples(
      "Examples:\n"
      "  ringworld plan validate\n"
      "  ringworld plan validate --markdown docs/validation.md");
}

void check(PlanValidateOptions& /*o*/) {}

}  // namespace ringworld
