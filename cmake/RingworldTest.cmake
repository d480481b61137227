# Registering tests. ctest alone runs everything, the mpiexec launches included; every launch has a
# time limit, after which the whole job is ended.
#
#   ringworld_tests(NAME [LAUNCHES] FILES file... LIBS lib...)
#     one GoogleTest executable, NAME, of all the files, and an entry of ctest for each of them, named
#     after folder and file. LAUNCHES: the tests start ringworld under mpiexec.
#   ringworld_mpi_test(NAME SOURCES file... RANKS 1 2 3 4 ... [LIBS lib...] [TIMEOUT seconds])
#     one executable, launched once per world size. tests/support/mpi_main.cpp is its main: it fails
#     on every rank when any rank fails.

# What goes before "-n P program": more ranks than cores, as root too, is the normal case here.
set(RINGWORLD_LAUNCH ${MPIEXEC_EXECUTABLE})
execute_process(COMMAND ${MPIEXEC_EXECUTABLE} --version OUTPUT_VARIABLE launcher_version
                ERROR_QUIET)
if(launcher_version MATCHES "Open MPI|OpenRTE|PRRTE")
  list(APPEND RINGWORLD_LAUNCH --oversubscribe --allow-run-as-root)
endif()
find_program(TIMEOUT_PROGRAM NAMES timeout gtimeout REQUIRED)

# LeakSanitizer reports what MPI and UCX keep until the process ends; the project's own leaks show in
# the tests without MPI.
set(RINGWORLD_TEST_ENVIRONMENT
  "ASAN_OPTIONS=detect_leaks=0"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1")

function(ringworld_test_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} ringworld_options)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  ringworld_compile_quickly(${name})
endfunction()

function(ringworld_tests name)
  cmake_parse_arguments(ARG "LAUNCHES" "" "FILES;LIBS" ${ARGN})
  ringworld_test_executable(${name}
    SOURCES ${ARG_FILES} ${PROJECT_SOURCE_DIR}/tests/support/main.cpp LIBS ${ARG_LIBS} GTest::gtest)
  target_compile_definitions(${name} PRIVATE RINGWORLD_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  if(RINGWORLD_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  set(properties LABELS process)
  if(ARG_LAUNCHES)
    list(JOIN RINGWORLD_LAUNCH " " launch_line)
    target_compile_definitions(${name} PRIVATE
      RINGWORLD_LAUNCH="${launch_line}" RINGWORLD_PROGRAM="$<TARGET_FILE:ringworld>")
    add_dependencies(${name} ringworld)
    set(properties LABELS mpi ENVIRONMENT "${RINGWORLD_TEST_ENVIRONMENT}")
  endif()
  get_filename_component(folder ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  foreach(file IN LISTS ARG_FILES)
    get_filename_component(stem ${file} NAME_WE)
    add_test(NAME ${folder}_${stem} COMMAND ${name} --file=${file})
    set_tests_properties(${folder}_${stem} PROPERTIES TIMEOUT 300 ${properties})
  endforeach()
endfunction()

function(ringworld_mpi_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;RANKS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  ringworld_test_executable(${name}
    SOURCES ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/support/mpi_main.cpp
    LIBS ${ARG_LIBS} GTest::gtest ringworld_mpi_transport)
  math(EXPR outer "${ARG_TIMEOUT} + 15")
  foreach(ranks IN LISTS ARG_RANKS)
    add_test(NAME ${name}.${ranks}_ranks
             COMMAND ${TIMEOUT_PROGRAM} -k 5 ${ARG_TIMEOUT}
                     ${RINGWORLD_LAUNCH} -n ${ranks} $<TARGET_FILE:${name}>)
    set_tests_properties(${name}.${ranks}_ranks PROPERTIES
      TIMEOUT ${outer} LABELS mpi PROCESSORS 2 ENVIRONMENT "${RINGWORLD_TEST_ENVIRONMENT}")
  endforeach()
endfunction()
