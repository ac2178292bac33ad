// Package drivertest helps to test drivers and their users. Run is the test suite that every
// driver must pass. Memory is a driver that runs no processes: it passes the suite, too, and
// replaces a real driver in tests of a worker.
package drivertest
