package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bourse-dev/bourse/driver/drivertest"
)

// TestDriver runs the test suite for drivers, with all features that the host supports.
func TestDriver(t *testing.T) { runSuite(t, nil) }

// TestDriverUngrouped runs the suite as on a host without cgroups.
func TestDriverUngrouped(t *testing.T) {
	runSuite(t, func(c *Config) { c.Limits = LimitsOff })
}

func runSuite(t *testing.T, change func(*Config)) {
	refused := filepath.Join(t.TempDir(), "refused")
	if err := os.WriteFile(refused, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	drivertest.Run(t, drivertest.Harness{
		New:      func(t *testing.T) drivertest.Host { return newHost(t, change) },
		Env:      []string{"PATH=" + os.Getenv("PATH")},
		Programs: drivertest.Shell(refused),
	})
}
