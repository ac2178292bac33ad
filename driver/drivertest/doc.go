// Package drivertest provides tests for drivers, and a simulated driver for tests of other packages. Run runs the test
// suite that every driver must pass. Memory is a simulated host. Its drivers do not run any processes, but they pass
// the suite, so tests of workers use them instead of real drivers.
package drivertest
