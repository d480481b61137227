#include "cli/plan_memory_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cli/console.h"
#include "cli/help_formatter.h"

namespace ringworld {
namespace {

constexpr std::size_t widest = 100;

// "8,030,261,248".
std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (std::ptrdiff_t i = std::ssize(digits) - 3; i > 0; i -= 3) {
    digits.insert(static_cast<std::size_t>(i), ",");
  }
  return digits;
}

std::string paragraph(const std::string& text, std::size_t indent = 0) {
  return wrap(text, widest - indent, indent) + "\n";
}

std::string title_of(const PlanSetup& setup) {
  const std::int64_t all = count_parameters(setup.model).total();
  const std::int64_t active = count_active_parameters(setup.model).total();
  return paragraph(fmt::format(
      "{}: {} parameters ({}){}; {}", setup.model.name, grouped(all), count_text(all),
      active < all ? fmt::format(", {} active for a token", count_text(active)) : std::string(),
      describe(setup.layout)));
}

std::string parameter_table(const Transformer& model) {
  const ParameterCount count = count_parameters(model);
  const std::pair<std::string_view, std::int64_t> parts[] = {
      {"embedding", count.embedding}, {"positions", count.positions},
      {"attention", count.attention}, {"feed-forward", count.mlp},
      {"experts", count.experts},     {"router", count.router},
      {"norms", count.norms},         {"head", count.head}};
  Table table({{"parameters"}, {"", Align::right}});
  for (const auto& [name, parameters] : parts) {
    if (parameters > 0) {
      table.add_row({std::string(name), grouped(parameters)});
    }
  }
  table.add_row({"all", grouped(count.total())});
  return table.text();
}

std::string item_table(const StageMemory& stage, std::int64_t gpus_per_node) {
  Table table({{"one GPU"}, {"", Align::right}, {"what"}});
  const auto add = [&](const ItemBytes& items, std::string_view where) {
    for (std::size_t i = 0; i < memory_item_count; ++i) {
      const auto item = static_cast<MemoryItem>(i);
      if (items[item].value > 0) {
        table.add_row({fmt::format("{}{}", name_of(item), where), to_string(items[item]),
                       std::string(meaning_of(item))});
      }
    }
  };
  add(stage.device, "");
  table.add_row({"in all", to_string(stage.device.total()),
                 fmt::format("of them {} of states", to_string(stage.device.states()))});
  add(stage.host, ", host");
  if (gpus_per_node > 0 && stage.host.total().value > 0) {
    table.add_row({"host of a node", to_string(gpus_per_node * stage.host.total()),
                   fmt::format("of {} such GPUs", gpus_per_node)});
  }
  add(stage.file, ", file");
  return table.text();
}

std::string stage_table(const MemoryPlan& plan) {
  constexpr std::size_t most = 12;  // rows; of more stages the ends are shown
  Table table({{"stage"},
               {"layers", Align::right},
               {"parameters", Align::right},
               {"states", Align::right},
               {"activations", Align::right},
               {"in all", Align::right},
               {""}});
  const std::size_t stages = plan.stages.size();
  for (std::size_t i = 0; i < stages; ++i) {
    if (stages > most && i >= most / 2 && i + most / 2 < stages && i != plan.fullest) {
      if (i == most / 2) {
        table.add_row({"...", "", "", "", "", "", ""});
      }
      continue;
    }
    const StageMemory& stage = plan.stages[i];
    table.add_row({fmt::format("{}", i), fmt::format("{}", stage.layers),
                   count_text(stage.parameters), to_string(stage.device.states()),
                   to_string(stage.device[MemoryItem::activations]),
                   to_string(stage.device.total()), i == plan.fullest ? "fullest" : ""});
  }
  return table.text();
}

std::string category_table(const RuntimeMemory& memory) {
  Table table({{"one rank, peak of a step"}, {"", Align::right}, {"bytes", Align::right}});
  const auto add = [&](const std::string& name, Bytes bytes) {
    if (bytes.value > 0) {
      table.add_row({name, to_string(bytes), grouped(bytes.value)});
    }
  };
  for (std::size_t c = 0; c < category_count; ++c) {
    add(std::string(name_of(static_cast<Category>(c))), memory.device.peak[c]);
  }
  add("all at once", memory.device.total_peak);
  for (const Category category : {Category::parameters, Category::optimizer}) {
    add(fmt::format("{}, host", name_of(category)), memory.host.held_in(category));
    add(fmt::format("{}, file", name_of(category)), memory.file.held_in(category));
  }
  return table.text();
}

std::string verdict(const PlanMemoryResult& r) {
  if (r.setup.budget.value == 0) {
    return "No GPU was named: --gpu says whether it fits.\n";
  }
  const Bytes device = r.device();
  const Bytes budget = r.setup.budget;
  if (device <= budget) {
    return fmt::format("It fits {} of {}: {} are left.\n", r.setup.device, to_string(budget),
                       to_string(budget - device));
  }
  return fmt::format("It does not fit {} of {}: {} are missing.\n", r.setup.device,
                     to_string(budget), to_string(device - budget));
}

std::string advice_text(const PlanMemoryResult& r) {
  const PlanAdvice& advice = r.advice;
  if (r.setup.budget.value == 0) {
    return "";
  }
  std::string text;
  if (!advice.changes.empty()) {
    const bool fits = advice.changes.front().device <= r.setup.budget;
    text += fits ? "Would fit on as many GPUs:\n"
                 : "Nothing that was tried fits on as many GPUs; what comes nearest:\n";
    for (const MemoryAdvice& change : advice.changes) {
      text += "  " + paragraph(fmt::format("{} ({})", change.change, to_string(change.device)), 4);
    }
  }
  const auto smallest = [&](std::string_view what, const std::optional<MemoryAdvice>& found) {
    text += paragraph(found ? fmt::format("Fewest GPUs {}: {} (DP {}, {} each).", what,
                                          found->layout.gpus(), found->layout.data,
                                          to_string(found->device))
                            : fmt::format("Fewest GPUs {}: no number will do.", what));
  };
  smallest("with this layout", advice.as_laid_out);
  smallest("with zero3, full recomputation and one sequence at a time", advice.frugal);
  return text;
}

std::string convention_text(const PlanMemoryResult& r) {
  const ConventionReport& report = *r.convention;
  const auto in_unit = [&](double bytes) {
    return fmt::format("{:.2f}", bytes / report.bytes_of_unit);
  };
  const bool hosts =
      std::ranges::any_of(report.rows, [](const auto& row) { return row.host.has_value(); });
  std::vector<Table::Column> columns = {{report.unit}, {"one GPU", Align::right}};
  columns.push_back(hosts ? Table::Column{"host of a node", Align::right}
                          : Table::Column{"arithmetic"});
  Table table(columns);
  std::string arithmetic;  // where there is no room for it in the table
  for (const ConventionRow& row : report.rows) {
    table.add_row({row.name, in_unit(row.device),
                   !hosts     ? row.arithmetic
                   : row.host ? in_unit(*row.host)
                              : std::string()});
    arithmetic += hosts ? "- " + paragraph(fmt::format("{}: {}", row.name, row.arithmetic), 2) : "";
  }
  if (report.total) {
    table.add_row({"in all", in_unit(*report.total), ""});
  }
  std::string text = fmt::format("{}\n\n{}\n", report.title, table.text());
  text += paragraph(fmt::format("With {}{}", report.letters, hosts ? ":" : "."));
  text += arithmetic + "\n";
  const auto budget = static_cast<double>(r.setup.budget.value);
  if (report.total && budget > 0) {
    text += fmt::format("By this arithmetic it {} {} of {} {}.\n",
                        *report.total <= budget ? "fits" : "does not fit", r.setup.device,
                        in_unit(budget), report.unit);
  }
  if (r.lesson_gpus) {
    text += fmt::format("States alone need at least {} GPUs, fully sharded.\n", *r.lesson_gpus);
  }
  text += fmt::format(
      "Our accounting of the same: {:.2f} {} on the fullest GPU, {:.2f} of states.\n",
      static_cast<double>(r.plan.worst().device.total().value) / report.bytes_of_unit, report.unit,
      static_cast<double>(r.plan.worst().device.states().value) / report.bytes_of_unit);
  text += "Where ours differs:\n";
  for (const std::string& difference : report.differences) {
    text += "- " + paragraph(difference, 2);
  }
  return text;
}

std::string verification_text(const PlanMemoryResult& r) {
  std::string text;
  for (const PlanVerification& verification : r.verifications) {
    Table table({{"item"},
                 {"planned", Align::right},
                 {"measured", Align::right},
                 {"difference", Align::right},
                 {""}});
    for (const Verified& item : verification.items) {
      const auto planned = static_cast<double>(item.planned.value);
      const auto measured = static_cast<double>(item.measured.value);
      table.add_row({item.item, grouped(item.planned.value), grouped(item.measured.value),
                     item.planned == item.measured
                         ? "equal"
                         : fmt::format("{:+.2f} %", 100 * (planned / measured - 1)),
                     item.holds() ? "" : "WRONG"});
    }
    text += fmt::format("\nPlan against {}: {}\n\n{}", verification.against,
                        verification.holds() ? "it holds" : "WRONG", table.text());
  }
  if (!r.verifications.empty() && !r.verifications.back().real) {
    const std::int64_t ranks = r.setup.layout.gpus();
    text += paragraph(fmt::format(
        "No real steps: they need {} rank{}, started by mpiexec, and a model that is small. As a "
        "run of its own:",
        ranks, ranks == 1 ? "" : "s"));
    text += "  " + paragraph(r.command, 4);
  }
  return text;
}

}  // namespace

std::string text_of(const PlanMemoryResult& r) {
  std::string text = fmt::format("{}{}\n{}\n", title_of(r.setup),
                                 paragraph(describe(r.setup.model)), stated_table(r.setup.stated));
  if (r.convention) {
    return text + convention_text(r);
  }
  text += fmt::format("{}\n", parameter_table(r.setup.model));
  if (r.runtime) {
    if (r.setup.layout.pipeline > 1) {
      text += fmt::format("Of stage {}, the fullest:\n", r.runtime->stage);
    }
    text += fmt::format("{}\n{}", category_table(*r.runtime), verdict(r));
    if (r.verifications.empty()) {
      text += fmt::format("As a run of its own:\n  {}", paragraph(r.command, 4));
    }
    return text + verification_text(r);
  }
  if (r.plan.stages.size() > 1) {
    text += fmt::format("{}\nOf stage {}, the fullest:\n", stage_table(r.plan), r.plan.fullest);
  }
  return text + fmt::format("{}\n{}{}", item_table(r.plan.worst(), r.gpus_per_node), verdict(r),
                            advice_text(r));
}

}  // namespace ringworld
