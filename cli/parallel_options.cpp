#include "cli/parallel_options.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "parallel/pipeline_schedule.h"

namespace ringworld {
namespace {

void declare_pipeline_shape(OptionSet& set, PipelineOptions& pipeline) {
  set.integer(
      "chunks", pipeline.chunks, 0, "N",
      "Parts of the model that each pipeline stage has; 0 is as is usual for the schedule.");
  set.custom("stages", "LAYERS,...", "so that the slowest stage is as fast as can be",
             "Layers of each pipeline stage, first to last: 1,2,2,3.", true,
             [&set, &pipeline](const std::vector<std::string>& values) {
               pipeline.layers.clear();
               for (const std::string& text : split_list(values)) {
                 pipeline.layers.push_back(set.parse_integer("stages", text, 1));
               }
             });
}

constexpr const char* mesh_sentence =
    "Ranks along each axis, dp (data), pp (pipeline) and tp (tensor); their product is the number "
    "of ranks, and an axis that is left out is 1.";

}  // namespace

std::string to_string(const ParallelLayout& layout) {
  if (!layout.mesh) {
    return "dp";
  }
  return fmt::format("{}{}{}", to_string(*layout.mesh), layout.sequence_parallel ? " sp" : "",
                     layout.mesh->pipeline > 1 ? " " + layout.pipeline.schedule : std::string());
}

std::vector<ParallelLayout> layouts_of(const LayoutLists& lists, int world_size) {
  const std::vector<MeshShape> meshes = lists.every_mesh ? meshes_of(world_size) : lists.meshes;
  if (meshes.empty()) {
    return {{.sequence_parallel = !lists.sequence_parallel.empty() && lists.sequence_parallel[0],
             .pipeline = lists.pipeline}};
  }
  std::vector<ParallelLayout> layouts;
  for (const MeshShape& mesh : meshes) {
    const std::vector<std::string> schedules =
        mesh.pipeline > 1 ? lists.schedules : std::vector<std::string>{PipelineOptions().schedule};
    for (const std::string& schedule : schedules) {
      for (const bool sequence_parallel : lists.sequence_parallel) {
        if (sequence_parallel && mesh.tensor == 1 && lists.sequence_parallel.size() > 1) {
          continue;
        }
        ParallelLayout layout{
            .mesh = mesh, .sequence_parallel = sequence_parallel, .pipeline = lists.pipeline};
        layout.pipeline.schedule = schedule;
        layouts.push_back(layout);
      }
    }
  }
  return layouts;
}

void declare_parallel(OptionSet& set, TrainingSetup& setup) {
  set.group("Model parallelism");
  set.custom("mesh", "dp=N,pp=N,tp=N", "dp over all ranks", mesh_sentence, false,
             [&setup](const std::vector<std::string>& values) {
               setup.mesh = parse_mesh(fmt::format("{}", fmt::join(values, ",")));
             });
  set.flag("sequence-parallel", setup.sequence_parallel,
           "Between layers, each tensor rank has only its part of the tokens.");
  set.choice("pipeline-schedule", setup.pipeline.schedule, pipeline_names(),
             "The order of forward and backward on the stages of a pipeline.");
  declare_pipeline_shape(set, setup.pipeline);
}

void declare_parallel(OptionSet& set, LayoutLists& lists) {
  set.group("Model parallelism");
  set.custom("mesh", "dp=N,pp=N,tp=N...|all", "dp over all ranks",
             std::string(mesh_sentence) +
                 " Several are verified one after the other; all is every mesh of the ranks, with "
                 "every schedule, with and without sequence parallelism, unless those are given.",
             true, [&lists](const std::vector<std::string>& values) {
               lists.meshes.clear();
               lists.every_mesh = false;
               for (const std::string& text : values) {
                 if (text == "all") {
                   lists.every_mesh = true;
                 } else {
                   lists.meshes.push_back(parse_mesh(text));
                 }
               }
             });
  set.custom("sequence-parallel", "false|true...", "false",
             "Between layers, each tensor rank has only its part of the tokens; both may be "
             "verified.",
             true, [&set, &lists](const std::vector<std::string>& values) {
               lists.sequence_parallel.clear();
               for (const std::string& text : split_list(values)) {
                 if (text != "true" && text != "false") {
                   set.refuse_unknown("sequence-parallel", text,
                                      std::vector<std::string>{"true", "false"});
                 }
                 lists.sequence_parallel.push_back(text == "true");
               }
             });
  set.custom("pipeline-schedule", "NAME...", "1f1b",
             fmt::format("The order of forward and backward on the stages of a pipeline; several "
                         "are verified. Known: {}.",
                         fmt::join(pipeline_names(), ", ")),
             true, [&set, &lists](const std::vector<std::string>& values) {
               lists.schedules = split_list(values);
               const std::vector<std::string> known = pipeline_names();
               for (const std::string& name : lists.schedules) {
                 if (std::ranges::find(known, name) == known.end()) {
                   set.refuse_unknown("pipeline-schedule", name, known);
                 }
               }
             });
  declare_pipeline_shape(set, lists.pipeline);
}

}  // namespace ringworld
