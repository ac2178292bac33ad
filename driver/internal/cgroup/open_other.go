//go:build unix && !linux

package cgroup

import "log/slog"

// Open returns None: only Linux has cgroups.
func Open(string, *slog.Logger) Groups { return None{} }

// OnOwnThread calls fn.
func OnOwnThread(fn func()) { fn() }
