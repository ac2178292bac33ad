//go:build unix && !linux

package process

import (
	"iter"

	"github.com/bourse-dev/bourse/driver"
)

// Without /proc nothing shows a process's environment: what escapes its
// process group, or outlives a killed supervisor, is not found here.

func (s *supervisor) killLeftovers() {}

func markedTasks(string) iter.Seq[driver.TaskID] { return func(func(driver.TaskID) bool) {} }

func (s *supervisor) killStrays(driver.TaskID) {}
