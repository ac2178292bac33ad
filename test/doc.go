// Package test tests whole programs: real daemons run as separate processes and are killed at random times. The tests
// compare the resulting state with the replies that the callers received.
package test
