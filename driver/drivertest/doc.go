// Package drivertest provides tests for drivers, and a simulated driver for tests of other packages. Run runs the test
// suite that every driver must pass. Memory is a simulated host whose drivers run no processes. Its drivers also pass
// the suite, and replace real drivers in tests of a worker.
package drivertest
