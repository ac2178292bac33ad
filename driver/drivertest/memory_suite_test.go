package drivertest_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

type memoryHost struct{ *drivertest.Memory }

func (h memoryHost) Open(*testing.T) driver.Driver { return h.Driver() }

func (h memoryHost) Processes(*testing.T) int { return h.Memory.Processes() }

// TestMemory runs the suite's cases that a host without a kernel can pass.
func TestMemory(t *testing.T) {
	script := drivertest.Script
	drivertest.Run(t, drivertest.Harness{
		New: func(*testing.T) drivertest.Host { return memoryHost{drivertest.NewMemory()} },
		Programs: drivertest.Programs{
			Run:    script("print", "ready", "run"),
			Ignore: script("ignore", "print", "ready", "run"),
			Exit:   func(code int) []string { return script("exit", strconv.Itoa(code)) },
			Print:  func(out, err string) []string { return script("print", out, "warn", err) },
			Lines:  func(from, to int) []string { return script("lines", strconv.Itoa(from), strconv.Itoa(to)) },
			Slow: func(n int, pause time.Duration) []string {
				var words []string
				for i := range n {
					words = append(words, "print", "line "+strconv.Itoa(i), "sleep", pause.String())
				}
				return words
			},
			Sleep: func(d time.Duration, code int) []string {
				return script("sleep", d.String(), "exit", strconv.Itoa(code))
			},
			Env:     func(name string) []string { return script("env", name) },
			Dir:     script("pwd"),
			Cat:     script("cat"),
			LateCat: script("sleep", "50ms", "cat"),
			Busy:    script("print", "ready", "run"),
			Missing: script("missing"),
		},
	})
}
