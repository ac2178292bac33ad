package image_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/leases"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

// halfWay makes a registry send half of a layer and then stop until the returned function is
// called. The channel receives a value when the layer is requested.
func halfWay(r *registrytest.Registry, p registrytest.Pushed) (<-chan struct{}, func()) {
	half := p.Layers[0].Size / 2
	arrived := make(chan struct{}, 10)
	r.Fault(func(req *http.Request) registrytest.Fault {
		if strings.HasSuffix(req.URL.Path, p.Layers[0].Digest.String()) {
			arrived <- struct{}{}
			return registrytest.Fault{Hang: true, After: half}
		}
		return registrytest.Fault{}
	})
	return arrived, func() { r.Fault(nil) }
}

// reached waits until a pull has received this many bytes.
func reached(t *testing.T, s *image.Store, bytes int64) {
	t.Helper()
	eventually(t, "half of the layer", func() bool {
		list, _ := s.List(t.Context())
		return slices.ContainsFunc(list, func(i bourse.Image) bool { return i.Pull != nil && i.Pull.Bytes >= bytes })
	})
}

// TestDaemonRestarts closes the store during a pull. The next run must automatically resume the pull where it stopped.
func TestDaemonRestarts(t *testing.T) {
	t.Parallel()
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(8 << 20)})
	arrived, release := halfWay(r, p)
	s := h.open(t, nil)
	stop := run(t, s)
	failed := make(chan error, 1)
	go func() {
		_, err := s.Pull(t.Context(), "", refOf(p), nil)
		failed <- err
	}()
	<-arrived
	reached(t, s, p.Layers[0].Size/2)
	stop()
	wantCode(t, <-failed, bourse.CodeUnavailable)
	release()
	next := h.open(t, nil)
	run(t, next)
	eventually(t, "resumption", func() bool { return next.Has(refOf(p)) })
	// containerd receives data in chunks of one MiB, and the last chunk may be lost.
	if got := r.Stats().BlobBytes; got > p.Bytes+1<<20 {
		t.Errorf("%d bytes were fetched in total, but the image has %d", got, p.Bytes)
	}
	eventually(t, "the lease's end", func() bool { return kinds(h.contents(t))["lease"] == 0 })
	if list, _ := next.List(t.Context()); list[0].Ref.Tag != "v1" {
		t.Errorf("the resumed image is %s, without its tag", list[0].Ref)
	}
}

// TestCrashBetweenRecordAndLease checks that the lease of a completed pull is removed after a
// crash.
func TestCrashBetweenRecordAndLease(t *testing.T) {
	t.Parallel()
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(200_000)})
	arrived, release := halfWay(r, p)
	s := h.open(t, nil)
	go func() { _, _ = s.Pull(t.Context(), "", refOf(p), nil) }() // fails when the store is closed
	<-arrived
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	held, err := h.client.LeasesService().List(t.Context())
	if err != nil || len(held) != 1 {
		t.Fatalf("leases %v, %v, want one", held, err)
	}
	release()
	other := h.open(t, nil)
	pull(t, other, p.Name)
	ctx, done, err := h.client.WithLease(t.Context(), func(l *leases.Lease) error { *l = held[0]; return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }()
	run(t, h.open(t, nil))
	eventually(t, "the lease's end", func() bool { return kinds(h.contents(t))["lease"] == 0 })
}

// TestKeepEnds checks that the data of a failed pull is removed if it does not fit into the budget together with
// another image.
func TestKeepEnds(t *testing.T) {
	t.Parallel()
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(400_000)})
	small := r.Push(t, "small:v1", registrytest.Image{Layers: random(200_000)})
	halfWay(r, p)
	s := h.open(t, func(c *image.Config) { c.Stall, c.Budget = 300*time.Millisecond, 600_000 })
	before := h.contents(t)
	_, err := s.Pull(t.Context(), "", refOf(p), nil)
	wantCode(t, err, bourse.CodeUnavailable)
	if got := kinds(h.contents(t)); got["lease"] != 1 || got["ingest"] != 1 {
		t.Fatalf("containerd has %v, want the lease and the partial layer to be kept", got)
	}
	// The data and the image exceed the budget, so the data is removed.
	pull(t, s, small.Name)
	if err := s.Remove(t.Context(), small.Digest); err != nil {
		t.Error(err)
	}
	h.unchanged(t, before)
}

// TestContainerdDies kills containerd during a pull and restarts it.
func TestContainerdDies(t *testing.T) {
	t.Parallel()
	server := containerdtest.New(t)
	h := newHost(t, server)
	r := registrytest.Start(t, registrytest.Options{})
	here := r.Push(t, "here:v1", registrytest.Image{Layers: random(1000)})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(1_000_000)})
	s := h.open(t, nil)
	run(t, s)
	pull(t, s, here.Name)
	r.Fault(of(p.Layers[0].Digest, registrytest.Fault{Rate: 1 << 20}))
	failed := make(chan error, 1)
	go func() {
		_, err := s.Pull(t.Context(), "", refOf(p), nil)
		failed <- err
	}()
	reached(t, s, 100_000)
	server.Kill(t)
	wantCode(t, <-failed, bourse.CodeUnavailable)
	if !s.Has(refOf(here)) {
		t.Error("an image is forgotten because containerd is unavailable")
	}
	_, err := s.Pull(t.Context(), "", refOf(p), nil)
	wantCode(t, err, bourse.CodeUnavailable)
	r.Fault(nil)
	server.Restart(t)
	eventually(t, "resumption", func() bool { return s.Has(refOf(p)) })
	eventually(t, "the lease's end", func() bool { return kinds(h.contents(t))["lease"] == 0 })
}

// TestImageRemovedByAnotherClient has another program remove an image from containerd.
func TestImageRemovedByAnotherClient(t *testing.T) {
	t.Parallel()
	h := newHost(t, containerdtest.Start(t))
	r := registrytest.Start(t, registrytest.Options{})
	p := r.Push(t, "web:v1", registrytest.Image{Layers: random(100_000)})
	s := h.open(t, nil)
	run(t, s)
	pull(t, s, p.Name)
	if err := h.client.ImageService().Delete(t.Context(), recordOf(refOf(p)), images.SynchronousDelete()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "notice", func() bool { return !s.Has(refOf(p)) })
	if _, err := s.Pull(t.Context(), "", refOf(p), nil); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestDiskFull runs containerd on a file system that is too small.
func TestDiskFull(t *testing.T) {
	small := t.TempDir()
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("no small file system for containerd: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, 0); err != nil {
			t.Error(err)
		}
	})
	temporary := os.TempDir()
	t.Setenv("TMPDIR", small)
	server := containerdtest.New(t)
	t.Setenv("TMPDIR", temporary)
	if !strings.HasPrefix(server.Address, small) {
		t.Fatalf("containerd is at %s, not below %s", server.Address, small)
	}
	h := newHost(t, server)
	r := registrytest.Start(t, registrytest.Options{})
	s := h.open(t, nil)
	for name, p := range map[string]registrytest.Pushed{
		"fetched":  r.Push(t, "web:v1", registrytest.Image{Layers: random(30 << 20)}),
		"unpacked": r.Push(t, "bomb:v1", registrytest.Image{Bomb: 1 << 30}),
	} {
		before, free := h.contents(t), free(t, small)
		_, err := s.Pull(t.Context(), "", refOf(p), nil)
		wantCode(t, err, bourse.CodeInsufficient)
		h.unchanged(t, before)
		if lost := free - freeAgain(t, small, free); lost > 1<<20 {
			t.Errorf("%s: %d bytes of disk are lost", name, lost)
		}
	}
	fits := r.Push(t, "fits:v1", registrytest.Image{Layers: random(1 << 20)})
	pull(t, s, fits.Name)
	if names, err := filepath.Glob(filepath.Join(server.Dir, "root", "io.containerd.content.v1.content", "ingest", "*")); len(names) > 0 || err != nil {
		t.Errorf("ingests remain: %v, %v", names, err)
	}
}

func free(t *testing.T, dir string) int64 {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	return int64(fs.Bavail) * fs.Bsize
}

// freeAgain waits until nearly as much space is free as before. The directories of snapshots are
// removed with a delay.
func freeAgain(t *testing.T, dir string, before int64) int64 {
	t.Helper()
	eventually(t, "free disk", func() bool { return before-free(t, dir) <= 1<<20 })
	return free(t, dir)
}
