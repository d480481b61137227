# Registering tests. ctest alone runs everything, the mpiexec launches included; every launch has a
# time limit, after which the whole job is ended.
#
#   ringworld_test(NAME SOURCES file... [LIBS lib...] [TIMEOUT seconds])
#     a GoogleTest executable, one process.
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
  # A test's own code runs once: with the large headers of GoogleTest and JSON, compiling it well
  # would take longer than running it does. Optimising that little, GCC sees uninitialised values
  # where there are none.
  target_compile_options(${name} PRIVATE "$<$<CONFIG:Release>:-O1;-Wno-maybe-uninitialized>")
endfunction()

function(ringworld_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  ringworld_test_executable(${name} SOURCES ${ARG_SOURCES} LIBS ${ARG_LIBS} GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS process)
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
