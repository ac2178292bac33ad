// Package cgroup creates and uses the cgroups of tasks. It hides the differences between v1 and
// v2: which controllers a host has mounted, and the files with which limits are set and usage is
// read.
//
// The limits of a group are set before it contains a process, and a program starts in its group,
// so no instruction of the program runs without the limits. In v2 the kernel clones a child
// directly into a cgroup. In v1 a child starts in the cgroups of the thread that forks it, so a
// separate thread enters the group first and ends after the fork.
package cgroup
