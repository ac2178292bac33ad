// Package cgroup knows the files of control groups, v1 and v2: what a host has
// mounted, what limits are written and what accounts are read. It is functions
// of texts and values; who makes and enters groups is its user.
package cgroup
