//go:build unix && !linux

package process

import "github.com/bourse-dev/bourse/driver"

// Without /proc nothing shows a process's environment: what escapes its
// process group, or outlives a killed supervisor, is not found here.

func (s *supervisor) killLeftovers() {}

func (s *supervisor) killStrays(driver.TaskID) {}
