// Package cgroup2 runs the tests of resource limits under a kernel that supports only cgroup v2.
// Most hosts have such a kernel, but the hosts that build this project may not. The kernel is
// Debian's cloud kernel. It runs in a virtual machine without hardware acceleration. The machine's
// initial file system contains the compiled tests.
package cgroup2
