// Package cgroup makes the control groups that tasks live in, of v1 and v2
// behind one interface, and knows their files: what a host has mounted, what
// limits are written and what accounts are read.
//
// A group has its limits before there is a process in it, and a program is
// born in its group: no instruction of it runs outside of them. In v2 the
// kernel does that (clone into a cgroup). In v1 a child is born in the groups
// of the thread that forks it, so such a thread enters them first and ends
// after the fork.
package cgroup
