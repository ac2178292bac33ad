// Package drivertest helps to test drivers and the code that uses them. Run runs the test suite
// that every driver must pass. Memory is a simulated host whose drivers run no processes. Its
// drivers also pass the suite, and replace real drivers in tests of a worker.
package drivertest
