// What the subcommands do, on each rank. They return the process's exit code; errors are
// exceptions, which main prints once.
#pragma once

#include "cli/options.h"
#include "runtime/error.h"
#include "runtime/transport.h"

namespace ringworld {

ExitCode run_train(const TrainOptions& options, Transport& transport);
// train --dry-run.
ExitCode run_dry(const TrainOptions& options, Transport& transport);
ExitCode run_verify(const VerifyOptions& options, Transport& transport);
ExitCode run_show(const ShowOptions& options, Transport& transport);
ExitCode run_show_pipeline(const ShowPipelineOptions& options, Transport& transport);
ExitCode run_show_shards(const ShowShardsOptions& options, Transport& transport);
ExitCode run_call(const CallOptions& options, Transport& transport);
ExitCode run_bench(const BenchOptions& options, Transport& transport);
ExitCode run_compare(const CompareOptions& options, Transport& transport);
ExitCode run_plan_memory(const PlanMemoryOptions& options, Transport& transport);
ExitCode run_plan_step(const PlanStepOptions& options, Transport& transport);
ExitCode run_plan_cost(const PlanCostOptions& options, Transport& transport);
ExitCode run_plan_search(const PlanSearchOptions& options, Transport& transport);
ExitCode run_plan_validate(const PlanValidateOptions& options, Transport& transport);
ExitCode run_lesson(const LessonOptions& options, Transport& transport);
ExitCode run_capabilities(const CapabilitiesOptions& options, Transport& transport);
ExitCode run_doctor(const DoctorOptions& options, Transport& transport);
// Where MPI cannot serve, for the reason given.
ExitCode run_doctor(const DoctorOptions& options, const std::string& failure);

}  // namespace ringworld
