// ringworld lesson: a course's lesson on distributed training, its numbers worked out by the
// planner or run on ranks.
#include "cli/lesson.h"

#include <iostream>

#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/help_formatter.h"
#include "cli/json_file.h"
#include "cli/output_file.h"

namespace ringworld {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t widest = 100;

std::string paragraph(const std::string& text) {
  return wrap(text, widest, 0) + "\n";
}

std::string text_of(const LessonEntry& entry, const LessonPart& part) {
  std::string text = fmt::format("=== {} ({}) ===\n\n{}\n{}", entry.title, entry.name,
                                 paragraph(part.asked), part.table);
  for (const std::string& found : part.found) {
    text += fmt::format("\n{}", paragraph(found));
  }
  return fmt::format("{}\nIn practice: {}\n\n", text, part.practice);
}

}  // namespace

std::span<const LessonEntry> lesson_parts() {
  static const LessonEntry parts[] = {
      {"data-parallel", "Data parallelism", true, lesson_data_parallel},
      {"ring", "What a ring all-reduce sends", true, lesson_ring},
      {"tensor-parallel", "Tensor parallelism", true, lesson_tensor_parallel},
      {"pipeline", "Pipeline parallelism", false, lesson_pipeline},
      {"memory", "Memory of a GPU", false, lesson_memory_tables},
      {"mixed-precision", "Mixed precision", false, lesson_mixed_precision},
      {"3d", "Three axes", false, lesson_three_axes},
      {"checkpointing", "Exercise 1: activation checkpointing", false, lesson_checkpointing},
      {"1f1b", "Exercise 2: 1F1B against fill-drain", false, lesson_one_f_one_b},
      {"accumulation", "Exercise 3: gradient accumulation", true, lesson_accumulation},
      {"cost", "Exercise 4: cost", false, lesson_cost},
      {"offload", "Exercise 5: ZeRO-Offload", false, lesson_offload},
  };
  return parts;
}

ExitCode run_lesson(const LessonOptions& o, Transport& transport) {
  LessonRanks ranks(transport);
  ranks.check_same_everywhere(o.settings);
  ranks.on_rank_0([&] { check_writable("--json", o.json); });
  const bool shows = ranks.prints() && o.json != "-";
  if (shows) {
    std::cout << paragraph("The lesson, on " + ranks.description()) << "\n" << std::flush;
  }
  Json parts;
  for (const LessonEntry& entry : lesson_parts()) {
    if ((o.part != every_part && o.part != entry.name) || (!entry.on_ranks && !ranks.prints())) {
      continue;
    }
    const LessonPart part = entry.run(ranks);
    if (shows) {
      std::cout << text_of(entry, part) << std::flush;
    }
    parts[entry.name] = part.json;
    parts[entry.name]["title"] = entry.title;
    parts[entry.name]["asked"] = part.asked;
    parts[entry.name]["found"] = part.found;
    parts[entry.name]["in_practice"] = part.practice;
  }
  if (ranks.prints() && !o.json.empty()) {
    write_json(o.json, {{"schema", "ringworld.lesson"},
                        {"version", 1},
                        {"ranks", ranks.description()},
                        {"parts", std::move(parts)}});
  }
  ranks.barrier();
  return ExitCode::ok;
}

}  // namespace ringworld
