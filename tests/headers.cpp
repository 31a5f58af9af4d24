// An empty program: precompiles large headers, once for all tests. Built only with TILEWIRE_PCH.
// The headers are named in CMakeLists.txt.
int main() { return 0; }
