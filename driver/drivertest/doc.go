// Package drivertest holds what drivers are tested with: Run, the suite that
// every driver passes, and Memory, a small driver without a kernel that passes
// it too and stands in for a real one in the tests of a worker.
package drivertest
