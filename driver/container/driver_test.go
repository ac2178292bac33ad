package container

import (
	"strconv"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

func itoa(n int) string { return strconv.Itoa(n) }

func sh(script string, args ...string) []string {
	return append([]string{"sh", "-c", script, "sh"}, args...)
}

// These scripts wait for a signal without starting another process: they read from a terminal to
// which nothing is written. They trap signals, because the first process of a container receives
// only the signals that it handles.
const (
	trapScript   = `for s in HUP:1 INT:2 QUIT:3 USR1:10 USR2:12 TERM:15; do trap "exit $((128+${s#*:}))" ${s%:*}; done;`
	runScript    = `exec 3<>/dev/ptmx;` + trapScript + `echo ready; while :; do read x <&3; done`
	ignoreScript = `trap '' HUP INT QUIT TERM USR1 USR2; exec 3<>/dev/ptmx; echo ready; while :; do read x <&3; done`
)

// TestDriver runs the test suite for drivers.
func TestDriver(t *testing.T) {
	files := containerdtest.Busybox(t)
	files["/bin/refused"] = containerdtest.File{Data: []byte("#!/bin/sh\n"), Mode: 0o644}
	image := (&host{server: containerdtest.Start(t)}).image(t, files, ocispec.ImageConfig{})
	programs := drivertest.Shell("/bin/refused")
	programs.Run, programs.Ignore = sh(runScript), sh(ignoreScript)
	programs.Busy = sh(trapScript + "echo ready; while :; do :; done")
	drivertest.Run(t, drivertest.Harness{
		New:      func(t *testing.T) drivertest.Host { return newHost(t, nil) },
		Image:    image,
		Many:     24, // each container needs six more processes, such as its shim
		Programs: programs,
	})
}
