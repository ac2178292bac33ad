package test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// Short names for package servertest's functions and types, which the tests in this package
// use.
type server = servertest.Server

var (
	startServer = servertest.Start
	newServer   = servertest.New
	startAll    = servertest.StartAll
	clusterOf   = servertest.Cluster
	client      = servertest.Client
	within      = servertest.Within
)

const waitTimeout = servertest.Timeout

// markOf returns a text that identifies a test's machines by their command lines. No other
// test, and no other run on this host, uses it.
func markOf(t *testing.T) string {
	return fmt.Sprintf("bourse-%s-%d-", t.Name(), os.Getpid())
}

// pidsOf returns the ids of the processes whose command line contains the mark.
func pidsOf(t *testing.T, mark string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(linesOf(t, mark)))
}

// linesOf returns the command lines that contain the mark, by process id. Arguments are
// separated by spaces.
func linesOf(t *testing.T, mark string) map[string]string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]string{}
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), mark) {
			lines[strings.Split(f, "/")[2]] = strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
		}
	}
	return lines
}
