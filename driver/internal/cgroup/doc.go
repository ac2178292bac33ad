// Package cgroup creates and uses the cgroups of tasks. It hides the differences between v1 and
// v2: which controllers a host has mounted, and which files set limits and report usage.
//
// The limits of a group are set before it contains a process, and a program is started inside
// its group. The limits therefore apply from the program's first instruction on. In v2 the
// kernel clones a child directly into a cgroup. In v1 a child starts in the cgroups of the
// thread that forks it, so a separate thread enters the group first and exits after the fork.
package cgroup
