package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bourse-dev/bourse/cli/clitest"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// TestScripts runs the scripts in testdata/script and flyctl's request sequences
// against one cluster of three regions with two workers each. Each script and sequence
// has its own app.
func TestScripts(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	t.Run("flyctl", func(t *testing.T) { replayFlyctl(t, d) })
	runScripts(t, d, "testdata/script", *clitest.Update)
}

// TestFleetScripts runs scripts that make workers refuse orders, so they have their own
// cluster.
func TestFleetScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, startDev(t, "--regions", "gru,mad,ord", "--workers", "2"), "testdata/fleet", *clitest.Update)
}

// TestScriptsOverNATS runs the scripts for NATS. It also runs other scripts that
// together use every kind of connection: orders, calls, streams in both directions, and
// tunnels.
func TestScriptsOverNATS(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--fabric", "nats")
	runScripts(t, d, "testdata/nats", false)
	runScripts(t, d, "", false, "testdata/script/attach.txtar", "testdata/script/machine.txtar", "testdata/script/proxy.txtar",
		"testdata/script/task.txtar", "testdata/script/update.txtar")
}

// runScripts runs all scripts in a directory, or only the given files.
func runScripts(t *testing.T, d *devCluster, dir string, update bool, files ...string) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		Files:               files,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BOURSE_API", d.API)
			e.Setenv("PROXY", strings.TrimPrefix(d.Proxy, "http://127.0.0.1:"))
			e.Setenv(loopback.Variable, os.Getenv(loopback.Variable))
			return nil
		},
		Condition: func(name string) (bool, error) {
			if name != "root" { // true if cgroups can be created and frozen
				return false, fmt.Errorf("unknown condition %s", name)
			}
			return os.Getuid() == 0, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"await": awaitOutput, "exits": exits, "scrape": scrape},
	})
}

// awaitOutput implements the script command "await PATTERN PROGRAM ARGUMENT...". It
// runs the program repeatedly until the program succeeds and its output matches a
// regular expression. Scripts need it for data from a server's view, which is updated
// some time after a change was confirmed.
func awaitOutput(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: await PATTERN PROGRAM ARGUMENT...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(awaitTimeout); ; time.Sleep(100 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no output matched %q within %s (%v)", args[0], awaitTimeout, err)
		}
	}
}

// exits implements the script command "exits STATUS PROGRAM ARGUMENT...", which runs a
// program and checks its exit status.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARGUMENT...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d\n%s%s", got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

// scrape implements the script command "scrape PATH FILE", which writes the broker's
// reply to a GET request to a file.
func scrape(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: scrape PATH FILE")
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, ts.Getenv("BOURSE_API")+args[0], nil)
	ts.Check(err)
	token, _ := loopback.Find(ts.Getenv, ts.Getenv("BOURSE_API"))
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode != http.StatusOK {
		ts.Fatalf("GET %s: %s: %s", args[0], resp.Status, text)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), text, 0o600))
}
