// For tests: a shared library that is no CUDA backend.
extern "C" int ablate_another_library() { return 1; }
