// Package test tests whole programs: the real daemons run as separate processes and are
// killed at random moments. The results are compared with the replies that the callers
// received.
package test
