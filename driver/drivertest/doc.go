// Package drivertest provides tests for drivers, and a simulated driver for tests of other packages. Run runs the test
// suite that every driver must pass. Memory is a simulated host, whose drivers do not run any processes. They also pass
// the suite, and replace real drivers in tests of workers.
package drivertest
