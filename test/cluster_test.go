package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// The words of package servertest, as the tests here use them.
type server = servertest.Server

var (
	startServer = servertest.Start
	newServer   = servertest.New
	startAll    = servertest.StartAll
	clusterOf   = servertest.Cluster
	client      = servertest.Client
	within      = servertest.Within
)

// pidsOf gives the processes whose command line has the mark.
func pidsOf(t *testing.T, mark string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(line), mark) {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}
