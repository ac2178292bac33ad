package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bourse-dev/bourse/internal/loopback"
)

// TestScripts runs the scripts of testdata/script against one cluster of
// three regions with two workers each; each script has an app of its own.
func TestScripts(t *testing.T) {
	t.Parallel()
	runScripts(t, startDev(t), "testdata/script", *update)
}

// TestScriptsOverNATS runs the same against a cluster over NATS, and what is
// different there.
func TestScriptsOverNATS(t *testing.T) {
	t.Parallel()
	d := startDev(t, "--fabric", "nats")
	for _, dir := range []string{"testdata/script", "testdata/nats"} {
		runScripts(t, d, dir, false)
	}
}

func runScripts(t *testing.T, d *dev, dir string, update bool) {
	testscript.Run(t, testscript.Params{
		Dir:                 dir,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("BOURSE_API", d.API)
			e.Setenv(loopback.Variable, os.Getenv(loopback.Variable))
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){"exits": exits},
	})
}

// exits runs a program that must end with a status: exits 6 bourse …
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
