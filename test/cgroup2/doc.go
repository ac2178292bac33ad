// Package cgroup2 holds a test which runs the tests of limits under a kernel
// that has cgroup v2 only, as most hosts have and those that build this project
// may not: Debian's cloud kernel, in a virtual machine without acceleration,
// with the compiled tests in its first file system.
package cgroup2
