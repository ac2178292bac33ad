package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

func TestExitFrom(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for status, want := range map[uint32]bourse.Exit{
		0:   {Code: 0},
		1:   {Code: 1},
		128: {Code: 128},
		137: {Code: -1, Signal: 9},
		143: {Code: -1, Signal: 15},
		159: {Code: -1, Signal: 31},
		160: {Code: 160},
		255: {Code: 255},
	} {
		want.At = at
		if got := exitFrom(status, timestamppb.New(at)); got != want {
			t.Errorf("status %d: got %+v, want %+v", status, got, want)
		}
	}
}

func TestExitLabel(t *testing.T) {
	want := bourse.Exit{Code: -1, Signal: 9, OOMKilled: true, Error: "why", At: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}
	label, err := exitLabel(want)
	if got := exitOf(containers.Container{Labels: map[string]string{labelExit: label}}); err != nil || got == nil || *got != want {
		t.Errorf("%+v was decoded as %+v, %v", want, got, err)
	}
	want.Error = strings.Repeat("é", 5000)
	if label, err = exitLabel(want); err != nil || len(label) > 4000 || !utf8.ValidString(label) {
		t.Errorf("got a label of %d bytes, %v; want at most 4096, which is containerd's limit", len(label), err)
	}
	if got := exitOf(containers.Container{Labels: map[string]string{labelExit: "{"}}); got != nil {
		t.Errorf("a truncated label was decoded as %+v", got)
	}
}

func FuzzTaskName(f *testing.F) {
	for _, seed := range []string{"00000100000001-1", "00000100000001-01", "../../x-1", "00000100000001", "-", "00000100000001--1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, ok := parseTaskName(name)
		if !ok {
			return
		}
		if taskName(id) != name || id.Machine.Validate() != nil || id.Boot < 1 {
			t.Errorf("%q was parsed as %+v", name, id)
		}
		l := layout{dir: "/d"}
		if got, ok := l.taskOf(l.container(id)); !ok || got != id {
			t.Errorf("container %q of %+v was parsed as %+v", l.container(id), id, got)
		}
	})
}

func TestCondense(t *testing.T) {
	for text, want := range map[string]string{
		`failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "nginx": executable file not found in $PATH: unknown`: `exec: "nginx": executable file not found in $PATH`,
		"a\x1b[31m\nb": "a [31m b",
		`plain`:        "plain",
		"":             "",
	} {
		if got := shortenRuntimeError(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func FuzzCondense(f *testing.F) {
	f.Add("OCI runtime create failed: OCI runtime create failed: ")
	f.Add(strings.Repeat("é", 600))
	f.Fuzz(func(t *testing.T, text string) {
		if got := shortenRuntimeError(text); len(got) > 600 || utf8.ValidString(text) && !utf8.ValidString(got) {
			t.Errorf("%q became %q", text, got)
		}
	})
}

func TestErrorCodes(t *testing.T) {
	for what, c := range map[string]struct {
		err  error
		want bourse.Code
	}{
		"away":           {status.Error(codes.Unavailable, "connection refused"), bourse.CodeUnavailable},
		"cut off":        {status.Error(codes.Unknown, "ttrpc: closed: unknown"), bourse.CodeUnavailable},
		"too large":      {status.Error(codes.ResourceExhausted, "message larger than max"), bourse.CodeInvalid},
		"something else": {status.Error(codes.Unknown, "cgroups: oh no"), bourse.CodeInternal},
		"ours":           {bourse.Errorf(bourse.CodeConflict, "x"), bourse.CodeConflict},
		"nothing":        {nil, ""},
	} {
		if got := bourse.CodeOf(withCode(t.Context(), c.err)); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	for _, c := range []struct {
		code      codes.Code // shims return codes.Unknown
		remaining time.Duration
		want      bourse.Code
	}{
		{codes.DeadlineExceeded, time.Hour, bourse.CodeUnavailable},
		{codes.DeadlineExceeded, 500 * time.Millisecond, bourse.CodeTimeout},
		{codes.Unknown, time.Hour, bourse.CodeInternal},
		{codes.Unknown, 500 * time.Millisecond, bourse.CodeTimeout},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), c.remaining)
		defer cancel()
		if got := bourse.CodeOf(withCode(ctx, status.Error(c.code, "context deadline exceeded"))); got != c.want {
			t.Errorf("%v while the caller had %v left: got %q, want %q", c.code, c.remaining, got, c.want)
		}
	}
	const task = "/run/containerd/io.containerd.runtime.v2.task/bourse/a1-3/rootfs"
	for text, want := range map[string]string{
		`OCI runtime create failed: runc create failed: unable to apply caps: operation not permitted: unknown`:                        `unable to apply caps: operation not permitted`,
		`runc create failed: error mounting "/data/w1/volumes/x" to rootfs at "/data": mount /data/w1/volumes/x:` + task + `/data: no`: `error mounting "(of the host)" to rootfs at "/data": mount (of the host):/data: no`,
	} {
		got := startError(t.Context(), status.Error(codes.Unknown, text), "", "/data/w1")
		if bourse.MessageOf(got) != "the container cannot be started: "+want {
			t.Errorf("%s: got %s, want %s", text, bourse.MessageOf(got), want)
		}
	}
	for what, c := range map[string]struct {
		text string
		want bourse.Code
	}{
		"command": {`runc create failed: exec: "x": executable file not found in $PATH`, bourse.CodeInvalid},
		"disk":    {"mkdir /x: no space left on device", bourse.CodeInsufficient},
		"cgroup":  {"runc create failed: unable to apply cgroup configuration: device or resource busy", bourse.CodeInternal},
	} {
		if got := bourse.CodeOf(startError(t.Context(), status.Error(codes.Unknown, c.text))); got != c.want {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
	}
	if !isNotFound(status.Error(codes.NotFound, "x")) || isNotFound(errors.New("not found")) || isNotFound(nil) {
		t.Error("isNotFound does not distinguish errors")
	}
}

func TestOverlayOn(t *testing.T) {
	for what, c := range map[string]struct {
		view    []mount.Mount
		scratch string
		want    []string
	}{
		"one layer": {[]mount.Mount{{Type: "bind", Source: "/s/1/fs", Options: []string{"ro", "rbind"}}}, "/scratch", []string{
			"upperdir=/scratch/upper", "workdir=/scratch/work", "lowerdir=/s/1/fs",
		}},
		"several": {[]mount.Mount{{Type: "overlay", Options: []string{"index=off", "lowerdir=/s/2/fs:/s/1/fs"}}}, "/scratch", []string{
			"upperdir=/scratch/upper", "workdir=/scratch/work", "index=off", "lowerdir=/s/2/fs:/s/1/fs",
		}},
		"a device":        {[]mount.Mount{{Type: "ext4", Source: "/dev/x"}}, "/scratch", nil},
		"a writable one":  {[]mount.Mount{{Type: "overlay", Options: []string{"upperdir=/u", "lowerdir=/l"}}}, "/scratch", nil},
		"an odd path":     {[]mount.Mount{{Type: "bind", Source: "/s"}}, "/scratch,upperdir=/etc", nil},
		"nothing":         {nil, "/scratch", nil},
		"several mounts":  {[]mount.Mount{{Type: "bind"}, {Type: "bind"}}, "/scratch", nil},
		"a colon in path": {[]mount.Mount{{Type: "bind", Source: "/s"}}, "/a:b", nil},
	} {
		got, err := overlayOn(c.view, c.scratch)
		if c.want == nil {
			if bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%s: got %v, %v, want invalid", what, got, err)
			}
			continue
		}
		if err != nil || len(got) != 1 || got[0].Type != "overlay" || !slices.Equal(got[0].Options, c.want) {
			t.Errorf("%s: got %+v, %v, want %q", what, got, err, c.want)
		}
	}
}

func TestResources(t *testing.T) {
	r := resourcesOf(driver.Limits{Memory: 1, PIDs: 5, CPUWeight: 1, CPUQuota: 63, CPUPeriod: 80 * time.Millisecond}, true)
	if *r.Memory.Limit != int64(minMemory)<<20 || *r.Memory.Swap != *r.Memory.Limit || *r.Pids.Limit != minPIDs || *r.CPU.Shares != 2 ||
		*r.CPU.Quota != 5040 || *r.CPU.Period != 80_000 {
		t.Errorf("small limits became %+v", r)
	}
	if r := resourcesOf(driver.Limits{}, true); r.Memory != nil || r.CPU != nil || r.Pids != nil {
		t.Errorf("no limits became %+v", r)
	}
}

func TestShims(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"containerd-shim-runc-v1", "containerd-shim-runc-v2", "containerd-shim-kata-v2", "containerd-shim-Bad_Name-v1", "runc"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	got := shimsIn("/nowhere:" + dir)
	if diff := cmp.Diff(map[string]string{"runc": "io.containerd.runc.v2", "kata": "io.containerd.kata.v2"}, got); diff != "" {
		t.Error(diff)
	}
	for name, want := range map[string]string{"kata": "io.containerd.kata.v2", "io.containerd.other.v1": "io.containerd.other.v1", "/bin/sh": "", "a..b": "", "other": ""} {
		long, err := runtimeOf(name, got)
		if long != want || (want == "") != (bourse.CodeOf(err) == bourse.CodeInvalid) {
			t.Errorf("runtime %q: got %q, %v, want %q", name, long, err, want)
		}
	}
}
