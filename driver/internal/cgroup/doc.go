// Package cgroup manages tasks' cgroups. It hides the differences between v1 and v2, such as the
// mounted controllers and the files that set limits and report usage.
//
// A group's limits are set while the group is empty, and programs are started inside the group. The
// limits therefore apply from a program's first instruction. With v2, the kernel clones a child
// process directly into a cgroup. With v1, a child process starts in the cgroups of the thread that
// forks it, so a separate thread enters the group, forks, and then exits.
package cgroup
