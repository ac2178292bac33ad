//go:build unix && !linux

package process

import (
	"iter"

	"github.com/bourse-dev/bourse/driver"
)

// Without /proc, a process's environment cannot be read, so processes that leave their process group or outlive a
// killed supervisor are not found.

func (s *supervisor) killLeftovers() {}

func markedTasks(string) iter.Seq[driver.TaskID] { return func(func(driver.TaskID) bool) {} }

func (s *supervisor) killStrays(driver.TaskID) {}
