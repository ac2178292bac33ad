// Package drivertest helps to test drivers and the code that uses them. Run runs the test suite
// that every driver must pass. Memory is a host whose drivers run no processes. They also pass the
// suite, and replace real drivers in tests of a worker.
package drivertest
