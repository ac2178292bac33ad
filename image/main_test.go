package image_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/image-spec/identity"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/image"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

func TestMain(m *testing.M) { os.Exit(containerdtest.Main(m)) }

// waitLimit limits every wait in these tests. It is far longer than any of them takes.
const waitLimit = time.Minute

// counter makes namespaces and the seeds of random layers unique to a test, because containerd
// shares blobs between namespaces.
var counter atomic.Uint64

// host is a test's containerd namespace and the stores that use it.
type host struct {
	server    *containerdtest.Server
	namespace string
	client    *containerd.Client
}

func newHost(tb testing.TB, server *containerdtest.Server) *host {
	tb.Helper()
	namespace := fmt.Sprintf("image-%d", counter.Add(1))
	return &host{server, namespace, server.Client(tb, namespace)}
}

// open opens a store without running it. The store is closed when the test ends.
func (h *host) open(tb testing.TB, edit func(*image.Config)) *image.Store {
	tb.Helper()
	config := image.Config{Address: h.server.Address, Namespace: h.namespace, Stall: 10 * time.Second, Private: true}
	if edit != nil {
		edit(&config)
	}
	s, err := image.Open(config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return s
}

// run runs a store. The returned function stops it and waits until it has ended.
func run(tb testing.TB, s *image.Store) func() {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("Run: %v", err)
		}
	}
	tb.Cleanup(stop)
	return stop
}

// random returns layers of these sizes in bytes. No other test has the same layers.
func random(sizes ...int) []registrytest.Layer {
	var out []registrytest.Layer
	for _, size := range sizes {
		out = append(out, registrytest.Random(counter.Add(1), size))
	}
	return out
}

// pull resolves and pulls an image.
func pull(tb testing.TB, s *image.Store, name string) bourse.Image {
	tb.Helper()
	ref, err := s.Resolve(tb.Context(), "", name)
	if err != nil {
		tb.Fatalf("resolve %s: %v", name, err)
	}
	got, err := s.Pull(tb.Context(), "", ref, nil)
	if err != nil {
		tb.Fatalf("pull %s: %v", name, err)
	}
	return got
}

// refOf returns the reference of a pushed image.
func refOf(p registrytest.Pushed) bourse.ImageRef { return bourse.ParseImageRef(p.Ref()) }

// eventually polls ok until it returns true. It is meant for conditions that cannot be awaited in any other way.
func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	deadline := time.Now().Add(waitLimit)
	for !ok() {
		if time.Now().After(deadline) {
			tb.Fatalf("%s: not within %s", what, waitLimit)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// contents lists all objects in a containerd namespace by kind.
func (h *host) contents(tb testing.TB) map[string][]string {
	tb.Helper()
	ctx, c := tb.Context(), h.client
	out := map[string][]string{}
	fail := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	list, err := c.ImageService().List(ctx)
	fail(err)
	for _, i := range list {
		out["image"] = append(out["image"], i.Name)
	}
	held, err := c.LeasesService().List(ctx)
	fail(err)
	for _, l := range held {
		out["lease"] = append(out["lease"], l.ID)
	}
	fail(c.ContentStore().Walk(ctx, func(i content.Info) error {
		out["blob"] = append(out["blob"], i.Digest.String())
		return nil
	}))
	ingests, err := c.ContentStore().ListStatuses(ctx)
	fail(err)
	for _, i := range ingests {
		out["ingest"] = append(out["ingest"], i.Ref)
	}
	fail(c.SnapshotService("overlayfs").Walk(ctx, func(_ context.Context, i snapshots.Info) error {
		out["snapshot"] = append(out["snapshot"], i.Kind.String()+" "+i.Name)
		return nil
	}))
	for _, names := range out {
		slices.Sort(names)
	}
	return out
}

// unchanged checks that a namespace contains the same objects as before.
func (h *host) unchanged(tb testing.TB, before map[string][]string) {
	tb.Helper()
	if diff := cmp.Diff(before, h.contents(tb)); diff != "" {
		tb.Errorf("left behind in containerd (-before +after):\n%s", diff)
	}
}

// kinds returns the number of objects of each kind.
func kinds(contents map[string][]string) map[string]int {
	out := map[string]int{}
	for kind := range maps.Keys(contents) {
		out[kind] = len(contents[kind])
	}
	return out
}

// rootfs returns a directory in which an image's files can be read.
func (h *host) rootfs(tb testing.TB, ref bourse.ImageRef) string {
	tb.Helper()
	ctx := tb.Context()
	record, err := h.client.ImageService().Get(ctx, recordOf(ref))
	if err != nil {
		tb.Fatal(err)
	}
	ids, err := containerd.NewImage(h.client, record).RootFS(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	return h.mount(tb, identity.ChainID(ids).String())
}

func recordOf(ref bourse.ImageRef) string {
	ref.Tag = ""
	return ref.String()
}

// has reports whether the file at path below dir has this text.
func has(tb testing.TB, dir, path, text string) bool {
	tb.Helper()
	got, err := os.ReadFile(filepath.Join(dir, path))
	return err == nil && strings.Contains(string(got), text)
}

// wantCode checks the code of an error.
func wantCode(tb testing.TB, err error, want bourse.Code) {
	tb.Helper()
	if got := bourse.CodeOf(err); got != want {
		tb.Errorf("code %q (%v), want %q", got, err, want)
	}
}
