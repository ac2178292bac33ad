// Package test drives whole programs: the real daemons as processes of their
// own, killed at random moments, judged by what their callers were told.
package test
