package process

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
)

// TestDriver runs the contract's suite with all that the host lets us use.
func TestDriver(t *testing.T) { runSuite(t, nil) }

// TestDriverUngrouped runs it as on a host without cgroups.
func TestDriverUngrouped(t *testing.T) {
	runSuite(t, func(c *Config) { c.Limits = LimitsOff })
}

func runSuite(t *testing.T, change func(*Config)) {
	refused := filepath.Join(t.TempDir(), "refused")
	if err := os.WriteFile(refused, []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	sh := func(script string, args ...string) []string {
		return append([]string{"sh", "-c", script, "sh"}, args...)
	}
	drivertest.Run(t, drivertest.Harness{
		New: func(t *testing.T) drivertest.Host { return newHost(t, change) },
		Env: []string{"PATH=" + os.Getenv("PATH")},
		Programs: drivertest.Programs{
			Run:    sh("echo ready; exec sleep 1000"),
			Ignore: sh("trap '' HUP INT QUIT TERM USR1 USR2; echo ready; exec sleep 1000"),
			Exit:   func(code int) []string { return sh(fmt.Sprintf("exit %d", code)) },
			Print:  func(out, err string) []string { return sh(`echo "$1"; echo "$2" >&2`, out, err) },
			Lines: func(from, to int) []string {
				return sh(fmt.Sprintf(`i=%d; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); done`, from, to))
			},
			Slow: func(n int, pause time.Duration) []string {
				return sh(fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo "line $i"; i=$((i+1)); sleep %f; done`, n, pause.Seconds()))
			},
			Sleep: func(d time.Duration, code int) []string {
				return sh(fmt.Sprintf("sleep %f; exit %d", d.Seconds(), code))
			},
			Env:  func(name string) []string { return sh(fmt.Sprintf(`printf '%%s\n' "$%s"`, name)) },
			Dir:  sh("pwd"),
			User: sh(`echo "$(id -u):$(id -g)"`),
			Cat:  []string{"cat"},
			Echo: func(text string) []string { return sh(`printf '%s\n' "$1"`, text) },
			Tree: sh(`trap '' TERM
				(trap '' TERM HUP; sleep 1000 & sleep 1000 & wait) &
				sleep 1000 &
				echo ready; wait; sleep 1000`),
			Leaver:  sh("sleep 1000 & (sleep 1000 & sleep 1000) & exit 0"),
			Escaper: sh(`setsid sh -c 'touch escaped; exec sleep 1000' & while [ ! -e escaped ]; do :; done; echo left`),
			Allocate: func(m bourse.MiB) []string {
				return sh(fmt.Sprintf(`x=$(head -c %dM /dev/zero | tr '\0' x); echo allocated`, m))
			},
			Forks: func(n int) []string {
				return sh(fmt.Sprintf("i=0; while [ $i -lt %d ]; do sleep 0.3 & i=$((i+1)); done; wait", n))
			},
			Missing: []string{"no-such-program-anywhere"},
			Refused: []string{refused},
		},
	})
}
