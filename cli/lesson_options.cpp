#include "cli/lesson_options.h"

#include <fmt/format.h>

#include "cli/lesson.h"

namespace ringworld {

void declare(OptionSet& set, LessonOptions& o) {
  std::vector<std::string> names = {every_part};
  std::string list;
  for (const LessonEntry& entry : lesson_parts()) {
    names.push_back(entry.name);
    list += fmt::format("  {:<18}{}{}\n", entry.name, entry.title,
                        entry.on_ranks ? ", run on ranks" : "");
  }
  set.usage("[mpiexec -n RANKS] ringworld lesson");
  set.group("Lesson");
  set.choice("part", o.part, names, "Which of the parts below, or all of them.");
  set.group("Output");
  set.text("json", o.json, "FILE.json",
           "Write every number to this file; - is standard output, instead of the text.");
  set.examples(fmt::format(
      "Parts:\n{}\n"
      "Experiments run on 1, 2, 4 and 8 ranks: on processes as far as mpiexec starts so "
      "many,\notherwise on threads of one.\n\n"
      "Examples:\n"
      "  ringworld lesson\n"
      "  mpiexec -n 4 ringworld lesson --part tensor-parallel\n"
      "  ringworld lesson --part memory --json -",
      list));
}

void check(LessonOptions& /*o*/) {}

}  // namespace ringworld
