package broker_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
)

func TestPullImage(t *testing.T) {
	s := start(t)
	s.workers["w2"].silence(errDown)
	client := s.client(t)
	var got []string
	err := client.PullImage(t.Context(), machinesapi.PullImage{Image: "nginx:1.27", ImageTarget: machinesapi.ImageTarget{Region: "gru"}}, func(l machinesapi.PullLine) error {
		switch {
		case l.Err() != nil:
			got = append(got, fmt.Sprint(l.Worker, " ", bourse.CodeOf(l.Err())))
		case l.Done:
			got = append(got, fmt.Sprint(l.Worker, " done ", l.Image.Ref.Digest))
		default:
			got = append(got, fmt.Sprint(l.Worker, " ", l.Image.Pull.Bytes))
		}
		return nil
	})
	slices.SortStableFunc(got, func(a, b string) int { return strings.Compare(a[:2], b[:2]) })
	if d := cmp.Diff([]string{"w1 0", "w1 100", "w1 200", "w1 done sha256:ab", "w2 unavailable"}, got); err != nil || d != "" {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	enough := errors.New("enough")
	if err := client.PullImage(t.Context(), machinesapi.PullImage{Image: "nginx"}, func(machinesapi.PullLine) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a reader that stops early: %v", err)
	}
	missing := 0
	err = client.PullImage(t.Context(), machinesapi.PullImage{Image: "missing", ImageTarget: machinesapi.ImageTarget{Worker: "w3"}}, func(l machinesapi.PullLine) error {
		missing++
		if bourse.CodeOf(l.Err()) != bourse.CodeNotFound || l.Err().Error() != "no such image" {
			t.Errorf("missing image: %+v", l)
		}
		return nil
	})
	if err != nil || missing != 1 {
		t.Errorf("missing image: %d lines, %v", missing, err)
	}
}

func TestImages(t *testing.T) {
	s := start(t)
	client, ctx := s.client(t), t.Context()
	for _, w := range []bourse.WorkerID{"w1", "w3"} {
		s.workers[w].images = []bourse.Image{{Ref: bourse.ParseImageRef("nginx"), Bytes: 7, InUse: true}}
	}
	names := func(list []machinesapi.WorkerImage) string {
		var out []string
		for _, i := range list {
			out = append(out, fmt.Sprint(i.Worker, " ", i.Region, " ", i.Ref.Repository))
		}
		return strings.Join(out, ", ")
	}
	for _, tt := range []struct {
		of   machinesapi.ImageTarget
		want string
	}{
		{machinesapi.ImageTarget{}, "w1 gru library/nginx, w3 mad library/nginx"},
		{machinesapi.ImageTarget{Region: "mad"}, "w3 mad library/nginx"},
		{machinesapi.ImageTarget{Worker: "w1"}, "w1 gru library/nginx"},
		{machinesapi.ImageTarget{Worker: "w2"}, ""},
	} {
		if list, silent, err := client.Images(ctx, tt.of); err != nil || len(silent) != 0 || names(list) != tt.want {
			t.Errorf("%+v: %s, %v, %v, want %s", tt.of, names(list), silent, err, tt.want)
		}
	}
	s.workers["w2"].silence(errDown)
	if list, silent, err := client.PruneImages(ctx, machinesapi.ImageTarget{Region: "gru"}); err != nil || names(list) != "w1 gru library/nginx" || !cmp.Equal(silent, []bourse.WorkerID{"w2"}) {
		t.Errorf("prune: %s, %v, %v", names(list), silent, err)
	}
	if _, _, err := client.Images(ctx, machinesapi.ImageTarget{Worker: "w2"}); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("from an unresponsive worker: %v", err)
	}
}

func TestImageCallsRejectInvalidRequests(t *testing.T) {
	s := start(t, func(c *broker.Config) {
		c.Tokens = tokenMap{"all": {Name: "root"}, "acme": {Name: "acme", Org: "acme"}}
	})
	for _, tt := range []struct {
		method, path, body, token string
		status                    int
	}{
		{"POST", "/pull", `{"image":"nginx"}`, "acme", 403},
		{"GET", "", "", "acme", 403},
		{"POST", "/prune", "", "acme", 403},
		{"POST", "/pull", `{}`, "all", 400},
		{"POST", "/pull", `{"image":"host"}`, "all", 400},
		{"POST", "/pull", `{"image":"a b"}`, "all", 400},
		{"POST", "/pull", `{"image":"` + strings.Repeat("x", 600) + `"}`, "all", 400},
		{"POST", "/pull", `{"image":"nginx","region":"lhr"}`, "all", 404},
		{"POST", "/pull", `{"image":"nginx","worker":"w9"}`, "all", 404},
		{"POST", "/prune", `{"region":"gru","worker":"w1"}`, "all", 400},
		{"GET", "?worker=w9", "", "all", 404},
	} {
		rec := s.call(t, tt.method, "/v1/images"+tt.path, tt.body, "Authorization", "Bearer "+tt.token)
		if rec.Code != tt.status {
			t.Errorf("%s %s %s: %d %s, want %d", tt.method, tt.path, tt.body, rec.Code, rec.Body, tt.status)
		}
	}
	none := startOn(t, newCluster())
	if rec := none.call(t, http.MethodGet, "/v1/images", ""); rec.Code != http.StatusServiceUnavailable {
		t.Errorf("without workers: %d %s", rec.Code, rec.Body)
	}
}

func TestUsage(t *testing.T) {
	s := start(t)
	m := s.machine(t, "w1", "web", bourse.StateStarted)
	got, err := s.client(t).Usage(t.Context(), "shop", m.ID)
	if err != nil || got.CPUMS != 1500 || got.Throttled != -1 || got.Memory != 1<<20 || got.CPULimit != 2 || got.Read != -1 || got.At.Unix() != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := s.client(t).Usage(t.Context(), "blog", m.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("of another app's machine: %v", err)
	}
}

// TestResolveImage checks that a worker queries the registry with the credentials of the app's organization, and that
// the broker uses the answer of the first worker that can resolve the image.
func TestResolveImage(t *testing.T) {
	s := start(t)
	s.workers["w2"].silence(errDown)
	s.app(t, "shop", "acme")
	images, ctx := s.client(t).AppImages("shop"), t.Context()
	for range 8 { // the result must not depend on which worker is asked first
		if ref, err := images.Resolve(ctx, "nginx:1.27"); err != nil || ref.Tag != "1.27" || ref.Digest != "sha256:acme" {
			t.Errorf("%+v, %v", ref, err)
		}
	}
	for _, name := range []string{"host", "host@sha256:ab", "/host:latest", "host:latest@sha256:ab"} {
		if ref, err := images.Resolve(ctx, name); err != nil || ref.String() != "/host:latest" {
			t.Errorf("%s: %+v, %v", name, ref, err)
		}
	}
	for name, want := range map[string]bourse.Code{"missing": bourse.CodeNotFound, "": bourse.CodeInvalid, "a b": bourse.CodeInvalid} {
		if _, err := images.Resolve(ctx, name); bourse.CodeOf(err) != want {
			t.Errorf("%q: %v, want %s", name, err, want)
		}
	}
	images.App = "nowhere"
	if _, err := images.Resolve(ctx, "host"); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("missing app: %v", err)
	}
}
